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
