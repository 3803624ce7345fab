"""A CNSet of a cluster that an HPA or ``kubectl scale`` scales keeps that number. Pure.

The last writer wins: once the scale subresource set the number of a group's pods, the cluster leaves it out of what it
applies. Another ``replicas`` in the group gives it back. An annotation of the CNSet remembers what the group declared when
the cluster let go of the number. It goes in the write that takes the number back, so a scaler that writes again wins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from mooring.kube.object import Object
from mooring.operators.matrixone.types import CNSet, CNSetSpec

__all__ = ["DECLARED", "asked_about", "scaled"]

DECLARED: Final = "mooring.dev/group-replicas"
"""Annotation of a CNSet that somebody else scales: what its group declared when that was found."""
Live = Mapping[tuple[type[Object], str], Object]


def asked_about(wanted: Iterable[Object], live: Live) -> list[CNSet]:
    """The sets whose managedFields have to be read: another number is in force, or somebody was found to scale them."""
    pairs = ((one, live.get((CNSet, one.metadata.name or ""))) for one in wanted if isinstance(one, CNSet))
    return [
        there
        for one, there in pairs
        if isinstance(there, CNSet) and (_number(one) != _number(there) or _declared(there) is not None)
    ]


def scaled(
    wanted: Iterable[Object], live: Live, owners: Mapping[str, str]
) -> tuple[list[Object], dict[str, str]]:
    """The sets without the numbers that are somebody else's, and who that is by the name of the CNSet.

    ``owners``: who set the number by the scale subresource, by the name of the CNSet; "" for nobody.
    """
    made: list[Object] = []
    others: dict[str, str] = {}
    for one in wanted:
        name = one.metadata.name or ""
        there, owner = live.get((CNSet, name)), owners.get(name, "")
        if not (owner and isinstance(one, CNSet) and isinstance(there, CNSet) and one.spec is not None):
            made.append(one)
            continue
        number = str(_number(one))
        if _declared(there) not in (None, number):
            made.append(one)  # the group declares another number since
            continue
        others[name] = owner
        notes = {**(one.metadata.annotations or {}), DECLARED: number}
        metadata = replace(one.metadata, annotations=notes)
        made.append(replace(one, metadata=metadata, spec=replace(one.spec, replicas=None)))
    return made, others


def _number(one: CNSet) -> int | None:
    return (one.spec or CNSetSpec()).replicas


def _declared(one: CNSet) -> str | None:
    return (one.metadata.annotations or {}).get(DECLARED)
