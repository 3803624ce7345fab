"""Container logs: written by the pump, read with the options of ``kubectl logs``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mooring.local.node.logs import LogFile, LogPump, _Tail, read, split_lines

from .bed import until


@pytest.fixture
def pump() -> Iterator[LogPump]:
    made = LogPump()
    yield made
    made.close()


async def text_of(path: Path, **options: object) -> str:
    return b"".join([piece async for piece in read(path, **options)]).decode()  # type: ignore[arg-type]


async def test_both_streams_are_kept_with_their_time(tmp_path: Path, pump: LogPump) -> None:
    out, err = pump.open(LogFile(tmp_path / "1.log"))
    os.write(out, b"one\ntw")
    os.write(out, b"o\nno end")
    for descriptor in (out, err):
        os.close(descriptor)
    await until(lambda: (tmp_path / "1.log").read_text().count("\n") == 3)
    first = (tmp_path / "1.log").read_text().splitlines()[0].split(" ")
    assert first[1:] == ["stdout", "F", "one"]
    assert datetime.fromisoformat(first[0][:26] + "+00:00") <= datetime.now(UTC)
    assert await text_of(tmp_path / "1.log") == "one\ntwo\nno end"


async def test_tail_since_limit_and_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    lines = [f"2026-01-01T00:00:0{n}.000000000Z stdout F line {n}\n" for n in range(5)]
    path.write_text("".join(lines))
    assert await text_of(path, tail_lines=2) == "line 3\nline 4\n"
    assert await text_of(path, tail_lines=0) == ""
    since = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=3)
    assert await text_of(path, since=since) == "line 3\nline 4\n"
    assert await text_of(path, limit_bytes=9) == "line 0\nli"
    stamped = await text_of(path, tail_lines=1, timestamps=True)
    assert stamped == "2026-01-01T00:00:04.000000000Z line 4\n"


async def test_following_goes_on_over_a_rotation_and_ends_with_the_writer(
    tmp_path: Path, pump: LogPump
) -> None:
    path, alive = tmp_path / "1.log", True
    out, err = pump.open(LogFile(path, max_bytes=2000))
    seen: list[bytes] = []

    async def follow() -> None:
        async for piece in read(path, follow=lambda: alive):
            seen.append(piece)  # noqa: PERF401

    following = asyncio.create_task(follow())
    for number in range(60):
        os.write(out, f"line {number}\n".encode())
        if number % 10 == 9:
            await until(lambda: b"".join(seen).count(b"\n") == number + 1)  # noqa: B023
    for descriptor in (out, err):
        os.close(descriptor)
    alive = False
    await asyncio.wait_for(following, 5)
    assert b"".join(seen).decode().split("\n")[:-1] == [f"line {n}" for n in range(60)]
    assert (tmp_path / "1.log.1").exists()


def test_what_is_written_just_before_a_rotation_is_followed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LogFile(tmp_path / "1.log")
    file.write("stdout", [("F", b"one")])
    tail, look = _Tail(file.path), _Tail._rotated

    def written_meanwhile(self: _Tail) -> bool:
        monkeypatch.undo()
        file.write("stdout", [("F", b"two")])
        file._rotate()
        file.write("stdout", [("F", b"three")])
        return look(self)

    monkeypatch.setattr(_Tail, "_rotated", written_meanwhile)
    assert [line.text for line in tail.take()] == [b"one", b"two", b"three"]
    tail.close()
    file.close()


def test_a_very_long_line_is_kept_in_pieces() -> None:
    pieces, rest = split_lines(b"x" * 40_000 + b"\nshort")
    assert [mark for mark, _ in pieces] == ["P", "P", "F"]
    assert sum(len(text) for _, text in pieces) == 40_000
    assert rest == b"short"


async def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    with suppress(FileNotFoundError):
        assert await text_of(tmp_path / "none.log") == ""
