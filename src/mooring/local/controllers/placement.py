"""Which nodes a selector means, and which taints a pod tolerates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mooring.kube.objects.core import Node, NodeSelector, NodeSelectorTerm, Taint, Toleration
from mooring.kube.selectors import Requirement

__all__ = ["labels_of", "matches_selector", "matches_term", "tolerates", "untolerated"]

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def labels_of(node: Node) -> Mapping[str, str]:
    """The labels of a node."""
    return node.metadata.labels or {}


def matches_selector(selector: NodeSelector | None, node: Node) -> bool:
    """Whether any term of a selector means the node; no selector means every node."""
    if selector is None:
        return True
    return any(matches_term(term, node) for term in selector.node_selector_terms or ())


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """Whether a term means the node; an empty term means none."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels = labels_of(node)
    fields = {"metadata.name": node.metadata.name or ""}
    return all(
        Requirement(e.key or "", e.operator or "", tuple(e.values or ())).matches(labels)
        for e in term.match_expressions or ()
    ) and all(
        Requirement(f.key or "", f.operator or "", tuple(f.values or ())).matches(fields)
        for f in term.match_fields or ()
    )


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any toleration covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if (toleration.operator or "Equal") == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")


def untolerated(
    tolerations: Iterable[Toleration], taints: Iterable[Taint], effects: Iterable[str]
) -> Taint | None:
    """The first taint with one of the effects that nothing tolerates."""
    known = list(tolerations)
    wanted = set(effects)
    return next((t for t in taints if t.effect in wanted and not tolerates(known, t)), None)
