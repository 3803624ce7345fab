"""Masters are asked each second, on real servers: what they leave unanswered is counted, and wakes their cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from tests.operators.redis.cluster.servers import Servers

from mooring.kube.object import Key
from mooring.operators.redis.cluster.pulse import Pulse
from mooring.operators.redis.dial import Dial
from mooring.runtime import FenceLost

pytestmark = pytest.mark.timeout(60)
KEY = Key("default", "demo")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def test_beats_that_a_frozen_server_misses_are_counted_until_it_answers(strangers: Servers) -> None:
    woken: list[Key] = []
    pulse = Pulse(woken.append)
    frozen, other = strangers.address(0), strangers.address(1)
    running = asyncio.create_task(pulse.run())
    try:
        pulse.follow(KEY, {"demo-0": frozen, "demo-1": other}, Dial())
        with strangers.frozen(0):
            await until(lambda: pulse.missed(KEY, frozen) >= 2)
            assert set(woken) == {KEY}
        await until(lambda: pulse.missed(KEY, frozen) == 0)

        with strangers.frozen(0):
            await until(lambda: pulse.missed(KEY, frozen) >= 1)
            pulse.follow(KEY, {"demo-1": other}, Dial())
            await until(lambda: pulse.missed(KEY, frozen) == 0)  # nobody asks it any more
        pulse.forget(KEY)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_a_server_is_asked_again_once_this_process_may_act_again(strangers: Servers) -> None:
    """A replica of a sharded operator may hold no shard for a moment, and then the same one again."""
    held, refused = False, asyncio.Event()

    def fence() -> None:
        if not held:
            refused.set()
            raise FenceLost("no shard is held")

    pulse, address = Pulse(lambda _: None), strangers.address(0)
    running = asyncio.create_task(pulse.run())
    try:
        pulse.follow(KEY, {"demo-0": address}, Dial(fence=fence))
        async with asyncio.timeout(30):
            await refused.wait()
        assert pulse.missed(KEY, address) == 0
        held = True
        with strangers.frozen(0):
            await until(lambda: pulse.missed(KEY, address) >= 1)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
