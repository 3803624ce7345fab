"""The CPU of pods as a signal of autoscale: what is read, and what is unknown and why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.local.node.bed import privileged, until
from tests.local.node.test_usage import measured

from mooring.kube import Client, Config, HttpTransport
from mooring.kube.object import Key
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.workload import cpu as module
from mooring.operators.workload.autoscale import Policy, Signal, decide, remembered
from mooring.operators.workload.cpu import CPU, NOT_SERVED, CPUReader, share_of
from mooring.operators.workload.explain import autoscaling

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEMO = Key("default", "demo")


def pod(name: str, *, requests: str = "", limits: str = "") -> core.Pod:
    resources = core.ResourceRequirements(
        requests={"cpu": requests} if requests else None, limits={"cpu": limits} if limits else None
    )
    container = core.Container(name="main", resources=resources)
    return core.Pod(metadata=ObjectMeta(name=name), spec=core.PodSpec(containers=[container]))


def test_the_share_is_of_the_request_and_else_of_the_limit() -> None:
    pods = [pod("a", requests="500m", limits="2"), pod("b", limits="2"), pod("new", requests="1")]
    found = share_of(pods, {"a": 0.25, "b": 1.0, "stranger": 3.0}, "main")
    assert (found.percent, found.why) == ({"a": 50.0, "b": 50.0}, "")


def test_a_container_without_request_and_limit_stays_unknown_and_the_field_is_named() -> None:
    found = share_of([pod("a")], {"a": 0.25}, "main")
    assert found.percent == {}
    assert "resources.requests.cpu" in found.why


async def test_without_metrics_server_the_cpu_is_unknown_and_the_remedy_is_named() -> None:
    async with ApiServer.in_memory() as server:
        reader = CPUReader(Client(server.transport()))
        found = await reader.of(
            DEMO, [pod("a", requests="1")], selector="app=demo", container="main", now=NOW
        )
    assert (found.percent, found.why) == ({}, NOT_SERVED)


@asynccontextmanager
async def metrics_server(answers: asyncio.Event) -> AsyncIterator[Client]:
    """An API server that says nothing until then, and then that ``a`` uses half a core."""
    used = {"metadata": {"name": "a"}, "containers": [{"name": "main", "usage": {"cpu": "500m"}}]}
    body = json.dumps({"items": [used]}).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await answers.wait()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(HttpTransport(Config(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")))
    try:
        yield client
    finally:
        answers.set()
        await client.close()
        server.close()
        await server.wait_closed()


async def test_a_pass_does_not_wait_for_a_metrics_server_that_hangs() -> None:
    answers = asyncio.Event()
    async with metrics_server(answers) as client:
        reader = CPUReader(client)
        look = partial(
            reader.of, DEMO, [pod("a", requests="1")], selector="app=demo", container="main", now=NOW
        )
        assert await look() == CPU(), "it says nothing yet, and nothing needs a person"
        answers.set()
        async with asyncio.timeout(30):
            while not (found := await look()).percent:
                await asyncio.sleep(0)
    assert found.percent == {"a": 50.0}


async def test_a_metrics_server_that_is_away_for_a_moment_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(HttpTransport(Config(server="http://127.0.0.1:1")))
    reader = CPUReader(client)
    monkeypatch.setattr(module, "_FRESH", 0.0)
    monkeypatch.setattr(module, "_PATIENCE", 30.0)
    look = partial(reader.of, DEMO, [pod("a", requests="1")], selector="app=demo", container="main", now=NOW)
    assert [await look() for _ in range(2)] == [CPU(), CPU()]
    monkeypatch.setattr(module, "_OUTAGE", 0.0)
    assert "does not answer" in (await look()).why
    await client.close()


def test_what_stays_unknown_is_in_the_status_and_holds_back_scale_in() -> None:
    policy = Policy(minimum=1, maximum=5, up_after_s=0, down_after_s=0)
    idle = Signal("Connections", 1.0, 50.0)
    unknown = Signal("CPU", None, 70.0, "%", NOT_SERVED)
    decided = decide(3, policy, [idle, unknown], None, NOW)
    assert (decided.replicas, decided.reason) == (3, "SignalUnknown")
    status = remembered(None, decided, 3, NOW)
    assert (status.reason, status.message) == ("SignalUnknown", f"CPU: {NOT_SERVED}")
    later = decide(3, policy, [idle, unknown], None, NOW + timedelta(seconds=15))
    assert remembered(status, later, 3, NOW + timedelta(seconds=15)) == status, "at rest nothing is written"
    [said] = autoscaling({"autoscale": {"replicas": 3, "reason": status.reason, "message": status.message}})
    assert said == f"SignalUnknown: CPU: {NOT_SERVED}; while that is so, no server is removed"
    busy = decide(3, policy, [Signal("Connections", 100.0, 50.0), unknown], None, NOW)
    assert busy.replicas == 5, "a known signal adds all the same"


def test_a_pod_that_was_not_measured_yet_is_nobodys_fault() -> None:
    decided = decide(3, Policy(minimum=1, maximum=5), [Signal("CPU", None, 70.0, "%")], None, NOW)
    assert remembered(None, decided, 3, NOW).reason is None


@pytest.mark.embedded
@privileged
async def test_a_busy_pod_is_over_its_request_and_an_idle_one_is_not(tmp_path: Path) -> None:
    async def check(there: Any, client: Client, transport: Any) -> None:
        def seen(name: str) -> bool:
            return ("default", name) in there.agent.meter.pods

        resources = {"requests": {"cpu": "20m"}}
        await there.pod("busy", {"command": ["sh", "-c", "while :; do :; done"], "resources": resources})
        await there.pod("idle", {"command": ["sleep", "1000"], "resources": resources})
        for name in ("busy", "idle"):
            await there.ready(name)
            await until(partial(seen, name))
        pods = [await client.get(core.Pod, name, namespace="default") for name in ("busy", "idle")]
        now = datetime.now(UTC)
        found = await CPUReader(client).of(
            DEMO, pods, selector="app in (busy, idle)", container="main", now=now
        )
        assert found.why == ""
        assert found.percent["busy"] > 100 > found.percent["idle"]
        later = now + timedelta(minutes=10)
        stale = await CPUReader(client).of(
            DEMO, pods, selector="app in (busy, idle)", container="main", now=later
        )
        assert stale.percent == {}, "an old measurement says nothing about now"

    await measured(tmp_path, check)
