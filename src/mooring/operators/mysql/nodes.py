"""Cordoned nodes: a primary on one hands over before the node is drained. Reads caches only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mooring.cache.informer import Informer
from mooring.cache.store import Transition
from mooring.kube.object import Key
from mooring.kube.objects import core

__all__ = ["cordoned", "cordoned_anew", "nodes_of"]


def nodes_of(pods: Iterable[core.Pod], nodes: Informer[core.Node] | None) -> list[core.Node | None]:
    """The nodes that these pods run on; none where the operator may not read them."""
    names = sorted({(pod.spec.node_name if pod.spec else None) or "" for pod in pods} - {""})
    return [nodes.get(Key("", name)) for name in names] if nodes is not None else []


def cordoned(pods: Sequence[core.Pod], nodes: Iterable[core.Node]) -> frozenset[str]:
    """Names of the pods on cordoned nodes."""
    names = {one.metadata.name for one in nodes if one.spec and one.spec.unschedulable}
    return frozenset(pod.metadata.name or "" for pod in pods if pod.spec and pod.spec.node_name in names)


def cordoned_anew(change: Transition[core.Node]) -> bool:
    """A node takes no more pods, or takes them again."""
    before, now = (bool(one and one.spec and one.spec.unschedulable) for one in (change.old, change.new))
    return before is not now
