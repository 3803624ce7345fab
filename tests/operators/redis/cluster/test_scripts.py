"""The start script of a pod, run by a plain shell on real servers."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mooring.operators.redis.cluster import scripts
from mooring.operators.redis.cluster.moves import Release, Target
from mooring.operators.redis.cluster.specs import DEFAULTS
from mooring.operators.redis.cluster.steps import Steps
from mooring.operators.redis.cluster.topology import Node, read_node
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.workload.pods import Pod

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]

POD = Pod(name="demo-0", ordinal=0)


class Start:
    """One pod's volume, and starts of its container one after the other."""

    def __init__(self, home: Path) -> None:
        self.data = home / "data"
        self.address = Address(f"127.{random.randint(10, 250)}.{random.randint(0, 250)}.1", 6379)
        self._home = home
        self._dial = Dial(connect_timeout=10.0, reply_timeout=10.0)
        (home / "conf").mkdir()
        (home / "conf" / "defaults.conf").write_text(DEFAULTS)
        (home / "conf" / "forced.conf").write_text("protected-mode no\n")
        (home / "start.sh").write_text(scripts.START)
        (home / "ready.sh").write_text(scripts.READY)
        # The server itself, on an address of its own: a pod has a network of its own instead.
        (home / "bin").mkdir()
        program = home / "bin" / "redis-server"
        program.write_text(
            f'#!/bin/sh\n[ "$1" != --version ] || exec {shutil.which("redis-server")} --version\n'
            f'exec {shutil.which("redis-server")} "$@" --bind {self.address.ip}\n'
        )
        program.chmod(0o755)

    @asynccontextmanager
    async def running(self, how: str) -> AsyncIterator[None]:
        """Start it and release it, ``as is``, ``fresh`` or ``founding``; it is killed at the end."""
        process = await asyncio.create_subprocess_exec(
            *("sh", str(self._home / "start.sh")),
            env={
                "PATH": f"{self._home / 'bin'}:{os.environ['PATH']}",
                "MOORING_HOME": str(self._home),
                "DATA_DIR": str(self.data),
                "POD_NAME": POD.name,
                "POD_IP": self.address.ip,
            },
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            held = await self._until(lambda node: node.gate is not None)
            target = Target(name=POD.name, address=self.address, id=held.id)
            as_is, fresh = ((), (target,)) if how == "fresh" else ((target,), ())
            move = Release(as_is=as_is, fresh=fresh, founding=how == "founding")
            await Steps(self._dial).run(move)
            await self._until(lambda node: node.server is not None and not node.server.loading)
            yield
        finally:
            process.kill()
            await process.wait()

    async def _until(self, check: Callable[[Node], bool]) -> Node:
        async with asyncio.timeout(20):
            while True:
                try:
                    async with self._dial.link(self.address) as link:
                        if check(node := await read_node(link, POD)):
                            return node
                except DialError:
                    pass
                await asyncio.sleep(0.02)

    async def call(self, *words: str | int) -> object:
        async with self._dial.link(self.address) as link:
            return await link.call(*words)

    async def serve(self) -> None:
        """All slots are its own, and it knows that it serves them."""
        await self.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await self._until(lambda node: node.server is not None and node.server.covered)

    async def ready(self, **env: str) -> bool:
        """What the readiness probe says."""
        process = await asyncio.create_subprocess_exec(
            *("sh", str(self._home / "ready.sh")),
            env={
                "PATH": os.environ["PATH"],
                "MOORING_HOME": str(self._home),
                "REDIS_HOST": self.address.ip,
                **env,
            },
        )
        return await process.wait() == 0

    def logged(self, aside: str) -> str:
        """What the log that was set aside under this ending has."""
        return "".join(path.read_text() for path in (self.data / f"appendonlydir{aside}").glob("*.incr.aof"))


async def test_of_what_is_set_aside_the_first_two_and_the_latest_are_kept(tmp_path: Path) -> None:
    start = Start(tmp_path)
    how = "as is"
    for value in ("first", "second", "third", "fourth"):
        async with start.running(how):
            assert await start.call("DBSIZE") == 0
            await start.serve()
            await start.call("SET", "key", value)
        how = "fresh"
    async with start.running("fresh"):
        assert await start.call("DBSIZE") == 0

    for aside, value in ((".old", "first"), (".old.2", "second"), (".old.3", "fourth")):
        assert value in start.logged(aside)
        assert (start.data / f"nodes.conf{aside}").exists()
    assert "third" not in start.logged(".old.3")
    assert not (start.data / "nodes.conf.old.4").exists()


async def test_a_new_node_is_ready_once_its_cluster_serves_and_stays_so(tmp_path: Path) -> None:
    start = Start(tmp_path)
    assert not await start.ready()
    async with start.running("as is"):
        assert not await start.ready(), "it is new, and no slot is served"
        await start.serve()
        assert await start.ready()
        await start.call("CLUSTER", "FLUSHSLOTS")
        assert await start.ready(), "it served once"
    async with start.running("as is"):
        assert await start.ready(), "a node of before may be the first of a cluster that is down"
    async with start.running("fresh"):
        assert not await start.ready(), "it is new again"


async def test_a_node_of_a_cluster_that_is_being_founded_is_ready_as_soon_as_it_answers(
    tmp_path: Path,
) -> None:
    start = Start(tmp_path)
    async with start.running("founding"):
        assert await start.ready()


@pytest.mark.parametrize(("seconds", "ready"), [(29, False), (30, True)])
async def test_a_cluster_without_slots_becomes_ready_within_half_a_minute(
    tmp_path: Path, seconds: int, ready: bool
) -> None:
    start = Start(tmp_path)
    (tmp_path / "run").mkdir()
    client = tmp_path / "bin" / "redis-cli"
    client.write_text(
        "#!/bin/sh\nwhile read -r line; do case $line in\n"
        f"  PING) echo PONG ;; *server*) echo uptime_in_seconds:{seconds} ;; *CLUSTER*) echo cluster_state:fail ;;\n"
        "  *replication*) echo role:master ;;\nesac; done\n"
    )
    client.chmod(0o755)
    assert await start.ready(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}") is ready
