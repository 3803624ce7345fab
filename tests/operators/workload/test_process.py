"""What tells a process that stands still from one that works, on real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.operators.workload.process import SAMPLES, reads_still

LOOP = "while True: pass"
IDLE = "import time\nwhile True: time.sleep(0.1)"
ASLEEP = "import time\ntime.sleep(600)"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where a program lies that calls itself as the server does."""
    shutil.copy(os.path.realpath(sys.executable), tmp_path / "redis-server")
    return tmp_path


@contextlib.contextmanager
def running(home: Path, code: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "PYTHONHOME": sys.base_prefix}
    told = f"print(1, flush=True)\n{code}"
    with subprocess.Popen(
        [home / "redis-server", "-c", told], stdout=subprocess.PIPE, env=environ
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"1\n"
            yield process
        finally:
            process.kill()


def in_state(pid: int, state: str) -> None:
    """Wait until the kernel says so of its main thread: a signal reaches it once it would run, a sleep begins as late."""
    while f"State:\t{state}" not in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.01)


async def seen(pid: int, *, before: str = "") -> str:
    """What the shell prints of this one process."""
    script = before + SAMPLES.replace("/proc/[0-9]*", f"/proc/{pid}")
    shell = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=subprocess.PIPE)
    out, _ = await shell.communicate()
    return out.decode()


async def looked_at(pid: int) -> bool:
    """What is made of it."""
    out = await seen(pid)
    assert len(out.splitlines()) == 2, out
    return reads_still(out)


@pytest.mark.parametrize("code", [LOOP, IDLE])
async def test_a_process_that_works_or_waits_for_work_does_not_stand_still(home: Path, code: str) -> None:
    with running(home, code) as process:
        assert not await looked_at(process.pid)


async def test_a_process_that_was_stopped_or_waits_for_one_thing_stands_still(home: Path) -> None:
    with running(home, LOOP) as process:
        process.send_signal(signal.SIGSTOP)
        in_state(process.pid, "T")
        assert await looked_at(process.pid)
    with running(home, ASLEEP) as process:
        in_state(process.pid, "S")
        assert await looked_at(process.pid)


async def test_where_the_image_cannot_pause_between_the_looks_nothing_is_known(home: Path) -> None:
    """Some builds of BusyBox take whole seconds only; two looks at once are alike for any idle server."""
    with running(home, ASLEEP) as process:
        in_state(process.pid, "S")
        out = await seen(process.pid, before="sleep() { return 1; }\n")
        assert len(out.splitlines()) == 1, out
        assert not reads_still(out)


@pytest.mark.parametrize(
    ("text", "still"),
    [
        ("1 1 T 5 6\n2 1 T 5 6\n", True),
        ("1 1 D 5 6\n2 1 D 5 6\n", True),
        ("1 1 D 5 6\n2 1 D 6 6\n", False),  # it waits for its disk again and again
        ("1 1 R 5 6\n2 1 R 5 6\n", False),  # it waits for a processor
        ("1 1 S 5 6\n2 1 S 5 6\n", True),
        ("1 1 S 5 6\n1 9 S 1 1\n2 1 S 9 6\n2 9 S 1 1\n", False),  # its fork does not count
        ("1 1 T 5 6\n2 7 T 5 6\n", False),  # another process
        ("1 1 T 5 6\n", False),
        ("1 1 5 6\n2 1 5 6\n", False),  # a kernel that does not say all
        ("", False),
    ],
)
def test_two_looks_are_compared(text: str, still: bool) -> None:
    assert reads_still(text) is still
