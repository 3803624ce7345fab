"""How a process ends that used a bucket.

obstore hands each result over from a thread of its own. One that wants the interpreter back after it began to end
aborts the process (SIGABRT), and work that is done counts as failed. Python 3.14 and later let such a thread wait.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final, Never

__all__ = ["leave", "wait_for_threads"]

_MOST_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.01
_QUIET_LOOKS: Final = 3
_TASKS: Final = Path("/proc/self/task")


def leave(status: int) -> Never:
    """End the process at once with this exit status, whatever its threads are about; what was printed is kept."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def wait_for_threads() -> None:
    """Wait, 5 s at most, until no other thread of the process runs or waits for the interpreter.

    Each look comes after a sleep, which lets the threads have the interpreter: one that waited for it runs by then.
    """
    end = time.monotonic() + _MOST_SECONDS
    quiet = 0
    while quiet < _QUIET_LOOKS and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        quiet = 0 if _running() else quiet + 1


def _running() -> bool:
    """Whether another thread has work; False where the system does not tell."""
    own = str(threading.get_native_id())
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(FileNotFoundError):
                # pid (name) state: a name may hold spaces and brackets
                if task.name != own and (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                    return True
    return False
