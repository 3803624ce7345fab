"""A Redis Cluster whose number of masters follows a ramp of data: prints a trace, one line per change.

    python -m bench.cluster_ramp [--image redis:7.0] [--target 60] [--window 10] [--maxmemory 64]

A cluster of 6 to 10 nodes on an embedded control plane. Keys are written under a writer whose acknowledged writes are
checked in the end, until the load calls for five masters; then they are deleted. Exit status 1 when the nodes did not go
from 6 to 10 and back, or a write was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.operators.redis.cluster.stage import OPERATOR, Stage, manifest

from mooring.operators.redis.dial import DialError
from mooring.operators.redis.info import parse_info
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed

__all__ = ["main"]

VALUE = 60_000
"""Bytes of one value; with what Redis adds it takes 64 KiB."""
LEAST, MOST = 6, 10
WITHIN = 600.0
"""Seconds for each direction."""


class Trace:
    """What changed, and when."""

    def __init__(self, stage: Stage, maxmemory: int) -> None:
        self.stage, self.maxmemory, self.began = stage, maxmemory, time.monotonic()
        self.keys = 0
        self.sizes: list[int] = []
        self._last: tuple[object, ...] = ()

    async def look(self) -> int:
        """Print a line where something changed; returns the nodes in force, negative while they do not serve."""
        status = await self.stage.status()
        chosen = status.autoscale
        wish = f"{chosen.desired}" if chosen is not None and chosen.desired is not None else "-"
        plan = status.slot_plan
        moving = f"{plan.kind} {plan.moved} of {plan.total} slots" if plan is not None else ""
        now = (self.keys, wish, chosen.replicas if chosen else None, status.replicas, status.phase, moving)
        if now != self._last:
            self._last = now
            passed = f"{time.monotonic() - self.began:6.0f} s"
            line = (
                f"{passed}  {self.keys:6}  {await self._used():>7}  {wish:>10}  {now[2]!s:>8}  {now[3]!s:>5}  "
                f"{status.phase}  {moving}"
            )
            print(line.rstrip(), flush=True)
        if chosen is not None and chosen.replicas and self.sizes[-1:] != [chosen.replicas]:
            self.sizes.append(chosen.replicas)
        at_rest = status.phase == "Running" and plan is None
        return (chosen.replicas if chosen is not None else None) or 0 if at_rest else -1

    async def _used(self) -> str:
        """The mean of the masters' memory, in percent of maxmemory."""
        used = []
        try:
            for pod in await self.stage.owned():
                info = parse_info(await self.stage.call(pod, "INFO", "memory"))
                used.append(int(info["used_memory"]))
        except (DialError, KeyError):
            return "?"
        return f"{100 * sum(used) / len(used) / self.maxmemory:.0f}%" if used else "?"

    async def until(self, nodes: int) -> None:
        """Look each half second until so many are in force and serve."""
        deadline = time.monotonic() + WITHIN
        while await self.look() != nodes:
            if time.monotonic() > deadline:
                raise SystemExit(f"{nodes} nodes did not serve within {WITHIN:.0f} s")
            await asyncio.sleep(0.5)


async def ramp(options: argparse.Namespace, directory: Path) -> tuple[list[int], list[str]]:
    """Six, ten, six; the numbers that the load called for in order, and the writes that were lost."""
    maxmemory = options.maxmemory << 20
    async with Bed(directory, operators=[OPERATOR]) as bed:
        window = {"stabilizationSeconds": options.window}
        policy = {
            "minReplicas": LEAST,
            "maxReplicas": MOST,
            "metrics": [{"type": "MemoryPercent", "target": options.target}],
            "scaleUp": {**window, "step": 2},
            "scaleDown": window,
            "cooldownSeconds": options.window,
        }
        pod = {
            "env": [{"name": "MAXMEMORY", "value": f"{options.maxmemory}mb"}],
            "middlewareImage": options.image,
        }
        stage = Stage(bed, "ramp")
        await bed.apply(
            manifest("ramp", replicas=LEAST, pod=pod, autoscale=policy, updateStrategy={"pipeline": "100"})
        )
        await stage.exact(LEAST, within=300)
        trace = Trace(stage, maxmemory)
        print("    time    keys  of max.  called for  in force  ready  phase")
        await trace.until(LEAST)
        async with stage.writing() as report, stage.client() as client:
            # Of four masters so much that a fifth is called for, and of three less than they hold.
            most = int(2.85 * maxmemory / (64 << 10) * 0.95)
            while trace.keys < most:
                for _ in range(most // 40):
                    await client.call(f"load:{trace.keys}", "SET", "x" * VALUE)
                    trace.keys += 1
                await trace.look()
                await asyncio.sleep(0.5)
            await trace.until(MOST)
            for at in range(trace.keys):
                await client.call(f"load:{at}", "DEL")
            trace.keys = 0
            await trace.until(LEAST)
        await stage.exact(LEAST, within=120)
        lost = await stage.lost(report)
        print(
            f"{len(report.acknowledged)} writes acknowledged, {len(lost)} lost, errors: {report.errors or 'none'}"
        )
        return trace.sizes, lost


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="cluster_ramp", description=__doc__.partition("\n")[0])
    parser.add_argument("--image", default="redis:7.0")
    parser.add_argument("--target", type=int, default=60, help="percent of maxmemory (60)")
    parser.add_argument(
        "--window", type=int, default=10, help="stabilizationSeconds and cooldownSeconds (10)"
    )
    parser.add_argument("--maxmemory", type=int, default=64, help="MiB of each server (64)")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    directory = Path(tempfile.mkdtemp(prefix="mooring-ramp-"))
    try:
        sizes, lost = asyncio.run(ramp(options, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if (sizes[0], max(sizes), sizes[-1], lost) == (LEAST, MOST, LEAST, []) else 1


if __name__ == "__main__":
    sys.exit(main())
