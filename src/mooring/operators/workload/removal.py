"""Delete the clusters of a release that goes, when it was asked to: the servers go, the data stays.

The operator has to be running: a cluster that would take its claims along (``keepAfterDeletion: false``, HarmonyCloud's
``finalizers: foreground``) is told to keep them first, and only when the operator has let go of them is it deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.object import Object
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.operators.redis import cluster, sentinel
from mooring.operators.redis.cluster.names import MANAGED_SELECTOR as CLUSTER_SELECTOR
from mooring.operators.redis.sentinel.names import MANAGED_SELECTOR as SENTINEL_SELECTOR
from mooring.operators.workload.claims import owned
from mooring.operators.workload.scope import SCOPE_ANNOTATION, lease_name, managed, yields

__all__ = ["REMOVABLE", "NotRemoved", "Removable", "remove_clusters"]

_POLL = 0.5


@dataclass(frozen=True, kw_only=True)
class Removable:
    """The clusters of one operator: their kind, how their objects are found, and what makes them keep their claims."""

    kind: type[Object]
    selector: str
    keeps: Callable[[Any], dict[str, Any] | None]
    """The change of spec after which claims are kept; None where they are kept already."""


def _keeps_storage(one: sentinel.RedisCluster) -> dict[str, Any] | None:
    storage = one.spec.storage if one.spec else None
    goes = storage is not None and storage.keep_after_deletion is False
    return {"storage": {"keepAfterDeletion": True}} if goes else None


def _keeps_claims(one: cluster.RedisCluster) -> dict[str, Any] | None:
    return {"finalizers": None} if one.spec and one.spec.finalizers else None


REMOVABLE: Final = {
    "redis-sentinel": Removable(kind=sentinel.RedisCluster, selector=SENTINEL_SELECTOR, keeps=_keeps_storage),
    "redis-cluster": Removable(kind=cluster.RedisCluster, selector=CLUSTER_SELECTOR, keeps=_keeps_claims),
}
"""By the operator's name."""


class NotRemoved(Exception):
    """Clusters are left at the deadline; the message names them and what is waited for."""


async def remove_clusters(
    client: Client,
    *,
    operators: Sequence[str],
    scope: str,
    namespaces: Sequence[str],
    within: float,
    say: Callable[[str], None],
) -> int:
    """Delete every cluster of a scope and wait until its pods are gone; how many there were.

    ``operators`` are those whose clusters go, of `REMOVABLE`. ``within`` is a deadline in seconds for all of them
    together; raises :class:`NotRemoved` after it.
    """
    ours = [one for name in operators for one in await _ours(client, name, scope, namespaces)]
    left = {_key(one): "not begun" for one, _ in ours}

    async def remove(one: Object, how: Removable) -> None:
        async for step in _removal(client, one, how):
            left[_key(one)] = step
            say(f"{_key(one)}: {step}")
        del left[_key(one)]

    try:
        async with asyncio.timeout(within), asyncio.TaskGroup() as group:
            for one, how in ours:
                group.create_task(remove(one, how))
    except TimeoutError:
        state = "; ".join(f"{key}: {step}" for key, step in left.items())
        raise NotRemoved(
            f"after {within:g} s there are left: {state}. Is the operator running? Nothing else was removed: "
            "try again, or delete these clusters yourself and uninstall without uninstall.deleteClusters"
        ) from None
    return len(ours)


def _key(one: Object) -> str:
    name = f"{one.metadata.namespace}/{one.metadata.name}"
    return (
        name
        if one.resource.group == sentinel.RedisCluster.resource.group
        else f"{name} ({one.resource.group})"
    )


async def _ours(
    client: Client, operator: str, scope: str, namespaces: Sequence[str]
) -> list[tuple[Object, Removable]]:
    how = REMOVABLE[operator]
    found: list[Object] = []
    for namespace in namespaces or ("",):
        with suppress(NotFound):  # what is not defined has no clusters
            found += (await client.list(how.kind, namespace=namespace)).items
    yielded = set()
    if scope == "all":
        for namespace in {one.metadata.namespace or "" for one in found}:
            if await _others_work_in(client, operator, namespace):
                yielded.add(namespace)
    return [
        (one, how)
        for one in found
        if managed(one, scope=scope, annotation=SCOPE_ANNOTATION, yielded=yielded.__contains__)
    ]


async def _others_work_in(client: Client, operator: str, namespace: str) -> bool:
    """Whether a namespaced operator lives there: its clusters are not this release's."""
    try:
        lease = await client.get(Lease, lease_name(operator, "namespaced"), namespace=namespace)
    except NotFound:
        return False
    return yields(lease, datetime.now(UTC))


async def _removal(client: Client, one: Object, how: Removable) -> AsyncIterator[str]:
    """The steps of one removal, each told before it is waited for."""
    name, namespace = one.metadata.name or "", one.metadata.namespace or ""
    selector = f"app.kubernetes.io/name={name},{how.selector}"
    if change := how.keeps(one):
        await client.patch(how.kind, name, MergePatch({"spec": change}), namespace=namespace)
        yield "the operator lets go of its claims"
        while await _owned_claims(client, one, selector):
            await asyncio.sleep(_POLL)
    try:
        await client.delete(how.kind, name, namespace=namespace, uid=one.metadata.uid or "")
    except NotFound:
        return
    yield "its pods end"
    while (await client.list(Pod, namespace=namespace, label_selector=selector)).items:
        await asyncio.sleep(_POLL)


async def _owned_claims(client: Client, one: Object, selector: str) -> list[str]:
    claims = await client.list(
        PersistentVolumeClaim, namespace=one.metadata.namespace or "", label_selector=selector
    )
    return [claim.metadata.name or "" for claim in claims.items if owned(one, claim)]
