"""mooring import redis: an RDB file becomes a backup that a restore reads; what is none is refused and leaves nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mooring.objectstore import Target, mounted_secrets, open_store
from mooring.objectstore.target import Directory
from mooring.operators.backup import agent
from mooring.operators.redis.backup.imports import import_redis
from mooring.operators.redis.backup.reader import NotRead

#: A file of Redis 7.0 with one key, as far as a head is read: magic, an auxiliary field, database 0 with one key.
FILE = b"REDIS0010\xfa\x09redis-ver\x067.0.15\xfe\x00\xfb\x01\x00\x00\x01a\x011\xff" + bytes(8)


async def test_a_file_is_stored_with_the_facts_of_its_head(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "dump.rdb").write_bytes(FILE)
    target = Target(directory=Directory(path=str(tmp_path / "store")))
    async with open_store(target, secrets=mounted_secrets(tmp_path)) as store:
        result = await import_redis(store, prefix="old", source=str(tmp_path / "dump.rdb"))
        manifest = await agent.read_manifest(store, "old")
        checked = await agent.check(store, prefix="old")
    assert (result.ok, result.size, checked.ok) == (True, len(FILE), True)
    assert [part.name for part in manifest.parts] == ["data"]
    assert {name: manifest.facts[name] for name in ("version", "rdb", "keys")} == {
        "version": "7.0.15",
        "rdb": "10",
        "keys": "0:1",
    }


async def test_what_is_no_rdb_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "notes.txt").write_text("not a dump")
    target = Target(directory=Directory(path=str(tmp_path / "store")))
    async with open_store(target, secrets=mounted_secrets(tmp_path)) as store:
        with pytest.raises(agent.DataFailed, match="is no RDB file") as failed:
            await import_redis(store, prefix="old", source=str(tmp_path / "notes.txt"))
    assert not failed.value.again
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


async def test_a_source_that_cannot_be_read_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    target = Target(directory=Directory(path=str(tmp_path / "store")))
    async with open_store(target, secrets=mounted_secrets(tmp_path)) as store:
        with pytest.raises(NotRead, match=r"there is no file /x/none\.rdb; give an RDB file, or HOST"):
            await import_redis(store, prefix="old", source="/x/none.rdb")
        with socket.socket() as taken:  # bound, and nothing listens
            taken.bind(("127.0.0.1", 0))
            source = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(NotRead, match=rf"{source}: cannot connect.*[^.]; check the address and port"):
                await import_redis(store, prefix="old", source=source)
