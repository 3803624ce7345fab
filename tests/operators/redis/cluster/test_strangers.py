"""Nodes that belong to no pod join a cluster of real servers over the bus, which asks for no password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from redis.crc import key_slot
from tests.operators.redis.cluster.builders import change, id_of, snapshot, whole
from tests.operators.redis.cluster.servers import KEYS, Servers, servers

from mooring.operators.redis.cluster.events import of_move
from mooring.operators.redis.cluster.moves import Expel, Verdict
from mooring.operators.redis.cluster.names import Names
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.slots import ALL, Slots, show, span
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.status import STRANGER, described, phase_of
from mooring.operators.redis.cluster.topology import Peer, Seen
from mooring.operators.redis.cluster.types import RedisClusterStatus
from mooring.operators.redis.dial import Address

WITHIN = 20.0


@pytest.fixture
async def stranger(tmp_path: Path) -> AsyncIterator[Servers]:
    """A server of another network."""
    async with servers(tmp_path / "stranger", nodes=1) as made:
        yield made


async def until(cluster: Servers, holds: Callable[[tuple[Peer, ...]], bool], *, at: list[int]) -> None:
    """Wait until it holds of what these nodes see."""
    async with asyncio.timeout(WITHIN):
        while not all([holds(await cluster.view(one)) for one in at]):
            await asyncio.sleep(0.02)


async def joined(stranger: Servers, cluster: Servers, *, follows: str = "") -> str:
    """The stranger is known to every node; its id."""
    await stranger.call(0, "CLUSTER", "MEET", cluster.address(0).ip, 6379)
    id = (await stranger.me(0)).id
    await until(cluster, lambda view: id in {one.id for one in view if one.settled}, at=list(range(6)))
    await until(stranger, lambda view: len([one for one in view if one.settled]) == 7, at=[0])
    if follows:
        await stranger.call(0, "CLUSTER", "REPLICATE", follows)
        await until(
            cluster, lambda view: follows in {one.master for one in view if one.id == id}, at=list(range(6))
        )
    return id


async def took(stranger: Servers, cluster: Servers, slots: Slots) -> None:
    """Every node gives these slots to the stranger, which claims all of them at once."""
    me = await stranger.me(0)
    claims = [("CLUSTER", "SETSLOT", slot, "NODE", me.id) for slot in range(16384) if slots >> slot & 1]
    async with stranger.dial.link(stranger.address(0)) as link:
        answers = await link.pipeline([("MULTI",), ("CLUSTER", "BUMPEPOCH"), *claims, ("EXEC",)])
        assert answers[-1][1:] == ["OK"] * len(claims)
    await until(
        cluster, lambda view: any(one.id == me.id and one.slots == slots for one in view), at=list(range(6))
    )


async def forgotten(cluster: Servers, id: str) -> bool:
    return all([id not in {one.id for one in await cluster.view(at)} for at in range(6)])


async def served(cluster: Servers) -> bool:
    """Every node says so, and all see the same owners."""
    views = [{one.id: one.slots for one in await cluster.view(at) if one.slots} for at in range(6)]
    states = ["cluster_state:ok" in await cluster.call(at, "CLUSTER", "INFO") for at in range(6)]
    return all(states) and views == views[:1] * 6 and sum(views[0].values()) == ALL


@pytest.mark.embedded
@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
async def test_slots_that_a_stranger_took_go_back_to_their_owner(
    cluster: Servers, stranger: Servers, ended: bool
) -> None:
    await cluster.operate(6)
    before = await cluster.owned()
    id = await joined(stranger, cluster)
    slots = span(100, 101) | span(9000, 9000)
    await took(stranger, cluster, slots)
    if ended:
        await stranger.kill(0)
    said: list[Verdict] = []

    async def note(verdict: Verdict) -> None:
        said.append(verdict)

    await cluster.operate(6, watch=note)

    [first, *_] = [one for one in said if isinstance(one, Expel)]
    assert str(stranger.address(0)) in first.why
    assert await cluster.owned() == before
    assert await served(cluster)
    assert await forgotten(cluster, id)
    kept = [key for key in KEYS if not slots >> key_slot(key.encode()) & 1]
    assert await cluster.kept(KEYS) >= len(kept)


@pytest.mark.full
@pytest.mark.embedded
async def test_an_operator_that_dies_between_forgetting_and_taking_back_is_continued(
    cluster: Servers, stranger: Servers
) -> None:
    await cluster.operate(6)
    before = await cluster.owned()
    id = await joined(stranger, cluster)
    await took(stranger, cluster, span(0, 99))
    for at in range(6):
        await cluster.call(at, "CLUSTER", "FORGET", id)
    assert sum((await cluster.owned()).values()) != ALL

    await cluster.operate(6)
    assert await cluster.owned() == before
    assert await served(cluster)


@pytest.mark.embedded
@pytest.mark.nightly
async def test_a_node_that_was_away_does_not_bring_the_stranger_back(
    cluster: Servers, stranger: Servers
) -> None:
    await cluster.operate(6)
    id = await joined(stranger, cluster)
    await took(stranger, cluster, span(0, 99))
    [replica, *_] = [at for at in range(6) if (await cluster.me(at)).master]
    await cluster.kill(replica)
    assert not await cluster.operate(6, seconds=3.0)
    assert sum((await cluster.owned()).values()) == ALL

    await cluster.start(replica)
    await cluster.operate(6)
    async with asyncio.timeout(WITHIN):
        while not (await served(cluster) and await forgotten(cluster, id)):
            await cluster.operate(6)


@pytest.mark.embedded
async def test_a_stranger_that_took_over_a_whole_shard_is_replaced_by_a_node_of_ours(
    cluster: Servers, stranger: Servers
) -> None:
    await cluster.operate(6)
    before = await cluster.owned()
    master = next(iter(before))
    id = await joined(stranger, cluster, follows=(await cluster.me(master)).id)
    async with asyncio.timeout(WITHIN):
        while "master_link_status:up" not in await stranger.call(0, "INFO", "replication"):
            await asyncio.sleep(0.02)
    await stranger.call(0, "CLUSTER", "FAILOVER", "TAKEOVER")
    await until(cluster, lambda view: any(one.id == id and one.slots for one in view), at=list(range(6)))

    await cluster.operate(6)

    assert sorted((await cluster.owned()).values()) == sorted(before.values())
    assert await served(cluster)
    assert await forgotten(cluster, id)
    assert await cluster.kept(KEYS) == len(KEYS)


# --- rules -------------------------------------------------------------------------------------------------


STRANGER_ID = "f" * 40


def taken(slots: Slots, *, recorded: bool = True, ip: str = "10.9.9.9", **how: object) -> Snapshot:
    """Every node gives slots of demo-0 to a node of nobody's."""
    members = change(whole(), 0, slots=whole()[0].slots & ~slots)
    found = snapshot(members)
    peer = Peer(
        id=STRANGER_ID,
        address=Address(ip, 6379),
        flags=frozenset({"master"}),
        epoch=99,
        slots=slots,
        heard=100.0,
    )
    nodes = tuple(
        replace(one, server=replace(one.server, view=(*one.server.view, replace(peer, **how))))  # type: ignore[arg-type]
        for one in found.seen.nodes
        if one.server is not None
    )
    had = {id_of(one.ordinal): one.slots for one in whole() if one.slots} if recorded else {}
    return replace(found, seen=Seen(nodes=nodes), recorded=replace(found.recorded, slots=had))


def test_a_stranger_with_slots_is_expelled_and_the_status_and_a_warning_name_it() -> None:
    seen = taken(span(100, 101))
    verdict = next_step(seen)
    assert isinstance(verdict, Expel)
    assert verdict.ids == (STRANGER_ID,)
    assert [(target.name, slots) for target, slots in verdict.back] == [("demo-0", span(100, 101))]
    assert "10.9.9.9:6379 (ffffffff) joined the cluster" in verdict.why
    assert "slots 100-101 go back to demo-0" in verdict.why

    [event] = of_move(verdict, seen)
    assert (event.reason, event.warning, event.message) == (STRANGER, True, verdict.why)
    status = phase_of(RedisClusterStatus(phase="Running"), seen, verdict)
    assert (status.reason_type, status.reason) == (STRANGER, verdict.why)


def test_the_status_keeps_what_a_node_had_until_it_has_it_again() -> None:
    status = described(
        RedisClusterStatus(), taken(span(100, 101)), names=Names("demo"), namespace="default", hosts={}
    )
    first = next(one for one in status.conditions or () if one.name == "demo-0")
    assert first.slots == show(whole()[0].slots)


def test_a_former_node_of_ours_is_no_stranger() -> None:
    """What it has was never recorded as another's: its slots are not served empty."""
    assert not isinstance(next_step(taken(span(100, 101), recorded=False)), Expel)
    assert not isinstance(next_step(taken(span(100, 101), ip="10.0.0.1")), Expel), "at an address of ours"


def test_nothing_is_a_stranger_while_an_id_of_ours_is_unknown() -> None:
    seen = taken(span(100, 101))
    ids = {name: id for name, id in seen.recorded.ids.items() if name != "demo-6"}
    more = replace(
        seen, wanted=replace(seen.wanted, nodes=8, pods=8), recorded=replace(seen.recorded, ids=ids)
    )
    assert not isinstance(next_step(more), Expel)
