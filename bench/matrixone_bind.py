"""How long a claim of a warm compute node takes: from its creation to the condition Ready, p50 and p99.

    python bench/matrixone_bind.py [--claims 200] [--pods 20] [--at-once 4] [--publish]
    python bench/matrixone_bind.py --real [--claims 30] [--pods 6] [--at-once 1] [--publish]

A CNPool keeps so many pods. Claims are made while it has an idle one, some at once, and deleted when they are Ready, so that
their pods are given back. Without ``--real`` pods and MatrixOne's processes are simulated (bench/matrixone_world.py), and
operator and API server are processes of their own; with it everything is real, on an embedded control plane. Ready means
that HAKeeper has the compute node as Working with the claim's labels; proxies ask it every five seconds. Claims and pods are
watched, as `kubectl wait` does. Exit status 1 when a claim is not Ready in time, or when two claims had one pod at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mooring.kube import Client, Key
from mooring.kube.objects.core import Pod
from mooring.local.node.node import Settings
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.conditions import is_true
from mooring.operators.matrixone.pool.labels import IDLE, PHASE
from mooring.operators.matrixone.types import CNClaim, CNPool, DNSet, LogSet, ProxySet
from mooring.runtime import Manager, configure_logging
from mooring.testing.bed import Bed

if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.matrixone_rest import create, simulation
from bench.page import RESULTS, put
from bench.scale import say
from bench.tally import percentile

__all__ = ["main"]

NAMESPACE = "default"
IMAGE = "matrixorigin/matrixone:1.2.4"
WITHIN = 120.0
"""Seconds for a claim, and for an idle pod to come back."""


def documents(pods: int) -> list[tuple[type[Any], dict[str, Any]]]:
    """A log store, a transaction node, a proxy, and a pool of so many pods."""
    shared = {
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "mo-shared"}}],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    deps = {"logSet": {"metadata": {"name": "mo"}}}
    small = {"sharedStorageCache": {"memoryCacheSize": "256Mi"}}
    common = {"image": IMAGE, "overlay": shared}
    log = {
        **common,
        "replicas": 1,
        "volume": {"size": "5Gi"},
        "sharedStorage": {"fileSystem": {"path": "/shared"}},
    }
    template = {
        **common,
        **small,
        "replicas": 0,
        "config": "[cn.frontend]\nproxy-enabled = true\n",
        "scalingConfig": {"minDelaySeconds": 0},
    }
    pool = {
        "podLabels": {"pool": "warm"},
        "deps": {**deps, "dnSet": {"metadata": {"name": "mo"}}},
        "strategy": {"updateStrategy": {}, "scaleStrategy": {"maxIdle": pods, "maxPods": pods}},
        "template": template,
    }
    made: list[tuple[type[Any], str, dict[str, Any], dict[str, Any]]] = [
        (LogSet, "mo", log, {}),
        (DNSet, "mo", {**common, **small, "replicas": 1}, {"deps": deps}),
        (ProxySet, "mo", {**common, "replicas": 1}, {"deps": deps}),
        (CNPool, "warm", pool, {}),
    ]
    return [
        (
            kind,
            {
                "apiVersion": "core.matrixorigin.io/v1alpha1",
                "kind": kind.resource.kind,
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": spec,
                **more,
            },
        )
        for kind, name, spec, more in made
    ]


@asynccontextmanager
async def simulated(directory: Path) -> AsyncIterator[Client]:
    """Simulated processes."""
    async with simulation(directory) as stage:
        yield stage.client


@asynccontextmanager
async def real(directory: Path) -> AsyncIterator[Client]:
    """Real processes."""
    settings = Settings(crash_backoff_initial=0.5, crash_backoff_cap=2.0, stop_grace_cap=20.0)
    async with Bed(directory, operators=[OPERATOR], settings=settings) as bed:
        yield bed.client


class Claims:
    """Claims made one after the other, and how long each took."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._manager = Manager(client, name="bench")
        self._claims = self._manager.informers.of(CNClaim, namespace=NAMESPACE)
        self._pods = self._manager.informers.of(Pod, namespace=NAMESPACE, label_selector=f"{PHASE}={IDLE}")
        self._changed = asyncio.Event()
        self._bound: dict[str, str] = {}
        self.seconds: list[float] = []
        self.shared: list[str] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Follow claims and idle pods."""

        def woken(_: object) -> None:
            self._changed.set()
            self._changed = asyncio.Event()

        self._claims.add_handler(woken)
        self._pods.add_handler(woken)
        running = asyncio.create_task(self._manager.run(), name="watches of the bench")
        try:
            yield
        finally:
            self._manager.stop()
            await asyncio.gather(running, return_exceptions=True)

    async def until(self, check: Callable[[], bool], within: float, what: str) -> None:
        """Wait until it is so, by the watches; raises TimeoutError."""
        try:
            async with asyncio.timeout(within):
                while not check():
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{what} within {within:.0f} s") from None

    def idle(self) -> int:
        """Idle pods of the pool."""
        return sum(not one.metadata.deletion_timestamp for one in self._pods.list())

    def _is_ready(self, key: Key) -> bool:
        claim = self._claims.get(key)
        return claim is not None and claim.status is not None and is_true(claim.status.conditions, "Ready")

    async def one(self, name: str) -> None:
        """Make a claim, note how long it took, and delete it."""
        body = {
            "apiVersion": "core.matrixorigin.io/v1alpha1",
            "kind": "CNClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"pool": "warm"}},
                "cnLabels": [{"key": "account", "values": [name]}],
            },
        }
        began = time.monotonic()
        await create(self._client, CNClaim.resource.path(namespace=NAMESPACE), body)
        key = Key(NAMESPACE, name)
        await self.until(lambda: self._is_ready(key), WITHIN, f"the claim {name} is not Ready")
        self.seconds.append(time.monotonic() - began)
        claim = self._claims.get(key)
        pod = (claim.spec.pod_name if claim is not None and claim.spec is not None else "") or ""
        if pod in self._bound:
            self.shared.append(f"{pod}: {self._bound[pod]} and {name}")
        self._bound[pod] = name
        await asyncio.sleep(0.2)
        del self._bound[pod]
        await self._client.delete(CNClaim, name, namespace=NAMESPACE)
        await self.until(lambda: self._claims.get(key) is None, WITHIN, f"the claim {name} is not gone")


async def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Fill the pool, then claim."""
    load = round(os.getloadavg()[0], 1)
    async with (real if options.real else simulated)(directory) as client:
        storage = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
        shared = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "mo-shared", "namespace": NAMESPACE},
            "spec": storage,
        }
        await create(client, f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims", shared)
        for kind, document in documents(options.pods):
            await create(client, kind.resource.path(namespace=NAMESPACE), document)
        claims = Claims(client)
        names = iter([f"claim-{number}" for number in range(options.claims)])

        async def lane() -> None:
            for name in names:
                await claims.until(lambda: claims.idle() >= options.at_once, WITHIN, "no pod is idle again")
                await claims.one(name)

        async with claims.watching():
            await claims.until(
                lambda: claims.idle() >= options.pods, 600, f"{options.pods} pods are not idle"
            )
            say(f"{options.pods} pods are idle")
            await asyncio.gather(*(lane() for _ in range(options.at_once)))
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores ({platform.machine()})",
        "load": load,
        "load_after": round(os.getloadavg()[0], 1),
        "real": options.real,
        "pods": options.pods,
        "claims": len(claims.seconds),
        "at_once": options.at_once,
        "seconds": {
            "p50": round(percentile(claims.seconds, 0.5), 3),
            "p99": round(percentile(claims.seconds, 0.99), 3),
            "max": round(max(claims.seconds), 3),
        },
        "shared": claims.shared,
    }


def table(known: Sequence[dict[str, Any]]) -> str:
    """The figures as they stand on the page."""
    lines = [
        "| pool | claims, at once | p50, s | p99, s | max, s | measured, one-minute load |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for one in known:
        took = one["seconds"]
        what = f"{one['pods']} {'real' if one['real'] else 'simulated'} compute nodes"
        when = f"{one['measured']}, {one['machine']}, {one['load']} to {one['load_after']}"
        times = " | ".join(f"{took[name]:.2f}" for name in ("p50", "p99", "max"))
        lines.append(f"| {what} | {one['claims']}, {one['at_once']} | {times} | {when} |")
    return "\n".join(lines)


def _publish(figures: dict[str, Any]) -> None:
    """Keep what the other kind of pool took."""
    path = RESULTS / "matrixone_bind.json"
    known = json.loads(path.read_text()) if path.exists() else []
    kept = [one for one in known if one["real"] != figures["real"]]
    every = sorted([*kept, figures], key=lambda one: one["real"])
    path.write_text(json.dumps(every, indent=1) + "\n")
    put("python bench/matrixone_bind.py", table(every))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    parser = argparse.ArgumentParser(prog="matrixone_bind.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--real", action="store_true", help="real processes")
    parser.add_argument("--claims", type=int, help="200; 30 with --real")
    parser.add_argument("--pods", type=int, help="20; 6 with --real")
    parser.add_argument("--at-once", type=int, help="4; 1 with --real")
    parser.add_argument(
        "--publish", action="store_true", help="bench/results/matrixone_bind.json and docs/benchmarks.md"
    )
    options = parser.parse_args(arguments)
    options.claims = options.claims or (30 if options.real else 200)
    options.pods = options.pods or (6 if options.real else 20)
    options.at_once = options.at_once or (1 if options.real else 4)
    configure_logging(level="error")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    directory = Path(tempfile.mkdtemp(prefix="mooring-bind-"))
    try:
        figures = asyncio.run(measure(options, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(figures, indent=2))
    if options.publish:
        _publish(figures)
    return 1 if figures["shared"] else 0


if __name__ == "__main__":
    sys.exit(main())
