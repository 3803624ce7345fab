"""Time that passes by itself when nothing is left to do."""

from __future__ import annotations

import asyncio
import time

import pytest

from mooring.testing.timeline import START, Timeline


async def test_an_hour_passes_at_once_and_its_timers_fire_in_order() -> None:
    fired: list[float] = []
    began = time.monotonic()

    with Timeline() as clock:
        for seconds in (1800.0, 60.0, 3599.0):
            clock.call_later(seconds, lambda: fired.append(round(clock.monotonic())))
        await asyncio.sleep(3600)

        assert fired == [60, 1800, 3599]
        assert round((clock.now() - START).total_seconds()) == 3600
    assert time.monotonic() - began < 5


async def test_what_knows_nothing_of_clocks_is_moved_too() -> None:
    with Timeline() as clock, pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await asyncio.sleep(31)
    assert round(clock.monotonic()) == 30


async def test_a_suspended_process_finds_its_timers_late() -> None:
    with Timeline() as clock:
        late: list[float] = []
        clock.call_later(10, lambda: late.append(clock.monotonic()))

        clock.suspend(100)
        await asyncio.sleep(0.1)

        assert late[0] >= 100


async def test_setting_the_wall_clock_moves_no_timer() -> None:
    with Timeline() as clock:
        before = clock.monotonic()

        clock.set_wall(-3600)

        assert clock.now() < START
        assert clock.monotonic() == before


async def test_a_wait_for_the_rest_of_a_rounding_error_ends() -> None:
    with Timeline() as clock:
        due = clock.monotonic() + 0.005
        async with asyncio.timeout(1):
            while (left := due - clock.monotonic()) > 0:
                await clock.sleep(left)


async def test_work_for_threads_is_done_in_place_and_its_failure_told() -> None:
    with Timeline() as clock:
        assert await asyncio.to_thread(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        assert clock.monotonic() < 0.1


async def test_afterwards_real_time_is_back() -> None:
    loop = asyncio.get_running_loop()
    with Timeline():
        await asyncio.sleep(1000)

    assert abs(loop.time() - time.monotonic()) < 1
    assert await loop.run_in_executor(None, time.monotonic) > 0
