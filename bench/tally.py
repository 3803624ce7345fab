"""What a run of random faults came to, reckoned by cause: losses, gaps, and whether it may pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CLASSES", "Outcome", "markdown", "percentile", "report", "table", "trouble"]

CLASSES = {
    "crash": (
        "master-killed",
        "master-removed",
        "master-emptied",
        "primary-killed",
        "primary-removed",
        "compute-node-killed",
        "transaction-node-killed",
    ),
    "hang": ("master-hung", "primary-hung", "compute-node-hung", "transaction-node-hung"),
    "partition": ("partition", "isolation", "primary-isolated", "compute-node-partitioned"),
    "planned": ("master-deleted", "primary-deleted", "switch", "compute-node-deleted"),
}
"""The causes whose gaps are one figure; the others only in combination with them, or with no gap to speak of."""
PARTITIONS = frozenset(CLASSES["partition"])
SLACK = 1.0
"""Seconds beyond min-replicas-max-lag in which a master that was cut off may still acknowledge."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One fault and what became of it. Times are seconds; `bound` is min-replicas-max-lag, 0 where it is off.

    `lost_seconds` lie between the first and the last acknowledged write that is lost; `lag` is the longest time
    the measuring process itself was held up, by which gaps may be too long. `flaw`: what was wrong in the end.
    """

    number: int
    lane: int
    cause: str
    victim: str
    gap: float = 0.0
    whole_again: float = 0.0
    acknowledged: int = 0
    confirmed: int = 0
    lost_acknowledged: int = 0
    lost_confirmed: int = 0
    lost_seconds: float = 0.0
    bound: float = 0.0
    lag: float = 0.0
    said: str = ""
    flaw: str = ""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed (nearest rank); 0 of nothing."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0


def trouble(one: Outcome) -> str:
    """Why this outcome fails the run; empty when it does not."""
    if one.flaw:
        return f"not whole again: {one.flaw}"
    if one.lost_confirmed:
        return f"{one.lost_confirmed} confirmed writes lost"
    if one.cause in PARTITIONS and one.bound and one.lost_seconds > one.bound + SLACK:
        return f"{one.lost_seconds:.1f} s of writes lost, the bound is {one.bound + SLACK:.1f} s"
    return ""


def report(outcomes: Sequence[Outcome], *, lost_later: int = 0) -> dict[str, Any]:
    """Totals, a row per cause, gaps per class; ``lost_later``: confirmed writes that a later fault lost."""
    causes = sorted({one.cause for one in outcomes})
    failures = [f"{one.number} ({one.cause}): {why}" for one in outcomes if (why := trouble(one))]
    if lost_later:
        failures.append(f"{lost_later} confirmed writes were there after their own fault and are gone now")
    return {
        "faults": len(outcomes),
        **_sums(outcomes),
        "lost_later_confirmed": lost_later,
        "causes": {cause: _row([one for one in outcomes if one.cause == cause]) for cause in causes},
        "gaps": {
            name: _spread([one.gap for one in outcomes if one.cause in members])
            for name, members in CLASSES.items()
        },
        "measuring_lag": _spread([one.lag for one in outcomes]),
        "failures": failures,
        "outcomes": [asdict(one) for one in outcomes],
    }


def _sums(outcomes: Sequence[Outcome]) -> dict[str, int]:
    names = ("acknowledged", "confirmed", "lost_acknowledged", "lost_confirmed")
    return {name: sum(getattr(one, name) for one in outcomes) for name in names}


def _row(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "number": len(outcomes),
        **_sums(outcomes),
        "lost_seconds_max": max(one.lost_seconds for one in outcomes),
        "gap": _spread([one.gap for one in outcomes]),
        "whole_again": _spread([one.whole_again for one in outcomes]),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "number": len(values),
        "p50": round(percentile(values, 0.5), 3),
        "p99": round(percentile(values, 0.99), 3),
        "max": round(max(values, default=0.0), 3),
    }


def table(figures: dict[str, Any]) -> str:
    """The report for people."""
    head = (
        "cause",
        "n",
        "acknowledged",
        "lost",
        "of them confirmed",
        "lost s",
        "gap p50",
        "p99",
        "max",
        "whole",
    )
    lines = [head] + [
        (
            cause,
            str(row["number"]),
            str(row["acknowledged"]),
            str(row["lost_acknowledged"]),
            str(row["lost_confirmed"]),
            f"{row['lost_seconds_max']:.1f}",
            *(f"{row['gap'][name]:.2f}" for name in ("p50", "p99", "max")),
            f"{row['whole_again']['p50']:.1f}",
        )
        for cause, row in figures["causes"].items()
    ]
    lines.append(
        (
            "all",
            str(figures["faults"]),
            str(figures["acknowledged"]),
            str(figures["lost_acknowledged"]),
            str(figures["lost_confirmed"] + figures["lost_later_confirmed"]),
            *[""] * 5,
        )
    )
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    text = [
        "  ".join(
            word.ljust(width) if not at else word.rjust(width) for at, (word, width) in enumerate(pairs)
        )
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    text += [
        f"gap {name:10s} p50 {it['p50']:.2f}  p99 {it['p99']:.2f}  max {it['max']:.2f} s  (of {it['number']})"
        for name, it in figures["gaps"].items()
    ]
    lag = figures["measuring_lag"]
    text.append(f"the measuring itself was held up p50 {lag['p50']:.2f}, max {lag['max']:.2f} s per fault")
    return "\n".join(text + [f"FAILED {why}" for why in figures["failures"]])


def markdown(figures: dict[str, Any]) -> str:
    """The report for the page of benchmarks: a row per cause, then the gaps by class."""
    lost = figures["lost_confirmed"] + figures["lost_later_confirmed"]
    how = f"{figures['machine']}, {figures['lanes']} clusters side by side, one-minute load {figures['load']}"
    faults = f"{figures['faults']} faults in {figures['minutes']:.0f} minutes (seed {figures['seed']})"
    writes = f"{figures['acknowledged']:,} acknowledged writes, {figures['confirmed']:,} confirmed by WAIT"
    lines = [
        f"Measured on {figures['measured']}: {how}; {faults}, {writes}, of which **{lost} lost**.",
        "",
        "| cause | faults | acknowledged | of them lost | confirmed | of them lost | lost, s | gap p50 / p99 / max, s | exact p50 / max, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cause, row in figures["causes"].items():
        gap, whole = row["gap"], row["whole_again"]
        cells = [
            *(cause, str(row["number"]), f"{row['acknowledged']:,}", str(row["lost_acknowledged"])),
            *(f"{row['confirmed']:,}", str(row["lost_confirmed"]), f"{row['lost_seconds_max']:.1f}"),
            f"{gap['p50']:.2f} / {gap['p99']:.2f} / {gap['max']:.2f}",
            f"{whole['p50']:.1f} / {whole['max']:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| gap, s | faults | p50 | p99 | max |", "|---|---:|---:|---:|---:|"]
    for name, gap in figures["gaps"].items():
        words = " | ".join(f"{gap[key]:.2f}" for key in ("p50", "p99", "max"))
        causes = ", ".join(one for one in CLASSES[name] if one in figures["causes"])
        lines.append(f"| {name}: {causes} | {gap['number']} | {words} |")
    lag = figures["measuring_lag"]
    lines += [
        "",
        f"The measuring process itself was held up for {lag['p50']:.2f} s (median of the faults), at most {lag['max']:.2f} s.",
    ]
    return "\n".join(lines + [f"\nFAILED: {why}" for why in figures["failures"]])
