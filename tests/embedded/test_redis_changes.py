"""What a user changes on a running cluster, and what survives it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.embedded.conftest import MakeCluster
from tests.standstill import Standstill

from mooring.kube import MergePatch
from mooring.kube.objects.core import Secret
from mooring.kube.objects.events import Event
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.objects.storage import StorageClass
from mooring.operators.host import Operate, operate
from mooring.operators.redis.dial import Dial, DialError
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.registry import OPERATORS
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def incarnations(stage: RedisStage) -> dict[str, tuple[str | None, int]]:
    """Pod UIDs and pids by name: what a change that restarts nothing leaves as it is."""
    names = [(pod.metadata.name or "", pod.metadata.uid) for pod in await stage.pods()]
    return {name: (uid, stage.pid(name)) for name, uid in names}


# --- sizes -------------------------------------------------------------------------------------------------


@pytest.mark.nightly
async def test_both_sets_grow_to_five_and_shrink_to_three_under_a_writer(
    cluster: MakeCluster, stood: Standstill
) -> None:
    stage = await cluster(password="s3cret")
    before = await incarnations(stage)
    async with stage.writing() as ledger:
        await stage.patch({"size": 5, "sentinel": {"replicas": 5}})
        await stage.exact(60)
        assert len(await stage.pods("redis")) == len(await stage.pods("sentinel")) == 5
        told = {one.type: one.message for one in (await stage.status()).conditions or ()}
        assert told["Scaling"] == "Scaling up form: 3 to: 5"
        await stage.writes(ledger, 100)
        await stage.patch({"size": 3, "sentinel": {"replicas": 3}})
        await stage.exact(60)
        await stage.writes(ledger, 100)

    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    gap = report.longest_gap
    assert gap - stood.within(gap) <= 1.5, report.text()
    assert await incarnations(stage) == before


async def lead_by(stage: RedisStage, wanted: str) -> None:
    """Let the sentinels make that pod the master: they prefer the lowest priority number."""
    for pod in await stage.pods("redis"):
        name = pod.metadata.name or ""
        await stage.call(name, "CONFIG", "SET", "slave-priority", 1 if name == wanted else 50)
    address, sentinel = await stage.address(wanted), stage.names.pod("sentinel", 0)

    async def seen() -> bool:
        replicas = await stage.call(sentinel, "SENTINEL", "REPLICAS", "mymaster")
        known = [dict(zip(words[::2], words[1::2], strict=True)) for words in replicas]
        return {it["ip"] for it in known if it["slave-priority"] == "1"} == {address.ip}

    await stage.bed.until(seen, "the sentinel read the priorities (every ten seconds)", within=20)
    await stage.call(sentinel, "SENTINEL", "FAILOVER", "mymaster")

    async def leads() -> bool:
        return (await stage.status()).master == wanted

    await stage.bed.until(leads, f"{wanted} leads", within=15)
    await stage.exact()


async def test_a_master_whose_pod_is_scaled_away_hands_over_first(
    cluster: MakeCluster, stood: Standstill
) -> None:
    stage = await cluster(size=4)
    leaving = stage.names.pod("redis", 3)
    await lead_by(stage, leaving)
    async with stage.writing() as ledger:
        await stage.patch({"size": 3})
        await stage.exact(60)
        await stage.writes(ledger, 100)

    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    gap = report.longest_gap
    assert gap - stood.within(gap) <= 1.5, report.text()
    last = (await stage.status()).last_failover
    assert last is not None
    assert (last.cause, last.old) == ("Planned", leaving)


# --- configuration -----------------------------------------------------------------------------------------


async def test_only_changed_keys_are_set_and_nothing_restarts(cluster: MakeCluster) -> None:
    stage = await cluster(config={"maxmemory": "64mb", "slowlog-max-len": "200"})
    before = await incarnations(stage)
    pods = [pod.metadata.name or "" for pod in await stage.pods("redis")]
    for pod in pods:
        assert await stage.config(pod, "maxmemory") == str(64 << 20)
        await stage.call(pod, "CONFIG", "SET", "hz", 37)  # nobody's but the administrator's
        await stage.call(pod, "CONFIG", "RESETSTAT")

    await stage.patch({"config": {"maxmemory": "64mb", "slowlog-max-len": "300"}})
    await stage.exact()

    for pod in pods:
        assert await stage.config(pod, "slowlog-max-len") == "300"
        assert await stage.config(pod, "hz") == "37"
        stats = str(await stage.call(pod, "INFO", "commandstats"))
        sets = next(line for line in stats.splitlines() if line.startswith("cmdstat_config|set:"))
        assert "calls=1," in sets, sets
    assert await incarnations(stage) == before
    results = (await stage.status()).config or {}
    assert {key: it.state for key, it in results.items()} == {
        "maxmemory": "Applied",
        "slowlog-max-len": "Applied",
    }


async def test_a_live_key_is_kept_by_a_restart_and_given_back_when_dropped(cluster: MakeCluster) -> None:
    stage = await cluster(config={"slowlog-max-len": "300"})
    master = await stage.master()
    replica = next(one for one in (stage.names.pod("redis", 0), stage.names.pod("redis", 1)) if one != master)

    await stage.restarted({replica: stage.kill(replica)})
    await stage.exact()
    assert await stage.config(replica, "slowlog-max-len") == "300"

    await stage.patch({"config": None})
    await stage.exact()
    for pod in await stage.pods("redis"):
        assert await stage.config(pod.metadata.name or "", "slowlog-max-len") == "128"
    assert not (await stage.status()).config


async def test_persistence_is_switched_live(cluster: MakeCluster) -> None:
    stage = await cluster()
    before = await incarnations(stage)
    await stage.fill(1000)

    await stage.patch({"disablePersistence": True})
    await stage.exact()
    for pod in await stage.pods("redis"):
        assert await stage.config(pod.metadata.name or "", "appendonly") == "no"
    await stage.patch({"disablePersistence": False})
    await stage.exact()

    for pod in await stage.pods("redis"):
        assert await stage.config(pod.metadata.name or "", "appendonly") == "yes"
        assert await stage.kept(pod.metadata.name or "", 1000) == 1000
    assert await incarnations(stage) == before


# --- claims ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keep", [None, pytest.param(True, marks=pytest.mark.full)], ids=["by-default", "as-asked"]
)
async def test_claims_outlive_the_cluster_and_the_next_of_that_name_has_the_data(
    cluster: MakeCluster, keep: bool | None
) -> None:
    storage = {"persistentVolumeClaim": {"metadata": {"name": "redis-data"}, "spec": CLAIM}}
    if keep is not None:
        storage["keepAfterDeletion"] = keep  # type: ignore[assignment]
    stage = await cluster(storage=storage)
    await stage.fill(5000)
    before = await stage.claims()
    assert len(before) == 3

    await stage.delete()
    assert await stage.claims() == before
    await stage.bed.apply(manifest(stage.name, storage=storage))
    await stage.exact()

    assert await stage.claims() == before
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", 5000) == 5000


async def test_claims_go_with_the_cluster_where_that_was_written(cluster: MakeCluster) -> None:
    storage = {
        "keepAfterDeletion": False,
        "persistentVolumeClaim": {"metadata": {"name": "redis-data"}, "spec": CLAIM},
    }
    stage = await cluster(storage=storage)
    assert len(await stage.claims()) == 3

    await stage.delete()

    async def gone() -> bool:
        return not await stage.claims()

    await stage.bed.until(gone, "the claims are gone")


def sized(size: str, storage_class: str | None = None) -> dict[str, Any]:
    claim = {**CLAIM, "resources": {"requests": {"storage": size}}}
    if storage_class:
        claim["storageClassName"] = storage_class
    return {"persistentVolumeClaim": {"metadata": {"name": "redis-data"}, "spec": claim}}


async def test_volumes_grow_under_a_writer_and_no_pod_restarts(cluster: MakeCluster) -> None:
    stage = await cluster(storage=sized("1Gi"))
    before = await incarnations(stage)
    claims = await stage.claims()
    assert await stage.capacities() == dict.fromkeys(claims, "1Gi")
    async with stage.writing() as ledger:
        await stage.patch({"storage": sized("2Gi")})
        await stage.capacity("2Gi")
        await stage.patch({"size": 4})
        await stage.exact(60)
        await stage.writes(ledger, 100)

    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert {name: each for name, each in (await incarnations(stage)).items() if name in before} == before
    assert (await stage.claims()).items() > claims.items()
    later = f"redis-data-{stage.names.pod('redis', 3)}"
    assert await stage.capacities() == {**dict.fromkeys(claims, "2Gi"), later: "2Gi"}
    events = (await stage.bed.client.list(Event, namespace=stage.namespace)).items
    told = "; ".join(one.note or "" for one in events if one.reason == "VolumesGrowing")
    assert all(f"{name} from 1Gi to 2Gi" in told for name in claims), told
    assert later not in told  # it was made with that size
    assert (await stage.status()).volumes is None


async def test_a_class_without_expansion_is_named_and_another_size_is_tried_at_once(
    cluster: MakeCluster, shared_bed: Bed
) -> None:
    fixed = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fixed"},
        "provisioner": "mooring.dev/local",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await shared_bed.apply(fixed)
    stage = await cluster(storage=sized("1Gi", "fixed"))
    await stage.patch({"storage": sized("2Gi", "fixed")})

    async def said() -> bool:
        status, _, message = await stage.condition("Stalled")
        return status == "True" and "must support resize" in message and "allowVolumeExpansion" in message

    await stage.bed.until(said, "the class is named")
    assert {one.state for one in (await stage.status()).volumes or ()} == {"Refused"}
    touch = MergePatch({"metadata": {"annotations": {"touched": "yes"}}})
    touched = await stage.bed.client.patch(RedisCluster, stage.name, touch, namespace=stage.namespace)
    await asyncio.sleep(1.0)  # nothing is written, however often it is looked at
    assert (await stage.get()).metadata.resource_version == touched.metadata.resource_version

    body = MergePatch({"allowVolumeExpansion": True})
    await stage.bed.client.patch(StorageClass, "fixed", body)
    await stage.patch({"storage": sized("3Gi", "fixed")})
    await stage.capacity("3Gi")
    await stage.exact()
    assert (await stage.status()).volumes is None
    await stage.bed.client.delete(StorageClass, "fixed")


# --- passwords ---------------------------------------------------------------------------------------------


async def refused_without(stage: RedisStage) -> None:
    """Every server wants the password, and no process shows it."""
    for pod in await stage.pods("redis"):
        name = pod.metadata.name or ""
        assert await stage.call(name, "PING") == "PONG"
        async with Dial().link(await stage.address(name)) as link:
            with pytest.raises(DialError, match="NOAUTH"):
                await link.call("PING")
    for pod in await stage.pods():
        proc = Path("/proc") / str(stage.pid(pod.metadata.name or ""))
        for file in ("cmdline", "environ"):
            assert stage.password.encode() not in (proc / file).read_bytes()


async def test_a_password_from_the_field_guards_every_server(cluster: MakeCluster) -> None:
    stage = await cluster(password='pa"ss \\ wörd')

    await refused_without(stage)


async def test_a_password_from_a_secret_guards_every_server(shared_bed: Bed, cluster: MakeCluster) -> None:
    secret = Secret(
        metadata=ObjectMeta(name="given", namespace="default"),
        data={"pw": base64.b64encode(b"from-a-secret").decode()},
    )
    stage = await cluster(exact=False, passwordSecret={"name": "given", "key": "pw"})

    async def asks() -> bool:
        return "Secret given" in (await stage.head())[1]

    await shared_bed.until(asks, "the missing Secret is named")
    await shared_bed.client.create(secret)
    stage.password = "from-a-secret"
    await stage.exact()

    await refused_without(stage)


# --- exporter ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "password", [pytest.param("", marks=pytest.mark.nightly), "s3cret"], ids=["open", "with-password"]
)
async def test_the_exporter_serves_figures_of_every_server(cluster: MakeCluster, password: str) -> None:
    stage = await cluster(
        password=password, exporter={"enabled": True, "image": "oliver006/redis_exporter:v1.58.0"}
    )
    async with aiohttp.ClientSession() as session:
        for pod in await stage.pods("redis"):
            url = f"http://{(await stage.address(pod.metadata.name or '')).ip}:9121/metrics"
            text = ""

            async def serves(url: str = url) -> bool:
                nonlocal text
                with suppress(aiohttp.ClientConnectorError):  # nothing waits for it: it may still be starting
                    async with session.get(url) as answer:
                        text = await answer.text()
                return "redis_up 1" in text

            await stage.bed.until(serves, f"{url} tells of its server")
            assert "redis_connected_clients" in text


# --- scopes ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def operators(bed: Bed, **how: Any) -> AsyncIterator[None]:
    """Operators beside the bed's or instead of them, as another process would run them."""
    chosen = Operate(operators=list(OPERATORS.values()), **how)
    task = asyncio.create_task(operate(bed.plane.client("mooring"), chosen))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.nightly
async def test_operators_of_every_scope_work_side_by_side(shared_bed: Bed) -> None:
    wide, narrow = RedisStage(shared_bed, "wide"), RedisStage(shared_bed, "narrow")
    document = manifest("wide")
    document["metadata"]["annotations"] = {"redis.kun/scope": "cluster-scoped"}
    try:
        async with wide.operators_away(), AsyncExitStack() as first:
            await first.enter_async_context(operators(shared_bed, scope="cluster"))
            await shared_bed.apply(document)
            await shared_bed.apply(manifest("narrow"))
            await wide.exact()
            assert (await narrow.get()).status is None

            async with operators(
                shared_bed, scope="namespaced", namespaces=("default",), namespace="default"
            ):
                await narrow.exact()
                await first.aclose()
                async with operators(shared_bed, scope="all"):
                    for stage in (wide, narrow):
                        name = stage.names.pod("redis", 1)
                        await stage.restarted({name: stage.kill(name)})
                        await stage.exact()
            assert await wide.flaw() == await narrow.flaw() == ""
    finally:
        for stage in (wide, narrow):
            await stage.delete(claims=True)


async def test_it_scales_by_the_scale_subresource(cluster: MakeCluster) -> None:
    stage = await cluster()
    path = f"{RedisCluster.resource.path(namespace=stage.namespace, name=stage.name)}/scale"
    scale = msgspec.json.decode((await stage.bed.client.request("GET", path)).body)
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    chosen = await stage.bed.pods(stage.namespace, scale["status"]["selector"])
    assert {pod.metadata.name for pod in chosen} == {pod.metadata.name for pod in await stage.pods("redis")}

    await stage.bed.client.request("PUT", path, body=msgspec.json.encode(scale | {"spec": {"replicas": 4}}))
    await stage.exact(60)
    assert len(await stage.pods("redis")) == 4
    assert (await stage.status()).size == 4
