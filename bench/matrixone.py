"""Seconds to SQL: a MatrixOneCluster from its apply, beside the same bare processes from their start, by turns.

    python bench/matrixone.py [--rounds 3] [--logs 3] [--compute 2] [--publish]

Every round first starts log stores, one TN, CNs and a proxy at once on empty directories, as a script would, and asks for SQL ten
times a second; then it applies a cluster of the same size to an embedded control plane that runs already, and asks the
proxies' Service as often, with the generated password. Printed by round; resident MiB of the bare processes at that moment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.page import RESULTS, publishing, put
from bench.tally import percentile
from hack.kubernetes.binaries import BuildError
from hack.mo_service import VERSION, build

from mooring.kube import NotFound
from mooring.operators.matrixone import OPERATOR
from mooring.operators.mysql.dial import Dial, DialError
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed
from mooring.testing.errors import NotInTime
from mooring.testing.matrixone import bare_cluster
from mooring.testing.matrixone_stage import SQL_PORT, MatrixOneStage, manifests

__all__ = ["main"]

MOST = 1.5
"""How many times the bare processes' seconds a cluster may take."""
LOOK_EVERY = 0.1
SQL_WITHIN = 300.0


async def bare(program: Path, *, logs: int, compute: int) -> tuple[float, dict[str, int]]:
    """Seconds until the proxy answered SQL, and bytes of memory by process."""
    with tempfile.TemporaryDirectory(prefix="mooring-matrixone-") as directory:
        began = time.monotonic()
        async with bare_cluster(program, Path(directory), logs=logs, compute=compute) as cluster:
            await cluster.until_sql("proxy0", timeout=SQL_WITHIN)
            return time.monotonic() - began, cluster.resident()


async def declared(bed: Bed, number: int, *, logs: int, compute: int) -> tuple[float, float]:
    """Seconds from the apply until the proxies' Service answered SQL, and until the cluster was whole."""
    stage, dial = MatrixOneStage(bed, f"mo-{number}"), Dial(connect_timeout=1.0, port=SQL_PORT)
    documents = manifests(stage.name, logs=logs, compute=compute)
    began = time.monotonic()
    for document in documents:
        await bed.apply(document)
    try:
        async with asyncio.timeout(SQL_WITHIN):
            while True:
                with contextlib.suppress(NotFound, DialError):
                    async with dial.open(await stage.entry(), await stage.login(), timeout=5.0) as link:
                        await link.query("select 1")
                        break
                await asyncio.sleep(LOOK_EVERY)
        answered = time.monotonic() - began
        await stage.whole(SQL_WITHIN)
        return answered, time.monotonic() - began
    finally:
        await stage.delete(claims=True, within=120)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds, by turns; figures in seconds."""
    program = build()
    alone: list[float] = []
    ours: list[float] = []
    whole: list[float] = []
    load = round(os.getloadavg()[0], 1)
    for number in range(options.rounds):
        seconds, memory = await bare(program, logs=options.logs, compute=options.compute)
        alone.append(seconds)
        with tempfile.TemporaryDirectory(prefix="mooring-matrixone-") as directory:
            async with Bed(Path(directory), operators=[OPERATOR]) as bed:
                answered, all_ready = await declared(bed, number, logs=options.logs, compute=options.compute)
        ours.append(answered)
        whole.append(all_ready)
        resident = ", ".join(f"{name} {size >> 20}" for name, size in memory.items())
        print(
            f"bare {seconds:.1f} s, declared {answered:.1f} s, whole {all_ready:.1f} s; MiB: {resident}",
            flush=True,
        )
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores ({platform.machine()})",
        "load": load,
        "version": VERSION,
        "logs": options.logs,
        "compute": options.compute,
        "rounds": options.rounds,
        "seconds": {
            name: {"p50": round(percentile(values, 0.5), 1), "max": round(max(values), 1)}
            for name, values in (("bare", alone), ("declared", ours), ("whole", whole))
        },
        "ratio": round(percentile(ours, 0.5) / percentile(alone, 0.5), 2),
    }


def table(figures: dict[str, Any]) -> str:
    """For the page of benchmarks."""
    seconds = figures["seconds"]

    def cell(name: str) -> str:
        return f"{seconds[name]['p50']:.1f} / {seconds[name]['max']:.1f}"

    return "\n".join(
        [
            (
                f"Measured on {figures['measured']}: {figures['machine']}, one-minute load {figures['load']}; MatrixOne "
                f"{figures['version']}, {figures['logs']} log stores, 1 TN, {figures['compute']} CN, 1 proxy; "
                f"{figures['rounds']} rounds by turns."
            ),
            "",
            "| p50 / max, s | |",
            "|---|---:|",
            f"| bare processes, start to SQL through the proxy | {cell('bare')} |",
            f"| MatrixOneCluster, apply to SQL through the proxy | {cell('declared')} |",
            f"| MatrixOneCluster, apply to whole | {cell('whole')} |",
            f"| apply to SQL, times the bare processes (should be <= {MOST:g}) | {figures['ratio']:.2f} |",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; a failure is one message and status 1."""
    parser = argparse.ArgumentParser(prog="matrixone.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logs", type=int, default=3)
    parser.add_argument("--compute", type=int, default=2)
    publishing(parser, "matrixone.json")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    try:
        figures = json.loads(options.source.read_text()) if options.source else asyncio.run(measure(options))
    except (BuildError, NotInTime) as failed:
        print(f"matrixone.py: {failed}", file=sys.stderr)
        return 1
    text = json.dumps(figures, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    if options.publish:
        (RESULTS / "matrixone.json").write_text(text + "\n")
        put("python bench/matrixone.py", table(figures))
    print(text)
    return 0 if figures["ratio"] <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
