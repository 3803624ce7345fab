"""Clusters at rest: API writes (Leases apart) and CPU, of this process and of the servers apart.

    python bench/rest.py [--clusters 20] [--seconds 300] [--settle 60]

Control plane, controllers, node agent and operators run in this one process; the pods' servers and the probes
that the pods declare are processes of their own. Prints JSON; exit status 1 when anything but Leases was
written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.local.api.http import Answer, Request
from mooring.local.api.server import ApiServer
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage, manifest

__all__ = ["READS", "main"]

READS = frozenset({"GET", "HEAD", "OPTIONS"})
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Writes:
    """Counts the writing requests that reach an API server; `of` names method, resource and agent."""

    leases: int = 0
    others: int = 0
    of: Counter[str] = field(default_factory=Counter)

    def attach(self, server: ApiServer) -> None:
        """Count from now on."""
        handle = server.handle

        async def counted(request: Request) -> Answer:
            if request.method not in READS:
                self._note(request)
            return await handle(request)

        setattr(server, "handle", counted)  # noqa: B010

    def clear(self) -> None:
        """Begin anew."""
        self.leases = self.others = 0
        self.of.clear()

    def _note(self, request: Request) -> None:
        if "/leases" in request.path:
            self.leases += 1
        else:
            self.others += 1
            self.of[f"{request.method} {request.path} by {request.header('user-agent') or '?'}"] += 1


@dataclass(frozen=True)
class Cpu:
    """CPU seconds so far."""

    process: float
    probes: float
    servers: float

    @classmethod
    def now(cls, servers: Sequence[int]) -> Cpu:
        """Of this process, of its children that ended (probes), and of the given servers."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(
            process=own.ru_utime + own.ru_stime,
            probes=ended.ru_utime + ended.ru_stime,
            servers=sum(_cpu_of(pid) for pid in servers),
        )


def _cpu_of(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


async def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Create, wait for Healthy, let settle, then watch the rest."""
    async with Bed(directory) as bed:
        writes = Writes()
        writes.attach(bed.plane.server)
        stages = [RedisStage(bed, f"rest-{number}") for number in range(options.clusters)]
        began = time.monotonic()
        for stage in stages:
            await bed.apply(manifest(stage.name))
        for stage in stages:
            await stage.healthy(600)
        healthy = time.monotonic() - began
        created = writes.others
        await asyncio.sleep(options.settle)
        pids = [stage.pid(pod.metadata.name or "") for stage in stages for pod in await stage.pods()]
        writes.clear()
        version = await _version(bed)
        before, began = Cpu.now(pids), time.monotonic()
        await asyncio.sleep(options.seconds)
        after, elapsed = Cpu.now(pids), time.monotonic() - began
        grown = await _version(bed) - version
        figures = {
            "clusters": options.clusters,
            "pods": len(pids),
            "all_healthy_seconds": round(healthy, 1),
            "writes_until_healthy": created,
            "rest_seconds": round(elapsed, 1),
            "writes": writes.others,
            "written": dict(writes.of.most_common(20)),
            "lease_writes": writes.leases,
            "stored_changes": grown,
            "cpu_percent_of_a_core": {
                "process": round(100 * (after.process - before.process) / elapsed, 2),
                "probes": round(100 * (after.probes - before.probes) / elapsed, 2),
                "servers": round(100 * (after.servers - before.servers) / elapsed, 2),
            },
            "rss_mib": round(_resident() / 2**20, 1),
        }
        unhealthy = [stage.name for stage in stages if (await stage.head())[0] != "Healthy"]
        return {**figures, "unhealthy": unhealthy}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _version(bed: Bed) -> int:
    listing = await bed.client.request("GET", "/api/v1/namespaces", query={"limit": "1"})
    return int(json.loads(listing.body)["metadata"]["resourceVersion"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rest.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=20, help="3 servers + 3 sentinels each (20)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of rest (300)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds between Healthy and rest (60)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    options = _parser().parse_args(arguments)
    configure_logging(level="error")
    directory = Path(tempfile.mkdtemp(prefix="mooring-rest-"))
    try:
        figures = asyncio.run(measure(options, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(figures, indent=2))
    return 1 if figures["writes"] or figures["unhealthy"] else 0


if __name__ == "__main__":
    sys.exit(main())
