"""How long a MySQL cluster takes no writes, by cause, and how long it takes to be made: one table.

    python bench/mysql_gaps.py [--rounds 5] [--image mariadb:10.11] [--size 3] [--out FILE]

A cluster on an embedded control plane with the operator in this process, four clients that write through the primary's
Service, each 50 rows a second. Per round: created (from the apply to whole), the primary killed with -9, stopped (SIGSTOP)
until another leads, a planned switch, a roll-out of all pods. The gap is the longest time without a confirmed row; `failed
twice` counts rows that a client that retries once would have failed to write. Exit status 1 when a confirmed row is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a program: its sibling is found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.tally import percentile

from mooring.operators.mysql import OPERATOR
from mooring.operators.mysql.flavors import flavor_of
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed
from mooring.testing.mysql_stage import MySQLStage, manifest

__all__ = ["main"]

Cause = Callable[[MySQLStage, Any], Awaitable[None]]


async def crash(stage: MySQLStage, ledger: Any) -> None:
    """The primary's process is killed."""
    old = await stage.primary()
    stage.kill(old)
    await stage.writes(ledger, 100)


async def hang(stage: MySQLStage, ledger: Any) -> None:
    """The primary is stopped until another one leads."""
    old = await stage.primary()
    pid = stage.kill(old, signal.SIGSTOP)
    try:
        await stage.led_by_another(old, within=60)
        await stage.writes(ledger, 100)
    finally:
        os.kill(pid, signal.SIGCONT)


async def switch(stage: MySQLStage, ledger: Any) -> None:
    """A person asks for another primary."""
    old = await stage.primary()
    names = sorted(pod.metadata.name or "" for pod in await stage.pods())
    await stage.switch(next(name for name in names if name != old))
    await stage.led_by_another(old)
    await stage.writes(ledger, 100)


async def roll(stage: MySQLStage, ledger: Any) -> None:
    """Every pod is recreated from a new template."""
    before = {pod.metadata.uid for pod in await stage.pods()}
    await stage.patch({"pod": {"labels": {"roll": f"r{ledger.acknowledged}"}}})

    async def rolled() -> bool:
        return not before & {pod.metadata.uid for pod in await stage.pods()}

    await stage.bed.until(rolled, "every pod was recreated", within=180)
    await stage.whole(within=120)
    await stage.writes(ledger, 50)


CAUSES: dict[str, Cause] = {"crash": crash, "hang": hang, "switch": switch, "roll": roll}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds; figures in seconds."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-gaps-"))
    found: dict[str, list[float]] = {name: [] for name in ("create", *CAUSES)}
    lost = acknowledged = 0
    twice: dict[str, int] = dict.fromkeys(CAUSES, 0)
    try:
        async with Bed(directory, operators=[OPERATOR]) as bed:
            for number in range(options.rounds):
                flavor = flavor_of(options.image, None) or "mariadb"
                stage = MySQLStage(bed, f"gaps-{number}", flavor=flavor)
                await bed.apply(manifest(stage.name, image=options.image, size=options.size))
                found["create"].append(await stage.exact(within=300))
                for name, cause in CAUSES.items():
                    async with stage.writing(patience=1.0) as ledger:
                        await cause(stage, ledger)
                    report = await ledger.check()
                    await stage.exact(within=120)
                    found[name].append(report.longest_gap)
                    lost += report.lost_acknowledged
                    acknowledged += report.acknowledged
                    twice[name] += ledger.failed_twice
                await stage.delete(claims=True)
                print(
                    f"round {number + 1}: {', '.join(f'{k} {v[-1]:.2f}' for k, v in found.items())}",
                    flush=True,
                )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "image": options.image,
        "size": options.size,
        "rounds": options.rounds,
        "load": round(os.getloadavg()[0], 1),
        "acknowledged": acknowledged,
        "lost": lost,
        "failed_twice": twice,
        "seconds": {
            name: {"p50": percentile(values, 0.5), "max": max(values)} for name, values in found.items()
        },
    }


def table(figures: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{figures['image']}, {figures['size']} servers, {figures['rounds']} rounds; seconds", ""]
    lines.append(f"{'':8s} {'median':>8s} {'worst':>8s}  failed twice")
    for name, row in figures["seconds"].items():
        times = figures["failed_twice"].get(name, "")
        lines.append(f"{name:8s} {row['p50']:8.2f} {row['max']:8.2f}  {times}")
    lines += ["", f"lost {figures['lost']} of {figures['acknowledged']} acknowledged rows"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="mysql_gaps.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="5")
    parser.add_argument("--image", default="mariadb:10.11", help="mariadb:10.11")
    parser.add_argument("--size", type=int, default=3, help="3")
    parser.add_argument("--out", type=Path, help="write the figures there, as JSON")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    figures = asyncio.run(measure(options))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))
    return 1 if figures["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
