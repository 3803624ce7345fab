"""The servers in memory of the campaign (bench/mysql_model.py) say what MariaDB 10.11 and MySQL 9.7 say after the same steps.

Three real servers and three of the model bear the same server_ids and server_uuids, so that even their positions are the same. What
a real one does in its own time (a receiver connects, an applier applies) is waited for. MySQL 8.4 is in no suite of Debian's.
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
from mooring.operators.mysql.types import TailCut
from mooring.testing.mysql import Servers, TestServer

from .test_gate import cut
from .test_steps import Bench

pytestmark = [pytest.mark.embedded, pytest.mark.nightly]

WITHIN: Final = 15.0
"""Seconds that real servers may take to come to what the model is at once."""
LINK: Final = ("io_running", "connecting", "sql_running", "by_gtid", "deadlocked")
# MySQL's number of clients stays as it was until the next transaction: it is read as "at most so many".
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
        "uuid": server.server_uuid,
        "follows": hosts[link.host] if link is not None else None,
        **{one: getattr(link, one) for one in LINK if link is not None},
        **{one: getattr(semi, one) for one in SEMI if one != "clients" or server.flavor == "mariadb"},
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
        self.volumes = {one.name: Volume(flavor=one.flavor) for one in servers}
        self.ends: dict[str, TailCut] = {}
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

    async def named(self) -> None:
        """The model's servers get the uuids that the real ones gave themselves."""
        for name, one in self.real.items():
            if name in self.world.processes:
                self.volumes[name].uuid = (await self.bench.see(one)).server_uuid

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

    async def start(self, name: str, *, cut_after: str = "") -> None:
        """As a replica; MySQL's binary log is cut where the receiver of the other server had read up to."""
        if cut_after:
            link = (await self.bench.see(self.real[cut_after])).replication
            read = self.process(cut_after).volume.read
            assert link is not None
            cut(self.real[name].directory, f"1 replica 5 cut {link.source_file} {link.source_position}")
            self.volumes[name].cut(TailCut(file=read[0], position=read[1]), "")
        words = ("--init-rpl-role=SLAVE",) if self.real[name].flavor == "mariadb" else ()
        await self.real[name].boot(*words)
        self._begin(self.real[name], replica=True)
        await self.named()
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


async def _both(image: str) -> Any:
    async with Servers(image) as servers:
        bench = Bench(servers)
        made = Both(bench, await servers.start(3, **LATE))
        await made.named()
        yield made
        for one in made.writes:
            one.cancel()
        await asyncio.gather(*made.writes, return_exceptions=True)
        bench.holds.close()
        bench.dial.close()


@pytest.fixture(params=["mariadb:10.11", "mysql:9.7"])
async def both(request: pytest.FixtureRequest) -> Any:
    """Of either flavour."""
    async for made in _both(request.param):
        yield made


@pytest.fixture
async def mariadb() -> Any:
    async for made in _both("mariadb:10.11"):
        yield made


@pytest.fixture
async def mysql() -> Any:
    async for made in _both("mysql:9.7"):
        yield made


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


async def test_the_model_says_what_servers_say_of_a_failover_and_a_switch_back(both: Both) -> None:
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


async def with_a_tail(both: Both) -> None:
    """s-1 was killed while a write waited for an acknowledgement, and s-2 and s-3 are fenced."""
    await founded(both)
    await both.write("s-1")
    await both.run(Fence, targets=["s-2", "s-3"])
    await both.write("s-1", waits=True)
    await both.kill("s-1")


async def lead_on(both: Both) -> None:
    """s-3 leads, s-2 follows."""
    await both.run(
        Promote, target="s-3", expected=both.process("s-3").received, acks=1, semi_sync=True, others=["s-2"],
        source_host="s-3", acking=frozenset({"s-2"}),
    )  # fmt: skip


async def come_back(both: Both) -> None:
    """s-1 follows s-3."""
    await both.run(Follow, targets=["s-1"], source="s-3", source_host="s-3", acking=frozenset({"s-1"}))
    await both.write("s-3")


async def test_the_model_says_what_mariadb_says_of_a_tail_that_nobody_acknowledged(mariadb: Both) -> None:
    await with_a_tail(mariadb)
    await lead_on(mariadb)
    await mariadb.start("s-1")
    await come_back(mariadb)


async def test_the_model_says_what_mysql_says_of_a_tail_that_nobody_acknowledged(mysql: Both) -> None:
    await with_a_tail(mysql)
    await lead_on(mysql)
    await mysql.start("s-1")
    extra = mysql.process("s-1").position - mysql.process("s-3").position
    assert extra.text() == f"{mysql.volumes['s-1'].uuid}:6"


async def test_the_model_says_what_mysql_says_of_a_tail_that_is_cut(mysql: Both) -> None:
    await with_a_tail(mysql)
    await mysql.start("s-1", cut_after="s-2")
    await lead_on(mysql)
    await come_back(mysql)
    await mysql.run(Switch, primary="s-3", candidate="s-1", deadline=5.0)
    await mysql.run(
        Promote, target="s-1", expected=mysql.process("s-3").position, acks=1, semi_sync=True, others=["s-2"],
        source_host="s-1", acking=frozenset({"s-2"}),
    )  # fmt: skip
    await mysql.write("s-1")  # under its new uuid


async def test_the_model_says_what_servers_say_of_a_replica_that_starts_again(both: Both) -> None:
    await founded(both)
    await both.write("s-1")
    await both.kill("s-2")
    await both.write("s-1")
    await both.start("s-2")
    await both.run(SetDurability, primary="s-1", semi_sync=True, acks=1, silent=["s-3"])
    await both.run(Follow, targets=["s-2"], source="s-1", source_host="s-1", acking=frozenset({"s-2"}))
    await both.write("s-1")
    await both.run(SetDurability, primary="s-1", semi_sync=False, acks=0)
