"""How fast a number of replicas may change: stabilisation windows and policies. Pure but for the clock.

Times are seconds of any clock that only grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from mooring.kube.objects.autoscaling import HorizontalPodAutoscalerBehavior, HPAScalingRules

__all__ = ["History", "Limited", "longest_period", "normalized"]

#: Seconds that the highest recommendation holds, where nothing else is said.
DOWNSCALE_WINDOW = 300.0
_IN_RANGE = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FAST_UP = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
_TOO_FAST_DOWN = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)
_HELD_UP = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_HELD_DOWN = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_READY = ("ReadyForNewScale", "recommended size matches current size")


@dataclass(slots=True)
class History:
    """What was recommended and done to one target lately: (seconds, number)."""

    recommended: list[tuple[float, int]] = field(default_factory=list)
    added: list[tuple[float, int]] = field(default_factory=list)
    removed: list[tuple[float, int]] = field(default_factory=list)

    def recommend(self, now: float, replicas: int, *, keep: float) -> None:
        """Remember a recommendation; those older than ``keep`` seconds are forgotten."""
        self.recommended = [(at, n) for at, n in self.recommended if at >= now - keep] + [(now, replicas)]

    def scaled(self, now: float, before: int, after: int, *, keep: float) -> None:
        """Remember a change of the target."""
        changes = self.added if after > before else self.removed
        changes[:] = [(at, n) for at, n in changes if at >= now - keep] + [(now, abs(after - before))]

    def start_of(self, now: float, period: float, current: int) -> int:
        """The replicas there were at the beginning of a period, outside changes left out."""
        return current - _within(self.added, now - period) + _within(self.removed, now - period)


def _within(changes: Iterable[tuple[float, int]], since: float) -> int:
    return sum(number for at, number in changes if at > since)


@dataclass(frozen=True, slots=True)
class Limited:
    """The replicas allowed, with the reasons and messages of AbleToScale and ScalingLimited."""

    replicas: int
    able: tuple[str, str]
    limited: bool
    limit: tuple[str, str]


def normalized(
    wanted: int,
    history: History,
    behavior: HorizontalPodAutoscalerBehavior | None,
    *,
    current: int,
    least: int,
    most: int,
    now: float,
) -> Limited:
    """Return how much of a wanted number is allowed now; the wish is remembered in ``history``."""
    if behavior is None or behavior.scale_up is None or behavior.scale_down is None:
        stable, able = _stabilized(wanted, history, now)
        replicas, limit = _in_bounds(stable, current, least, most)
    else:
        up, down = behavior.scale_up, behavior.scale_down
        stable, able = _stabilized_by(wanted, history, (up, down), current, now)
        replicas, limit = _rated(stable, history, (up, down), (current, least, most), now)
    return Limited(replicas, able if stable != wanted else _READY, replicas != stable, limit)


def _stabilized(wanted: int, history: History, now: float) -> tuple[int, tuple[str, str]]:
    recent = [n for at, n in history.recommended if at >= now - DOWNSCALE_WINDOW]
    history.recommend(now, wanted, keep=DOWNSCALE_WINDOW)
    return max([wanted, *recent]), _HELD_DOWN


def _in_bounds(wanted: int, current: int, least: int, most: int) -> tuple[int, tuple[str, str]]:
    """Without a behavior: at most twice the replicas, or 4."""
    fast = int(max(2.0 * current, 4.0))
    if wanted < least:
        return least, _TOO_FEW
    if wanted > min(most, fast):
        return min(most, fast), _TOO_FAST_UP if most > fast else _TOO_MANY
    return wanted, _IN_RANGE


Rules = tuple[HPAScalingRules, HPAScalingRules]


def _stabilized_by(
    wanted: int, history: History, rules: Rules, current: int, now: float
) -> tuple[int, tuple[str, str]]:
    """Return what the recommendations of both windows agree on, no further from ``current`` than needed."""
    windows = _window(rules[0], 0.0), _window(rules[1], DOWNSCALE_WINDOW)
    lowest = min([wanted, *(n for at, n in history.recommended if at > now - windows[0])])
    highest = max([wanted, *(n for at, n in history.recommended if at > now - windows[1])])
    history.recommend(now, wanted, keep=max(windows))
    return min(max(current, lowest), highest), _HELD_UP if wanted >= current else _HELD_DOWN


def _window(rules: HPAScalingRules, default: float) -> float:
    seconds = rules.stabilization_window_seconds
    return default if seconds is None else float(seconds)


def _rated(
    wanted: int, history: History, rules: Rules, bounds: tuple[int, int, int], now: float
) -> tuple[int, tuple[str, str]]:
    """Apply the policies: so many pods, or percent, in so many seconds."""
    current, least, most = bounds
    if wanted > current:
        fast = max(current, _limit(history, rules[0], current, now, up=True))
        if wanted > min(most, fast):
            return min(most, fast), _TOO_FAST_UP if most > fast else _TOO_MANY
    elif wanted < current:
        fast = min(current, _limit(history, rules[1], current, now, up=False))
        if wanted < max(least, fast):
            return max(least, fast), _TOO_FAST_DOWN if least < fast else _TOO_FEW
    return wanted, _IN_RANGE


def _limit(history: History, rules: HPAScalingRules, current: int, now: float, *, up: bool) -> int:
    """Return the furthest number that the policies allow in one direction."""
    if rules.select_policy == "Disabled" or not rules.policies:
        return current
    sign = 1 if up else -1
    reached = []
    for policy in rules.policies:
        start = history.start_of(now, float(policy.period_seconds or 0), current)
        value = policy.value or 0
        if policy.type == "Pods":
            reached.append(start + sign * value)
        else:
            share = start * (1 + sign * value / 100)
            # Rounded up when growing: else one pod and a small percentage would never grow.
            reached.append(math.ceil(share) if up else int(share))
    furthest = max if up else min
    nearest = min if up else max
    return (nearest if rules.select_policy == "Min" else furthest)(reached)


def longest_period(rules: HPAScalingRules | None) -> float:
    """Return the seconds for which changes matter to some policy."""
    policies = (rules.policies or ()) if rules else ()
    return max((float(policy.period_seconds or 0) for policy in policies), default=0.0)
