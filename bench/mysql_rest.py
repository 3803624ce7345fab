"""MySQL clusters at rest, on real servers: API writes (Leases apart), and what the operator spends.

    python bench/mysql_rest.py [--clusters 20] [--size 3] [--seconds 120] [--settle 60] [--image mariadb:10.11]
                               [--publish]

The operator is `mooring run` as shipped, in a process of its own; control plane and node agent run in this one. Prints
JSON; exit status 1 when anything but Leases was written, or when a cluster is not Ready. A server takes about 80 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(ROOT))

from bench.page import RESULTS, put  # noqa: E402
from bench.rest import TICKS, Writes  # noqa: E402
from hack.operations import embedded  # noqa: E402

from mooring.runtime import configure_logging  # noqa: E402
from mooring.testing.mysql_stage import MySQLStage, manifest  # noqa: E402

__all__ = ["main"]

#: Servers that hold nothing.
SMALL = {"innodb_buffer_pool_size": "16M", "innodb_log_file_size": "16M", "max_connections": "60"}


@asynccontextmanager
async def operator(kubeconfig: Path) -> AsyncIterator[int]:
    """`mooring run` with the MySQL operator alone; its pid."""
    command = [
        sys.executable,
        "-m",
        "mooring",
        "run",
        "--kubeconfig",
        str(kubeconfig),
        "--operators",
        "mysql",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, "--metrics-port", "-1", "--probe-port", "-1", stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def spent(pid: int) -> float:
    """Seconds of CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid: int) -> float:
    """MiB of memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Create, wait until all are Ready, let settle, then watch the rest."""
    async with embedded(directory / "plane", directory / "kubeconfig") as bed:
        writes = Writes()
        writes.attach(bed.plane.server)
        async with operator(directory / "kubeconfig") as pid:
            stages = [MySQLStage(bed, f"rest-{number}") for number in range(options.clusters)]
            began = time.monotonic()
            for stage in stages:
                await bed.apply(manifest(stage.name, size=options.size, image=options.image, config=SMALL))
            for stage in stages:
                await stage.settled(900)
            ready, created = time.monotonic() - began, writes.others
            await asyncio.sleep(options.settle)
            writes.clear()
            before, began = spent(pid), time.monotonic()
            await asyncio.sleep(options.seconds)
            after, elapsed = spent(pid), time.monotonic() - began
            share = 100 * (after - before) / elapsed
            figures: dict[str, Any] = {
                "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
                "cores": os.cpu_count(),
                "image": options.image,
                "clusters": options.clusters,
                "servers": options.clusters * options.size,
                "all_ready_seconds": round(ready, 1),
                "writes_until_ready": created,
                "rest_seconds": round(elapsed, 1),
                "writes": writes.others,
                "written": dict(writes.of.most_common(20)),
                "operator_percent_of_a_core": round(share, 2),
                "operator_percent_per_100_clusters": round(100 * share / options.clusters, 2),
                "operator_rss_mib": round(resident(pid), 1),
            }
        conditions = [(stage.name, await stage.condition("Ready")) for stage in stages]
        return {**figures, "not_ready": [name for name, (state, *_) in conditions if state != "True"]}


def table(figures: dict[str, Any]) -> str:
    """The figures as they stand on the page."""
    rows = (
        ("declared to all Ready, s", figures["all_ready_seconds"]),
        ("writes until then, everybody's", f"{figures['writes_until_ready']:,}"),
        (f"writes in {figures['rest_seconds']:.0f} s at rest, Leases apart", figures["writes"]),
        ("operator's CPU at rest, % of a core", figures["operator_percent_of_a_core"]),
        ("the same for 100 clusters", figures["operator_percent_per_100_clusters"]),
        ("operator's resident memory, MiB", figures["operator_rss_mib"]),
    )
    head = f"{figures['clusters']} clusters, {figures['servers']} servers ({figures['image']})"
    lines = [
        f"Measured on {figures['measured']}: {figures['cores']} cores.",
        "",
        f"| {head} | |",
        "|---|---:|",
    ]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    parser = argparse.ArgumentParser(prog="mysql_rest.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--size", type=int, default=3, help="servers of each (3)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of rest (120)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds between Ready and rest (60)")
    parser.add_argument("--image", default="mariadb:10.11")
    parser.add_argument(
        "--publish", action="store_true", help="bench/results/mysql_rest.json and docs/benchmarks.md"
    )
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    directory = Path(tempfile.mkdtemp(prefix="mooring-rest-"))
    try:
        figures = asyncio.run(measure(options, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = json.dumps(figures, indent=2)
    print(text)
    if options.publish:
        (RESULTS / "mysql_rest.json").write_text(f"{text}\n")
        put("python bench/mysql_rest.py", table(figures))
    return 1 if figures["writes"] or figures["not_ready"] else 0


if __name__ == "__main__":
    sys.exit(main())
