"""Subscriptions to sentinels begin again, whatever ended them."""

from __future__ import annotations

import asyncio
import contextlib

from mooring.kube.object import Key
from mooring.operators.redis.address import Address
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.sentinel.listen import Listener
from mooring.runtime import FenceLost

KEY = Key("default", "demo")


async def test_a_sentinel_is_subscribed_to_again_once_this_process_may_act_again() -> None:
    """A replica of a sharded operator may hold no shard for a moment, and then the same one again."""
    asked, again = 0, asyncio.Event()

    def fence() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            again.set()
        raise FenceLost("no shard is held")

    listener = Listener(lambda _: None, lambda _: Dial(fence=fence))
    running = asyncio.create_task(listener.run())
    try:
        listener.listen(KEY, [Address("127.0.0.1", 1)])
        async with asyncio.timeout(30):
            await again.wait()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
