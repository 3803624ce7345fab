"""Which server is master, and which one succeeds a master that is dead or does not answer. Pure rules.

Guarantees: a server is promoted only after that was recorded; one that does not answer is neither empty nor
dead; an empty server never wins over one with data; a sentinel that can do the work is not raced; between
unrelated histories nothing is chosen without a person.
"""

from __future__ import annotations

from mooring.operators.redis.sentinel.lineage import Lineage, Standing, descends
from mooring.operators.redis.sentinel.moves import (
    FailOver,
    Move,
    Promote,
    Quarantine,
    Record,
    Wait,
    data_target,
)
from mooring.operators.redis.sentinel.snapshot import STALE_AFTER, Snapshot
from mooring.operators.redis.sentinel.topology import Member, Server
from mooring.operators.redis.sentinel.types import LastFailover, Operation

__all__ = ["ALL_DATA", "find_master", "gap_of", "loss_of"]

ALL_DATA = "all data: no server or volume that held it is left"
"""The bound of a loss when every server came back empty."""
RETURN_WAIT = 1.0
"""Seconds a fail-over may wait for the dead master's own log, where that is allowed at all."""
SENTINEL_PATIENCE = 3.0
"""Seconds the sentinels get to carry out a fail-over they were asked for; then we promote by ourselves."""
RETURN_DEADLINE = 60.0
"""Seconds a recorded master may take to come back (image pull, attach) before another recorded one stands."""
START_TOGETHER = 10.0
"""Seconds a new cluster waits for all of its pods, so that the lowest leads; a Pending one does not block."""


def find_master(snapshot: Snapshot) -> tuple[Member, Server] | Move | Wait:
    lineage = snapshot.lineage
    if lineage is None:
        return _first_master(snapshot)
    operation = snapshot.recorded.operation
    if operation is not None and operation.kind == "Promote" and (step := _promotion(snapshot, operation)):
        return step
    rightful = _rightful(snapshot, lineage)
    if rightful is not None:
        return rightful
    if snapshot.masters:
        return _pretender(snapshot, lineage)
    return _succession(snapshot, lineage)


def _rightful(snapshot: Snapshot, lineage: Lineage) -> tuple[Member, Server] | None:
    """The one of several masters that is master beyond doubt, if there is one."""
    by_ip = {member.ip: (member, server) for member, server in snapshot.masters}
    if snapshot.named is not None:
        ip, epoch = snapshot.named
        chosen = by_ip.get(ip)
        if chosen is not None and epoch > lineage.sentinel_epoch:
            return chosen
    own = next((entry for entry in snapshot.masters if entry[0].name == lineage.master.pod), None)
    if own is not None and descends(own[1], lineage):
        return own
    heirs = [entry for entry in snapshot.masters if descends(entry[1], lineage)]
    operation = snapshot.recorded.operation
    asked = operation is not None and operation.kind in ("FailOver", "Switch")
    if len(heirs) == 1 and (asked or not snapshot.failing_over) and _retired(snapshot, lineage.master):
        return heirs[0]
    return None


def _retired(snapshot: Snapshot, standing: Standing) -> bool:
    """The recorded master certainly serves no more: its process is gone, or it is a replica."""
    member = snapshot.topology.member(standing.pod)
    if snapshot.process_gone(standing):
        return True
    return member is not None and member.server is not None and not member.server.is_master


def _pretender(snapshot: Snapshot, lineage: Lineage) -> tuple[Member, Server] | Move | Wait:
    """Servers call themselves master, but none of them certainly is."""
    holders = [entry for entry in snapshot.answering if entry[1].keys and entry not in snapshot.masters]
    for member, server in snapshot.masters:
        restarted = member.name == lineage.master.pod and not descends(server, lineage)
        if restarted and not server.keys and (holders or snapshot.heirs()):
            return Quarantine(
                target=data_target(member),
                save=False,
                why=f"{member.name} came back empty as a master while others hold the data",
            )
        if restarted and not server.loading and len(snapshot.masters) == 1:
            return member, server
    if snapshot.failing_over:
        return Wait("SentinelFailover", "the sentinels are changing the master", after=0.2)
    names = ", ".join(member.name for member, _ in snapshot.masters)
    waited = max(
        (snapshot.unreachable_for(one.name) for one in snapshot.topology.members if not one.server), default=0
    )
    if len(snapshot.masters) == 1 and snapshot.process_gone(lineage.master):
        member, server = snapshot.masters[0]
        if server.keys or not (holders or snapshot.heirs()):
            return _refuse(snapshot, [(member, server)])
    return Wait(
        "MasterUndecided",
        f"{names} claims to be master, but the record names {lineage.master.pod} and the sentinels do "
        f"not agree on another; waiting for them ({waited:.0f} s)",
        after=1.0,
    )


def _first_master(snapshot: Snapshot) -> tuple[Member, Server] | Move | Wait:
    """No record: a new cluster, an adopted one, or kept claims."""
    if snapshot.masters:
        return _adopt(snapshot)
    unknown = snapshot.maybe_holding()
    if unknown:
        names = ", ".join(unknown)
        return Wait(
            "WaitingForData",
            f"{names} may hold data of an earlier cluster and does not answer yet",
            after=1.0,
        )
    if any(server.loading for _, server in snapshot.answering):
        return Wait("Loading", "a server is loading its data", after=0.5)
    if not snapshot.answering:
        return Wait("PodsStarting", "no redis server answers yet", after=0.5)
    holders = [entry for entry in snapshot.answering if entry[1].keys]
    if len(holders) > 1 and (not holders[0][1].replid or len({server.replid for _, server in holders}) > 1):
        return _refuse(snapshot, holders)
    if holders:
        choice = max(holders, key=lambda entry: (entry[1].offset, -entry[0].pod.ordinal))
        return _begin(snapshot, choice, why=f"{choice[0].name} alone holds data")
    lowest = [entry for entry in snapshot.answering if entry[0].pod.ordinal < snapshot.wanted.size]
    missing = snapshot.wanted.size - len(lowest)
    if not lowest or (missing and snapshot.oldest_pod_age() < START_TOGETHER):
        return Wait("PodsStarting", f"{missing} redis servers do not answer yet", after=0.3)
    return _begin(snapshot, lowest[0], why="all servers are empty and nothing was ever recorded")


def _adopt(snapshot: Snapshot) -> Move | Wait:
    """Adopt a server that already runs as master though nothing was recorded."""
    if snapshot.failing_over:
        return Wait("SentinelFailover", "the sentinels are changing the master", after=0.5)
    named = snapshot.named[0] if snapshot.named else ""
    chosen = [entry for entry in snapshot.masters if entry[0].ip == named] or (
        list(snapshot.masters) if len(snapshot.masters) == 1 else []
    )
    if not chosen:
        return _refuse(
            snapshot, [entry for entry in snapshot.masters if entry[1].keys] or list(snapshot.masters)
        )
    member, server = chosen[0]
    holders = [entry for entry in snapshot.answering if entry[1].keys]
    if not server.keys and holders:
        return _refuse(snapshot, [(member, server), *holders])
    return Record(
        lineage=Lineage.begin(member.pod, replid=server.replid, sentinel_epoch=snapshot.sentinel_epoch),
        why=f"{member.name} already serves as master",
    )


def _begin(snapshot: Snapshot, choice: tuple[Member, Server], *, why: str) -> Record:
    member, server = choice
    epoch = snapshot.lineage.epoch + 1 if snapshot.lineage else 1
    return Record(
        lineage=Lineage.begin(
            member.pod, replid=server.replid, sentinel_epoch=snapshot.sentinel_epoch, epoch=epoch
        ),
        operation=Operation(kind="Promote", subject=member.name, since=snapshot.now, why=why),
        why=f"{member.name} becomes the first master: {why}",
    )


def _refuse(snapshot: Snapshot, holders: list[tuple[Member, Server]]) -> Move | Wait:
    """Unrelated histories: only the user can say which one counts."""
    elected = next((entry for entry in holders if entry[0].name == snapshot.wanted.elect), None)
    if elected is not None:
        return _begin(snapshot, elected, why="chosen by the annotation mooring.dev/elect-master")
    listed = ", ".join(f"{member.name} ({server.keys} keys)" for member, server in holders)
    return Wait(
        "UnrelatedData",
        f"the servers hold data of unrelated histories: {listed}; nothing was changed. Name the one to "
        "keep in the annotation mooring.dev/elect-master",
        after=10.0,
        stalled=True,
    )


def _promotion(snapshot: Snapshot, operation: Operation) -> Move | Wait | None:
    """Continue a recorded promotion; ``None`` when another rule has to decide."""
    member = snapshot.topology.member(operation.subject)
    lineage = snapshot.lineage
    if member is None or lineage is None or not lineage.master.same_process(member.pod):
        return Record(finish=True, why=f"{operation.subject} restarted before it was promoted")
    server = member.server
    if server is None:
        if snapshot.unreachable_for(member.name) > SENTINEL_PATIENCE:
            return Record(finish=True, why=f"{operation.subject} does not answer any more")
        return Wait("Promoting", f"{member.name} does not answer", after=0.2)
    if server.is_master:
        return None
    others = [entry for entry in snapshot.masters if descends(entry[1], lineage)]
    if others:
        return Record(finish=True, why=f"{others[0][0].name} became master meanwhile")
    return Promote(target=data_target(member), why=operation.why)


# --- no server is master ------------------------------------------------------------------------------------


def _succession(snapshot: Snapshot, lineage: Lineage) -> Move | Wait:
    incumbent = snapshot.incumbent
    assert incumbent is not None
    if not snapshot.process_gone(incumbent):
        return _silent_master(snapshot, lineage, incumbent)
    heirs = snapshot.heirs()
    if heirs and (hold := _await_return(snapshot, incumbent)) is not None:
        return hold
    if heirs:
        return _fail_over(snapshot, lineage, incumbent=incumbent, heirs=heirs)
    return _restart(snapshot, lineage, incumbent)


def _silent_master(snapshot: Snapshot, lineage: Lineage, incumbent: Standing) -> Move | Wait:
    """The master's process may be alive: hung, cut off, or a replica of a server that is gone."""
    member = snapshot.topology.member(incumbent.pod)
    heirs = snapshot.heirs()
    patience = snapshot.wanted.down_after + 3 * snapshot.wanted.failover_timeout
    if snapshot.failing_over:
        return Wait("SentinelFailover", "the sentinels are changing the master", after=0.2)
    if member is not None and member.server is not None:
        if member.server.loading:
            return Wait("Loading", f"{member.name} is loading its data", after=0.5)
        return _leaderless(snapshot, lineage)
    waited = snapshot.unreachable_for(incumbent.pod)
    able = snapshot.useful_sentinels(incumbent.ip, heirs)
    if len(able) >= snapshot.quorum and waited < patience:
        return Wait(
            "MasterUnreachable",
            f"{incumbent.pod} does not answer; the sentinels decide (waited {waited:.0f} of "
            f"{patience:.0f} s)",
            after=0.3,
        )
    if not heirs:
        return Wait(
            "MasterUnreachable",
            f"{incumbent.pod} does not answer and no other server has all data; waiting for it",
            after=1.0,
        )
    reachable = sum(1 for one in snapshot.watchers if one.sentinel) >= snapshot.sentinel_count // 2 + 1
    if waited < patience or not reachable or any(server.link_up for _, server in heirs):
        return Wait(
            "MasterUnreachable",
            f"{incumbent.pod} does not answer us (waited {waited:.0f} of {patience:.0f} s)",
            after=1.0,
        )
    return _succeed(
        snapshot, lineage, incumbent=incumbent, heir=heirs[0], why="the sentinels could not do it in time"
    )


def _leaderless(snapshot: Snapshot, lineage: Lineage) -> Move | Wait:
    """Every server is a replica: promote the one with the newest history, then the highest offset."""
    standing = {
        member.name: (member, server)
        for member, server in snapshot.answering
        if not server.at_gate and not server.loading and descends(server, lineage)
    }
    grown = [entry for entry in standing.values() if entry[1].replid2 == lineage.replid]
    pool = grown or list(standing.values())
    if any(server.keys for _, server in pool):
        pool = [entry for entry in pool if entry[1].keys]
    if not pool:
        return Wait("NoMaster", "no server of the recorded history answers", after=1.0)
    silent = [one for one in snapshot.topology.members if one.server is None and one.pod.running]
    if silent and all(snapshot.unreachable_for(one.name) < STALE_AFTER for one in silent):
        return Wait("NoMaster", f"{silent[0].name} is asked again first", after=0.3)
    best = max(pool, key=lambda entry: (entry[1].offset, -entry[0].pod.ordinal))
    return _succeed(
        snapshot, lineage, incumbent=lineage.master, heir=best, why="no server leads; it has the newest data"
    )


def _await_return(snapshot: Snapshot, incumbent: Standing) -> Move | Wait | None:
    """Wait a second for the dead master's own log where no replica is needed for writes."""
    member = snapshot.topology.member(incumbent.pod)
    if not snapshot.wanted.persistence or snapshot.wanted.min_replicas > 0 or member is None:
        return None
    if not incumbent.same_volume(member.pod) or member.pod.terminating:
        return None
    lineage = snapshot.lineage
    assert lineage is not None
    if member.server is not None and not member.server.loading and member.server.keys:
        return _succeed(
            snapshot,
            lineage,
            incumbent=incumbent,
            heir=(member, member.server),
            why="it came back in time with its own log, which may hold writes no replica has",
        )
    if member.pod.died_at is not None and snapshot.seconds_since(member.pod.died_at) < RETURN_WAIT:
        return Wait("AwaitingMaster", f"{member.name} restarts with its log", after=0.1)
    return None


def _fail_over(
    snapshot: Snapshot, lineage: Lineage, *, incumbent: Standing, heirs: list[tuple[Member, Server]]
) -> Move | Wait:
    operation = snapshot.recorded.operation
    if operation is None or operation.kind != "FailOver" or operation.subject != incumbent.pod:
        return Record(
            operation=Operation(
                kind="FailOver", subject=incumbent.pod, since=snapshot.now, why=_death(snapshot, incumbent)
            ),
            why=f"{incumbent.pod} is dead: {_death(snapshot, incumbent)}",
        )
    tried = snapshot.seconds_since(operation.since)
    sentinels = snapshot.useful_sentinels(incumbent.ip, heirs)
    eligible = [entry for entry in heirs if entry[1].priority > 0] or heirs
    if snapshot.failing_over and tried < snapshot.wanted.failover_timeout:
        return Wait("SentinelFailover", "the sentinels are changing the master", after=0.1)
    if sentinels and tried < SENTINEL_PATIENCE:
        best = eligible[0]
        return FailOver(
            best=data_target(best[0]),
            heirs=tuple(data_target(one) for one, _ in eligible),
            sentinels=sentinels,
            equalise=any(server.offset != best[1].offset for _, server in eligible),
            why=operation.why,
        )
    return _succeed(snapshot, lineage, incumbent=incumbent, heir=heirs[0], why="no sentinel can do it")


def _death(snapshot: Snapshot, standing: Standing) -> str:
    member = snapshot.topology.member(standing.pod)
    if member is None:
        return "its pod is gone"
    if member.pod.uid != standing.uid:
        return "its pod was replaced"
    return "its container ended" if not member.pod.running else "its server restarted"


def _restart(snapshot: Snapshot, lineage: Lineage, incumbent: Standing) -> Move | Wait:
    """Every recorded server restarted: the record decides, its master first."""
    order = [incumbent, *(one for one in lineage.members if one.pod != incumbent.pod)]
    standing = [one for one in order if _volume_stands(snapshot, one)]
    if snapshot.failing_over:
        return Wait("SentinelFailover", "the sentinels are changing the master", after=0.2)
    answered = [
        (one, member) for one in standing if (member := snapshot.topology.member(one.pod)) and member.server
    ]
    loading = [member for _, member in answered if member.server and member.server.loading]
    ready = [(member, member.server) for _, member in answered if member.server and not member.server.loading]
    silent = [one for one in standing if one.pod not in {member.name for _, member in answered}]
    first = ready[0] if ready and ready[0][0].name == incumbent.pod else None
    if first is not None and first[1].keys:
        return _succeed(snapshot, lineage, incumbent=incumbent, heir=first, why="it is the recorded master")
    if loading:
        return Wait("Loading", f"{loading[0].name} is loading its data", after=0.3)
    awaited = [one for one in silent if snapshot.unreachable_for(one.pod) < RETURN_DEADLINE]
    if awaited:
        return Wait(
            "AwaitingRecorded",
            f"{awaited[0].pod} held the data and does not answer yet; another recorded server is chosen "
            f"after {RETURN_DEADLINE:.0f} s",
            after=0.3,
        )
    holders = [entry for entry in ready if entry[1].keys]
    if holders:
        best = max(holders, key=lambda entry: entry[1].keys)
        return _succeed(
            snapshot, lineage, incumbent=incumbent, heir=best, why="the recorded master has no data to offer"
        )
    if silent:
        return Wait(
            "DataUnreachable",
            f"{silent[0].pod} may hold the only copy and does not answer; bring it back, or delete its "
            "claim to give the data up",
            after=5.0,
            stalled=True,
        )
    return _after_totalloss_of(snapshot, lineage, incumbent=incumbent, ready=ready)


def _volume_stands(snapshot: Snapshot, standing: Standing) -> bool:
    """What was recorded may still be on that pod's volume (a pod that is missing keeps its claim)."""
    member = snapshot.topology.member(standing.pod)
    if member is None:
        return snapshot.observed.volumes.get(standing.pod) == standing.volume
    return standing.same_volume(member.pod)


def _after_totalloss_of(
    snapshot: Snapshot, lineage: Lineage, *, incumbent: Standing, ready: list[tuple[Member, Server]]
) -> Move | Wait:
    """No recorded server has data left; others may."""
    if any(server.loading for _, server in snapshot.answering):
        return Wait("Loading", "a server is loading its data", after=0.3)
    holders = [entry for entry in snapshot.answering if entry[1].keys]
    related = [entry for entry in holders if descends(entry[1], lineage)]
    if related:
        best = max(related, key=lambda entry: entry[1].offset)
        return _succeed(
            snapshot, lineage, incumbent=incumbent, heir=best, why="it alone has data of the recorded history"
        )
    if len(holders) > 1:
        return _refuse(snapshot, holders)
    if holders:
        return _succeed(snapshot, lineage, incumbent=incumbent, heir=holders[0], why="it alone holds data")
    gone = not ready or not snapshot.wanted.persistence
    pool = ready or [entry for entry in snapshot.answering if entry[0].pod.ordinal < snapshot.wanted.size]
    if not pool:
        return Wait("PodsStarting", "no redis server answers yet", after=0.5)
    why = (
        "every server restarted empty"
        if snapshot.wanted.persistence
        else "without persistence a restart is empty"
    )
    return _succeed(snapshot, lineage, incumbent=incumbent, heir=pool[0], why=why, everything=gone)


def _succeed(
    snapshot: Snapshot,
    lineage: Lineage,
    *,
    incumbent: Standing,
    heir: tuple[Member, Server],
    why: str,
    everything: bool = False,
) -> Record:
    """Record a master of our own choice; its promotion is the next step. ``everything``: the data is gone."""
    member, server = heir
    return Record(
        lineage=lineage.succeed(member.pod, replid=server.replid, sentinel_epoch=snapshot.sentinel_epoch),
        operation=Operation(kind="Promote", subject=member.name, since=snapshot.now, why=why),
        last_failover=LastFailover(
            at=snapshot.now,
            old=incumbent.pod,
            new=member.name,
            cause="MasterDied" if snapshot.process_gone(incumbent) else "MasterUnreachable",
            choice=why,
            gap_seconds=gap_of(snapshot, incumbent.pod),
            loss_bound=ALL_DATA if everything else loss_of(snapshot, incumbent, heir),
        ),
        why=f"{member.name} becomes master: {why}",
    )


def gap_of(snapshot: Snapshot, old: str) -> float:
    member = snapshot.topology.member(old)
    operation = snapshot.recorded.operation
    start = member.pod.died_at if member else None
    if start is None:
        start = operation.since if operation else snapshot.recorded.unreachable_since.get(old)
    return round((snapshot.now - start).total_seconds(), 3) if start else 0.0


def loss_of(snapshot: Snapshot, incumbent: Standing, heir: tuple[Member, Server]) -> str:
    if heir[0].name == incumbent.pod:
        return "only writes not yet flushed to its append-only file"
    return f"writes the old master acknowledged and {heir[0].name} had not received; none confirmed by WAIT"
