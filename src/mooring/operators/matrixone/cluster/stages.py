"""In which order a cluster's sets are changed, and deleted. Pure.

Sets are made all at once: each waits for what it works with. They are changed one stage after the other, Log -> TN -> CN
-> Proxy, and a stage that does not come up stops those after it. What rolls no pod, such as the number of pods, waits for
nothing. They are deleted the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from mooring.actor import differs, digest
from mooring.actor.verdict import Move
from mooring.kube.object import Object
from mooring.operators.matrixone.specs import CNSpecs, DNSpecs, LogService, LogSpecs, ProxySpecs
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, ProxySet, WebUI

__all__ = ["STAGES", "DeleteSets", "Held", "held_back", "in_order", "next_deletion"]

STAGES: Final[tuple[type[Object], ...]] = (LogSet, DNSet, CNSet, ProxySet, WebUI)
_ROLLS_NOTHING: Final = (
    "replicas",
    "autoscale",
    "pods_to_delete",
    "pause_update",
    "update_strategy",
    "scaling_config",
    "termination_policy",
    "cn_labels",
    "reuse_pvc",
    "service_type",
    "service_annotations",
    "node_port",
    "store_failure_timeout",
    "failed_pod_strategy",
    "pvc_retention_policy",
)
"""Fields that change without a roll-out; the rest of a spec waits for its stage."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A set whose change waits, and for what."""

    kind: str
    name: str
    waits_for: str


@dataclass(frozen=True, kw_only=True)
class DeleteSets(Move):
    """Delete the sets of one stage."""

    sets: tuple[Object, ...]


def in_order(
    wanted: Sequence[Object],
    live: Mapping[tuple[type[Object], str], Object],
    trouble: Callable[[Object], str],
) -> tuple[list[Object], list[Held]]:
    """The sets to apply now, and those of them whose change is held back.

    ``live`` are the sets that exist, by kind and name; ``trouble`` says why one cannot be relied on, "" when it can.
    """
    made: list[Object] = []
    held: list[Held] = []
    before = ""
    for stage in STAGES:
        waits = before
        for one in wanted:
            if type(one) is not stage:
                continue
            name = one.metadata.name or ""
            there = live.get((stage, name))
            kept = held_back(one, there) if waits and there is not None else one
            if kept is not one:
                held.append(Held(kind=stage.resource.kind, name=name, waits_for=waits))
            made.append(kept)
            before = before or _unsettled(kept, there, trouble)
    return made, held


def held_back(wanted: Object, live: Object) -> Object:
    """The set as it is to be, but for the fields that pods are made from: those stay as they are, also ones that are dropped.

    ``wanted`` itself where no pod would be rolled.
    """
    asked: Any = getattr(wanted, "spec", None)
    found: Any = getattr(live, "spec", None)
    if asked is None or found is None or not _rolls(wanted, live):
        return wanted
    names = [name for name in asked.__struct_fields__ if name not in _ROLLS_NOTHING]
    return replace(wanted, spec=replace(asked, **{name: getattr(found, name) for name in names}))


def _rolls(wanted: Object, live: Object) -> bool:
    """Whether pods would be made from another declaration; a field that is dropped counts too."""
    try:
        return _inputs(wanted) != _inputs(live)
    except ValueError:
        return bool(differs(wanted, live))


def _inputs(one: Object) -> str:
    """Digest of what the user decided about the pods of a set."""
    anywhere = LogService(address="")
    match one:
        case LogSet():
            return LogSpecs(one).inputs()
        case DNSet():
            return DNSpecs(one, anywhere).inputs()
        case CNSet():
            return CNSpecs(one, anywhere).inputs()
        case ProxySet():
            return ProxySpecs(one, anywhere).inputs()
    return digest(getattr(one, "spec", None))


def _unsettled(wanted: Object, live: Object | None, trouble: Callable[[Object], str]) -> str:
    kind, name = type(wanted).resource.kind, wanted.metadata.name
    if live is None:
        return f"{kind} {name} is being made"
    if differs(wanted, live) or _rolls(wanted, live):
        return f"{kind} {name} is being changed"
    text = trouble(live)
    return f"{kind} {name} {text}" if text else ""


def next_deletion(
    sets: Iterable[Object], running: Collection[type[Object]] = ()
) -> tuple[DeleteSets | None, str]:
    """What to delete next of these sets, and what is waited for.

    Proxies and dashboards first, then compute nodes, transaction nodes, and the log service. ``running``: kinds of which
    there are pods; they outlive their sets for a while, and need the next stage as long.
    """
    every = list(sets)
    for kinds in ((ProxySet, WebUI), (CNSet,), (DNSet,), (LogSet,)):
        stage = [one for one in every if isinstance(one, kinds)]
        names = ", ".join(f"{one.resource.kind} {one.metadata.name}" for one in stage)
        doomed = tuple(one for one in stage if not one.metadata.deletion_timestamp)
        if doomed:
            return DeleteSets(sets=doomed, why=f"{names} go first"), f"{names} end"
        if stage:
            return None, f"{names} end"
        if left := [kind.resource.kind for kind in kinds if kind in running]:
            return None, f"the pods of {' and '.join(left)} end"
    return None, ""
