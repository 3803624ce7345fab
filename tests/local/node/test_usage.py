"""What pods and nodes use, from the kernel's figures to kubectl's table."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.kube.client import Client
from mooring.local.api import ApiServer
from mooring.local.node.cgroups import Cgroup
from mooring.local.node.cleanup import plane_id
from mooring.local.node.node import Settings
from mooring.local.node.usage import Meter, Running

from .bed import network_config, privileged, until
from .test_agent import FOREVER, Bed, agent_on

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Proc:
    """A ``/proc`` of files; a pid namespace is a file that the processes' links lead to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.machine(busy=0)
        (path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n")

    def machine(self, *, busy: int) -> None:
        (self.path / "stat").write_text(f"cpu {busy} 0 0 5000 70 0 0 0 0 0\ncpu0 1 2 3\n")

    def namespace(self, name: str) -> int:
        (self.path / name).touch()
        return (self.path / name).stat().st_ino

    def process(self, pid: int, namespace: str, *, ticks: int, pages: int) -> None:
        entry = self.path / str(pid)
        (entry / "ns").mkdir(parents=True, exist_ok=True)
        (entry / "ns/pid").unlink(missing_ok=True)
        (entry / "ns/pid").symlink_to(self.path / namespace)
        fields = ["S", *["0"] * 10, str(ticks), "0", "0", "0", *["0"] * 6, str(pages)]
        (entry / "stat").write_text(f"{pid} (a ) name) {' '.join(fields)}\n")


def running(space: int, *, pod: str = "web", container: str = "main", **more: Any) -> Running:
    given: dict[str, Any] = {
        "node": "n1",
        "namespace": "default",
        "since": 100.0,
        "id": f"{pod}/{container}",
    } | more
    return Running(pod=pod, container=container, pid_namespace=space, **given)


def test_a_rate_is_that_between_two_looks_the_first_since_the_start(tmp_path: Path) -> None:
    proc, meter = Proc(tmp_path), Meter(tmp_path)
    space = proc.namespace("a")
    proc.process(10, "a", ticks=2 * TICKS, pages=3)
    proc.process(11, "a", ticks=2 * TICKS, pages=4)
    meter.look([running(space)], ["n1"], now=108.0, time=NOW)
    assert meter.pods["default", "web"].window == 8.0
    assert meter.pods["default", "web"].parts["main"].cpu == pytest.approx(0.5)
    assert meter.pods["default", "web"].parts["main"].memory == 7 * PAGE

    proc.process(10, "a", ticks=3 * TICKS, pages=3)
    meter.look([running(space)], ["n1"], now=118.0, time=NOW)
    assert meter.pods["default", "web"].parts["main"].cpu == pytest.approx(0.1)


def test_a_pod_whose_container_has_just_started_is_not_shown_yet(tmp_path: Path) -> None:
    proc, meter = Proc(tmp_path), Meter(tmp_path)
    both = [
        running(proc.namespace("a")),
        running(proc.namespace("b"), container="late", since=107.9),
    ]
    meter.look(both, ["n1"], now=108.0, time=NOW)
    assert meter.pods == {}
    meter.look(both, ["n1"], now=109.0, time=NOW)
    assert set(meter.pods["default", "web"].parts) == {"main", "late"}


def test_memory_is_the_control_groups_without_what_can_be_dropped(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    proc, meter = Proc(tmp_path / "proc"), Meter(tmp_path / "proc")
    proc.process(10, "a", ticks=0, pages=5)
    group = tmp_path / "group"
    group.mkdir()
    (group / "memory.current").write_text("5000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 2000\n")
    with_group = running(proc.namespace("a"), cgroup=Cgroup((group,)))
    meter.look([with_group], ["n1"], now=110.0, time=NOW)
    assert meter.pods["default", "web"].parts["main"].memory == 3000


def test_one_node_is_the_machine_and_several_are_their_pods(tmp_path: Path) -> None:
    proc, alone, shared = Proc(tmp_path), Meter(tmp_path), Meter(tmp_path)
    proc.process(10, "a", ticks=0, pages=5)
    pods = [running(proc.namespace("a"), node="n2")]
    for now, busy in ((110.0, 0), (120.0, 5 * TICKS)):
        proc.machine(busy=busy)
        alone.look(pods, ["n1"], now=now, time=NOW)
        shared.look(pods, ["n1", "n2"], now=now, time=NOW)
    assert alone.nodes["n1"].parts[""].cpu == pytest.approx(0.5)
    assert alone.nodes["n1"].parts[""].memory == 600 << 10
    assert [shared.nodes[name].parts[""].memory for name in ("n1", "n2")] == [0, 5 * PAGE]


async def measured(directory: Path, check: Callable[[Bed, Client, Any], Any]) -> None:
    """Run a check against an agent that looks every half second; the transport is its last argument."""
    services = str(network_config(plane_id(directory)).service_cidr)
    async with ApiServer.in_memory(service_range=services) as api:
        client = Client(api.transport())
        settings = Settings(metrics_period=0.6, force_grace=0.1)
        async with agent_on(client, directory, settings=settings) as there:
            api.serve_metrics(there.agent.meter)
            await check(there, client, api.transport())


async def fetch(transport: Any, path: str, *, accept: str = "application/json") -> tuple[int, Any]:
    answer = await transport.request("GET", path, headers={"accept": accept})
    return answer.status, msgspec.json.decode(answer.body)


METRICS = "/apis/metrics.k8s.io/v1beta1"


@pytest.mark.embedded
@privileged
async def test_a_busy_pod_shows_its_use_as_metrics_server_would(tmp_path: Path) -> None:
    async def check(there: Bed, client: Client, transport: Any) -> None:
        await there.pod("busy", {"command": ["sh", "-c", "while :; do :; done"]})
        await there.pod("idle", {"command": FOREVER})
        await there.ready("busy")
        await there.ready("idle")
        await until(lambda: ("default", "busy") in there.agent.meter.pods)
        await until(lambda: ("default", "idle") in there.agent.meter.pods)
        await until(lambda: "n1" in there.agent.meter.nodes)

        _, busy = await fetch(transport, f"{METRICS}/namespaces/default/pods/busy")
        assert (busy["kind"], busy["apiVersion"]) == ("PodMetrics", "metrics.k8s.io/v1beta1")
        assert busy["metadata"]["labels"] == {"app": "busy"}
        (container,) = busy["containers"]
        assert container["name"] == "main"
        assert int(container["usage"]["cpu"].removesuffix("n")) > 50_000_000
        assert container["usage"]["memory"].endswith("Ki")

        _, chosen = await fetch(transport, f"{METRICS}/pods?labelSelector=app%3Didle")
        assert [item["metadata"]["name"] for item in chosen["items"]] == ["idle"]
        assert chosen["kind"] == "PodMetricsList"

        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        _, shown = await fetch(transport, f"{METRICS}/nodes", accept=table)
        names = [column["name"] for column in shown["columnDefinitions"]]
        assert names == ["Name", "cpu", "memory", "Window"]
        assert shown["rows"][0]["cells"][0] == "n1"

    await measured(tmp_path, check)


@pytest.mark.embedded
@privileged
async def test_what_cannot_be_measured_is_not_found(tmp_path: Path) -> None:
    async def check(there: Bed, client: Client, transport: Any) -> None:
        await there.pod("never", {"image": "nosuch:1"})
        status, said = await fetch(transport, f"{METRICS}/namespaces/default/pods/never")
        assert (status, said["message"]) == (404, 'podmetrics.metrics.k8s.io "default/never" not found')
        status, said = await fetch(transport, f"{METRICS}/namespaces/default/pods/nobody")
        assert (status, said["message"]) == (404, 'pods "nobody" not found')

    await measured(tmp_path, check)


async def test_the_group_is_discovered_last_and_only_where_somebody_measures() -> None:
    async with ApiServer.in_memory() as api:
        _, before = await fetch(api.transport(), "/apis")
        assert "metrics.k8s.io" not in [group["name"] for group in before["groups"]]
        api.serve_metrics(Meter())
        _, after = await fetch(api.transport(), "/apis")
        assert after["groups"][-1]["name"] == "metrics.k8s.io"
        aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        _, found = await fetch(api.transport(), "/apis", accept=aggregated)
        kinds = [each["responseKind"]["kind"] for each in found["items"][-1]["versions"][0]["resources"]]
        assert kinds == ["NodeMetrics", "PodMetrics"]
        status, document = await fetch(api.transport(), "/openapi/v3/apis/metrics.k8s.io/v1beta1")
        assert status == 200
        assert f"{METRICS}/namespaces/{{namespace}}/pods/{{name}}" in document["paths"]
        status, _ = await fetch(api.transport(), f"{METRICS}/pods?watch=1")
        assert status == 405
