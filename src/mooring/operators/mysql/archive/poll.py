"""The archivers of all clusters, asked every few seconds how far they are. Nothing is decided here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

import aiohttp
import msgspec

from mooring.kube.object import Key
from mooring.operators.mysql.archive.agent import STATUS
from mooring.operators.mysql.archive.archiver import Report
from mooring.operators.mysql.archive.shown import Heard
from mooring.operators.mysql.names import ARCHIVE_PORT
from mooring.runtime import Manager

__all__ = ["Archivers"]

PERIOD: Final = 5.0
"""Seconds between two questions."""
_ANSWER: Final = 3.0
_LARGEST: Final = 1 << 16
"""Bytes of an answer."""


@dataclass
class _Asked:
    """What is known of one archiver."""

    host: str
    report: Report | None = None
    since: float = 0.0
    """When it answered last, or was first asked."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Archivers:
    """One task for each; ``wake`` brings the next pass over a cluster forward when the state of its archive changes."""

    def __init__(
        self,
        manager: Manager,
        wake: Callable[[Key], None],
        *,
        port: int = ARCHIVE_PORT,
        period: float = PERIOD,
    ) -> None:
        self._wake = wake
        self._port = port
        self._period = period
        self._asked: dict[Key, _Asked] = {}
        self._complete = manager.metrics.gauge(
            "mooring_mysql_archive_complete_timestamp_seconds",
            "Up to when the archive of the binary log has everything; before the first answer, what the status recorded.",
            ["namespace", "name"],
        )

    def follow(self, key: Key, host: str, *, recorded: datetime) -> Heard:
        """Ask the archiver at this address from now on, "" for none yet; what it said last.

        ``recorded`` is up to when the archive was complete as far as the status says.
        """
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked("", since=monotonic())
            self._complete.labels(*key).set(recorded.timestamp())
        if asked.host != host or asked.task is None or asked.task.done():
            if asked.task is not None:
                asked.task.cancel()
            asked.host, asked.report = host, None
            asked.task = (
                asyncio.create_task(self._ask(key, asked, host), name=f"archive of {key}") if host else None
            )
        return Heard(report=asked.report, silent=monotonic() - asked.since)

    def forget(self, key: Key) -> None:
        """The cluster is gone, has no archive, or another process manages it."""
        asked = self._asked.pop(key, None)
        if asked is None:
            return
        if asked.task is not None:
            asked.task.cancel()
        with suppress(KeyError):
            self._complete.remove(*key)

    def close(self) -> None:
        """End all tasks."""
        for key in list(self._asked):
            self.forget(key)

    async def serve(self) -> None:
        """Until cancelled; ends all tasks then."""
        try:
            await asyncio.Event().wait()
        finally:
            self.close()

    async def _ask(self, key: Key, asked: _Asked, host: str) -> None:
        url = (
            f"http://[{host}]:{self._port}{STATUS}" if ":" in host else f"http://{host}:{self._port}{STATUS}"
        )
        timeout = aiohttp.ClientTimeout(total=_ANSWER)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            while True:
                report = await self._read(session, url)
                before, asked.report = asked.report, report
                if report is not None:
                    asked.since = monotonic()
                    with suppress(ValueError):
                        complete = datetime.fromisoformat(report.complete)
                        self._complete.labels(*key).set(complete.timestamp())
                if _told(before) != _told(report):
                    self._wake(key)
                await asyncio.sleep(self._period)

    async def _read(self, session: aiohttp.ClientSession, url: str) -> Report | None:
        with suppress(aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
            async with session.get(url, allow_redirects=False) as answer:
                if answer.status == 200 and (answer.content_length or _LARGEST) < _LARGEST:
                    return msgspec.json.decode(await answer.read(), type=Report)
        return None


def _told(report: Report | None) -> tuple[str, str, object]:
    return (report.state, report.reason, report.gap) if report is not None else ("", "", None)
