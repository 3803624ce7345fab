"""What the user changed: live keys, the size, and the pod template; one small step at a time.

Nothing here starts unless a primary serves and its writes are safe (`plan` asks in that order). Growth goes first,
shrinking never takes the primary with it, nor a replica whose acknowledgements still count; the template is `roll`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from mooring.operators.mysql import applier, durability, release, replication, roll
from mooring.operators.mysql.config import canonical, keys_of
from mooring.operators.mysql.moves import Configure, Record, Resize, Verdict, Wait, target_of
from mooring.operators.mysql.names import COMPONENT
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.mysql.tuning import on_trial
from mooring.operators.workload.configuration import Configuration, RecordResults, SetKey
from mooring.operators.workload.rollout import HandOver, hopeless

__all__ = ["next_change"]


def next_change(snapshot: Snapshot, member: Member, server: Server) -> Verdict | HandOver | None:
    """The first change still to make."""
    for rule in (_configure, _grow, _shrink, roll.begin, roll.advance, roll.end):
        verdict = rule(snapshot, member, server)
        if verdict is not None:
            return verdict
    return (
        roll.halted(snapshot)
        or replication.missing(snapshot)
        or _missing(snapshot, member, server)
        or roll.refused(snapshot)
    )


def _configure(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Set changed keys one by one on every server; the result of each of the user's goes to status."""
    results = snapshot.status.config or {}
    step = Configuration(
        keys=keys_of(frozenset(key for key, one in results.items() if one.restart)),
        wanted=snapshot.wanted.config,
        declared=snapshot.wanted.user_keys,
        results=results,
        servers={one.name: _apart_from_trial(snapshot, it.held) for one, it in snapshot.topology.answering},
        published=snapshot.observed.published,
        rolls=snapshot.wanted.rolls_config,
    ).next()
    if isinstance(step, RecordResults):
        return Record(status=replace(snapshot.status, config=dict(step.results) or None), why=step.why)
    if isinstance(step, SetKey):
        targets = tuple(target_of(one) for one, _ in snapshot.topology.answering if one.name in step.pods)
        return Configure(
            targets=targets, key=step.key, value=step.value, previous=step.previous, why=step.why
        )
    return step


def _apart_from_trial(snapshot: Snapshot, held: Mapping[str, str]) -> Mapping[str, str]:
    """What a server holds, with the value in force of what `tuning` tries there."""
    tried = on_trial(snapshot.status.tuning) - {canonical(key) for key in snapshot.wanted.user_keys}
    config = snapshot.wanted.config
    return {key: config[key] if key in tried and key in config else value for key, value in held.items()}


# --- size ------------------------------------------------------------------------------------------------


def _grow(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    replicas, size = snapshot.observed.set.replicas, snapshot.wanted.size
    if replicas and replicas < size:
        return Resize(component=COMPONENT, replicas=size, why=f"from {replicas} to {size}")
    return None


def _shrink(snapshot: Snapshot, member: Member, server: Server) -> Verdict | HandOver | None:
    replicas, size = snapshot.observed.set.replicas, snapshot.wanted.size
    if replicas <= size:
        return None
    if member.pod.ordinal >= size:
        return HandOver(pod=member.name, why=f"scaling from {replicas} to {size} removes the primary's pod")
    leaving = {one.name for one in snapshot.topology.members if one.pod.ordinal >= size}
    if counted := sorted(leaving & snapshot.ack_set):
        text = f"{', '.join(counted)} hold acknowledged writes; the replicas that stay catch up first"
        return Wait("ScaleInBlocked", text, after=0.3)
    return Resize(component=COMPONENT, replicas=size, why=f"from {replicas} to {size}")


# --- what is missing -------------------------------------------------------------------------------------


def _missing(snapshot: Snapshot, member: Member, server: Server) -> Wait | None:
    """Pods that are not there or not right; everything that can be done without them is done."""
    wanted = [one for one in snapshot.topology.members if one.pod.ordinal < snapshot.wanted.size]
    for one in wanted:
        if one.server is None:
            if snapshot.at_gate(one) and (refused := release.too_old(snapshot, one)):
                return refused
            text = f"{one.name}: {one.pod.trouble_message or one.error or 'it is starting'}"
            stalled = hopeless(one.pod, snapshot.now)
            return Wait(one.pod.trouble or "ServerStarting", text, after=0.5, stalled=stalled)
    if len(wanted) < snapshot.wanted.size:
        return Wait("PodsMissing", f"{len(wanted)} of {snapshot.wanted.size} pods exist", after=0.5)
    if durability.blocked(snapshot):
        text = "writes wait: fewer replicas can acknowledge than are needed"
        return Wait("WritesBlocked", text, after=0.5)
    if stuck := applier.waiting(snapshot):
        return stuck
    for one, _ in snapshot.replicas:
        if one.pod.ordinal < snapshot.wanted.size and (why := replication.behind(snapshot, one)):
            return Wait("ReplicaCatchingUp", why, after=0.5)
    late = [one.name for one, _ in snapshot.replicas if one.pod.role == "" and not snapshot.leaves(one)]
    if late:
        text = f"{', '.join(late)} have yet to apply what they received"
        return Wait("ReplicaCatchingUp", text, after=0.5)
    if len(snapshot.topology.members) > snapshot.wanted.size:
        last = snapshot.topology.members[-1]
        return Wait("PodLeaving", f"{last.name} is on its way out", after=0.5)
    unready = [one for one in wanted if not one.pod.ready]
    if unready:
        names = ", ".join(one.name for one in unready)
        troubled = next((one.pod for one in unready if one.pod.trouble), None)
        why = f": {troubled.trouble_message}" if troubled else ""
        stalled = troubled is not None and hopeless(troubled, snapshot.now)
        return Wait("PodsNotReady", f"{names} not ready yet{why}", after=2.0, stalled=stalled)
    return None
