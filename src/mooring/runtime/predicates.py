"""Which transitions are worth a pass. A predicate sees both sides; creation and deletion always pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mooring.cache.store import Transition

__all__ = [
    "Predicate",
    "any_of",
    "generation_changed",
    "label_changed",
    "meaningful_change",
    "status_changed",
]

Predicate = Callable[[Transition[Any]], bool]


def generation_changed(change: Transition[Any]) -> bool:
    """The spec changed, or deletion began; status and metadata alone do not count.

    Kinds without a generation (ConfigMap, Secret, Service ...) pass always.
    """
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    before, after = old.metadata, new.metadata
    return (
        after.generation is None
        or before.generation != after.generation
        or before.uid != after.uid
        or before.deletion_timestamp != after.deletion_timestamp
    )


def meaningful_change(change: Transition[Any]) -> bool:
    """As `generation_changed`, and also labels, annotations, finalizers and owners.

    Right for a controller's own kind: its status writes do not wake it, and what another client changed
    together with them (it arrives in the answer to our write) does.
    """
    if generation_changed(change):
        return True
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    before, after = old.metadata, new.metadata
    return bool(
        before.labels != after.labels
        or before.annotations != after.annotations
        or before.finalizers != after.finalizers
        or before.owner_references != after.owner_references
    )


def status_changed(change: Transition[Any]) -> bool:
    """The status differs; for those who watch what another controller reports."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return bool(getattr(old, "status", None) != getattr(new, "status", None))


def label_changed(label: str) -> Predicate:
    """The value of one label differs."""

    def predicate(change: Transition[Any]) -> bool:
        old, new = change.old, change.new
        if old is None or new is None:
            return True
        return (old.metadata.labels or {}).get(label) != (new.metadata.labels or {}).get(label)

    return predicate


def any_of(*predicates: Predicate) -> Predicate:
    """Passes what any of the predicates passes."""
    return lambda change: any(predicate(change) for predicate in predicates)
