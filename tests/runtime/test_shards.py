"""Shards: every object has exactly one replica that works on it, whoever comes, goes or dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.cache.fake_api import FakeApi

from mooring.kube import Client, Key, MergePatch, TransportError
from mooring.kube.objects.core import Pod
from mooring.runtime import Controller, Done, Election, FenceLost, LeaseLost, Manager, Result
from mooring.runtime.context import Pass, enter
from mooring.runtime.shards import ShardFence, shard_of
from mooring.testing.clock import VirtualClock

SHARDS = 6
PODS = 40


class Replica:
    """A process that counts its passes and marks each pod it has looked at."""

    def __init__(self, api: FakeApi, clock: VirtualClock, name: str) -> None:
        self.api = Unreliable(api)
        self.clock = clock
        election = Election("op", "ns", identity=name)
        client = Client(self.api)  # type: ignore[arg-type]
        self.manager = Manager(client, clock=clock, name=name, election=election, shards=SHARDS)
        self.seen: Counter[Key] = Counter()
        self.controller = Controller("pods", self.reconcile).watch(self.manager.informers.of(Pod))
        self.manager.add(self.controller)
        self.gate = asyncio.Event()
        self.gate.set()
        self.task = asyncio.create_task(self.manager.run())

    async def reconcile(self, key: Key) -> Result:
        self.seen[key] += 1
        await self.gate.wait()
        if self.manager.client.find(Pod, key.name, namespace=key.namespace) is not None:
            patch = MergePatch({"metadata": {"annotations": {"by": self.manager.name}}})
            await self.manager.client.patch(Pod, key.name, patch, namespace=key.namespace)
        return Done()

    @property
    def held(self) -> set[int]:
        return set(self.manager.shards)

    async def stop(self) -> None:
        self.manager.stop()
        for _ in range(100):
            await self.clock.advance(0.1)
            if self.task.done():
                break
        await self.task


class Unreliable:
    """A connection that can be cut for one replica alone."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.dead = False
        self.blind = False

    async def request(self, method: str, path: str, **options: object) -> object:
        if self.dead:
            raise TransportError("no route")
        return await self.api.request(method, path, **options)  # type: ignore[arg-type]

    def stream(self, method: str, path: str, **options: object) -> object:
        if self.blind and "pods" in path:
            raise TransportError("no route")
        return self.api.stream(method, path, **options)  # type: ignore[arg-type]

    async def close(self) -> None:
        return


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    for number in range(PODS):
        api.put("pods", f"p{number}", spec={})
    return api


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def replicas(api: FakeApi, clock: VirtualClock) -> AsyncIterator[list[Replica]]:
    everyone: list[Replica] = []
    yield everyone
    for replica in everyone:
        replica.gate.set()
        replica.task.cancel()
        await clock.advance(1)
    await asyncio.gather(*(replica.task for replica in everyone), return_exceptions=True)


def everything_once(replicas: list[Replica]) -> None:
    held = [shard for replica in replicas for shard in replica.held]
    assert sorted(held) == list(range(SHARDS)), [replica.held for replica in replicas]


def test_a_uid_has_its_shard_everywhere_and_shards_are_even() -> None:
    assert [shard_of(uid, 256) for uid in ("", "a")] == [180, 47], "for good: replicas of two versions agree"
    spread = Counter(shard_of(f"{n:08x}-7c1e-4b4e-9f6e-{n:012x}", 8) for n in range(8000))
    assert all(800 < count < 1200 for count in spread.values()), spread


async def test_replicas_share_the_work_and_a_newcomer_gets_his_part(
    api: FakeApi, clock: VirtualClock, replicas: list[Replica]
) -> None:
    replicas.append(Replica(api, clock, "one"))
    await clock.advance(3)
    everything_once(replicas)
    assert len(replicas[0].seen) == PODS
    replicas.append(Replica(api, clock, "two"))
    await clock.advance(5)
    everything_once(replicas)
    assert [len(replica.held) for replica in replicas] == [3, 3]
    for replica in replicas:
        replica.seen.clear()
    for number in range(PODS):
        api.put("pods", f"p{number}", spec={"nodeName": "n"})
    await clock.advance(1)
    both = replicas[0].seen.keys() & replicas[1].seen.keys()
    assert not both, "an object has one replica"
    assert len(replicas[0].seen) + len(replicas[1].seen) == PODS
    assert all(replica.seen for replica in replicas)


async def test_a_leaving_replica_hands_its_shards_over_within_a_second(
    api: FakeApi, clock: VirtualClock, replicas: list[Replica]
) -> None:
    replicas += [Replica(api, clock, name) for name in ("one", "two", "three")]
    await clock.advance(8)
    everything_once(replicas)
    going = replicas.pop(0)
    going.manager.stop()
    await clock.settle(300)
    await clock.advance(1)
    assert going.task.done()
    await going.task
    everything_once(replicas)
    members = [key.name for key in api.collection("leases").objects if "member" in key.name]
    assert len(members) == 2, "no announcement is left behind"


async def test_a_dead_replicas_shards_are_taken_when_its_leases_ran_out(
    api: FakeApi, clock: VirtualClock, replicas: list[Replica]
) -> None:
    replicas += [Replica(api, clock, name) for name in ("one", "two")]
    await clock.advance(6)
    everything_once(replicas)
    dead, alive = replicas
    dead.api.dead = True
    for _ in range(300):
        await clock.advance(0.1)
        both = {shard for shard in range(SHARDS) if sum(_open(r, shard) for r in replicas) > 1}
        assert not both, "no shard has two open fences"
        if len(alive.held) == SHARDS:
            break
    assert len(alive.held) == SHARDS
    assert 13 < clock.monotonic() - 6 < 25
    with pytest.raises(LeaseLost):
        await dead.task


def _open(replica: Replica, shard: int) -> bool:
    fence = replica.manager.fence
    assert isinstance(fence, ShardFence)
    return fence.fences[shard].open


async def test_a_shard_is_given_away_only_after_its_passes_have_finished(
    api: FakeApi, clock: VirtualClock, replicas: list[Replica]
) -> None:
    replicas.append(Replica(api, clock, "one"))
    await clock.advance(3)
    one = replicas[0]
    one.gate.clear()
    for number in range(PODS):
        api.put("pods", f"p{number}", spec={"nodeName": "n"})
    await clock.settle(100)
    busy = {current.shard for current in one.controller.passes}
    assert busy
    replicas.append(Replica(api, clock, "two"))
    await clock.advance(5)
    given = replicas[1].held
    assert given == {shard for shard in range(SHARDS) if shard not in one.held} - busy
    one.gate.set()
    await clock.advance(2)
    everything_once(replicas)
    assert len(replicas[1].held) == 3


async def test_a_deletion_is_seen_by_the_replica_of_the_objects_shard(
    api: FakeApi, clock: VirtualClock, replicas: list[Replica]
) -> None:
    replicas += [Replica(api, clock, name) for name in ("one", "two")]
    await clock.advance(6)
    owners = {key: replica for replica in replicas for key in replica.seen if replica.seen[key]}
    for replica in replicas:
        replica.seen.clear()
    for number in range(10):
        owner = api.get("pods", f"p{number}")["metadata"]["annotations"]["by"]
        api.remove("pods", f"p{number}")
        await clock.settle(50)
        saw = [replica.manager.name for replica in replicas if replica.seen[Key("default", f"p{number}")]]
        assert saw == [owner]
    assert owners


async def test_a_pass_is_fenced_by_the_lease_of_its_own_shard(clock: VirtualClock) -> None:
    fence = ShardFence(clock, 2)
    fence.fences[0].hold(10, expiry=15)
    fence.check()
    current = Pass("pods")
    current.begin(Key("ns", "a"))
    enter(current)
    current.shard = 0
    fence.check()
    assert (fence.left, fence.arrives) == (10, 15)
    current.shard = 1
    with pytest.raises(FenceLost):
        fence.check()


async def test_shards_need_a_name(api: FakeApi, clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="election"):
        Manager(Client(api), clock=clock, shards=2)


async def test_a_shard_is_worked_on_only_by_a_replica_that_follows(
    api: FakeApi, clock: VirtualClock, replicas: list[Replica]
) -> None:
    replicas.append(Replica(api, clock, "one"))
    await clock.advance(3)
    two = Replica(api, clock, "two")
    two.api.blind = True
    replicas.append(two)
    await clock.advance(8)
    assert len(replicas[0].held) == 3, "the Leases of the others are given away"
    assert not two.held
    assert not two.seen, "what it knows may be old"
    two.api.blind = False
    await clock.advance(31)
    everything_once(replicas)
    assert two.seen
