"""Delete the clusters of a release that goes, when it was asked to: the servers go, the data stays.

The operator has to be running: a cluster with ``keepAfterDeletion: false`` is told to keep its claims first, and only
when the operator has let go of them is it deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.operators.redis.scoped import SCOPE_ANNOTATION
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.scope import lease_name, managed, yields

__all__ = ["NotRemoved", "remove_clusters"]

_POLL = 0.5
_NAME = "redis-sentinel"


class NotRemoved(Exception):
    """Clusters are left at the deadline; the message names them and what is waited for."""


async def remove_clusters(
    client: Client, *, scope: str, namespaces: Sequence[str], within: float, say: Callable[[str], None]
) -> int:
    """Delete every cluster of a scope and wait until its pods are gone; how many there were.

    ``within`` is a deadline in seconds for all of them together; raises :class:`NotRemoved` after it.
    """
    ours = await _ours(client, scope, namespaces)
    left = {f"{one.metadata.namespace}/{one.metadata.name}": "not begun" for one in ours}

    async def one(cluster: RedisCluster) -> None:
        key = f"{cluster.metadata.namespace}/{cluster.metadata.name}"
        async for step in _removal(client, cluster):
            left[key] = step
            say(f"{key}: {step}")
        del left[key]

    try:
        async with asyncio.timeout(within), asyncio.TaskGroup() as group:
            for cluster in ours:
                group.create_task(one(cluster))
    except TimeoutError:
        state = "; ".join(f"{key}: {step}" for key, step in left.items())
        raise NotRemoved(
            f"after {within:g} s there are left: {state}. Is the operator running? Nothing else was removed: "
            "try again, or delete these clusters yourself and uninstall without uninstall.deleteClusters"
        ) from None
    return len(ours)


async def _ours(client: Client, scope: str, namespaces: Sequence[str]) -> list[RedisCluster]:
    found: list[RedisCluster] = []
    for namespace in namespaces or ("",):
        found += (await client.list(RedisCluster, namespace=namespace)).items
    yielded = set()
    if scope == "all":
        for namespace in {one.metadata.namespace or "" for one in found}:
            if await _others_work_in(client, namespace):
                yielded.add(namespace)
    return [
        one
        for one in found
        if managed(one, scope=scope, annotation=SCOPE_ANNOTATION, yielded=yielded.__contains__)
    ]


async def _others_work_in(client: Client, namespace: str) -> bool:
    """Whether a namespaced operator lives there: its clusters are not this release's."""
    try:
        lease = await client.get(Lease, lease_name(_NAME, "namespaced"), namespace=namespace)
    except NotFound:
        return False
    return yields(lease, datetime.now(UTC))


async def _removal(client: Client, cluster: RedisCluster) -> AsyncIterator[str]:
    """The steps of one removal, each told before it is waited for."""
    name, namespace, uid = (
        cluster.metadata.name or "",
        cluster.metadata.namespace or "",
        cluster.metadata.uid or "",
    )
    storage = cluster.spec.storage if cluster.spec else None
    if storage is not None and storage.keep_after_deletion is False:
        body = MergePatch({"spec": {"storage": {"keepAfterDeletion": True}}})
        await client.patch(RedisCluster, name, body, namespace=namespace)
        yield "the operator lets go of its claims"
        while await _owned_claims(client, cluster):
            await asyncio.sleep(_POLL)
    try:
        await client.delete(RedisCluster, name, namespace=namespace, uid=uid)
    except NotFound:
        return
    yield "its pods end"
    selector = f"app.kubernetes.io/name={name},app.kubernetes.io/managed-by=redis-operator"
    while (await client.list(Pod, namespace=namespace, label_selector=selector)).items:
        await asyncio.sleep(_POLL)


async def _owned_claims(client: Client, cluster: RedisCluster) -> list[str]:
    claims = await client.list(
        PersistentVolumeClaim,
        namespace=cluster.metadata.namespace or "",
        label_selector=f"app.kubernetes.io/name={cluster.metadata.name}",
    )
    return [
        claim.metadata.name or ""
        for claim in claims.items
        if any(ref.uid == cluster.metadata.uid for ref in claim.metadata.owner_references or ())
    ]
