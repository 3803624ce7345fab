"""A writer that remembers, for MySQL and MariaDB: every row that a client was told is committed, and what is left of them.

    mooring ledger --mysql demo-primary.default.svc --user app --password-file secret --writers 4 --seconds 60

Each write is one INSERT of a row of its own, autocommitted, by one of several clients that connect through the Service of the
primary. A client keeps its connection until an error and then connects again, as plain ones do. What the server did not
confirm is not counted, whether it is there or not.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from mooring.operators.mysql.dial import Dial, DialError, Link, Login, SqlError
from mooring.testing.ledger import Outage, Report

__all__ = ["DATABASE", "MySQLLedger", "RowReport"]

DATABASE = "mooring_ledger"
PREPARED_WITHIN = 30.0
"""Seconds to find a primary that takes writes."""


@dataclass(frozen=True, kw_only=True)
class RowReport(Report):
    """What a run amounted to, in rows."""

    def text(self) -> str:
        """The report for people."""
        lines = [
            f"rows tried       {self.written}",
            f"committed        {self.acknowledged}, lost {self.lost_acknowledged} of {self.lost_seconds:.2f} s",
            f"longest gap      {self.longest_gap:.2f} s",
        ]
        return "\n".join([*lines, *self.details()])


class MySQLLedger:
    """Writes until stopped, then checks; one per run.

    ``table`` is DATABASE.TABLE, made where it is missing. ``where`` gives the host to connect to, asked at each connect; ``clients`` write at once, each ``rate`` rows a second (0: as
    fast as they are answered). A statement that is not answered for ``patience`` seconds is given up. A gap counts from
    ``gap_from`` seconds without any confirmed row.
    """

    #: What `check` raises when no server could be asked.
    unanswered: ClassVar = (DialError,)

    def __init__(
        self,
        where: Callable[[], Awaitable[str]],
        login: Login,
        *,
        clients: int = 4,
        rate: float = 50.0,
        patience: float = 1.0,
        gap_from: float = 0.3,
        port: int = 3306,
        table: str = "",
    ) -> None:
        self._where = where
        self.login = login
        self._table = ".".join(f"`{part}`" for part in (table or f"{DATABASE}.written").split("."))
        self._clients = clients
        self._interval = 1.0 / rate if rate else 0.0
        self._patience = patience
        self._gap_from = gap_from
        self._dial = Dial(connect_timeout=patience, reply_timeout=patience, port=port)
        self._run = secrets.randbits(24) << 32
        self._acknowledged: dict[int, float] = {}
        self._written = 0
        self._failed_twice = 0
        self._errors: dict[str, int] = {}
        self._started = self._last = 0.0
        self._last_error = ""
        self._longest = 0.0
        self._outages: list[Outage] = []
        self._stop = asyncio.Event()

    @property
    def acknowledged(self) -> int:
        """Rows confirmed so far."""
        return len(self._acknowledged)

    @property
    def failed_twice(self) -> int:
        """Rows that failed, and failed again on a new connection: what a client that retries once would notice."""
        return self._failed_twice

    @property
    def longest_gap(self) -> float:
        """The longest time without a confirmed row so far, in seconds."""
        return self._longest

    @property
    def silence(self) -> float:
        """Seconds since the last confirmed row."""
        return monotonic() - self._last

    def reset_gap(self) -> None:
        """Measure the longest gap from now."""
        self._longest, self._failed_twice = 0.0, 0
        self._outages.clear()
        self._errors.clear()

    def stop(self) -> None:
        """End the writing after the writes under way."""
        self._stop.set()

    async def write(self, seconds: float | None = None) -> None:
        """Write until `stop`, or for so long."""
        await self._prepare()
        self._started = self._last = monotonic()
        end = self._started + seconds if seconds else float("inf")
        await asyncio.gather(*(self._client(end) for _ in range(self._clients)))
        self._gap(monotonic())

    async def _prepare(self) -> None:
        """The table, once there is a primary that takes writes; raises `DialError` when there is none in time."""
        until = monotonic() + PREPARED_WITHIN
        while True:
            try:
                async with self._dial.open(await self._where(), self.login, timeout=5.0) as link:
                    await link.query(f"CREATE DATABASE IF NOT EXISTS {self._table.partition('.')[0]}")
                    await link.query(
                        f"CREATE TABLE IF NOT EXISTS {self._table} (id BIGINT PRIMARY KEY, at DOUBLE) ENGINE=InnoDB"
                    )
                    return
            except DialError as error:
                self._note(error)
                if self._stop.is_set() or monotonic() > until:
                    raise
                await asyncio.sleep(0.05)

    async def _client(self, end: float) -> None:
        tries = 0
        while not self._stop.is_set() and monotonic() < end:
            try:
                async with self._dial.open(await self._where(), self.login, timeout=self._patience) as link:
                    while not self._stop.is_set() and monotonic() < end:
                        if not tries:
                            self._written += 1
                        self._run += 1
                        await self._insert(link, self._run)
                        tries = 0
                        if self._interval:
                            await self._pause(self._interval)
            except DialError as error:
                self._note(error)
                tries += 1
                if tries == 2:
                    self._failed_twice += 1
                await self._pause(0.02)

    async def _insert(self, link: Link, number: int) -> None:
        await link.query(f"INSERT INTO {self._table} (id, at) VALUES ({number}, {monotonic()})")  # noqa: S608
        now = monotonic()
        self._gap(now)
        self._last = now
        self._last_error = ""
        self._acknowledged[number] = now

    def _gap(self, now: float) -> None:
        gap = now - self._last
        self._longest = max(self._longest, gap)
        if gap >= self._gap_from:
            self._outages.append(Outage(at=self._last - self._started, seconds=gap, error=self._last_error))

    def _note(self, error: DialError) -> None:
        kind = f"error {error.code}" if isinstance(error, SqlError) else error.word
        self._errors[kind] = self._errors.get(kind, 0) + 1
        self._last_error = str(error)

    async def _pause(self, seconds: float) -> None:
        if not self._stop.is_set():
            await asyncio.sleep(seconds)

    async def check(self, *, patience: float = 30.0, at: str = "") -> RowReport:
        """Read the rows back from the primary, or from the server ``at`` a host; waits so long for an answer."""
        deadline = monotonic() + patience
        while True:
            try:
                async with self._dial.open(at or await self._where(), self.login, timeout=20.0) as link:
                    rows = await link.query(f"SELECT id FROM {self._table}")  # noqa: S608
                break
            except DialError:
                if monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
        there = {int(row["id"]) for row in rows}
        lost = sorted(one for one in self._acknowledged if one not in there)
        times = [self._acknowledged[one] for one in lost]
        return RowReport(
            written=self._written,
            acknowledged=len(self._acknowledged),
            confirmed=len(self._acknowledged),
            lost_acknowledged=len(lost),
            lost_confirmed=len(lost),
            longest_gap=round(self._longest, 3),
            lost_seconds=round(max(times) - min(times), 3) if times else 0.0,
            outages=tuple(self._outages),
            lost_keys=tuple(map(str, lost[:20])),
            errors=dict(self._errors),
        )
