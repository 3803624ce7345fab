"""Sentinels: the right master, the right settings, no ghosts, and a quorum at every moment.

SENTINEL RESET is never used: it empties a sentinel's replicas and peers for up to ten seconds, and a master
that dies in that window is never replaced. One sentinel at a time is reset (REMOVE, MONITOR) while the
others could fail over; only when a majority watches a wrong address are all of them removed first, since one that is
left would spread its old master by its higher epoch.
"""

from __future__ import annotations

from mooring.operators.redis.address import Address
from mooring.operators.redis.sentinel import transport
from mooring.operators.redis.sentinel.moves import (
    DeletePod,
    Hasten,
    Monitor,
    TuneSentinel,
    Verdict,
    Wait,
    data_target,
    sentinel_target,
)
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.topology import Member, Peer, Sentinel, Server, Watcher

__all__ = ["learning", "repair", "spare"]

GOSSIP = 6.0
"""Seconds the sentinels get to tell each other of a new master before they are pointed by hand."""
INFO_PERIOD = 800
"""Milliseconds between a sentinel's polls of the servers, where it can be set (default 10,000): that long
a new replica, or who may not be elected, stays unknown to it. Its own candidates may be three periods old. From
the moment a majority sees the master hang it polls every 1,000 whatever is set, and names the new master to clients
only once that one said so: with a little less before, its next question falls soon after the promotion."""
PERIODS = {
    "info-period": INFO_PERIOD,
    # Four of these a server may lead, though it is remembered as a replica, before it is made to follow (sentinel.c): so
    # long another cluster's master at an address that was ours is safe. As it is of itself, never less.
    "publish-period": 2000,
    # How late it notices that a server hangs, beside down-after (1,000). Not less: a replica that it has not heard of
    # for five of these is no candidate then, and it asks them every 1,000 only.
    "ping-period": 500,
    "ask-period": 100,  # how late it hears that its peers notice it too (1,000)
}
TURNED_WITHIN = 30.0
"""Seconds after a fail-over in which a foreign follower may not have been turned to the new master yet."""
HAUNTED_AGAIN = 0.2
"""Seconds between two looks while sentinels remember what is not ours: after eight they make it follow our master."""
LEARNING_AGAIN = 0.3
"""Seconds between two looks while a sentinel gets to know the others, which takes two at most."""
LEARN_WITHIN = 30.0
"""Seconds in which a sentinel must discover all replicas and peers (it polls every 10). After that it is reset."""


def repair(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The next repair of the sentinels, if one is needed."""
    right = member.address
    seen = [(one, one.sentinel) for one in snapshot.watchers if one.sentinel is not None]
    if snapshot.failing_over:
        return Wait("SentinelFailover", "the sentinels are changing the master", after=0.3)
    if moved := transport.move_sentinels(snapshot):
        return moved
    if recreate := _unlock(snapshot, seen=seen, right=right):
        return recreate
    blank = [one for one, it in seen if it.master is None]
    wrong = [(one, it) for one, it in seen if it.master is not None and it.master != right]
    if wrong and (verdict := _point(snapshot, wrong=wrong, seen=seen, right=right)) is not None:
        return verdict
    if blank:
        return _monitor(snapshot, blank, right, why="they watch no master yet")
    if other := [
        one for one, it in seen if any(it.periods.get(name, ms) != ms for name, ms in PERIODS.items())
    ]:
        names = ", ".join(one.name for one in other)
        return Hasten(
            sentinels=tuple(sentinel_target(one) for one in other),
            periods=PERIODS,
            why=f"{names} would notice changes up to ten seconds late",
        )
    for one, it in seen:
        if changed := _drift(snapshot, it):
            return TuneSentinel(
                sentinel=sentinel_target(one),
                settings=changed,
                why=f"{', '.join(changed)} differ on {one.name}",
            )
    return _complete(snapshot, member, server, seen=seen)


def _unlock(snapshot: Snapshot, *, seen: list[tuple[Watcher, Sentinel]], right: Address) -> DeletePod | None:
    """Recreate a sentinel that does not take the cluster's key (the Secret was lost), if it can be spared."""
    for one, it in seen:
        able = [other.name for other, its in seen if other is not one and _able(its, right)]
        if it.locked and (len(able) >= snapshot.sentinel_count // 2 + 1 or not _able(it, right)):
            return DeletePod(
                component="sentinel",
                pod=one.name,
                uid=one.pod.uid,
                version=one.pod.version,
                why=f"{one.name} does not accept this cluster's key: its Secret was recreated",
            )
    return None


def _point(
    snapshot: Snapshot,
    *,
    wrong: list[tuple[Watcher, Sentinel]],
    seen: list[tuple[Watcher, Sentinel]],
    right: Address,
) -> Verdict | None:
    informed = [it.epoch for _, it in seen if it.master == right]
    recent = snapshot.recorded.last_failover
    gossiping = informed and max(informed) > max(it.epoch for _, it in wrong)
    if gossiping and recent is not None and snapshot.seconds_since(recent.at) < GOSSIP:
        return Wait(
            "SentinelsLearning", f"{len(wrong)} sentinels have not heard of the new master yet", after=0.5
        )
    named = ", ".join(sorted({str(it.master) for _, it in wrong}))
    return _monitor(
        snapshot,
        [one for one, _ in wrong],
        right,
        why=f"they watch {named}, which is not the master of this cluster",
    )


def _monitor(snapshot: Snapshot, watchers: list[Watcher], right: Address, *, why: str) -> Monitor:
    names = ", ".join(one.name for one in watchers)
    leader = snapshot.topology.at(right.ip)
    assert leader is not None
    return Monitor(
        sentinels=tuple(sentinel_target(one) for one in watchers),
        master=data_target(leader),
        quorum=snapshot.quorum,
        settings=snapshot.wanted.sentinel_settings,
        peers={one.sentinel.my_id: sentinel_target(one) for one in snapshot.watchers if one.sentinel},
        why=f"{names}: {why}",
    )


def _drift(snapshot: Snapshot, sentinel: Sentinel) -> dict[str, str]:
    wanted = {**snapshot.wanted.sentinel_settings, "quorum": str(snapshot.quorum)}
    return {
        name: value
        for name, value in wanted.items()
        if name in sentinel.settings and sentinel.settings[name] != value
    }


def _complete(
    snapshot: Snapshot, member: Member, server: Server, *, seen: list[tuple[Watcher, Sentinel]]
) -> Verdict | None:
    """Every sentinel knows every live replica and peer, and no others."""
    right = member.address
    replicas = _in_sync(snapshot, member)
    peers = {one.pod.ip for one, _ in seen}
    if verdict := _forget(snapshot, server, seen=seen, right=right, replicas=replicas, peers=peers):
        return verdict
    ignorant = _blind(seen, replicas=replicas, peers=peers)
    blind = [(one, it) for one, it in seen if one.name in ignorant]
    if blind:
        return _teach(snapshot, blind, seen=seen, right=right)
    return None


def _forget(
    snapshot: Snapshot,
    server: Server,
    *,
    seen: list[tuple[Watcher, Sentinel]],
    right: Address,
    replicas: set[str],
    peers: set[str],
) -> Verdict | None:
    """One sentinel forgets what is not ours, if the others can do meanwhile what it can.

    They need to know the replicas it knows, no more: waiting for a replica that has just come up to be known by
    all would last as long as a foreign master is safe.
    """
    recent = snapshot.recorded.last_failover
    turned = recent is None or snapshot.seconds_since(recent.at) > TURNED_WITHIN
    listed = {one.ip for one in server.replicas}
    ours = {one.ip for one in snapshot.topology.members if one.ip}
    all_peers = {one.pod.ip for one in snapshot.topology.watchers if one.pod.ip}
    haunted = [
        (one, it) for one, it in seen if _ghosts(it, ours=ours, listed=listed, turned=turned, peers=all_peers)
    ]
    for pick, its in haunted:
        known = replicas & _live(its.replicas)
        able = [
            one.name
            for one, it in seen
            if one is not pick
            and _able(it, right)
            and _knows(it, own=one.pod.ip, replicas=known, peers=peers)
        ]
        if len(able) >= snapshot.sentinel_count // 2 + 1:
            named = ", ".join(_ghosts(its, ours=ours, listed=listed, turned=turned, peers=all_peers))
            return _monitor(
                snapshot, [pick], right, why=f"it knows {named}, which no pod of this cluster has"
            )
    if not haunted or len(seen) < snapshot.sentinel_count:
        return None
    # The others of the last one tried: none could be spared.
    unsure = next((one.name for one, _ in seen if one.name not in {pick.name, *able}), pick.name)
    return Wait(
        "SentinelsLearning",
        f"{pick.name} knows addresses that no pod here has; {unsure} must be able to fail over first",
        after=HAUNTED_AGAIN,
    )


def learning(snapshot: Snapshot) -> frozenset[str]:
    """Sentinels that watch the right master but do not know all there is to know yet."""
    if len(snapshot.masters) != 1:
        return frozenset()
    member, _ = snapshot.masters[0]
    right = member.address
    seen = [(one, one.sentinel) for one in snapshot.watchers if one.sentinel and one.sentinel.master == right]
    peers = {one.pod.ip for one in snapshot.watchers}
    return _blind(seen, replicas=_in_sync(snapshot, member), peers=peers)


def _in_sync(snapshot: Snapshot, member: Member) -> set[str]:
    return {
        one.ip for one, it in snapshot.answering if one.name != member.name and it.in_sync_with(member.ip)
    }


def _blind(seen: list[tuple[Watcher, Sentinel]], *, replicas: set[str], peers: set[str]) -> frozenset[str]:
    return frozenset(
        one.name
        for one, it in seen
        if it.master_down or not _knows(it, own=one.pod.ip, replicas=replicas, peers=peers)
    )


def _teach(
    snapshot: Snapshot,
    blind: list[tuple[Watcher, Sentinel]],
    *,
    seen: list[tuple[Watcher, Sentinel]],
    right: Address,
) -> Verdict:
    """Reset a sentinel that does not discover the others, if the rest could fail over meanwhile."""
    names = {one.name for one, _ in blind}
    able = [one.name for one, it in seen if one.name not in names and _able(it, right)]
    late = [(one, it) for one, it in blind if snapshot.learning_for(one.name) > LEARN_WITHIN]
    for one, it in late:
        if len(able) >= snapshot.sentinel_count // 2 + 1 or not _able(it, right):
            return _monitor(
                snapshot, [one], right, why=f"it did not learn of the others within {LEARN_WITHIN:.0f} s"
            )
    one, it = (late or blind)[0]
    what = "takes the master for dead" if it.master_down else "does not know every replica and sentinel yet"
    remedy = "; check that its pod reaches the others, or delete it" if late else ""
    return Wait(
        "SentinelsLearning",
        f"{one.name} {what}{remedy}",
        after=1.0 if late else LEARNING_AGAIN,
        stalled=bool(late),
    )


def _live(known: tuple[Peer, ...]) -> set[str]:
    return {peer.ip for peer in known if peer.alive}


def _knows(sentinel: Sentinel, *, own: str, replicas: set[str], peers: set[str]) -> bool:
    return replicas <= _live(sentinel.replicas) and peers - {own} <= _live(sentinel.sentinels)


def _ghosts(
    sentinel: Sentinel, *, ours: set[str], listed: set[str], turned: bool, peers: set[str]
) -> list[str]:
    """Entries at addresses no pod of ours has; a foreign follower is left alone.

    That is one which the master itself lists: the sentinel would hear of it again at once, whether it reaches it or
    not. A pod that is gone would seem alive for as long as down-after; unless ``turned`` the master may not know all
    of its own yet.

    One that leads is another cluster's server at an address that was ours, or was given a life of its own: a
    sentinel that remembers it makes it follow our master within ten seconds. Nor is a live foreign sentinel left
    alone: it calls its own master by the same name, and one greeting of a higher epoch would hand our servers over.
    """
    foreign = [peer for peer in sentinel.replicas if peer.ip not in ours]
    lost = [one.ip for one in foreign if one.leads or (one.ip not in listed and (turned or not one.alive))]
    return lost + [peer.ip for peer in sentinel.sentinels if peer.ip not in peers]


def _able(sentinel: Sentinel, right: Address) -> bool:
    return (
        sentinel.master == right
        and sentinel.quorum_ok
        and not sentinel.master_down
        and any(peer.alive and peer.priority > 0 for peer in sentinel.replicas)
    )


def spare(snapshot: Snapshot, member: Member, watcher: Watcher) -> Wait | None:
    """What keeps a sentinel from being restarted now: the others must be able to fail over meanwhile."""
    able = [
        one.name
        for one in snapshot.watchers
        if one is not watcher and one.sentinel is not None and _able(one.sentinel, member.address)
    ]
    if len(able) >= snapshot.sentinel_count // 2 + 1:
        return None
    return Wait(
        "SentinelsLearning",
        f"{watcher.name} must restart; the others must be able to fail over first",
        after=0.3,
    )
