"""Odd objects of every kind beside a good cluster: nothing of that is written, and it can be changed afterwards."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec
from bench.matrixone_model import World
from tests.operators.matrixone.builders import BY_KIND, declared
from tests.operators.matrixone.living import CLUSTER, Life, living
from tests.operators.matrixone.test_fuzz import mutated

from mooring.kube.objects import apps, core, policy
from mooring.operators.matrixone.types import Backup, BucketClaim, MatrixOneCluster

SEED: Final = 20260101
ODD_ONES: Final = 4
"""Of each kind."""
CHILDREN: Final = (
    *(core.Pod, core.Service, core.ConfigMap, core.Secret, core.PersistentVolumeClaim),
    *(apps.StatefulSet, apps.Deployment, apps.ControllerRevision, policy.PodDisruptionBudget),
)


class OneCluster(World):
    """The model has one HAKeeper, so the processes in the pods of odd objects are never heard of."""

    def started(self, pod: core.Pod, ip: str) -> None:
        """See `PodModel.started`."""
        if (pod.metadata.name or "").startswith("mo-"):
            super().started(pod, ip)


async def versions(life: Life, namespace: str) -> dict[str, str]:
    """The resourceVersion of everything that a cluster is made of, with it and its pods."""
    kinds: list[type[Any]] = [*(kind for kind in BY_KIND.values() if kind is not Backup), *CHILDREN]
    found = [one for kind in kinds for one in (await life.client.list(kind, namespace=namespace)).items]
    return {f"{type(one).__name__} {one.metadata.name}": one.metadata.resource_version or "" for one in found}


async def make_odd_ones(life: Life, chance: random.Random) -> tuple[int, int]:
    """Some of every kind, in the namespace of the cluster; how many the schema let pass, and refused."""
    passed = refused = 0
    for kind, made in BY_KIND.items():
        path = made.resource.path(namespace="default" if kind != "Backup" else "")
        seed: dict[str, Any] = (
            declared(kind)
            if kind != "Backup"
            else {"apiVersion": made.resource.api_version, "kind": kind, "spec": {}}
        )
        for at in range(ODD_ONES):
            odd = mutated(seed, chance)
            odd["metadata"] = {"name": f"odd-{kind.lower()}-{at}"}
            answer = await life.client.transport.request("POST", path, body=msgspec.json.encode(odd))
            assert answer.status in (201, 400, 422), answer.body
            passed, refused = passed + (answer.status == 201), refused + (answer.status != 201)
    return passed, refused


async def test_odd_objects_of_every_kind_leave_a_cluster_beside_them_alone() -> None:
    async with living(OneCluster) as life:
        whole = {**CLUSTER, "cnGroups": [{"name": "main", "replicas": 1}], "proxy": {"replicas": 1}}
        await life.make(MatrixOneCluster, "mo", whole)
        await life.ready()
        await life.plane.settle()
        before = await versions(life, "default")
        passed, refused = await make_odd_ones(life, random.Random(SEED))
        assert min(passed, refused) >= 10
        unreadable = {"path": "bucket/mo", "endpoint": "http://[::1"}
        await life.make(BucketClaim, "unreadable", {"s3": unreadable, "logSetSpec": {}})
        await life.plane.settle(20.0)
        after = await versions(life, "default")
        assert {name: after.get(name) for name in before} == before
        await life.edit(MatrixOneCluster, "mo", {"cnGroups": [{"name": "main", "replicas": 2}]})
        await life.ready()
