"""Which operator manages an instance, from the Leases that operators hold.

An operator of scope ``all`` or ``cluster`` is shared, one of scope ``namespaced`` is private to its namespace. An
instance whose annotation says ``cluster-scoped`` is of a shared operator; any other one is of the private operator of
its namespace, or of one of scope ``all``, which leaves alone what a private operator manages.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from mooring.diagnosis.facts import Object, OperatorHint, at

__all__ = ["Scope", "alive", "managers", "scope_of"]

Scope = Literal["all", "cluster", "namespaced"]
#: Seconds that a Lease counts if it does not say.
DURATION = 15


def scope_of(hint: OperatorHint, lease: Object) -> Scope | None:
    """The scope of the operator that holds a Lease, None if it is another operator's."""
    name = str(at(lease, "metadata", "name") or "")
    if not hint.scoped:
        return "all" if name == hint.lease else None
    scope = name.removeprefix(f"{hint.lease}-")
    match scope:
        case "all" | "cluster" | "namespaced":
            return scope if scope != name else None
        case _:
            return None


def alive(lease: Object, now: datetime) -> bool:
    """Whether a Lease is held and was renewed in time."""
    spec = at(lease, "spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return False
    try:
        renewed = datetime.fromisoformat(str(spec["renewTime"]))
    except ValueError:
        return False
    return now - renewed < timedelta(seconds=int(spec.get("leaseDurationSeconds") or DURATION))


def managers(hint: OperatorHint, obj: Object, leases: Iterable[Object], now: datetime) -> list[Object]:
    """The Leases of the live operators that manage an object: none for an orphan, several if it is contested."""
    namespace = at(obj, "metadata", "namespace")
    wide = bool(hint.annotation) and (at(obj, "metadata", "annotations", hint.annotation) == "cluster-scoped")
    live = [(scope, lease) for lease in leases if (scope := scope_of(hint, lease)) and alive(lease, now)]
    private = [
        lease
        for scope, lease in live
        if scope == "namespaced" and at(lease, "metadata", "namespace") == namespace and not wide
    ]
    if private:
        return private
    return [lease for scope, lease in live if scope == "all" or (scope == "cluster" and wide)]
