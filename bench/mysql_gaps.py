"""How long a MySQL cluster takes no writes, by cause, and how long it takes to be made: one table.

    python bench/mysql_gaps.py [--rounds 5] [--image mariadb:10.11] [--size 3] [--out FILE] [--publish]
    python bench/mysql_gaps.py --kills 200 [--minutes 30] [--seed N] [--image mariadb:10.11] [--size 3] [--out FILE] [--publish]
    python bench/mysql_gaps.py --plain [--rounds 5] [--publish]
    python bench/mysql_gaps.py --from FILE --publish

A cluster on an embedded control plane with the operator in this process, four clients that write through the primary's
Service, each 50 rows a second. Per round: created (from the apply to whole), the primary killed with -9, stopped (SIGSTOP)
until another leads, its node lost (silent, and its pods out of reach), a planned switch, a roll-out of all pods. The gap is the longest time without a confirmed row; `failed
twice` counts rows that a client that retries once would have failed to write. Exit status 1 when a confirmed row is lost.

With ``--plain`` the same for servers without an operator (bench/plain_mysql.py), but for the planned switch.

With ``--kills`` one cluster is made, and its primary killed with -9 so many times (or for so many minutes), each time at a
random moment after the cluster is whole again: rows lost, how often the old primary led again, came back with its data or
was seeded again, the gap, and the seconds until all was whole. ``--publish`` keeps the figures of this image and size in
bench/results/mysql_gaps.json and renews the tables in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if not __package__:  # run as a program: its sibling is found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.page import RESULTS, publishing, put
from bench.plain_mysql import PlainMySQL
from bench.tally import percentile

from bench import node_loss
from mooring.operators.mysql import OPERATOR, gate
from mooring.operators.mysql.dial import DialError
from mooring.operators.mysql.flavors import flavor_of
from mooring.operators.mysql.names import ORDER
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, NotInTime
from mooring.testing.ledger_mysql import RowReport
from mooring.testing.mysql_stage import MySQLStage, manifest

__all__ = ["main", "where"]

WHOLE_WITHIN = 120.0
"""Seconds to be whole again after one kill."""

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


async def node(stage: MySQLStage, ledger: Any) -> None:
    """The primary's node reports nothing, and nobody reaches its pods, until another one leads."""
    old, bed = await stage.primary(), stage.bed
    assert isinstance(bed, Bed)
    lost = await node_loss.node_of(bed, stage.namespace, old)
    async with node_loss.silent(bed, stage.namespace, lost):
        await stage.led_by_another(old, within=60)
        await stage.writes(ledger, 100)
    await stage.whole(within=120)


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


BOUNDS = {
    "create": "<= 20 s MariaDB, 30 s MySQL",
    "crash": "<= 2 s",
    "hang": "<= 8 s",
    "node": "<= 15 s",
    "switch": "<= 1 s, failed twice 0",
    "roll": "<= 1 s",
}
"""What is aimed at, by row of the table: seconds without a confirmed row; for `create`, until the cluster is whole."""
CAUSES: dict[str, Cause] = {"crash": crash, "hang": hang, "node": node, "switch": switch, "roll": roll}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds; figures in seconds."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-gaps-"))
    found: dict[str, list[float]] = {name: [] for name in ("create", *CAUSES)}
    lost = acknowledged = 0
    twice: dict[str, int] = dict.fromkeys(CAUSES, 0)
    try:
        async with Bed(directory, operators=[OPERATOR], nodes=("node-1", "node-2", "node-3")) as bed:
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
        **where(),
        "acknowledged": acknowledged,
        "lost": lost,
        "failed_twice": twice,
        "seconds": {
            name: {"p50": percentile(values, 0.5), "max": max(values)} for name, values in found.items()
        },
    }


async def measure_plain(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds without an operator; figures in seconds."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-gaps-"))
    found: dict[str, list[float]] = {name: [] for name in ("create", "crash", "roll", "hang")}
    lost = acknowledged = 0
    broken = dict.fromkeys(found, 0)
    try:
        async with Bed(directory, operators=[]) as bed:
            for number in range(options.rounds):
                for name in ("crash", "hang", "roll"):
                    # Each strikes a cluster of its own: it may never be whole again.
                    peer = PlainMySQL(bed, f"plain-{number}-{name}", image=options.image, size=options.size)
                    began = time.monotonic()
                    await peer.create()
                    await peer.exact()
                    found["create"].append(time.monotonic() - began)
                    async with peer.watched():
                        try:
                            report = await _strike_plain(peer, name)
                            found[name].append(report.longest_gap)
                            lost += report.lost_acknowledged
                            acknowledged += report.acknowledged
                            await peer.exact(within=60)
                        except (NotInTime, DialError):
                            broken[name] += 1
                    await peer.delete()
                said = ", ".join(f"{name} {values[-1]:.2f}" for name, values in found.items() if values)
                print(f"round {number + 1}: {said}", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "image": f"{options.image} without an operator",
        "size": options.size,
        "rounds": options.rounds,
        **where(),
        "acknowledged": acknowledged,
        "lost": lost,
        "failed_twice": {},
        "never_whole": broken,
        "seconds": {
            name: {"p50": percentile(values, 0.5), "max": max(values)}
            for name, values in found.items()
            if values
        },
    }


async def _strike_plain(peer: PlainMySQL, cause: str) -> RowReport:
    """One fault under writers; `NotInTime` where no rows are written any more."""
    async with peer.writing(patience=1.0) as ledger:
        if cause == "crash":
            peer.kill(await peer.primary())
            await peer.writes(ledger, 100)
        else:
            await (peer.hang(ledger) if cause == "hang" else peer.roll(ledger))
    return await ledger.check(patience=90)


async def _kill(stage: MySQLStage, ledger: Any) -> dict[str, Any]:
    """One kill, until all is whole again: what it cost."""
    old, before = await stage.primary(), await _orders(stage)
    ledger.reset_gap()
    began = time.monotonic()
    stage.kill(old)
    await stage.bed.until(
        lambda: _opened_again(stage, old, before), f"{old} starts again", within=WHOLE_WITHIN
    )
    await stage.writes(ledger, 20, within=WHOLE_WITHIN)
    await stage.whole(within=WHOLE_WITHIN)
    whole = time.monotonic() - began
    after, leads = await _orders(stage), await stage.primary()
    seeded = [pod for pod, order in after.items() if order != before.get(pod) and (order.fresh or order.seed)]
    how = "led again" if leads == old else "seeded again" if seeded else "rejoined"
    return {
        "pod": old,
        "how": how,
        "seeded": len(seeded),
        "gap": ledger.longest_gap,
        "whole": round(whole, 3),
    }


async def _orders(stage: MySQLStage) -> dict[str, gate.Order]:
    """The order of every pod's present start."""
    orders = {
        pod.metadata.name or "": gate.parse((pod.metadata.annotations or {}).get(ORDER, ""))
        for pod in await stage.pods()
    }
    return {name: order for name, order in orders.items() if order is not None}


async def _opened_again(stage: MySQLStage, pod: str, before: dict[str, gate.Order]) -> bool:
    """A later start of this pod has its order: the process that was killed is not taken for the next one."""
    return (await _orders(stage)).get(pod) not in (None, before.get(pod))


async def kills(options: argparse.Namespace) -> dict[str, Any]:
    """Kill the primary again and again under four clients; figures in seconds."""
    directory = Path(tempfile.mkdtemp(prefix="mooring-kills-"))
    chance, made = random.Random(options.seed), list[dict[str, Any]]()
    ends = time.monotonic() + options.minutes * 60
    try:
        async with Bed(directory, operators=[OPERATOR]) as bed:
            stage = MySQLStage(bed, "kills", flavor=flavor_of(options.image, None) or "mariadb")
            await bed.apply(manifest(stage.name, image=options.image, size=options.size))
            await stage.exact(within=300)
            async with stage.writing(patience=1.0) as ledger:
                while len(made) < options.kills and time.monotonic() < ends:
                    await asyncio.sleep(chance.uniform(0.05, 1.0))
                    made.append(await _kill(stage, ledger))
                    one = made[-1]
                    print(
                        f"{len(made):3d} {one['pod']} {one['how']:13s} gap {one['gap']:.2f} s, whole after {one['whole']:.1f} s",
                        flush=True,
                    )
            await stage.exact(within=WHOLE_WITHIN)  # no server has what the primary lacks
            report = await ledger.check()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    ways = ("rejoined", "seeded again", "led again")
    return {
        "image": options.image,
        "size": options.size,
        "seed": options.seed,
        "kills": len(made),
        **where(),
        "acknowledged": report.acknowledged,
        "lost": report.lost_acknowledged,
        **{way.replace(" ", "_"): sum(one["how"] == way for one in made) for way in ways},
        "seconds": {
            name: {
                "p50": percentile([one[name] for one in made], 0.5),
                "p99": percentile([one[name] for one in made], 0.99),
                "max": max(one[name] for one in made),
            }
            for name in ("gap", "whole")
        },
    }


def where() -> dict[str, Any]:
    """When and on what this was measured."""
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def of_kills(figures: dict[str, Any]) -> str:
    """For people."""
    gap, whole = figures["seconds"]["gap"], figures["seconds"]["whole"]
    return (
        f"{figures['image']}, {figures['size']} servers, {figures['kills']} primaries killed (seed {figures['seed']}): "
        f"lost {figures['lost']} of {figures['acknowledged']} acknowledged rows\n"
        f"rejoined {figures['rejoined']}, seeded again {figures['seeded_again']}, led again {figures['led_again']}\n"
        f"gap p50 {gap['p50']:.2f} p99 {gap['p99']:.2f} max {gap['max']:.2f} s, "
        f"whole after p50 {whole['p50']:.1f} p99 {whole['p99']:.1f} max {whole['max']:.1f} s"
    )


def table(figures: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{figures['image']}, {figures['size']} servers, {figures['rounds']} rounds; seconds", ""]
    lines.append(f"{'':8s} {'median':>8s} {'worst':>8s}  failed twice")
    for name, row in figures["seconds"].items():
        times = figures["failed_twice"].get(name, "")
        lines.append(f"{name:8s} {row['p50']:8.2f} {row['max']:8.2f}  {times}")
    lines += ["", f"lost {figures['lost']} of {figures['acknowledged']} acknowledged rows"]
    return "\n".join(lines)


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def page(kept: Sequence[dict[str, Any]]) -> str:
    """Both tables as they stand on the page: a column for each image and size, a row for each run of kills."""
    gaps = [one for one in kept if "kills" not in one]
    lines: list[str] = []
    if gaps:
        lines += [
            _row("", "ours should be", *(f"{one['image']}, {one['size']} servers" for one in gaps)),
            "|---|---|" + "---|" * len(gaps),
        ]
        for cause, bound in BOUNDS.items():
            cells = []
            for one in gaps:
                if cause not in one["seconds"]:
                    cells.append("")
                    continue
                seconds, twice = one["seconds"][cause], one["failed_twice"].get(cause)
                text = f"{seconds['p50']:.2f}, max {seconds['max']:.2f} s"
                if stuck := one.get("never_whole", {}).get(cause):
                    text += f"; **never whole: {stuck} of {one['rounds']}**"
                cells.append(f"{text}; failed twice {twice}" if cause == "switch" else text)
            lines.append(_row(cause, bound, *cells))
        lines.append(
            _row(
                "acknowledged rows lost", "0", *(f"{one['lost']} of {one['acknowledged']:,}" for one in gaps)
            )
        )
        lines.append(_row("rounds; measured", "", *(f"{one['rounds']}; {_when(one)}" for one in gaps)))
    killed = [one for one in kept if "kills" in one]
    if killed:
        head = ("servers", "killed", "rows lost", "rejoined", "seeded again", "led again")
        lines += ["", _row(*head, "gap p50 / p99 / max, s", "whole p50 / p99 / max, s", "measured")]
        lines.append("|---|" + "---:|" * 7 + "---|")
        for one in killed:
            spread = [
                " / ".join(f"{one['seconds'][what][at]:.{digits}f}" for at in ("p50", "p99", "max"))
                for what, digits in (("gap", 2), ("whole", 1))
            ]
            counts = (one["kills"], f"{one['lost']} of {one['acknowledged']:,}", one["rejoined"])
            name = f"{one['size']}, {one['image']}"
            lines.append(_row(name, *counts, one["seeded_again"], one["led_again"], *spread, _when(one)))
    return "\n".join(lines)


def _when(figures: dict[str, Any]) -> str:
    return f"{figures['measured']}, {figures['cores']} cores, one-minute load {figures['load']}"


def publish(figures: dict[str, Any]) -> None:
    """Keep these figures in the place of earlier ones of the same kind, image and size, and renew the page."""
    path = RESULTS / "mysql_gaps.json"

    def key(one: dict[str, Any]) -> tuple[bool, str, int]:
        return "kills" in one, one["image"], one["size"]

    kept = json.loads(path.read_text()) if path.exists() else []
    kept = sorted([*(one for one in kept if key(one) != key(figures)), figures], key=key)
    path.write_text(json.dumps(kept, indent=1) + "\n")
    put("python bench/mysql_gaps.py", page(kept))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="mysql_gaps.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="5")
    parser.add_argument("--image", default="mariadb:10.11", help="mariadb:10.11")
    parser.add_argument("--size", type=int, default=3, help="3")
    parser.add_argument("--kills", type=int, default=0, help="kill the primary so often instead (0)")
    parser.add_argument("--plain", action="store_true", help="servers without an operator (MariaDB)")
    parser.add_argument("--minutes", type=float, default=60.0, help="with --kills: at most (60)")
    parser.add_argument("--seed", type=int, default=1, help="with --kills: of the moments (1)")
    publishing(parser, "mysql_gaps.json")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    if options.source:
        figures = json.loads(options.source.read_text())
    else:
        run = kills if options.kills else measure_plain if options.plain else measure
        figures = asyncio.run(run(options))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    if options.publish:
        publish(figures)
    print(of_kills(figures) if "kills" in figures else table(figures))
    return 1 if figures["lost"] and not options.plain else 0


if __name__ == "__main__":
    sys.exit(main())
