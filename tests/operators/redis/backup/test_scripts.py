"""What fills the volume of a new cluster with sentinels, run by a plain shell; the file is read by a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.crc import key_slot
from tests.operators.redis.backup.test_load import LIBRARY, cluster, snapshot
from tests.operators.redis.cluster.servers import Servers

from mooring.operators.redis.address import Address
from mooring.operators.redis.backup import scripts
from mooring.operators.redis.backup.rdb import head_of
from mooring.operators.redis.dial import DialError

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(90)]

#: What `shell.PRELUDE` gives, as far as the script uses it.
GIVEN = """
was() { sed -n -e "s/^$1=//p" "$run/manifest.facts" | tail -n 1; }
fact() { :; }
fail() { echo "$*" >&2; exit 1; }
refuse() { echo "$*" >&2; exit 3; }
whole() { :; }
"""


async def fill(home: Path, parts: dict[str, bytes], facts: dict[str, str]) -> tuple[int, str]:
    """Run the script on plain files in place of FIFOs; its status, and what it said."""
    run, data = home / "run", home / "data"
    for one in (run, data):
        await asyncio.to_thread(one.mkdir, parents=True)
    for name, content in parts.items():
        (run / name).write_bytes(content)
    (run / "manifest.facts").write_text("".join(f"{name}={value}\n" for name, value in facts.items()))
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", GIVEN + scripts.RESTORE),
        env={
            "PATH": "/usr/bin:/bin",
            "run": str(run),
            "DATA_DIR": str(data),
            "DBFILENAME": "dump.rdb",
            "CLUSTER_UID": "uid",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def shards(nodes: Servers, keys: list[str]) -> dict[str, bytes]:
    for at, slots in (await nodes.owned()).items():
        mine = [key for key in keys if slots >> key_slot(key.encode()) & 1]
        async with nodes.dial.link(nodes.address(at)) as link:
            await link.pipeline([("SET", key, key) for key in mine])
    return {f"shard-{at}": await snapshot(nodes, at) for at in range(nodes.pods)}


def facts_of(parts: dict[str, bytes]) -> dict[str, str]:
    found = {"flavor": "cluster", "id": "i", "position": "p:1"}
    for name in parts:
        found |= {f"slots.{name}": "0-1", f"rdb.{name}": "10"}
    return found


async def test_the_shards_of_a_backup_become_one_file(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        keys = [f"key:{at}" for at in range(3000)]
        parts = await shards(nodes, keys)
        assert await fill(tmp_path, parts, facts_of(parts)) == (0, "")
        ip = nodes.address(5).ip  # no node is there
        process = await asyncio.create_subprocess_exec(
            *("redis-server", "--bind", ip, "--dir", str(tmp_path / "data"), "--save", ""),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(20):
                while True:
                    try:
                        async with nodes.dial.link(Address(ip, 6379)) as link:
                            found = await link.pipeline([("GET", key) for key in keys])
                            size = await link.call("DBSIZE")
                        break
                    except DialError:
                        await asyncio.sleep(0.05)
        finally:
            process.kill()
            await process.wait()
        assert found == keys
        assert size == len(keys)


async def test_shards_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        parts = await shards(nodes, ["a", "b", "c"])
        facts = facts_of(parts)
        status, said = await fill(tmp_path / "mixed", parts, {**facts, "rdb.shard-1": "9"})
        assert (status, "of several versions" in said) == (3, True)
        await nodes.call(0, "FUNCTION", "LOAD", LIBRARY)
        head = head_of(await snapshot(nodes, 0))
        assert head is not None
        assert head.functions
        status, said = await fill(tmp_path / "functions", parts, {**facts, "functions.shard-0": "yes"})
        assert (status, "has functions" in said) == (3, True)
        for home in ("mixed", "functions"):
            assert not list((tmp_path / home / "data").iterdir())
