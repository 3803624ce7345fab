"""Whether what a release leaves behind will be left: the policies of a cluster have reached the objects that carry them out."""

from __future__ import annotations

from mooring.kube.client import Client
from mooring.kube.errors import NotFound
from mooring.kube.objects import apps
from mooring.operators.matrixone.bucket.lock import bound
from mooring.operators.matrixone.names import LogNames
from mooring.operators.matrixone.types import RETAIN, BucketClaim, MatrixOneCluster

__all__ = ["keeps_data"]


async def keeps_data(client: Client, cluster: MatrixOneCluster) -> bool:
    """The StatefulSet of the log stores keeps their claims, and the claims on object stores keep their data."""
    namespace = cluster.metadata.namespace or ""
    try:
        found = await client.get(apps.StatefulSet, LogNames(cluster).main, namespace=namespace)
    except NotFound:
        return True
    policy = found.spec.persistent_volume_claim_retention_policy if found.spec is not None else None
    claims = (await client.list(BucketClaim, namespace=namespace)).items
    mine = [one for one in claims if bound(one) == f"{namespace}/{cluster.metadata.name}"]
    keeps = all(one.spec and one.spec.s3 and one.spec.s3.s3_retention_policy == RETAIN for one in mine)
    return policy is not None and policy.when_deleted == RETAIN and keeps
