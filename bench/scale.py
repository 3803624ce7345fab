"""Many clusters in one operator: seconds from cold to all Healthy, writes and CPU at rest, memory.

    python bench/scale.py [--clusters 200] [--seconds 120] [--settle 60] [--publish]

The operator is `mooring run` as shipped, the API server and its controllers the embedded ones, each in a process
of its own. Pods, Redis servers and sentinels are simulated (bench/simulated.py): real connections on loopback
addresses, but answers from memory; nothing replicates, nothing fails. So this says what an operator and its API
server spend on so many clusters, not what the clusters spend. Writes are everybody's: the operator's, the
controllers' and the simulated node's. Exit status 1 when at rest anything but Leases was
written, or when not all are Healthy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mooring.kube import Client, Config, HttpTransport
from mooring.local import controllers
from mooring.local.api.server import ApiServer
from mooring.local.api.tls import ensure_certificates
from mooring.local.api.validation import discovery
from mooring.local.directory import DataDirectory
from mooring.local.plane import ADMIN, listen
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.runtime import Manager, configure_logging
from mooring.testing.process import OperatorProcess
from mooring.testing.redis import manifest

if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.page import RESULTS, put
from bench.rest import Writes
from bench.runtime.stage import cpu_of, resident
from bench.simulated import SimulatedNode

__all__ = ["START_WITHIN", "Served", "api_server", "main", "say", "until"]

SERVICES = "10.96.0.0/16"
START_WITHIN = 180.0
"""Seconds for the API server, and for the operator to lead."""


# --- the API server's process ---


async def serve(directory: Path) -> None:
    """API server and controllers; prints its port, then for every line it reads what was written so far."""
    data = DataDirectory(directory)
    data.make()
    certificates = ensure_certificates(data.certificates, ["localhost", "127.0.0.1"])
    server = ApiServer.open(
        data.database,
        tokens={data.token(): ADMIN},
        service_account_key=data.service_account_key(),
        service_range=SERVICES,
    )
    writes = Writes()
    writes.attach(server)
    manager = Manager(Client(server.transport(), field_manager="mooring"), name="mooring-controllers")
    controllers.register(manager, volumes=data.volumes, authority=certificates.authority.read_text())
    # The simulated servers listen on the loopback, where no endpoint may be.
    anywhere = patch.object(discovery, "endpoint_ip_errors", lambda _address, _path: ())
    anywhere.start()
    await server.start()
    running = asyncio.create_task(manager.run())
    sock = listen("127.0.0.1:0")
    port = sock.getsockname()[1]
    await server.serve(sock, certificates.server_context())
    data.write_kubeconfig(
        data.path / "client.kubeconfig", server=f"https://127.0.0.1:{port}", authority=certificates.authority
    )
    print(json.dumps({"port": port}), flush=True)
    try:
        while await asyncio.to_thread(sys.stdin.readline):
            of = dict(writes.of.most_common(20))
            print(json.dumps({"leases": writes.leases, "others": writes.others, "of": of}), flush=True)
            writes.of.clear()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.close()
        anywhere.stop()


class Served:
    """The API server's process, from outside."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process = process
        self.kubeconfig = directory / "client.kubeconfig"

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    async def writes(self) -> dict[str, Any]:
        """What was written since it began; ``of``: which requests since the last question."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return await self.read()

    async def read(self) -> dict[str, Any]:
        """One line of its."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), START_WITHIN)
        if not line:
            raise RuntimeError("the API server's process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def api_server(directory: Path) -> AsyncIterator[Served]:
    """The API server until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "--serve",
        str(directory),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        served = Served(process, directory)
        await served.read()
        yield served
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


# --- the measurement ---


async def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Make all clusters, wait until they are Healthy, let settle, watch the rest."""
    load = round(os.getloadavg()[0], 1)
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(api_server(directory / "api"))
        client = Client(HttpTransport(Config.load(served.kubeconfig)), field_manager="kubectl")
        stack.push_async_callback(client.close)
        await _simulated_node(stack, client)
        operator = OperatorProcess(
            served.kubeconfig, client, log=directory / "operator.log", operators="redis-sentinel"
        )
        await asyncio.to_thread(operator.start)
        stack.push_async_callback(asyncio.to_thread, operator.stop)
        await until(operator.leads, START_WITHIN, "the operator does not lead")
        empty = resident(operator.pid)
        began, before = time.monotonic(), cpu_of(operator.pid)
        await _declare(client, options.clusters)
        created = time.monotonic() - began
        healthy = await _all_healthy(client, options.clusters, within=options.within) - began
        cold_cpu = cpu_of(operator.pid) - before
        cold = await served.writes()
        say(f"all Healthy after {healthy:.1f} s; at rest from now on")
        await asyncio.sleep(options.settle)
        first = await served.writes()
        cpu, api_cpu, began = cpu_of(operator.pid), cpu_of(served.pid), time.monotonic()
        await asyncio.sleep(options.seconds)
        elapsed = time.monotonic() - began
        last = await served.writes()
        return {
            "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} cores ({platform.machine()})",
            "load": load,
            "simulated": "pods, Redis servers and sentinels; operator and API server are real",
            "clusters": options.clusters,
            "create_seconds": round(created, 1),
            "all_healthy_seconds": round(healthy, 1),
            "operator_cpu_seconds_until_healthy": round(cold_cpu, 1),
            "writes_until_healthy": cold["others"],
            "rest_seconds": round(elapsed, 1),
            "writes_at_rest": last["others"] - first["others"],
            "written_at_rest": last["of"] if last["others"] != first["others"] else {},
            "lease_writes_at_rest": last["leases"] - first["leases"],
            "cpu_percent_of_a_core": {
                "operator": round(100 * (cpu_of(operator.pid) - cpu) / elapsed, 2),
                "api_server": round(100 * (cpu_of(served.pid) - api_cpu) / elapsed, 2),
            },
            "rss_mib": {
                "operator_without_clusters": round(empty, 1),
                "operator": round(resident(operator.pid), 1),
                "api_server": round(resident(served.pid), 1),
            },
            "unhealthy": await _unhealthy(client),
        }


async def _simulated_node(stack: AsyncExitStack, client: Client) -> None:
    node = SimulatedNode(client)
    await node.register()
    running = asyncio.create_task(node.manager.run(), name="simulated node")

    async def end() -> None:
        node.manager.stop()
        await asyncio.gather(running, return_exceptions=True)
        await node.close()

    stack.push_async_callback(end)


async def _declare(client: Client, count: int) -> None:
    """Create the clusters, some at a time, as a pipeline would."""
    room = asyncio.Semaphore(16)

    async def one(number: int) -> None:
        document = manifest(f"scale-{number}")
        async with room:
            await client.request(
                "POST",
                RedisCluster.resource.path(namespace="default"),
                query={"fieldManager": "kubectl"},
                body=json.dumps(document).encode(),
                content_type="application/json",
            )

    await asyncio.gather(*(one(number) for number in range(count)))


async def _all_healthy(client: Client, count: int, *, within: float) -> float:
    """Wait until all are; when that was."""
    deadline = time.monotonic() + within
    while True:
        found = (await client.list(RedisCluster, namespace="default")).items
        healthy = [one for one in found if _head(one) == "Healthy"]
        if len(healthy) == count:
            return time.monotonic()
        if time.monotonic() > deadline:
            other = next((one for one in found if _head(one) != "Healthy"), None)
            said = "; ".join(
                f"{it.type} {it.status} {it.reason}: {it.message}"
                for it in (other.status.conditions if other and other.status else None) or ()
            )
            raise TimeoutError(f"{len(healthy)} of {count} are Healthy after {within:.0f} s; another: {said}")
        await asyncio.sleep(0.5)


async def _unhealthy(client: Client) -> list[str]:
    found = (await client.list(RedisCluster, namespace="default")).items
    return [one.metadata.name or "" for one in found if _head(one) != "Healthy"]


def _head(one: RedisCluster) -> str:
    newest = next(iter((one.status.conditions if one.status else None) or ()), None)
    return (newest.type or "") if newest else ""


async def until(
    check: Callable[[], Awaitable[bool]], within: float, what: str, *, every: float = 0.1
) -> None:
    """Wait until it is so, asking every so many seconds; raises TimeoutError."""
    deadline = time.monotonic() + within
    while not await check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {within:.0f} s")
        await asyncio.sleep(every)


def markdown(figures: dict[str, Any]) -> str:
    """The report for the page of benchmarks."""
    cpu, rss = figures["cpu_percent_of_a_core"], figures["rss_mib"]
    rows = {
        "declared to all Healthy, s": figures["all_healthy_seconds"],
        "operator's CPU until then, s": figures["operator_cpu_seconds_until_healthy"],
        "writes until then, everybody's": f"{figures['writes_until_healthy']:,}",
        f"writes in {figures['rest_seconds']:.0f} s at rest": figures["writes_at_rest"],
        "of Leases in that time": figures["lease_writes_at_rest"],
        "operator's CPU at rest, % of a core": cpu["operator"],
        "API server's CPU at rest, % of a core": cpu["api_server"],
        "operator's resident memory, MiB": f"{rss['operator']} ({rss['operator_without_clusters']} without clusters)",
    }
    head = (
        f"Measured on {figures['measured']}: {figures['machine']}, one-minute load {figures['load']} before."
    )
    lines = [head, "", f"| {figures['clusters']} clusters | |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows.items())])


def say(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scale.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=200, help="3 servers + 3 sentinels each (200)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of rest (120)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds between Healthy and rest (60)")
    parser.add_argument("--within", type=float, default=900.0, help="seconds to be Healthy (900)")
    parser.add_argument(
        "--publish", action="store_true", help="bench/results/scale.json and docs/benchmarks.md"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data directory and the operator's log")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    options = _parser().parse_args(arguments)
    configure_logging(level="error")
    if options.serve:
        asyncio.run(serve(options.serve))
        return 0
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a listener per pod
    directory = Path(tempfile.mkdtemp(prefix="mooring-scale-"))
    try:
        figures = asyncio.run(measure(options, directory))
    finally:
        if options.keep:
            print(f"kept: {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    if options.publish:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "scale.json").write_text(json.dumps(figures, indent=1) + "\n")
        put("python bench/scale.py", markdown(figures))
    print(json.dumps(figures, indent=2))
    return 1 if figures["writes_at_rest"] or figures["unhealthy"] else 0


if __name__ == "__main__":
    sys.exit(main())
