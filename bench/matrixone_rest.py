"""Many MatrixOne clusters in one operator: seconds from cold to all Ready, writes and CPU at rest, memory.

    python bench/matrixone_rest.py [--clusters 50] [--compute 2] [--autoscale] [--seconds 120] [--settle 60] [--publish]

The operator is `mooring run` as shipped, the API server and its controllers the embedded ones, each in a process of its own.
Each cluster has three log stores, a transaction node, compute nodes and a proxy, in a namespace of its own. Their processes
and the node are simulated (bench/matrixone_world.py): real connections on loopback addresses, answers of the real size from
memory. So this says what an operator and its API server spend on so many clusters, not what the clusters spend. Writes are
everybody's. Exit status 1 when at rest anything but Leases was written, or when a cluster is not Ready.
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
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mooring.kube import Client, Config, HttpTransport
from mooring.operators.matrixone.conditions import is_true
from mooring.operators.matrixone.types import MatrixOneCluster
from mooring.runtime import configure_logging
from mooring.testing.matrixone_stage import manifests
from mooring.testing.process import OperatorProcess

if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.keeping import kept_running
from bench.matrixone_world import MatrixOneNode
from bench.page import RESULTS, put
from bench.runtime.stage import cpu_of, resident
from bench.scale import START_WITHIN, Served, api_server, say, until

__all__ = ["Simulation", "main", "simulation"]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """An API server and an operator as processes, and a simulated node in this one."""

    served: Served
    client: Client
    node: MatrixOneNode
    operator: OperatorProcess
    started: list[int]
    """The pids of operators that were started because the one before had lost its Lease and ended: the machine is too busy."""


@asynccontextmanager
async def simulation(directory: Path) -> AsyncIterator[Simulation]:
    """All of it, once the operator leads."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(api_server(directory / "api"))
        client = Client(HttpTransport(Config.load(served.kubeconfig)), field_manager="kubectl")
        stack.push_async_callback(client.close)
        node = MatrixOneNode(client)
        await node.register()
        running = asyncio.create_task(node.manager.run(), name="simulated node")

        async def end() -> None:
            node.manager.stop()
            await asyncio.gather(running, return_exceptions=True)
            await node.close()

        stack.push_async_callback(end)
        operator = OperatorProcess(
            served.kubeconfig, client, log=directory / "operator.log", operators="matrixone"
        )
        await asyncio.to_thread(operator.start)
        stack.push_async_callback(asyncio.to_thread, operator.stop)
        await until(operator.leads, 5 * START_WITHIN, "the operator does not lead")
        started = await stack.enter_async_context(kept_running(operator))
        yield Simulation(served=served, client=client, node=node, operator=operator, started=started)


async def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Make all clusters, wait until they are Ready, let settle, watch the rest."""
    load = round(os.getloadavg()[0], 1)
    async with simulation(directory) as stage:
        served, operator, started = stage.served, stage.operator, len(stage.started)
        empty = resident(operator.pid)
        began, before, api_before = time.monotonic(), cpu_of(operator.pid), cpu_of(served.pid)
        own = time.process_time()
        await _declare(stage.client, options)
        await _all_ready(stage.client, options.clusters, within=options.within)
        ready = time.monotonic() - began
        before = before if len(stage.started) == started else 0.0  # of the process that is left
        cold_cpu, cold_api = cpu_of(operator.pid) - before, cpu_of(served.pid) - api_before
        cold_own = time.process_time() - own
        cold = await served.writes()
        say(f"all Ready after {ready:.1f} s; at rest from now on")
        await asyncio.sleep(options.settle)
        first, started = await served.writes(), len(stage.started)
        cpu, api_cpu, began = cpu_of(operator.pid), cpu_of(served.pid), time.monotonic()
        await asyncio.sleep(options.seconds)
        elapsed = time.monotonic() - began
        last = await served.writes()
        if len(stage.started) != started:
            raise RuntimeError("the operator was started again at rest: the machine is too busy to measure")
        spent, api_spent = cpu_of(operator.pid) - cpu, cpu_of(served.pid) - api_cpu
        return {
            "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} cores ({platform.machine()})",
            "load": load,
            "load_at_rest": round(os.getloadavg()[0], 1),
            "clusters": options.clusters,
            "autoscale": options.autoscale,
            "pods": options.clusters * (3 + 1 + options.compute + 1),
            "all_ready_seconds": round(ready, 1),
            "operator_restarts": len(stage.started),
            "operator_cpu_seconds_until_ready": round(cold_cpu, 1),
            "api_server_cpu_seconds_until_ready": round(cold_api, 1),
            "simulation_cpu_seconds_until_ready": round(cold_own, 1),
            "writes_until_ready": cold["others"],
            "rest_seconds": round(elapsed, 1),
            "writes_at_rest": last["others"] - first["others"],
            "written_at_rest": last["of"] if last["others"] != first["others"] else {},
            "cpu_percent_of_a_core": {
                "operator": round(100 * spent / elapsed, 2),
                "api_server": round(100 * api_spent / elapsed, 2),
            },
            "rss_mib": {
                "operator_without_clusters": round(empty, 1),
                "operator": round(resident(operator.pid), 1),
            },
            "not_ready": await _not_ready(stage.client),
        }


async def _declare(client: Client, options: argparse.Namespace) -> None:
    """Create the clusters, some at a time, as a pipeline would."""
    room = asyncio.Semaphore(8)

    async def one(number: int) -> None:
        namespace = f"rest-{number}"
        async with room:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await create(client, "/api/v1/namespaces", body)
            policy = {
                "minReplicas": options.compute,
                "maxReplicas": options.compute + 1,
                "metrics": [{"type": "sessions", "target": 100}],
            }
            group = {"autoscale": policy} if options.autoscale else {}
            claim, cluster = manifests("mo", namespace=namespace, compute=options.compute, group=group)
            await create(client, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
            await create(client, MatrixOneCluster.resource.path(namespace=namespace), cluster)

    await asyncio.gather(*(one(number) for number in range(options.clusters)))


async def create(client: Client, path: str, body: dict[str, Any]) -> None:
    """Create an object as it stands."""
    await client.request(
        "POST",
        path,
        query={"fieldManager": "kubectl"},
        body=json.dumps(body).encode(),
        content_type="application/json",
    )


async def _all_ready(client: Client, count: int, *, within: float) -> None:
    async def are() -> bool:
        found = (await client.list(MatrixOneCluster)).items
        return len(found) == count and not _faults(found)

    await until(are, within, f"{count} clusters are not Ready", every=0.5)


async def _not_ready(client: Client) -> list[str]:
    return _faults((await client.list(MatrixOneCluster)).items)


def _faults(found: Sequence[MatrixOneCluster]) -> list[str]:
    bad = []
    for one in found:
        conditions = one.status.conditions if one.status is not None else None
        if not (is_true(conditions, "Ready") and is_true(conditions, "Synced")):
            said = "; ".join(f"{it.type} {it.status} {it.reason}: {it.message}" for it in conditions or ())
            bad.append(f"{one.metadata.namespace}: {said}"[:300])
    return bad


def table(figures: dict[str, Any]) -> str:
    """The figures as they stand on the page."""
    cpu, rss = figures["cpu_percent_of_a_core"], figures["rss_mib"]
    rows = {
        "declared to all Ready, s": figures["all_ready_seconds"],
        "operator's CPU until then, s": figures["operator_cpu_seconds_until_ready"],
        "API server's CPU until then, s": figures["api_server_cpu_seconds_until_ready"],
        "writes until then, everybody's": f"{figures['writes_until_ready']:,}",
        f"writes in {figures['rest_seconds']:.0f} s at rest, Leases apart": figures["writes_at_rest"],
        "operator's CPU at rest, % of a core": cpu["operator"],
        "API server's CPU at rest, % of a core": cpu["api_server"],
        "operator's resident memory, MiB": f"{rss['operator']} ({rss['operator_without_clusters']} without clusters)",
    }
    head = (
        f"Measured on {figures['measured']}: {figures['machine']}, one-minute load {figures['load']} before and "
        f"{figures['load_at_rest']} at rest."
    )
    follow = " that follow their sessions" if figures["autoscale"] else ""
    lines = [head, "", f"| {figures['clusters']} clusters{follow}, {figures['pods']} pods | |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows.items())])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    parser = argparse.ArgumentParser(prog="matrixone_rest.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--compute", type=int, default=2, help="compute nodes of each (2)")
    parser.add_argument("--autoscale", action="store_true", help="their compute nodes follow their sessions")
    parser.add_argument("--seconds", type=float, default=120.0, help="of rest (120)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds between Ready and rest (60)")
    parser.add_argument("--within", type=float, default=900.0, help="seconds to be Ready (900)")
    parser.add_argument(
        "--publish", action="store_true", help="bench/results/matrixone_rest.json and docs/benchmarks.md"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data directory and the operator's log")
    options = parser.parse_args(arguments)
    configure_logging(level="error")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a listener per pod
    directory = Path(tempfile.mkdtemp(prefix="mooring-rest-"))
    try:
        figures = asyncio.run(measure(options, directory))
    finally:
        if options.keep:
            print(f"kept: {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    text = json.dumps(figures, indent=2)
    print(text)
    if options.publish:
        (RESULTS / "matrixone_rest.json").write_text(f"{text}\n")
        put("python bench/matrixone_rest.py", table(figures))
    return 1 if figures["writes_at_rest"] or figures["not_ready"] else 0


if __name__ == "__main__":
    sys.exit(main())
