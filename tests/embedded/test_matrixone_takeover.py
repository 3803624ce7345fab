"""A cluster that upstream's operator and OpenKruise left running, with its data, when Mooring's operator starts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from asyncmy.errors import MySQLError
from tests.embedded.test_matrixone_life import SETTINGS, at_rest, rows, session, under_load
from tests.embedded.test_rec_adopt import starts
from tests.operators.matrixone.upstream import CONDITIONS, DEFINITIONS, Upstream

from mooring.cache import SystemClock, rfc3339
from mooring.kube import MergePatch
from mooring.kube.object import Object, controller_of
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.operators.matrixone import OPERATOR, kruise
from mooring.operators.matrixone.takeover import TAKE_OVER, TAKEN_OVER
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, MatrixOneCluster, ProxySet
from mooring.testing.bed import Bed

pytestmark = [
    pytest.mark.mo_service,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1200),
]

SHARED: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "mo-shared"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}},
}
CREDENTIAL: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "mo-credential", "namespace": "default"},
    "stringData": {"username": "dump", "password": "111"},
}
OVERLAY = {
    "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "mo-shared"}}],
    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
}
CACHE = {"memoryCacheSize": "256Mi"}
CLUSTER: dict[str, Any] = {
    "apiVersion": "core.matrixorigin.io/v1alpha1",
    "kind": "MatrixOneCluster",
    "metadata": {"name": "mo", "namespace": "default", "finalizers": ["matrixorigin.io/matrixonecluster"]},
    "spec": {
        "version": "1.2.4",
        "logService": {
            "replicas": 3,
            "volume": {"size": "5Gi"},
            "sharedStorage": {"fileSystem": {"path": "/shared"}},
            "overlay": OVERLAY,
        },
        "tn": {
            "replicas": 1,
            "cacheVolume": {"size": "5Gi"},
            "sharedStorageCache": CACHE,
            "overlay": OVERLAY,
        },
        "cnGroups": [{"name": "tp", "replicas": 1, "sharedStorageCache": CACHE, "overlay": OVERLAY}],
        "proxy": {"replicas": 1, "overlay": OVERLAY},
    },
}
KINDS: Mapping[str, type[Any]] = {one.resource.kind: one for one in (LogSet, DNSet, CNSet, ProxySet)}


@pytest_asyncio.fixture(loop_scope="module")
async def bed() -> AsyncIterator[Bed]:
    """A plane on which the cluster runs and no operator does."""
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(path, operators=[OPERATOR], settings=SETTINGS) as running:
            await running.stop_operators()
            await leave(running)
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def leave(bed: Bed) -> None:
    """Make everything that upstream's operator would have left, and open the gates of its pods."""
    for manifest in (*DEFINITIONS, SHARED, CREDENTIAL, CLUSTER):
        await bed.apply(manifest)
    upstream = Upstream(await bed.get(MatrixOneCluster, "mo"))
    sets: list[Object] = []
    for one in upstream.declared():
        await bed.apply(one)
        sets.append(await bed.get(KINDS[one["kind"]], one["metadata"]["name"]))
    upstream = Upstream(upstream.cluster, tuple(sets))
    for one in upstream.objects():
        await bed.apply(one)
    for one in upstream.pods({one.metadata.name or "": one.metadata.uid or "" for one in await kruises(bed)}):
        await bed.apply(one)
        if one["kind"] == "Pod":
            now = rfc3339(SystemClock().now())
            opened = [{"type": gate, "status": "True", "lastTransitionTime": now} for gate in CONDITIONS]
            body = MergePatch({"status": {"conditions": opened}})
            await bed.client.patch(
                Pod, one["metadata"]["name"], body, namespace="default", subresource="status"
            )


async def kruises(bed: Bed) -> list[Object]:
    """OpenKruise's workloads."""
    return [
        one
        for kind in (kruise.StatefulSet, kruise.CloneSet)
        for one in (await bed.client.list(kind, namespace="default")).items
    ]


async def answers(bed: Bed) -> bool:
    try:
        async with session(bed) as cursor:
            await cursor.execute("select 1")
    except (MySQLError, OSError, TimeoutError):
        return False
    return True


async def condition(bed: Bed, kind: type[Any], name: str, type: str) -> str:
    found = await bed.get(kind, name)
    listed = (found.status.conditions if found.status else None) or []
    return next((f"{one.reason}: {one.message}" for one in listed if one.type == type), "")


async def stored(bed: Bed) -> dict[str, Pod]:
    """The pods that hold data or sessions: all but the proxies."""
    every = await bed.pods()
    kinds = ("LogSet", "DNSet", "CNSet")
    return {
        one.metadata.name or "": one
        for one in every
        if (one.metadata.labels or {}).get("matrixorigin.io/component") in kinds
    }


async def test_a_cluster_of_upstreams_operator_is_taken_over_while_it_serves(bed: Bed) -> None:
    await bed.until(lambda: answers(bed), "the cluster that upstream left answers", within=300, every=0.3)
    async with session(bed) as cursor:
        await cursor.execute("create database t")
        await cursor.execute("create table t.numbers (n int primary key)")
        await cursor.execute("insert into t.numbers values (0)")
    before = starts(list((await stored(bed)).values()))
    workloads = {one.metadata.uid: one.metadata.resource_version for one in await kruises(bed)}
    assert len(before) == 5
    assert len(workloads) == 4

    await bed.start_operators()

    async def refused() -> str:
        return await condition(bed, LogSet, "mo", "Stalled") and await condition(
            bed, MatrixOneCluster, "mo", "Stalled"
        )

    await bed.until(refused, "the operator says that it does nothing unasked", within=120, every=0.1)
    text = await condition(bed, MatrixOneCluster, "mo", "Stalled")
    assert text.startswith("NotAdopted: ")
    assert f"{TAKE_OVER}=true on the MatrixOneCluster mo" in text
    assert {one.metadata.uid: one.metadata.resource_version for one in await kruises(bed)} == workloads

    async with under_load(bed, 1) as load:
        body = MergePatch({"metadata": {"annotations": {TAKE_OVER: "true"}}})
        await bed.client.patch(MatrixOneCluster, "mo", body, namespace="default")

        async def taken() -> bool:
            return not await kruises(bed) and await at_rest(bed)

        await bed.until(taken, "the cluster is Mooring's, ready and as declared", within=300, every=0.2)

    after = await stored(bed)
    assert starts(list(after.values())) == before
    owners = {name: owner for name, one in after.items() if (owner := controller_of(one)) is not None}
    assert {name: f"{one.api_version} {one.kind}" for name, one in owners.items()} == {
        "mo-log-0": "apps/v1 StatefulSet",
        "mo-log-1": "apps/v1 StatefulSet",
        "mo-log-2": "apps/v1 StatefulSet",
        "mo-dn-0": "apps/v1 StatefulSet",
        "mo-tp-cn-x7k2p": "core.matrixorigin.io/v1alpha1 CNSet",
    }
    assert not any(one.metadata.finalizers for one in after.values())
    assert not any(TAKEN_OVER in (one.metadata.annotations or {}) for one in after.values())
    for kind, name in ((LogSet, "mo"), (DNSet, "mo"), (ProxySet, "mo")):
        assert not (await bed.get(kind, name)).metadata.finalizers
    assert await rows(bed) >= {0, *load.written}
    assert load.breaks <= 1, load.failed  # the only proxy is replaced

    gone = after["mo-log-1"].metadata.uid
    await bed.client.delete(Pod, "mo-log-1", namespace="default")

    async def again() -> bool:
        found = (await stored(bed)).get("mo-log-1")
        return found is not None and found.metadata.uid != gone and await at_rest(bed)

    await bed.until(
        again, "a store comes up from Mooring's template on upstream's data", within=300, every=0.2
    )
    assert await rows(bed) >= {0, *load.written}

    await bed.client.delete(MatrixOneCluster, "mo", namespace="default")

    async def nothing() -> bool:
        left = (await bed.client.list(PersistentVolumeClaim, namespace="default")).items
        return not await bed.pods() and [one.metadata.name for one in left] == ["mo-shared"]

    await bed.until(nothing, "a deleted cluster goes with all that upstream made", within=300, every=0.2)
