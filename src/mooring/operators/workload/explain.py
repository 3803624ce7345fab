"""Lines of ``mooring why`` about fields of the status that several operators have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mooring.operators.workload.autoscale import CONTESTED, UNKNOWN

__all__ = ["autoscaling", "configuration", "filling", "password", "rolls"]


def rolls(status: Mapping[str, Any]) -> Iterator[str]:
    """Each roll-out of ``status.rolls``: since when, and the pod that stopped it."""
    for component, roll in (status.get("rolls") or {}).items():
        if roll.get("pod"):
            text = f"{roll.get('reason')}: {roll.get('message')}"
            yield f"Roll-out of the {component} pods stopped at {roll['pod']}: {text}"
        else:
            yield f"Roll-out of the {component} pods since {roll.get('since')}"


def _since(autoscale: Mapping[str, Any]) -> str:
    chosen = autoscale.get("lastScaleTime")
    return f" since {chosen}" if chosen else ", as when it began to"


def autoscaling(status: Mapping[str, Any]) -> Iterator[str]:
    """What ``status.autoscale`` waits for, and what it may not do; the condition Stalled says who else sets the size."""
    found = status.get("autoscale") or {}
    if found.get("desired") is not None:
        yield (
            f"The load calls for {found['desired']} instead of {found.get('replicas')} since {found.get('since')} "
            f"({found.get('reason')}); it is carried out once that held for its stabilizationSeconds"
        )
    if (text := found.get("message")) and found.get("reason") != CONTESTED:
        if found.get("desired") is not None or found.get("reason") == UNKNOWN:
            yield f"{UNKNOWN}: {text}; while that is so, no server is removed"
        else:
            yield f"{found['reason']}: {text}" if found.get("reason") else text
    elif found.get("desired") is None and found.get("replicas") is not None and not found.get("reason"):
        yield f"The load decides the number: {found['replicas']}{_since(found)}"


def configuration(status: Mapping[str, Any]) -> Iterator[str]:
    """Each entry of ``status.config`` that is not applied."""
    for key, result in (status.get("config") or {}).items():
        if result.get("state") != "Applied":
            yield f"spec.config.{key}: {result.get('state')}: {result.get('message')}"


def filling(status: Mapping[str, Any]) -> Iterator[str]:
    """How full volumes are that grow by themselves; conditions say what is in the way."""
    found = status.get("autogrow") or {}
    if found.get("usedPercent") is None:
        return
    hours, size = found.get("fullInHours"), found.get("size")
    ends = f", full within {hours} h if it goes on like this" if hours else ""
    grown = f"; they grew to {size} at {found['grownAt']}" if size and found.get("grownAt") else ""
    held = f"; {found['reason']}: {found['message']}" if found.get("reason") else ""
    yield f"The fullest volume is about {found['usedPercent']} % full{ends}{grown}{held}"


def password(status: Mapping[str, Any]) -> Iterator[str]:
    """The password change of ``status.password``."""
    if change := status.get("password"):
        yield f"Password change: {change.get('phase')} since {change.get('since')}"
