"""What `mooring why` prints about a RedisCluster beside its conditions and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mooring.kube.client import Client
from mooring.operators.workload.explain import password, rolls

__all__ = ["explain", "lines"]


async def explain(client: Client, raw: Mapping[str, Any]) -> Sequence[str]:
    """See `lines`; everything is in the status."""
    return tuple(lines(raw.get("status") or {}))


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Roll-outs, the plan that moves slots, the password change, and every node that is not in service."""
    yield from rolls(status)
    if plan := status.get("slotPlan"):
        left = f", {plan['secondsLeft']} s left" if plan.get("secondsLeft") is not None else ""
        done = f"{plan.get('moved', 0)} of {plan.get('total')} slots"
        yield f"{plan.get('kind')} towards {plan.get('replicas')} nodes since {plan.get('since')}: {done}{left}"
    yield from password(status)
    # HarmonyCloud's conditions are one for each redis node.
    for one in status.get("conditions") or ():
        if "domainName" in one and one.get("status") != "True":
            why = f"{one.get('reason')}: {one.get('message')}"
            yield f"{one.get('name')}: {one.get('status')} since {one.get('lastTransitionTime')}: {why}"
