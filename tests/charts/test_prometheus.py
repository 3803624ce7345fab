"""A real Prometheus: it reads the operator and the exporters, alerts on a fault, and answers the console."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.charts.prometheus import JOB, Prometheus, expressions, free_port, rendered_rules, served, until
from tests.embedded.conftest import _logging

from mooring.cache import SystemClock
from mooring.catalog import packaged
from mooring.console import Prometheus as Source
from mooring.console.metrics import Queries
from mooring.kube import MergePatch
from mooring.kube.objects.core import Node, Pod
from mooring.operators.registry import OPERATORS
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage, manifest

__all__ = ["_logging"]

pytestmark = [pytest.mark.nightly, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1200)]

UNHEALTHY = "MooringRedisClusterUnhealthy"
EXPORTER = {"enabled": True, "image": "oliver006/redis_exporter:v1.58.0"}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: sockets are in it."""
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def scrapes_of(stage: RedisStage, port: int) -> list[dict[str, Any]]:
    """The operator as the chart's ServiceMonitor names it, and the exporters as a PodMonitor does."""
    operator = {
        "targets": [f"127.0.0.1:{port}"],
        "labels": {"namespace": JOB["namespace"], "pod": "mooring-0"},
    }
    exporters = []
    for pod in await stage.pods("redis"):
        name = pod.metadata.name or ""
        address = (await stage.address(name)).ip
        exporters.append({"targets": [f"{address}:9121"], "labels": {"namespace": "default", "pod": name}})
    return [
        {"job_name": JOB["job"], "static_configs": [operator]},
        {"job_name": "redis", "static_configs": exporters},
    ]


async def cordon(bed: Bed, cordoned: bool) -> None:
    await bed.client.patch(Node, "node-1", MergePatch({"spec": {"unschedulable": cordoned or None}}))


async def test_lost_servers_alert_until_they_are_back_and_the_console_shows_its_charts(place: Path) -> None:
    port = free_port()
    chosen = [OPERATORS["redis-sentinel"]]
    async with Bed(place / "plane", operators=chosen, metrics_port=port) as bed:
        stage = RedisStage(bed, "demo")
        await bed.apply(manifest("demo", exporter=EXPORTER))
        await stage.exact(120)
        # This process holds no election, so the rules about the Lease are not tested here.
        rules = rendered_rules(place, "prometheusRule.unhealthyFor=3s")
        async with served(place / "prometheus", await scrapes_of(stage, port), rules) as prometheus:
            healthy = "redis_operator_controller_cluster_healthy"
            wanted = {"exported_namespace": "default", "name": "demo", **JOB}

            async def read() -> bool:
                return [
                    (wanted.items() <= labels.items(), value)
                    for labels, value in await prometheus.values(healthy)
                ] == [(True, 1.0)]

            await until(read, "the operator's metrics are read")
            await _rules_are_evaluated(prometheus)
            assert UNHEALTHY not in await prometheus.alerts()
            await _charts_are_shown(prometheus)

            await cordon(bed, True)
            for pod in await stage.pods("redis"):
                await bed.client.delete(Pod, pod.metadata.name or "", namespace="default")
            seen: list[str] = []

            async def fires() -> bool:
                seen.append((await prometheus.alerts()).get(UNHEALTHY, ""))
                return seen[-1] == "firing"

            await until(fires, "the alert fires", within=120)
            assert "pending" in seen

            await cordon(bed, False)

            async def ends() -> bool:
                return UNHEALTHY not in await prometheus.alerts()

            await until(ends, "the alert ends", within=120)
            await stage.exact(60)


async def _rules_are_evaluated(prometheus: Prometheus) -> None:
    """Every rule and every query of a dashboard is one that the server can evaluate."""

    async def evaluated() -> list[dict[str, Any]]:
        groups = (await prometheus.get("rules"))["data"]["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    rules = await until(evaluated, "the rules are evaluated")
    assert len(rules) > 15
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    # What this process exports without a Lease, a backup or another operator. A rate needs two readings.
    wanted = {
        *("operator.json: Clusters that are healthy", "operator.json: CPU", "operator.json: Memory"),
        *("operator.json: Passes a second", "databases.json: Redis (sentinel): healthy"),
        *("databases.json: Redis: memory of the data", "databases.json: Redis: commands a second"),
    }

    async def shown() -> bool:
        found = set()
        for title, query in expressions():
            answer = await prometheus.get("query", query=query.replace("$job", JOB["job"]))
            assert answer["status"] == "success", (title, answer)
            if answer["data"]["result"]:
                found.add(title)
        return wanted <= found

    await until(shown, "the panels have figures")


async def _charts_are_shown(prometheus: Prometheus) -> None:
    """The console's charts of this instance: one line for each server, of its exporter."""
    (entry,) = [one for one in packaged() if one.name == "redis-sentinel"]
    queries = Queries(Source(url=prometheus.url), SystemClock())
    try:
        charts = await queries.charts(entry, namespace="default", name="demo", span="15m")
        foreign = await queries.charts(entry, namespace="default", name="dem", span="15m")
    finally:
        await queries.close()
    lines = {chart["title"]["en"]: chart["lines"] for chart in charts}
    names = [f"redis-cluster-demo-{number}" for number in range(3)]
    assert [line["name"] for line in lines["Memory of the data"]] == names
    assert all(value > 0 for line in lines["Memory of the data"] for _, value in line["points"])
    assert [chart["lines"] for chart in foreign] == [[] for _ in foreign]
