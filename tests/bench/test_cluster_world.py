"""The model of Redis Cluster answers as redis-server 7.0 does: orders are taken or refused alike, and end alike.

Three nodes run beside three of the model, at the same addresses. What a real one does in its own time, gossip and
fail-overs, is waited for.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from bench.cluster_world import ClusterWorld, Volume
from bench.redis_model import Connection
from bench.redis_world import Server

from mooring.operators.redis.cluster.slots import show
from mooring.operators.redis.cluster.topology import parse_nodes
from mooring.operators.redis.dial import Address, Dial, DialError, Refused

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server here"),
]

NODES = ("a", "b", "c")
NOBODY = "f" * 40
#: Seconds that real nodes may take to come to what the model is at once.
DEADLINE = 20.0
#: {a} is a node's id, {a.ip} its address.
SCRIPT = """
a CLUSTER SET-CONFIG-EPOCH 1
b CLUSTER SET-CONFIG-EPOCH 2
c CLUSTER SET-CONFIG-EPOCH 3
a CLUSTER MEET {b.ip} 6379
a CLUSTER MEET {c.ip} 6379
look
a CLUSTER BUMPEPOCH
a CLUSTER BUMPEPOCH
look
a CLUSTER SET-CONFIG-EPOCH 9
a CLUSTER ADDSLOTS 1 2 3 4 5
b CLUSTER ADDSLOTS 101 102 103
look
a CLUSTER ADDSLOTS 3
b CLUSTER ADDSLOTS 3
c CLUSTER REPLICATE {nobody}
c CLUSTER REPLICATE {a}
look
a CLUSTER REPLICATE {b}
b CLUSTER REPLICATE {c}
a CLUSTER SETSLOT 101 MIGRATING {b}
b CLUSTER SETSLOT 101 IMPORTING {a}
a CLUSTER SETSLOT 5 MIGRATING {nobody}
b CLUSTER SETSLOT 4 IMPORTING {a}
a CLUSTER SETSLOT 4 MIGRATING {b}
b CLUSTER SETSLOT 5 IMPORTING {a}
a CLUSTER SETSLOT 5 MIGRATING {b}
look
b CLUSTER SETSLOT 4 STABLE
a CLUSTER SETSLOT 4 STABLE
b CLUSTER SETSLOT 5 NODE {b}
a CLUSTER SETSLOT 5 NODE {b}
look
c CLUSTER SETSLOT 3 STABLE
a CLUSTER COUNTKEYSINSLOT 3
a CLUSTER GETKEYSINSLOT 3 10
a CLUSTER FAILOVER
c CLUSTER FAILOVER
look
a CLUSTER FORGET {a}
a CLUSTER FORGET {c}
a CLUSTER FORGET {nobody}
b CLUSTER RESET SOFT
"""


class Trio:
    """Three nodes, real or not, by name."""

    def __init__(self, dial: Dial, ips: dict[str, str]) -> None:
        self._dial, self.ips = dial, ips
        self.ids: dict[str, str] = {}

    async def call(self, who: str, *words: str) -> Any:
        try:
            async with self._dial.link(Address(self.ips[who], 6379)) as link:
                return await link.call(*words)
        except Refused as error:
            return error.reply

    async def meet(self) -> None:
        """Learn their ids."""
        self.ids = {who: str(await self.call(who, "CLUSTER", "MYID")) for who in NODES}

    async def say(self, line: str) -> Any:
        """The answer to one line of the script, with names for ids."""
        who, *words = line.split()
        known = {**self.ids, **{f"{name}.ip": ip for name, ip in self.ips.items()}, "nobody": NOBODY}
        for name, text in known.items():
            words = [word.replace(f"{{{name}}}", text) for word in words]
        return self._named(await self.call(who, *words))

    async def look(self) -> dict[str, list[tuple[Any, ...]]]:
        """What every node says of every one it knows."""
        found = {}
        for who in NODES:
            peers = parse_nodes(str(await self.call(who, "CLUSTER", "NODES")))
            found[who] = sorted(
                (
                    self._named(one.id),
                    sorted(one.flags - {"nofailover", "noflags"}),
                    self._named(one.master),
                    show(one.slots),
                    [(mark.slot, self._named(mark.peer), mark.outgoing) for mark in one.marks],
                )
                for one in peers
            )
        return found

    def _named(self, answer: Any) -> Any:
        if isinstance(answer, str):
            for name, id in self.ids.items():
                answer = answer.replace(id, name)
        return answer


class _ModelDial(Dial):
    def __init__(self, world: ClusterWorld) -> None:
        super().__init__()
        self._world = world

    def _connection(self, address: Address, reply_timeout: float, **_: Any) -> Any:
        return Connection(self._world, address)


def modelled(ips: dict[str, str]) -> Trio:
    world = ClusterWorld()
    for who, ip in ips.items():
        world.begin(Server(who, ip, {"replica-priority": "1"}), pod=who, volume=Volume())
        with pytest.raises(KeyError):  # let in: the stand-in ends
            world.session(ip, 6379).answer(["SHUTDOWN", "NOSAVE"])
    return Trio(_ModelDial(world), ips)


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Trio]:
    net = f"127.{random.randint(10, 250)}.{random.randint(0, 250)}"
    ips = {who: f"{net}.{at}" for at, who in enumerate(NODES, 1)}
    async with AsyncExitStack() as stack:
        for who, ip in ips.items():
            (home := tmp_path / who).mkdir()
            process = await asyncio.create_subprocess_exec(
                *("redis-server", "--bind", ip, "--port", "6379", "--dir", str(home), "--save", ""),
                *(
                    "--cluster-enabled",
                    "yes",
                    "--cluster-announce-ip",
                    ip,
                    "--cluster-require-full-coverage",
                    "no",
                ),
                *("--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0"),
                stdout=asyncio.subprocess.DEVNULL,
            )
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
        trio = Trio(Dial(connect_timeout=10.0, reply_timeout=10.0), ips)
        end = monotonic() + DEADLINE
        while not trio.ids:
            try:
                await trio.meet()
            except DialError:
                assert monotonic() < end
                await asyncio.sleep(0.05)
        yield trio


async def test_every_order_is_taken_or_refused_as_by_a_real_server(real: Trio) -> None:
    model = modelled(real.ips)
    await model.meet()

    for number, line in enumerate(SCRIPT.strip().splitlines()):
        where = f"line {number}: {line}"
        if line != "look":
            assert await real.say(line) == await model.say(line), where
            continue
        wanted, end = await model.look(), monotonic() + DEADLINE
        while (found := await real.look()) != wanted:
            assert monotonic() < end, f"{where}: {found} != {wanted}"
            await asyncio.sleep(0.1)
