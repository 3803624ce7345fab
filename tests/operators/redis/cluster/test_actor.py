"""The actor on a whole API server (in memory), before any pod runs: scope, children, what the server refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.operators.redis.sentinel.test_actor import eventually, there

from mooring.kube import Client, MergePatch, metadata_of
from mooring.kube.object import decode
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    Secret,
    VolumeResourceRequirements,
)
from mooring.kube.objects.events import Event
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.local.api.server import ApiServer
from mooring.operators.redis.cluster import KINDS, OPERATOR, RedisCluster, register
from mooring.operators.redis.cluster.names import selector_of
from mooring.operators.redis.cluster.types import RedisClusterStatus
from mooring.operators.workload.removal import remove_clusters
from mooring.runtime import Clock, Manager
from mooring.runtime.crd import render_crd
from mooring.testing.clock import VirtualClock

NAMESPACE = "default"


@asynccontextmanager
async def operating(*, scope: str = "all", clock: Clock | None = None) -> AsyncIterator[Client]:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        for kind in KINDS:
            body = msgspec.json.encode(render_crd(kind))
            await client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)
        manager = Manager(Client(server.transport()), name="redis-cluster", clock=clock)
        register(manager, scope=scope)
        task = asyncio.create_task(manager.run())
        try:
            yield client
        finally:
            manager.stop()
            await asyncio.wait_for(task, 15)


async def quiet(clock: VirtualClock) -> None:
    """Let a minute pass in which everything is done that is to be done."""
    for _ in range(60):
        await clock.advance(1.0)


async def declare(client: Client, *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
    body = {"replicas": 6, "pod": [{"middlewareImage": "redis:7.0"}], **spec}
    metadata = {"name": "shop", "namespace": NAMESPACE, "annotations": annotations or {}}
    await client.create(decode({"metadata": metadata, "spec": body}, RedisCluster))


async def status(client: Client) -> RedisClusterStatus:
    found = await client.get(RedisCluster, "shop", namespace=NAMESPACE)
    return found.status or RedisClusterStatus()


@pytest.mark.parametrize(
    ("scope", "annotated", "ours"),
    [
        ("all", False, True),
        ("all", True, True),
        ("cluster", False, False),
        ("cluster", True, True),
        ("namespaced", False, True),
        ("namespaced", True, False),
    ],
)
async def test_each_scope_manages_its_own(scope: str, annotated: bool, ours: bool) -> None:
    clock = VirtualClock()
    async with operating(scope=scope, clock=clock) as client:
        await declare(client, annotations={"redis.kun/scope": "cluster-scoped"} if annotated else {})
        await quiet(clock)
        assert (await there(client, StatefulSet, "shop")() is not None) is ours


async def test_no_secret_is_kept_whole_in_the_cache() -> None:
    async with ApiServer.in_memory() as server:
        manager = Manager(Client(server.transport()), name="redis-cluster")
        register(manager)
        kinds = {informer.kind for informer in manager.informers}
    assert Secret not in kinds
    assert metadata_of(Secret) in kinds


async def test_what_the_server_refuses_is_said_in_harmonyclouds_reason_too() -> None:
    async with operating() as client:
        await declare(client, pod=[{"middlewareImage": "redis:7.0", "imagePullPolicy": "Nearly"}])

        async def said() -> bool:
            now = await status(client)
            return (now.phase, now.reason_type) == ("Failed", "InvalidArgs") and "Nearly" in (
                now.reason or ""
            )

        await eventually(said)

        async def failed() -> bool:
            return (await told(client)).count("CreateClusterFailed") == 1

        await eventually(failed)


async def told(client: Client) -> list[str]:
    """Of what Events there are, sorted; `eventually` waits for them, since they are sent by and by."""
    found = await client.list(Event, namespace=NAMESPACE)
    return sorted(one.reason or "" for one in found.items if one.regarding and one.regarding.name == "shop")


async def test_the_beginning_and_the_end_are_told_of_once() -> None:
    async with operating() as client:
        await declare(client, finalizers="foreground")
        await eventually(there(client, StatefulSet, "shop"))

        async def begun() -> bool:
            return await told(client) == ["CreateClusterStart", "CreatePod"]

        await eventually(begun)
        await client.delete(RedisCluster, "shop", namespace=NAMESPACE)

        async def ended() -> bool:
            ends = ["DeleteClusterStart", "DeleteData", "DeleteResources"]
            return await told(client) == ["CreateClusterStart", "CreatePod", *ends]

        await eventually(ended)


async def test_a_declaration_that_cannot_be_carried_out_failed_and_begins_when_it_is_corrected() -> None:
    async with operating() as client:
        await declare(client, replicas=5)

        async def failed() -> bool:
            return await told(client) == ["CreateClusterFailed", "InvalidArgs"]

        await eventually(failed)
        body = MergePatch({"spec": {"replicas": 6}})
        await client.patch(RedisCluster, "shop", body, namespace=NAMESPACE)

        async def begun() -> bool:
            return "CreateClusterStart" in await told(client)

        await eventually(begun)
        assert (await told(client)).count("CreateClusterFailed") == 1


@pytest.mark.parametrize(("policy", "goes"), [("foreground", True), ("Foreground", True), (None, False)])
async def test_claims_go_with_the_cluster_only_where_it_is_said(policy: str | None, goes: bool) -> None:
    clock = VirtualClock()
    async with operating(clock=clock) as client:
        size = VolumeResourceRequirements(requests={"storage": "1Gi"})
        claim = PersistentVolumeClaim(
            metadata=ObjectMeta(name="redis-data-shop-0", namespace=NAMESPACE, labels=selector_of("shop")),
            spec=PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=size),
        )
        await client.create(claim)
        await declare(client, finalizers=policy)
        await quiet(clock)
        assert await there(client, StatefulSet, "shop")() is not None
        found = await client.get(PersistentVolumeClaim, "redis-data-shop-0", namespace=NAMESPACE)
        assert bool(found.metadata.owner_references) is goes


async def test_clusters_that_go_with_a_release_keep_their_claims() -> None:
    async with operating() as client:
        size = VolumeResourceRequirements(requests={"storage": "1Gi"})
        claim = PersistentVolumeClaim(
            metadata=ObjectMeta(name="redis-data-shop-0", namespace=NAMESPACE, labels=selector_of("shop")),
            spec=PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=size),
        )
        await client.create(claim)
        await declare(client, finalizers="foreground")

        async def owners() -> list[OwnerReference]:
            found = await client.get(PersistentVolumeClaim, "redis-data-shop-0", namespace=NAMESPACE)
            return list(found.metadata.owner_references or ())

        await eventually(owners)
        said: list[str] = []
        removal = OPERATOR.removal
        assert removal is not None
        removed = await remove_clusters(
            client,
            operators={"redis-cluster": removal},
            scope="all",
            namespaces=(),
            within=10.0,
            say=said.append,
        )

        assert removed == 1
        assert await there(client, RedisCluster, "shop")() is None
        assert await owners() == []
        assert (
            said[0] == "default/shop (redis.middleware.hc.cn): waiting for the operator to release its claims"
        )


async def test_pods_of_somebody_elses_set_of_the_same_name_are_left_alone() -> None:
    clock = VirtualClock()
    async with operating(clock=clock) as client:
        labels = {"app.kubernetes.io/managed-by": "another"}
        owner = OwnerReference(
            api_version="example.com/v1", kind="Shop", name="shop", uid="another", controller=True
        )
        found = await client.create(
            decode(
                {
                    "metadata": {"name": "shop", "namespace": NAMESPACE},
                    "spec": {
                        "replicas": 1,
                        "serviceName": "shop",
                        "selector": {"matchLabels": labels},
                        "template": {
                            "metadata": {"labels": labels},
                            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
                        },
                    },
                },
                StatefulSet,
            )
        )
        body = MergePatch({"metadata": {"ownerReferences": [msgspec.to_builtins(owner)]}})
        await client.patch(StatefulSet, "shop", body, namespace=NAMESPACE)
        await client.patch(
            StatefulSet,
            "shop",
            MergePatch({"status": {"replicas": 1}}),
            namespace=NAMESPACE,
            subresource="status",
        )
        controller = OwnerReference(
            api_version="apps/v1", kind="StatefulSet", name="shop", uid=found.metadata.uid, controller=True
        )
        pod = {
            "metadata": {
                "name": "shop-0",
                "namespace": NAMESPACE,
                "labels": labels,
                "ownerReferences": [msgspec.to_builtins(controller)],
            },
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        await client.create(decode(pod, Pod))
        await declare(client)
        await quiet(clock)

        assert (await status(client)).reason_type == "NameTaken"
        left = await client.get(Pod, "shop-0", namespace=NAMESPACE)
        assert left.metadata.labels == labels
