"""Which pods have to go so that a more important one can run. Pure.

On every node that removing pods can help, all less important pods are taken away in thought and brought
back one by one, the most important first and those that a budget protects before all others; who cannot
come back is a victim. Of all nodes the one is chosen whose victims matter least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mooring.kube.objects.core import Pod
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.kube.selectors import Selector, selector_of
from mooring.local.controllers.pods import condition_of
from mooring.local.controllers.scheduler.claims import PodClaims
from mooring.local.controllers.scheduler.decide import Pending, explain
from mooring.local.controllers.scheduler.state import ClusterState, NodeState

__all__ = ["BY_SCHEDULER", "Preemption", "preempt", "priority_of", "waits_for_victims"]

#: The reason of the DisruptionTarget condition of a victim.
BY_SCHEDULER = "PreemptionByScheduler"
_NO_VICTIMS = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"
#: Added to every priority, so that many victims of a negative one weigh more than few.
_OFFSET = 1 << 31


@dataclass(frozen=True, slots=True)
class Preemption:
    """The node that is made free, and who has to leave it: the most important first."""

    node: str
    victims: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    state: NodeState
    victims: tuple[Pod, ...]
    violations: int

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """Less is better: broken budgets, the most important victim, all of them, how many."""
        priorities = [priority_of(pod) for pod in self.victims]
        return (self.violations, priorities[0], sum(p + _OFFSET for p in priorities), len(priorities))

    @property
    def started(self) -> str:
        """When the first of the most important victims started: the later, the better."""
        most = priority_of(self.victims[0])
        return min(_started(pod) for pod in self.victims if priority_of(pod) == most)


def priority_of(pod: Pod) -> int:
    """The pod's priority; 0 when it has none."""
    return (pod.spec.priority or 0) if pod.spec else 0


def waits_for_victims(pod: Pod, cluster: ClusterState) -> bool:
    """Whether room is being made for a pod already: its victims are on their way out."""
    state = cluster.node_by_name((pod.status.nominated_node_name or "") if pod.status else "")
    return state is not None and any(
        priority_of(other) < priority_of(pod) and _is_victim(other) for other in state.pods.values()
    )


def _is_victim(pod: Pod) -> bool:
    target = condition_of(pod, "DisruptionTarget")
    return (
        pod.metadata.deletion_timestamp is not None
        and target is not None
        and (target.status, target.reason) == ("True", BY_SCHEDULER)
    )


def preempt(
    pod: Pod,
    cluster: ClusterState,
    *,
    claims: PodClaims,
    namespaces: Mapping[str, Mapping[str, str]],
    budgets: Iterable[PodDisruptionBudget],
) -> Preemption | str:
    """Return who makes room for a pod that fits nowhere, or why nobody can, in the words of Kubernetes."""
    if pod.spec is not None and pod.spec.preemption_policy == "Never":
        return "not eligible due to preemptionPolicy=Never."
    dry_run = _DryRun(pod, cluster, claims, namespaces, list(budgets))
    nodes = list(cluster.nodes)
    reasons: Counter[str] = Counter()
    candidates = []
    for state in nodes:
        found = dry_run.candidate(state)
        if isinstance(found, _Candidate):
            candidates.append(found)
        else:
            reasons.update(found)
    if not candidates:
        return explain(len(nodes), reasons)
    least = min(candidate.cost for candidate in candidates)
    cheapest = [candidate for candidate in candidates if candidate.cost == least]
    chosen = max(cheapest, key=lambda candidate: candidate.started)
    return Preemption(chosen.state.name, chosen.victims)


class _DryRun:
    """Tries nodes without some of their pods; the cluster is as before when a question is answered."""

    def __init__(
        self,
        pod: Pod,
        cluster: ClusterState,
        claims: PodClaims,
        namespaces: Mapping[str, Mapping[str, str]],
        budgets: Sequence[PodDisruptionBudget],
    ) -> None:
        self._pod, self._cluster = pod, cluster
        self._claims, self._namespaces = claims, namespaces
        self._budgets = [(budget, _selector(budget)) for budget in budgets]

    def candidate(self, state: NodeState) -> _Candidate | list[str]:
        """Return who would have to leave a node, or why that does not help."""
        if self._claims.trouble or not self._pending().may_help(state):
            return [_NO_HELP]
        lesser = [other for other in state.pods.values() if priority_of(other) < priority_of(self._pod)]
        if not lesser:
            return [_NO_VICTIMS]
        lesser.sort(key=lambda other: (-priority_of(other), _started(other)))
        away = set(map(id, lesser))
        try:
            for other in lesser:
                self._cluster.take_away(other)
            if refusals := self._pending().refusals(state):
                return refusals
            guarded, free = self._by_budget(lesser)
            violations = sum(not self._stays(other, state, away) for other in guarded)
            for other in free:
                self._stays(other, state, away)
            victims = tuple(other for other in lesser if id(other) in away)
            return _Candidate(state, victims, violations)
        finally:
            for other in lesser:
                if id(other) in away:
                    self._cluster.bring_back(other, state.name)

    def _pending(self) -> Pending:
        return Pending(self._pod, self._cluster, self._claims, self._namespaces)

    def _stays(self, other: Pod, state: NodeState, away: set[int]) -> bool:
        """Bring a pod back if there is room for both."""
        self._cluster.bring_back(other, state.name)
        away.discard(id(other))
        if not self._pending().refusals(state):
            return True
        self._cluster.take_away(other)
        away.add(id(other))
        return False

    def _by_budget(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Return the pods whose loss breaks a budget, and the others."""
        left = [(b.status.disruptions_allowed or 0) if b.status else 0 for b, _ in self._budgets]
        guarded: list[Pod] = []
        free: list[Pod] = []
        for pod in pods:
            broken = False
            for index, (budget, selector) in enumerate(self._budgets):
                if not _guards(budget, selector, pod):
                    continue
                left[index] -= 1
                broken |= left[index] < 0
            (guarded if broken else free).append(pod)
        return guarded, free


def _selector(budget: PodDisruptionBudget) -> Selector:
    return selector_of(budget.spec.selector if budget.spec else None)


def _guards(budget: PodDisruptionBudget, selector: Selector, pod: Pod) -> bool:
    """Whether a budget is about a pod; one that selects everything is about none here."""
    gone = (budget.status.disrupted_pods or {}) if budget.status else {}
    return (
        bool(pod.metadata.labels)
        and budget.metadata.namespace == pod.metadata.namespace
        and bool(selector.requirements)
        and selector.matches(pod.metadata.labels)
        and (pod.metadata.name or "") not in gone
    )


def _started(pod: Pod) -> str:
    """When a pod started, as text that sorts; one that has not yet counts as the latest."""
    return (pod.status.start_time if pod.status else None) or "9999"
