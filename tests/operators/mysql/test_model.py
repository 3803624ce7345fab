"""The servers in memory of the campaign (bench/mysql_model.py) say what MariaDB 10.11 says after the same steps.

Three real servers and three of the model bear the same server_ids, so that even their positions are the same. What a real one
does in its own time (a receiver connects, an applier applies) is waited for.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from bench.mysql_model import InMemory, Process, Volume, World

from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import (
    Amend,
    DatabaseMove,
    Demote,
    Fence,
    Follow,
    Promote,
    SetDurability,
    Switch,
    Target,
)
from mooring.operators.mysql.topology import Server
from mooring.testing.mysql import Servers, TestServer

from .test_steps import Bench

pytestmark = [pytest.mark.embedded, pytest.mark.nightly]

WITHIN: Final = 15.0
"""Seconds that real servers may take to come to what the model is at once."""
LINK: Final = ("io_running", "connecting", "sql_running", "by_gtid", "deadlocked")
SEMI: Final = ("source", "replica", "acks", "after_sync", "clients", "waiting")
LATE: Final = {"innodb_flush_log_at_timeout": "2700"}
"""Nothing but the next transaction brings a commit to the disk: by default that happens within a second, at any time."""
Told = dict[str, Any]


def told(server: Server, hosts: dict[str, str]) -> Told:
    """What rules read of a server; ``hosts``: the name of each."""
    link, semi = server.replication, server.semi_sync
    return {
        "server_id": server.server_id,
        "read_only": server.read_only,
        "executed": server.executed.text(),
        "received": server.received.text(),
        "follows": hosts[link.host] if link is not None else None,
        **{one: getattr(link, one) for one in LINK if link is not None},
        **{one: getattr(semi, one) for one in SEMI},
        "timeout": semi.timeout if semi.source else None,
    }


class Both:
    """The real servers and those of the model, by name."""

    def __init__(self, bench: Bench, servers: Sequence[TestServer]) -> None:
        self.bench = bench
        self.real = {one.name: one for one in servers}
        store = SimpleNamespace(collection=lambda resource: {})
        self.world = World(
            cast(Any, SimpleNamespace(server=SimpleNamespace(cluster=SimpleNamespace(store=store))))
        )
        self.world.writing = False
        self.volumes = {one.name: Volume() for one in servers}
        self.writes: list[asyncio.Task[Any]] = []
        self.rows = 0
        for one in servers:
            self.world.pods[one.name] = (one.name, f"{one.name}.pod")
            self._begin(one)

    def _begin(self, one: TestServer, *, replica: bool = False) -> None:
        process = self.world.start(one.name, one.server_id, self.volumes[one.name], replica=replica)
        self.world.processes[one.name] = process

    def process(self, name: str) -> Process:
        return self.world.processes[name]

    # --- what is done to both

    async def run(self, kind: type[DatabaseMove], **move: Any) -> None:
        """One step on both: servers are given by their names."""
        await InMemory().carry_out(
            cast(Any, None), kind(**self._named(move, self._modelled, "{}.svc"), why="a test")
        )
        await self.bench.run(kind(**self._named(move, lambda name: self.real[name].target, ""), why="a test"))
        await self.compare(kind.__name__)

    def _modelled(self, name: str) -> Target:
        return Target(name=name, host=f"{name}.pod", server_id=self.process(name).server_id)

    def _named(self, move: dict[str, Any], target: Any, host: str) -> dict[str, Any]:
        given = dict(move)
        for key in ("target", "primary", "candidate", "source"):
            if key in given:
                given[key] = target(given[key])
        for key in ("targets", "others", "acking", "silent"):
            if key in given and not isinstance(given[key], frozenset):
                given[key] = tuple(map(target, given[key]))
        if "source_host" in given:
            name = given["source_host"]
            given["source_host"] = host.format(name) if host else self.real[name].address
        return given

    async def write(self, name: str, *, waits: bool = False) -> None:
        """One transaction of a client's."""
        self.rows += 1
        statement = f"INSERT INTO shop.t VALUES ({self.rows}, 1)"
        self.world.write(self.process(name))
        writing = asyncio.create_task(self.bench.sql(self.real[name], statement, timeout=60.0))
        self.writes.append(writing)
        if not waits:
            await writing
        await self.compare("a write")

    async def kill(self, name: str) -> None:
        """As by the kernel."""
        self.world.processes.pop(name)
        self.real[name].kill(signal.SIGKILL)
        await self.compare(f"the end of {name}")

    async def start(self, name: str) -> None:
        """As a replica."""
        await self.real[name].boot("--init-rpl-role=SLAVE")
        self._begin(self.real[name], replica=True)
        await self.compare(f"the start of {name}")

    # --- what they say

    async def compare(self, after: str) -> None:
        for _ in range(4):
            self.world.live()
        model = {
            name: told(self.world.server(one), {f"{other}.svc": other for other in self.real})
            for name, one in self.world.processes.items()
        }
        real: dict[str, Told] = {}
        try:
            async with asyncio.timeout(WITHIN):
                while real != model:
                    real = {name: await self._really(name) for name in model}
        except TimeoutError:
            pass
        differ = [
            f"{name}.{key}: real {real.get(name, {}).get(key)}, model {one.get(key)}"
            for name, one in model.items()
            for key in {**one, **real.get(name, {})}
            if real.get(name, {}).get(key) != one.get(key)
        ]
        assert not differ, f"after {after}: " + "; ".join(differ)

    async def _really(self, name: str) -> Told:
        hosts = {one.address: one.name for one in self.real.values()}
        return told(await self.bench.see(self.real[name]), hosts)


@pytest.fixture
async def both() -> Any:
    async with Servers("mariadb:10.11") as servers:
        bench = Bench(servers)
        made = Both(bench, await servers.start(3, **LATE))
        yield made
        for one in made.writes:
            one.cancel()
        await asyncio.gather(*made.writes, return_exceptions=True)
        bench.holds.close()
        bench.dial.close()


async def founded(both: Both) -> None:
    """s-1 leads, the others follow and acknowledge."""
    await both.compare("the start")
    await both.run(Promote, target="s-1", expected=Position(), acks=1, semi_sync=False, source_host="s-1")
    await both.bench.run(
        Amend(
            primary=both.real["s-1"].target,
            statements=(
                "CREATE USER 'app'@'%' IDENTIFIED BY %(monitor-password)s",
                "GRANT ALL ON shop.* TO 'app'@'%'",
                "CREATE DATABASE shop",
                "CREATE TABLE shop.t (id BIGINT PRIMARY KEY, v INT) ENGINE=InnoDB",
            ),
            why="a test",
        )
    )
    for _ in range(4):
        both.world.write(both.process("s-1"))
        both.world.live()
    await both.compare("what is in it first")
    acking = frozenset({"s-2", "s-3"})
    await both.run(Follow, targets=["s-2", "s-3"], source="s-1", source_host="s-1", acking=acking)
    await both.run(SetDurability, primary="s-1", semi_sync=True, acks=1)


async def test_the_model_says_what_mariadb_says_of_a_failover_and_a_switch_back(both: Both) -> None:
    await founded(both)
    await both.write("s-1")

    await both.run(Fence, targets=["s-2"])
    await both.write("s-1")
    await both.run(Fence, targets=["s-3"])
    await both.write("s-1", waits=True)
    await both.run(
        Follow, targets=["s-2", "s-3"], source="s-1", source_host="s-1", acking=frozenset({"s-2", "s-3"})
    )

    await both.kill("s-1")
    await both.run(Fence, targets=["s-2", "s-3"])
    expected = both.process("s-2").received
    await both.run(
        Promote, target="s-2", expected=expected, acks=1, semi_sync=True, others=["s-3"], source_host="s-2",
        acking=frozenset({"s-3"}),
    )  # fmt: skip
    await both.write("s-2")
    await both.start("s-1")
    await both.run(Follow, targets=["s-1"], source="s-2", source_host="s-2", acking=frozenset({"s-1"}))

    await both.run(Switch, primary="s-2", candidate="s-1", deadline=5.0)
    await both.run(
        Promote, target="s-1", expected=both.process("s-2").position, acks=1, semi_sync=True, others=["s-2", "s-3"],
        source_host="s-1", acking=frozenset({"s-2", "s-3"}),
    )  # fmt: skip
    await both.run(Follow, targets=["s-2"], source="s-1", source_host="s-1", acking=frozenset({"s-2"}))
    await both.write("s-1")
    await both.run(Demote, target="s-1")


async def test_the_model_says_what_mariadb_says_of_a_tail_that_nobody_acknowledged(both: Both) -> None:
    await founded(both)
    await both.write("s-1")
    await both.run(Fence, targets=["s-2", "s-3"])
    await both.write("s-1", waits=True)

    await both.kill("s-1")
    await both.run(
        Promote, target="s-3", expected=both.process("s-3").received, acks=1, semi_sync=True, others=["s-2"],
        source_host="s-3", acking=frozenset({"s-2"}),
    )  # fmt: skip
    await both.start("s-1")
    await both.run(Follow, targets=["s-1"], source="s-3", source_host="s-3", acking=frozenset({"s-1"}))
    await both.write("s-3")


async def test_the_model_says_what_mariadb_says_of_a_replica_that_starts_again(both: Both) -> None:
    await founded(both)
    await both.write("s-1")
    await both.kill("s-2")
    await both.write("s-1")
    await both.start("s-2")
    await both.run(SetDurability, primary="s-1", semi_sync=True, acks=1, silent=["s-3"])
    await both.run(Follow, targets=["s-2"], source="s-1", source_host="s-1", acking=frozenset({"s-2"}))
    await both.write("s-1")
    await both.run(SetDurability, primary="s-1", semi_sync=False, acks=0)
