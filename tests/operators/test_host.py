"""Operators of one process: they share watches, and each starts and stops with its own Lease and kinds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.operators.redis.sentinel.test_actor import eventually

from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.objects import core
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.transport import Response, StreamResponse, Transport
from mooring.local.api.server import ApiServer
from mooring.operators.backup.types import RestoreFrom
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterSpec, RedisStorage
from mooring.operators.registry import OPERATORS, Operator
from mooring.operators.workload.scope import yields

NAMESPACE = "mooring-system"
BOTH = (OPERATORS["redis-sentinel"], OPERATORS["redis-cluster"])


class Counting:
    """A transport that counts the watches that are opened and those that are open, by path, selector and form."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.opened: Counter[str] = Counter()
        self.open: Counter[str] = Counter()

    async def request(self, method: str, path: str, **options: Any) -> Response:
        return await self._transport.request(method, path, **options)

    def stream(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[StreamResponse]:
        return self._watched(method, path, options)

    @asynccontextmanager
    async def _watched(
        self, method: str, path: str, options: Mapping[str, Any]
    ) -> AsyncIterator[StreamResponse]:
        query = options.get("query") or {}
        form = (
            "metadata" if "PartialObjectMetadata" in (options.get("headers") or {}).get("Accept", "") else ""
        )
        where = " ".join(filter(None, (path, query.get("labelSelector"), query.get("fieldSelector"), form)))
        self.opened[where] += 1
        self.open[where] += 1
        try:
            async with self._transport.stream(method, path, **options) as answer:
                yield answer
        finally:
            self.open[where] -= 1

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def operating(
    client: Client, operators: Sequence[Operator], **options: Any
) -> AsyncIterator[asyncio.Task[None]]:
    how = Operate(operators=operators, namespace=NAMESPACE, **options)
    task = asyncio.create_task(operate(client, how))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def lease_of(operator: Operator) -> str:
    return f"mooring-{operator.name}-all"


async def holders(client: Client) -> dict[str, str]:
    """Who holds the operators' Leases, of those that are held."""
    found = {}
    for operator in BOTH:
        try:
            lease = await client.get(Lease, lease_of(operator), namespace=NAMESPACE)
        except NotFound:
            continue
        if yields(lease, datetime.now(UTC)) and lease.spec is not None:
            found[operator.name] = lease.spec.holder_identity or ""
    return found


async def test_two_operators_watch_each_kind_once_and_hold_a_lease_each() -> None:
    async with ApiServer.in_memory() as server:
        counting = Counting(server.transport())
        client = Client(counting, field_manager="test")
        await apply_crds(client, BOTH)
        counting.opened.clear()

        async def both_lead() -> bool:
            return len(await holders(client)) == len(BOTH)

        async with operating(client, BOTH):
            await eventually(both_lead)
            watched = {path: count for path, count in counting.open.items() if count and "leases" not in path}
            assert set(watched.values()) == {1}, watched
            for path in (
                "/api/v1/services",
                "/api/v1/configmaps",
                "/apis/apps/v1/statefulsets",
                "/apis/policy/v1/poddisruptionbudgets",
            ):
                assert watched[path] == 1
        assert not +counting.open, "an orderly end leaves no watch open"
        assert await holders(client) == {}


async def test_losing_one_lease_stops_that_operator_alone() -> None:
    async with ApiServer.in_memory() as server:
        counting = Counting(server.transport())
        client = Client(counting, field_manager="test")
        await apply_crds(client, BOTH)
        counting.opened.clear()
        lost, kept = BOTH

        async def led_by_us() -> bool:
            return await holders(client) == {one.name: "us" for one in BOTH}

        async with operating(client, BOTH, identity="us", again=True) as task:
            await eventually(led_by_us)

            def usurped() -> dict[str, Any]:
                return {"spec": {"holderIdentity": "them", "renewTime": datetime.now(UTC).isoformat()}}

            async def primary_watch_ended() -> bool:
                await client.patch(Lease, lease_of(lost), MergePatch(usurped()), namespace=NAMESPACE)
                resource = lost.kinds[0].resource
                path = f"/apis/{resource.group}/{resource.version}/{resource.plural}"
                return counting.opened[path] > 1

            await eventually(primary_watch_ended)
            found = await holders(client)
            assert found == {lost.name: "them", kept.name: "us"}
            assert counting.opened["/api/v1/services"] == 1, "the other operator's caches go on"
            assert not task.done()
            await client.delete(Lease, lease_of(lost), namespace=NAMESPACE)
            await eventually(led_by_us)
            assert counting.opened["/api/v1/services"] == 1


async def test_an_operator_whose_kind_is_not_defined_yet_holds_up_no_other() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        first, late = BOTH
        await apply_crds(client, [first])

        async with operating(client, BOTH):

            async def first_leads() -> bool:
                return set(await holders(client)) == {first.name}

            async def both_lead() -> bool:
                return len(await holders(client)) == len(BOTH)

            await eventually(first_leads)
            await apply_crds(client, [late])
            await eventually(both_lead)


async def test_an_operator_manages_clusters_while_the_kinds_of_backups_are_not_defined() -> None:
    async with ApiServer.in_memory() as server:
        counting = Counting(server.transport())
        client = Client(counting, field_manager="test")
        for operator in BOTH:
            kinds = tuple(kind for kind in operator.kinds if kind not in operator.backups)
            await apply_crds(client, [replace(operator, kinds=kinds)])
        counting.opened.clear()
        meta = ObjectMeta(name="copy", namespace="default")
        wanted = core.VolumeResourceRequirements(requests={"storage": "1Gi"})
        claim = core.PersistentVolumeClaim(
            metadata=ObjectMeta(name="data"),
            spec=core.PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=wanted),
        )
        spec = RedisClusterSpec(
            storage=RedisStorage(persistent_volume_claim=claim), restore_from=RestoreFrom(backup="monday")
        )

        async def reported() -> bool:
            found = await client.get(RedisCluster, "copy", namespace="default")
            conditions = (found.status.conditions if found.status is not None else None) or []
            return any(
                "redisbackups.redis.mooring.dev is not defined" in (one.message or "") for one in conditions
            )

        async def both_lead() -> bool:
            return len(await holders(client)) == len(BOTH)

        async def backups_are_managed() -> bool:
            plurals = ("redisbackups", "redisbackupschedules")
            return all(counting.open[f"/apis/redis.mooring.dev/v1alpha1/{one}"] for one in plurals)

        async with operating(client, BOTH):
            await eventually(both_lead)
            assert not await backups_are_managed()
            await client.create(RedisCluster(metadata=meta, spec=spec))
            await eventually(reported)

            await apply_crds(client, BOTH)
            await eventually(backups_are_managed)
            await eventually(both_lead)
