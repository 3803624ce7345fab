"""Where a restore ends, and over which segments it goes: recorded transactions in archives that are cut anyhow."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.mysql.test_archive_events import FLAVORS, line, recorded

from mooring.objectstore import Corrupt, Store, Target, open_store
from mooring.objectstore.target import Directory
from mooring.operators.mysql.archive.events import MAGIC, Description, Gtid, moment, previous_gtids
from mooring.operators.mysql.archive.relay import FIRST, INDEX, write_relay
from mooring.operators.mysql.archive.store import PAGE, Archive, Chain, Seen, Segment, Superseded, Tail
from mooring.operators.mysql.archive.stream import encoded
from mooring.operators.mysql.archive.target import Goal, Refused, resolve
from mooring.operators.mysql.archive.transactions import History
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.topology import Flavor


@dataclass(frozen=True)
class Transaction:
    gtid: Gtid
    data: bytes
    committed: int


def no_secrets(name: str) -> Mapping[str, bytes]:
    raise LookupError(name)


def all_of(flavor: Flavor) -> tuple[list[Transaction], Description]:
    made = line(flavor)
    found: list[Transaction] = []
    data = b""
    for event in recorded(flavor):
        if (kept := made.feed(event)) is None:
            continue
        data += kept.event
        if kept.ends is not None:
            found.append(Transaction(kept.ends, data, kept.committed))
            data = b""
    assert made.description is not None
    return found, made.description


def upto(flavor: Flavor, given: Sequence[Transaction]) -> Position:
    history = History(flavor)
    for one in given:
        history.add(one.gtid)
    return history.position


class Kept:
    """An archive of recorded transactions."""

    def __init__(self, store: Store, flavor: Flavor) -> None:
        self.archive = Archive(store, "demo/archive")
        self.flavor: Flavor = flavor
        self.given, self.layout = all_of(flavor)
        self.tail: Tail | None = None

    async def chain(self, first: int, cuts: Sequence[int], *, reason: str = "Founded") -> Tail:
        """A chain from a transaction on, its segments ending at the cuts."""
        number = self.tail.chain.number + 1 if self.tail else 1
        before = upto(self.flavor, self.given[:first])
        chain = Chain(
            number=number,
            flavor=self.flavor,
            after=before.newest(),
            began="2026-11-25T02:00:00Z",
            reason=reason,
        )
        await self.archive.begin(chain)
        self.tail = Tail(chain=chain)
        for cut in cuts:
            await self.segment(first, cut)
            first = cut
        return self.tail

    async def segment(self, first: int, last: int) -> None:
        assert self.tail is not None
        held = self.given[first:last]
        data = b"".join(one.data for one in held)
        name = self.archive.new_data(self.tail.chain, self.tail.next)

        async def body() -> AsyncGenerator[bytes, None]:
            yield data

        await self.archive.store.upload(f"demo/archive/{self.tail.chain.number:08d}/{name}", body())
        latest = max(one.committed for one in self.given[:first] + held[:1])
        await self.archive.append(
            self.tail,
            Segment(
                number=self.tail.next,
                data=name,
                size=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                after=upto(self.flavor, self.given[:first]).newest(),
                until=upto(self.flavor, self.given[:last]).newest(),
                first=held[0].gtid.text,
                last=held[-1].gtid.text,
                transactions=len(held),
                first_commit=latest,
                last_commit=max(one.committed for one in self.given[:last]),
                source="demo-1",
                description=self.layout.event,
            ),
        )

    def base(self, count: int) -> Position:
        return upto(self.flavor, self.given[:count])


@asynccontextmanager
async def kept(flavor: Flavor) -> AsyncIterator[Kept]:
    with tempfile.TemporaryDirectory() as root:
        async with open_store(Target(directory=Directory(path=root)), secrets=no_secrets) as store:
            yield Kept(store, flavor)


cuts = st.sets(st.integers(1, 20), max_size=20).map(lambda found: [*sorted(found), 21])


@FLAVORS
@given(cuts=cuts, base=st.integers(0, 20), more=st.integers(1, 21))
@settings(max_examples=25, deadline=None)
async def test_exactly_what_lies_between_base_and_target_is_written(
    flavor: Flavor, cuts: list[int], base: int, more: int
) -> None:
    goal = min(21, base + more)
    async with kept(flavor) as one:
        await one.chain(0, cuts)
        way = await resolve(one.archive, one.base(base), Goal(gtid=one.given[goal - 1].gtid.text))
        assert way.stop == one.given[goal - 1].gtid.text
        assert way.position.newest() == one.base(goal).newest()
        with tempfile.TemporaryDirectory() as at:
            written = await write_relay(one.archive, way, Path(at))
            files = (Path(at) / INDEX).read_text().split()
            assert files[0] == f"./{FIRST}"
            held = [(Path(at) / name).read_bytes() for name in files]
        # The recording is of two files of the source; in each of ours, places only grow.
        assert len(files) == written.files == (2 if base < 13 < goal else 1)
        rest = [base, 13] if len(files) == 2 else [base]
        for count, begun, ended in zip(rest, rest, [*rest[1:], goal], strict=True):
            head = MAGIC + one.layout.event
            if flavor == "mysql":
                head += previous_gtids(encoded(one.base(count)), one.layout, at=len(head))
            assert held.pop(0) == head + b"".join(t.data for t in one.given[begun:ended])
        assert written.transactions == goal - base


@given(cuts=cuts, base=st.integers(0, 20), goal=st.integers(0, 20), late=st.integers(0, 2))
@settings(max_examples=25, deadline=None)
async def test_a_time_ends_before_the_first_transaction_that_is_later(
    cuts: list[int], base: int, goal: int, late: int
) -> None:
    async with kept("mysql") as one:
        await one.chain(0, cuts)
        at = one.given[goal].committed + late - 1
        latest, expected = 0, 0
        for number, each in enumerate(one.given, 1):
            latest = max(latest, each.committed)
            if latest > at:
                break
            expected = number
        held = [max(each.committed for each in one.given[: n + 1]) for n in range(21)]
        await one.archive.write_seen(Seen(chain=1, until="", complete=held[-1] + 10))
        if expected < base:
            with pytest.raises(Refused, match="later than"):
                await resolve(one.archive, one.base(base), Goal(time=at))
            return
        way = await resolve(one.archive, one.base(base), Goal(time=at))
        assert way.position.newest() == one.base(expected).newest()
        assert way.stop == (one.given[expected - 1].gtid.text if expected > base else "")
        assert way.committed == (held[expected - 1] if expected > base else 0)


async def test_what_mariadb_committed_within_the_second_of_the_target_is_in() -> None:
    async with kept("mariadb") as one:
        await one.chain(0, [5, 21])
        at = one.given[0].committed
        await one.archive.write_seen(Seen(chain=1, until="", complete=at + 10_000_000))
        way = await resolve(one.archive, one.base(3), Goal(time=at + 400_000))
        assert way.stop == one.given[-1].gtid.text
        with pytest.raises(Refused, match="later than"):
            await resolve(one.archive, one.base(3), Goal(time=at - 1))


@FLAVORS
async def test_a_hole_is_refused_with_its_bounds_unless_it_is_allowed(flavor: Flavor) -> None:
    async with kept(flavor) as one:
        await one.chain(0, [4, 8])
        await one.chain(11, [15, 21], reason="SourcePurged")
        before, after = one.base(8).newest(), one.base(11).newest()
        for goal in (Goal(gtid=one.given[14].gtid.text), Goal()):
            with pytest.raises(Refused) as refused:
                await resolve(one.archive, one.base(2), goal)
            assert refused.value.reason == "Gap"
            assert before in refused.value.message
            assert after in refused.value.message
            assert "allowGap" in refused.value.remedy
        within = await resolve(one.archive, one.base(2), Goal(gtid=one.given[7].gtid.text))
        assert within.position.newest() == before
        allowed = await resolve(one.archive, one.base(2), Goal(gtid=one.given[14].gtid.text, allow_gap=True))
        assert allowed.holes == ((before, after),)
        with tempfile.TemporaryDirectory() as at:
            assert (await write_relay(one.archive, allowed, Path(at))).transactions == 6 + 4
        later = await resolve(one.archive, one.base(12), Goal())
        assert (later.holes, later.stop) == ((), one.given[20].gtid.text)


@FLAVORS
async def test_a_base_from_before_the_archive_is_a_hole_too(flavor: Flavor) -> None:
    async with kept(flavor) as one:
        await one.chain(6, [21])
        with pytest.raises(Refused) as refused:
            await resolve(one.archive, one.base(4), Goal())
        assert refused.value.reason == "Gap"
        assert one.base(4).newest() in refused.value.message


@FLAVORS
async def test_a_chain_that_the_cluster_gave_up_is_left_where_its_follower_begins(flavor: Flavor) -> None:
    async with kept(flavor) as one:
        await one.chain(0, [4, 8, 12])
        await one.chain(8, [15, 21], reason="Diverged")
        way = await resolve(one.archive, one.base(2), Goal())
        with tempfile.TemporaryDirectory() as at:
            written = await write_relay(one.archive, way, Path(at))
        assert (written.transactions, way.holes) == (19, ())


@FLAVORS
async def test_targets_outside_of_the_archive_are_refused(flavor: Flavor) -> None:
    async with kept(flavor) as one:
        with pytest.raises(Refused, match="no archive"):
            await resolve(one.archive, Position(), Goal())
        await one.chain(0, [10])
        last = max(each.committed for each in one.given[:10])
        for goal, reason in (
            (Goal(gtid=one.given[12].gtid.text), "NotArchived"),
            (Goal(gtid=one.given[2].gtid.text), "BeforeBase"),
            (Goal(gtid="1-2"), "TargetInvalid"),
            (Goal(gtid=one.base(5).newest() + ":1-7"), "TargetInvalid"),
            (Goal(time=last + 10_000_000), "AfterArchive"),
        ):
            with pytest.raises(Refused) as refused:
                await resolve(one.archive, one.base(5), goal)
            assert refused.value.reason == reason, goal
        await one.archive.write_seen(Seen(chain=1, until="", complete=last + 10_000_000))
        way = await resolve(one.archive, one.base(5), Goal(time=last + 10_000_000))
        assert moment(way.committed) == moment(last)


async def test_a_number_that_another_server_has_in_the_archive_is_refused() -> None:
    async with kept("mariadb") as one:
        await one.chain(0, [21])
        with pytest.raises(Refused, match="in the place of 0-6-9"):
            await resolve(one.archive, Position(), Goal(gtid="0-6-9"))


@FLAVORS
async def test_an_index_without_an_entry_and_data_that_changed_are_found(flavor: Flavor) -> None:
    async with kept(flavor) as one:
        tail = await one.chain(0, [4, 8, 12, 21])
        place = "demo/archive/00000001"
        way = await resolve(one.archive, Position(), Goal())
        name = one.archive.data(tail.chain, tail.entries[1])
        data = await one.archive.store.read(name)

        async def changed() -> AsyncGenerator[bytes, None]:
            yield data[:-1] + bytes([data[-1] ^ 1])

        await one.archive.store.upload(name, changed())
        with (
            tempfile.TemporaryDirectory() as at,
            pytest.raises(Exception, match=r"checksum|not what was written"),
        ):
            await write_relay(one.archive, way, Path(at))

        async def swapped() -> AsyncGenerator[bytes, None]:
            yield b"".join(one.given[at].data for at in (5, 4, 6, 7))

        await one.archive.store.upload(name, swapped())
        with tempfile.TemporaryDirectory() as at, pytest.raises(Corrupt, match="not what was written"):
            await write_relay(one.archive, way, Path(at))
        await one.archive.store.delete(name)
        with tempfile.TemporaryDirectory() as at, pytest.raises(Corrupt, match="does not exist"):
            await write_relay(one.archive, way, Path(at))
        await one.archive.store.delete(f"{place}/entries/{2:012d}.json")
        with pytest.raises(Corrupt, match="segments 2 to 2 are missing"):
            await resolve(one.archive, Position(), Goal())


async def test_of_two_archivers_one_writes_the_next_entry() -> None:
    async with kept("mariadb") as one:
        await one.chain(0, [4])
        other = Kept(one.archive.store, "mariadb")
        other.tail = await other.archive.tail()
        await one.segment(4, 8)
        with pytest.raises(Superseded):
            await other.segment(4, 9)
        with pytest.raises(Superseded):
            await other.archive.begin(Chain(number=1, flavor="mariadb", after="", began=""))


async def test_entries_become_pages_and_the_chain_stays_as_it_was() -> None:
    async with kept("mariadb") as one:
        await one.chain(0, [1])
        assert one.tail is not None
        first = one.tail.entries[0]
        for number in range(2, PAGE + 5):
            # A history of any length: the index does not look into segments.
            before = f"0-91507029-{number - 1}"
            made = Segment(
                number=number, data=first.data, size=first.size, sha256=first.sha256, after=before,
                until=f"0-91507029-{number}", first="", last="", transactions=1, first_commit=1, last_commit=1,
                source="", description=first.description,
            )  # fmt: skip
            await one.archive.append(one.tail, made)
        names = [each.name async for each in one.archive.store.list("demo/archive/00000001/pages")]
        assert names == [f"demo/archive/00000001/pages/{PAGE:012d}.json"]
        entries = [each.name async for each in one.archive.store.list("demo/archive/00000001/entries")]
        assert len(entries) == 4
        again = await one.archive.tail()
        assert again is not None
        assert (again.next, len(again.entries)) == (PAGE + 5, 4)
        assert [each.number async for each in one.archive.segments(again.chain)] == list(range(1, PAGE + 5))
