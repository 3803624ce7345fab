"""Operators of different scopes on one API server: each namespace has one that acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from tests.operators.redis.sentinel.test_actor import eventually

from mooring.kube import Client, NotFound
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.registry import OPERATORS
from mooring.operators.workload.scope import yields


@asynccontextmanager
async def namespaced(client: Client, *namespaces: str) -> AsyncIterator[None]:
    operators = list(OPERATORS.values())
    await apply_crds(client, operators)
    how = Operate(operators=operators, scope="namespaced", namespaces=namespaces)
    task = asyncio.create_task(operate(client, how))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_namespaced_operator_shows_itself_in_each_of_its_namespaces_and_in_no_other() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        for name in ("a", "b", "c"):
            await client.create(Namespace(metadata=ObjectMeta(name=name)))

        async def seen() -> set[str]:
            found = set()
            for name in ("a", "b", "c", "mooring-system"):
                try:
                    lease = await client.get(Lease, "mooring-redis-sentinel-namespaced", namespace=name)
                except NotFound:
                    continue
                found |= {name} if yields(lease, datetime.now(UTC)) else set()
            return found

        async def in_both() -> bool:
            return await seen() == {"a", "b"}

        async with namespaced(client, "a", "b"):
            await eventually(in_both)
        assert await seen() == set()
