"""A master of a Redis Cluster is lost, beside the same in a Redis Cluster without an operator; a row per fault.

    python -m bench.cluster_crash [--rounds 5] [--lanes 2] [--row NAME ...] [--peer NAME ...] [--publish]

On one embedded control plane every peer gets a cluster of its own per round, three masters with a replica each, and
the faults strike it one after the other, every time another shard. The peers have the same servers, redis.conf,
machine, faults and writer (bench/plain_cluster.py). The writer writes all over the slots and times each eighth of
them by itself: the gap is that of the worst eighth, so the shards that go on do not hide the one that does not. A
cluster is exact again when it covers all slots, serves at every node, and every node sees the others as they see
themselves; ours has to say Running too. One that is not exact in time is thrown away and made anew.

``--publish`` writes bench/results/cluster-crash.json and the table in docs/benchmarks.md; exit status 1 when ours
loses a confirmed write or does not become exact.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench.page import PAGE, RESULTS, put
from bench.plain_cluster import PlainClusterStage
from bench.table import KEYS, Outcome, cell, say
from tests.operators.redis.cluster.stage import OPERATOR, Stage, manifest, remove, renewed, restarted

from mooring.operators.redis.cluster import RedisCluster
from mooring.operators.redis.dial import DialError
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, NotInTime
from mooring.testing.ledger_cluster import ClusterLedger
from mooring.testing.process import operator_process, served

__all__ = ["COMMAND", "ROWS", "Row", "flaws", "main", "publish", "table"]

COMMAND = "python -m bench.cluster_crash --publish"
PEERS = {"mooring": "Mooring", "plain": "Redis Cluster alone"}
NODES = 6
CREATED_WITHIN = 120.0
"""Seconds to be exact at first."""
WITHIN = 60.0
"""Seconds to be exact again; else the row says "never"."""
WRITES_WITHIN = 30.0
"""Seconds until every eighth of the slots is written again."""
HANG = 40.0
"""Seconds a hung master stays so: the others notice it 15 to 23 s later (cluster-node-timeout 15 s, and half of it
until the next ping), so that it is replaced before it wakes."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault that strikes the master of a slot."""

    title: str
    slot: int
    strike: Callable[[Stage, str], Awaitable[None]]


async def crash(stage: Stage, pod: str) -> None:
    """kill -9; until its container has been started again."""
    stage.bed.kill("default", pod, "redis")
    await stage.bed.until(lambda: restarted(stage, pod), f"{pod} runs again")


async def delete(stage: Stage, pod: str) -> None:
    """A deletion without grace; until there is another pod of that name."""
    before = {one.metadata.uid for one in await stage.pods() if one.metadata.name == pod}
    await remove(stage, pod)
    await renewed(stage, before)


async def hang(stage: Stage, pod: str) -> None:
    """SIGSTOP, for a time."""
    stage.bed.kill("default", pod, "redis", signal.SIGSTOP)
    try:
        await asyncio.sleep(HANG)
    finally:
        with contextlib.suppress(LookupError, ProcessLookupError):
            stage.bed.kill("default", pod, "redis", signal.SIGCONT)


ROWS = {
    "crash": Row(title="crash of a master", slot=0, strike=crash),
    "delete": Row(title="a master's pod deleted without grace (new address)", slot=16384 // 2, strike=delete),
    "hang": Row(title=f"a master hangs, {HANG:g} s", slot=16383, strike=hang),
}


@dataclass
class Trial:
    """One cluster of one peer, and its faults."""

    bed: Bed
    peer: str
    round: int
    stage: Stage = field(init=False)

    def __post_init__(self) -> None:
        made = PlainClusterStage if self.peer == "plain" else Stage
        self.stage = made(self.bed, f"{self.peer}-{self.round}")

    async def create(self) -> None:
        """Make the cluster."""
        if isinstance(self.stage, PlainClusterStage):
            await self.stage.create(NODES)
        else:
            await self.bed.apply(manifest(self.stage.name, replicas=NODES))
        await self.stage.exact(NODES, within=CREATED_WITHIN)

    async def strike(self, name: str, row: Row) -> Outcome:
        """One fault under a writer."""
        stage = self.stage
        outcome = Outcome(row=name, peer=self.peer, round=self.round)
        await stage.fill(KEYS)
        ledger = ClusterLedger(list((await stage.addresses()).values()), rate=200.0, patience=0.5)
        writing = asyncio.create_task(ledger.write())
        try:
            await self._written(ledger)
            victim = next(pod for pod, slots in (await stage.owned()).items() if slots >> row.slot & 1)
            ledger.reset_gap()
            began = time.monotonic()
            try:
                await row.strike(stage, victim)
                await stage.exact(NODES, within=WITHIN)
                outcome = replace(outcome, exact=time.monotonic() - began)
                await self._written(ledger)
            except (NotInTime, DialError, LookupError) as error:
                outcome = replace(outcome, exact=None, flaw=str(error) or type(error).__name__)
        finally:
            ledger.stop()
            await writing
        return await self._counted(outcome, ledger)

    async def _written(self, ledger: ClusterLedger) -> None:
        """Until a write to every eighth of the slots was acknowledged, from now on."""
        began = time.monotonic()

        async def everywhere() -> bool:
            return ledger.silence < time.monotonic() - began

        await self.bed.until(everywhere, "every eighth of the slots is written", within=WRITES_WITHIN)

    async def _counted(self, outcome: Outcome, ledger: ClusterLedger) -> Outcome:
        """What is left of the writes, and of the keys that were there before."""
        outcome = replace(outcome, gap=round(ledger.longest_gap, 3))
        try:
            report = await ledger.check(patience=15)
            kept = await self.stage.kept(KEYS)
        except (NotInTime, DialError, LookupError) as error:
            said = outcome.flaw or f"nothing could be counted: {error}"
            return replace(outcome, exact=None, flaw=said)
        return replace(
            outcome,
            acknowledged=report.acknowledged,
            lost=report.lost_acknowledged,
            lost_confirmed=report.lost_confirmed,
            lost_seconds=report.lost_seconds,
            lost_keys=KEYS - kept,
        )


class Run:
    """All rounds of all peers, some side by side."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._outcomes: list[Outcome] = []

    async def run(self, directory: Path) -> dict[str, Any]:
        """Strike; returns the raw figures."""
        options, load = self._options, os.getloadavg()[0]
        # A process of its own, or what the operator computes would hold up the writers.
        apart = partial(operator_process, operators=OPERATOR.name)
        async with Bed(directory, operators=()) as bed, apart(bed, directory):
            await served(bed, group=RedisCluster.resource.group)
            room = asyncio.Semaphore(options.lanes)

            async def one(peer: str, number: int) -> None:
                async with room:
                    await self._sequence(Trial(bed=bed, peer=peer, round=number))

            rounds = range(1, options.rounds + 1)
            await asyncio.gather(*(one(peer, number) for number in rounds for peer in options.peer or PEERS))
        return {
            "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} cores ({platform.machine()})",
            "load_before": round(load, 1),
            "load_after": round(os.getloadavg()[0], 1),
            "rounds": options.rounds,
            "lanes": options.lanes,
            "outcomes": [asdict(one) for one in self._outcomes],
        }

    async def _sequence(self, trial: Trial) -> None:
        """All rows, one after the other."""
        try:
            await trial.create()
            whole = True
            for name in self._options.row or ROWS:
                if not whole:
                    await trial.stage.delete()
                    await trial.create()
                outcome = await trial.strike(name, ROWS[name])
                self._note(outcome)
                whole = outcome.exact is not None
        finally:
            await trial.stage.delete()

    def _note(self, one: Outcome) -> None:
        self._outcomes.append(one)
        exact = f"{one.exact:5.1f} s" if one.exact is not None else "  never"
        say(
            f"{one.peer:8s} {one.round} {one.row:8s} gap {one.gap:6.2f} s  exact {exact}  "
            f"lost {one.lost}/{one.lost_confirmed} of {one.acknowledged}, {one.lost_keys} keys  {one.flaw}"
        )


# --- the report


def flaws(figures: dict[str, Any]) -> list[str]:
    """Where ours is not what it has to be."""
    said = []
    for name, row in ROWS.items():
        for one in _of(figures, name, "mooring"):
            wrong = [
                f"{one.lost_confirmed} confirmed writes lost" if one.lost_confirmed else "",
                f"{one.lost_keys} older keys lost" if one.lost_keys else "",
                f"never exact: {one.flaw}" if one.exact is None else "",
            ]
            if words := ", ".join(filter(None, wrong)):
                said.append(f"{row.title}, round {one.round}: {words}")
    return said


def _of(figures: dict[str, Any], row: str, peer: str) -> list[Outcome]:
    return [Outcome(**one) for one in figures["outcomes"] if (one["row"], one["peer"]) == (row, peer)]


def table(figures: dict[str, Any]) -> str:
    """The report as Markdown."""
    how = f"{figures['machine']}, rounds: {figures['rounds']}, {figures['lanes']} clusters at a time"
    load = f"{figures['load_before']} before, {figures['load_after']} after"
    lines = [
        f"Measured on {figures['measured']}: {how}; one-minute load {load}.",
        "",
        "| fault | " + " | ".join(PEERS.values()) + " |",
        "|---|" + "---|" * len(PEERS),
    ]
    for name, row in ROWS.items():
        cells = [cell(_of(figures, name, peer)) for peer in PEERS]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def publish(figures: dict[str, Any], *, results: Path = RESULTS, page: Path = PAGE) -> None:
    """Keep the raw figures, and put their table on the page."""
    put(COMMAND, table(figures), page=page)
    (results / "cluster-crash.json").write_text(json.dumps(figures, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each row and peer (5)")
    parser.add_argument("--lanes", type=int, default=2, help="clusters at a time (2)")
    parser.add_argument("--row", action="append", choices=ROWS, help="only this one (repeatable)")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one (repeatable)")
    parser.add_argument("--out", type=Path, help="write the raw figures there")
    parser.add_argument("--publish", action="store_true", help="write the figures into the tree")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    configure_logging(level="error")
    directory = Path(tempfile.mkdtemp(prefix="mooring-crash-"))
    try:
        figures = asyncio.run(Run(options).run(directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    if options.publish:
        publish(figures)
    print(table(figures))
    wrong = flaws(figures)
    for one in wrong:
        say(f"MISSED {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
