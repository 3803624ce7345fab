"""What is on which node: kept up to date change by change, never summed up again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from mooring.kube.object import Key, controller_of, key_of
from mooring.kube.objects.core import Node, Pod
from mooring.kube.quantity import parse_quantity
from mooring.local.controllers.placement import labels_of
from mooring.local.controllers.pods import is_terminal
from mooring.local.controllers.scheduler.requests import HostPort, host_ports, requests_of

__all__ = ["ZERO", "ClusterState", "NodeState", "owner_of"]

ZERO = Decimal(0)


@dataclass
class NodeState:
    """One node, its pods and what they have taken; ``node`` is ``None`` while only pods name it."""

    node: Node | None = None
    pods: dict[Key, Pod] = field(default_factory=dict)
    used: dict[str, Decimal] = field(default_factory=dict)
    ports: dict[Key, tuple[HostPort, ...]] = field(default_factory=dict)
    allocatable: dict[str, Decimal] = field(default_factory=dict)
    #: How many pods each controller has here, by its UID.
    owners: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The node's name."""
        return (self.node.metadata.name or "") if self.node else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return labels_of(self.node) if self.node else {}

    def set_node(self, node: Node | None) -> None:
        """The node changed or went."""
        self.node = node
        amounts = (node.status.allocatable or node.status.capacity or {}) if node and node.status else {}
        self.allocatable = {name: parse_quantity(value) for name, value in amounts.items()}

    def add(self, pod: Pod) -> None:
        """A pod is, or will be, here."""
        key = key_of(pod)
        self.pods[key] = pod
        for name, amount in requests_of(pod).items():
            self.used[name] = self.used.get(name, ZERO) + amount
        if ports := host_ports(pod):
            self.ports[key] = ports
        if owner := owner_of(pod):
            self.owners[owner] += 1

    def remove(self, pod: Pod) -> None:
        """The pod is no longer here."""
        key = key_of(pod)
        present = self.pods.pop(key, None)
        if present is None:
            return
        self.ports.pop(key, None)
        for name, amount in requests_of(present).items():
            self.used[name] = self.used.get(name, ZERO) - amount
        if owner := owner_of(present):
            self.owners[owner] -= 1
            if not self.owners[owner]:
                del self.owners[owner]


def owner_of(pod: Pod) -> str:
    """The UID of the pod's controller."""
    reference = controller_of(pod)
    return (reference.uid or "") if reference is not None else ""


def node_of(pod: Pod) -> str:
    """The node a pod takes room on; ``""`` when it is not bound or has ended."""
    return "" if is_terminal(pod) or pod.spec is None else pod.spec.node_name or ""


class ClusterState:
    """All nodes with their pods; fed with transitions, plus pods assumed to be where we decided."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeState] = {}
        self._where: dict[Key, tuple[str, str]] = {}
        self._assumed: dict[Key, str] = {}
        #: Pods with required anti-affinity, which may keep others away.
        self.repellent: dict[Key, Pod] = {}

    @property
    def nodes(self) -> Iterator[NodeState]:
        """The nodes that exist."""
        return (state for state in self._nodes.values() if state.node is not None)

    def node_changed(self, name: str, node: Node | None) -> None:
        """A node appeared, changed or went."""
        state = self._nodes.setdefault(name, NodeState())
        state.set_node(node)
        if node is None and not state.pods:
            del self._nodes[name]

    def pod_changed(self, key: Key, pod: Pod | None) -> None:
        """A pod appeared, changed or went; what the cache shows replaces what was assumed."""
        promised = pod is not None and self._assumed.get(key) == pod.metadata.uid
        if pod is not None and promised and not node_of(pod) and not is_terminal(pod):
            return  # still on its way to the node it was promised
        self._assumed.pop(key, None)
        node = node_of(pod) if pod is not None else ""
        if pod is not None and node and self._where.get(key) == (node, pod.metadata.uid):
            state = self._nodes[node]
            if state.pods[key].spec == pod.spec:
                state.pods[key] = pod
                if key in self.repellent:
                    self.repellent[key] = pod
                return
        self._put(key, pod, node)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod on a node before the cache shows it there."""
        key = key_of(pod)
        self._assumed[key] = pod.metadata.uid or ""
        self._put(key, pod, node)

    def forget(self, pod: Pod) -> None:
        """It will not be there after all."""
        key = key_of(pod)
        if self._assumed.pop(key, None) is not None:
            self._put(key, None, "")

    def take_away(self, pod: Pod) -> None:
        """Think of a pod as gone, until it is brought back."""
        self._put(key_of(pod), None, "")

    def bring_back(self, pod: Pod, node: str) -> None:
        """Count a pod again that was taken away, or one that a node is kept free for."""
        self._put(key_of(pod), pod, node)

    def assumed(self, pod: Pod) -> str:
        """The node a pod is assumed to go to, ``""`` when it is not."""
        if self._assumed.get(key_of(pod)) != pod.metadata.uid:
            return ""
        return self._where.get(key_of(pod), ("", ""))[0]

    def _put(self, key: Key, pod: Pod | None, node: str) -> None:
        before, _ = self._where.pop(key, ("", ""))
        if before:
            state = self._nodes[before]
            present = state.pods[key]
            state.remove(present)
            self.repellent.pop(key, None)
            if state.node is None and not state.pods:
                del self._nodes[before]
        if pod is None or not node:
            return
        self._nodes.setdefault(node, NodeState()).add(pod)
        self._where[key] = (node, pod.metadata.uid or "")
        affinity = pod.spec.affinity if pod.spec else None
        anti = affinity.pod_anti_affinity if affinity else None
        if anti is not None and anti.required_during_scheduling_ignored_during_execution:
            self.repellent[key] = pod

    def node_by_name(self, name: str) -> NodeState | None:
        """The state of a node that exists."""
        state = self._nodes.get(name)
        return state if state is not None and state.node is not None else None

    def place_of(self, key: Key) -> NodeState | None:
        """The node that a pod takes room on."""
        where = self._where.get(key)
        return self.node_by_name(where[0]) if where else None
