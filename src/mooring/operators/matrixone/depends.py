"""What the sets wait for: the dependant waits and reads the other's conditions; the other knows nothing of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mooring.actor import Dependency, Terminal, not_ready
from mooring.kube.object import Key, Object
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, ProxySet, Reference, WebUI

__all__ = [
    "NO_LOG_SET",
    "as_declared",
    "cn_set_of",
    "dn_set_of",
    "log_set_of",
    "needs_cn_set",
    "needs_dn_set",
    "needs_log_set",
]

SYNCED = "Synced"
NO_LOG_SET: Final = Terminal(
    "NoLogSet",
    "deps.logSet: names no LogSet; give one. A log service elsewhere (deps.externalLogSet) is not supported by this version",
)
Dependant = DNSet | CNSet | ProxySet


def _key(owner: Object, reference: Reference | None) -> Key | None:
    metadata = reference.metadata if reference is not None else None
    if metadata is None or not metadata.name:
        return None
    return Key(metadata.namespace or owner.metadata.namespace or "", metadata.name)


def log_set_of(one: Dependant) -> Key | None:
    """The LogSet that a set works with."""
    return _key(one, one.deps.log_set if one.deps is not None else None)


def dn_set_of(one: CNSet) -> Key | None:
    """The DNSet that compute nodes work with."""
    return _key(one, one.deps.dn_set if one.deps is not None else None)


def cn_set_of(one: WebUI) -> Key | None:
    """The CNSet that a dashboard shows."""
    return _key(one, one.deps.cnset if one.deps is not None else None)


def as_declared(one: Object) -> str:
    """Why a set cannot be relied on yet: it is not ready, or its pods are not all as declared."""
    if trouble := not_ready(one):
        return trouble
    conditions = getattr(getattr(one, "status", None), "conditions", None) or ()
    synced = next((each for each in conditions if each.type == SYNCED), None)
    if synced is None or synced.observed_generation not in (None, one.metadata.generation):
        return "was changed, and its operator has not looked at it yet"
    return "" if synced.status == "True" else f"is not as declared ({synced.reason}: {synced.message})"


def _one(key: Key | None) -> Iterable[Key]:
    return () if key is None else (key,)


needs_log_set = Dependency(LogSet, lambda one: _one(log_set_of(one)), as_declared)
needs_dn_set = Dependency(DNSet, lambda one: _one(dn_set_of(one)), as_declared)
needs_cn_set = Dependency(CNSet, lambda one: _one(cn_set_of(one)))
