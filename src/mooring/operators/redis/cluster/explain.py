"""What `mooring why` and `mooring replay` print about a RedisCluster beside its conditions and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mooring.kube.client import Client
from mooring.operators.redis.cluster.slots import show
from mooring.operators.redis.cluster.topology import Seen
from mooring.operators.workload.explain import autoscaling, filling

__all__ = ["explain", "lines", "policy", "seen"]


async def explain(client: Client, raw: Mapping[str, Any]) -> Sequence[str]:
    """See `lines`; everything is in the status."""
    return (*lines(raw.get("status") or {}), *policy(raw.get("spec") or {}))


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Moves of slots, steps that fail, load, volumes, nodes not in service, and data that was lost."""
    if plan := status.get("slotPlan"):
        left = f", {plan['secondsLeft']} s left" if plan.get("secondsLeft") is not None else ""
        done = f"{plan.get('moved', 0)} of {plan.get('total')} slots"
        yield f"{plan.get('kind')} towards {plan.get('replicas')} nodes since {plan.get('since')}: {done}{left}"
    if retry := status.get("retry"):
        yield f"{retry.get('step')} fails since {retry.get('since')}: {retry.get('message')}"
    yield from autoscaling(status)
    yield from filling(status)
    # HarmonyCloud's conditions are one for each redis node.
    for one in status.get("conditions") or ():
        if "domainName" in one and one.get("status") != "True":
            why = f"{one.get('reason')}: {one.get('message')}"
            yield f"{one.get('name')}: {one.get('status')} since {one.get('lastTransitionTime')}: {why}"
    if loss := status.get("lastDataLoss"):
        yield f"Data was lost at {loss.get('time')}: {loss.get('message')}"


def policy(spec: Mapping[str, Any]) -> Iterator[str]:
    """The bounds and the targets by which the load chooses the number of nodes."""
    if declared := spec.get("autoscale"):
        metrics = ", ".join(
            f"{one.get('type')} {one.get('target'):g}" for one in declared.get("metrics") or ()
        )
        bounds = f"{declared.get('minReplicas')} to {declared.get('maxReplicas')} nodes"
        yield f"The load chooses {bounds}; targets per master: {metrics}"


def seen(found: Seen) -> Iterator[str]:
    """One line per server."""
    for node in found.nodes:
        server = node.server
        if node.gate is not None:
            yield f"  {node.name}: waits at its gate, data: {node.gate.disk}"
        elif server is None:
            yield f"  {node.name}: no answer ({node.error})"
        elif server.role == "master":
            slots = f", slots {show(server.me.slots)}" if server.me.slots else ""
            yield f"  {node.name}: master, {server.keys} keys{slots}"
        else:
            link = "up" if server.link_up else "down"
            yield f"  {node.name}: follows {server.master}, link {link}, offset {server.offset}"
