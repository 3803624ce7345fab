"""Memory and pauses of a cache of many Pods that change.

    python bench/cache.py [--pods 10000] [--rate 200] [--seconds 20]

An API server in a process of its own holds the Pods, each 7.5 kB of JSON as it is sent, and patches some of them
every second once this process has listed them and watches. Memory is what this process grew by from before
the list until all is in the cache; a pause is how much later than asked a timer of its event loop fired. Prints
JSON; exit status 1 when a Pod takes more than 25 kB or a pause after the list is longer than 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mooring.cache import InformerSet
from mooring.kube import Client, Config, HttpTransport, MergePatch
from mooring.kube.objects.core import Pod
from mooring.local.api.http import User
from mooring.local.api.server import ApiServer

__all__ = ["main"]

POD_KB = (7.3, 7.7)
"""What a Pod must weigh on the wire for the figures to mean something."""
MEMORY_KB, PAUSE_MS = 25.0, 50.0
TICK = 0.002
TOKEN = "bench"
READY = {"periodSeconds": 10, "timeoutSeconds": 2}


def pod(number: int) -> dict[str, Any]:
    """A Pod as a Deployment with a sidecar leaves it in a cluster: two containers, volumes, a full status."""
    name = f"checkout-{number % 97}-7d9c5b6f4-{number:05d}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name[:-6], "uid": f"{number:032x}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": "checkout", "shard": str(number % 97), "pod-template-hash": "7d9c5b6f4"},
            "annotations": {"example.com/config-hash": f"{number:064x}", "prometheus.io/scrape": "true"},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "serviceAccountName": "default",
            "containers": [_container(name, number) for name in ("checkout", "proxy")],
            "volumes": [{"name": "config", "configMap": {"name": "checkout"}}],
        },
    }


def _container(name: str, number: int) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example/{name}:1.27.{number % 9}",
        "env": [{"name": f"SETTING_{n}", "value": f"value-{number}-{n}"} for n in range(3)],
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8000}, **READY},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/checkout"}],
        "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
    }


def status(number: int) -> dict[str, Any]:
    """The status a kubelet writes."""
    at = "2026-01-01T00:00:00Z"
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "startTime": at,
        "conditions": [{"type": one, "status": "True", "lastTransitionTime": at} for one in conditions],
        "containerStatuses": [
            {
                "name": name,
                "image": f"registry.example/{name}:1.27.{number % 9}",
                "imageID": f"registry.example/{name}@sha256:{number:064x}",
                "containerID": f"containerd://{number:064x}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
            }
            for name in ("checkout", "proxy")
        ],
    }


# --- the server's process --------------------------------------------------------------------------------------


def serve(pods: int, rate: float, said: Connection) -> None:
    """Hold the Pods; tell the port and a Pod's size, then patch ``rate`` of them a second until killed."""
    asyncio.run(_serve(pods, rate, said))


async def _serve(pods: int, rate: float, said: Connection) -> None:
    admin = User("admin", groups=("system:masters",))
    async with ApiServer.in_memory(tokens={TOKEN: admin}) as server:
        client = Client(server.transport(agent="kubelet"), field_manager="kubelet")
        names = [await _create(client, number) for number in range(pods)]
        sock = socket.create_server(("127.0.0.1", 0))
        await server.serve(sock, None)
        answer = await client.request("GET", f"/api/v1/namespaces/default/pods/{names[0]}")
        said.send((sock.getsockname()[1], len(answer.body)))
        await asyncio.to_thread(said.recv)
        began, done = time.monotonic(), 0
        while True:
            while done < (time.monotonic() - began) * rate:
                body = {"metadata": {"annotations": {"example.com/config-hash": f"{done:064x}"}}}
                name = names[done * 7919 % pods]
                await client.patch(Pod, name, MergePatch(body), namespace="default")
                done += 1
            await asyncio.sleep(0.005)


async def _create(client: Client, number: int) -> str:
    body = pod(number)
    path = "/api/v1/namespaces/default/pods"
    await client.request("POST", path, body=json.dumps(body).encode())
    name = body["metadata"]["name"]
    patch = MergePatch({"status": status(number)})
    await client.patch(Pod, name, patch, namespace="default", subresource="status")
    return str(name)


# --- the cache's process ---------------------------------------------------------------------------------------


class _Pauses:
    """How much too late a timer fires."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK)
            self.late.append((time.perf_counter() - before - TICK) * 1000)


async def measure(port: int, seconds: float, go: Connection) -> dict[str, Any]:
    """List, watch, and look at both."""
    client = Client(HttpTransport(Config(server=f"http://127.0.0.1:{port}", token=TOKEN)))
    changes = 0

    def count(change: object) -> None:
        nonlocal changes
        changes += 1

    gc.collect()
    before, began = _resident(), time.monotonic()
    async with InformerSet(client) as informers:
        informer = informers.of(Pod)
        await informers.wait_synced()
        synced, grown = time.monotonic() - began, _resident() - before
        informer.add_handler(count)
        changes = 0
        go.send("patch")
        pauses = _Pauses()
        task = asyncio.create_task(pauses.run())
        cpu = time.process_time()
        await asyncio.sleep(seconds)
        cpu = time.process_time() - cpu
        task.cancel()
        figures = {
            "pods": len(informer),
            "list_seconds": round(synced, 2),
            "kb_per_pod": round(grown / len(informer) / 1000, 1),
            "changes_per_second": round(changes / seconds, 1),
            "cpu_us_per_change": round(cpu / max(1, changes) * 1e6),
            "pause_ms": {
                "p50": round(statistics.median(pauses.late), 2),
                "p99": round(statistics.quantiles(pauses.late, n=100)[-1], 2),
                "longest": round(max(pauses.late), 1),
            },
            "rss_mib": round(_resident() / 2**20, 1),
        }
    await client.close()
    return figures


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    parser = argparse.ArgumentParser(prog="cache.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200.0, help="patches a second, asked for (200)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of watching (20)")
    options = parser.parse_args(arguments)
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(options.pods, options.rate, theirs), daemon=True)
    server.start()
    try:
        port, size = ours.recv()
        if not POD_KB[0] <= size / 1000 <= POD_KB[1]:
            raise SystemExit(f"a Pod weighs {size} bytes, not {POD_KB[0]} to {POD_KB[1]} kB")
        figures = asyncio.run(measure(port, options.seconds, ours))
    finally:
        server.kill()
        server.join()
    print(json.dumps({"pod_bytes": size, **figures}, indent=2))
    return int(figures["kb_per_pod"] > MEMORY_KB or figures["pause_ms"]["longest"] > PAUSE_MS)


if __name__ == "__main__":
    sys.exit(main())
