"""A group of compute nodes follows its sessions: the trace of a ramp up and down on real processes.

    python -m bench.matrixone_ramp [--on embedded|control-plane|node] [--least 3] [--most 12] [--target 8] [--up 10] [--down 20]
        [--publish]

A cluster with one compute node and ``autoscale: {minReplicas: 1, maxReplicas: 2, metrics: [{type: sessions}]}``: on an embedded
control plane; on a real kube-apiserver with its own controllers and pods that are processes of this machine
(`control-plane`); or on a real kubelet and containerd, with the operator as the chart installs it (`node`, needs root). Clients connect through the proxy one after the other, hold their session, and send a statement five times a
second each; then they leave again. A line per change: seconds, sessions, number in force, compute nodes that serve, and
statements that failed. Exit status 1 when a statement failed, or when the group did not go from one to two and back.
``--publish`` writes the trace to docs/matrixone.md.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.cluster import real_cluster
from bench.page import put
from hack.images.recipes import build
from hack.kubernetes.controlplane import ControlPlane

from mooring.local.node.node import Settings
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.types import CNSet
from mooring.operators.mysql.dial import Dial, DialError
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed, NotInTime
from mooring.testing.matrixone_stage import SQL_PORT, MatrixOneStage, manifests

__all__ = ["Clients", "Sample", "autoscale", "main", "ramp", "table"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "matrixone.md"
DEFINITIONS = PAGE.parents[1] / "crds"
SERVICES, PODS = "10.231.0.0/16", "10.232.0.0/16"
"""Address ranges on a real control plane: others than those of tests."""
PERIOD = 0.2
"""Seconds between two statements of a client."""
_SERVES = ("Up", "Outdated", "Draining", "Drained")
"""States of a compute node that has sessions, or may have."""
SERVES_WITHIN = 240.0
"""Seconds until the group has followed a change of its load, beyond which the ramp has failed."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The group at one moment."""

    at: float
    clients: int
    in_force: int
    serving: int
    statements: int
    failed: int


class Clients:
    """Clients that hold a session through the proxy and send statements, as many as `hold` says."""

    def __init__(self, stage: MatrixOneStage) -> None:
        self._stage = stage
        self._dial = Dial(connect_timeout=20.0, reply_timeout=60.0, port=SQL_PORT)
        self._running: list[tuple[asyncio.Event, asyncio.Task[None]]] = []
        self.statements = 0
        self.failed: list[str] = []

    @property
    def count(self) -> int:
        """Clients that are there."""
        return len(self._running)

    async def hold(self, count: int, *, apart: float = 0.2) -> None:
        """Let so many clients be there; they come and go ``apart`` seconds one after the other."""
        while len(self._running) < count:
            leave = asyncio.Event()
            self._running.append((leave, asyncio.create_task(self._one(leave))))
            await asyncio.sleep(apart)
        while len(self._running) > count:
            leave, task = self._running.pop()
            leave.set()
            await task

    async def _one(self, leave: asyncio.Event) -> None:
        host, login = await self._stage.entry(), await self._stage.login()
        while not leave.is_set():
            try:
                async with self._dial.open(host, login, timeout=60.0) as link:
                    for number in itertools.count():
                        if leave.is_set():
                            return
                        rows = await link.query(f"SELECT {number} AS n")
                        assert rows[0]["n"] == number
                        self.statements += 1
                        with suppress(TimeoutError):
                            await asyncio.wait_for(leave.wait(), PERIOD)
            except DialError as error:
                self.failed.append(str(error))
                await asyncio.sleep(PERIOD)


def autoscale(*, target: float, up: int, down: int, most: int = 2) -> dict[str, Any]:
    """``spec.autoscale`` of a group that follows its sessions; ``up`` and ``down`` are seconds."""
    return {
        "minReplicas": 1,
        "maxReplicas": most,
        "metrics": [{"type": "sessions", "target": target}],
        "scaleUp": {"stabilizationSeconds": up},
        "scaleDown": {"stabilizationSeconds": down},
    }


async def ramp(
    stage: MatrixOneStage,
    group: str,
    *,
    least: int = 3,
    most: int = 12,
    hold: float = 10.0,
    say: Callable[[Sample], None] | None = None,
) -> list[Sample]:
    """``least`` clients, ``most``, and ``least`` again: what became of the group at each change.

    Each part lasts until the group has followed, and the second one ``hold`` seconds longer, in which the proxy spreads the
    sessions. Raises `NotInTime`, and leaves no client behind.
    """
    clients, began = Clients(stage), time.monotonic()
    found: list[Sample] = []

    async def look() -> Sample:
        now = await _sample(stage, group, clients, began)
        before = found[-1] if found else None
        if before is None or (before.clients, before.in_force, before.serving, before.failed) != (
            now.clients,
            now.in_force,
            now.serving,
            now.failed,
        ):
            found.append(now)
            if say is not None:
                say(now)
        return now

    async def follows(count: int) -> None:
        async def does() -> bool:
            now = await look()
            return now.in_force == now.serving == count

        await stage.bed.until(does, f"{count} compute nodes", within=SERVES_WITHIN, every=0.25)

    try:
        for count, nodes, longer in ((least, 1, 0.0), (most, 2, hold), (least, 1, 1.0)):
            await clients.hold(count)
            await follows(nodes)
            await asyncio.sleep(longer)
        found.append(await _sample(stage, group, clients, began))
        if say is not None:
            say(found[-1])
    finally:
        await clients.hold(0)
    return found


async def _sample(stage: MatrixOneStage, group: str, clients: Clients, began: float) -> Sample:
    cn_set: CNSet = await stage.bed.get(CNSet, f"{stage.name}-{group}", stage.namespace)
    status, spec = cn_set.status, cn_set.spec
    chosen = status.autoscale.replicas if status is not None and status.autoscale is not None else None
    declared = (spec.replicas if spec is not None else 0) or 0
    stores = (status.stores if status is not None else None) or ()
    return Sample(
        at=time.monotonic() - began,
        clients=clients.count,
        in_force=declared if chosen is None else chosen,
        serving=sum(one.state in _SERVES for one in stores),
        statements=clients.statements,
        failed=len(clients.failed),
    )


def table(samples: Sequence[Sample]) -> str:
    """The trace for people."""
    lines = [
        "| s | clients | number in force | compute nodes | statements | failed |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    return "\n".join(
        [
            *lines,
            *(
                f"| {one.at:.0f} | {one.clients} | {one.in_force} | {one.serving} | {one.statements:,} | {one.failed} |"
                for one in samples
            ),
        ]
    )


@asynccontextmanager
async def _bed(directory: Path, where: str) -> AsyncIterator[Bed | KubernetesBed | ClusterBed]:
    """What runs the pods, with the operator."""
    settings = Settings(crash_backoff_initial=0.5, crash_backoff_cap=2.0, stop_grace_cap=20.0)
    if where == "node":
        images = [await asyncio.to_thread(build, "matrixone")]
        async with real_cluster(directory, operator="matrixone", images=images) as cluster:
            yield cluster
    elif where == "control-plane":
        with ControlPlane(directory=directory / "plane", definitions=DEFINITIONS, services=SERVICES) as plane:
            how: dict[str, Any] = {"services": SERVICES, "pods": PODS, "settings": settings}
            async with KubernetesBed(
                directory / "node", plane.kubeconfig, operators=[OPERATOR], **how
            ) as nodes:
                yield nodes
    else:
        async with Bed(directory, operators=[OPERATOR], settings=settings) as bed:
            yield bed


@asynccontextmanager
async def cluster(directory: Path, options: argparse.Namespace) -> AsyncIterator[MatrixOneStage]:
    """A cluster whose group follows its sessions, whole."""
    async with _bed(directory, options.on) as bed:
        stage = MatrixOneStage(bed)
        policy = autoscale(target=options.target, up=options.up, down=options.down)
        for document in manifests(logs=1, compute=1, group={"autoscale": policy}):
            await bed.apply(document)
        await stage.whole()
        yield stage


async def _run(directory: Path, options: argparse.Namespace) -> list[Sample]:
    async with cluster(directory, options) as stage:
        how = {"least": options.least, "most": options.most, "hold": options.hold}
        return await ramp(stage, "tp", **how, say=_say)


def _say(one: Sample) -> None:
    print(
        f"{one.at:6.1f} s: {one.clients} clients, {one.in_force} in force, {one.serving} compute nodes, "
        f"{one.statements} statements, {one.failed} failed",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a failure is one message and status 1."""
    parser = argparse.ArgumentParser(prog="bench.matrixone_ramp", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--on", choices=("embedded", "control-plane", "node"), default="embedded", help="(embedded)"
    )
    parser.add_argument("--most", type=int, default=12, help="clients at the top (12)")
    parser.add_argument("--least", type=int, default=3, help="clients before and after it (3)")
    parser.add_argument("--hold", type=float, default=20.0, help="seconds at the top with both (20)")
    parser.add_argument("--target", type=float, default=8.0, help="sessions for each compute node (8)")
    parser.add_argument("--up", type=int, default=10, help="seconds before one more (10)")
    parser.add_argument("--down", type=int, default=20, help="seconds before one less (20)")
    parser.add_argument("--publish", action="store_true", help="the table in docs/matrixone.md")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    directory, load = Path(tempfile.mkdtemp(prefix="mooring-ramp-")), os.getloadavg()[0]
    try:
        samples = asyncio.run(_run(directory, options))
    except NotInTime as failed:
        print(f"bench: {failed}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    machine = f"{os.cpu_count()} cores ({platform.machine()})"
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    head = (
        f"Measured on {day}: {machine}, one-minute load {load:.1f} before; {options.target:g} sessions for each "
        f"compute node, {options.up} s before one more and {options.down} s before one less."
    )
    print(table(samples))
    if options.publish:
        place = "" if options.on == "embedded" else f" --on {options.on}"
        put(f"python -m bench.matrixone_ramp{place}", f"{head}\n\n{table(samples)}", page=PAGE)
    return 1 if samples[-1].failed else 0


if __name__ == "__main__":
    sys.exit(main())
