"""What `mooring why` and `mooring replay` print about a RedisCluster beside its conditions and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mooring.kube.client import Client
from mooring.operators.redis.sentinel.topology import Topology
from mooring.operators.workload.explain import configuration, filling, password, rolls

__all__ = ["explain", "lines", "seen"]


async def explain(client: Client, raw: Mapping[str, Any]) -> Sequence[str]:
    """See `lines`; everything is in the status."""
    return tuple(lines(raw.get("status") or {}))


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """What is under way, every server that is not in service, settings not applied, and the last failover."""
    if operation := status.get("operation"):
        since, why = operation.get("since"), operation.get("why")
        yield f"Under way: {operation.get('kind')} of {operation.get('subject')} since {since}: {why}"
    yield from rolls(status)
    yield from password(status)
    for one in (*(status.get("nodes") or ()), *(status.get("sentinels") or ())):
        if one.get("state") not in ("Online", "Watching"):
            reason = f" ({one['reason']})" if one.get("reason") else ""
            yield f"{one.get('name')}: {one.get('state')}{reason} since {one.get('since')}"
    yield from configuration(status)
    yield from filling(status)
    for claim in status.get("quarantined") or ():
        yield f"Foreign data is kept on the volume {claim}"
    if last := status.get("lastFailover"):
        yield f"Last failover: {last.get('at')}, {last.get('old')} -> {last.get('new')}, {last.get('cause')}"
        yield f"  because {last.get('choice')}; gap {last.get('gapSeconds', 0)} s; may be lost: {last.get('lossBound')}"
        if (lost := last.get("lostBytes")) is not None:
            yield f"  the old master came back with {lost} bytes of writes that the new one did not have"


def seen(found: Topology) -> Iterator[str]:
    """One line per server."""
    for member in found.members:
        server = member.server
        if server is None:
            yield f"  {member.name}: no answer ({member.error})"
            continue
        link = "up" if server.link_up else "down"
        role = "master" if server.is_master else f"follows {server.master}, link {link}"
        yield f"  {member.name}: {role}, {server.keys} keys, offset {server.offset}, priority {server.priority}"
    for watcher in found.watchers:
        sentinel = watcher.sentinel
        if sentinel is None:
            yield f"  {watcher.name}: no answer ({watcher.error})"
        else:
            yield f"  {watcher.name}: watches {sentinel.master}, epoch {sentinel.epoch}"
