"""The start of a pod's server and its probes, by a plain shell: never open where the default user is off."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.operators.redis.users.scene import ACCOUNTS, OFF, Scene, declared

from mooring.operators.redis.cluster import scripts as cluster
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.redis.sentinel import scripts as sentinel
from mooring.operators.redis.users.accounts import OPERATOR
from mooring.operators.redis.users.held import start_lines
from mooring.operators.redis.users.template import FILE
from mooring.operators.workload.credentials import Kept

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]

PATIENT = Dial(connect_timeout=10.0, reply_timeout=10.0)
STARTS = {"sentinel": sentinel.REDIS_START, "cluster": cluster.START}


class Pod:
    """What a pod mounts, and an address of its own in place of its network."""

    def __init__(self, home: Path, start: str, *, users: bool = True, also: str = "") -> None:
        self.home = home
        self.address = Address(f"127.{random.randint(10, 250)}.{random.randint(1, 250)}.1", 6379)
        scene = Scene(users=[declared("app", "~*", "+@all")], default=OFF)
        scene.settle()
        lines = start_lines(scene.access, Kept(password="of-all", accounts=ACCOUNTS))
        plain = f'port 6379\nprotected-mode no\nsave ""\n{also}'
        files = {
            **{f"conf/{name}": plain for name in ("redis.conf", "defaults.conf", "forced.conf")},
            "auth/password": "of-all",
            f"auth/{OPERATOR}": ACCOUNTS[OPERATOR],
            **({f"auth/{FILE}": lines} if users else {}),
            "start.sh": start,
            "live.sh": sentinel.REDIS_LIVE,
            "ready.sh": sentinel.REDIS_READY,
            "bin/redis-server": f'#!/bin/sh\n[ "$1" != --version ] || exec {shutil.which("redis-server")} --version\n'
            f'exec {shutil.which("redis-server")} "$@" --bind {self.address.ip}\n',
        }
        for name, text in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        for one in ("run", "data"):
            (home / one).mkdir()
        (home / "bin" / "redis-server").chmod(0o755)

    async def run(self, script: str, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("sh", str(self.home / script), *arguments),
            env={
                "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
                "MOORING_HOME": str(self.home),
                "DATA_DIR": str(self.home / "data"),
                "REDIS_HOST": self.address.ip,
                "POD_IP": self.address.ip,
                "POD_NAME": "demo-0",
            },
            stdout=asyncio.subprocess.DEVNULL,
        )

    async def code(self, script: str) -> int:
        return await (await self.run(script)).wait()

    async def says(self, *words: str) -> str:
        """What a new connection with these words of AUTH is answered; "" while nobody answers."""
        try:
            async with PATIENT.link(self.address) as link:
                asked = [*([("AUTH", *words)] if words else []), ("PING",)]
                return str((await link.pipeline(asked))[-1])
        except DialError:
            return ""

    @asynccontextmanager
    async def started(self, *arguments: str) -> AsyncIterator[None]:
        process = await self.run("start.sh", *arguments)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()


@pytest.mark.parametrize("kind", STARTS)
async def test_a_server_is_closed_from_its_first_answer_on(tmp_path: Path, kind: str) -> None:
    pod = Pod(tmp_path, STARTS[kind])
    gate = ("--slaveof", "192.0.2.1", "6379") if kind == "sentinel" else ()
    async with pod.started(*gate):
        answers: list[str] = []
        while len(answers) < 5:
            answers += [said for said in (await pod.says(), await pod.says("of-all")) if said]
        assert all("NOAUTH" in said for said in answers), answers
        assert "NOAUTH" not in await pod.says("app", "first")
        assert "NOAUTH" not in await pod.says(OPERATOR, ACCOUNTS[OPERATOR])
        # The probes come by the operator's account: alive, and not ready, since it is held back.
        assert (await pod.code("live.sh"), await pod.code("ready.sh")) == (0, 1)


async def test_probes_of_a_server_that_does_not_know_the_account_yet_use_the_password(tmp_path: Path) -> None:
    pod = Pod(tmp_path, STARTS["sentinel"], users=False)
    async with pod.started():
        while not await pod.says("of-all"):
            await asyncio.sleep(0.02)
        assert await pod.says("of-all") == "PONG"
        assert (await pod.code("live.sh"), await pod.code("ready.sh")) == (0, 0)


@pytest.mark.parametrize("mounted", ["another", None])
async def test_a_server_that_takes_another_password_than_its_pod_mounts_is_not_killed(
    tmp_path: Path, mounted: str | None
) -> None:
    pod = Pod(tmp_path, STARTS["sentinel"], users=False)
    async with pod.started():
        while await pod.says("of-all") != "PONG":
            await asyncio.sleep(0.02)
        # The Secret is emptied, or the servers are ahead of it.
        (pod.home / f"auth/{OPERATOR}").unlink()
        (pod.home / "auth/password").unlink()
        if mounted:
            (pod.home / "auth/password").write_text(mounted)
        assert (await pod.code("live.sh"), await pod.code("ready.sh")) == (0, 0)
    assert await pod.code("live.sh") == 1


async def test_a_server_that_loads_its_data_is_alive_and_not_ready(tmp_path: Path) -> None:
    # A millisecond for each key.
    slow = "key-load-delay 1000\nloading-process-events-interval-bytes 1024\n"
    pod = Pod(tmp_path, STARTS["sentinel"], users=False, also=slow)
    async with pod.started():
        while await pod.says("of-all") != "PONG":
            await asyncio.sleep(0.02)
        async with PATIENT.link(pod.address, password="of-all") as link:
            await link.call("EVAL", "for i = 1, 50000 do redis.call('SET', i, i) end", 0)
            await link.call("SAVE")
    async with pod.started():
        while "LOADING" not in await pod.says("of-all"):
            await asyncio.sleep(0.02)
        assert (await pod.code("live.sh"), await pod.code("ready.sh")) == (0, 1)
        assert "LOADING" in await pod.says("of-all")


async def test_a_server_that_runs_a_script_is_alive_and_not_ready(tmp_path: Path) -> None:
    pod = Pod(tmp_path, STARTS["sentinel"], users=False, also="lua-time-limit 50\n")
    async with pod.started():
        while await pod.says("of-all") != "PONG":
            await asyncio.sleep(0.02)
        async with PATIENT.link(pod.address, password="of-all", reply_timeout=60) as link:
            script = asyncio.create_task(link.call("EVAL", "while true do end", 0))
            while "BUSY" not in await pod.says("of-all"):
                await asyncio.sleep(0.02)
            codes = await pod.code("live.sh"), await pod.code("ready.sh")
            async with PATIENT.link(pod.address, password="of-all") as other:
                await other.call("SCRIPT", "KILL")
            with pytest.raises(DialError, match="killed"):
                await script
        assert codes == (0, 1)
