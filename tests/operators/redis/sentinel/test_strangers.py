"""Who has no key asks a sentinel and changes nothing of it, in every version whose rules can say so."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.operators.redis.programs import programs

from mooring.operators.redis.dial import Address, Dial, DialError, Refused
from mooring.operators.redis.sentinel import scripts

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]

KEY = "key-of-the-sentinels"
PATIENT = Dial(connect_timeout=10.0, reply_timeout=10.0)
VERSIONS = [
    "redis:7.0",
    pytest.param("redis:6.2", marks=pytest.mark.full),
]
FORBIDDEN = (
    ("PUBLISH", "__sentinel__:hello", f"127.0.0.1,26379,{'f' * 40},99,mymaster,127.0.0.1,6379,99"),
    ("SENTINEL", "MONITOR", "another", "127.0.0.1", 6379, 2),
    ("SENTINEL", "SET", "mymaster", "quorum", 1),
    ("SENTINEL", "REMOVE", "mymaster"),
    ("SENTINEL", "RESET", "*"),
    ("SENTINEL", "CONFIG", "GET", "*"),
    ("SENTINEL", "FLUSHCONFIG"),
    ("SENTINEL", "SIMULATE-FAILURE", "help"),
    ("SENTINEL", "PENDING-SCRIPTS"),
    ("SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", 6379, 99, "f" * 40),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "default", "+@all"),
    ("CLIENT", "KILL", "ID", 1),
    ("CLIENT", "PAUSE", 1),
    ("SHUTDOWN", "NOSAVE"),
)
ALLOWED = (
    ("PING",),
    ("INFO",),
    ("ROLE",),
    ("CLIENT", "SETNAME", "app"),
    ("CLIENT", "LIST"),
    ("CLIENT", "ID"),
    ("SENTINEL", "MASTERS"),
    ("SENTINEL", "MASTER", "mymaster"),
    ("SENTINEL", "REPLICAS", "mymaster"),
    ("SENTINEL", "SLAVES", "mymaster"),
    ("SENTINEL", "SENTINELS", "mymaster"),
    ("SENTINEL", "MYID"),
    ("SENTINEL", "INFO-CACHE", "mymaster"),
)


@asynccontextmanager
async def sentinel(home: Path, version: str) -> AsyncIterator[Address]:
    """A sentinel that the script of its pods starts; again from the same home, it keeps its configuration."""
    for part in ("conf", "run", "auth"):
        (home / part).mkdir(exist_ok=True)
    address = Address(f"127.{random.randint(10, 250)}.{random.randint(1, 250)}.1", 26379)
    (home / "conf" / "sentinel.conf").write_text(f"bind {address.ip}\nport {address.port}\ndir {home}/run\n")
    (home / "auth" / "sentinel").write_text(KEY)
    path = os.environ["PATH"] if version == "redis:7.0" else f"{programs(version)}:{os.environ['PATH']}"
    environment = {"PATH": path, "MOORING_HOME": str(home), "POD_NAME": "s-0"}
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", scripts.SENTINEL_START, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        while not await answers(address):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        yield address
    finally:
        process.terminate()
        await process.wait()


async def answers(address: Address) -> bool:
    try:
        async with PATIENT.link(address) as link:
            return str(await link.call("PING")) == "PONG"
    except DialError:
        return False


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_stranger_asks_a_sentinel_and_changes_nothing(tmp_path: Path, version: str) -> None:
    async with (
        sentinel(tmp_path, version) as address,
        PATIENT.link(address, password=[("mooring", KEY)]) as own,
    ):
        await own.call("SENTINEL", "MONITOR", "mymaster", "127.77.62.2", 6379, 2)
        await own.call("SENTINEL", "FLUSHCONFIG")
        await own.call("SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.77.62.2", 6379, 1, "*")
        await refuses(address)
        assert await own.call("SENTINEL", "get-master-addr-by-name", "mymaster") == ["127.77.62.2", "6379"]
    async with sentinel(tmp_path, version) as address:  # from the configuration that it has written by itself
        await refuses(address)


async def refuses(address: Address) -> None:
    async with PATIENT.link(address) as link:
        for words in FORBIDDEN:
            with pytest.raises(Refused, match="NOPERM"):
                await link.call(*words)
        for words in ALLOWED:
            await link.call(*words)
        assert await link.call("SENTINEL", "get-master-addr-by-name", "mymaster") == ["127.77.62.2", "6379"]
        await link.subscribe(("+switch-master",))
