"""How a cluster ends: with its namespace, by its own deletion with and without a drain, and part by part."""

from __future__ import annotations

from typing import Any

import bench.matrixone_model
import pytest
from tests.operators.matrixone.living import CLUSTER, IMAGE, LOG, S3, Life, living

from mooring.kube import NotFound
from mooring.kube.objects import apps, core, policy
from mooring.kube.objects.core import Event, Namespace, Pod, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.matrixone import KINDS
from mooring.operators.matrixone.bucket import actor as bucket_actor
from mooring.operators.matrixone.names import BUCKET_LIVE
from mooring.operators.matrixone.types import (
    BackupJob,
    BucketClaim,
    CNClaim,
    CNClaimSet,
    CNPool,
    CNSet,
    LogSet,
    MatrixOneCluster,
    ProxySet,
    S3Provider,
    WebUI,
)

KEYS = {"AWS_ACCESS_KEY_ID": "eA==", "AWS_SECRET_ACCESS_KEY": "eA=="}


async def objects_with_finalizers(life: Life) -> dict[str, list[str]]:
    """Finalizers of everything of ours in the namespace, by kind and name."""
    kinds = [kind for kind in KINDS if kind.resource.namespaced]
    found = [one for kind in kinds for one in (await life.client.list(kind, namespace=life.namespace)).items]
    return {f"{type(one).__name__} {one.metadata.name}": list(one.metadata.finalizers or ()) for one in found}


@pytest.mark.parametrize("termination", ["Delete", "Drain"])
async def test_a_namespace_with_a_cluster_in_it_goes(termination: str) -> None:
    async with living() as life:
        await life.client.create(Namespace(metadata=ObjectMeta(name="shop")))
        life.namespace = "shop"
        await life.client.create(Secret(metadata=ObjectMeta(name="keys", namespace="shop"), data=KEYS))
        storage = {"s3": {**S3, "path": "bucket/mo", "secretRef": {"name": "keys"}}}
        group = {"name": "main", "replicas": 2, "terminationPolicy": termination}
        log = {**LOG, "sharedStorage": storage}
        whole = {**CLUSTER, "logService": log, "cnGroups": [group], "proxy": {"replicas": 1}}
        await life.make(MatrixOneCluster, "mo", whole)
        deps = {"logSet": {"metadata": {"name": "mo"}}, "dnSet": {"metadata": {"name": "mo"}}}
        pool = {
            "podLabels": {"pool": "default"},
            "deps": deps,
            "strategy": {"updateStrategy": {}, "scaleStrategy": {"maxIdle": 1}},
            "template": {"image": IMAGE, "terminationPolicy": termination},
        }
        await life.make(CNPool, "warm", pool)
        selector = {"selector": {"matchLabels": {"pool": "default"}}}
        await life.make(CNClaim, "one", selector)
        await life.make(CNClaimSet, "set", {"replicas": 1, "template": {"spec": selector}})
        target = {"s3": {**S3, "path": "bucket/copy", "secretRef": {"name": "keys"}}}
        await life.make(BackupJob, "first", {"source": {"clusterRef": "mo"}, "target": target})
        await life.ready()

        async def claimed() -> bool:
            return len([pod for pod in await life.names(Pod) if pod.startswith("warm")]) == 3

        await life.until(claimed, "two claimed compute nodes and a warm one")
        holding = {name for names in (await objects_with_finalizers(life)).values() for name in names}
        assert holding >= {
            "matrixorigin.io/matrixonecluster",
            "matrixorigin.io/cnset",
            "matrixorigin.io/bucket-data-finalizer",
            "matrixorigin.io/cn-claim-manager",
            "matrixorigin.io/cn-pool-manager",
        }
        await life.client.delete(Namespace, "shop")

        async def gone() -> bool:
            try:
                await life.client.get(Namespace, "shop")
            except NotFound:
                return True
            return False

        try:
            await life.until(gone, "the namespace is gone", within=120)
        except AssertionError as error:
            raise AssertionError(f"{error}; left: {await objects_with_finalizers(life)}") from None
        found = (await life.client.list(Event, namespace="default")).items
        left = [one for one in found if one.reason == "DataLeft"]
        assert [one.involved_object.name for one in left if one.involved_object] == ["shop"]
        assert "bucket/mo" in (left[0].message or "")


# --- by its deletion


async def deleted(life: Life, name: str = "mo", *, within: float = 600.0) -> float:
    """Delete a cluster; returns the virtual seconds until it is gone with all its pods."""
    await life.client.delete(MatrixOneCluster, name, namespace=life.namespace)

    async def gone() -> bool:
        return not await life.there(MatrixOneCluster, name)

    took = await life.until(gone, "the cluster is gone", within=within)
    assert await life.names(Pod) == []
    return took


def drained(**scaling: Any) -> dict[str, Any]:
    """A cluster of two compute nodes, each with a client's session, that are drained at the end."""
    group = {"name": "main", "replicas": 2, "terminationPolicy": "Drain", "scalingConfig": scaling}
    return {**CLUSTER, "cnGroups": [group]}


async def test_compute_nodes_with_sessions_are_drained_before_their_cluster_ends() -> None:
    async with living() as life:
        await life.make(MatrixOneCluster, "mo", drained(storeDrainTimeout="5m"))
        await life.ready()
        assert [life.world.session(uuid) for uuid in life.world.pods] == ["", ""]
        took = await deleted(life)
        assert life.world.wrong == []
        assert took < 60.0, "the drain's limit of 5 minutes was not needed"


async def test_a_cluster_that_is_not_to_be_drained_ends_with_its_sessions() -> None:
    async with living() as life:
        whole = drained(storeDrainTimeout="5m")
        whole["cnGroups"][0]["terminationPolicy"] = "Delete"
        await life.make(MatrixOneCluster, "mo", whole)
        await life.ready()
        await deleted(life)
        assert life.world.wrong == ["a compute node was stopped with a session of all"] * 2


async def test_sessions_that_do_not_leave_hold_the_end_of_a_cluster_until_the_drains_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench.matrixone_model, "LEAVES", 1e9)
    async with living() as life:
        await life.make(MatrixOneCluster, "mo", drained(storeDrainTimeout="90s"))
        await life.ready()
        took = await deleted(life)
        assert 90.0 <= took < 110.0
        assert life.world.wrong == ["a compute node was stopped with a session of all"] * 2


# --- its data


async def test_volumes_may_go_while_the_data_in_s3_stays_also_when_its_claim_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    erased: list[str] = []

    async def erase(s3: S3Provider, secret: Secret | None) -> bool:
        erased.append(s3.path or "")
        return True

    monkeypatch.setattr(bucket_actor, "erase", erase)
    async with living() as life:
        storage = {"s3": {**S3, "path": "bucket/mo", "s3RetentionPolicy": "Retain"}}
        await life.make(
            LogSet, "mo", {**LOG, "image": IMAGE, "pvcRetentionPolicy": "Delete", "sharedStorage": storage}
        )

        async def runs() -> bool:
            found = (await life.client.list(BucketClaim, namespace="default")).items
            live = [one for one in found if BUCKET_LIVE in (one.metadata.annotations or {})]
            return bool(live) and bool(await life.names(core.PersistentVolumeClaim))

        await life.until(runs, "a log store runs on the path")
        await life.client.delete(LogSet, "mo", namespace="default")

        async def released() -> bool:
            (claim,) = (await life.client.list(BucketClaim, namespace="default")).items
            gone = not await life.names(core.PersistentVolumeClaim)
            return gone and claim.status is not None and claim.status.state == "Released"

        await life.until(released, "the volumes are gone, and the path is free", within=60.0)
        (name,) = await life.names(BucketClaim)
        await life.client.delete(BucketClaim, name, namespace="default")

        async def gone() -> bool:
            return await life.names(BucketClaim) == []

        await life.until(gone, "the claim is gone", within=60.0)
        assert erased == []


# --- part by part

PARTS = (
    *(
        ProxySet,
        WebUI,
        CNSet,
        apps.Deployment,
        apps.ReplicaSet,
        apps.ControllerRevision,
        policy.PodDisruptionBudget,
    ),
    *(Pod, core.Service, core.ConfigMap, Secret),
)


async def parts(life: Life, *names: str) -> set[str]:
    """Kinds of the objects whose names begin so."""
    made = [(kind, one) for kind in PARTS for one in await life.names(kind)]
    return {kind.__name__ for kind, one in made if one.startswith(names)}


@pytest.mark.parametrize("termination", ["Delete", "Drain"])
async def test_parts_that_are_no_longer_declared_go_and_a_group_is_drained_only_where_it_says_so(
    termination: str,
) -> None:
    async with living() as life:
        main, extra = (
            {"name": name, "replicas": 1, "terminationPolicy": termination} for name in ("main", "extra")
        )
        whole = {**CLUSTER, "cnGroups": [main, extra], "proxy": {"replicas": 1}, "webui": {"replicas": 1}}
        await life.make(MatrixOneCluster, "mo", whole)
        await life.ready()
        added = await parts(life, "mo-extra", "mo-proxy", "mo-webui")
        assert added | {"ProxySet", "WebUI"} == {kind.__name__ for kind in PARTS}
        assert (await life.names(ProxySet), await life.names(WebUI)) == (["mo"], ["mo"])
        await life.edit(MatrixOneCluster, "mo", {"cnGroups": [main], "webui": None})

        async def gone() -> bool:
            return not await parts(life, "mo-extra", "mo-webui") and await life.names(WebUI) == []

        await life.until(gone, "what the group and the dashboard were made of is gone")
        sessions = 1 if termination == "Delete" else 0
        assert life.world.wrong == ["a compute node was stopped with a session of all"] * sessions
        await life.edit(MatrixOneCluster, "mo", {"proxy": None})

        async def only_the_group() -> bool:
            return not await parts(life, "mo-proxy") and await life.names(ProxySet) == []

        await life.until(only_the_group, "what the proxy was made of is gone")
        await life.ready()
        assert await life.names(CNSet) == ["mo-main"]
        status = (await life.get(MatrixOneCluster, "mo")).status
        assert status is not None
        assert (status.proxy, status.webui) == (None, None)
