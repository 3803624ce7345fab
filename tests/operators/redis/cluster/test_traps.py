"""Traps of founding and scaling on real servers: half-made clusters, foreign data, views that differ, nodes that are down."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from redis.crc import key_slot
from tests.operators.redis.cluster.servers import KEYS, Dead, Servers, servers
from tests.standstill import Standstill

from mooring.actor import StepFailed
from mooring.operators.redis.cluster import steps
from mooring.operators.redis.cluster.moves import (
    Meet,
    Promote,
    Record,
    Resize,
    Retire,
    Target,
    Verdict,
    Wait,
)
from mooring.operators.redis.cluster.slots import ALL, Slots, ranges, shares
from mooring.operators.redis.cluster.steps import Steps, _no_writes
from mooring.operators.redis.dial import Address, DialError, Link
from mooring.testing.ledger_cluster import ClusterLedger

pytestmark = pytest.mark.embedded


async def views(cluster: Servers) -> list[dict[str, tuple[int, str]]]:
    """Who owns what and follows whom, as each node sees it."""
    return [
        {peer.id: (peer.slots, peer.master) for peer in await cluster.view(at)} for at in range(cluster.pods)
    ]


async def serving(cluster: Servers) -> list[bool]:
    """Whether each node says that it serves."""
    return ["cluster_state:ok" in await cluster.call(at, "CLUSTER", "INFO") for at in range(cluster.pods)]


async def followers(cluster: Servers) -> dict[int, list[int]]:
    """The replicas of every master."""
    mine = {at: await cluster.me(at) for at in range(cluster.pods)}
    return {
        at: [other for other, peer in mine.items() if peer.master == me.id]
        for at, me in mine.items()
        if me.is_master
    }


async def handed_over(cluster: Servers, ordinal: int, *, follower: int) -> None:
    """A master hands over to its replica, tried once."""
    heir = Target(name=f"demo-{ordinal}", address=cluster.address(ordinal))
    me = await cluster.me(follower)
    move = Promote(target=heir, how="", owner=me.id, slots=me.slots, why="")
    with contextlib.suppress(StepFailed):
        await Steps(cluster.dial).run(move)


async def failed_over(cluster: Servers, ordinal: int, *, follower: int) -> None:
    """A replica and its master have changed places, however often it is tried."""
    async with asyncio.timeout(40):
        while not (await cluster.me(ordinal)).is_master:
            await handed_over(cluster, ordinal, follower=follower)
        while (await followers(cluster)).get(ordinal) != [follower]:
            await asyncio.sleep(0.05)


async def whole(cluster: Servers, *sizes: int) -> None:
    """All slots, every master with a replica, no mark."""
    assert await cluster.sizes() == sorted(sizes)
    assert sum((await cluster.owned()).values()) == ALL
    assert sorted(map(len, (await followers(cluster)).values())) == [1] * len(sizes)
    assert await cluster.marks() == 0


# --- the beginning -----------------------------------------------------------------------------------------


async def test_a_half_made_cluster_is_finished_whoever_began_it_and_however_often_it_stops(
    strangers: Servers,
) -> None:
    for at, part in ((0, shares(3)[0]), (3, shares(3)[2])):
        [(first, last)] = ranges(part)
        await strangers.call(at, "CLUSTER", "ADDSLOTSRANGE", first, last)
    await strangers.call(0, "CLUSTER", "MEET", strangers.address(1).ip, 6379)

    chance, deaths = random.Random(15), 0
    while deaths < 10 and not await strangers.operate(6, sends=chance.randint(8, 30)):
        deaths += 1
    formed: list[list[dict[str, tuple[int, str]]]] = []

    async def look_around(verdict: Verdict) -> None:
        if isinstance(verdict, Record) and verdict.formed:
            formed.append(await views(strangers))

    await strangers.operate(6, watch=look_around)

    assert deaths > 1
    assert formed[0] == formed[0][:1] * 6
    assert {0, 3} < set(await strangers.owned())
    await whole(strangers, 5461, 5461, 5462)
    epochs = {(await strangers.me(at)).epoch for at in await strangers.owned()}
    assert len(epochs) == 3


async def test_a_server_that_has_somebodys_data_is_not_taken_in(strangers: Servers) -> None:
    await strangers.kill(2)
    await strangers.start(2, clustered=False)
    assert await strangers.call(2, "SET", "theirs", "1") == "OK"
    await strangers.kill(2)
    await strangers.start(2)
    decided: list[Verdict] = []

    async def note(verdict: Verdict) -> None:
        decided.append(verdict)
        if isinstance(verdict, Wait) and verdict.reason == "ForeignData":
            raise Dead

    assert not await strangers.operate(6, watch=note)
    assert all(isinstance(one, Wait | Meet) for one in decided)
    last = decided[-1]
    assert isinstance(last, Wait)
    assert last.stalled
    assert "demo-2 (1 keys)" in last.message
    assert await strangers.call(2, "DBSIZE") == 1
    known = [[peer for peer in await strangers.view(at) if peer.settled] for at in range(6)]
    assert [len(one) for one in known] == [5, 5, 1, 5, 5, 5]

    await strangers.call(2, "FLUSHALL")
    await strangers.operate(6)
    assert sum((await strangers.owned()).values()) == ALL
    assert await strangers.stored() == 0
    assert len({(await strangers.me(at)).epoch for at in await strangers.owned()}) == 3


async def test_files_put_onto_a_volume_are_brought_in_through_the_cluster(
    strangers: Servers, tmp_path: Path
) -> None:
    """What the message ForeignData and the documentation advise."""
    await strangers.kill(2)
    await strangers.start(2, clustered=False)
    for at in range(100):
        await strangers.call(2, "SET", f"theirs:{at}", at)
    await strangers.kill(2)
    copy = tmp_path / "copy"
    await asyncio.to_thread(shutil.copytree, strangers.directory(2), copy)
    await strangers.start(2)
    await strangers.call(2, "FLUSHALL")
    await strangers.operate(6)

    source = Address(strangers.address(0).ip.rpartition(".")[0] + ".250", 6379)
    server = await asyncio.create_subprocess_exec(
        *("redis-server", "--bind", source.ip, "--dir", str(copy), "--appendonly", "yes", "--save", ""),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(10):
            while not await keys(strangers, source):
                await asyncio.sleep(0.05)
        brought = await asyncio.create_subprocess_exec(
            *("redis-cli", "--cluster", "import", str(strangers.address(0)), "--cluster-from", str(source)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(brought.communicate(), 30)
        assert brought.returncode == 0, said
        assert await keys(strangers, source) == 0
    finally:
        server.kill()
        await server.wait()
    assert await strangers.stored() == 100


async def keys(strangers: Servers, address: Address) -> int:
    """How many a server has; none while it does not answer."""
    try:
        async with strangers.dial.link(address) as link:
            found: int = await link.call("DBSIZE")
            return found
    except DialError:
        return 0


# --- more nodes, fewer nodes -------------------------------------------------------------------------------


async def test_slots_are_planned_only_where_every_node_serves_and_all_see_the_same(cluster: Servers) -> None:
    plans = 0

    async def look_around(verdict: Verdict) -> None:
        nonlocal plans
        if isinstance(verdict, Record) and verdict.plan:
            plans += 1
            first, *rest = await views(cluster)
            assert rest == [first] * len(rest)
            assert all(await serving(cluster))

    await cluster.operate(8, watch=look_around)
    await cluster.operate(10, watch=look_around)  # right after

    assert plans == 2
    await whole(cluster, 3276, 3277, 3277, 3277, 3277)
    assert await cluster.kept(KEYS) == len(KEYS)


async def test_nobody_leaves_while_another_is_down_nor_before_it_is_empty_and_forgotten(
    tmp_path: Path,
) -> None:
    async with servers(tmp_path, 8) as cluster:
        await cluster.operate(8)
        await cluster.fill(KEYS)
        owned = await cluster.owned()
        leaving = {(await cluster.me(at)).id for at in (6, 7)}
        shrunk = 0

        async def nobody(verdict: Verdict) -> None:
            assert not isinstance(verdict, Retire | Resize)
            assert not (isinstance(verdict, Record) and verdict.plan)

        async def only_the_empty(verdict: Verdict) -> None:
            nonlocal shrunk
            if isinstance(verdict, Resize):
                shrunk += 1
                assert [(await cluster.me(at)).slots for at in (6, 7)] == [0, 0]
                known = {peer.id for at in range(6) for peer in await cluster.view(at)}
                assert not leaving & known

        await cluster.kill(0)
        async with asyncio.timeout(40):
            while set((await cluster.owned()).values()) != set(owned.values()):
                assert not await cluster.operate(6, seconds=1.0, watch=nobody)
        assert not await cluster.operate(6, seconds=2.0, watch=nobody)
        assert cluster.pods == 8

        await cluster.start(0)
        await cluster.operate(6, watch=only_the_empty)

        assert shrunk == 1
        await whole(cluster, 5461, 5461, 5462)
        assert await cluster.kept(KEYS) == len(KEYS)
        assert await cluster.stored() == len(KEYS)


async def test_the_replica_of_a_master_that_is_drained_goes_to_the_shard_that_loses_its_own(
    tmp_path: Path,
) -> None:
    async with servers(tmp_path, 8) as cluster:
        await cluster.operate(8)
        await cluster.fill(KEYS)
        [stays] = [head for head, replicas in (await followers(cluster)).items() if replicas == [7]]
        await failed_over(cluster, 7, follower=stays)
        [bare] = [head for head, replicas in (await followers(cluster)).items() if replicas == [6]]

        await cluster.operate(6)

        assert (await followers(cluster))[bare] == [stays]
        await whole(cluster, 5461, 5461, 5462)
        assert await cluster.kept(KEYS) == len(KEYS)


async def test_owners_of_the_lowest_epoch_are_not_forgotten_when_most_masters_are_gone(
    strangers: Servers,
) -> None:
    # Who knows somebody refuses a number: of these two one keeps the epoch 0, as if the first look had been too late.
    first, second = (strangers.address(at) for at in (0, 1))
    await strangers.call(0, "CLUSTER", "MEET", second.ip, second.port)
    await strangers.call(1, "CLUSTER", "MEET", first.ip, first.port)
    await strangers.operate(6)
    await strangers.fill(KEYS)
    epochs = {at: (await strangers.me(at)).epoch for at in await strangers.owned()}
    assert 0 in epochs.values()

    await asyncio.gather(*(strangers.renew(at) for at in sorted(epochs, key=lambda at: epochs[at])[:2]))
    await strangers.operate(6)

    assert await strangers.kept(KEYS) == len(KEYS)
    await whole(strangers, *(parts.bit_count() for parts in shares(3)))


async def test_every_node_has_a_number_before_it_is_introduced(strangers: Servers) -> None:
    await strangers.operate(6)
    assert sorted({(await strangers.me(at)).epoch for at in await strangers.owned()}) == [1, 2, 3]


async def test_a_replica_whose_votes_are_lost_takes_over_by_itself_if_its_master_is_gone(
    cluster: Servers,
) -> None:
    first, second, *_ = sorted(await cluster.owned())
    (heir,) = (await followers(cluster))[first]
    lost = await cluster.me(first)
    await cluster.kill(first)
    target = Target(name=f"demo-{heir}", address=cluster.address(heir))
    some = lost.slots & (lost.slots - 1)  # of one slot it is not known that nobody serves it
    with cluster.frozen(second):  # one of two votes never comes
        for slots, takes in ((some, 0), (lost.slots, lost.slots)):
            move = Promote(target=target, how="FORCE", owner=lost.id, slots=slots, why="")
            with contextlib.suppress(StepFailed):
                await Steps(cluster.dial).run(move)
            me = await cluster.me(heir)
            assert (me.slots if me.is_master else 0) == takes


@pytest.mark.full
@pytest.mark.parametrize("later", [0, pytest.param(8, marks=pytest.mark.nightly)])
async def test_a_master_that_fails_shortly_after_its_replica_was_elected_is_replaced(
    cluster: Servers, later: int
) -> None:
    """Within two node timeouts the replica counts its old votes, and gets a number too low; then it asks for none."""
    await cluster.fill(KEYS)
    for at in range(6):
        await cluster.call(at, "CONFIG", "SET", "cluster-node-timeout", 10_000)
    master, *_ = sorted(await cluster.owned())
    (heir,) = (await followers(cluster))[master]
    await failed_over(cluster, heir, follower=master)
    await failed_over(cluster, master, follower=heir)
    await cluster.operate(6)
    id, slots = (await cluster.me(heir)).id, (await cluster.me(master)).slots
    other = next(at for at in await cluster.owned() if at != master)

    async def seen() -> Slots:
        return next(peer.slots for peer in await cluster.view(other) if peer.id == id)

    await asyncio.sleep(later)
    with cluster.frozen(master):
        by = monotonic() + 26  # by themselves the servers get nowhere, or after four node timeouts
        while (has := await seen()) != slots and monotonic() < by:
            await cluster.operate(6, seconds=0.1, patience=1.0)
        assert has == slots
    await cluster.operate(6)
    assert (await followers(cluster))[heir] == [master]
    assert await cluster.kept(KEYS) == len(KEYS)


async def test_nobody_takes_over_once_the_failed_master_answers_again(cluster: Servers) -> None:
    first, *_ = sorted(await cluster.owned())
    (heir,) = (await followers(cluster))[first]
    me = await cluster.me(first)
    target = Target(name=f"demo-{heir}", address=cluster.address(heir))
    move = Promote(target=target, how="FORCE", owner=me.id, slots=me.slots, failed=True, why="")
    with contextlib.suppress(StepFailed):
        await Steps(cluster.dial).run(move)
    assert not (await cluster.me(heir)).is_master


async def test_nobody_takes_over_from_a_hung_master_that_wakes_and_takes_writes(cluster: Servers) -> None:
    """It was still when it was looked at; what it has acknowledged since would be lost."""
    first, *_ = sorted(await cluster.owned())
    (heir,) = (await followers(cluster))[first]
    me = await cluster.me(first)
    target = Target(name=f"demo-{heir}", address=cluster.address(heir))
    await cluster.fill(KEYS)
    move = Promote(target=target, how="FORCE", owner=me.id, slots=me.slots, hung=True, why="")
    with pytest.raises(StepFailed, match="hears its master again"):
        await Steps(cluster.dial).run(move)
    assert (await cluster.me(first)).is_master
    assert await cluster.kept(KEYS) == len(KEYS)


async def test_a_shard_changes_hands_again_and_again_under_a_writer_and_loses_nothing(
    cluster: Servers, stood: Standstill
) -> None:
    one, *_ = sorted(await cluster.owned())
    (other,) = (await followers(cluster))[one]
    ledger = ClusterLedger([cluster.address(one)], rate=200)
    writing = asyncio.create_task(ledger.write())
    for master, heir in (
        (one, other),
        (other, one),
    ) * 2:  # the third time nobody may vote, and old votes count
        await handed_over(cluster, heir, follower=master)
        assert (await cluster.me(heir)).is_master
        await failed_over(cluster, heir, follower=master)
        written = ledger.acknowledged
        async with asyncio.timeout(10):
            while ledger.acknowledged < written + 100:
                await asyncio.sleep(0.02)
    ledger.stop()
    await writing
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert report.longest_gap - stood.within(report.longest_gap) < 4.0, report.text()


@pytest.mark.parametrize("stays", [False, True], ids=["over", "not known to be over"])
async def test_writes_to_a_former_master_wait_until_it_has_heard_of_the_new_one(
    cluster: Servers, stays: bool
) -> None:
    master, *_ = sorted(await cluster.owned())
    me = await cluster.me(master)
    key = next(word for word in map(str, range(10_000)) if me.slots >> key_slot(word.encode()) & 1)
    async with cluster.dial.link(cluster.address(master)) as link:
        with contextlib.suppress(StepFailed):
            async with _no_writes(link, "7.0.15") as hold:
                hold.stays = stays
                raise StepFailed("its answer was lost")
    write = asyncio.create_task(cluster.call(master, "SET", key, "1"))
    done, _ = await asyncio.wait([write], timeout=1.0 if stays else 10.0)
    assert bool(done) is not stays
    await cluster.call(master, "CLIENT", "UNPAUSE")
    assert await write == "OK"


async def test_a_hand_over_before_6_2_puts_back_what_was_there_before_one_that_broke_off(
    cluster: Servers,
) -> None:
    master, *_ = sorted(await cluster.owned())

    async def demanded() -> int:
        return int((await cluster.call(master, "CONFIG", "GET", "min-slaves-to-write"))[1])

    await cluster.call(master, "CONFIG", "SET", "min-slaves-to-write", 1)
    async with cluster.dial.link(cluster.address(master)) as link:
        async with _no_writes(link, "5.0.6") as hold:
            hold.stays = True
        assert await demanded() > 1, "it is not known whether the slots are somebody else's"
        async with _no_writes(link, "5.0.6"):
            assert await demanded() > 1
    assert await demanded() == 1


async def test_who_takes_over_in_agreement_has_all_that_its_master_has(cluster: Servers) -> None:
    master, *_ = sorted(await cluster.owned())
    (heir,) = (await followers(cluster))[master]
    me = await cluster.me(master)
    tag = next(word for word in map(str, range(10_000)) if me.slots >> key_slot(word.encode()) & 1)
    async with cluster.dial.link(cluster.address(master)) as link:
        with cluster.frozen(heir):
            for part in range(50):
                await link.pipeline([("SET", f"{{{tag}}}:{part}:{at}", "x" * 1000) for at in range(1000)])
        had = await link.call("DBSIZE")
    target = Target(name=f"demo-{heir}", address=cluster.address(heir))

    in_agreement = Steps(cluster.dial)._take_over_in_agreement
    given = Promote(target=target, how="", owner=me.id, slots=me.slots & me.slots - 1, why="")
    with pytest.raises(StepFailed, match="has not heard who has slots that its master gave away"):
        await in_agreement(given)
    assert not (await cluster.me(heir)).is_master
    await in_agreement(replace(given, slots=me.slots))

    assert (await cluster.me(heir)).slots == me.slots
    assert await cluster.call(heir, "DBSIZE") == had


async def test_a_master_of_before_the_new_version_is_held_by_what_it_understands_itself(
    cluster: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, *_ = sorted(await cluster.owned())
    (heir,) = (await followers(cluster))[master]
    me = await cluster.me(master)
    target = Target(name=f"demo-{heir}", address=cluster.address(heir))
    call, hold, held = Link.call, _no_writes, list[str]()

    async def aged(link: Link, *words: str | int) -> object:
        said = await call(link, *words)
        if words == ("INFO", "server") and await call(link, "CLUSTER", "MYID") == me.id:
            return str(said).replace("redis_version:7", "redis_version:5")
        return said

    def noted(link: Link, version: str) -> contextlib.AbstractAsyncContextManager[object]:
        held.append(version)
        return hold(link, version)

    monkeypatch.setattr(Link, "call", aged)
    monkeypatch.setattr(steps, "_no_writes", noted)
    await Steps(cluster.dial)._take_over_in_agreement(
        Promote(target=target, how="", owner=me.id, slots=me.slots, why="")
    )
    assert [one.partition(".")[0] for one in held] == ["5"]
    assert (await cluster.me(heir)).is_master


async def test_who_is_held_up_for_longer_than_writes_wait_does_not_take_over(
    cluster: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, *_ = sorted(await cluster.owned())
    (heir,) = (await followers(cluster))[master]
    me = await cluster.me(master)
    target = Target(name=f"demo-{heir}", address=cluster.address(heir))
    move = Promote(target=target, how="", owner=me.id, slots=me.slots, why="")

    async def suspended(*_: object) -> None:
        await asyncio.sleep(0.5)

    monkeypatch.setattr(steps, "HAND_OVER_MS", 200)
    monkeypatch.setattr(steps, "_caught_up", suspended)
    with pytest.raises(StepFailed, match="took so long that its master may take writes again"):
        await Steps(cluster.dial)._take_over_in_agreement(move)
    assert not (await cluster.me(heir)).is_master
