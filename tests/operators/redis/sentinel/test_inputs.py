"""What a declaration and the objects around it come to, before any server is asked."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mooring.actor import Terminal, Wait
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.sentinel.inputs import Inputs, read_inputs
from mooring.operators.redis.sentinel.lineage import Lineage, Standing
from mooring.operators.redis.sentinel.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    RedisStorage,
)
from mooring.operators.workload.surroundings import Surroundings


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
    return read_inputs(replace(cluster, status=status), Surroundings([claim(there, "the-data")]))


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
