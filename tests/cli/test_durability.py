"""kill -9 of a whole control plane under load: what it acknowledged is there again, and versions only grow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from tests.cli.program import Running, ourselves, temporary

from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.errors import ApiError, TransportError
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta

pytestmark = pytest.mark.embedded

WRITERS = 8
LOST = (TransportError, ApiError, ConnectionError, TimeoutError)


@dataclass
class Ledger:
    """What was acknowledged and what was tried last, by name; a deleted object's value is None."""

    acknowledged: dict[str, int | None] = field(default_factory=dict)
    tried: dict[str, int | None] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)

    def acknowledge(self, name: str, value: int | None, made: ConfigMap) -> None:
        self.acknowledged[name] = value
        self.versions.append(int(made.metadata.resource_version or 0))


async def write(client: Client, ledger: Ledger, names: AsyncIterator[str]) -> None:
    """Create, change twice and delete every third, until the server is gone."""
    async for name in names:
        for value in range(3):
            ledger.tried[name] = value
            if value == 0:
                meta = ObjectMeta(name=name, namespace="default")
                made = await client.create(ConfigMap(metadata=meta, data={"value": "0"}))
            else:
                patch = MergePatch({"data": {"value": str(value)}})
                made = await client.patch(ConfigMap, name, patch, namespace="default")
            ledger.acknowledge(name, value, made)
        if int(name.rpartition("-")[2]) % 3 == 0:
            ledger.tried[name] = None
            await client.delete(ConfigMap, name, namespace="default")
            ledger.acknowledged[name] = None


async def numbered(prefix: str) -> AsyncIterator[str]:
    number = 0
    while True:
        yield f"{prefix}-{number}"
        number += 1


async def until_killed(plane: Running, ledger: Ledger, round_: int, after: float) -> None:
    """Write, and kill the plane so many seconds after some writes were acknowledged."""
    client, before = plane.client(), len(ledger.versions)
    writers = [
        asyncio.create_task(write(client, ledger, numbered(f"r{round_}-w{number}")))
        for number in range(WRITERS)
    ]
    async with asyncio.timeout(30):
        while len(ledger.versions) < before + 40:
            await asyncio.sleep(0.01)
    await asyncio.sleep(after)
    plane.kill()
    for outcome in await asyncio.gather(*writers, return_exceptions=True):
        assert isinstance(outcome, LOST), outcome
    await plane.client_closed()


async def check(plane: Running, ledger: Ledger) -> None:
    """Every object is as it was acknowledged, or as the one write says that was on its way."""
    client = plane.client()
    for name, value in ledger.acknowledged.items():
        found: int | None = None
        with suppress(NotFound):
            found = int(((await client.get(ConfigMap, name, namespace="default")).data or {})["value"])
        assert found in (value, ledger.tried[name]), f"{name} is {found}, acknowledged as {value}"
        ledger.acknowledged[name] = ledger.tried[name] = found
    listed = await client.list(ConfigMap, namespace="default")
    assert int(listed.resource_version) >= max(ledger.versions)
    assert len(set(ledger.versions)) == len(ledger.versions)
    await plane.client_closed()


async def rounds(count: int, seed: int) -> Ledger:
    chance, ledger = random.Random(seed), Ledger()
    with temporary() as home:
        async with ourselves(home).up(home / "data", "--operators", "none") as plane:
            for number in range(count):
                newest = max(ledger.versions, default=0)
                before = len(ledger.versions)
                await until_killed(plane, ledger, number, chance.uniform(0.2, 1.2))
                assert min(ledger.versions[before:]) > newest
                await plane.start()
                await check(plane, ledger)
    return ledger


async def test_kill_9_under_load_loses_no_acknowledged_write() -> None:
    ledger = await rounds(3, seed=1)
    assert len(ledger.versions) > 100


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_kill_9_under_load_twenty_times() -> None:
    ledger = await rounds(20, seed=2)
    assert len(ledger.versions) > 1000
