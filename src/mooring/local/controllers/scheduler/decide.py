"""Where a pod goes, or why it goes nowhere, in the words of Kubernetes. Pure.

Filters run in the order of the default scheduler and the first refusal of a node is its reason; what is left
is scored by the default plugins' weights. Equal nodes: the one with fewer pods, then by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from mooring.kube.objects.core import Pod, Toleration
from mooring.local.controllers.placement import UNSCHEDULABLE, matches_term, tolerates, untolerated
from mooring.local.controllers.scheduler.claims import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    ONCE_POD,
    PodClaims,
    VolumeChoice,
)
from mooring.local.controllers.scheduler.neighbours import (
    AFFINITY,
    SPREAD_LABEL,
    Neighbourhood,
    Spread,
    node_affinity_matches,
)
from mooring.local.controllers.scheduler.requests import host_ports, ports_conflict, requests_of
from mooring.local.controllers.scheduler.state import ZERO, ClusterState, NodeState, owner_of

__all__ = ["NO_NODES", "Decision", "Pending", "Placement", "Unfit", "decide", "explain"]

NO_NODES = "no nodes available to schedule pods"
HARD = ("NoSchedule", "NoExecute")
CORDONED = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"
ELSEWHERE = "node(s) didn't match Pod's node affinity/selector"
#: Refusals that no other pod's leaving can change.
_FOR_GOOD = frozenset((CORDONED, TAINTED, ELSEWHERE, BIND_CONFLICT, NODE_CONFLICT, SPREAD_LABEL, AFFINITY))


@dataclass(frozen=True, slots=True)
class Placement:
    """The pod goes there; ``volumes`` is what has to be bound or made first."""

    node: str
    volumes: VolumeChoice


@dataclass(frozen=True, slots=True)
class Unfit:
    """The pod goes nowhere now; ``message`` is that of the PodScheduled condition."""

    message: str


Decision = Placement | Unfit


def decide(
    pod: Pod,
    cluster: ClusterState,
    *,
    claims: PodClaims,
    namespaces: Mapping[str, Mapping[str, str]],
    preferred: str = "",
) -> Decision:
    """The best node for a pod; ``preferred`` is one promised before, taken if it still fits."""
    nodes = list(cluster.nodes)
    if not nodes:
        return Unfit(NO_NODES)
    if claims.trouble:
        return Unfit(f"0/{len(nodes)} nodes are available: {claims.trouble}.")
    pending = Pending(pod, cluster, claims, namespaces)
    reasons: Counter[str] = Counter()
    feasible = []
    for state in nodes:
        refusals = pending.refusals(state)
        reasons.update(refusals)
        if not refusals:
            feasible.append(state)
    if not feasible:
        stranded = claims.stranded(state.name for state in nodes)
        return Unfit(f"{explain(len(nodes), reasons)}{stranded and ' '}{stranded}")
    chosen = next((state for state in feasible if state.name == preferred), None) or pending.best(feasible)
    volumes = claims.choose(chosen.node) if chosen.node is not None else None
    return Placement(chosen.name, volumes or VolumeChoice())


def explain(total: int, reasons: Counter[str]) -> str:
    """Return how many nodes refuse for which reason, in the words of Kubernetes."""
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{total} nodes are available: {told}."


class Pending:
    """One pod with everything about it that all nodes share."""

    def __init__(
        self,
        pod: Pod,
        cluster: ClusterState,
        claims: PodClaims,
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.pod = pod
        self.claims = claims
        self.requests = requests_of(pod)
        self.ports = host_ports(pod)
        self.neighbours = Neighbourhood(pod, cluster, namespaces)
        self.spread = Spread(pod, cluster)
        self.tolerations: list[Toleration] = list((pod.spec.tolerations or ()) if pod.spec else ())

    def refusals(self, state: NodeState) -> list[str]:
        """Why the pod cannot run on a node; empty when it can."""
        return (
            self._by_node(state)
            or self._by_resources(state)
            or self._by_volumes(state)
            or [reason for reason in (self.spread.refusal(state),) if reason]
            or [reason for reason in (self.neighbours.refusal(state),) if reason]
        )

    def may_help(self, state: NodeState) -> bool:
        """Whether the pod could run on a node that refuses it if fewer pods were there."""
        if any(amount > state.allocatable.get(name, ZERO) for name, amount in self.requests.items()):
            return False
        return _FOR_GOOD.isdisjoint(self.refusals(state))

    def _by_node(self, state: NodeState) -> list[str]:
        node = state.node
        spec = node.spec if node else None
        if spec is not None and spec.unschedulable and not tolerates(self.tolerations, UNSCHEDULABLE):
            return [CORDONED]
        if spec is not None and untolerated(self.tolerations, spec.taints or (), HARD) is not None:
            return [TAINTED]
        if not node_affinity_matches(self.pod, state):
            return [ELSEWHERE]
        if self.ports and ports_conflict(self.ports, (p for used in state.ports.values() for p in used)):
            return ["node(s) didn't have free ports for the requested pod ports"]
        return []

    def _by_resources(self, state: NodeState) -> list[str]:
        refusals = []
        if len(state.pods) + 1 > state.allocatable.get("pods", ZERO):
            refusals.append("Too many pods")
        for name, amount in self.requests.items():
            if amount > state.allocatable.get(name, ZERO) - state.used.get(name, ZERO):
                refusals.append(f"Insufficient {name}")
        return refusals

    def _by_volumes(self, state: NodeState) -> list[str]:
        if self.claims.once_pod:
            return [ONCE_POD]
        return self.claims.refusals(state.node) if state.node is not None else []

    def best(self, feasible: list[NodeState]) -> NodeState:
        """The node with the highest score."""
        if len(feasible) == 1:
            return feasible[0]
        parts: list[tuple[float, list[float]]] = [
            (3, _normal([self._intolerable(s) for s in feasible], reverse=True)),
            (2, _normal([self._node_preference(s) for s in feasible])),
            (1, [self._least_allocated(s) for s in feasible]),
            (1, [self._balance(s) for s in feasible]),
            (2, _normal([self.spread.crowd(s) or self._siblings(s) for s in feasible], reverse=True)),
            (2, _normal([self.neighbours.score(s) for s in feasible])),
        ]
        totals = [sum(weight * scores[i] for weight, scores in parts) for i in range(len(feasible))]
        order = sorted(
            range(len(feasible)), key=lambda i: (-totals[i], len(feasible[i].pods), feasible[i].name)
        )
        return feasible[order[0]]

    def _intolerable(self, state: NodeState) -> float:
        taints = (state.node.spec.taints or ()) if state.node and state.node.spec else ()
        return float(
            sum(t.effect == "PreferNoSchedule" and not tolerates(self.tolerations, t) for t in taints)
        )

    def _node_preference(self, state: NodeState) -> float:
        affinity = self.pod.spec.affinity if self.pod.spec else None
        node = affinity.node_affinity if affinity else None
        terms = (node.preferred_during_scheduling_ignored_during_execution or ()) if node else ()
        return float(
            sum(
                term.weight or 0
                for term in terms
                if term.preference is not None and state.node and matches_term(term.preference, state.node)
            )
        )

    def _shares(self, state: NodeState) -> list[float]:
        shares = []
        for name in ("cpu", "memory"):
            room = state.allocatable.get(name, ZERO)
            if room:
                used = state.used.get(name, ZERO) + self.requests.get(name, ZERO)
                shares.append(float(min(Decimal(1), used / room)))
        return shares

    def _least_allocated(self, state: NodeState) -> float:
        shares = self._shares(state)
        return 100 * (1 - sum(shares) / len(shares)) if shares else 0.0

    def _balance(self, state: NodeState) -> float:
        shares = self._shares(state)
        return 100 * (1 - abs(shares[0] - shares[1]) / 2) if len(shares) == 2 else 100.0

    def _siblings(self, state: NodeState) -> float:
        """Pods of the same controller: spread by default, as the scheduler's system constraints do."""
        owner = owner_of(self.pod)
        return float(state.owners[owner]) if owner else 0.0


def _normal(values: list[float], *, reverse: bool = False) -> list[float]:
    """Values on a scale from 0 to 100; with ``reverse`` the smallest gets 100. All equal: all 0."""
    low, high = min(values), max(values)
    if low == high:
        return [0.0] * len(values)
    scaled = [100 * (value - low) / (high - low) for value in values]
    return [100 - value for value in scaled] if reverse else scaled
