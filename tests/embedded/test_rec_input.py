"""HarmonyCloud's own sample, from the file as it is to a cluster that runs; and what else a user may write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.embedded.conftest import Make
from tests.operators.redis.cluster.stage import Stage

from mooring.kube import MergePatch
from mooring.kube.objects.core import ConfigMap, Node, Pod, ResourceQuota, ResourceQuotaSpec
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.quantity import parse_quantity
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterStatus
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

SAMPLE = Path(__file__).resolve().parents[1] / "operators" / "redis" / "cluster" / "harmonycloud.yaml"
#: What somebody has to fill in before it can run, on a machine of two cores.
FILLED: dict[str, Any] = {
    "pause": False,
    "pod": [
        {
            "labels": {"key": "value"},
            "env": [{"name": "tony", "value": "aa"}, {"name": "MAXMEMORY", "value": "2gb"}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            "updateStrategy": {"type": "RollingUpdate"},
            "volumes": {"type": "hostPath"},
            "middlewareImage": "redis:7.0",
        }
    ],
}


async def create(bed: Bed, document: dict[str, Any]) -> None:
    """As `kubectl apply` without --server-side does it the first time, strictly."""
    path = RedisCluster.resource.path(namespace=document["metadata"]["namespace"])
    body = msgspec.json.encode(document)
    await bed.client.request("POST", path, query={"fieldValidation": "Strict"}, body=body)


async def status_of(bed: Bed, name: str, namespace: str) -> RedisClusterStatus:
    return (await bed.get(RedisCluster, name, namespace)).status or RedisClusterStatus()


async def test_the_sample_as_it_is_creates_nothing_and_unpaused_names_its_placeholders(plane: Bed) -> None:
    name, namespace = "example000-redis-cluster", "kube-system"
    await create(plane, yaml.safe_load(SAMPLE.read_text()))
    try:

        async def told(reason: str) -> bool:
            return (await status_of(plane, name, namespace)).reason_type == reason

        await plane.until(lambda: told("Paused"), "it is paused")
        assert await plane.pods(namespace) == []

        body = MergePatch({"spec": {"pause": False}})
        await plane.client.patch(RedisCluster, name, body, namespace=namespace)
        await plane.until(lambda: told("InvalidArgs"), "the placeholders are named")
        reason = (await status_of(plane, name, namespace)).reason or ""
        for field in (
            "middlewareImage",
            "monitorImage",
            "initImage",
            "configmap",
            "persistentVolumeClaimName",
        ):
            assert f"spec.pod[0].{field}" in reason or f".{field}:" in reason
        assert await plane.pods(namespace) == []
    finally:
        await plane.client.delete(RedisCluster, name, namespace=namespace)


async def test_the_sample_filled_in_runs_with_an_odd_node_as_a_further_replica(plane: Bed) -> None:
    document = yaml.safe_load(SAMPLE.read_text())
    document["metadata"] = {"name": "sample", "namespace": "default"}
    document["spec"] |= FILLED
    stage = Stage(plane, "sample")
    try:
        await create(plane, document)
        await stage.exact(7, masters=3)

        assert (await stage.call("sample-0", "CONFIG", "GET", "maxmemory")) in (
            {"maxmemory": "2147483648"},
            ["maxmemory", "2147483648"],
        )
        pod = await plane.get(Pod, "sample-0")
        assert (pod.metadata.labels or {})["key"] == "value"
    finally:
        await stage.delete()


@pytest.mark.full
async def test_a_template_of_the_users_shapes_the_configuration(make: Make, plane: Bed) -> None:
    text = "maxclients 321\nport 7000\ncluster-node-timeout 4000\nmaxmemory-policy allkeys-lru\n"
    await plane.client.create(
        ConfigMap(metadata=ObjectMeta(name="conf", namespace="default"), data={"redis.conf": text})
    )
    stage = await make(pod={"configmap": "conf"}, exact=False)

    async def said() -> bool:
        conditions = (await stage.status()).standard_conditions or []
        return any(one.reason == "NotAsDeclared" and "port" in (one.message or "") for one in conditions)

    await plane.until(said, "the key that is left out is named", within=60)
    await stage.exact(6)
    for key, value in (("maxclients", "321"), ("cluster-node-timeout", "4000")):
        answer = await stage.call(f"{stage.name}-0", "CONFIG", "GET", key)
        assert value in (answer.values() if isinstance(answer, dict) else answer)


@pytest.mark.full
@pytest.mark.nightly
async def test_a_paused_cluster_is_looked_at_and_not_touched(make: Make) -> None:
    stage = await make()
    await stage.patch({"pause": True, "replicas": 8})

    async def said() -> bool:
        status = await stage.status()
        return status.reason_type == "Paused" and "Resize is not done" in (status.reason or "")

    await stage.bed.until(said, "it says what is not done")
    assert len(await stage.pods()) == 6


@pytest.mark.full
async def test_a_wrong_total_leaves_a_running_cluster_alone(make: Make) -> None:
    stage = await make()
    await stage.patch({"replicas": 5})

    async def said() -> bool:
        return (await stage.status()).reason_type == "InvalidArgs"

    await stage.bed.until(said, "the total is refused")
    status = await stage.status()
    assert status.phase == "Running"
    assert "give 2 or 6" in (status.reason or "")
    assert len(await stage.pods()) == 6


# --- corrected -------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "middlewareImage": "redis:7.0",
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
}
BAD: dict[str, Any] = {**GOOD, "middlewareImage": "nosuch:1.0"}


async def says(stage: Stage, *words: str, within: float = 30.0) -> None:
    async def said() -> bool:
        reason = (await stage.status()).reason or ""
        return all(word in reason for word in words)

    await stage.bed.until(said, f"it says {words}", within=within)


async def uids(stage: Stage) -> dict[str, str | None]:
    return {pod.metadata.name or "": pod.metadata.uid for pod in await stage.pods()}


async def test_an_image_that_does_not_exist_is_named_and_a_corrected_one_starts(make: Make) -> None:
    stage = await make(pod=BAD, exact=False)
    await says(stage, "ImagePull")
    conditions = (await stage.status()).conditions or []
    assert any("spec.pod[0].middlewareImage" in (one.message or "") for one in conditions)

    await stage.patch({"pod": [GOOD]})
    await stage.exact(6)


async def test_the_corrected_image_of_a_pair_starts(make: Make) -> None:
    stage = await make(replicas=2, pod=BAD, exact=False)
    await says(stage, "0 of 2 nodes", "ImagePull")

    await stage.patch({"pod": [GOOD]})

    async def running() -> bool:
        status = await stage.status()
        return status.phase == "Running" and status.replicas == 2

    await stage.bed.until(running, "the pair runs", within=60)


async def test_the_number_of_nodes_is_corrected_before_the_first_ones_run(make: Make) -> None:
    stage = await make(pod=BAD, exact=False)
    await says(stage, "ImagePull")

    await stage.patch({"replicas": 8})

    async def eight() -> bool:
        return len(await stage.pods()) == 8

    await stage.bed.until(eight, "there are eight pods")
    await stage.patch({"pod": [GOOD]})
    await stage.exact(8)


async def test_a_pair_and_a_cluster_do_not_turn_into_one_another_before_they_run(make: Make) -> None:
    stage = await make(replicas=2, pod=BAD, exact=False)
    await says(stage, "0 of 2 nodes", "ImagePull")
    await stage.patch({"replicas": 6})
    await says(stage, "do not turn into one another", "put 2 back")
    assert len(await stage.pods()) == 2


@pytest.mark.nightly
async def test_new_nodes_that_find_no_place_come_with_smaller_resources_and_old_ones_serve_on(
    make: Make, plane: Bed
) -> None:
    node = next(iter((await plane.client.list(Node)).items))
    room = (node.status.allocatable if node.status else None) or {}
    part = int(parse_quantity(room["cpu"]) * 1000) * 2 // 13  # six find a place, and a seventh does not
    large = {**GOOD, "resources": {"requests": {"cpu": f"{part}m", "memory": "16Mi"}}}
    # Nothing but a template that is rolled out would replace old pods, and here the user does that.
    by_hand = {"updateStrategy": {"type": "OnDelete"}}
    stage = await make(pod={**large, **by_hand})
    await stage.fill(500)
    before = await uids(stage)

    await stage.patch({"replicas": 8})
    await says(stage, "Unschedulable")
    await stage.patch({"pod": [{**GOOD, **by_hand}]})
    await stage.exact(8, within=90)

    after = await uids(stage)
    assert {name: after[name] for name in before} == before
    assert await stage.kept(500) == 500


@pytest.mark.full
@pytest.mark.nightly
async def test_pods_that_a_quota_forbids_are_named_and_made_once_they_are_declared_smaller(
    make: Make, plane: Bed
) -> None:
    stage = await make(pod=GOOD)
    await stage.fill(500)
    spec = ResourceQuotaSpec(
        hard={"requests.memory": "104Mi"}
    )  # six of 16Mi, and five beside one of 32Mi are too much
    quota = ResourceQuota(metadata=ObjectMeta(name="small", namespace="default"), spec=spec)
    await plane.client.create(quota)
    try:
        await stage.patch({"pod": [{**GOOD, "resources": {"requests": {"memory": "32Mi"}}}]})
        await says(stage, "5 of 6 nodes", "cannot be made: kubectl describe statefulset", within=90)
        await stage.patch({"pod": [GOOD]})
        await stage.exact(6, within=60)
    finally:
        await plane.client.delete(ResourceQuota, "small", namespace="default")
    assert await stage.kept(500) == 500
