"""Lost answers and lost bytes: what is in the store decides, never what was sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace

import obstore
import pytest

from mooring.cache.clock import SystemClock
from mooring.objectstore import (
    AlreadyExists,
    Corrupt,
    KeyRing,
    Limits,
    ObjectInfo,
    ObjectStoreError,
    Store,
    Target,
    Unreachable,
    bucket,
)
from mooring.objectstore.directory import DirectoryBackend
from mooring.objectstore.target import S3, Directory

QUICK = Limits(call=1.0)
RING = KeyRing(keys={"a": bytes(32)}, write="a")


class Unreliable(DirectoryBackend):
    """A directory whose first create has no answer; whether it, or another writer, wrote is chosen."""

    def __init__(
        self, root: Path, *, writes: bool = True, others: bytes | None = None, short: int = 0
    ) -> None:
        super().__init__(root, where="here", clock=SystemClock(), limits=QUICK)
        self.attempts = 0
        self._writes = writes
        self._others = others
        self._short = short

    async def create(self, name: str, data: bytes) -> None:
        self.attempts += 1
        if self.attempts > 1:
            await super().create(name, data)
            return
        if self._others is not None:
            await super().create(name, self._others)
        elif self._writes:
            await super().create(name, data)
        raise Unreachable("cannot create a: the connection was lost")

    async def head(self, name: str) -> ObjectInfo:
        info = await super().head(name)
        return ObjectInfo(name=name, size=info.size - self._short, modified=info.modified)


def store_on(backend: DirectoryBackend, root: Path, *, ring: KeyRing | None = None) -> Store:
    keys = None if ring is None else lambda: ring
    target = Target(directory=Directory(path=str(root)))
    return Store(target, backend, keys=keys, clock=SystemClock(), limits=QUICK)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("ring", [None, RING])
async def test_a_create_without_an_answer_succeeds_once(
    tmp_path: Path, writes: bool, ring: KeyRing | None
) -> None:
    backend = Unreliable(tmp_path, writes=writes)
    store = store_on(backend, tmp_path, ring=ring)
    await store.create("a", b"ours")
    assert await store.read("a") == b"ours"
    assert backend.attempts == 2
    await backend.close()


@pytest.mark.parametrize("others", [b"another's", b"our", b"ours and more"])
async def test_a_create_without_an_answer_does_not_take_anothers_object(
    tmp_path: Path, others: bytes
) -> None:
    backend = Unreliable(tmp_path, others=others)
    store = store_on(backend, tmp_path)
    with pytest.raises(AlreadyExists):
        await store.create("a", b"ours")
    assert await store.read("a") == others
    await backend.close()


async def test_an_upload_that_lost_bytes_is_not_called_good(tmp_path: Path) -> None:
    async def source() -> AsyncGenerator[bytes, None]:
        yield b"12345"

    backend = Unreliable(tmp_path, short=1)
    with pytest.raises(Corrupt, match="has 4 bytes, 5 were written"):
        await store_on(backend, tmp_path).upload("a", source())
    await backend.close()


async def test_a_stream_that_ends_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get_async(*_: object, **__: object) -> object:
        async def stream(**_: object) -> AsyncGenerator[bytes, None]:
            yield b"12345"

        return SimpleNamespace(range=(0, 10), stream=stream)

    monkeypatch.setattr(obstore, "get_async", get_async)
    target = Target(s3=S3(bucket="backups", endpoint="http://127.0.0.1:1", credentials_secret="s"))
    secrets = {"s": {"accessKeyId": b"a", "secretAccessKey": b"b"}}
    backend = bucket.S3Backend(target, secrets=secrets.__getitem__, clock=SystemClock(), limits=QUICK)
    seen = b""
    error: ObjectStoreError | None = None
    try:
        async for piece in backend.get("a", offset=0, length=None):
            seen += piece
    except ObjectStoreError as caught:
        error = caught
    assert seen == b"12345"
    assert isinstance(error, Unreachable)
    assert "5 bytes early" in str(error)
