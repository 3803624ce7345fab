"""What ``mooring why`` prints about an object of MatrixOne's beside its conditions and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mooring.kube.client import Client
from mooring.operators.workload.autoscale import CONTESTED, UNKNOWN
from mooring.operators.workload.explain import rolls

__all__ = ["explain", "lines"]

_WELL = ("Serving", "Spare", "Up", "Idle")


async def explain(client: Client, raw: Mapping[str, Any]) -> Sequence[str]:
    """See `lines`; everything is in the status."""
    return tuple(lines(raw.get("status") or {}))


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Roll-outs, what the load calls for, every store that is not in service, and groups that are not ready or
    that somebody else scales."""
    yield from rolls(status)
    scale = status.get("autoscale") or {}
    if scale.get("desired") is not None:
        nodes = f"{scale['desired']} compute nodes since {scale.get('since')}"
        yield f"The load calls for {nodes}; {scale.get('replicas')} are in force"
    if scale.get("message") and scale.get("reason") != CONTESTED:
        yield f"{UNKNOWN}: {scale['message']}; while that is so, no compute node is removed"
    for one in status.get("stores") or ():
        if one.get("state") not in _WELL:
            load = ""
            if one.get("sessions") is not None:
                load = f", {one['sessions']} sessions and {one.get('pipelines', 0)} pipelines are left"
            reason = f": {one['reason']}" if one.get("reason") else ""
            yield f"{one.get('podName')}: {one.get('state')} since {one.get('since')}{load}{reason}"
    for one in status.get("failedStores") or ():
        if one.get("reason"):
            yield f"{one.get('podName')}: down since {one.get('lastTransition')}: {one['reason']}"
    for group in (status.get("cnGroups") or {}).get("groups") or ():
        if not (group.get("ready") and group.get("synced")):
            state = "ready, not as declared" if group.get("ready") else "not ready"
            yield f"Group {group.get('name')}: {state}; see the CNSet"
        if group.get("scaledBy"):
            who = f"{group['scaledBy']} set {group.get('replicas')} replicas by the scale subresource"
            yield f"Group {group.get('name')}: {who}; to take that back, write another number in the group"
