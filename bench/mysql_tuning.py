"""Tuning from what runs: a change that helps is kept, one that does not is taken back; what the operator said of both.

    python -m bench.mysql_tuning [--window 10] [--image mariadb:10.11] [--out FILE]

A cluster of two on an embedded control plane with the operator in this process, and `tuning: Auto`. Clients group rows, each
query on a connection of its own. First temporary tables are kept so small by hand that all of them go to disk: the operator
makes them larger, and they stay in memory. Then the clients group TEXT columns, whose temporary tables go to disk at any
size: the operator tries a larger one, sees no difference and takes it back. Exit status 1 when it does otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from mooring.kube.objects.events import Event
from mooring.operators.mysql import OPERATOR
from mooring.operators.mysql.dial import Dial, DialError
from mooring.operators.mysql.types import TuningStatus
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage, manifest

__all__ = ["LIMIT", "NEVER_FITS", "SMALL", "Grouping", "main", "prepare", "tuned"]

LIMIT: Final = {"limits": {"memory": "4Gi"}}
SMALL: Final = 65536
"""Bytes of a temporary table, set by hand."""
FITS: Final = "SELECT v, COUNT(*) FROM tuning.fits GROUP BY v LIMIT 1"
NEVER_FITS: Final = "SELECT v, COUNT(*) FROM tuning.never GROUP BY v LIMIT 1"


class Grouping:
    """Clients that repeat a query, which may be exchanged, each time on a new connection: sizes count from its begin."""

    def __init__(self, stage: MySQLStage, *, clients: int = 2) -> None:
        self.query = FITS
        self.answered = 0
        self._stage = stage
        self._clients = clients

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Grouping]:
        """They work all through the block."""
        tasks = [asyncio.create_task(self._work()) for _ in range(self._clients)]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def rate(self, seconds: float) -> float:
        """Queries a second."""
        before, began = self.answered, time.monotonic()
        await asyncio.sleep(seconds)
        return (self.answered - before) / (time.monotonic() - began)

    async def _work(self) -> None:
        dial, login = Dial(), await self._stage.login("root")
        address = await self._stage.address(await self._stage.primary())
        try:
            while True:
                with suppress(DialError):
                    async with dial.open(address, login) as link:
                        await link.query(self.query, timeout=10.0)
                        self.answered += 1
                dial.forget(address)
        finally:
            dial.close()


async def prepare(stage: MySQLStage) -> None:
    """The tables, and temporary tables that are small by hand on every server."""
    primary = await stage.primary()
    await stage.query(primary, "CREATE DATABASE tuning")
    await stage.query(primary, "CREATE TABLE tuning.fits (k INT PRIMARY KEY, v VARCHAR(100))")
    await stage.query(primary, "CREATE TABLE tuning.never (k INT PRIMARY KEY, v TEXT)")
    values = ", ".join(f"({number}, '{number:0>60}')" for number in range(2000))
    for table in ("fits", "never"):
        await stage.query(primary, f"INSERT INTO tuning.{table} VALUES {values}")
    for pod in await stage.pods():
        for variable in ("tmp_table_size", "max_heap_table_size"):
            await stage.query(pod.metadata.name or "", f"SET GLOBAL {variable} = {SMALL}")


async def tuned(
    stage: MySQLStage, reached: Callable[[TuningStatus], bool], what: str, *, within: float
) -> TuningStatus:
    """Wait until status.tuning says so."""

    found = TuningStatus()

    async def there() -> bool:
        nonlocal found
        found = (await stage.status()).tuning or TuningStatus()
        return reached(found)

    await stage.bed.until(there, what, within=within)
    return found


async def measure(stage: MySQLStage, *, window: float, say: Callable[[str], None]) -> bool:
    """One change that helps, and one that does not."""
    patience = 60 + 12 * window
    await prepare(stage)
    async with Grouping(stage).running() as work:
        before = await work.rate(window)
        say(f"temporary tables of {SMALL} bytes: {before:.0f} queries a second")
        await stage.patch({"tuning": "Auto"})
        kept = await tuned(stage, lambda one: bool(one.applied), "a change is kept", within=patience)
        since = await work.rate(window)
        result = (kept.applied or {})["tmp"]
        say(f"kept {result.value}: {since:.0f} queries a second. {result.evidence}")
        work.query = NEVER_FITS
        back = await tuned(stage, lambda one: bool(one.rejected), "a change is taken back", within=patience)
        bad = (back.rejected or {})["tmp"]
        say(f"taken back {bad.value}: {bad.evidence}")
    values = {await stage.value(pod.metadata.name or "", "tmp_table_size") for pod in await stage.pods()}
    say(f"tmp_table_size of every server: {', '.join(sorted(values))}")
    events = (await stage.bed.client.list(Event, namespace=stage.namespace)).items
    for one in sorted(events, key=lambda one: one.metadata.creation_timestamp or ""):
        if (one.reason or "").startswith("Tuning"):
            say(f"{one.reason}: {one.note}")
    return since > before and values == {str(result.value)} and bad.value != result.value


async def run(options: argparse.Namespace, say: Callable[[str], None]) -> bool:
    """A bed of its own, which leaves nothing."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(directory, operators=[OPERATOR]) as bed:
            stage = MySQLStage(bed, "demo")
            window = {"tuningWindowSeconds": options.window}
            await bed.apply(manifest("demo", size=2, image=options.image, resources=LIMIT, **window))
            await stage.exact(within=120)
            return await measure(stage, window=options.window, say=say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.mysql_tuning", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--window", type=int, default=10, metavar="SECONDS", help="of each measurement")
    parser.add_argument("--image", default="mariadb:10.11")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the trace, as it is printed")
    options = parser.parse_args(arguments)
    configure_logging(level="warning")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    good = asyncio.run(run(options, say))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
