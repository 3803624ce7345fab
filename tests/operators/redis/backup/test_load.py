"""Keys of snapshots, and their way into a Redis Cluster of real servers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot
from tests.operators.redis.cluster.servers import Servers, servers

from mooring.operators.backup.layout import MANIFEST
from mooring.operators.backup.manifest import Manifest, StoredPart, encode_manifest
from mooring.operators.redis.backup.crc import crc64
from mooring.operators.redis.backup.entries import Entries, Entry, Function, NotUnderstood
from mooring.operators.redis.backup.load import Into, NotLoaded, dumped, load
from mooring.operators.redis.backup.reader import Candidate
from mooring.operators.redis.backup.sync import open_snapshot
from mooring.operators.redis.dial import Link

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(90)]

#: A key of every kind, small and large.
FILL = """
local long = string.rep('0123456789abcdef', 400)
for i = 1, 200 do redis.call('SET', 'text:' .. i, string.rep(redis.sha1hex(i), i)) end
for i = 1, 40 do redis.call('SET', 'number:' .. i, i * i * i * i * 1000 - 2000) end
redis.call('SET', string.rep('a long name ', 30), long)
redis.call('SET', '-17', 'a name that is a number')
redis.call('SET', '{tag}1', 'x') redis.call('SET', 'a{tag}2', 'y') redis.call('SET', '{}3', 'z')
redis.call('SETEX', 'ends', 100000, 'x')
for i = 1, 3 do
  local size = ({2, 300, 3000})[i]
  for j = 1, size do
    redis.call('RPUSH', 'list:' .. i, j) redis.call('SADD', 'numbers:' .. i, j)
    redis.call('SADD', 'set:' .. i, 'm' .. j) redis.call('HSET', 'hash:' .. i, 'f' .. j, j .. 'v')
    redis.call('ZADD', 'scores:' .. i, j / 3, 'm' .. j)
    redis.call('XADD', 'stream:' .. i, '1-' .. j, 'f', j)
  end
  redis.call('RPUSH', 'list:' .. i, long)
end
redis.call('ZADD', 'ends-of-scores', '-inf', 'a', '+inf', 'b')
redis.call('XGROUP', 'CREATE', 'stream:2', 'readers', '0')
redis.call('XREADGROUP', 'GROUP', 'readers', 'first', 'COUNT', 50, 'STREAMS', 'stream:2', '>')
redis.call('XREADGROUP', 'GROUP', 'readers', 'second', 'COUNT', 50, 'STREAMS', 'stream:2', '>')
redis.call('XACK', 'stream:2', 'readers', '1-3', '1-70')
return #redis.call('KEYS', '*')
"""
LIBRARY = "#!lua name=mine\nredis.register_function('twice', function(keys, args) return args[1] * 2 end)"


def bit_by_bit(data: bytes) -> int:
    crc = 0
    for one in data:
        crc ^= one
        for _ in range(8):
            crc = crc >> 1 ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
    return crc


def test_the_checksum_is_that_of_redis_for_every_length() -> None:
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA
    data = bytes(range(251)) * 40
    for size in (0, 1, 8, 811, 1623, 1624, 1625, 2436, 10040):
        assert crc64(data[:size]) == bit_by_bit(data[:size])


async def test_a_value_of_a_snapshot_is_what_dump_answers(tmp_path: Path) -> None:
    async with servers(tmp_path, 0) as nodes:
        await nodes.start(0, clustered=False)
        count = await nodes.call(0, "EVAL", FILL, 0)
        await nodes.call(0, "FUNCTION", "LOAD", LIBRARY)
        file = await snapshot(nodes, 0)
        for size in (len(file), 1000, 7):
            found = entries(file, size)
            keys = [one for one in found if isinstance(one, Entry)]
            assert len(keys) == count
            assert [one.code.decode() for one in found if isinstance(one, Function)] == [LIBRARY]
        version = int(file[5:9])
        async with nodes.dial.link(nodes.address(0), exact=True) as link:
            for one in keys:
                said = await link.call("DUMP", one.key)
                assert dumped(one.value, version) == said.encode(errors="surrogateescape"), one.key
                ends = await link.call("PEXPIRETIME", one.key)
                assert one.expires == max(ends, 0)


async def snapshot(nodes: Servers, ordinal: int) -> bytes:
    await nodes.call(ordinal, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
    async with open_snapshot(nodes.address(ordinal)) as found:
        return b"".join([piece async for piece in found.data])


def entries(file: bytes, size: int) -> list[Entry | Function]:
    reader = Entries()
    found = [one for at in range(0, len(file), size) for one in reader.feed(file[at : at + size])]
    return [*found, *reader.finish()]


HEAD = b"REDIS0010\xfe\x00"


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "no RDB file"),
        (b"+FULLRESYNC", "no RDB file"),
        (HEAD + b"\x00\x01a\x01b", "ends in the middle"),
        (HEAD + b"\xff" + bytes(8) + b"more", "goes on after its end"),
        (HEAD + b"\x07\x01a" + bytes(20), "server's module"),
        (HEAD + b"\xf7" + bytes(20), "server's module"),
        (HEAD + b"\x63\x01a" + bytes(20), r"kind that is not known \(99\)"),
    ],
)
def test_what_is_not_understood_is_refused(file: bytes, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        entries(file, 5)


# --- into real servers ---


@asynccontextmanager
async def cluster(home: Path, masters: int = 2) -> AsyncIterator[Servers]:
    """Masters without replicas, with even parts of the slots."""
    async with servers(home / "cluster", masters) as nodes:
        size = 16384 // masters
        for at in range(masters):
            last = 16383 if at == masters - 1 else (at + 1) * size - 1
            await nodes.call(at, "CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            await nodes.call(at, "CLUSTER", "ADDSLOTSRANGE", at * size, last)
            await nodes.call(at, "CLUSTER", "MEET", nodes.address(0).ip, 6379)
        async with asyncio.timeout(20):
            while not all(
                ["cluster_state:ok" in await nodes.call(at, "CLUSTER", "INFO") for at in range(masters)]
            ):
                await asyncio.sleep(0.05)
            while not all([len(await nodes.view(at)) == masters for at in range(masters)]):
                await asyncio.sleep(0.05)
        yield nodes


async def loaded(
    nodes: Servers,
    home: Path,
    files: Sequence[bytes],
    *,
    go_on: threading.Event | None = None,
    facts: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What `load` says of these parts; the second half of each waits for ``go_on``."""
    await asyncio.to_thread(home.mkdir)
    names = [f"shard-{at}" for at in range(len(files))]
    parts = [
        StoredPart(name=name, size=len(file), sha256="") for name, file in zip(names, files, strict=True)
    ]
    now = datetime(2026, 3, 1, tzinfo=UTC)
    manifest = Manifest(
        id="i",
        operator="redis",
        began=now,
        finished=now,
        parts=parts,
        facts={"position": "p:1", **(facts or {})},
    )
    (home / MANIFEST).write_bytes(encode_manifest(manifest))
    for name in names:
        os.mkfifo(home / name)
    feeds = [
        threading.Thread(target=_feed, args=(home / name, file, go_on), daemon=True)
        for name, file in zip(names, files, strict=True)
    ]
    for one in feeds:
        one.start()
    pods = [Candidate(pod=f"c-{at}", ip=nodes.address(at).ip) for at in range(nodes.pods)]
    return await load(Into(pods=pods), password="", run=home)


def _feed(path: Path, data: bytes, go_on: threading.Event | None) -> None:
    half = len(data) // 2
    try:
        with path.open("wb", buffering=0) as out:
            out.write(data[:half])
            if go_on is not None:
                go_on.wait(30)
            out.write(data[half:])
    except BrokenPipeError:
        return


async def contents(nodes: Servers, ordinals: Sequence[int]) -> dict[str, Any]:
    found = {}
    for at in ordinals:
        async with nodes.dial.link(nodes.address(at), exact=True) as link:
            for key in await link.call("KEYS", "*"):
                found[key] = (await value(link, key), await link.call("PEXPIRETIME", key))
    return found


async def value(link: Link, key: str) -> Any:
    """What it holds; sets and hashes have no order."""
    match await link.call("TYPE", key):
        case "set":
            return sorted(await link.call("SMEMBERS", key))
        case "hash":
            words = await link.call("HGETALL", key)
            return dict(zip(words[::2], words[1::2], strict=True))
    return await link.call("DUMP", key)


async def test_every_key_reaches_the_owner_of_its_slot_and_a_second_try_changes_nothing(
    tmp_path: Path,
) -> None:
    async with servers(tmp_path / "source", 0) as source, cluster(tmp_path, 3) as nodes:
        await source.start(0, clustered=False)
        count = await source.call(0, "EVAL", FILL, 0)
        await source.call(0, "FUNCTION", "LOAD", LIBRARY)
        file = await snapshot(source, 0)
        for at in range(2):
            facts = await loaded(nodes, tmp_path / f"run-{at}", [file], facts={"databases": "0", "rdb": "10"})
            assert facts == {"keys": str(count), "position": "p:1"}
            assert await contents(nodes, range(3)) == await contents(source, [0])
        assert await nodes.call(1, "FCALL", "twice", 0, 21) == 42


async def test_parts_of_several_shards_go_into_another_number_of_masters(tmp_path: Path) -> None:
    async with cluster(tmp_path / "old", 3) as old, cluster(tmp_path, 2) as nodes:
        keys = [f"key:{at}" for at in range(3000)]
        for at, slots in (await old.owned()).items():
            mine = [key for key in keys if slots >> key_slot(key.encode()) & 1]
            async with old.dial.link(old.address(at)) as link:
                await link.pipeline([("SET", key, key) for key in mine])
        files = [await snapshot(old, at) for at in range(3)]
        facts = await loaded(nodes, tmp_path / "run", files)
        assert facts["keys"] == "3000"
        assert await nodes.kept(keys) == await nodes.stored() == 3000


async def test_what_a_cluster_cannot_take_is_refused_before_or_while_it_is_read(tmp_path: Path) -> None:
    async with servers(tmp_path / "source", 0) as source, cluster(tmp_path) as nodes:
        await source.start(0, clustered=False)
        async with source.dial.link(source.address(0)) as link:
            await link.call("SET", "a", 1)
            await link.call("SELECT", 3)
            await link.call("SET", "b", 1)
        file = await snapshot(source, 0)
        cases: list[tuple[bytes, dict[str, str], str]] = [
            (file, {"databases": "0,3"}, "keys in the databases 3, and a Redis Cluster has database 0 alone"),
            (file, {}, "keys in database 3"),
            (file, {"rdb": "99", "version": "9.1.0"}, "cannot read a backup of version 9.1.0"),
            (file[:-20], {}, "ends in the middle|keys in database 3"),
            (HEAD + b"\x00\x01a\xc3\x05\x05garba", {}, "ends in the middle|cannot read a value"),
        ]
        for at, (content, facts, why) in enumerate(cases):
            with pytest.raises(NotLoaded, match=why) as refused:
                await loaded(nodes, tmp_path / f"run-{at}", [content], facts=facts)
            assert not refused.value.again
        await nodes.call(0, "CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(NotLoaded, match="no more memory") as full:
            await loaded(nodes, tmp_path / "full", [await _of_keys(source, 3000)])
        assert full.value.again


async def _of_keys(source: Servers, count: int) -> bytes:
    await source.call(0, "FLUSHALL")
    await source.call(0, "EVAL", f"for i = 1, {count} do redis.call('SET', 'k' .. i, i) end", 0)
    return await snapshot(source, 0)


async def test_a_master_that_restarts_meanwhile_ends_the_try(tmp_path: Path) -> None:
    async with servers(tmp_path / "source", 0) as source, cluster(tmp_path) as nodes:
        await source.start(0, clustered=False)
        file, go_on = await _of_keys(source, 20_000), threading.Event()
        task = asyncio.create_task(loaded(nodes, tmp_path / "run", [file], go_on=go_on))
        async with asyncio.timeout(30):
            while not await nodes.call(1, "DBSIZE"):
                await asyncio.sleep(0.02)
        await nodes.kill(1)
        await nodes.start(1)
        go_on.set()
        with pytest.raises(NotLoaded, match=str(nodes.address(1))):
            await task
