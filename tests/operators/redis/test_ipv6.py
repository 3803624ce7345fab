"""Pods whose address is IPv6: start scripts and readers on real servers at ``::1``."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from mooring.operators.redis.address import Address
from mooring.operators.redis.cluster import scripts as cluster_scripts
from mooring.operators.redis.cluster.topology import parse_nodes
from mooring.operators.redis.dial import Dial, DialError, Link
from mooring.operators.redis.sentinel import scripts
from mooring.operators.redis.sentinel.topology import read_sentinel

HERE = "::1"


def has_ipv6() -> bool:
    """Whether this machine has that address."""
    with socket.socket(socket.AF_INET6) as one:
        try:
            one.bind((HERE, 0))
        except OSError:
            return False
    return True


pytestmark = [
    pytest.mark.embedded,
    pytest.mark.timeout(60),
    pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6"),
]
DIAL = Dial(connect_timeout=10.0, reply_timeout=10.0)


def free_ports(number: int) -> list[int]:
    """Ports of ``::1`` below those that clients get, each with a free one 10,000 above for the bus."""
    found: list[int] = []
    for port in range(12000 + os.getpid() % 7000, 22000):
        with socket.socket(socket.AF_INET6) as one, socket.socket(socket.AF_INET6) as bus:
            try:
                one.bind((HERE, port))
                bus.bind((HERE, port + 10000))
            except OSError:
                continue
        found.append(port)
        if len(found) == number:
            return found
    raise AssertionError("no ports are free")


class Pod:
    """One container: its files, and its server on a port of ``::1``."""

    def __init__(self, home: Path, name: str, port: int, script: str, **files: str) -> None:
        self.address = Address(HERE, port)
        self._home = home / name
        self._script = script
        (self._home / "conf").mkdir(parents=True)
        (self._home / "run").mkdir()
        (self._home / "data").mkdir()
        for file, text in files.items():
            (self._home / "conf" / f"{file}.conf").write_text(f"{text}\nport {port}\nprotected-mode no\n")
        (self._home / "start.sh").write_text(script)
        # A pod has a network of its own; here the server is bound to one address and one port instead.
        program = shutil.which("redis-server")
        (self._home / "bin").mkdir()
        stub = self._home / "bin" / "redis-server"
        stub.write_text(
            f'#!/bin/sh\n[ "$1" != --version ] || exec {program} --version\n'
            f'exec {program} "$@" --bind {HERE} --port {port}\n'
        )
        stub.chmod(0o755)

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[None]:
        """Start it; it is killed at the end, with what it started."""
        process = await asyncio.create_subprocess_exec(
            *("sh", str(self._home / "start.sh"), *arguments),
            env={
                "PATH": f"{self._home / 'bin'}:{os.environ['PATH']}",
                "MOORING_HOME": str(self._home),
                "DATA_DIR": str(self._home / "data"),
                "POD_NAME": self._home.name,
                "POD_IP": HERE,
            },
            stdout=asyncio.subprocess.DEVNULL,
            cwd=self._home / "run",
        )
        try:
            yield
        finally:
            process.terminate()
            await process.wait()

    async def call(self, *words: str | int) -> object:
        """One command, once the server answers."""
        return await self.until(lambda link: link.call(*words), lambda _: True)

    async def until(
        self, ask: Callable[[Link], Awaitable[object]], enough: Callable[[object], bool]
    ) -> object:
        """Ask until the answer is enough."""
        async with asyncio.timeout(30):
            while True:
                try:
                    async with DIAL.link(self.address) as link:
                        if enough(answer := await ask(link)):
                            return answer
                except DialError:
                    pass
                await asyncio.sleep(0.05)


def pairs(answer: object) -> list[str]:
    assert isinstance(answer, Sequence)
    return [str(one) for one in answer]


async def test_servers_and_sentinels_announce_it_and_find_one_another_by_it(tmp_path: Path) -> None:
    first, second, third = free_ports(3)
    master = Pod(tmp_path, "master", first, scripts.REDIS_START, redis='save ""')
    replica = Pod(tmp_path, "replica", second, scripts.REDIS_START, redis='save ""')
    sentinel = Pod(tmp_path, "sentinel", third, scripts.SENTINEL_START, sentinel="")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(master.running())
        await stack.enter_async_context(replica.running("--replicaof", HERE, str(first)))
        for one in (master, replica):
            assert pairs(await one.call("CONFIG", "GET", "slave-announce-ip"))[1] == HERE
        linked = f"ip={HERE},port={second},state=online"
        await master.until(lambda link: link.call("INFO", "replication"), lambda text: linked in str(text))

        async def knows(link: Link) -> object:
            seen = await read_sentinel(link)
            return seen.master, [Address(one.ip, one.port) for one in seen.replicas]

        wanted = (master.address, [replica.address])
        async with sentinel.running():
            await sentinel.call("SENTINEL", "MONITOR", "mymaster", HERE, first, 1)
            await sentinel.until(knows, lambda answer: answer == wanted)
        async with sentinel.running():  # it reads again what it wrote down
            await sentinel.until(knows, lambda answer: answer == wanted)


async def test_a_node_of_a_redis_cluster_announces_it(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node = Pod(tmp_path, "demo-0", port, cluster_scripts.START, defaults="", forced="")
    async with node.running():
        gate = await node.call("CONFIG", "GET", "slave-priority")
        assert pairs(gate)[1] == "0"
        for words in (("CONFIG", "SET", "slave-priority", "1"), ("CONFIG", "REWRITE")):
            await node.call(*words)
        async with DIAL.link(node.address) as link:
            with suppress(DialError):  # it ends without an answer
                await link.call("SHUTDOWN", "NOSAVE")

        def announced(answer: object) -> bool:
            (own,) = parse_nodes(str(answer))
            return own.address == node.address

        await node.until(lambda link: link.call("CLUSTER", "NODES"), announced)
        assert str(node.address) == f"[{HERE}]:{port}"
