"""Slots between two real servers, without Kubernetes: every key arrives, whatever is in the way."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from mooring.operators.redis.cluster.mover import MoveFailed, Mover, batches
from mooring.operators.redis.cluster.moves import MoveSlots, Settle, Target
from mooring.operators.redis.cluster.slots import Transfer, span
from mooring.operators.redis.cluster.topology import parse_nodes
from mooring.operators.redis.dial import Address, Dial, DialError, Link, Refused

DIAL = Dial(connect_timeout=10.0, reply_timeout=10.0)


@given(st.lists(st.integers(0, 50), max_size=30))
def test_a_batch_has_no_more_bytes_than_allowed_but_for_a_key_that_is_larger_alone(sizes: list[int]) -> None:
    keys = [(str(at), size) for at, size in enumerate(sizes)]
    groups = list(batches(keys, 40))
    assert [key for group in groups for key in group] == [key for key, _ in keys]
    for group in groups:
        assert sum(sizes[int(key)] for key in group) <= 40 or len(group) == 1


@contextmanager
def server(home: Path, ip: str) -> Iterator[Address]:
    """A server that begins as a cluster node of its own."""
    home.mkdir()
    process = subprocess.Popen(
        [
            *("redis-server", "--bind", ip, "--port", "6379", "--cluster-enabled", "yes", "--dir", str(home)),
            *("--save", "", "--appendonly", "no", "--cluster-announce-ip", ip),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield Address(ip, 6379)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, Address]]:
    """Two servers for all tests: one that has just been started serves no slot for two seconds."""
    home = tmp_path_factory.mktemp("servers")
    net = f"127.{random.randint(10, 250)}.{random.randint(0, 250)}"
    with server(home / "a", f"{net}.1") as source, server(home / "b", f"{net}.2") as target:
        yield source, target


@pytest.fixture
async def both(processes: tuple[Address, Address]) -> tuple[Target, Target]:
    """Two nodes that know one another and nobody else, without keys and with new ids; the first owns all slots."""
    source, target = [await as_new(address) for address in processes]
    async with DIAL.link(source.address) as link:
        await link.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await link.call("CLUSTER", "MEET", target.address.ip, 6379)
    async with asyncio.timeout(30):
        while not (await sees(source, target) and await sees(target, source)):
            await asyncio.sleep(0.02)
    for address in processes:
        async with DIAL.link(address) as link:
            await link.call("CONFIG", "SET", "cluster-node-timeout", 15_000)
    return source, target


async def as_new(address: Address) -> Target:
    """Empty a server and let it forget its cluster.

    A master whose slots are all served again waits for as long as the timeout of nodes, and for half a second at least.
    """
    async with asyncio.timeout(30):
        while not await answers(address):
            await asyncio.sleep(0.02)
    async with DIAL.link(address) as link:
        with contextlib.suppress(Refused):  # a replica refuses to; the reset empties it
            await link.call("FLUSHALL")
        await link.call("CONFIG", "SET", "cluster-node-timeout", 500)
        await link.call("CLUSTER", "RESET", "HARD")
        return Target(name=address.ip, address=address, id=await link.call("CLUSTER", "MYID"))


async def answers(address: Address) -> bool:
    """Whether it has started."""
    with contextlib.suppress(DialError):
        async with DIAL.link(address) as link:
            return bool(await link.call("PING") == "PONG")
    return False


async def sees(one: Target, other: Target) -> bool:
    """Whether it serves, knows the other and knows who owns the slots."""
    async with DIAL.link(one.address) as link:
        view = parse_nodes(await link.call("CLUSTER", "NODES"))
        state = await link.call("CLUSTER", "INFO")
    return (
        other.id in {peer.id for peer in view} and any(p.slots for p in view) and "cluster_state:ok" in state
    )


def step(
    source: Target, target: Target, first: int, last: int, *, pipeline: int = 10, rate: float = 0.0
) -> MoveSlots:
    return MoveSlots(
        transfer=Transfer(source=source.id, target=target.id, slots=span(first, last)),
        source=source,
        target=target,
        masters=(source, target),
        pipeline=pipeline,
        rate=rate,
        why="",
    )


async def test_slots_arrive_with_all_their_keys_and_no_marks_are_left(both: tuple[Target, Target]) -> None:
    source, target = both
    keys = [f"key:{at}" for at in range(3000)]
    async with DIAL.link(source.address) as link:
        await link.pipeline([("SET", key, key) for key in keys])

    done = 0
    while done < 200:  # a turn ends after a second
        moved_now = await Mover(dial=DIAL).move(step(source, target, done, 199))
        assert moved_now > 0
        done += moved_now

    moved = [key for key in keys if key_slot(key.encode()) < 200]
    assert moved
    async with DIAL.link(target.address) as link:
        assert await link.pipeline([("GET", key) for key in moved]) == moved
        view = parse_nodes(await link.call("CLUSTER", "NODES"))
    assert next(one for one in view if "myself" in one.flags).slots == span(0, 199)
    assert not any(one.marks for one in view)


async def test_a_move_that_is_held_back_takes_its_time_and_ends(both: tuple[Target, Target]) -> None:
    source, target = both
    tag = key_slot(b"{a}")
    async with DIAL.link(source.address) as link:
        await link.pipeline([("SET", f"{{a}}:{at}", "x" * 10_000) for at in range(40)])
    began = asyncio.get_running_loop().time()
    assert await Mover(dial=DIAL).move(step(source, target, tag, tag, rate=400_000.0)) == 1
    assert asyncio.get_running_loop().time() - began > 1.0
    async with DIAL.link(target.address) as link:
        assert await link.call("CLUSTER", "COUNTKEYSINSLOT", tag) == 40


async def test_a_key_on_both_sides_is_the_sources(both: tuple[Target, Target]) -> None:
    source, target = both
    slot = key_slot(b"both")
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        await giving.call("SET", "both", "old")
        await taking.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        await giving.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        await giving.call("MIGRATE", target.address.ip, 6379, "", 0, 1000, "COPY", "KEYS", "both")
        await giving.call("SET", "both", "newer")

        with contextlib.suppress(MoveFailed):
            await Bounded(dial=DIAL).move(step(source, target, slot, slot))

        assert await taking.pipeline([("GET", "both")]) == ["newer"]


async def test_a_key_whose_name_is_no_text_moves_too(both: tuple[Target, Target]) -> None:
    source, target = both
    names = [b"{java}\xac\xed\x00\x05t", "{java}\u00e9".encode(), b"{java}plain"]
    slot = key_slot(b"{java}")
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        await giving.pipeline([("SET", name, "1") for name in names])
        with contextlib.suppress(MoveFailed, TimeoutError):
            async with asyncio.timeout(10):
                await Mover(dial=DIAL).move(step(source, target, slot, slot))
        assert await taking.pipeline([("EXISTS", name) for name in names]) == [1, 1, 1]
        assert await giving.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 0


@dataclass(kw_only=True)
class Lossy(Mover):
    """Sends keys by names that nobody has."""

    def _migration(self, target: Target, keys: Sequence[str], *how: str) -> list[str | int]:
        return super()._migration(target, [f"{one}-" for one in keys], *how)


async def test_keys_that_do_not_leave_are_a_failure_and_not_sent_for_ever(
    both: tuple[Target, Target],
) -> None:
    source, target = both
    slot = key_slot(b"{stays}")
    async with DIAL.link(source.address) as giving:
        await giving.call("SET", "{stays}", "1")
    said = ""
    try:
        async with asyncio.timeout(10):
            await Lossy(dial=DIAL).move(step(source, target, slot, slot))
    except (MoveFailed, TimeoutError) as error:
        said = str(error)
    assert f"slot {slot}: its keys were sent and are still at {source.name}" in said


@dataclass(kw_only=True)
class Bounded(Mover):
    """Gives up a key that does not leave: by the number of tries, which no slow machine changes."""

    tries: int = 3

    async def _migrate(self, *how: Any) -> None:
        if not self.tries:
            raise MoveFailed("the key is still there")
        self.tries -= 1
        await super()._migrate(*how)


async def test_a_large_key_travels_alone(both: tuple[Target, Target]) -> None:
    source, target = both
    slot = key_slot(b"{big}1")
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        await giving.call("SET", "{big}1", "x" * (3 << 20))
        await giving.pipeline([("SET", f"{{big}}{at}", "small") for at in range(2, 30)])
        await giving.call("CONFIG", "RESETSTAT")

        await Mover(dial=DIAL).move(step(source, target, slot, slot, pipeline=1000))

        assert await taking.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 29
        calls = await giving.call("INFO", "commandstats")
        assert "cmdstat_migrate:calls=1," not in calls


async def test_more_keys_than_one_batch_are_asked_for_until_none_is_left(both: tuple[Target, Target]) -> None:
    source, target = both
    slot = key_slot(b"{many}")
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        await giving.pipeline([("SET", f"{{many}}{at}", "1") for at in range(500)])

        with contextlib.suppress(MoveFailed):
            await Mover(dial=DIAL).move(step(source, target, slot, slot, pipeline=10))

        assert await taking.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 500
        assert await giving.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        owner = next(one for one in parse_nodes(await giving.call("CLUSTER", "NODES")) if one.id == target.id)
        assert owner.slots >> slot & 1


async def test_a_target_that_has_not_heard_of_the_sources_epoch_outranks_it_all_the_same(
    both: tuple[Target, Target],
) -> None:
    source, target = both
    await Mover(dial=DIAL).move(step(source, target, 0, 0))
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        async with asyncio.timeout(30):  # until the source, which is behind, knows whom to be ahead of
            while "BUMPED" not in await giving.call("CLUSTER", "BUMPEPOCH"):
                await asyncio.sleep(0.02)
        assert await Mover(dial=DIAL).move(step(source, target, 1, 1)) == 1
        assert await epoch(taking) > await epoch(giving)


async def test_a_source_that_follows_the_target_once_it_has_no_slot_left_is_done(
    both: tuple[Target, Target],
) -> None:
    source, target = both
    async with DIAL.link(source.address) as giving:
        await giving.call("CONFIG", "SET", "cluster-allow-replica-migration", "yes")
        done = 0
        while done < 16384:
            done += await Mover(dial=DIAL).move(step(source, target, done, 16383))
        view = parse_nodes(await giving.call("CLUSTER", "NODES"))
    assert next(one.master for one in view if "myself" in one.flags) == target.id


async def epoch(link: Link) -> int:
    """A node's own."""
    view = parse_nodes(await link.call("CLUSTER", "NODES"))
    return next(one.epoch for one in view if "myself" in one.flags)


@pytest.mark.parametrize("keys", [0, 3])
@pytest.mark.parametrize("incoming", [True, False])
async def test_a_mark_that_one_side_alone_bears_is_settled(
    both: tuple[Target, Target], keys: int, incoming: bool
) -> None:
    source, target = both
    slot = key_slot(b"{half}")
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        await giving.pipeline([("SET", f"{{half}}{at}", "1") for at in range(6)])
        await taking.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        await giving.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        for at in range(keys):
            await giving.call("MIGRATE", target.address.ip, 6379, f"{{half}}{at}", 0, 1000)
        await (giving if incoming else taking).call("CLUSTER", "SETSLOT", slot, "STABLE")

        # What the owner's mark says, the planner hands on.
        meant = "" if incoming else target.id
        await Mover(dial=DIAL).settle(
            Settle(slots=1 << slot, owner=source, masters=both, meant=meant, why="")
        )

        has, has_not = (taking, giving) if keys and meant else (giving, taking)
        assert await has.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 6
        assert await has_not.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        for link in (giving, taking):
            view = parse_nodes(await link.call("CLUSTER", "NODES"))
            assert not any(one.marks for one in view)


async def test_keys_of_a_half_way_slot_are_found_where_no_mark_points(both: tuple[Target, Target]) -> None:
    source, target = both
    slot = key_slot(b"{half}")
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        await giving.pipeline([("SET", f"{{half}}{at}", "1") for at in range(6)])
        await taking.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        await giving.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        await giving.call("MIGRATE", target.address.ip, 6379, "{half}0", 0, 1000)
        await taking.pipeline([("ASKING",), ("SET", "{half}1", "older")])
        await taking.call("CLUSTER", "SETSLOT", slot, "STABLE")

        await Mover(dial=DIAL).settle(Settle(slots=1 << slot, owner=source, masters=both, why=""))

        assert await taking.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        assert [await giving.call("GET", f"{{half}}{at}") for at in range(6)] == ["1"] * 6


async def test_a_new_master_owns_its_first_slot_before_others_begin_to_move(
    both: tuple[Target, Target],
) -> None:
    source, target = both
    together: list[int] = []

    class Watched(Mover):
        async def _chunk(self, links: Any, slots: Sequence[int], *how: Any) -> None:
            together.append(len(slots))
            await super()._chunk(links, slots, *how)

    await Watched(dial=DIAL).move(step(source, target, 0, 299))

    assert together[0] == 1


@pytest.mark.parametrize("back", [False, True])
async def test_a_mark_on_a_slot_given_away_already_is_taken_off(
    both: tuple[Target, Target], back: bool
) -> None:
    source, target = both
    slot = key_slot(b"{gone}")
    async with DIAL.link(source.address) as giving, DIAL.link(target.address) as taking:
        await taking.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        await giving.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        await taking.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        if back:
            # The first word of a move back; unlike the mark above, SETSLOT NODE does not take it off as well.
            await giving.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)
            await giving.call("CLUSTER", "SETSLOT", slot, "IMPORTING", target.id)
        await taking.call("SET", "{gone}1", "1")

        await Mover(dial=DIAL).settle(Settle(slots=1 << slot, owner=target, masters=both, why=""))

        assert await taking.call("GET", "{gone}1") == "1"
        view = parse_nodes(await giving.call("CLUSTER", "NODES"))
        assert not any(one.marks for one in view)
        assert next(one for one in view if one.id == target.id).slots >> slot & 1
