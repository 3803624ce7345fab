"""Directories as targets: nothing leaves them, nothing half-written shows, leftovers go."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from mooring.objectstore import (
    ContainerNotFound,
    Limits,
    NameInvalid,
    NotFound,
    OutOfSpace,
    Store,
    Target,
    TargetInvalid,
    TimedOut,
    directory,
    open_store,
)
from mooring.objectstore.target import Claim, Directory

NO_SECRETS: dict[str, dict[str, bytes]] = {}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (root := tmp_path / "root").mkdir()
    return root


@pytest.fixture
async def store(root: Path) -> AsyncIterator[Store]:
    async with open_store(
        Target(directory=Directory(path=str(root))), secrets=NO_SECRETS.__getitem__
    ) as store:
        yield store


async def once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


def below(directory: Path) -> list[str]:
    """Everything below a directory, by its path from there."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


async def test_symbolic_links_are_not_followed(store: Store, root: Path, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "file").write_bytes(b"secret")
    (root / "dir").symlink_to(outside)
    (root / "link").symlink_to(outside / "file")
    for name in ["dir/file", "link"]:
        with pytest.raises((NameInvalid, NotFound)):
            await store.read(name)
    with pytest.raises((NameInvalid, NotFound)):
        await store.head("link")
    with pytest.raises(NameInvalid):
        await store.upload("dir/new", once(b""))
    with pytest.raises(NameInvalid):
        await store.delete("dir/file")
    await store.upload("link", once(b"replaced, not followed"))
    assert [info.name async for info in store.list()] == ["link"]
    assert below(outside) == ["file"]
    assert (outside / "file").read_bytes() == b"secret"


async def test_a_name_below_an_object_is_refused(store: Store) -> None:
    await store.create("a", b"")
    with pytest.raises(NameInvalid):
        await store.create("a/b", b"")
    await store.create("d/e", b"")
    with pytest.raises(NameInvalid):
        await store.upload("d", once(b""))
    with pytest.raises(NotFound):
        await store.head("d")


async def test_a_file_shows_only_when_it_is_whole(store: Store, root: Path) -> None:
    await store.create("a", b"old")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncGenerator[bytes, None]:
        yield bytes(1 << 20)
        begun.set()
        await go_on.wait()
        yield b"end"

    upload = asyncio.ensure_future(store.upload("a", slow()))
    await begun.wait()
    assert await store.read("a") == b"old"
    assert [info.name async for info in store.list()] == ["a"]
    go_on.set()
    await upload
    assert (await store.head("a")).size == (1 << 20) + 3
    assert below(root) == ["a"]
    assert not stat.S_IMODE((root / "a").stat().st_mode) & 0o007


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    target = Target(directory=Directory(path=str(tmp_path / "absent")))
    async with open_store(target, secrets=NO_SECRETS.__getitem__) as store:
        check = await store.check()
        assert (check.ok, check.reason) == (False, "DirectoryNotFound")
        assert "absent" in check.message
        for call in (store.delete("a"), store.head("a"), store.create("a", b"")):
            with pytest.raises(ContainerNotFound):
                await call
    assert not (tmp_path / "absent").exists()


async def test_a_claim_is_read_where_it_is_mounted(root: Path) -> None:
    target = Target(claim=Claim(name="backups", prefix="x"))
    async with open_store(target, secrets=NO_SECRETS.__getitem__, mounted=root) as store:
        await store.create("a", b"1")
    assert (root / "x" / "a").read_bytes() == b"1"
    with pytest.raises(TargetInvalid, match="not mounted"):
        async with open_store(target, secrets=NO_SECRETS.__getitem__):
            pass


async def test_deleting_the_last_object_of_a_directory_removes_it(store: Store, root: Path) -> None:
    for name in ("a/b/c", "a/d"):
        await store.create(name, b"")
    await store.delete("a/b/c")
    assert below(root) == ["a", "a/d"]
    await store.delete("a/d")
    assert below(root) == []


async def test_writers_and_deleters_of_one_directory_do_not_disturb_each_other(store: Store) -> None:
    async def life(number: int) -> None:
        for _ in range(20):
            await store.create(f"a/b/{number}", b"x")
            assert await store.read(f"a/b/{number}") == b"x"
            await store.delete(f"a/b/{number}")

    await asyncio.gather(*(life(number) for number in range(6)))


_KILLED = """
import asyncio, sys
from mooring.objectstore import Target, open_store
from mooring.objectstore.target import Directory

async def endless():
    yield bytes(1 << 20)
    yield bytes(1 << 20)
    print("half", flush=True)
    await asyncio.Event().wait()

async def main():
    async with open_store(Target(directory=Directory(path=sys.argv[1])), secrets={}.__getitem__) as store:
        await store.upload("a/b", endless())

asyncio.run(main())
"""


async def test_what_a_killed_uploader_left_is_removed(store: Store, root: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _KILLED, str(root)), stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"half\n"
        # Its writer lives and holds the lock.
        assert await store.clean_uploads(older_than=-3600) == 0
    finally:
        process.kill()
        await process.communicate()
    assert [info.name async for info in store.list()] == []
    assert len(below(root / "a")) == 1
    assert await store.clean_uploads(older_than=3600) == 0
    assert await store.clean_uploads("elsewhere", older_than=-3600) == 0
    assert await store.clean_uploads("a", older_than=-3600) == 1
    assert below(root / "a") == []


async def test_a_cancelled_upload_leaves_nothing(store: Store, root: Path) -> None:
    begun = asyncio.Event()

    async def hanging() -> AsyncGenerator[bytes, None]:
        yield bytes(2 << 20)
        begun.set()
        await asyncio.Event().wait()

    upload = asyncio.ensure_future(store.upload("a", hanging()))
    await begun.wait()
    assert len(below(root)) == 1
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert below(root) == []


async def test_a_full_disk_is_an_error_and_leaves_nothing(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 100_000:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutOfSpace, match="free space"):
        await store.upload("a", once(bytes(1 << 20)))
    assert below(root) == []


async def test_data_is_on_disk_before_it_has_its_name(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for call in ("fsync", "rename", "link"):
        real = getattr(os, call)

        def noted(*arguments: object, _call: str = call, _real: object = real, **options: object) -> object:
            kind = "directory" if _call == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode) else ""  # type: ignore[arg-type]
            done.append(f"{_call} {kind}".strip())
            return _real(*arguments, **options)  # type: ignore[operator]

        monkeypatch.setattr(os, call, noted)
    await store.upload("a", once(b"1"))
    assert done == ["fsync", "rename", "fsync directory"]
    done.clear()
    await store.create("b", b"1")
    assert done == ["fsync", "link", "fsync directory"]


async def test_ten_thousand_objects_are_listed(store: Store, root: Path) -> None:
    for part in range(10):
        (root / f"{part}").mkdir()
        for number in range(1000):
            (root / f"{part}" / f"{number:04}").touch()
    found = [info.name async for info in store.list()]
    assert found == [f"{part}/{number:04}" for part in range(10) for number in range(1000)]


async def test_what_is_no_file_is_no_object(store: Store, root: Path) -> None:
    os.mkfifo(root / "a")
    assert [info.name async for info in store.list()] == []
    with pytest.raises(NotFound):
        async with aclosing(store.download("a")) as stream:
            await anext(stream)


async def test_a_hung_file_system_is_timed_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(directory=Directory(path=str(root)))
    answered = threading.Event()
    monkeypatch.setattr(directory, "ABORT_SECONDS", 0.1)
    monkeypatch.setattr(os, "fsync", lambda fd: answered.wait(30))
    limits = Limits(stall=0.2)
    async with open_store(target, secrets=NO_SECRETS.__getitem__, limits=limits) as store:
        create = asyncio.ensure_future(store.create("a", b""))
        with pytest.raises(TimedOut, match="the file system did not answer"):
            await store.upload("b", once(b""))
        answered.set()
        await create
        assert [info.name async for info in store.list()] == ["a"]
