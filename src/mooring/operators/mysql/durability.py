"""Who acknowledges writes, how many have to, and what is recorded before that is weakened. Pure rules.

A write counts as safe once `acks` members of the ack set have received it. A failover needs so many members that every
such write is on one of them: R + W > |A|. MariaDB waits for one acknowledgement, whatever the size, so its ack set is two
replicas; MySQL waits for half of the servers, and every replica may acknowledge.

The record is never weaker than the servers where it counts: members are recorded before they acknowledge, and dropped from
the record after they stopped; fewer acknowledgements are recorded before the primary waits for fewer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from mooring.operators.mysql import records
from mooring.operators.mysql.moves import Follow, Record, SetDurability, Verdict, target_of
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Flavor, Member, Server

__all__ = ["WEAKENED_AFTER", "acks_of", "all_caught_up", "blocked", "chosen", "initial", "keep", "safe"]

_LIMIT: Final[Mapping[Flavor, int]] = {"mariadb": 2, "mysql": 8}
"""Largest ack set."""
_MOST_ACKS: Final[Mapping[Flavor, int]] = {"mariadb": 1, "mysql": 4}
"""MariaDB waits for one acknowledgement and has no setting for more."""
WEAKENED_AFTER: Final = 10.0
"""Seconds without enough replicas after which ``mode: Available`` goes on without them."""
LONG: Final = 3600.0
"""Seconds: a time-out below this is not the one that was set."""


def acks_of(flavor: Flavor, size: int) -> int:
    """Acknowledgements that a write waits for in a cluster of so many servers."""
    return min(size // 2, _MOST_ACKS[flavor])


def initial(snapshot: Snapshot) -> tuple[str, int]:
    """Durability and acknowledgements of a new cluster."""
    acks = acks_of(snapshot.wanted.flavor, snapshot.wanted.size)
    return ("Strict", acks) if acks and snapshot.wanted.mode != "Async" else ("Async", 0)


def safe(snapshot: Snapshot, members: Collection[str]) -> bool:
    """Every acknowledged write is on one of these members of the ack set: R + W > |A|."""
    ours = snapshot.ack_set & set(members)
    return bool(ours) and len(ours) + (snapshot.status.acks or 0) > len(snapshot.ack_set)


def blocked(snapshot: Snapshot) -> bool:
    """Writes wait: fewer replicas can acknowledge than are needed."""
    return snapshot.strict and len(_acking(snapshot)) < (snapshot.status.acks or 0)


def _acking(snapshot: Snapshot) -> list[str]:
    return [
        one.name
        for one, it in snapshot.replicas
        if one.name in snapshot.ack_set and it.semi_sync.replica and snapshot.healthy(one, it)
    ]


def chosen(snapshot: Snapshot, primary: str, usable: Iterable[Member]) -> frozenset[str]:
    """The ack set of a primary, out of replicas that can be used; members that are in it stay, then by ordinal."""
    if snapshot.wanted.mode == "Async" or snapshot.wanted.size == 1:
        return frozenset()
    fit = [one for one in usable if one.name != primary and not snapshot.leaves(one)]
    fit.sort(key=lambda one: (one.name not in snapshot.ack_set, one.pod.ordinal))
    return frozenset(one.name for one in fit[: _LIMIT[snapshot.wanted.flavor]])


def keep(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The first difference between what is wanted, recorded and in force."""
    return (
        _weaken(snapshot, member)
        or _strengthen(snapshot, member, server)
        or _enforce(snapshot, member, server)
        or _silence(snapshot, member)
        or _join(snapshot, member)
        or _drop(snapshot, member)
    )


def _weaken(snapshot: Snapshot, member: Member) -> Verdict | None:
    """Recorded first: from here on no failover relies on what is given up."""
    status, wanted = snapshot.status, snapshot.wanted
    acks = acks_of(wanted.flavor, wanted.size)
    if snapshot.strict and (wanted.mode == "Async" or not acks):
        why = "spec.durability.mode is Async" if acks else "there is one server"
        return Record(
            status=replace(status, durability="Async", acks=0),
            why=f"writes no longer wait for a replica: {why}",
        )
    waits = snapshot.strict and wanted.mode == "Available" and blocked(snapshot)
    if waits != (status.blocked_since is not None):
        why = "writes wait for replicas" if waits else "writes wait for replicas no more"
        return Record(status=replace(status, blocked_since=snapshot.now if waits else None), why=why)
    if waits and snapshot.seconds_since(status.blocked_since) > WEAKENED_AFTER:
        return Record(
            status=replace(status, durability="Async", acks=0, blocked_since=None),
            why=f"no replica could acknowledge writes for {WEAKENED_AFTER:.0f} s; {member.name} goes on alone",
        )
    if snapshot.strict and (status.acks or 0) > acks:
        return Record(status=replace(status, acks=acks), why=f"a write will wait for {acks} acknowledgements")
    return None


def _enforce(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """What is recorded is in force on the primary; a restart forgets it, and so may a hand."""
    live, acks = server.semi_sync, snapshot.status.acks or 0
    right = live.source == snapshot.strict and (
        not snapshot.strict or (live.acks >= acks and live.timeout >= LONG and live.after_sync)
    )
    if right and (not snapshot.strict or live.acks == acks):
        return None
    why = f"a write waits for {acks} acknowledgements" if snapshot.strict else "writes wait for no replica"
    return SetDurability(primary=target_of(member), semi_sync=snapshot.strict, acks=acks, why=why)


def _silence(snapshot: Snapshot, member: Member) -> Verdict | None:
    """A replica outside the ack set must not acknowledge: no failover counts on what it has."""
    strays = [
        one
        for one, it in snapshot.replicas
        if one.name not in snapshot.ack_set and it.semi_sync.replica and snapshot.healthy(one, it)
    ]
    if not strays:
        return None
    return SetDurability(
        primary=target_of(member),
        semi_sync=snapshot.strict,
        acks=snapshot.status.acks or 0,
        silent=tuple(map(target_of, strays)),
        why=f"{', '.join(one.name for one in strays)} may not acknowledge writes",
    )


def _join(snapshot: Snapshot, member: Member) -> Verdict | None:
    """A replica that follows and is wanted in the ack set: recorded, then made to acknowledge."""
    healthy = [(one, it) for one, it in snapshot.replicas if snapshot.healthy(one, it)]
    wanted = chosen(snapshot, member.name, [one for one, _ in healthy])
    full = _LIMIT[snapshot.wanted.flavor]
    staying = snapshot.ack_set - _gone(snapshot)
    new = [one for one, _ in healthy if one.name in wanted - snapshot.ack_set]
    room = [one.name for one in new if len(staying) < full or all_caught_up(snapshot, staying & wanted)]
    silent = [
        one
        for one, it in healthy
        if one.name in {*snapshot.ack_set, *room} & wanted and not it.semi_sync.replica
    ]
    if not silent:
        return None
    names = [one.name for one in silent]
    status = replace(snapshot.status, ack_set=sorted({*snapshot.ack_set, *names}))
    status = records.unsynced(status, names)
    return Follow(
        targets=tuple(target_of(one) for one in silent),
        source=target_of(member),
        source_host=snapshot.host(member.name),
        acking=frozenset(names),
        first=status if status != snapshot.status else None,
        why=f"{', '.join(names)} acknowledge writes from now on",
    )


def _gone(snapshot: Snapshot) -> frozenset[str]:
    """Members of the ack set that cannot acknowledge any more: their process ended, or their pod is no more."""
    found = set()
    for name in snapshot.ack_set:
        one = snapshot.topology.member(name)
        if one is None or name == snapshot.primary or not one.pod.running or snapshot.at_gate(one):
            found.add(name)
    return frozenset(found)


def all_caught_up(snapshot: Snapshot, names: Collection[str]) -> bool:
    """Each of them has received everything that the primary had written when this pass began."""
    return all(
        one is not None and snapshot.counts(one) and snapshot.caught_up(one)
        for one in map(snapshot.topology.member, names)
    )


def _drop(snapshot: Snapshot, member: Member) -> Verdict | None:
    """Members that ended, leave or have a successor stop acknowledging first; then the record says so.

    Those that stay must have caught up since, or too few would hold what the leaving one acknowledged.
    """
    healthy = [one for one, it in snapshot.replicas if snapshot.healthy(one, it)]
    wanted, gone = chosen(snapshot, member.name, healthy), _gone(snapshot)
    replaced = snapshot.wanted.mode == "Async" or len(wanted) >= _LIMIT[snapshot.wanted.flavor]
    leaving = {
        name
        for name in snapshot.ack_set - wanted
        if name in gone
        or replaced
        or ((one := snapshot.topology.member(name)) is not None and snapshot.leaves(one))
    }
    if not leaving or (snapshot.strict and not all_caught_up(snapshot, snapshot.ack_set & wanted)):
        return None
    if snapshot.strict and len(snapshot.ack_set & wanted) < (snapshot.status.acks or 0):
        return None
    still = [one for one, it in snapshot.replicas if one.name in leaving and it.semi_sync.replica]
    if still:
        return SetDurability(
            primary=target_of(member),
            semi_sync=snapshot.strict,
            acks=snapshot.status.acks or 0,
            silent=tuple(target_of(one) for one in still),
            why=f"{', '.join(one.name for one in still)} acknowledge no more writes",
        )
    quiet = {one.name for one, it in snapshot.replicas if one.name in leaving and not it.semi_sync.replica}
    dropped = (leaving & gone) | quiet
    if not dropped:
        return None
    return Record(
        status=replace(snapshot.status, ack_set=sorted(snapshot.ack_set - dropped)),
        why=f"{', '.join(sorted(dropped))} acknowledge no more writes",
    )


def _strengthen(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """More acknowledgements are in force before they are recorded; replicas then prove themselves again."""
    wanted, status = snapshot.wanted, snapshot.status
    acks = acks_of(wanted.flavor, wanted.size)
    if wanted.mode == "Async" or acks <= (status.acks or 0):
        return None
    ready = [name for name in _acking(snapshot) if all_caught_up(snapshot, [name])]
    if len(ready) < acks:
        return None
    why = f"{len(ready)} replicas can acknowledge: a write waits for {acks} of them"
    if not server.semi_sync.source or server.semi_sync.acks < acks:
        return SetDurability(primary=target_of(member), semi_sync=True, acks=acks, why=why)
    strict = replace(status, durability="Strict", acks=acks)
    return Record(status=strict if snapshot.strict else records.unsynced(strict), why=why)
