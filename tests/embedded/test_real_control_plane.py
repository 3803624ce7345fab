"""The operator's main job against a real kube-apiserver and kube-controller-manager, pods run by our node."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.embedded.conftest import real_bed
from tests.operators.redis.cluster import stage as rec

from mooring.kube import NotFound
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import ConfigMap, PersistentVolume, Pod, Service
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import MergePatch
from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterStatus
from mooring.testing.bed import KubernetesBed
from mooring.testing.ledger import Ledger
from mooring.testing.redis import RedisStage

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to make networks"),
]

MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: real-redis}
stringData: {password: on-a-real-server}
---
apiVersion: redis.kun/v1beta1
kind: RedisCluster
metadata: {name: real}
spec:
  size: 3
  image: redis:7.0
  imagePullPolicy: IfNotPresent
  passwordSecret: {name: real-redis}
  storage:
    keepAfterDeletion: false
    persistentVolumeClaim:
      metadata: {name: redis-data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  sentinel: {image: "redis:7.0"}
"""


async def healthy(bed: KubernetesBed, *, not_master: str = "") -> RedisClusterStatus | None:
    cluster = await bed.get(RedisCluster, "real")
    status = cluster.status
    if status is None or not status.conditions or status.observed_generation != cluster.metadata.generation:
        return None
    return status if status.conditions[0].type == "Healthy" and status.master != not_master else None


async def test_a_cluster_comes_alive_survives_its_master_and_goes(
    directory: Path, real_kubernetes: Path
) -> None:
    async with real_bed(directory, real_kubernetes) as bed:
        await bed.apply(MANIFEST)
        await bed.until(lambda: healthy(bed), "the cluster is healthy", within=60)
        status = (await bed.get(RedisCluster, "real")).status
        assert status is not None
        assert status.master
        service = await bed.get(Service, "redis-sentinel-real")
        assert service.spec is not None
        ledger = Ledger(
            sentinels=[Address(service.spec.cluster_ip or "", 26379)], password="on-a-real-server"
        )
        writing = asyncio.create_task(ledger.write())
        try:

            async def written() -> bool:
                return ledger.acknowledged > 100

            await bed.until(written, "writes get through", within=20)
            bed.kill("default", status.master, "redis")
            old = status.master
            await bed.until(lambda: healthy(bed, not_master=old), "another master serves", within=30)
        finally:
            ledger.stop()
            await writing
        report = await ledger.check()
        assert report.lost_confirmed == 0, report.text()

        await bed.client.delete(StatefulSet, "redis-sentinel-real", namespace="default")
        await bed.client.delete(Service, "redis-cluster-real", namespace="default")

        async def restored() -> bool:
            try:
                one = await bed.get(StatefulSet, "redis-sentinel-real")
                await bed.get(Service, "redis-cluster-real")
            except NotFound:
                return False
            return one.metadata.deletion_timestamp is None

        await bed.until(restored, "deleted children are made again", within=20)
        await bed.until(lambda: _settled(bed), "every pod belongs to the new StatefulSet", within=60)
        stage = RedisStage(bed, "real", password="on-a-real-server")
        await stage.exact(60)
        volumes = (await bed.client.list(PersistentVolume)).items
        assert [one.status.phase for one in volumes if one.status] == ["Bound"] * 3
        await bed.until(lambda: _rests(bed, seconds=2), "nothing is written any more", within=20)

        await bed.client.patch(
            RedisCluster, "real", MergePatch({"spec": {"config": {"maxclients": "321"}}}), namespace="default"
        )
        await stage.exact()
        assert {
            await stage.config(pod.metadata.name or "", "maxclients") for pod in await stage.pods("redis")
        } == {"321"}
        await bed.client.delete(RedisCluster, "real", namespace="default")

        async def gone() -> bool:
            sets = (await bed.client.list(StatefulSet, namespace="default")).items
            volumes = (await bed.client.list(PersistentVolume)).items
            return not sets and not await bed.pods() and not volumes

        await bed.until(gone, "everything went with the cluster", within=60)


async def test_a_redis_cluster_comes_alive_grows_survives_a_master_and_goes(
    directory: Path, real_kubernetes: Path
) -> None:
    async with real_bed(directory, real_kubernetes, operators=[rec.OPERATOR]) as bed:
        stage = rec.Stage(bed, "shards", password="on-a-real-server")
        await bed.apply(rec.manifest(stage.name, replicas=6, password=stage.password))
        await stage.exact(6)
        await stage.fill(1000)
        assert await _columns(bed, "redis.middleware.hc.cn/v1alpha1") == {
            "Name": "shards",
            "Replicas": 6,
            "Ready": 6,
            "Phase": "Running",
            "Reason": None,
        }

        async with stage.writing() as report:
            await stage.patch({"replicas": 8})
            await stage.exact(8)
            master = next(iter(await stage.owned()))
            before = {pod.metadata.uid for pod in await stage.pods() if pod.metadata.name == master}
            await bed.client.delete(Pod, master, namespace="default")
            await rec.renewed(stage, before)
            await stage.exact(8)
        assert await stage.lost(report) == []
        assert await stage.kept(1000) == 1000
        await stage.tells("CreateClusterSuccess", "UpgradeClusterSuccess")

        await stage.delete()

        async def gone() -> bool:
            names = [one.metadata.name for one in (await bed.client.list(Service, namespace="default")).items]
            return names == ["kubernetes"] and not (await bed.client.list(PersistentVolume)).items

        await bed.until(gone, "everything went with the cluster", within=60)


async def _columns(bed: KubernetesBed, version: str) -> dict[str, object]:
    """What ``kubectl get redisclusters -o wide`` shows of the only one there is, without its age."""
    path = f"/apis/{version}/namespaces/default/redisclusters"
    answer = await bed.client.request("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    table = json.loads(answer.body)
    [row] = table["rows"]
    names = [column["name"] for column in table["columnDefinitions"]]
    return {name: cell for name, cell in zip(names, row["cells"], strict=True) if name != "Age"}


async def _settled(bed: KubernetesBed) -> bool:
    """Whether no pod of a deleted StatefulSet is left: they look healthy until the collector comes by."""
    owners = {one.metadata.uid for one in (await bed.client.list(StatefulSet, namespace="default")).items}
    references = [reference for pod in await bed.pods() for reference in pod.metadata.owner_references or ()]
    return len(references) == 6 and all(reference.uid in owners for reference in references)


async def _rests(bed: KubernetesBed, *, seconds: float) -> bool:
    """Whether nothing is written for so long."""
    before = await _version(bed)
    await asyncio.sleep(seconds)
    return await _version(bed) == before


async def _version(bed: KubernetesBed) -> str:
    """A version that moves with every write to the cluster or its StatefulSets."""
    cluster = await bed.get(RedisCluster, "real")
    sets = (await bed.client.list(StatefulSet, namespace="default")).items
    return " ".join(str(o.metadata.resource_version) for o in (cluster, *sets))


async def test_bad_input_is_refused_by_the_real_server(directory: Path, real_kubernetes: Path) -> None:
    async with real_bed(directory, real_kubernetes) as bed:
        for patch, said in (
            ({"size": 2}, "spec.size"),
            ({"size": 11}, "spec.size"),
            ({"size": "three"}, "spec.size"),
            ({"password": "p" * 49}, "spec.password"),
        ):
            raw = {
                "apiVersion": "redis.kun/v1beta1",
                "kind": "RedisCluster",
                "metadata": {"name": "bad"},
                "spec": patch,
            }
            with pytest.raises(Exception, match=said):
                await bed.apply(raw)
        await bed.client.create(ConfigMap(metadata=ObjectMeta(name="still-works", namespace="default")))
        await bed.client.delete(ConfigMap, "still-works", namespace="default")
