"""How many compute nodes a load calls for, from what they say themselves. Pure.

The rules are `mooring.operators.workload.autoscale`. The number in force is in ``status.autoscale.replicas``; the planner
makes pods for it, and drains those that are too many, as it does for a declared number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from mooring.actor import Note
from mooring.operators.matrixone.cnset.snapshot import Member
from mooring.operators.matrixone.types import CNSetSpec, CNSetStatus
from mooring.operators.workload.autoscale import (
    AutoscaleSpec,
    AutoscaleStatus,
    Decision,
    Signal,
    contested,
    decide,
    policy_of,
    remembered,
    wish_of,
)

__all__ = [
    "CONTESTED",
    "CONTESTED_TEXT",
    "autoscale_status",
    "current_of",
    "decided",
    "signals_of",
    "steps_noted",
]

CONTESTED: Final = "AutoscaleContested"
"""Condition: something else scales the set too, so the operator leaves the number to it."""
CONTESTED_TEXT: Final = (
    "{who} sets spec.replicas by the scale subresource, as an HPA does, so spec.autoscale has no effect; remove "
    "spec.autoscale, or remove the HPA and apply spec.replicas once yourself"
)


def current_of(spec: CNSetSpec, status: CNSetStatus) -> int:
    """The number in force: the one that was chosen last, else the declared one."""
    chosen = status.autoscale.replicas if status.autoscale is not None else None
    return (spec.replicas or 0) if chosen is None or spec.autoscale is None else chosen


def signals_of(
    scale: AutoscaleSpec, members: Sequence[Member], current: int, *, cpu_unknown: str = ""
) -> list[Signal]:
    """The declared metrics as they are, on average over ``current`` pods.

    The load of a pod that drains counts: it moves to the others. A pod that has no process has none; one
    that runs and does not answer makes them unknown.
    """
    there = [one for one in members if one.pod.running and one.store is not None]
    unheard = [
        one for one in members if one.pod.running and one.store is None and one.serving_since is not None
    ]
    made = []
    for metric in scale.metrics:
        values = [_load(one, metric.type) for one in there]
        known = [one for one in values if one is not None]
        whole = bool(known) and len(known) == len(values) and not unheard
        value = sum(known) / max(1, current) if whole else None
        cpu = metric.type == "cpu"
        made.append(Signal(metric.type, value, metric.target, "%" if cpu else "", cpu_unknown if cpu else ""))
    return made


def _load(one: Member, metric: str) -> float | None:
    if metric == "cpu":
        return one.cpu
    return one.pipelines if metric == "pipelines" else one.sessions


def decided(
    spec: CNSetSpec,
    status: CNSetStatus,
    members: Sequence[Member],
    *,
    revision: str,
    now: datetime,
    cpu_unknown: str = "",
) -> Decision:
    """How many pods there are to be now; ``spec.autoscale`` is declared. ``cpu_unknown``: why the CPU stays unknown."""
    scale = spec.autoscale
    assert scale is not None
    current = current_of(spec, status)
    alive = [one for one in members if not one.pod.terminating]
    keep = ""
    if any(one.revision != revision for one in alive):
        keep = "pods are rolled"
    elif len(alive) != current or len(alive) != len(members):
        keep = "the last change is not done yet"
    signals = signals_of(scale, members, current, cpu_unknown=cpu_unknown)
    return decide(current, policy_of(scale), signals, wish_of(status.autoscale), now, keep=keep)


def autoscale_status(
    spec: CNSetSpec, before: CNSetStatus, decision: Decision | None, *, now: datetime, other: str = ""
) -> AutoscaleStatus | None:
    """What the status remembers; nothing of a set that does not follow its load.

    ``other``: who scales it instead. Then the number chosen before is forgotten: the next one starts from the declared one.
    """
    if spec.autoscale is None:
        return None
    if other:
        return contested(other, "spec.replicas")
    if decision is None:
        return before.autoscale
    return remembered(before.autoscale, decision, current_of(spec, before), now)


def steps_noted(current: int, decision: Decision | None) -> Iterator[Note]:
    """An event for a number that changes."""
    if decision is not None and decision.replicas != current:
        text = f"{current} to {decision.replicas} compute nodes: {decision.numbers}"
        yield Note(reason=decision.reason, message=text)
