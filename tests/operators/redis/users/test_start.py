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

    def __init__(self, home: Path, start: str, *, users: bool = True) -> None:
        self.home = home
        self.address = Address(f"127.{random.randint(10, 250)}.{random.randint(1, 250)}.1", 6379)
        scene = Scene(users=[declared("app", "~*", "+@all")], default=OFF)
        scene.settle()
        lines = start_lines(scene.access, Kept(password="of-all", accounts=ACCOUNTS))
        plain = 'port 6379\nprotected-mode no\nsave ""\n'
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
