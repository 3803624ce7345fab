"""Slots of a Redis Cluster moved under a writer, beside redis-cli moving the same ones between the same servers.

    python -m bench.slots [--keys 50000] [--rounds 1] [--row NAME ...] [--publish]

Each row is a cluster of its own on the embedded control plane. Mooring's seconds count from the plan's being
written down to its being done, and from the edit until every server agrees. Then the operator stops, redis-cli takes
the new masters' slots away from them, and is timed while it gives them back (``rebalance --cluster-use-empty-masters``
where the strategy is AutoReceive, a ``reshard`` for each entry of AssignReceive, with a ``check`` between two).
The writer is a plain cluster client that follows redirections; what else it is told counts as an error. A scale-in is
looked at again 70 s later: FORGET bans an id for 60 s. ``--publish`` writes bench/results/slots.json and the table in
docs/benchmarks.md; exit status 1 when a key is lost, an error seen, a count wrong or a ghost back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.page import RESULTS, put
from bench.plain_cluster import redis_cli
from tests.operators.redis.cluster.stage import OPERATOR, Stage, manifest

from mooring.operators.redis.cluster.slots import count
from mooring.operators.redis.cluster.types import SlotPlan
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed

__all__ = ["ROWS", "Outcome", "flaws", "main", "table"]

WITHIN = 240.0
"""Seconds for one change."""
GHOSTS_AFTER = 70.0
"""Seconds after which a node that was not forgotten everywhere would be back."""
PIPELINE = "10"
COMMAND = "python -m bench.slots --publish"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One change; seconds, and None where redis-cli has nothing to compare."""

    row: str
    moved: int
    sizes: list[int]
    wanted: list[int]
    seconds: float
    cli_seconds: float | None = None
    until_exact: float
    written: int
    lost: int
    errors: dict[str, int]
    longest_gap: float
    ghosts: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change from ``before`` nodes to ``after``; ``given`` are the slots each new master is assigned."""

    before: int
    after: int
    given: tuple[int, ...] = ()
    back: bool = False
    """Taken back while it drains."""

    @property
    def strategy(self) -> str:
        return "AssignReceive" if self.given else "AutoReceive"


ROWS = {
    "3 to 4 masters, AutoReceive": Row(before=6, after=8),
    "3 to 4 masters, AssignReceive": Row(before=6, after=8, given=(4096,)),
    "3 to 5 masters, AutoReceive": Row(before=6, after=10),
    "3 to 5 masters, AssignReceive": Row(before=6, after=10, given=(3277, 3277)),
    "5 to 3 masters": Row(before=10, after=6),
    "5 to 3 masters, taken back half-way": Row(before=10, after=6, back=True),
}


class Run:
    """One row on a bed."""

    def __init__(self, bed: Bed, name: str, row: Row, *, number: int, keys: int) -> None:
        self._bed, self._name, self._row, self._keys = bed, name, row, keys
        self._stage = Stage(bed, f"s{number}")
        self._plan: SlotPlan | None = None
        self._moving = 0.0

    async def outcome(self) -> Outcome:
        """Make the cluster, change it, and let redis-cli do it again."""
        stage, row = self._stage, self._row
        try:
            await self._bed.apply(manifest(stage.name, replicas=row.before))
            await stage.exact(row.before, within=120)
            await stage.fill(self._keys)
            async with stage.writing() as report:
                change = await self._change()
                began = time.monotonic()
                await stage.patch(change)
                watching = asyncio.create_task(self._watch())
                if row.back:
                    await self._half_way()
                    await stage.patch({"replicas": row.before})
                await stage.exact(row.before if row.back else row.after, within=WITHIN)
                until_exact = time.monotonic() - began
                watching.cancel()
            sizes = await self._sizes()
            lost = self._keys - await stage.kept(self._keys) + len(await stage.lost(report))
            made = Outcome(
                row=self._name,
                moved=self._plan.total if self._plan else 0,
                sizes=sizes,
                wanted=self._wanted(),
                seconds=round(self._moving, 2),
                until_exact=round(until_exact, 2),
                written=len(report.acknowledged),
                lost=lost,
                errors=report.errors,
                longest_gap=round(report.longest, 3),
            )
            if row.back:
                return made
            if row.after < row.before:
                return replace(made, ghosts=await self._ghosts())
            return replace(made, cli_seconds=round(await self._by_hand(), 2))
        finally:
            await stage.delete()

    def _wanted(self) -> list[int]:
        """What the masters shall have; nothing certain after a change that was taken back: it just stops."""
        row = self._row
        if row.back:
            return []
        masters = row.after // 2
        base, more = divmod(16384, masters)
        even = [base] * (masters - more) + [base + 1] * more
        if not row.given:
            return even
        left = 16384 - sum(row.given)
        rest = [left // 3 + (1 if at < left % 3 else 0) for at in range(3)]
        return sorted([*rest, *row.given])

    async def _sizes(self) -> list[int]:
        return sorted(map(count, (await self._stage.owned()).values()))

    async def _change(self) -> dict[str, Any]:
        row, stage = self._row, self._stage
        change: dict[str, Any] = {
            "replicas": row.after,
            "updateStrategy": {"type": row.strategy, "pipeline": PIPELINE},
        }
        if row.given:
            ids = ",".join([(await stage.me(pod)).id for pod in await stage.owned()])
            entries = [{"slots": number, "fromReplicas": ids} for number in row.given]
            change["updateStrategy"]["assignStrategies"] = entries
        return change

    async def _watch(self) -> None:
        """Seconds in which a plan stood in the status."""
        began = 0.0
        while True:
            plan = (await self._stage.status()).slot_plan
            now = time.monotonic()
            if plan is not None and not began:
                began, self._plan = now, plan
            elif plan is None and began:
                self._moving, began = self._moving + now - began, 0.0
            await asyncio.sleep(0.02)

    async def _half_way(self) -> None:
        async def half() -> bool:
            sizes = await self._sizes()
            return len(sizes) == 5 and sizes[0] < 1640

        await self._bed.until(half, "half of a master is drained", within=WITHIN)

    async def _ghosts(self) -> str:
        """What is not as it should be, a minute and more later."""
        end = time.monotonic() + GHOSTS_AFTER
        while time.monotonic() < end:
            if flaw := await self._stage.flaw(self._row.after):
                return flaw
            await asyncio.sleep(1.0)
        return ""

    # --- redis-cli

    async def _by_hand(self) -> float:
        """Seconds redis-cli takes for the same slots."""
        row, stage = self._row, self._stage
        owned, addresses = await stage.owned(), await stage.addresses()
        ids = {pod: (await stage.me(pod)).id for pod in owned}
        ordinals = {pod: int(pod.rpartition("-")[2]) for pod in owned}
        new = [pod for pod in owned if ordinals[pod] >= row.before]
        old = [pod for pod in owned if pod not in new]
        seed = str(addresses[old[0]])
        await self._bed.stop_operators()
        try:
            weights = [f"{ids[pod]}=0" for pod in new]
            await redis_cli("rebalance", seed, "--cluster-weight", *weights, "--cluster-pipeline", "1000")
            await self._clean(seed)
            async with stage.writing():
                began = time.monotonic()
                if not row.given:
                    await redis_cli(
                        *("rebalance", seed, "--cluster-use-empty-masters", "--cluster-pipeline", PIPELINE)
                    )
                for at, (pod, number) in enumerate(zip(new, row.given, strict=False)):
                    if at:
                        await self._clean(seed)
                    await redis_cli(
                        *("reshard", seed, "--cluster-from", ",".join(ids[one] for one in old)),
                        *("--cluster-to", ids[pod], "--cluster-slots", str(number), "--cluster-yes"),
                        *("--cluster-pipeline", PIPELINE),
                    )
                return time.monotonic() - began
        finally:
            await self._bed.start_operators()

    async def _clean(self, seed: str) -> None:
        """Until all nodes agree, which redis-cli asks of whoever calls it again."""

        async def checked() -> bool:
            try:
                await redis_cli("check", seed)
            except RuntimeError:
                return False
            return True

        await self._bed.until(checked, "redis-cli finds the nodes to agree", within=60)


async def run(options: argparse.Namespace) -> list[Outcome]:
    """All rows, one after the other."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-slots-"))
    found: list[Outcome] = []
    try:
        async with Bed(directory, operators=[OPERATOR]) as bed:
            for _ in range(options.rounds):
                for name in options.row or ROWS:
                    one = Run(bed, name, ROWS[name], number=len(found) + 1, keys=options.keys)
                    found.append(await one.outcome())
                    print(json.dumps(asdict(found[-1])), flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return found


def flaws(outcomes: Sequence[Outcome]) -> list[str]:
    """What may not be."""
    said = []
    for one in outcomes:
        if one.lost:
            said.append(f"{one.row}: {one.lost} keys lost")
        if one.errors:
            said.append(f"{one.row}: the client saw {one.errors}")
        if one.sizes != (one.wanted or one.sizes) or sum(one.sizes) != 16384:
            said.append(f"{one.row}: {one.sizes} slots, not {one.wanted}")
        if one.ghosts:
            said.append(f"{one.row}: afterwards {one.ghosts}")
    return said


def table(outcomes: Sequence[Outcome], *, keys: int) -> str:
    """For the page; of several rounds the median by Mooring's seconds."""
    lines = [
        (
            "| change | slots moved | slots in the end | Mooring, s | redis-cli, s | edit to exact, s "
            "| writes | longest gap, s | lost | errors |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(one.row for one in outcomes):
        rounds = sorted((one for one in outcomes if one.row == name), key=lambda one: one.seconds)
        one = rounds[len(rounds) // 2]
        cli = "" if one.cli_seconds is None else f"{one.cli_seconds:.1f}"
        lost, errors = sum(each.lost for each in rounds), sum(sum(each.errors.values()) for each in rounds)
        lines.append(
            f"| {name} | {one.moved} | {', '.join(map(str, one.sizes))} | {one.seconds:.1f} | {cli} "
            f"| {one.until_exact:.1f} | {one.written} | {one.longest_gap:.2f} | {lost} | {errors} |"
        )
    facts = f"{keys} keys, {platform.machine()}, {os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}."
    return "\n".join([facts, "", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=50000, help="keys there before (default 50000)")
    parser.add_argument("--rounds", type=int, default=1, help="times each row is done (default 1)")
    parser.add_argument("--row", action="append", choices=list(ROWS), help="only this row; may be repeated")
    parser.add_argument("--publish", action="store_true", help="write the figures into the tree")
    options = parser.parse_args(arguments)
    configure_logging(level="error", json=True)
    outcomes = asyncio.run(run(options))
    said = flaws(outcomes)
    text = table(outcomes, keys=options.keys)
    print(text, *said, sep="\n")
    if options.publish:
        body = {"keys": options.keys, "outcomes": [asdict(one) for one in outcomes], "flaws": said}
        (RESULTS / "slots.json").write_text(json.dumps(body, indent=1) + "\n")
        put(COMMAND, text)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
