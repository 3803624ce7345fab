"""Clusters that go with their release leave their data: the change reaches what owns it before anything is deleted."""

from __future__ import annotations

from typing import Any

from tests.objectstore.servers import BUCKET
from tests.operators.matrixone.test_buckets import claims, eventually, operating, runs

from mooring.kube.object import decode
from mooring.kube.objects.apps import StatefulSet
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.types import MatrixOneCluster
from mooring.operators.workload.removal import remove_clusters


async def test_claims_and_buckets_are_kept_before_a_cluster_is_deleted() -> None:
    async with operating() as client:
        spec: dict[str, Any] = {
            "version": "1.2.4",
            "logService": {
                "replicas": 1,
                "volume": {"size": "1Gi"},
                "sharedStorage": {"s3": {"path": f"{BUCKET}/mo", "endpoint": "http://minio:9000"}},
            },
            "tn": {"replicas": 1},
        }
        await client.create(
            decode({"metadata": {"name": "mo", "namespace": "default"}, "spec": spec}, MatrixOneCluster)
        )
        await eventually(lambda: runs(client, "mo"))
        before = await client.get(StatefulSet, "mo-log", namespace="default")
        assert before.spec is not None
        assert before.spec.persistent_volume_claim_retention_policy is not None
        assert before.spec.persistent_volume_claim_retention_policy.when_deleted == "Delete"
        said: list[str] = []
        assert OPERATOR.removal is not None
        count = await remove_clusters(
            client,
            operators={"matrixone": OPERATOR.removal},
            scope="all",
            namespaces=(),
            within=20,
            say=said.append,
        )
        assert count == 1
        left = await client.get(StatefulSet, "mo-log", namespace="default")
        assert left.spec is not None
        assert left.spec.persistent_volume_claim_retention_policy is not None
        assert left.spec.persistent_volume_claim_retention_policy.when_deleted == "Retain"

        async def released() -> bool:
            return [state for state, _ in (await claims(client)).values()] == ["Released"]

        await eventually(released)
        assert (await client.list(MatrixOneCluster, namespace="default")).items == []
