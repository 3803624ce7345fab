"""What the archiver reports of itself, by recorded events in the place of servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.operators.mysql.test_archive_events import RECORDED, recorded
from tests.operators.mysql.test_archive_target import Kept, kept

from mooring.objectstore.errors import OutOfSpace
from mooring.operators.mysql.archive import archiver as module
from mooring.operators.mysql.archive.archiver import Archiver
from mooring.operators.mysql.archive.shown import Heard, shown
from mooring.operators.mysql.archive.sources import Candidate
from mooring.operators.mysql.archive.store import Seen
from mooring.operators.mysql.gtid import Position, parse
from mooring.operators.mysql.types import ArchiveStatus
from mooring.testing import Timeline

SERVER = Candidate(
    address="10.0.0.1",
    server_id=1,
    version="10.11",
    read_only=False,
    acknowledges=False,
    waits=False,
    executed=parse("mariadb", RECORDED["mariadb"][1]),
)


class Recording:
    """A server that sends what was recorded, then heartbeats."""

    def __init__(self, clock: Timeline, *, silent: bool) -> None:
        self._clock = clock
        events = recorded("mariadb")
        self._heartbeat = next(one for one in events if one[4] == 27)
        self._left = [] if silent else events

    async def next(self) -> bytes:
        if self._left:
            return self._left.pop(0)
        await self._clock.sleep(1.0)
        return self._heartbeat

    def hold(self) -> None:
        """Nothing waits here."""


@pytest.fixture
def archiving(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes archivers of one server."""

    def make(one: Kept, clock: Timeline, *, silent: bool = False) -> Archiver:
        @asynccontextmanager
        async def follow(*_: object, **__: object) -> AsyncIterator[Recording]:
            yield Recording(clock, silent=silent)

        async def look() -> list[Candidate]:
            return [SERVER]

        async def begins_after(*_: object, **__: object) -> Position:
            return Position()

        monkeypatch.setattr(module, "follow", follow)
        monkeypatch.setattr(module, "begins_after", begins_after)
        sources: Any = SimpleNamespace(look=look, dial=None, login=lambda: None)
        return Archiver(one.archive, sources, flavor="mariadb", server_id=9, clock=clock)

    return make


async def test_an_archive_that_cannot_be_written_is_reported_and_does_not_count_as_working_between_tries(
    archiving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Timeline() as clock:
        async with kept("mariadb") as one:
            made, full, whole = archiving(one, clock), True, one.archive.store.upload
            statuses: list[ArchiveStatus | None] = [None]

            async def upload(*args: Any, **options: Any) -> Any:
                if not full:
                    return await whole(*args, **options)
                async for _ in args[1]:
                    pass
                raise OutOfSpace("the volume is full")

            monkeypatch.setattr(one.archive.store, "upload", upload)
            task = asyncio.create_task(made.run())

            async def looked_at(seconds: int) -> list[str]:
                for _ in range(seconds):
                    await clock.sleep(1.0)
                    now = shown(statuses[-1], Heard(report=made.report), prefix="x", now=clock.now())
                    if now is not statuses[-1]:
                        statuses.append(now)
                return [each.state for each in statuses if each is not None]

            try:
                assert await looked_at(120) == ["Archiving", "Stalled"]
                assert statuses[-1] is not None
                assert statuses[-1].reason == "OutOfSpace"
                full = False
                assert await looked_at(120) == ["Archiving", "Stalled", "Archiving"]
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("caught_up", [True, False])
async def test_an_archiver_that_begins_again_knows_how_far_behind_the_archive_is(
    archiving: Any, caught_up: bool
) -> None:
    with Timeline() as clock:
        async with kept("mariadb") as one:
            await one.chain(0, [21 if caught_up else 20])
            complete = int(clock.now().timestamp() - 3600) * 1_000_000
            await one.archive.write_seen(Seen(chain=1, until=one.base(20).newest(), complete=complete))
            made = archiving(one, clock, silent=True)
            task = asyncio.create_task(made.run())
            try:
                await clock.sleep(20.0)
                assert made.report.state == "Archiving"
                lag = made.report.lag_seconds
                assert lag is not None
                assert lag < 30 if caught_up else lag >= 3600
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
