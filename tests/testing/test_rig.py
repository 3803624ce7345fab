"""The rig that other authors test their operators on."""

from __future__ import annotations

from typing import ClassVar

import pytest

from mooring.kube import Key, MergePatch, Object, Part, Resource
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import Controller, Done, Result, crd
from mooring.testing.bed import NotInTime
from mooring.testing.rig import Rig


class CounterStatus(Part, frozen=True, kw_only=True):
    count: int | None = None


@crd()
class Counter(Object, frozen=True, kw_only=True):
    """Counts to its limit, one write a step."""

    resource: ClassVar[Resource] = Resource("rig.example.com", "v1", "Counter", "counters")
    spec: CounterStatus | None = None
    status: CounterStatus | None = None


def counting(rig: Rig) -> None:
    """Adds one in each pass, until it is as much as the spec says."""
    manager = rig.manager

    async def reconcile(key: Key) -> Result:
        found = manager.client.find(Counter, key.name, namespace=key.namespace)
        count = ((found.status.count if found.status else 0) or 0) if found else 0
        if found is None or found.spec is None or count >= (found.spec.count or 0):
            return Done()
        patch = MergePatch({"status": {"count": count + 1}})
        await manager.client.patch(Counter, key.name, patch, namespace=key.namespace, subresource="status")
        await manager.clock.sleep(0.002)  # as slow as a real write: the hot-loop detector is not meant here
        return Done()

    manager.add(Controller("counting", reconcile).watch(manager.informers.of(Counter)))


async def create(rig: Rig, limit: int) -> None:
    meta = ObjectMeta(name="c", namespace="default")
    await rig.client.create(Counter(metadata=meta, spec=CounterStatus(count=limit)))


async def count(rig: Rig) -> int:
    found = await rig.client.get(Counter, "c", namespace="default")
    return (found.status.count if found.status else 0) or 0


async def test_settling_waits_for_the_last_write_and_all_are_noted() -> None:
    async with Rig(Counter, operator=counting) as rig:
        await create(rig, 7)
        await rig.settle()

        assert await count(rig) == 7
        assert rig.wrote("PATCH") == rig.wrote() == 7
        assert {write.status for write in rig.writes} == {200}


async def test_a_crash_comes_right_after_the_write_it_was_set_to() -> None:
    async with Rig(Counter, operator=counting) as rig:
        await rig.kill()
        await rig.start(crash_after=3)
        await create(rig, 7)

        async def dead_or_done() -> bool:
            return rig.crashed or await count(rig) == 7

        await rig.until(dead_or_done, "the crash")
        assert rig.crashed
        assert await count(rig) == 3, "the third write was carried out, and no fourth"

        await rig.settle()
        assert await count(rig) == 7, "the one that was started in its place went on"


async def test_every_crash_ends_with_the_round_that_has_no_such_write() -> None:
    async with Rig(Counter, operator=counting) as rig:
        rounds = []
        async for number in rig.every_crash():
            await create(rig, 2)
            await rig.settle()
            assert await count(rig) == 2
            await rig.client.delete(Counter, "c", namespace="default")
            await rig.settle()
            rounds.append(number)

        assert rounds == [1, 2, 3]


async def test_an_operator_that_never_rests_is_named_with_its_writes() -> None:
    async with Rig(Counter, operator=counting) as rig:
        await create(rig, 1_000_000)

        with pytest.raises(NotInTime, match=r"did not settle.*PATCH .*/counters/c/status -> 200"):
            await rig.settle(within=0.3)
        await rig.client.delete(Counter, "c", namespace="default")


async def test_an_operator_that_ends_takes_the_test_with_it() -> None:
    def broken(rig: Rig) -> None:
        async def fail() -> None:
            raise RuntimeError("the service failed")

        rig.manager.serve("broken", fail)

    with pytest.raises(RuntimeError, match="the service failed"):
        async with Rig(operator=broken) as rig:
            await rig.settle()
