"""Clusters in memory: nodes that all agree, and ways to make them differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from mooring.operators.redis.cluster.placement import Place
from mooring.operators.redis.cluster.slots import Slots, shares
from mooring.operators.redis.cluster.snapshot import Recorded, Snapshot, Wanted
from mooring.operators.redis.cluster.topology import Disk, Gate, Node, Peer, Seen, Server
from mooring.operators.redis.dial import Address
from mooring.operators.workload.pods import Pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def id_of(ordinal: int) -> str:
    return f"{ordinal:040x}"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One node as it is; every other one sees it so."""

    ordinal: int
    slots: Slots = 0
    master: int | None = None
    keys: int = 0
    silent: bool = False
    died: bool = False
    gate: Disk | None = None
    gone: bool = False
    epoch: int | None = None
    failed: bool = False
    heard: float = 100.0
    server: tuple[tuple[str, Any], ...] = ()
    pod: tuple[tuple[str, Any], ...] = ()

    @property
    def address(self) -> Address:
        return Address(f"10.0.0.{self.ordinal + 1}", 6379)

    def peer(self) -> Peer:
        flags = {"slave" if self.master is not None else "master"} | ({"fail"} if self.failed else set())
        return Peer(
            id=id_of(self.ordinal),
            address=self.address,
            flags=frozenset(flags),
            master="" if self.master is None else id_of(self.master),
            epoch=self.ordinal + 1 if self.epoch is None else self.epoch,
            slots=self.slots,
            connected=not self.failed,
            heard=self.heard,
        )

    @property
    def answers(self) -> bool:
        return not (self.silent or self.died or self.gate or self.gone)


def whole(masters: int = 3, *, replicas: int = 1) -> list[Member]:
    """Masters with equal parts, and their replicas after them."""
    heads = [Member(ordinal=at, slots=part, keys=10) for at, part in enumerate(shares(masters))]
    tails = [Member(ordinal=masters + at, master=at % masters, keys=10) for at in range(masters * replicas)]
    return [*heads, *tails]


def change(members: Sequence[Member], ordinal: int, **how: Any) -> list[Member]:
    """The members with one of them otherwise."""
    return [replace(one, **how) if one.ordinal == ordinal else one for one in members]


def snapshot(
    members: Sequence[Member],
    *,
    nodes: int | None = None,
    pods: int | None = None,
    formed: bool = True,
    plan: Any = None,
    alone: Sequence[int] = (),
    places: Sequence[Place] = (),
    ids: dict[str, str] | None = None,
    missing: dict[str, datetime] | None = None,
    **wanted: Any,
) -> Snapshot:
    """What the operator sees of them; ``alone`` are nodes that nobody knows and that know nobody."""
    known = [one for one in members if one.ordinal not in alone]
    made = []
    for one in members:
        if one.gone:
            continue
        pod = Pod(
            name=f"demo-{one.ordinal}",
            ordinal=one.ordinal,
            uid=f"uid-{one.ordinal}",
            ip=one.address.ip,
            running=not one.died,
            died_at=NOW.replace(year=2025) if one.died else None,
            ready=one.answers,
        )
        pod = replace(pod, **dict(one.pod))
        if one.gate:
            gate = Gate(id="" if one.ordinal in alone else id_of(one.ordinal), disk=one.gate)
            made.append(Node(pod=pod, gate=gate))
        elif not one.answers:
            made.append(Node(pod=pod, error="no answer"))
        else:
            view = [peer.peer() for peer in ([one] if one.ordinal in alone else known)]
            mine = [
                replace(peer, flags=peer.flags | {"myself"}) if peer.id == id_of(one.ordinal) else peer
                for peer in view
            ]
            server = Server(
                view=tuple(mine),
                role="slave" if one.master is not None else "master",
                keys=one.keys,
                master=members[one.master].address if one.master is not None else None,
            )
            made.append(Node(pod=pod, server=replace(server, **dict(one.server))))
    total = len(members) if nodes is None else nodes
    there = len([one for one in members if not one.gone]) if pods is None else pods
    return Snapshot(
        wanted=Wanted(nodes=total, pods=there, **wanted),
        seen=Seen(nodes=tuple(made)),
        recorded=Recorded(
            formed=formed,
            plan=plan,
            ids={f"demo-{one.ordinal}": id_of(one.ordinal) for one in members} if ids is None else ids,
            missing=missing or {},
        ),
        places={one.name: one for one in places},
        now=NOW,
    )
