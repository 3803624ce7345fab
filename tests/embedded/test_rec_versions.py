"""Old servers, built from source: a Redis Cluster and a pair on them are made, scaled, healed and get other passwords."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hack.old_redis import VERSIONS, build
from tests.operators.redis.cluster.stage import Stage, manifest

from mooring.local.node.images import load
from mooring.operators.redis.cluster import KINDS, register
from mooring.operators.redis.cluster.slots import count
from mooring.operators.registry import Operator
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.embedded, pytest.mark.full, pytest.mark.timeout(400)]


@pytest.fixture(
    params=[pytest.param(one, marks=[pytest.mark.nightly] if one == "3.2" else []) for one in VERSIONS]
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def old_bed(version: str, directory: Path, tmp_path: Path) -> AsyncIterator[Bed]:
    """A control plane whose image of that version is a real server of it."""
    programs = await asyncio.to_thread(build, version)
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(
        f"""images:
- name: redis-{version}
  extends: redis
  match: ["redis:{version}*"]
  programs: {{redis-server: {programs}/redis-server, redis-cli: {programs}/redis-cli}}
  paths: [{programs}]
"""
    )
    operator = Operator("redis-cluster", KINDS, partial(register, grace=2.0, look_again=1.0))
    async with Bed(directory / "plane", operators=[operator], catalog=load(catalog)) as running:
        yield running


def declared(name: str, version: str, *, replicas: int = 6, password: str = "") -> dict[str, Any]:
    """By repository and version, as HarmonyCloud's users do."""
    document = manifest(name, replicas=replicas, password=password)
    document["spec"] |= {"repository": "redis", "version": version}
    del document["spec"]["pod"][0]["middlewareImage"]
    return document


async def test_a_cluster_of_old_servers_gets_a_password_and_outlives_a_master(
    old_bed: Bed, version: str
) -> None:
    stage = Stage(old_bed, "old")
    await old_bed.apply(declared("old", version))
    await stage.exact(6, within=120)
    assert f"redis_version:{version}" in await stage.call("old-0", "INFO", "server")
    await stage.fill(200)

    await old_bed.apply(declared("old", version, password="a new one"))
    stage.password = "a new one"
    await stage.exact(6, within=120)

    master = next(iter(await stage.owned()))
    old_bed.kill("default", master, "redis")
    await stage.exact(6, within=120)
    assert await stage.kept(200) == 200

    if version == "3.2":
        await stage.patch({"replicas": 8})

        async def refused() -> bool:
            said = await stage.status()
            return said.reason_type == "InvalidArgs" and "4.0.7" in (said.reason or "")

        await old_bed.until(refused, "no other number of masters is possible with a password")
        assert len(await stage.pods()) == 6


@pytest.mark.nightly
async def test_a_pair_of_old_servers_is_made(old_bed: Bed, version: str) -> None:
    stage = Stage(old_bed, "two", password="secret")
    await old_bed.apply(declared("two", version, replicas=2, password="secret"))

    async def running() -> bool:
        status = await stage.status()
        return status.phase == "Running" and status.replicas == 2

    await old_bed.until(running, "the pair runs", within=120)
    kinds = sorted(one.type or "" for one in (await stage.status()).conditions or ())
    assert kinds == ["master", "slave"]


@pytest.mark.parametrize(
    "strategy", ["AutoReceive", pytest.param("AssignReceive", marks=pytest.mark.nightly)]
)
async def test_slots_of_old_servers_move_there_and_back_under_a_writer(
    old_bed: Bed, version: str, strategy: str
) -> None:
    password = "" if version == "3.2" else "secret"  # before 4.0.7 none may be set where slots move
    stage = Stage(old_bed, "old", password=password)
    await old_bed.apply(declared("old", version, password=password))
    await stage.exact(6, within=120)
    await stage.fill(3000)
    first = next(iter((await stage.owned()).items()))
    source = (await stage.me(first[0])).id
    assigned = [{"slots": 700, "fromReplicas": source}]

    async with stage.writing() as report:
        await stage.patch({"replicas": 8, "updateStrategy": {"type": strategy, "assignStrategies": assigned}})
        await stage.exact(8, within=120)
        grown = {pod: count(slots) for pod, slots in (await stage.owned()).items()}
        await stage.patch({"replicas": 6, "updateStrategy": {"type": "AutoReceive"}})
        await stage.exact(6, within=120)

    if strategy == "AutoReceive":
        assert sorted(grown.values()) == [4096] * 4
    else:
        assert grown[first[0]] == count(first[1]) - 700
        assert 700 in grown.values()
    assert await stage.kept(3000) == 3000
    assert await stage.lost(report) == []
    assert report.errors == {}
