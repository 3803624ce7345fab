"""How one compute node goes: drained, its lock tables handed over, stopped. Pure.

Fail-closed: what is not known counts as in use until the drain's limit. Reversible until the hand-over.
"""

from __future__ import annotations

from typing import Final

from mooring.actor.verdict import Move, Wait
from mooring.operators.matrixone.cnset.moves import Drain, HandOver, Stop
from mooring.operators.matrixone.cnset.snapshot import PROXIES_LEARN, Member, Snapshot

__all__ = ["GIVES_LOCKS_WITHIN", "hand_over_in_time", "leave"]

GIVES_LOCKS_WITHIN: Final = 10.0
"""Seconds a store may take to give its lock tables away; as a rule it takes two. A stop without it costs waiting writes 16 s."""


def leave(snapshot: Snapshot, member: Member, why: str, *, others: int) -> Move | Wait:
    """The next step for a pod that has to go; ``others`` serve and do not have to go now."""
    name = member.pod.name
    if not member.pod.running:
        return _stop(member, f"{why}; it does not run")
    if _too_late(snapshot, member):
        left = "an unknown number of" if member.sessions is None else str(member.sessions)
        return _stop(
            member,
            f"{why}; the drain's limit of {snapshot.drain_timeout:.0f} s is over, {left} sessions are left",
        )
    if snapshot.view is None:
        text = f"{name} has to go ({why}), but HAKeeper does not answer: {snapshot.error}"
        return Wait("DrainUnknown", text, after=1.0)
    if member.store is None:
        return _stop(member, f"{why}; it is not registered, so it has no sessions")
    if not member.draining and others < snapshot.least:
        text = f"{name} has to go ({why}); {others} others serve, {snapshot.least} are needed first"
        return Wait("DrainWaiting", text, after=1.0)
    if not snapshot.drains:
        return _stop(member, why)
    if not member.draining or member.draining_since is None:
        return Drain(pod=name, uid=member.pod.uid, uuid=member.uuid, why=f"{name}: {why}")
    return _drained(snapshot, member, why)


def _drained(snapshot: Snapshot, member: Member, why: str) -> Move | Wait:
    name = member.pod.name
    assert member.draining_since is not None
    for_seconds = (snapshot.now - member.draining_since).total_seconds()
    if member.sessions is None or member.pipelines is None:
        text = f"{name} drains since {for_seconds:.0f} s ({why}); its sessions are unknown: {member.error}"
        return Wait("Draining", text, after=1.0)
    if member.sessions or member.pipelines:
        text = (
            f"{name} drains since {for_seconds:.0f} s of {snapshot.drain_timeout:.0f} ({why}): "
            f"{member.sessions} sessions, {member.pipelines} pipelines are left"
        )
        return Wait("Draining", text, after=1.0)
    if for_seconds < snapshot.min_delay:
        text = f"{name} drains ({why}); proxies may take {snapshot.min_delay:.0f} s to notice"
        return Wait("Draining", text, after=min(1.0, snapshot.min_delay - for_seconds))
    if member.handed_over is None:
        return _hand_over(member)
    waited = (snapshot.now - member.handed_over).total_seconds()
    if member.gave_locks or waited >= GIVES_LOCKS_WITHIN:
        return _stop(member, f"{why}; it is drained")
    return Wait("HandingOver", f"{name} gives its lock tables away", after=0.3)


def hand_over_in_time(snapshot: Snapshot, member: Member) -> HandOver | None:
    """The hand-over of a pod that somebody deleted, once no proxy sends it sessions and none are left.

    Its preStop hook gives it `SWEEP_SECONDS` before its process is told to end, so the drain's least time does not count.
    """
    if member.draining_since is None or member.handed_over is not None:
        return None
    unused = member.sessions == 0 == member.pipelines
    for_seconds = (snapshot.now - member.draining_since).total_seconds()
    return _hand_over(member) if unused and for_seconds >= min(PROXIES_LEARN, snapshot.min_delay) else None


def _hand_over(member: Member) -> HandOver:
    pod = member.pod
    return HandOver(pod=pod.name, uid=pod.uid, uuid=member.uuid, why=f"{pod.name} has no sessions left")


def _too_late(snapshot: Snapshot, member: Member) -> bool:
    """The drain's limit is over; that of a set which is deleted counts from then on, since nothing else ends it."""
    since = [one for one in (member.draining_since, snapshot.ending) if one is not None]
    return bool(since) and (snapshot.now - min(since)).total_seconds() >= snapshot.drain_timeout


def _stop(member: Member, why: str) -> Stop:
    pod = member.pod
    return Stop(pod=pod.name, uid=pod.uid, uuid=member.uuid, version=pod.version, why=f"{pod.name}: {why}")
