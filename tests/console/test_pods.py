"""Pods and logs: what is shown of them, and that a log costs no more than a line at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web
from tests.console.bed import ADMIN, ANN, SECRET, Bed, Browser

from mooring.catalog import packaged
from mooring.console.pods import LINE_BYTES, forward, log_query, pod_rows
from mooring.console.rows import phase_of, row, status_of
from mooring.console.session import SignedOut
from mooring.kube import Resource, TransportError
from mooring.kube.object import decode

ENTRIES = {entry.name: entry for entry in packaged()}


def pod(name: str, labels: dict[str, str], **status: Any) -> dict[str, Any]:
    spec = {"nodeName": "a", "containers": [{"name": "redis"}], "initContainers": [{"name": "init"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def test_pods_are_told_apart_as_the_entry_says() -> None:
    labels = {"app.kubernetes.io/component": "redis", "mooring.dev/role": "master"}
    waiting = {"name": "redis", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pods = [
        pod("c-1", {"app.kubernetes.io/component": "redis"}, phase="Running", containerStatuses=[waiting]),
        pod("c-0", labels, phase="Running", conditions=[{"type": "Ready", "status": "True"}]),
    ]
    status = {"nodes": [{"name": "c-1", "role": "replica", "state": "Unreachable"}, "odd", {}]}
    first, second = pod_rows(ENTRIES["redis-sentinel"], {"status": status}, pods)
    assert (first["name"], first["part"], first["role"], first["ready"]) == ("c-0", "redis", "master", True)
    assert (second["role"], second["state"], second["why"]) == ("replica", "Unreachable", "CrashLoopBackOff")
    assert (second["restarts"], second["containers"]) == (2, ["redis", "init"])
    nodes = {"conditions": [{"name": "n-0", "type": "slave", "reason": ""}]}
    [row] = pod_rows(ENTRIES["redis-cluster"], {"status": nodes}, [pod("n-0", {})])
    assert (row["role"], row["phase"]) == ("slave", "Pending")


def test_a_log_is_asked_for_in_bounds() -> None:
    assert log_query({})["tailLines"] == "200"
    assert log_query({"lines": "999999"})["tailLines"] == "5000"
    assert log_query({"lines": "-1"})["tailLines"] == "1"
    asked = log_query({"follow": "true", "previous": "yes", "container": "redis", "sinceTime": "x"})
    assert asked.keys() == {"tailLines", "limitBytes", "follow", "container"}
    with pytest.raises(ValueError, match="many"):
        log_query({"lines": "many"})


class Source:
    """A log of these lines, which then goes on without a line, ends, or breaks."""

    def __init__(self, *lines: bytes, end: str = "ends") -> None:
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self.lines = lines
        self.end = end
        self.read_lines = 0

    async def read(self) -> bytes:
        return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self.lines:
            self.read_lines += 1
            yield line
        if self.end == "breaks":
            raise TransportError("gone")
        if self.end == "waits":
            await asyncio.Event().wait()


class Browserlike(web.StreamResponse):
    """Keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()

    async def write(self, data: Any) -> None:
        await self.reads.wait()
        self.written.append(bytes(data))


def nothing() -> None:
    pass


@pytest.mark.parametrize("end", ["ends", "breaks"])
async def test_a_log_is_passed_on_without_secrets_and_in_bounded_lines(end: str) -> None:
    browser = Browserlike()
    source = Source(b"one", f"--requirepass {SECRET}".encode(), b"x" * 100_000, b"\xff", end=end)
    async with asyncio.timeout(5):
        await forward(source, browser, check=nothing, stop=asyncio.Event())
    assert browser.written[0] == b"one\n"
    assert SECRET.encode() not in browser.written[1]
    assert len(browser.written[2]) == LINE_BYTES + 1
    assert len(browser.written) == 4


async def test_a_browser_that_reads_slowly_slows_the_log_down() -> None:
    browser, source = Browserlike(), Source(*[b"line"] * 1000)
    browser.reads.clear()
    running = asyncio.create_task(forward(source, browser, check=nothing, stop=asyncio.Event()))
    for _ in range(50):
        await asyncio.sleep(0)
    assert source.read_lines == 1
    browser.reads.set()
    await asyncio.wait_for(running, 5)
    assert len(browser.written) == 1000


async def test_a_followed_log_ends_with_the_console_and_with_the_session() -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(forward(Source(end="waits"), Browserlike(), check=nothing, stop=stop))
    await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 5)

    def over() -> None:
        raise SignedOut("expired")

    with pytest.raises(SignedOut):
        await forward(Source(b"a"), Browserlike(), check=over, stop=asyncio.Event())


async def test_pods_and_logs_are_for_those_who_may_read_them(bed: Bed, browsers: list[Browser]) -> None:
    await bed.redis("team-a", "cache", size=3)
    await bed.grant("ann", "team-a", "redis.kun", ["redisclusters"], ["get"])
    root, ann, _ = browsers
    await root.signed_in(ADMIN)
    await ann.signed_in(ANN)
    one = "namespaces/team-a/instances/redis-sentinel/cache/pods"
    assert (await root.ok("GET", one))["pods"] == []
    assert (await ann.ok("GET", one))["pods"] is None
    assert (await ann.send("GET", f"{one}/cache-0/log"))[0] == 403
    assert (await root.send("GET", f"{one}/cache-0/log"))[0] == 404
    assert (await root.send("GET", f"{one}/..%2f..%2fsecrets/log"))[0] == 400
    assert (await root.send("GET", f"{one}/cache-0/log?lines=many"))[0] == 400
    assert (await browsers[2].send("GET", f"{one}/cache-0/log"))[0] == 401


def test_what_serves_and_needs_somebody_is_degraded_not_failed() -> None:
    stalled = {"type": "Stalled", "status": "True", "reason": "StorageChanged"}
    assert phase_of([stalled, {"type": "Ready", "status": "True"}], deleting=False) == ("Degraded", stalled)
    assert phase_of([stalled, {"type": "Ready", "status": "False"}], deleting=False) == ("Failed", stalled)


@pytest.mark.parametrize(
    ("ready", "phase", "shown"),
    [("True", "Succeeded", "Succeeded"), ("False", "Failed", "Failed"), ("False", "Running", "Provisioning")],
)
def test_a_backup_that_is_over_says_how_it_ended(ready: str, phase: str, shown: str) -> None:
    kind = status_of(Resource("mysql.mooring.dev", "v1alpha1", "MySQLBackup", "mysqlbackups"))
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    body = {"metadata": {"name": "first", "namespace": "default"}, "status": status}
    assert row(ENTRIES["mysql-backup"], decode(body, kind))["phase"] == shown
