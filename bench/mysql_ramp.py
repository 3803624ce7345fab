"""A MySQL cluster whose number of servers follows a ramp of connections: prints a trace, one line per change.

    python -m bench.mysql_ramp [--image mariadb:10.11] [--target 10] [--window 10]

A cluster of 3 to 5 servers on an embedded control plane. Clients connect to the replicas until the load calls for a fifth
server, stay, and leave. Exit status 1 when the servers did not go from 3 to 5 and back.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from mooring.operators.mysql import OPERATOR
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage, manifest

__all__ = ["main"]

#: Servers that hold nothing.
SMALL = {"innodb_buffer_pool_size": "16M", "innodb_log_file_size": "16M"}
WITHIN = 300.0
"""Seconds for each direction."""


class Trace:
    """What changed, and when."""

    def __init__(self, stage: MySQLStage) -> None:
        self.stage, self.began = stage, time.monotonic()
        self.clients = 0
        self.sizes: list[int] = []
        self._last: tuple[object, ...] = ()

    async def look(self) -> int:
        """Print a line where something changed; returns the servers that serve."""
        status = await self.stage.status()
        chosen = status.autoscale
        wish = f"{chosen.desired}" if chosen is not None and chosen.desired is not None else "-"
        away = [f"{one.name} {one.state}" for one in status.instances or () if one.state != "Online"]
        now = (self.clients, chosen.replicas if chosen else None, wish, status.available_replicas, *away)
        if now != self._last:
            self._last = now
            passed = f"{time.monotonic() - self.began:6.0f} s"
            line = f"{passed}  {now[0]:7}  {wish:>10}  {now[1]!s:>8}  {now[3]!s:>7}  {', '.join(away)}"
            print(line.rstrip(), flush=True)
        if chosen is not None and chosen.replicas and self.sizes[-1:] != [chosen.replicas]:
            self.sizes.append(chosen.replicas)
        return status.available_replicas or 0

    async def until(self, servers: int) -> None:
        """Look each half second until so many serve and no other number is called for."""
        deadline = time.monotonic() + WITHIN
        while await self.look() != servers or self.sizes[-1:] != [servers]:
            if time.monotonic() > deadline:
                raise SystemExit(f"{servers} servers did not serve within {WITHIN:.0f} s")
            await asyncio.sleep(0.5)


async def ramp(options: argparse.Namespace, directory: Path) -> list[int]:
    """Three, five, three; the numbers that the load called for, in order."""
    async with Bed(directory, operators=[OPERATOR]) as bed:
        window = {"stabilizationSeconds": options.window}
        policy = {
            "minReplicas": 3,
            "maxReplicas": 5,
            "metrics": [{"type": "Connections", "target": options.target}],
            "scaleUp": window,
            "scaleDown": window,
        }
        stage = MySQLStage(bed, "ramp")
        await bed.apply(manifest("ramp", size=3, image=options.image, config=SMALL, autoscale=policy))
        await stage.exact(within=300)
        trace = Trace(stage)
        print("    time  clients  called for  in force  serving  not serving")
        await trace.until(3)
        async with AsyncExitStack() as stack:
            step = options.target
            for _ in range(4):  # 4 times the target on two replicas: twice the target each
                await stack.enter_async_context(stage.connected(step))
                trace.clients += step
                for _ in range(8):
                    await trace.look()
                    await asyncio.sleep(0.5)
            await trace.until(5)
        trace.clients = 0
        await trace.until(3)
        await stage.exact(within=120)
        return trace.sizes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="mysql_ramp", description=__doc__.partition("\n")[0])
    parser.add_argument("--image", default="mariadb:10.11")
    parser.add_argument("--target", type=int, default=10, help="connections per replica (10)")
    parser.add_argument("--window", type=int, default=10, help="stabilizationSeconds of both directions (10)")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    directory = Path(tempfile.mkdtemp(prefix="mooring-ramp-"))
    try:
        sizes = asyncio.run(ramp(options, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if (sizes[0], max(sizes), sizes[-1]) == (3, 5, 3) else 1


if __name__ == "__main__":
    sys.exit(main())
