"""The table of versions, asked of the servers themselves: real ones of every version that can be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.operators.redis.backup.test_load import FILL, LIBRARY, entries, snapshot
from tests.operators.redis.cluster.servers import Servers
from tests.operators.redis.programs import ALL, program

from mooring.operators.redis.backup.entries import Entry, Function
from mooring.operators.redis.backup.load import dumped
from mooring.operators.redis.dial import Link, Refused
from mooring.operators.redis.info import parse_info
from mooring.operators.redis.versions import (
    Version,
    capabilities,
    file_format,
    parse_version,
    reads,
    reads_format,
    server_version,
    unread,
    why_unread,
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]  # servers are fetched or built before


@pytest.fixture(params=ALL)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Servers]]:
    """A server of each version, and the name it has."""
    name = str(request.param)
    nodes = Servers(tmp_path, await asyncio.to_thread(program, name, tmp_path))
    try:
        await nodes.start(0, clustered=False)
        yield name, nodes
    finally:
        await nodes.end()


async def takes(link: Link, *words: str) -> bool:
    """Whether a command is known and these words are right."""
    try:
        await link.call(*words)
    except Refused:
        return False
    return True


async def test_the_table_says_what_a_server_can_do(server: tuple[str, Servers]) -> None:
    name, nodes = server
    kind, _, series = name.partition(":")
    async with nodes.dial.link(nodes.address(0)) as link:
        version = server_version(parse_info(await link.call("INFO", "server")))
        known = capabilities(version)
        assert version.startswith("Valkey ") == (kind == "valkey")
        assert ".".join(map(str, known.version[:2])) == series

        assert ("master_replid2:" in await link.call("INFO", "replication")) == known.replication_ids
        assert bool(await link.call("CONFIG", "GET", "replica-priority")) == known.replica_words
        assert await link.call("CONFIG", "GET", "slave-priority") == ["slave-priority", "100"]
        assert (await link.call("COMMAND", "INFO", "ACL") != [None]) == known.acl
        assert await takes(link, "CLIENT", "PAUSE", "1", "WRITE") == known.pause_writes
        assert bool(await link.call("CONFIG", "GET", "slave-announce-ip")) == known.announce
        several = await takes(link, "CONFIG", "GET", "port", "dir")
        assert several == known.many_config_get
        if known.acl:
            assert (
                await takes(link, "ACL", "SETUSER", "someone", "resetchannels", "&channel") == known.channels
            )
        # MIGRATE reads its words before it connects; the address is one where nobody lives.
        said = await refusal(
            link, "MIGRATE", "127.0.0.1", "1", "", "0", "10", "AUTH", "secret", "KEYS", "none"
        )
        assert ("syntax" in said.lower()) != known.migrate_auth


async def refusal(link: Link, *words: str) -> str:
    """What a server says of a command."""
    try:
        return str(await link.call(*words))
    except Refused as said:
        return said.reply


async def test_a_snapshot_of_every_kind_of_value_is_read_as_dump_answers(server: tuple[str, Servers]) -> None:
    _, nodes = server
    async with nodes.dial.link(nodes.address(0), exact=True) as link:
        version = server_version(parse_info(await link.call("INFO", "server")))
        number = parse_version(version)
        await link.call("EVAL", fill(number), 0)
        if await takes(link, "HSET", "expiring", "a", "1", "b", "2") and await expire(link, "expiring", "a"):
            for at in range(1000):
                await link.call("HSET", "expiring:large", f"field:{at}", f"value {at}" * 20)
            assert await expire(link, "expiring:large", "field:7")
        if number >= (7, 0, 0):
            await link.call("FUNCTION", "LOAD", LIBRARY)
        file = await snapshot(nodes, 0)
        found = entries(file, 1000)
        keys = [one for one in found if isinstance(one, Entry)]
        assert len(keys) == await link.call("DBSIZE")
        assert [one.code.decode() for one in found if isinstance(one, Function)] == (
            [LIBRARY] if number >= (7, 0, 0) else []
        )
        head = 5 if file.startswith(b"REDIS") else 6
        written = int(file[head:9])
        assert (file[:head] == b"VALKEY") == (written >= 80)
        assert written == file_format(version)
        assert reads_format(version, written)
        for one in keys:
            said = await link.call("DUMP", one.key)
            assert dumped(one.value, written) == said.encode(errors="surrogateescape"), one.key
            assert (await link.call("PTTL", one.key) > 0) == (one.expires > 0), one.key
        kinds = {one.value[0] for one in keys if one.key.startswith(b"expiring")}
        if version.startswith("Valkey") and number >= (9, 0, 0):
            assert kinds == {22}
        elif number >= (7, 4, 0) and not version.startswith("Valkey"):
            assert kinds == {24, 25}


async def expire(link: Link, key: str, field: str) -> bool:
    """Let a field of a hash end; False where hashes have no such fields."""
    return await takes(link, "HPEXPIREAT", key, "4102444800000", "FIELDS", "1", field)


def fill(number: Version) -> str:
    """The keys of `FILL` that a script of this version may write."""
    lines = FILL.splitlines()
    if number < (6, 0, 0):
        lines = [line for line in lines if "XREADGROUP" not in line and "XACK" not in line]
    if number < (5, 0, 0):
        lines = [
            line.replace("redis.call('HSET', 'hash:' .. i, 'f' .. j, j .. 'v')", "")
            for line in lines
            if "'X" not in line
        ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("reader", "writer", "can"),
    [
        ("7.0.15", "7.0.14", True),
        ("7.0.14", "7.0.15", True),
        ("7.0.15", "7.2.4", False),
        ("Valkey 8.1.1", "7.2.4", True),
        ("Valkey 8.1.1", "7.4.1", False),
        ("Valkey 9.1.2", "8.0.2", False),
        ("Valkey 9.1.2", "Valkey 8.1.1", True),
        ("Valkey 8.1.1", "Valkey 9.1.2", False),
        ("8.0.2", "Valkey 8.1.1", True),
        ("8.2.3", "Valkey 9.1.2", False),
        ("7.2.4", "Valkey 8.1.1", True),
        ("99.0.0", "98.0.0", True),
    ],
)
def test_who_reads_whose_files(reader: str, writer: str, can: bool) -> None:
    assert reads(reader, writer) == can


@pytest.mark.parametrize(
    ("image", "runs", "why"),
    [
        ("redis:7", ["7.0.15"], ""),
        ("registry:5000/redis", ["8.0.2"], ""),
        ("redis:latest", ["Valkey 9.1.2"], ""),
        ("team/own-redis:1.0", ["8.0.2"], ""),
        ("redis:7.0@sha256:0123", ["7.0.15", "7.2.4"], "7.2.4"),
        ("valkey/valkey:8.1", ["7.2.4"], ""),
        ("valkey/valkey:8.1", ["7.2.4", "8.0.2"], "8.0.2"),
        ("valkey/valkey:8.1-alpine", ["Valkey 9.1.2"], "Valkey 9.1.2"),
        ("redis:8", ["Valkey 9.1.2"], "Valkey 9.1.2"),
        ("valkey:9", ["Valkey 8.1.1", ""], ""),
    ],
)
def test_an_image_that_cannot_read_the_files_is_known_by_its_tag(
    image: str, runs: list[str], why: str
) -> None:
    assert unread(image, runs) == why


def test_what_is_said_names_the_kind_and_the_way() -> None:
    within = why_unread("redis:6.2", "7.0.15", back="restore a backup")
    assert "cannot read the files of Redis 7.0.15" in within
    assert within.endswith("to go back, restore a backup")
    across = why_unread("valkey:8.1", "8.0.2", back="restore a backup")
    assert "restore a backup" not in across
    assert "no Valkey reads files of Redis 7.4 and later" in across
