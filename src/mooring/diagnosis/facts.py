"""What a diagnosis is derived from, and what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

__all__ = ["Diagnosis", "Facts", "Object", "OperatorHint", "at", "family"]

Object = Mapping[str, Any]
"""A Kubernetes object as JSON."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cause and one next step.

    ``code`` is one of `CODES`, ``params`` fill its texts. ``kind`` and ``name`` say which object it is about.
    ``raw`` is what the cluster itself says, without secrets; ``since`` is RFC 3339, "" if unknown.
    """

    code: str
    params: dict[str, str] = {}
    kind: str = ""
    name: str = ""
    since: str = ""
    raw: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHint:
    """How an operator of a kind shows that it works: Leases named ``LEASE-all``, ``-cluster`` and ``-namespaced``.

    ``annotation`` with the value ``cluster-scoped`` gives an object to a shared operator. Without ``scoped`` there is
    one operator for everything, and ``lease`` is the whole name.
    """

    lease: str
    annotation: str = ""
    scoped: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of an instance. ``unseen`` names what could not be read, by its plural.

    ``served`` is whether the API server serves the kind. ``ready`` are the conditions that stand for Ready. ``events`` are those of the instance and of its children.
    """

    kind: str
    group: str = ""
    now: datetime
    served: bool = True
    obj: Object | None = None
    conditions: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    workloads: Sequence[Object] = ()
    events: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    classes: Sequence[Object] = ()
    leases: Sequence[Object] = ()
    hint: OperatorHint | None = None
    ready: Sequence[str] = ("Ready", "Available", "Healthy")
    unseen: frozenset[str] = field(default_factory=frozenset)


def at(value: Any, *steps: str | int) -> Any:
    """What a path leads to in JSON, None where it ends before."""
    for one in steps:
        if isinstance(value, Mapping):
            value = value.get(one)
        elif isinstance(value, list) and isinstance(one, int):
            value = value[one] if one < len(value) else None
        else:
            return None
    return value


def family(uid: str, objects: Iterable[Object]) -> list[Object]:
    """The objects that the one with ``uid`` owns, directly or through others, in the order they came."""
    listed = list(objects)
    known = {uid}
    while True:
        more = {
            str(at(one, "metadata", "uid"))
            for one in listed
            if any(owner.get("uid") in known for owner in at(one, "metadata", "ownerReferences") or ())
        } - known
        if not more:
            break
        known |= more
    return [
        one for one in listed if at(one, "metadata", "uid") in known and at(one, "metadata", "uid") != uid
    ]
