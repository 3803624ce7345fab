"""A planned change of master: when one is needed, and when it may begin. Pure rules."""

from __future__ import annotations

from mooring.operators.redis.sentinel.moves import Record, Switch, Verdict, Wait, data_target
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server
from mooring.operators.redis.sentinel.types import Operation
from mooring.operators.redis.versions import capabilities

__all__ = ["leave", "relieve", "resume"]

GIVEN_UP_AFTER = 30.0
"""Seconds after which a switch that could not be carried out is given up."""


def relieve(snapshot: Snapshot, member: Member, server: Server, *, why: str) -> Verdict:
    """A planned switch away from the master: recorded, then carried out while it can be; bounded."""
    operation = snapshot.recorded.operation
    staying = [
        (one, it)
        for one, it in snapshot.heirs()
        if it.in_sync_with(member.ip)
        and it.priority > 0
        and one.pod.ordinal < snapshot.wanted.size
        and not one.pod.terminating
    ]
    sentinels = snapshot.useful_sentinels(member.ip, staying)
    if snapshot.failing_over:
        return Wait("SentinelFailover", "the sentinels are changing the master", after=0.2)
    if not staying or not sentinels:
        what = "no replica in sync can take over" if not staying else "no sentinel knows such a replica yet"
        return Wait("SwitchBlocked", f"{why}, but {what}", after=0.5)
    unfit = {
        one.ip
        for one, it in snapshot.answering
        if it.priority == 0 or one.pod.ordinal >= snapshot.wanted.size
    }
    eager = [
        one.name
        for one in snapshot.watchers
        if one.sentinel and any(peer.ip in unfit and peer.priority > 0 for peer in one.sentinel.replicas)
    ]
    if eager:
        return Wait(
            "SwitchBlocked",
            f"{why}; {eager[0]} has not seen yet which replicas leave (it asks every 10 s)",
            after=0.5,
        )
    if operation is None or operation.kind != "Switch" or operation.subject != member.name:
        return Record(
            operation=Operation(
                kind="Switch",
                subject=member.name,
                since=snapshot.now,
                why=why,
                fence=server.config.get("min-slaves-to-write", "0"),
            ),
            why=f"{member.name} hands over: {why}",
        )
    return Switch(
        master=data_target(member),
        heirs=tuple(data_target(one) for one, _ in staying),
        sentinels=sentinels,
        pause=capabilities(server.version).pause_writes,
        fence=operation.fence or "0",
        why=why,
    )


def leave(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A master whose pod is being deleted hands over while it still lives."""
    if not member.pod.terminating:
        return None
    verdict = relieve(snapshot, member, server, why="its pod is being deleted")
    return None if isinstance(verdict, Wait) and verdict.reason == "SwitchBlocked" else verdict


def resume(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """A switch under way is finished or given up before anything else changes."""
    operation = snapshot.recorded.operation
    if operation is None:
        return None
    if operation.kind == "Switch" and operation.subject == member.name:
        if snapshot.seconds_since(operation.since) > GIVEN_UP_AFTER:
            return Record(finish=True, why=f"{member.name} could not hand over within {GIVEN_UP_AFTER:.0f} s")
        return relieve(snapshot, member, server, why=operation.why)
    return Record(finish=True, why=f"{operation.kind} of {operation.subject} is over")
