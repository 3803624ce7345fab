"""What a declaration and the objects around it come to, before any server is asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from mooring.actor import Terminal, Wait
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.backup.types import RestoreStatus
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.sentinel.inputs import Inputs, read_inputs, read_snapshot
from mooring.operators.redis.sentinel.lineage import Lineage, Standing
from mooring.operators.redis.sentinel.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    RedisStorage,
)
from mooring.operators.workload.surroundings import Surroundings

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claim(name: str | None, uid: str = "") -> core.PersistentVolumeClaim:
    return core.PersistentVolumeClaim(metadata=ObjectMeta(name=name, uid=uid))


def gathered(declared: str | None, *, there: str) -> Inputs | Wait | Terminal:
    """The inputs of a cluster whose set is gone: what it declares now, and the claim with its data."""
    size = core.VolumeResourceRequirements(requests={"storage": "1Gi"})
    spec = core.PersistentVolumeClaimSpec(resources=size)
    storage = RedisStorage(persistent_volume_claim=replace(claim(declared), spec=spec)) if declared else None
    cluster = RedisCluster(
        metadata=ObjectMeta(name="demo", namespace="default"), spec=RedisClusterSpec(size=3, storage=storage)
    )
    master = Standing(pod="redis-cluster-demo-0", volume="the-data")
    status = RedisClusterStatus(lineage=Lineage(master=master, members=(master,)))
    return read_inputs(replace(cluster, status=status), Surroundings([claim(there, "the-data")]), now=NOW)


@pytest.mark.parametrize("declared", [None, "other"])
def test_a_set_is_not_made_anew_beside_the_claims_with_its_data(declared: str | None) -> None:
    refused = gathered(declared, there="data-redis-cluster-demo-0")

    assert isinstance(refused, Wait)
    assert refused.stalled
    assert refused.reason == "StorageChanged"
    assert (
        "spec.storage.persistentVolumeClaim: the data is on the claim data-redis-cluster-demo-0"
        in refused.message
    )
    assert "put it back as it was" in refused.message


def test_a_set_is_made_anew_on_the_claims_with_its_data() -> None:
    assert isinstance(gathered("data", there="data-redis-cluster-demo-0"), Inputs)


async def test_the_first_pod_of_a_restored_cluster_has_data_until_a_master_is_recorded() -> None:
    """Its claim is as new as the cluster, and nothing but the record tells that a Job has filled it."""
    size = core.VolumeResourceRequirements(requests={"storage": "1Gi"})
    spec = core.PersistentVolumeClaimSpec(resources=size)
    storage = RedisStorage(persistent_volume_claim=replace(claim("data"), spec=spec))
    born = "2026-01-01T00:00:00Z"
    made = [replace(claim(f"data-redis-cluster-demo-{at}", f"uid-{at}"), spec=spec) for at in range(3)]
    made = [replace(one, metadata=replace(one.metadata, creation_timestamp=born)) for one in made]

    async def old(status: RedisClusterStatus) -> frozenset[str]:
        cluster = RedisCluster(
            metadata=ObjectMeta(name="demo", namespace="default", creation_timestamp=born),
            spec=RedisClusterSpec(size=3, storage=storage),
            status=status,
        )
        inputs = read_inputs(cluster, Surroundings(made), now=NOW)
        assert isinstance(inputs, Inputs)
        return (await read_snapshot(inputs, Dial(), now=lambda: NOW)).observed.old_claims

    restored = RestoreStatus(phase="Succeeded")
    assert await old(RedisClusterStatus()) == frozenset()
    assert await old(RedisClusterStatus(restore=restored)) == {"redis-cluster-demo-0"}
    master = Standing(pod="redis-cluster-demo-0", volume="uid-0")
    lineage = Lineage(master=master, members=(master,))
    assert await old(RedisClusterStatus(restore=restored, lineage=lineage)) == frozenset()
