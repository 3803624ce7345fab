"""Pieces of shell on a real server."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mooring.operators.redis.cluster import scripts as cluster
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.redis.info import parse_info, rewriting
from mooring.operators.redis.sentinel import scripts as sentinel
from mooring.operators.redis.shell import PROGRAMS

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]


class Alone:
    """One server on an address of its own."""

    def __init__(self, address: Address, process: asyncio.subprocess.Process) -> None:
        self.address, self.process = address, process
        self._dial = Dial(connect_timeout=10.0, reply_timeout=10.0)

    async def call(self, *words: str | int) -> object:
        async with self._dial.link(self.address) as link:
            return await link.call(*words)

    async def rewriting(self) -> bool:
        return rewriting(parse_info(str(await self.call("INFO", "persistence"))))


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Alone]:
    address = Address(f"127.{random.randint(10, 250)}.{random.randint(0, 250)}.1", 6379)
    process = await asyncio.create_subprocess_exec(
        *(shutil.which("redis-server") or "redis-server", "--bind", address.ip, "--dir", str(tmp_path)),
        *("--save", "", "--rdb-key-save-delay", "1000000"),
        stdout=asyncio.subprocess.DEVNULL,
    )
    alone = Alone(address, process)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    await alone.call("PING")
                    break
                except DialError:
                    await asyncio.sleep(0.05)
        yield alone
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("script", [cluster.STOP, sentinel.PRE_STOP], ids=["cluster", "sentinel"])
async def test_a_server_that_writes_its_first_log_is_waited_for_and_then_ends(
    server: Alone, tmp_path: Path, script: str
) -> None:
    for key in ("a", "b", "c"):
        await server.call("SET", key, "1")
    await server.call("CONFIG", "SET", "appendonly", "yes")
    assert await server.rewriting(), "three keys take three seconds"
    (tmp_path / "stop.sh").write_text(script)
    stop = await asyncio.create_subprocess_exec(
        *("sh", str(tmp_path / "stop.sh")),
        env={"PATH": os.environ["PATH"], "MOORING_HOME": str(tmp_path), "REDIS_HOST": server.address.ip},
    )
    assert await stop.wait() == 0
    assert not await server.rewriting()
    server.process.send_signal(signal.SIGTERM)
    assert await server.process.wait() == 0


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("valkey-server",), "valkey"),
        (("redis-server",), "redis"),
        (("redis-server", "valkey-server"), "redis"),
    ],
)
def test_the_programs_are_called_as_the_image_names_them(
    tmp_path: Path, names: tuple[str, ...], kind: str
) -> None:
    for name in names:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-euc", PROGRAMS + 'echo "$kind"'],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{kind}\n"
