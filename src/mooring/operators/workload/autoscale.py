"""Load decides a number of replicas: the rules that every operator's ``spec.autoscale`` follows.

Pure: the caller measures, passes the time in, and writes what comes out. The rules are those of the
HorizontalPodAutoscaler: every signal proposes ``ceil(current * value / target)``, unless it is within the tolerance, and
the highest proposal counts. A signal that could not be measured forbids scaling in, and never scales out.

A proposal must hold for a window before it is carried out. The HorizontalPodAutoscaler remembers every proposal of the
window; here one `Wish` is remembered, the most cautious since the proposals are on one side of the current number. At
rest there is no wish, so that an idle cluster writes nothing to its status.

The number chosen is in ``status.autoscale.replicas`` and counts in place of the size that is declared: the operator
never writes a spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final

from mooring.kube.part import Part
from mooring.runtime.crd import F, Rule, rules

__all__ = [
    "BOUNDS",
    "CONTESTED",
    "DOWN_AFTER",
    "METRICS_PERIOD",
    "TOLERANCE",
    "UNKNOWN",
    "UP_AFTER",
    "AutoscaleDirection",
    "AutoscaleMetric",
    "AutoscaleSpec",
    "AutoscaleStatus",
    "Decision",
    "Policy",
    "Signal",
    "Wish",
    "autoscale_faults",
    "autoscale_rules",
    "contested",
    "decide",
    "in_force",
    "period_of",
    "policy_of",
    "remembered",
    "wish_of",
]

TOLERANCE: Final = 0.1
"""A value that differs from its target by this share or less proposes nothing."""
UP_AFTER: Final = 60
"""Seconds for which more replicas must be proposed, where nothing is declared."""
DOWN_AFTER: Final = 300
"""Seconds for which fewer replicas must be proposed, where nothing is declared."""
METRICS_PERIOD: Final = 15.0
"""Seconds between two measurements, unless a window is shorter."""
UNKNOWN: Final = "SignalUnknown"
"""Reason in status while a signal cannot be measured until somebody acts."""
CONTESTED: Final = "AutoscaleContested"
"""Reason in status while another one than the policy sets the size."""
_SHORTEST: Final = 2.0
"""Seconds between two measurements at least."""
_EPSILON: Final = 1e-9
"""Proposals are rounded up; a rounding error of the division must not add a replica."""
_TIME: Final = {"type": "string", "format": "date-time"}


@dataclass(frozen=True)
class Signal:
    """One measured load: its average per replica, and what that should be.

    ``value`` is None where it could not be measured. ``unit`` follows the numbers in messages ("%", " per second").
    """

    name: str
    value: float | None
    target: float
    unit: str = ""
    why: str = ""
    """Why it stays unknown until somebody acts, with the remedy; "" for what passes by itself."""


@dataclass(frozen=True)
class Policy:
    """How many replicas there may be, and how long a proposal must hold.

    ``up_after_s`` and ``down_after_s`` are seconds; ``max_step_up`` and ``max_step_down`` are replicas per change, and
    None is any number.
    """

    minimum: int
    maximum: int
    up_after_s: float = UP_AFTER
    down_after_s: float = DOWN_AFTER
    tolerance: float = TOLERANCE
    max_step_up: int | None = None
    max_step_down: int | None = None
    aside: int = 0
    """Replicas that the load is not shared with: a primary. The signals are averages of the others."""


@dataclass(frozen=True)
class Wish:
    """A number proposed since a moment, which is not carried out yet; kept in status."""

    desired: int
    since: datetime
    reason: str


@dataclass(frozen=True)
class Decision:
    """What to do now.

    ``replicas`` differs from the current number when a step is due. ``wish`` is what status has to remember. ``reason``
    is one word: ``AtTarget``, ``ScaleOut``, ``ScaleIn``, ``BelowMinimum``, ``AboveMaximum``, ``AtMinimum``,
    ``AtMaximum``, ``ScaleOutSoon``, ``ScaleInSoon``, ``SignalUnknown`` or ``ScaleInHeld``. ``numbers`` are the signals
    in words, for an event. ``after`` are the seconds until the wish is due.
    """

    replicas: int
    wish: Wish | None
    reason: str
    numbers: str
    after: float | None = None
    unknown: str = ""
    """Why a signal stays unknown until somebody acts."""


def decide(
    current: int,
    policy: Policy,
    signals: Sequence[Signal],
    wish: Wish | None,
    now: datetime,
    *,
    keep: str = "",
) -> Decision:
    """Return the number of replicas that the load calls for now.

    ``current`` is the number in force; ``wish`` is that of the last decision. ``keep`` says why no replica may be removed
    now, and is empty where one may. No signals at all propose nothing.
    """
    decision = _decide(current, policy, signals, wish, now, keep=keep)
    why = "; ".join(f"{one.name}: {one.why}" for one in signals if one.value is None and one.why)
    return replace(decision, unknown=why)


def _decide(
    current: int, policy: Policy, signals: Sequence[Signal], wish: Wish | None, now: datetime, *, keep: str
) -> Decision:
    numbers = "; ".join(_in_words(signal, current, policy) for signal in signals) or "no signals"
    if current < policy.minimum:
        return Decision(policy.minimum, None, "BelowMinimum", numbers)
    if current > policy.maximum:
        return Decision(policy.maximum, None, "AboveMaximum", numbers)
    desired, reason = _desired(current, policy, signals)
    if desired < current and keep:
        return Decision(current, None, "ScaleInHeld", f"{numbers}; {keep}")
    if desired == current:
        return Decision(current, None, reason, numbers)
    return _stabilised(current, policy, _more_cautious(current, desired, wish, now), now, numbers)


def _desired(current: int, policy: Policy, signals: Sequence[Signal]) -> tuple[int, str]:
    """The number proposed, within the bounds, and why it is not another where it is the current one."""
    known = [_proposal(signal, current, policy) for signal in signals if signal.value is not None]
    proposed = max(known, default=current)
    if proposed < current and len(known) < len(signals):
        return current, UNKNOWN
    desired = min(max(proposed, policy.minimum), policy.maximum)
    if desired == current and proposed != current:
        return current, "AtMaximum" if proposed > current else "AtMinimum"
    return desired, "AtTarget" if known or not signals else UNKNOWN


def _proposal(signal: Signal, current: int, policy: Policy) -> int:
    """What one measured signal calls for, without bounds."""
    ratio = (signal.value or 0.0) / signal.target
    if abs(ratio - 1.0) <= policy.tolerance + _EPSILON:
        return current
    return policy.aside + math.ceil((current - policy.aside) * ratio - _EPSILON)


def _more_cautious(current: int, desired: int, wish: Wish | None, now: datetime) -> Wish:
    """The wish that goes on, moved towards the current number where the new proposal is closer to it."""
    if desired > current:
        if wish is None or wish.desired <= current:
            return Wish(desired, now, "ScaleOut")
        return Wish(min(desired, wish.desired), wish.since, "ScaleOut")
    if wish is None or wish.desired >= current:
        return Wish(desired, now, "ScaleIn")
    return Wish(max(desired, wish.desired), wish.since, "ScaleIn")


def _stabilised(current: int, policy: Policy, wish: Wish, now: datetime, numbers: str) -> Decision:
    """The step, once the wish has held for its window."""
    window = policy.up_after_s if wish.desired > current else policy.down_after_s
    left = window - (now - wish.since).total_seconds()
    if left > 0:
        return Decision(current, wish, f"{wish.reason}Soon", numbers, left)
    return Decision(_step(current, wish.desired, policy), None, wish.reason, numbers)


def _step(current: int, desired: int, policy: Policy) -> int:
    if desired > current and policy.max_step_up is not None:
        return min(desired, current + policy.max_step_up)
    if desired < current and policy.max_step_down is not None:
        return max(desired, current - policy.max_step_down)
    return desired


def _in_words(signal: Signal, current: int, policy: Policy) -> str:
    if signal.value is None:
        return f"{signal.name} unknown (target {signal.target:g}{signal.unit})"
    return (
        f"{signal.name} {signal.value:.4g}{signal.unit} of {signal.target:g}{signal.unit}"
        f" calls for {_proposal(signal, current, policy)}"
    )


class AutoscaleMetric(Part, frozen=True, kw_only=True):
    """One load, and what it should be on average per replica."""

    type: Annotated[str, F("What is measured.", required=True, max_length=40)] = ""
    target: Annotated[
        float, F("What it should be, on average per replica.", required=True, minimum=0.001)
    ] = 0.0


class AutoscaleDirection(Part, frozen=True, kw_only=True):
    """How fast replicas are added or removed."""

    stabilization_seconds: Annotated[
        int | None, F("So long the load must call for it, without a break.", minimum=0, maximum=86400)
    ] = None
    step: Annotated[int | None, F("At most so many per change. Default: any number.", minimum=1)] = None


BOUNDS: Final = Rule(
    "self.minReplicas <= self.maxReplicas",
    "minReplicas is larger than maxReplicas; lower minReplicas or raise maxReplicas",
)
"""The rule of every policy; a class that adds fields has to name it again."""


@rules(BOUNDS)
class AutoscaleSpec(Part, frozen=True, kw_only=True):
    """The number of replicas follows the load, in place of the one declared."""

    # Defaults that nobody may declare: fields that have theirs are left out of what is sent on, as to a child object.
    min_replicas: Annotated[int, F("Never fewer.", required=True, minimum=1)] = 0
    max_replicas: Annotated[int, F("Never more.", required=True, minimum=1)] = 0
    metrics: Annotated[
        list[AutoscaleMetric],
        F(
            "The highest number that one of them calls for counts.",
            required=True,
            list_map_keys=("type",),
            min_items=1,
            max_items=8,
        ),
    ] = []  # noqa: RUF012 - msgspec copies an empty list for every value
    scale_up: Annotated[AutoscaleDirection | None, F("Default: 60 seconds, any number.")] = None
    scale_down: Annotated[AutoscaleDirection | None, F("Default: 300 seconds, any number.")] = None


class AutoscaleStatus(Part, frozen=True, kw_only=True):
    """What the load called for; unchanged while it calls for nothing new."""

    replicas: Annotated[int | None, F("The number in force, in place of the one declared.")] = None
    desired: Annotated[
        int | None, F("A number that the load calls for and that has to hold for a while.")
    ] = None
    since: Annotated[datetime | None, F("Since when the load calls for it.", schema=_TIME)] = None
    reason: Annotated[str | None, F("Why that is, or why nothing is decided: one word.")] = None
    message: Annotated[str | None, F("The same in a sentence, with the remedy where one is needed.")] = None
    last_scale_time: Annotated[datetime | None, F("When the number in force was chosen.", schema=_TIME)] = (
        None
    )


def policy_of(spec: AutoscaleSpec) -> Policy:
    """The policy that is declared, with the defaults for what is not."""
    up, down = spec.scale_up or AutoscaleDirection(), spec.scale_down or AutoscaleDirection()
    return Policy(
        minimum=spec.min_replicas,
        maximum=spec.max_replicas,
        up_after_s=UP_AFTER if up.stabilization_seconds is None else up.stabilization_seconds,
        down_after_s=DOWN_AFTER if down.stabilization_seconds is None else down.stabilization_seconds,
        max_step_up=up.step,
        max_step_down=down.step,
    )


def period_of(policy: Policy) -> float:
    """Seconds between two measurements: 15, or the shorter of the windows where that is less, but at least 2."""
    return max(_SHORTEST, min(METRICS_PERIOD, policy.up_after_s, policy.down_after_s))


def autoscale_rules(field: str, types: Sequence[str], *, least: int, most: int) -> tuple[Rule, ...]:
    """CEL rules of the part that holds ``autoscale``: what this kind can measure, and how many replicas it can have.

    ``field`` is the name of the size in messages.
    """
    listed = ", ".join(f"'{one}'" for one in types)
    return (
        Rule(
            f"!has(self.autoscale) || self.autoscale.metrics.all(m, m.type in [{listed}])",
            f"autoscale.metrics names a type that is not known here; give {' or '.join(types)}",
        ),
        Rule(
            f"!has(self.autoscale) || self.autoscale.minReplicas >= {least} && self.autoscale.maxReplicas <= {most}",
            f"autoscale.minReplicas and maxReplicas must be {least} to {most}, as {field} can be; correct them",
        ),
    )


def autoscale_faults(
    spec: AutoscaleSpec, types: Sequence[str], *, least: int, most: int
) -> Iterator[tuple[str, str]]:
    """What is wrong with a declaration: field below ``spec.autoscale``, and a message with the remedy."""
    if spec.min_replicas > spec.max_replicas:
        text = f"{spec.min_replicas} is more than maxReplicas {spec.max_replicas}; lower it, or raise maxReplicas"
        yield "minReplicas", text
    if spec.min_replicas < least:
        yield "minReplicas", f"{spec.min_replicas} is too few; give at least {least}"
    if spec.max_replicas > most:
        yield "maxReplicas", f"{spec.max_replicas} is too many; give at most {most}"
    if not spec.metrics:
        yield "metrics", f"is empty; name at least one of {', '.join(types)}"
    seen: set[str] = set()
    for at, one in enumerate(spec.metrics):
        if one.type not in types:
            yield f"metrics[{at}].type", f"{one.type!r} is not known here; give {' or '.join(types)}"
        elif one.type in seen:
            yield f"metrics[{at}].type", f"{one.type} is named twice; remove one of them"
        if one.target <= 0:
            yield f"metrics[{at}].target", f"{one.target:g} is no load; give more than 0"
        elif one.type.endswith("Percent") and one.target > 100:
            yield f"metrics[{at}].target", f"{one.target:g} percent is never reached; give at most 100"
        seen.add(one.type)


def in_force(spec: AutoscaleSpec | None, status: AutoscaleStatus | None, declared: int) -> int:
    """The number that counts: the one chosen by load, within its bounds; else the declared one."""
    if spec is None or (status is not None and status.reason == CONTESTED):
        return declared
    chosen = status.replicas if status is not None else None
    return min(max(declared if chosen is None else chosen, spec.min_replicas), spec.max_replicas)


def contested(owner: str, field: str) -> AutoscaleStatus:
    """The status while ``owner`` sets ``field`` through the scale subresource: then the declared size counts."""
    return AutoscaleStatus(
        reason=CONTESTED,
        message=f"{owner} sets {field} through the scale subresource, and spec.autoscale wants to choose the size as "
        f"well; remove spec.autoscale, or delete the autoscaler and write another {field} yourself",
    )


def wish_of(status: AutoscaleStatus | None) -> Wish | None:
    """The wish that status remembers."""
    if status is None or status.desired is None or status.since is None:
        return None
    return Wish(status.desired, status.since, status.reason or "")


def remembered(
    status: AutoscaleStatus | None, decision: Decision, current: int, now: datetime
) -> AutoscaleStatus:
    """What status remembers after a decision: times to the second, and the same value while nothing is new."""
    before = status or AutoscaleStatus()
    wish = decision.wish
    changed = decision.replicas != current
    return AutoscaleStatus(
        replicas=decision.replicas,
        desired=wish.desired if wish else None,
        since=_second(wish.since) if wish else None,
        reason=wish.reason if wish else UNKNOWN if decision.unknown else None,
        message=decision.unknown or None,
        last_scale_time=_second(now) if changed else before.last_scale_time,
    )


def _second(moment: datetime) -> datetime:
    """Status holds whole seconds. Rounded down, so that a window ends with a measurement and not one period later."""
    return moment.replace(microsecond=0)
