"""The elector on its own thread: what it owes to the main loop, and that it always ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.cache.fake_api import FakeApi

from mooring.kube import Client
from mooring.runtime import Election, Fence, LeaseLost, MeteredTransport, Metrics
from mooring.runtime.lease_thread import ThreadedElector

ELECTION = Election("l", "ns", identity="me", lease_duration=1.0, renew_deadline=0.6, retry_period=0.1)


def elector(api: FakeApi, fence: Fence, **options: Any) -> ThreadedElector:
    """A fast one; the fake server is touched by the elector's thread alone."""
    return ThreadedElector(lambda: Client(api), ELECTION, fence=fence, **options)


def holder(api: FakeApi) -> str:
    return str(api.get("leases", "l", "ns")["spec"].get("holderIdentity", ""))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lease")]


async def test_a_busy_loop_keeps_its_lease_and_gives_it_back_at_the_end() -> None:
    api, fence = FakeApi(), Fence()
    told: list[bool] = []
    threaded = elector(api, fence, on_change=told.append)
    await threaded.acquire()
    keeping = asyncio.create_task(threaded.keep())
    await asyncio.sleep(0)
    time.sleep(1.5)  # noqa: ASYNC251
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
    threaded = elector(api, fence, stuck=0.3)
    await threaded.acquire()
    keeping = asyncio.create_task(threaded.keep())
    await asyncio.sleep(0.25)
    assert fence.open
    time.sleep(0.8)  # noqa: ASYNC251
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
