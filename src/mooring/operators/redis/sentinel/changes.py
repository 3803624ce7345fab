"""What the user changed: live keys, sizes, and the pod template; one small step at a time.

Nothing here starts unless a master serves and the sentinels are whole (`plan` asks in that order). Growth goes
first, shrinking never takes the master with it; the pod template is `roll`'s.
"""

from __future__ import annotations

from mooring.operators.redis.sentinel import certificates, passwords, roll, transport, users
from mooring.operators.redis.sentinel.moves import Configure, Record, Resize, Verdict, Wait, data_target
from mooring.operators.redis.sentinel.settings import KEYS
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server, Watcher
from mooring.operators.workload.configuration import Configuration, RecordResults, SetKey
from mooring.operators.workload.rollout import HandOver, hopeless

__all__ = ["next_change"]


def next_change(snapshot: Snapshot, member: Member, server: Server) -> Verdict | HandOver | None:
    """The first change still to make."""
    for rule in (
        passwords.begin,
        _configure,
        _grow,
        _shrink_redis,
        _shrink_sentinels,
        transport.advance,
        roll.begin,
        roll.roll_redis,
        roll.roll_sentinels,
        roll.end,
        certificates.keep,
    ):
        verdict = rule(snapshot, member, server)
        if verdict is not None:
            return verdict
    return (
        roll.halted(snapshot)
        or _missing(snapshot)
        or roll.refused(snapshot)
        or _two_passwords(snapshot)
        or users.changing(snapshot)
    )


def _configure(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Set changed keys one by one on every server; the result of each of the user's goes to status."""
    step = Configuration(
        keys=KEYS,
        wanted=snapshot.wanted.config,
        declared=snapshot.wanted.user_keys,
        results=snapshot.recorded.config,
        servers={one.name: it.config for one, it in snapshot.answering},
        published=snapshot.observed.published,
        rolls=snapshot.wanted.rolls_config,
    ).next()
    if isinstance(step, RecordResults):
        return Record(config=step.results, why=step.why)
    if isinstance(step, SetKey):
        targets = tuple(data_target(one) for one, _ in snapshot.answering if one.name in step.pods)
        return Configure(
            targets=targets, key=step.key, value=step.value, previous=step.previous, why=step.why
        )
    return step


# --- sizes -----------------------------------------------------------------------------------------------


def _grow(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    redis, sentinels = snapshot.observed.redis_set.replicas, snapshot.observed.sentinel_set.replicas
    if redis and redis < snapshot.wanted.size:
        return Resize(
            component="redis", replicas=snapshot.wanted.size, why=f"from {redis} to {snapshot.wanted.size}"
        )
    if sentinels and sentinels < snapshot.wanted.sentinels:
        return Resize(
            component="sentinel",
            replicas=snapshot.wanted.sentinels,
            why=f"from {sentinels} to {snapshot.wanted.sentinels}",
        )
    return None


def _shrink_redis(snapshot: Snapshot, member: Member, server: Server) -> Verdict | HandOver | None:
    replicas, size = snapshot.observed.redis_set.replicas, snapshot.wanted.size
    if replicas <= size:
        return None
    if member.pod.ordinal >= size:
        return HandOver(pod=member.name, why=f"scaling from {replicas} to {size} removes the master's pod")
    staying = [one for one, it in snapshot.answering if one.pod.ordinal < size and it.in_sync_with(member.ip)]
    if size > 1 and not staying:
        return Wait(
            "ScaleInBlocked",
            "no replica that stays is in sync with the master; nothing is removed before",
            after=1.0,
        )
    return Resize(component="redis", replicas=size, why=f"from {replicas} to {size}")


def _shrink_sentinels(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """One at a time, so that the majority the sentinels count by shrinks with them."""
    replicas = snapshot.observed.sentinel_set.replicas
    if replicas <= snapshot.wanted.sentinels:
        return None
    leaving = [one for one in snapshot.topology.watchers if one.pod.ordinal >= replicas]
    if leaving:
        return Wait("SentinelLeaving", f"{leaving[0].name} is on its way out", after=0.5)
    return Resize(
        component="sentinel", replicas=replicas - 1, why=f"towards {snapshot.wanted.sentinels}, one by one"
    )


# --- what is missing --------------------------------------------------------------------------------------


def _two_passwords(snapshot: Snapshot) -> Wait | None:
    left = passwords.two_valid(snapshot)
    if not left:
        return None
    until = snapshot.later(left).strftime("%H:%M:%S")
    message = f"the old and the new password are both valid until {until} UTC; then the new one alone is"
    return Wait("PasswordChanging", message, after=left)


def _missing(snapshot: Snapshot) -> Verdict | None:
    """Pods that are not there or not right; everything that can be done without them is done."""
    answering = {member.name for member, _ in snapshot.answering}
    wanted = [one for one in snapshot.topology.members if one.pod.ordinal < snapshot.wanted.size]
    silent = [one for one in wanted if one.name not in answering]
    if silent:
        one = silent[0]
        return Wait(
            one.pod.trouble or "RedisNotAnswering",
            f"{one.name}: {one.pod.trouble_message or one.error}",
            after=1.0,
            stalled=hopeless(one.pod, snapshot.now),
        )
    if len(wanted) < snapshot.wanted.size:
        return Wait("PodsMissing", f"{len(wanted)} of {snapshot.wanted.size} redis pods exist", after=1.0)
    aside = [one for one, it in snapshot.answering if it.at_gate and snapshot.set_aside(one)]
    if aside:
        return Wait(
            "ForeignDataSetAside",
            f"{aside[0].name} holds data of an unrelated history and is kept as it is; copy out what you "
            f"need, then name it in the annotation mooring.dev/discard-data: {aside[0].name}",
            after=10.0,
            stalled=True,
        )
    unready: list[Member | Watcher] = [one for one in wanted if not one.pod.ready]
    unsynced = [one for one, it in snapshot.answering if not it.is_master and not it.link_up]
    if unsynced:
        return Wait("ReplicaSynchronising", f"{unsynced[0].name} is not in sync yet", after=0.5)
    lost = [one for one in snapshot.topology.watchers if one.sentinel is None]
    if lost or len(snapshot.topology.watchers) < snapshot.wanted.sentinels:
        trouble = next((one.pod for one in lost if one.pod.trouble), None)
        return Wait(
            trouble.trouble if trouble else "SentinelNotAnswering",
            f"{lost[0].name}: {lost[0].pod.trouble_message or lost[0].error}"
            if lost
            else f"{len(snapshot.topology.watchers)} of {snapshot.wanted.sentinels} sentinel pods exist",
            after=1.0,
            stalled=trouble is not None and hopeless(trouble, snapshot.now),
        )
    unready = [*unready, *(one for one in snapshot.topology.watchers if not one.pod.ready)]
    if unready:
        names = ", ".join(one.name for one in unready)
        troubled = next((one.pod for one in unready if one.pod.trouble), None)
        why = f": {troubled.trouble_message}" if troubled else ""
        return Wait(
            "PodsNotReady",
            f"{names} not ready yet{why}",
            after=5.0,
            stalled=troubled is not None and hopeless(troubled, snapshot.now),
        )
    return None
