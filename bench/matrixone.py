"""Seconds from the start of MatrixOne's bare processes to SQL, and their memory: what the operator is compared with.

    python -m bench.matrixone [--rounds 3] [--logs 1] [--compute 2]

Every round starts log stores, one TN, CNs and a proxy at once on empty directories and asks for SQL ten times a second. A line per
round: seconds until a CN and until the proxy answered, and resident MiB by process at that moment.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from hack.kubernetes.binaries import BuildError
from hack.mo_service import VERSION, build

from mooring.testing.errors import NotInTime
from mooring.testing.matrixone import bare_cluster

__all__ = ["main", "measure"]


async def measure(program: Path, *, logs: int, compute: int) -> tuple[float, float, dict[str, int]]:
    """Seconds until a CN and until the proxy answered SQL, and bytes of memory by process."""
    with tempfile.TemporaryDirectory(prefix="mooring-matrixone-") as directory:
        began = time.monotonic()
        async with bare_cluster(program, Path(directory), logs=logs, compute=compute) as cluster:
            await cluster.until_sql("cn0")
            first = time.monotonic() - began
            await cluster.until_sql("proxy0")
            return first, time.monotonic() - began, cluster.resident()


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; a failure is one message and status 1."""
    parser = argparse.ArgumentParser(prog="bench.matrixone", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logs", type=int, default=1)
    parser.add_argument("--compute", type=int, default=2)
    options = parser.parse_args(arguments)
    seconds = []
    try:
        program = build()
        print(f"MatrixOne {VERSION}: {options.logs} log, 1 TN, {options.compute} CN, 1 proxy", flush=True)
        for _ in range(options.rounds):
            first, ready, memory = asyncio.run(measure(program, logs=options.logs, compute=options.compute))
            seconds.append(ready)
            resident = ", ".join(f"{name} {size >> 20}" for name, size in memory.items())
            print(f"CN {first:.1f} s, proxy {ready:.1f} s; MiB: {resident}", flush=True)
    except (BuildError, NotInTime) as failed:
        print(f"bench: {failed}", file=sys.stderr)
        return 1
    print(f"median to SQL through the proxy: {statistics.median(seconds):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
