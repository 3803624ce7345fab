"""Attaching to a container's own program: its output, its input, its terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mooring.local.node.logs import read

from .bed import Bed, pod, privileged, until

pytestmark = [pytest.mark.embedded, privileged]


class Client:
    """Somebody who attaches: types lines, and remembers what is written."""

    def __init__(self, there: Bed) -> None:
        self.seen: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._typed: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._stdio = there.workers[0].container("").stdio
        self.task: asyncio.Task[None] | None = None

    def attach(self, *, stdin: bool = True, size: tuple[int, int] | None = None) -> Client:
        resize = self._sizes(size) if size else None
        work = self._stdio.attach(
            stdin=self._input() if stdin else None,
            stdout=self._writer("stdout"),
            stderr=self._writer("stderr"),
            resize=resize,
        )
        self.task = asyncio.create_task(work)
        return self

    def type(self, text: str | None) -> None:
        self._typed.put_nowait(text.encode() if text is not None else None)

    async def sees(self, text: str, *, stream: str = "stdout") -> None:
        await until(lambda: text.encode() in self.seen[stream])

    async def detached(self) -> None:
        assert self.task is not None
        await asyncio.wait_for(self.task, 10)

    def _writer(self, stream: str) -> Any:
        async def write(data: bytes) -> None:
            self.seen[stream] += data

        return write

    async def _input(self) -> AsyncIterator[bytes]:
        while (data := await self._typed.get()) is not None:
            yield data

    async def _sizes(self, size: tuple[int, int]) -> AsyncIterator[tuple[int, int]]:
        yield size
        await asyncio.Event().wait()


ECHO = 'echo begin; while read -r line; do echo "out $line"; echo "err $line" >&2; done; echo end'


async def started(there: Bed, script: str, **container: Any) -> None:
    fields = {"command": ["sh", "-c", script], **container}
    there.run(pod(containers=[fields], restartPolicy="Never"))
    await there.phase("Running")


async def ended(there: Bed, script: str) -> None:
    """Run a script to its end, so short that nobody may see it run."""
    there.run(pod(containers=[{"command": ["sh", "-c", script]}], restartPolicy="Never"))
    await there.phase("Succeeded")


async def test_lines_go_in_and_both_streams_come_out(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        await started(there, ECHO, stdin=True, stdinOnce=True)
        client = Client(there).attach()
        client.type("one\n")
        await client.sees("out one")
        await client.sees("err one", stream="stderr")
        client.type(None)
        await client.detached()
        assert client.seen["stdout"].endswith(b"end\n")
        await there.phase("Succeeded")
        path = there.workers[0].main[0].log_path(previous=False)
        log = b"".join([piece async for piece in read(path)])
        assert b"begin\n" in log
        assert b"err one\n" in log


async def test_input_stays_open_for_the_next_client_unless_it_is_for_one(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        await started(there, ECHO, stdin=True)
        first = Client(there).attach()
        first.type("one\n")
        await first.sees("out one")
        assert first.task is not None
        first.task.cancel()
        second, watcher = Client(there).attach(), Client(there).attach(stdin=False)
        second.type("two\n")
        await second.sees("out two")
        await watcher.sees("out two")
        assert there.status()["phase"] == "Running"
        assert b"two" not in first.seen["stdout"]


async def test_input_for_one_client_ends_with_it(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        await started(there, ECHO, stdin=True, stdinOnce=True)
        client = Client(there).attach()
        client.type("one\n")
        await client.sees("out one")
        assert client.task is not None
        client.task.cancel()
        await there.phase("Succeeded")


async def test_a_terminal_is_one_with_its_size_and_controls_the_program(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        script = "test -t 0 && test -t 2 && echo tty; trap 'echo interrupted; exit 3' INT; while read -r line; do stty size; done"
        await started(there, script, stdin=True, tty=True)
        client = Client(there).attach(size=(101, 33))

        def typed_and_seen() -> bool:
            client.type("\n")
            return b"33 101" in client.seen["stdout"]

        await until(typed_and_seen)
        client.type("\x03")
        await client.sees("interrupted")
        await client.detached()
        await there.phase("Failed")
        assert there.container()["state"]["terminated"]["exitCode"] == 3


async def test_what_does_not_run_cannot_be_attached_to(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        await ended(there, "exit 0")
        with pytest.raises(LookupError, match="not running"):
            Client(there)


async def test_without_stdin_a_container_reads_nothing(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        await ended(there, "cat; echo over")
