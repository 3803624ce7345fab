"""A control plane in the background: its start, its log, and the reason when it does not come up.

The log is a file on the disk that holds the data, so it may be full when there is most to say. What cannot be written
is dropped: a line is worth less than the databases. The process that waits for the start hears by a pipe.
"""

from __future__ import annotations

import io
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from mooring.local.directory import DataDirectory, DirectoryInUse

__all__ = ["CONSOLE", "LOG_BYTES", "READY", "LogFile", "detach", "take_over_output"]

#: The line that says that everything serves.
READY = "mooring: ready."
#: What stands before the link of the console.
CONSOLE = "console: "
#: A log of this size, in bytes, is put aside as mooring.log.1, and the one before it is removed.
LOG_BYTES = 16 * 1024 * 1024
#: Seconds for the control plane to be ready.
START_SECONDS = 180.0
#: Seconds after which it says that it still starts.
_SAID_AFTER = 2.0
#: Environment of the process in the background: the descriptor of the pipe to the one that waits.
_STARTER = "MOORING_STARTER"


def detach(directory: DataDirectory) -> int:
    """Start the same command in the background and wait until it serves; raises :class:`OSError` with the reason."""
    if (owner := directory.owner()) is not None:
        raise DirectoryInUse(f"already running as process {owner} on {directory.path}")
    arguments = [word for word in sys.orig_argv[1:] if word != "--detach"]
    reader, writer = os.pipe()
    try:
        with open(directory.log, "ab", opener=_private) as out:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                pass_fds=[writer],
                env={**os.environ, _STARTER: str(writer)},
            )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    try:
        print(_await_ready(process, reader, directory.log), file=sys.stderr)
    except BaseException:
        process.terminate()
        raise
    finally:
        os.close(reader)
    return 0


def take_over_output(log: Path) -> None:
    """In a process started by :func:`detach`: let standard error be its log, bounded and never in the way."""
    if starter := os.environ.get(_STARTER):
        sys.stderr = LogFile(log, starter=int(starter))


class LogFile(io.TextIOBase):
    """Standard error as a file of bounded size; a line that cannot be written is dropped.

    Lines for people (``mooring: ...``, ``console: ...``) go to the process that waits for the start too, by the descriptor ``starter``,
    until one of them says ready.
    """

    def __init__(self, path: Path, *, starter: int | None = None, most: int = LOG_BYTES) -> None:
        self._path, self._starter, self._most = path, starter, most
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Append it."""
        data = text.encode(errors="replace")
        with self._lock:
            self._tell(text)
            with suppress(OSError):
                if os.fstat(2).st_size + len(data) > self._most:
                    self._put_aside()
            with suppress(OSError):
                os.write(2, data)
        return len(text)

    def fileno(self) -> int:
        """Standard error's."""
        return 2

    def writable(self) -> bool:
        """Always."""
        return True

    def _put_aside(self) -> None:
        with suppress(FileNotFoundError):  # put aside before, when there was no space for a new one
            self._path.replace(self._path.with_suffix(".log.1"))
        descriptor = _private(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for number in (1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)

    def _tell(self, text: str) -> None:
        if self._starter is None or not text.startswith(("mooring: ", CONSOLE)):
            return
        with suppress(OSError):
            os.write(self._starter, text.rstrip("\n").encode(errors="replace") + b"\n")
        if text.startswith(READY):
            os.close(self._starter)
            self._starter = None
            os.environ.pop(_STARTER, None)


def _private(path: str, flags: int) -> int:
    """Open for the owner alone, also what was made for others to read."""
    file = os.open(path, flags, 0o600)
    os.fchmod(file, 0o600)
    return file


def _await_ready(process: subprocess.Popen[bytes], reader: int, log: Path) -> str:
    """Wait for the line that says ready, and return all lines to it; raises :class:`OSError`."""
    deadline = time.monotonic() + START_SECONDS
    said, told = b"", False
    ending = os.pidfd_open(process.pid)
    try:
        while (left := deadline - time.monotonic()) > 0:
            found, _, _ = select.select([reader, ending], [], [], left if told else min(left, _SAID_AFTER))
            if not found and not told:
                told = True
                print(f"mooring: starting; what it does is in {log}", file=sys.stderr, flush=True)
            if reader in found:
                data = os.read(reader, 65536)
                said += data
                lines = said.decode(errors="replace").splitlines()
                if any(line.startswith(READY) for line in lines):
                    return "\n".join(lines)
                if data:
                    continue
            if found:
                process.wait(max(left, 1.0))
                raise OSError(f"the control plane did not start: {_reason(said, log)} (log: {log})")
    except subprocess.TimeoutExpired:
        pass
    finally:
        os.close(ending)
    raise OSError(
        f"the control plane was not ready within {START_SECONDS:.0f} s and was ended (log: {log}); without --detach it takes the "
        "time that it needs"
    )


def _reason(said: bytes, log: Path) -> str:
    lines = said.decode(errors="replace").splitlines()
    if told := "; ".join(line.removeprefix("mooring: ") for line in lines):
        return told
    space = os.statvfs(log.parent)
    return f"no reason given{'; its disk is full' if space.f_bavail == 0 else ''}"
