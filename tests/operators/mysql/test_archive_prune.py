"""What is deleted of an archive, and that every kept backup can still be continued from what is left."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.mysql.test_archive_events import FLAVORS
from tests.operators.mysql.test_archive_target import Kept, kept

from mooring.objectstore import NotFound
from mooring.operators.backup.layout import backup_prefix
from mooring.operators.backup.manifest import Manifest, ManifestError, encode_manifest
from mooring.operators.mysql.archive import agent, store
from mooring.operators.mysql.archive.prune import prune
from mooring.operators.mysql.archive.store import Chain, Segment
from mooring.operators.mysql.archive.target import Goal, Refused, resolve, transactions
from mooring.operators.mysql.topology import Flavor

BACKUPS = "demo/backups"
LATER = datetime(2100, 1, 1, tzinfo=UTC)
"""Long after all that was recorded."""
PAGE = 4


async def back_up(one: Kept, count: int, *, began: datetime = LATER) -> str:
    """A backup that has the first so many transactions."""
    identity = f"20260101T0000{count:02d}Z-0a1b2c3d"
    manifest = Manifest(
        id=identity, operator="mysql", began=began, finished=began, parts=[],
        facts={"position": one.base(count).newest()},
    )  # fmt: skip
    prefix = backup_prefix("demo", identity)
    await one.archive.store.create(f"{prefix}/manifest.json", encode_manifest(manifest))
    return prefix


async def numbers(one: Kept) -> list[int]:
    return [each.number for each in await segments(one)]


async def segments(one: Kept) -> list[Segment]:
    chains = await one.archive.chains()
    return [each async for each in one.archive.segments(chains[-1])]


async def objects(one: Kept) -> list[str]:
    return [each.name async for each in one.archive.store.list("demo/archive")]


cuts = st.sets(st.integers(1, 20), max_size=20).map(lambda found: [*sorted(found), 21])


@FLAVORS
@given(cuts=cuts, bases=st.lists(st.integers(1, 20), min_size=1, max_size=3))
@settings(max_examples=10, deadline=None)
async def test_every_kept_backup_can_still_be_continued_to_every_moment(
    flavor: Flavor, cuts: list[int], bases: list[int]
) -> None:
    async with kept(flavor) as one:
        await one.chain(0, cuts)
        for base in set(bases):
            await back_up(one, base)
        await prune(one.archive, BACKUPS)
        oldest = min(bases)
        gone = sum(1 for cut in cuts[:-1] if cut <= oldest)
        assert await numbers(one) == list(range(gone + 1, len(cuts) + 1))
        for base in bases:
            for goal in {base + 1, (base + 22) // 2, 21}:
                way = await resolve(one.archive, one.base(base), Goal(gtid=one.given[goal - 1].gtid.text))
                found = [k.ends.text async for _, k in transactions(one.archive, way) if k.ends is not None]
                assert found == [each.gtid.text for each in one.given[base:goal]]


async def test_what_is_older_is_deleted_and_a_restore_over_it_refused() -> None:
    async with kept("mariadb") as one:
        await one.chain(0, list(range(1, 22)))
        assert len(await objects(one)) == 1 + 2 * 21
        await back_up(one, 10)
        chain = await prune(one.archive, BACKUPS)
        assert chain is not None
        assert (chain.pruned, chain.after) == (10, one.base(10).newest())
        assert len(await objects(one)) == 2 + 2 * 11
        with pytest.raises(Refused, match="are missing between"):
            await resolve(one.archive, one.base(3), Goal(gtid=one.given[15].gtid.text))


async def test_the_archive_goes_on_after_it_was_pruned() -> None:
    async with kept("mysql") as one:
        await one.chain(0, [5, 10, 15])
        await back_up(one, 12)
        await prune(one.archive, BACKUPS)
        tail = await one.archive.tail()
        assert tail is not None
        assert (tail.next, tail.chain.pruned) == (4, 2)
        one.tail = tail
        await one.segment(15, 21)
        assert await numbers(one) == [3, 4]


async def test_a_pruning_that_ended_half_way_is_done_by_the_next_one() -> None:
    async with kept("mariadb") as one:
        await one.chain(0, list(range(1, 22)))
        await back_up(one, 10)
        (chain,) = await one.archive.chains()
        lost = one.archive.data(chain, (await segments(one))[4])
        deleting, one.archive.store.delete = one.archive.store.delete, fails  # type: ignore[method-assign]
        with pytest.raises(NotFound):
            await prune(one.archive, BACKUPS)
        one.archive.store.delete = deleting  # type: ignore[method-assign]
        assert await numbers(one) == list(range(11, 22))
        await back_up(one, 20)
        await one.archive.store.delete(f"{backup_prefix('demo', '20260101T000010Z-0a1b2c3d')}/manifest.json")
        await prune(one.archive, BACKUPS)
        assert lost not in await objects(one)
        assert await numbers(one) == [21]


async def fails(name: str) -> None:
    raise NotFound(name)


async def test_nothing_is_deleted_where_it_cannot_be_told_what_is_needed() -> None:
    async with kept("mariadb") as one:
        await one.chain(0, list(range(1, 22)))
        before = await objects(one)
        assert await prune(one.archive, BACKUPS) is None
        # It began just after the transactions: one that is being made may be older.
        last = datetime.fromtimestamp(one.given[-1].committed / 1e6, UTC)
        recent = await back_up(one, 20, began=last + timedelta(minutes=59))
        assert await prune(one.archive, BACKUPS) is None
        await one.archive.store.delete(f"{recent}/manifest.json")
        await back_up(one, 20)
        await one.archive.store.create(f"{BACKUPS}/20260101T000000Z-0a1b2c3d/manifest.json", b"{}")
        with pytest.raises(ManifestError):
            await prune(one.archive, BACKUPS)
        assert await objects(one) == before


async def test_a_chain_goes_as_a_whole_once_every_backup_is_later_than_its_successor() -> None:
    async with kept("mysql") as one:
        await one.chain(0, [4, 8])
        await one.chain(12, [16, 21], reason="SourcePurged")
        await back_up(one, 6)
        await prune(one.archive, BACKUPS)
        assert [each.number for each in await one.archive.chains()] == [1, 2]
        await one.archive.store.delete(f"{backup_prefix('demo', '20260101T000006Z-0a1b2c3d')}/manifest.json")
        await back_up(one, 13)
        await prune(one.archive, BACKUPS)
        assert [each.number for each in await one.archive.chains()] == [2]
        assert not [name for name in await objects(one) if "/00000001/" in name]


@pytest.mark.parametrize("done", range(9))
async def test_a_chain_that_was_half_deleted_is_deleted_by_the_next_pruning(
    done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PAGE", 2)
    async with kept("mysql") as one:
        await one.chain(0, [2, 4, 6, 8, 10])
        await back_up(one, 3)
        await prune(one.archive, BACKUPS)
        await one.chain(12, [16, 21], reason="SourcePurged")
        await one.archive.store.delete(f"{backup_prefix('demo', '20260101T000003Z-0a1b2c3d')}/manifest.json")
        await back_up(one, 13)
        deleting, left = one.archive.store.delete, done

        async def ends(name: str) -> None:
            nonlocal left
            if left == 0:
                raise NotFound(name)
            left -= 1
            await deleting(name)

        one.archive.store.delete = ends  # type: ignore[method-assign]
        with pytest.raises(NotFound):
            await prune(one.archive, BACKUPS)
        one.archive.store.delete = deleting  # type: ignore[method-assign]
        await prune(one.archive, BACKUPS)
        assert [each.number for each in await one.archive.chains()] == [2]
        assert not [name for name in await objects(one) if "/00000001/" in name]


async def test_pages_of_the_index_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAGE", PAGE)
    async with kept("mariadb") as one:
        await one.chain(0, [1])
        tail = await one.archive.tail()
        assert tail is not None
        whole = tail.last
        assert whole is not None
        # Entries are all that counts here: of one transaction, again and again.
        for number in range(2, 2 * PAGE + 3):
            await one.archive.append(tail, replaced(whole, number=number, after=whole.until))
        await back_up(one, 1)
        await prune(one.archive, BACKUPS)
        assert await numbers(one) == [2 * PAGE + 2]
        assert not [name for name in await objects(one) if "/pages/" in name]
        again_tail = await one.archive.tail()
        assert again_tail is not None
        assert again_tail.next == 2 * PAGE + 3


def replaced(segment: Segment, *, number: int, after: str) -> Segment:
    return Segment(
        **{name: getattr(segment, name) for name in Segment.__struct_fields__ if name not in ("number", "after")},
        number=number, after=after,
    )  # fmt: skip


async def test_the_archiver_prunes_and_reports_where_its_chain_begins_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent, "_PRUNE_EVERY", 0.01)
    told: asyncio.Queue[Chain] = asyncio.Queue()
    async with kept("mariadb") as one:
        await one.chain(0, [5, 10, 15, 21])
        await back_up(one, 12)
        archiver: Any = SimpleNamespace(archive=one.archive, pruned=told.put_nowait)
        pruning = asyncio.create_task(agent._prune_on(archiver, "demo/archive"))
        try:
            assert (await asyncio.wait_for(told.get(), 30)).pruned == 2
        finally:
            pruning.cancel()
            await asyncio.gather(pruning, return_exceptions=True)
        assert await numbers(one) == [3, 4]
