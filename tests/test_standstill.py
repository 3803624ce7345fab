"""What the tests' watch over the machine notes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.standstill import Standstill, standstill


def burn(seconds: float) -> None:
    """Use so much of a processor."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


def test_time_without_a_processor_is_counted() -> None:
    before = os.sched_getaffinity(0)
    one = {min(before)}
    busy = f"import os\nos.sched_setaffinity(0, {one})\nprint(flush=True)\nwhile True: pass"
    rivals = [subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for rival in rivals:
            assert rival.stdout is not None
            rival.stdout.readline()
        os.sched_setaffinity(0, one)
        with standstill() as stood:
            began = time.monotonic()
            burn(0.5)
            took = time.monotonic() - began
            time.sleep(0.05)
        assert took > 0.8, "the rivals ran"
        assert stood.within(took) > took - 0.5 - 0.2
    finally:
        os.sched_setaffinity(0, before)
        for rival in rivals:
            rival.kill()
            rival.communicate()


def test_only_what_falls_into_a_stretch_of_that_length_counts() -> None:
    with standstill() as stood:
        pass
    watch: Standstill = stood
    watch._late[:] = [(1.0, 0.3), (2.0, 0.4), (9.0, 0.5)]
    watch._starved[:] = [(1.0, 0.1), (5.0, 0.6), (5.5, 0.6)]

    assert watch.within(0.9) == 0.9, "no more than all of it"
    assert watch.within(2.0) == 1.2
    watch._starved.clear()
    assert watch.within(2.0) == 0.7
