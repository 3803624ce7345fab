"""What a namespace may hold, where the real server cannot be asked: races, restarts, races with failures."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.local.api.conftest import CM, PODS, Client, Json, config_map, pod

from mooring.local.api import ApiServer
from mooring.local.api.amounts import minus, plus, pod_total, total

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def limit(api: Client, **hard: str) -> None:
    await api.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await asyncio.sleep(0)


async def used(api: Client) -> Json:
    return (await api.get(QUOTAS + "/q"))["status"]["used"]


async def test_of_many_at_once_only_as_many_as_fit_are_created(tmp_path: Path) -> None:
    async with ApiServer.open(tmp_path / "db") as server:
        api = Client(server.transport())
        await limit(api, configmaps="5")
        answers = await asyncio.gather(
            *(api.send("POST", CM, config_map(f"c{number}")) for number in range(20))
        )
        assert sorted(answer.status for answer in answers) == [201] * 5 + [403] * 15
        assert await used(api) == {"configmaps": "5"}


async def test_a_create_that_fails_uses_nothing(api: Client) -> None:
    await limit(api, configmaps="2")
    await api.create(CM, config_map("a"))
    await api.refused(409, "POST", CM, config_map("a"))
    await api.create(CM, config_map("b"), dryRun="All")
    await asyncio.sleep(0)
    assert await used(api) == {"configmaps": "1"}
    await api.create(CM, config_map("b"))


async def test_what_is_deleted_gives_its_share_back(api: Client) -> None:
    await limit(api, configmaps="1")
    await api.create(CM, config_map("a"))
    await api.delete(CM + "/a")
    assert await used(api) == {"configmaps": "0"}
    await api.create(CM, config_map("b"))


async def test_usage_is_known_after_a_restart(tmp_path: Path) -> None:
    async with ApiServer.open(tmp_path / "db") as server:
        await Client(server.transport()).create(CM, config_map("a"))
        await limit(Client(server.transport()), configmaps="1")
    async with ApiServer.open(tmp_path / "db") as server:
        api = Client(server.transport())
        assert await used(api) == {"configmaps": "1"}
        await api.refused(403, "POST", CM, config_map("b"))


async def test_a_server_that_stops_leaves_the_count_to_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ApiServer.open(tmp_path / "db") as server:
        api = Client(server.transport())
        await limit(api, configmaps="9")
        await api.create(CM, config_map("a"))
        leaving = asyncio.create_task(api.delete(CM + "/a"))
        await asyncio.sleep(0)
    await asyncio.gather(leaving, return_exceptions=True)
    await asyncio.sleep(0)
    assert caplog.text == ""
    async with ApiServer.open(tmp_path / "db") as server:
        api = Client(server.transport())
        left = str(len((await api.get(CM))["items"]))
        async with asyncio.timeout(5):
            while (await used(api))["configmaps"] != left:
                await asyncio.sleep(0.01)


async def test_a_pod_counts_until_it_ended_or_its_grace_ran_out() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    async with ApiServer.in_memory(now=lambda: moment) as server:
        api = Client(server.transport())
        await limit(api, pods="2", **{"count/pods": "9"})
        await api.create(PODS, pod("a", node="n"))
        await api.create(PODS, pod("b", node="n"))
        await api.refused(403, "POST", PODS, pod("c"))
        await api.merge(PODS + "/a/status", {"status": {"phase": "Succeeded"}})
        assert await used(api) == {"pods": "1", "count/pods": "2"}
        await api.create(PODS, pod("c", node="n"))

        await api.delete(PODS + "/b")
        await api.refused(403, "POST", PODS, pod("d"))
        moment += timedelta(seconds=31)
        await api.create(PODS, pod("d"))


def test_amounts_are_spelled_as_kubernetes_spells_them() -> None:
    assert plus("600m", "0.6") == "1200m"
    assert plus("0", "1Gi") == "1Gi"
    assert plus("1Gi", "512Mi") == "1536Mi"
    assert plus("100M", "1Gi") == "1173741824"
    assert minus("2", "500m") == "1500m"
    assert minus("1Gi", "1Gi") == "0"
    assert total([{"a": "1", "b": "2"}, {"a": "1"}]) == {"a": "2", "b": "2"}


def test_a_pod_asks_for_the_larger_of_its_start_and_its_life() -> None:
    def asking(cpu: str, **more: str) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = asking("1", restartPolicy="Always")
    spec = {"containers": [asking("1"), asking("500m")], "initContainers": [sidecar, asking("2")]}
    assert pod_total(spec, "requests") == {"cpu": "3"}
    assert pod_total({**spec, "initContainers": [asking("2"), sidecar]}, "requests") == {"cpu": "2500m"}
    assert pod_total({**spec, "resources": {"requests": {"cpu": "9"}}}, "requests") == {"cpu": "9"}
