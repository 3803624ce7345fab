"""What a store promises, on a directory and on a real S3 server alike."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

import pytest
from tests.objectstore.conftest import Opens

from mooring.objectstore import (
    AlreadyExists,
    Limits,
    NameInvalid,
    NotFound,
    Store,
    TimedOut,
    TooLarge,
)

MIB = 1 << 20
SMALL = Limits(part_size=5 * MIB, concurrency=2)


async def pieces(data: bytes, size: int = 300_000) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def everything(store: Store, name: str, *, offset: int = 0, length: int | None = None) -> bytes:
    async with aclosing(store.download(name, offset=offset, length=length)) as stream:
        return b"".join([piece async for piece in stream])


async def names(store: Store, prefix: str = "", *, after: str = "") -> list[str]:
    return [info.name async for info in store.list(prefix, after=after)]


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 5 * MIB, 12 * MIB + 7])
async def test_what_was_uploaded_comes_back(opens: Opens, size: int, encrypted: bool) -> None:
    data = os.urandom(size)
    async with opens(encrypted=encrypted, limits=SMALL) as store:
        done = await store.upload("a/b", pieces(data))
        assert (done.size, done.sha256) == (size, hashlib.sha256(data).hexdigest())
        assert await everything(store, "a/b") == data
        assert (await store.head("a/b")).size == done.stored
        assert (done.stored > size) is encrypted


@pytest.mark.parametrize("encrypted", [False, True])
async def test_ranges_are_those_of_the_plaintext(opens: Opens, encrypted: bool) -> None:
    frame = 256 * 1024
    data = os.urandom(3 * frame)
    async with opens(encrypted=encrypted) as store:
        await store.upload("a", pieces(data))
        for offset, length in [
            (0, 1),
            (0, None),
            (5, None),
            (frame - 1, 2),
            (frame, frame),
            (2 * frame + 1, None),
            (3 * frame - 1, 100),
            (3 * frame, 1),
            (4 * frame, None),
            (7, 0),
        ]:
            end = None if length is None else offset + length
            assert await everything(store, "a", offset=offset, length=length) == data[offset:end], (
                offset,
                length,
            )


@contextmanager
def temporary(data: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file.fileno()


async def test_a_pipe_and_a_file_are_sources(store: Store) -> None:
    data = os.urandom(3 * MIB)
    reader, writer = os.pipe()
    try:

        def feed() -> None:
            view = memoryview(data)
            while view:
                view = view[os.write(writer, view) :]
            os.close(writer)

        _, done = await asyncio.gather(asyncio.to_thread(feed), store.upload("pipe", reader))
    finally:
        os.close(reader)
    assert done.sha256 == hashlib.sha256(data).hexdigest()
    with temporary(data) as fd:
        assert (await store.upload("file", fd)).sha256 == done.sha256


async def test_lists_are_ordered_and_by_whole_segments(store: Store) -> None:
    for name in ["a/b/2", "a/b/1", "a/b-c", "a/bc", "a.d", "z"]:
        await store.create(name, name.encode())
    assert await names(store) == ["a.d", "a/b-c", "a/b/1", "a/b/2", "a/bc", "z"]
    assert await names(store, "a/b") == ["a/b/1", "a/b/2"]
    assert await names(store, after="a/b/1") == ["a/b/2", "a/bc", "z"]
    assert await names(store, "nothing") == []


async def test_a_list_left_early_is_closed(store: Store) -> None:
    await store.create("a", b"")
    async with aclosing(store.list()) as infos:
        assert (await anext(infos)).name == "a"


async def test_a_created_name_is_never_replaced(store: Store) -> None:
    await store.create("m/1", b"first")
    with pytest.raises(AlreadyExists, match=r"cannot create .*m/1"):
        await store.create("m/1", b"second")
    assert await store.read("m/1") == b"first"


@pytest.mark.parametrize("encrypted", [False, True])
async def test_of_racing_creators_one_wins(opens: Opens, encrypted: bool) -> None:
    async with opens(encrypted=encrypted) as store:
        for attempt in range(10):
            bodies = [f"writer {number}".encode() for number in range(4)]
            results = await asyncio.gather(
                *(store.create(f"m/{attempt}", body) for body in bodies), return_exceptions=True
            )
            winners = [body for body, result in zip(bodies, results, strict=True) if result is None]
            assert len(winners) == 1
            assert all(result is None or isinstance(result, AlreadyExists) for result in results)
            assert await store.read(f"m/{attempt}") == winners[0]


async def test_a_missing_object_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.head("none")
    with pytest.raises(NotFound):
        await everything(store, "none")
    with pytest.raises(NotFound):
        await store.copy("none", "other")
    await store.delete("none")


async def test_copies_are_whole_and_independent(store: Store) -> None:
    await store.create("a", b"data")
    await store.copy("a", "b/c")
    await store.delete("a")
    assert await store.read("b/c") == b"data"
    assert await names(store) == ["b/c"]


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/..", "a/./b", "a\0", "ä", ".mooring-x", "a" * 201]
)
async def test_names_cannot_leave_the_prefix(store: Store, name: str) -> None:
    with pytest.raises(NameInvalid):
        await store.create(name, b"")


async def test_an_error_of_the_source_is_raised_and_leaves_nothing(opens: Opens) -> None:
    async def failing() -> AsyncGenerator[bytes, None]:
        for _ in range(12):
            yield bytes(MIB)
        raise RuntimeError("the dump ended with 1")

    async with opens(limits=SMALL) as store:
        with pytest.raises(RuntimeError, match="the dump ended with 1"):
            await store.upload("a", failing())
        assert await names(store) == []


async def test_a_cancelled_upload_closes_its_source_and_makes_no_object(opens: Opens) -> None:
    closed = asyncio.Event()
    hung = asyncio.Event()

    async def hanging() -> AsyncGenerator[bytes, None]:
        try:
            for _ in range(12):
                yield bytes(MIB)
            hung.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with opens(limits=SMALL) as store:
        upload = asyncio.ensure_future(store.upload("a", hanging()))
        await asyncio.wait_for(hung.wait(), 30)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert closed.is_set()
        assert await names(store) == []


async def test_a_deadline_ends_an_upload(opens: Opens) -> None:
    async def hanging() -> AsyncGenerator[bytes, None]:
        yield b"some"
        await asyncio.Event().wait()

    async with opens() as store:
        with pytest.raises(TimedOut, match="not done within"):
            await store.upload("a", hanging(), deadline=0.2)
        assert await names(store) == []


async def test_progress_counts_the_source(opens: Opens) -> None:
    seen: list[int] = []
    async with opens(encrypted=True) as store:
        await store.upload("a", pieces(bytes(3 * MIB + 1)), progress=seen.append)
        assert seen == [MIB, 2 * MIB, 3 * MIB, 3 * MIB + 1]


async def test_what_is_read_at_once_is_bounded(opens: Opens) -> None:
    async with opens(limits=SMALL) as store:
        await store.upload("a", pieces(bytes(9 * MIB)))
        with pytest.raises(TooLarge, match="use download"):
            await store.read("a")
        with pytest.raises(TooLarge, match="use upload"):
            await store.create("b", bytes(9 * MIB))


async def test_a_check_of_a_usable_target_leaves_nothing(store: Store) -> None:
    assert (await store.check()).reason == "Ready"
    assert await names(store) == []
