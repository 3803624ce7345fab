"""What `mooring why` and `mooring replay` print about a MySQLCluster beside its conditions and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mooring.kube.client import Client
from mooring.kube.object import Object
from mooring.operators.mysql import saved
from mooring.operators.mysql.topology import Topology
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.operator import Replayed, SavedDecision
from mooring.operators.workload.explain import autoscaling, configuration, filling, rolls
from mooring.operators.workload.saved import NotDecided

__all__ = ["explain", "lines", "replay", "save", "seen"]


async def explain(client: Client, raw: Mapping[str, Any]) -> Sequence[str]:
    """See `lines`; everything is in the status. Of backups the conditions say all there is."""
    if raw.get("kind") != MySQLCluster.resource.kind:
        return ()
    return tuple(lines(raw.get("status") or {}))


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """What is under way, what a failure would cost, every server that is not in service, and the last change of primary."""
    if operation := status.get("operation"):
        subject = operation.get("subject") or "a replica that is not chosen yet"
        yield f"Under way: {operation.get('kind')} to {subject} since {operation.get('since')}: {operation.get('why')}"
    acks, members = status.get("acks") or 0, ", ".join(status.get("ackSet") or ())
    if status.get("durability") == "Strict":
        yield f"A write waits for {acks} of: {members or 'no replica yet'}"
    elif status.get("term"):  # before somebody leads there are no writes, and nothing is unsafe
        yield "A write waits for no replica"
    if risk := status.get("atRisk"):
        yield f"One failure would cost: {risk}"
    yield from rolls(status)
    for one in status.get("instances") or ():
        if one.get("state") != "Online":
            reason = f" ({one['reason']})" if one.get("reason") else ""
            yield f"{one.get('name')}: {one.get('state')}{reason} since {one.get('since')}"
    for name, one in sorted((status.get("members") or {}).items()):
        if one.get("reseed"):
            yield f"{name} is to be seeded again: {one['reseed']}"
    yield from autoscaling(status)
    yield from configuration(status)
    yield from filling(status)
    yield from _tuning(status.get("tuning") or {})
    if failure := status.get("retry"):
        yield f"{failure.get('step')} failed {failure.get('times')} times: {failure.get('message')}"
    if promotions := status.get("promotions"):
        last = promotions[0]
        yield (
            f"Primary of term {last.get('term')} since {last.get('at')}: {last.get('pod')} after "
            f"{last.get('old') or 'none'}, {last.get('cause')}, gap {last.get('gapSeconds', 0)} s"
        )


def _tuning(tuning: Mapping[str, Any]) -> Iterator[str]:
    """What is measured to be too small, what is on trial, and what was kept or taken back."""
    if trial := tuning.get("trial"):
        names = " and ".join(trial.get("variables") or ())
        where = trial.get("pod") if trial.get("stage") == "Replica" else "every server"
        yield (
            f"On trial: {names} from {trial.get('previous')} to {trial.get('value')} on {where} since "
            f"{trial.get('since')}: {trial.get('evidence')}"
        )
    for one in tuning.get("recommendations") or ():
        held = f" (not applied: {one['held']})" if one.get("held") else ""
        value = f"{one.get('current')} -> {one.get('proposed')}"
        yield f"Recommended: {one.get('variable')} {value}{held}: {one.get('evidence')}"
    for word, field in (("Kept", "applied"), ("Taken back", "rejected")):
        for _, one in sorted((tuning.get(field) or {}).items()):
            names = " and ".join(one.get("variables") or ())
            yield f"{word}: {names} = {one.get('value')} at {one.get('at')}: {one.get('evidence')}"


async def save(client: Client, cluster: Object) -> SavedDecision:
    """Ask the API server and the cluster's own servers, as the operator does."""
    if not isinstance(cluster, MySQLCluster):
        raise NotDecided("only what is decided about a MySQLCluster can be saved")
    snapshot = await saved.gather(client, cluster, now=datetime.now(UTC))
    silent = [one.name for one in snapshot.topology.members if one.server is None]
    return SavedDecision(content=saved.dump(snapshot), silent=silent)


def replay(content: bytes) -> Replayed:
    """What was seen, and what the planner decides from it."""
    snapshot = saved.load(content)
    head = f"At {snapshot.now.isoformat()}"
    return Replayed(seen=(head, *seen(snapshot.topology)), verdict=saved.replay(snapshot))


def seen(found: Topology) -> Iterator[str]:
    """One line per server."""
    for member in found.members:
        server = member.server
        if server is None:
            yield f"  {member.name}: no answer ({member.error}), order {member.order or 'none'}"
            continue
        link = server.replication
        follows = f"follows {link.host}, lag {link.lag}" if link is not None else "replicates from none"
        access = "read-only" if server.read_only else "writable"
        yield f"  {member.name}: {access}, {follows}, executed {server.executed.text()}"
