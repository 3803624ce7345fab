"""The elector on its own thread: what it owes to the main loop, and that it always ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.cache.fake_api import FakeApi

from mooring.kube import Client
from mooring.runtime import Election, Fence, LeaseLost, MeteredTransport, Metrics, SystemClock
from mooring.runtime.lease_thread import ThreadedElector, ThreadedShards
from mooring.runtime.shards import ShardCalls, Share

ELECTION = Election("l", "ns", identity="me", lease_duration=2.0, renew_deadline=1.5, retry_period=0.1)


def elector(api: FakeApi, fence: Fence, **options: Any) -> ThreadedElector:
    """A fast one; the fake server is touched by the elector's thread alone."""
    return ThreadedElector(lambda: Client(api), ELECTION, fence=fence, **options)


def holder(api: FakeApi, name: str = "l") -> str:
    return str(api.get("leases", name, "ns")["spec"].get("holderIdentity", ""))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lease")]


async def test_a_busy_loop_keeps_its_lease_and_gives_it_back_at_the_end() -> None:
    api, fence = FakeApi(), Fence()
    told: list[bool] = []
    threaded = elector(api, fence, on_change=told.append)
    await threaded.acquire()
    keeping = asyncio.create_task(threaded.keep())
    await asyncio.sleep(0)
    time.sleep(2.5)  # noqa: ASYNC251
    assert fence.open, "renewed although this loop stood still for longer than the lease"
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await threaded.release()
    assert (holder(api), fence.open, told, threads()) == ("", False, [True, False], [])


async def test_requests_of_the_thread_are_counted_by_the_main_loop() -> None:
    api, metrics, main = FakeApi(), Metrics(), asyncio.get_running_loop()
    counted_on: list[str] = []

    class Noting(MeteredTransport):
        def _count(self, method: str, code: str, seconds: float | None) -> None:
            counted_on.append(threading.current_thread().name)
            super()._count(method, code, seconds)

    threaded = ThreadedElector(
        lambda: Client(Noting(api, metrics, host="h", loop=main)), ELECTION, fence=Fence()
    )
    await threaded.acquire()
    await threaded.release()
    await asyncio.sleep(0)
    assert metrics.requests["404", "GET", "h"] == 1
    assert metrics.requests["200", "POST", "h"] == 1
    assert set(counted_on) == {threading.main_thread().name}, "numbers have one writer"


async def test_a_loop_that_never_turns_again_loses_its_lease() -> None:
    api, fence = FakeApi(), Fence()
    threaded = elector(api, fence, stuck=1.5)
    await threaded.acquire()
    keeping = asyncio.create_task(threaded.keep())
    await asyncio.sleep(0.25)
    assert fence.open
    end = time.monotonic() + 20
    while fence.open and time.monotonic() < end:
        time.sleep(0.01)  # noqa: ASYNC251
    left = fence.left
    assert left <= 0, "closed before this loop could do anything"
    with pytest.raises(LeaseLost, match="event loop has not turned"):
        await keeping
    await threaded.release()


async def test_a_wait_that_is_given_up_leaves_no_thread() -> None:
    api = FakeApi()
    api.put("leases", "l", "ns", spec={"holderIdentity": "other", "leaseDurationSeconds": 15})
    threaded = elector(api, Fence())
    await threaded.release()
    waiting = asyncio.create_task(threaded.acquire())
    async with asyncio.timeout(5):
        while not api.requests:
            await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await threaded.release()
    assert (holder(api), threads()) == ("other", [])


async def test_a_wait_given_up_before_the_thread_is_there_leaves_no_thread() -> None:
    """Under load a thread may need longer to begin than its caller waits."""
    begun = threading.Event()

    def connect() -> Client:
        begun.wait(10)
        return Client(FakeApi())

    threaded = ThreadedElector(connect, ELECTION, fence=Fence())
    waiting = asyncio.create_task(threaded.acquire())
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    begun.set()
    left = asyncio.create_task(threaded.release())
    done, _ = await asyncio.wait([left], timeout=10)
    assert done
    assert not left.cancelled()
    assert threads() == []


async def test_a_thread_that_cannot_connect_says_why_and_is_gone() -> None:
    def connect() -> Client:
        raise OSError("no such authority")

    threaded = ThreadedElector(connect, ELECTION, fence=Fence())
    with pytest.raises(OSError, match="no such authority"):
        await threaded.acquire()
    await threaded.release()
    assert threads() == []


class Calls:
    """Notes what the main loop is told of its shards, and on which thread."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.drained: list[int] = []
        self.threads: set[str] = set()
        self.leads: dict[str, bool] = {}

    def _here(self) -> None:
        self.threads.add(threading.current_thread().name)

    async def ready(self) -> None:
        self._here()

    def take(self, shard: int) -> None:
        self._here()
        self.taken.append(shard)

    async def drain(self, shard: int) -> None:
        self._here()
        self.drained.append(shard)

    def change(self, name: str, leads: bool) -> None:
        self._here()
        self.leads[name] = leads

    def all(self) -> ShardCalls:
        return ShardCalls(self.ready, self.take, self.drain, self.change)


async def test_a_busy_loop_keeps_its_shards_and_gives_them_back_at_the_end() -> None:
    api, share, calls = FakeApi(), Share(SystemClock(), 2), Calls()
    threaded = ThreadedShards(lambda: Client(api), ELECTION, share=share, calls=calls.all())
    running = asyncio.create_task(threaded.run())
    async with asyncio.timeout(10):
        while len(calls.taken) < 2:
            await asyncio.sleep(0.01)
    assert share.held == {0, 1}
    time.sleep(2.5)  # noqa: ASYNC251
    assert all(fence.open for fence in share.fence.fences), (
        "renewed although this loop stood still for longer than the lease"
    )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await threaded.release()
    await asyncio.sleep(0)
    assert [holder(api, f"l-shard-{n}") for n in (0, 1)] == ["", ""]
    assert not any(fence.open for fence in share.fence.fences)
    assert (share.held, threads()) == (set(), [])
    assert calls.leads["l-shard-0"] is False
    assert calls.threads == {threading.main_thread().name}
