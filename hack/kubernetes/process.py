"""Processes that are known by more than their number, and that die with whoever started them.

A PID alone may belong to a stranger by the time it is signalled. A process is therefore named by
its PID and its start time, and is signalled through a pidfd that is opened before the name is checked.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "spawn_bound"]

# The parent's death is signalled only after the prctl call: a parent that died before is found by
# the comparison. The setting survives execv, so the server itself carries it.
_BOUND = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) was refused")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Process:
    """One process of this boot: `pid`, and `started` in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """Name the process that has this PID now; ProcessLookupError when there is none."""
        stat = _stat(pid)
        if stat is None:
            raise ProcessLookupError(f"no process has PID {pid}")
        return cls(pid=pid, started=stat[1])

    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[1] == self.started and stat[0] not in "ZX"

    def end(self, sig: signal.Signals = signal.SIGKILL, *, deadline: float = 15.0) -> None:
        """Signal the process and wait until it is gone, at most `deadline` seconds (TimeoutError)."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not self.alive():
                return
            signal.pidfd_send_signal(fd, sig)
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(deadline * 1000):
                raise TimeoutError(f"process {self.pid} still runs {deadline:g} s after {sig.name}")
        finally:
            os.close(fd)

    def memory(self) -> int:
        """Resident memory in bytes; 0 when the process is gone."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return 0
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


def spawn_bound(argv: Sequence[str], *, cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a program that the kernel kills when the calling thread ends; output goes to `log`.

    The program is reached through a short-lived Python that asks for this and then becomes it:
    `preexec_fn` would run Python between fork and exec. Call it from a thread that lives long.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), *argv],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time. The command name may hold spaces and brackets: split after it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[19])
