"""Delays of streams, and the collector that stands still while a list is decoded."""

from __future__ import annotations

import gc

from mooring.cache import StreamBackoff, gc_suspended
from mooring.testing.clock import VirtualClock


async def test_a_stable_minute_forgets_the_delays() -> None:
    clock = VirtualClock()
    backoff = StreamBackoff(clock)
    delays = [backoff.next() for _ in range(8)]
    assert 0.8 <= delays[0] <= 1.6
    assert delays[-1] == 30
    await clock.advance(30 + 59)
    assert backoff.next() == 30, "not yet a minute since it was last tried"
    await clock.advance(30 + 61)
    assert backoff.next() <= 1.6


def test_delays_are_spread() -> None:
    firsts = {StreamBackoff(VirtualClock()).next() for _ in range(50)}
    assert len(firsts) > 40


def test_the_collector_waits_for_the_last_of_several_decoders() -> None:
    assert gc.isenabled()
    with gc_suspended():
        with gc_suspended():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_suspended():
            pass
        assert not gc.isenabled(), "whoever switched it off keeps it off"
    finally:
        gc.enable()
