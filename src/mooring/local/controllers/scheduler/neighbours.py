"""Pod (anti-)affinity and topology spread: which pods a pod wants near, and how evenly it is to lie. Pure.

``namespaces`` gives the labels of each namespace, for terms that choose namespaces by label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mooring.kube.objects.core import (
    Pod,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from mooring.kube.objects.meta import LabelSelector, LabelSelectorRequirement
from mooring.kube.selectors import selector_of
from mooring.local.controllers.placement import labels_of, matches_selector, untolerated
from mooring.local.controllers.scheduler.state import ClusterState, NodeState

__all__ = [
    "AFFINITY",
    "ANTI_AFFINITY",
    "EXISTING_ANTI_AFFINITY",
    "SPREAD",
    "SPREAD_LABEL",
    "Neighbourhood",
    "Spread",
]

Namespaces = Mapping[str, Mapping[str, str]]

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"


def node_affinity_matches(pod: Pod, state: NodeState) -> bool:
    """The node has the labels that the pod's nodeSelector and required node affinity ask for."""
    spec, node = pod.spec, state.node
    if spec is None or node is None:
        return False
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return matches_selector(required, node)


def _selector_with_keys(
    selector: LabelSelector | None, pod: Pod, match: Sequence[str] | None, differ: Sequence[str] | None = None
) -> LabelSelector | None:
    """The selector narrowed by the pod's own values of some labels (matchLabelKeys)."""
    labels = pod.metadata.labels or {}
    more = [
        LabelSelectorRequirement(key=key, operator=operator, values=[labels[key]])
        for operator, keys in (("In", match), ("NotIn", differ))
        for key in keys or ()
        if key in labels
    ]
    if selector is None or not more:
        return selector
    return LabelSelector(
        match_labels=selector.match_labels, match_expressions=[*(selector.match_expressions or ()), *more]
    )


class _Term:
    """One affinity term of a pod, ready to be matched against others."""

    def __init__(self, owner: Pod, term: PodAffinityTerm, namespaces: Namespaces) -> None:
        self.topology = term.topology_key or ""
        self._selector = selector_of(
            _selector_with_keys(term.label_selector, owner, term.match_label_keys, term.mismatch_label_keys)
        )
        self._namespaces = set(term.namespaces or ())
        if term.namespace_selector is not None:
            chosen = selector_of(term.namespace_selector)
            self._namespaces |= {name for name, labels in namespaces.items() if chosen.matches(labels)}
        elif not self._namespaces:
            self._namespaces = {owner.metadata.namespace or ""}

    def matches(self, pod: Pod) -> bool:
        return (pod.metadata.namespace or "") in self._namespaces and self._selector.matches(
            pod.metadata.labels
        )


def _required(terms: Iterable[PodAffinityTerm] | None, pod: Pod, namespaces: Namespaces) -> list[_Term]:
    return [_Term(pod, term, namespaces) for term in terms or ()]


class Neighbourhood:
    """Everything about one pod's neighbours that is the same for all nodes, counted once."""

    def __init__(self, pod: Pod, cluster: ClusterState, namespaces: Namespaces) -> None:
        self._pod = pod
        affinity = pod.spec.affinity if pod.spec else None
        near = affinity.pod_affinity if affinity else None
        apart = affinity.pod_anti_affinity if affinity else None
        self._near = _required(
            near.required_during_scheduling_ignored_during_execution if near else None, pod, namespaces
        )
        self._apart = _required(
            apart.required_during_scheduling_ignored_during_execution if apart else None, pod, namespaces
        )
        self._near_domains = [_domains(term, cluster) for term in self._near]
        self._apart_domains = [_domains(term, cluster) for term in self._apart]
        self._kept_off = _kept_off(pod, cluster, namespaces)
        self._preferred = self._preferences(cluster, namespaces)

    def refusal(self, state: NodeState) -> str:
        """Why the pod's or its neighbours' rules keep it off a node; ``""`` when they do not."""
        if any(state.labels.get(key) == value for key, value in self._kept_off):
            return EXISTING_ANTI_AFFINITY
        for term, domains in zip(self._apart, self._apart_domains, strict=True):
            value = state.labels.get(term.topology)
            if value is not None and domains[value]:
                return ANTI_AFFINITY
        return "" if self._near_enough(state) else AFFINITY

    def _near_enough(self, state: NodeState) -> bool:
        if not self._near:
            return True
        values = [state.labels.get(term.topology) for term in self._near]
        if any(value is None for value in values):
            return False
        if all(domains[value or ""] for value, domains in zip(values, self._near_domains, strict=True)):
            return True
        # The first of a group may go anywhere: nobody is there yet, and it matches its own rule.
        nobody = not any(sum(domains.values()) for domains in self._near_domains)
        return nobody and all(term.matches(self._pod) for term in self._near)

    def score(self, state: NodeState) -> float:
        """How much preferred affinity speaks for a node; negative against it."""
        return sum(
            weight * counts[state.labels[key]]
            for key, weight, counts in self._preferred
            if key in state.labels
        )

    def _preferences(
        self, cluster: ClusterState, namespaces: Namespaces
    ) -> list[tuple[str, float, Counter[str]]]:
        affinity = self._pod.spec.affinity if self._pod.spec else None
        near = affinity.pod_affinity if affinity else None
        apart = affinity.pod_anti_affinity if affinity else None
        wished = (near.preferred_during_scheduling_ignored_during_execution or ()) if near else ()
        unwished = (apart.preferred_during_scheduling_ignored_during_execution or ()) if apart else ()
        weighted: list[tuple[int, WeightedPodAffinityTerm]] = [
            *((1, entry) for entry in wished),
            *((-1, entry) for entry in unwished),
        ]
        found = []
        for sign, entry in weighted:
            if entry.pod_affinity_term is not None:
                term = _Term(self._pod, entry.pod_affinity_term, namespaces)
                found.append((term.topology, float(sign * (entry.weight or 0)), _domains(term, cluster)))
        return found


def _domains(term: _Term, cluster: ClusterState) -> Counter[str]:
    """How many pods the term matches in each topology domain."""
    counts: Counter[str] = Counter()
    for state in cluster.nodes:
        value = state.labels.get(term.topology)
        if value is not None:
            counts[value] += sum(term.matches(other) for other in state.pods.values())
    return counts


def _kept_off(pod: Pod, cluster: ClusterState, namespaces: Namespaces) -> set[tuple[str, str]]:
    """Topology domains from which running pods' required anti-affinity keeps this pod."""
    domains: set[tuple[str, str]] = set()
    for key, other in cluster.repellent.items():
        state = cluster.place_of(key)
        anti = other.spec.affinity.pod_anti_affinity if other.spec and other.spec.affinity else None
        if state is None or anti is None:
            continue
        for term in _required(anti.required_during_scheduling_ignored_during_execution, other, namespaces):
            value = state.labels.get(term.topology)
            if value is not None and term.matches(pod):
                domains.add((term.topology, value))
    return domains


class Spread:
    """The topology spread constraints of one pod, counted once over all nodes."""

    def __init__(self, pod: Pod, cluster: ClusterState) -> None:
        constraints = (pod.spec.topology_spread_constraints or ()) if pod.spec else ()
        self._hard = [
            _Constraint(pod, c, cluster) for c in constraints if c.when_unsatisfiable != "ScheduleAnyway"
        ]
        self._soft = [
            _Constraint(pod, c, cluster) for c in constraints if c.when_unsatisfiable == "ScheduleAnyway"
        ]

    def refusal(self, state: NodeState) -> str:
        """Why a node would make the pods lie too unevenly; ``""`` when it would not."""
        for constraint in self._hard:
            if constraint.key not in state.labels:
                return SPREAD_LABEL
            if constraint.skew(state) > constraint.most:
                return SPREAD
        return ""

    def crowd(self, state: NodeState) -> float:
        """How many matching pods share the node's domains, for the constraints that only prefer."""
        return float(sum(constraint.matching(state) for constraint in self._soft))


class _Constraint:
    def __init__(self, pod: Pod, constraint: TopologySpreadConstraint, cluster: ClusterState) -> None:
        self.key = constraint.topology_key or ""
        self.most = constraint.max_skew or 1
        selector = selector_of(
            _selector_with_keys(constraint.label_selector, pod, constraint.match_label_keys)
        )
        self._self = 1 if selector.matches(pod.metadata.labels) else 0
        self._counts: Counter[str] = Counter()
        domains: set[str] = set()
        for state in cluster.nodes:
            value = state.labels.get(self.key)
            if value is None or not _counts_node(pod, constraint, state):
                continue
            domains.add(value)
            self._counts[value] += sum(
                other.metadata.namespace == pod.metadata.namespace
                and other.metadata.deletion_timestamp is None
                and selector.matches(other.metadata.labels)
                for other in state.pods.values()
            )
        enough = len(domains) >= (constraint.min_domains or 1)
        self._least = min((self._counts[d] for d in domains), default=0) if enough else 0

    def matching(self, state: NodeState) -> int:
        return self._counts[state.labels.get(self.key, "")]

    def skew(self, state: NodeState) -> int:
        return self.matching(state) + self._self - self._least


def _counts_node(pod: Pod, constraint: TopologySpreadConstraint, state: NodeState) -> bool:
    """Whether a node takes part in the count, by the constraint's policies."""
    if constraint.node_affinity_policy != "Ignore" and not node_affinity_matches(pod, state):
        return False
    if constraint.node_taints_policy == "Honor" and state.node is not None and state.node.spec is not None:
        taints: Iterable[Taint] = state.node.spec.taints or ()
        tolerations = (pod.spec.tolerations or ()) if pod.spec else ()
        return untolerated(tolerations, taints, ("NoSchedule", "NoExecute")) is None
    return True
