"""The CPU of pods as a signal of autoscale: what is read, and what is unknown and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.local.node.bed import privileged, until
from tests.local.node.test_usage import measured

from mooring.kube import Client
from mooring.kube.object import Key
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.workload.autoscale import Policy, Signal, decide, remembered
from mooring.operators.workload.cpu import NOT_SERVED, CPUReader, share_of
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
