"""Bad input: refused at once or shown as a condition with its remedy; running clusters stay untouched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.embedded.conftest import MakeCluster
from tests.standstill import Standstill

from mooring.kube import ApiError
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.events import Event
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]

CLAIM = {
    "metadata": {"name": "redis-data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def incarnations(stage: RedisStage) -> dict[str, tuple[str | None, int]]:
    names = [(pod.metadata.name or "", pod.metadata.uid) for pod in await stage.pods()]
    return {name: (uid, stage.pid(name)) for name, uid in names}


async def says(stage: RedisStage, *words: str, within: float = 20.0) -> str:
    """Wait until the newest condition is Failed with all these words in it; its message."""

    async def said() -> str:
        kind, message = await stage.head()
        return message if kind == "Failed" and all(word in message for word in words) else ""

    await stage.bed.until(said, f"a Failed condition with {words}", within=within)
    return (await stage.head())[1]


async def warnings(stage: RedisStage, word: str) -> list[str]:
    """Reasons of the Warnings about the cluster that hold the word."""
    events = (await stage.bed.client.list(Event, namespace=stage.namespace)).items
    return sorted(
        one.reason or ""
        for one in events
        if one.type == "Warning"
        and one.regarding is not None
        and (one.regarding.kind, one.regarding.name) == ("RedisCluster", stage.name)
        and word in (one.note or "")
    )


# --- what the API refuses ----------------------------------------------------------------------------------

PATH = "/apis/redis.kun/v1beta1/namespaces/default/redisclusters"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "size 2": ({"size": 2}, "spec.size"),
    "size 11": ({"size": 11}, "spec.size"),
    "text in a number": ({"size": "three"}, "spec.size"),
    "two sentinels": ({"sentinel": {"replicas": 2}}, "minimum"),
    "emptyDir and claim": (
        {"storage": {"emptyDir": {}, "persistentVolumeClaim": CLAIM}},
        "exclude each other",
    ),
    "an emptyDir to keep": (
        {"storage": {"emptyDir": {}, "keepAfterDeletion": True}},
        "keepAfterDeletion needs a persistentVolumeClaim",
    ),
    "two passwords": ({"password": "a", "passwordSecret": {"name": "b"}}, "not both"),
    "a number in a configuration": ({"config": {"hz": 10}}, "spec.config.hz"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_it_is_refused_with_the_field_and_nothing_is_stored(shared_bed: Bed, case: str) -> None:
    spec, told = REFUSED[case]
    document = manifest("refused")
    document["spec"] |= spec

    with pytest.raises(ApiError) as refused:
        await shared_bed.client.request("POST", PATH, body=json.dumps(document).encode())

    assert refused.value.status == 422, refused.value
    assert told in str(refused.value)
    stored = await shared_bed.client.list(RedisCluster, namespace="default")
    assert "refused" not in {one.metadata.name for one in stored.items}


async def test_a_name_of_forty_nine_characters_is_refused_and_one_of_forty_eight_is_not(
    shared_bed: Bed, cluster: MakeCluster
) -> None:
    for name, why in (("n" * 49, "longer than 48 characters"), ("shop.prod", "has a dot")):
        with pytest.raises(ApiError, match=why) as refused:
            await shared_bed.apply(manifest(name))
        assert refused.value.status == 422

    stage = RedisStage(shared_bed, "n" * 48)
    await shared_bed.apply(manifest("n" * 48))
    try:
        await stage.exact()
    finally:
        await stage.delete(claims=True)


async def test_a_bad_change_of_a_running_cluster_is_refused_and_touches_nothing(cluster: MakeCluster) -> None:
    stage = await cluster()
    before, generation = await incarnations(stage), (await stage.get()).metadata.generation

    for spec in ({"size": 2}, {"size": 11}, {"sentinel": {"replicas": 1}}):
        with pytest.raises(ApiError) as refused:
            await stage.patch(spec)
        assert refused.value.status == 422

    assert (await stage.get()).metadata.generation == generation
    assert await stage.flaw() == ""
    assert await incarnations(stage) == before


# --- what a condition says ---------------------------------------------------------------------------------


async def test_a_missing_shutdown_config_map_is_named_and_its_creation_goes_on(cluster: MakeCluster) -> None:
    stage = await cluster(exact=False, shutdownConfigMap="farewell")

    await says(stage, "spec.shutdownConfigMap", "farewell", "shutdown.sh", "create it")

    async def announced() -> bool:
        return await warnings(stage, "farewell") == ["Failed", "ShutdownConfigMapMissing"]

    await stage.bed.until(announced, "one Warning of each kind", within=10)
    assert await stage.pods() == []

    script = ConfigMap(
        metadata=ObjectMeta(name="farewell", namespace="default"), data={"shutdown.sh": "#!/bin/sh\nexit 0\n"}
    )
    await stage.bed.client.create(script)
    await stage.exact()


async def test_a_key_the_server_does_not_know_is_reported_and_the_rest_applied(cluster: MakeCluster) -> None:
    stage = await cluster()
    before = await incarnations(stage)

    await stage.patch({"config": {"slowlog-max-lenn": "300", "slowlog-max-len": "300"}})
    await stage.exact()

    results = (await stage.status()).config or {}
    assert results["slowlog-max-len"].state == "Applied"
    assert results["slowlog-max-lenn"].state == "Unknown"
    assert "correct or remove" in results["slowlog-max-lenn"].message
    assert "slowlog-max-lenn" in (await stage.condition("Progressing"))[2]
    assert await incarnations(stage) == before


@pytest.mark.parametrize(
    ("key", "value", "state"),
    [
        ("databases", "32", "NeedsRestart"),
        ("port", "7000", "Forbidden"),
        ("maxclients", "plenty", "Rejected"),
    ],
)
async def test_a_key_that_cannot_be_set_live_is_reported_and_nothing_restarts(
    cluster: MakeCluster, key: str, value: str, state: str
) -> None:
    stage = await cluster()
    before = await incarnations(stage)

    await stage.patch({"config": {key: value}})
    await stage.exact()

    result = ((await stage.status()).config or {})[key]
    assert result.state == state
    assert result.message
    assert f"spec.config.{key}" in (await stage.condition("Progressing"))[2]
    assert await incarnations(stage) == before


async def test_a_bad_key_at_creation_does_not_keep_servers_from_starting(cluster: MakeCluster) -> None:
    stage = await cluster(config={"nosuch": "1", "maxclients": "plenty", "slowlog-max-len": "300"})

    results = (await stage.status()).config or {}
    assert results["nosuch"].state == "Unknown"
    assert results["maxclients"].state == "Rejected"
    assert results["slowlog-max-len"].state == "Applied"
    replica = stage.names.pod("redis", 2)
    await stage.restarted({replica: stage.kill(replica)})
    await stage.exact()


async def test_an_image_that_does_not_exist_is_named_and_a_corrected_one_starts(cluster: MakeCluster) -> None:
    stage = await cluster(exact=False, image="nosuch:1.0")

    await says(stage, "nosuch:1.0")

    await stage.patch({"image": "redis:7.0"})
    await stage.exact(60)


async def test_an_image_that_does_not_exist_stops_the_roll_of_a_running_cluster(
    cluster: MakeCluster, stood: Standstill
) -> None:
    stage = await cluster()
    await stage.fill(1000)
    master = await stage.master()
    before = await incarnations(stage)
    async with stage.writing() as ledger:
        await stage.patch({"image": "nosuch:1.0"})
        await says(stage, "nosuch:1.0")
        await stage.writes(ledger, 100)
        pods: dict[str, str | None] = {}

        async def all_there() -> bool:
            nonlocal pods
            pods = {pod.metadata.name or "": pod.metadata.uid for pod in await stage.pods()}
            return pods.keys() == before.keys()

        await stage.bed.until(all_there, "every pod is there")
        replaced = {name for name, (uid, _) in before.items() if pods[name] != uid}
        assert len(replaced) == 1, "one pod was tried and no other"
        assert await stage.master() == master

        await stage.patch({"image": "redis:7.0"})
        await stage.exact(60)

    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    gap = report.longest_gap
    assert gap - stood.within(gap) <= 1.5, report.text()


async def test_a_claim_that_cannot_be_bound_is_named(cluster: MakeCluster) -> None:
    spec = {
        "storageClassName": "nosuch",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {"metadata": {"name": "redis-data"}, "spec": spec}
    stage = await cluster(exact=False, storage={"persistentVolumeClaim": claim})

    await says(stage, "UnboundClaim", "spec.storage.persistentVolumeClaim", "storageClassName")


async def test_what_only_the_children_refuse_is_said_and_touches_nothing(cluster: MakeCluster) -> None:
    stage = await cluster()
    before = await incarnations(stage)

    await stage.patch({"toleRations": [{"key": "db", "operator": "Nearly"}]})

    async def said() -> bool:
        return (await stage.condition("Stalled"))[0] == "True"

    await stage.bed.until(said, "the refusal is shown")
    assert "Nearly" in (await stage.condition("Stalled"))[2]
    assert await incarnations(stage) == before
    await stage.patch({"toleRations": None})
    await stage.exact()


async def test_one_bad_cluster_holds_back_no_other(cluster: MakeCluster) -> None:
    bad = await cluster(exact=False, image="nosuch:1.0")
    good = await cluster(exact=False)

    await good.exact()

    await says(bad, "nosuch:1.0")
