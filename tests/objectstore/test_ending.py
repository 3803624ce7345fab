"""A process whose work in a bucket is done ends with its own status, whatever obstore's threads are about."""

from __future__ import annotations

import subprocess
import sys

import pytest

# obstore hands over its result, and is held up before it has the interpreter again.
_PUT = """
import asyncio, hashlib, sys, threading, time
import obstore
from obstore.store import MemoryStore
from mooring.objectstore import bucket, leave

class Loop(asyncio.SelectorEventLoop):
    def call_soon_threadsafe(self, *args, **more):
        handle = super().call_soon_threadsafe(*args, **more)
        if threading.current_thread() is not threading.main_thread():
            {held_up}
        return handle

class Slow:
    def __del__(self, wait=time.sleep):
        wait(1.5)

sys.slow = Slow()  # the interpreter ends so slowly that the thread comes back meanwhile

async def main():
    await obstore.put_async(MemoryStore(), "name", b"value", use_multipart=False)

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
print("done")
{end}
"""
_WORKS = "hashlib.pbkdf2_hmac('sha256', b'', b'', 500_000)"
_SLEEPS = "time.sleep(0.5)"


@pytest.mark.parametrize(
    ("held_up", "end", "status"),
    [(_WORKS, "", 0), (_WORKS, "sys.exit(3)", 3), (_SLEEPS, "leave(0)", 0), (_SLEEPS, "leave(4)", 4)],
)
def test_a_thread_of_obstore_does_not_abort_the_end_of_the_process(
    held_up: str, end: str, status: int
) -> None:
    program = _PUT.format(held_up=held_up, end=end)

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout) == (status, "done\n"), ended.stderr
