"""Rows whose moments are known: what the primary had after each, and when it was written.

rows = TimedRows(stage)
await rows.write(30)
goal = rows.transaction(25)  # a cluster restored to it has the rows 1 to 25, and no other
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import aiohttp
import msgspec

from mooring.kube.objects.core import Pod
from mooring.operators.mysql.archive.agent import STATUS
from mooring.operators.mysql.archive.archiver import Report
from mooring.operators.mysql.dial import Dial, DialError, Link
from mooring.operators.mysql.gtid import Position, parse
from mooring.operators.mysql.names import ARCHIVE, ARCHIVE_PORT, CLUSTER
from mooring.testing.bed import NotInTime
from mooring.testing.mysql_stage import MySQLStage

__all__ = ["TimedRows", "archive_report", "on_primary", "rows_of"]


@asynccontextmanager
async def on_primary(stage: MySQLStage) -> AsyncIterator[Link]:
    """Root on the primary. Not by its Service, which follows a failover a moment later."""
    dial, host = Dial(), await stage.address(await stage.primary())
    async with dial.open(host, await stage.login("root")) as link:
        yield link


async def rows_of(stage: MySQLStage) -> list[int]:
    """The rows that a cluster has, in their order."""
    async with on_primary(stage) as link:
        return [row["id"] for row in await link.query("SELECT id FROM shop.log ORDER BY id")]


async def archive_report(stage: MySQLStage) -> Report | None:
    """What the archiver of a cluster says itself, if it answers; the status has it once a minute."""
    pods = await stage.bed.client.list(
        Pod, namespace="default", label_selector=f"app.kubernetes.io/name={ARCHIVE},{CLUSTER}={stage.name}"
    )
    for pod in pods.items:
        if pod.status is not None and pod.status.pod_ip:
            with suppress(aiohttp.ClientError):
                async with aiohttp.request(
                    "GET", f"http://{pod.status.pod_ip}:{ARCHIVE_PORT}{STATUS}"
                ) as answer:
                    return msgspec.json.decode(await answer.read(), type=Report)
    return None


class TimedRows:
    """One client that writes a row in each transaction, numbered from 1; nobody else may write meanwhile."""

    def __init__(self, stage: MySQLStage) -> None:
        self.stage = stage
        self.positions: list[Position] = []
        """What the primary had after each row."""
        self.begun: list[datetime] = []
        """Before the statement of each row."""
        self.times: list[datetime] = []
        """After its acknowledgement."""

    async def write(self, count: int) -> None:
        """So many more rows, on the server that leads now."""
        async with on_primary(self.stage) as link:
            await self._prepare(link)
            for _ in range(count):
                await self._insert(link)

    @asynccontextmanager
    async def going(self, *, every: float) -> AsyncIterator[None]:
        """Write a row every ``every`` seconds while the block runs, on the server that leads."""
        async with on_primary(self.stage) as link:
            await self._prepare(link)
        stop = asyncio.Event()
        task = asyncio.create_task(self._go(stop, every))
        try:
            yield
        finally:
            stop.set()
            await task

    async def _go(self, stop: asyncio.Event, every: float) -> None:
        while not stop.is_set():
            with suppress(DialError, NotInTime):
                async with on_primary(self.stage) as link:
                    await self._resume(link)
                    while not stop.is_set():
                        await self._insert(link)
                        await asyncio.sleep(every)
            await asyncio.sleep(0.1)

    async def _resume(self, link: Link) -> None:
        """Learn whether the row that was under way when the connection ended is there: then it is the newest."""
        row = await link.one("SELECT COUNT(*) AS n FROM shop.log")
        if row["n"] == len(self.positions) + 1:
            await self._noted(link)
        elif row["n"] != len(self.positions):
            raise AssertionError(f"{row['n']} rows where {len(self.positions)} were acknowledged")
        del self.begun[len(self.positions) :]

    async def _insert(self, link: Link) -> None:
        self.begun.append(datetime.now(UTC))
        await link.query(f"INSERT INTO shop.log VALUES ({len(self.positions) + 1})")  # noqa: S608 - a number
        await self._noted(link)

    async def _noted(self, link: Link) -> None:
        variable = "gtid_binlog_pos" if self.stage.flavor == "mariadb" else "gtid_executed"
        row = await link.one(f"SELECT @@GLOBAL.{variable} AS p")
        self.positions.append(parse(self.stage.flavor, str(row["p"])))
        self.times.append(datetime.now(UTC))

    async def _prepare(self, link: Link) -> None:
        await link.query("CREATE DATABASE IF NOT EXISTS shop")
        await link.query("CREATE TABLE IF NOT EXISTS shop.log (id INT PRIMARY KEY)")

    def transaction(self, number: int) -> str:
        """The GTID of the transaction that wrote a row."""
        position = self.positions[number - 1]
        if self.stage.flavor == "mariadb":
            return position.newest()
        return (position - self.positions[number - 2]).text()

    def most_at(self, moment: datetime) -> int:
        """How many rows at most were committed by then, by the clock of a server that notes whole seconds."""
        return sum(1 for at in self.begun if at.replace(microsecond=0) <= moment)

    def least_at(self, moment: datetime) -> int:
        """How many were acknowledged by then."""
        return sum(1 for at in self.times if at <= moment)
