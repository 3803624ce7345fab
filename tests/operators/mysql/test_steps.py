"""The steps on real servers: MariaDB in the embedded tier, MySQL in the full one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from mooring.actor import StepFailed
from mooring.operators.mysql.accounts import WITHHELD, WantedUser, corrections, create_user
from mooring.operators.mysql.dial import Dial, DialError, Link, Login, SqlError
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.holds import Holds
from mooring.operators.mysql.moves import (
    Amend,
    Configure,
    Demote,
    Done,
    Fence,
    Follow,
    Promote,
    SetDurability,
    Switch,
    Target,
    Tune,
)
from mooring.operators.mysql.steps import STILL, Steps
from mooring.operators.mysql.survey import (
    login_of,
    read_accounts,
    read_server,
    read_topology,
    with_backup_account,
)
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.workload.pods import Pod
from mooring.testing.mysql import CREDENTIALS, Servers, TestServer

FLAVORS = [
    pytest.param("mariadb:10.11", marks=pytest.mark.embedded),
    pytest.param("mariadb:11.8", marks=[pytest.mark.embedded, pytest.mark.full]),
    pytest.param("mysql:9.7", marks=[pytest.mark.embedded, pytest.mark.full]),
]
pytestmark = pytest.mark.parametrize("image", FLAVORS)
ROOT = Login(user="root", passwords=tuple(CREDENTIALS.of("root")))


class Clients(Dial):
    """Not the operator: they know of no further port for when all connections are used."""

    async def _connect(self, host: str, login: Login, name: str, timeout: float) -> Link:
        return await self._log_in(host, self._port, login, name, timeout)


class Bench:
    """Servers, and the steps on them."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.dialect = dialect_of(servers.flavor)
        self.dial = Dial()
        self.holds = Holds()
        self.login = login_of(CREDENTIALS)
        self.steps = Steps(self.dial, self.dialect, CREDENTIALS, holds=self.holds)
        self.acks = 1

    async def start(self, count: int) -> list[TestServer]:
        return await self.servers.start(count)

    async def run(self, move: Any, *, within: float = 20.0) -> Done:
        """A move until it is no longer partial."""
        async with asyncio.timeout(within):
            while (done := await self.steps.run(move)).partial:
                pass
            return done

    async def see(self, one: TestServer) -> Server:
        async with self.dial.open(one.address, self.login) as link:
            return await read_server(link, self.dialect)

    async def until(self, one: TestServer, reached: Any, *, within: float = 10.0) -> Server:
        async with asyncio.timeout(within):
            while not reached(server := await self.see(one)):
                await asyncio.sleep(0.02)
            return server

    async def sql(self, one: TestServer, *statements: str, timeout: float = 5.0) -> list[dict[str, Any]]:
        """Statements as a client with an account of its own."""
        rows: list[dict[str, Any]] = []
        async with self.dial.open(one.address, APP, timeout=timeout) as link:
            for statement in statements:
                rows = await link.query(statement)
        return rows

    @asynccontextmanager
    async def client(self, one: TestServer) -> AsyncIterator[Link]:
        async with self.dial.open(one.address, APP, timeout=30.0) as link:
            yield link

    async def found(
        self, primary: TestServer, replicas: Sequence[TestServer], *, semi_sync: bool = True
    ) -> None:
        """A cluster: one leads, the others follow and acknowledge."""
        acking = frozenset(one.name for one in replicas)
        await self.run(
            Promote(
                target=primary.target,
                expected=Position(),
                acks=1,
                semi_sync=False,
                source_host=primary.address,
            )
        )
        await self.run(
            Amend(
                primary=primary.target,
                statements=(
                    "CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY %(monitor-password)s",
                    "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON shop.* TO 'app'@'%'",
                    "CREATE DATABASE IF NOT EXISTS shop",
                    "CREATE TABLE IF NOT EXISTS shop.t (id BIGINT PRIMARY KEY, v INT) ENGINE=InnoDB",
                ),
            )
        )
        if replicas:
            await self.run(
                Follow(
                    targets=tuple(one.target for one in replicas), source=primary.target, source_host=primary.address,
                    acking=acking,
                )
            )  # fmt: skip
        if semi_sync:
            await self.run(
                SetDurability(
                    primary=primary.target,
                    semi_sync=True,
                    acks=self.acks,
                    acking=tuple(one.target for one in replicas),
                )
            )
            await self.until(primary, lambda it: it.semi_sync.clients == len(replicas))

    def promote(
        self, new: TestServer, others: Sequence[TestServer] = (), expected: Position | None = None
    ) -> Promote:
        return Promote(
            target=new.target, expected=expected or Position(), acks=1, semi_sync=True, others=tuple(o.target for o in others),
            source_host=new.address, acking=frozenset(o.name for o in others),
        )  # fmt: skip

    async def level(self, primary: TestServer, replica: TestServer) -> None:
        """Wait until a replica has everything."""
        leader = await self.see(primary)
        await self.until(replica, lambda it: it.executed.contains(leader.executed))

    async def delay(self, primary: TestServer, replica: TestServer, seconds: int) -> None:
        """From now on the replica applies late."""
        await self.level(primary, replica)
        change = "MASTER TO MASTER" if self.servers.flavor == "mariadb" else "REPLICATION SOURCE TO SOURCE"
        async with self.dial.open(replica.address, self.login) as link:
            for statement in ("STOP REPLICA", f"CHANGE {change}_DELAY = {seconds}", "START REPLICA"):
                await link.query(statement)
        await self.until(primary, lambda it: it.semi_sync.clients == 1)
        await self.until(replica, lambda it: it.replication is not None and it.replication.io_running)

    async def rows(self, one: TestServer) -> list[int]:
        async with self.dial.open(one.address, self.login) as link:
            return [row["id"] for row in await link.query("SELECT id FROM shop.t ORDER BY id")]

    async def shows(self, replica: TestServer, leader: Server, rows: list[int]) -> Server:
        """Wait until a replica has what the leader has, and clients see these rows there.

        MariaDB writes a transaction to its binary log, and so into its position, before it commits it: a client that reads
        right after the position was reached may not see the row yet (535 times of 3,000 beside eight busy loops).
        """
        server = await self.until(replica, lambda it: it.executed.contains(leader.executed))
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                while await self.rows(replica) != rows:
                    await asyncio.sleep(0.02)
        assert await self.rows(replica) == rows
        return server


APP = Login(user="app", passwords=(("app", CREDENTIALS.text("monitor-password")),))


@pytest.fixture
async def bench(image: str) -> AsyncIterator[Bench]:
    async with Servers(image) as servers:
        made = Bench(servers)
        yield made
        made.holds.close()
        made.dial.close()


async def test_a_founded_cluster_replicates_and_acknowledges(bench: Bench) -> None:
    primary, *replicas = await bench.start(3)
    await bench.found(primary, replicas)

    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")

    leader = await bench.see(primary)
    assert not leader.read_only
    assert leader.semi_sync.source
    assert leader.semi_sync.active
    assert leader.semi_sync.timeout == 86400
    for one in replicas:
        server = await bench.shows(one, leader, [1])
        assert server.read_only
        assert server.semi_sync.replica
        assert not server.semi_sync.source
        assert server.replication is not None
        assert server.replication.by_gtid


async def test_a_replica_gets_in_though_clients_that_wait_for_it_use_up_the_connections(bench: Bench) -> None:
    [primary] = await bench.servers.start(1, max_connections="10")
    [replica] = await bench.start(1)
    await bench.found(primary, [])
    await bench.run(SetDurability(primary=primary.target, semi_sync=True, acks=1, acking=(replica.target,)))
    clients, full = Clients(connect_timeout=20.0), asyncio.Event()

    async def write(number: int) -> bool:
        """Once it is let in: sessions of before count until the server has closed them, and it refuses who comes meanwhile."""
        async with AsyncExitStack() as stack:
            while not full.is_set():
                try:
                    opened = clients.open(primary.address, APP, timeout=20)
                    link = await stack.enter_async_context(opened)
                except DialError:
                    await asyncio.sleep(0.05)
                else:
                    await link.query(f"INSERT INTO shop.t VALUES ({number}, 1)")
                    return True
        return False

    writing = [asyncio.create_task(write(number)) for number in range(14)]

    await bench.until(primary, lambda it: it.connections >= it.max_connections, within=20)
    full.set()

    await bench.run(
        Follow(
            targets=(replica.target,),
            source=primary.target,
            source_host=primary.address,
            acking=frozenset({replica.name}),
        )
    )

    results = await asyncio.gather(*writing)
    written = [number for number, done in enumerate(results) if done]
    assert written
    assert set(written) <= set(await bench.rows(primary))


async def test_steps_may_be_repeated(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    before = await bench.see(primary)
    for _ in range(2):
        await bench.run(bench.promote(primary, [replica]))
    after = await bench.see(primary)
    assert after.executed == before.executed
    assert not after.read_only


async def test_an_application_cannot_write_to_a_replica(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.level(primary, replica)
    with pytest.raises(DialError, match="1290"):
        await bench.sql(replica, "INSERT INTO shop.t VALUES (1, 1)")


async def test_a_declared_account_with_all_privileges_cannot_write_to_a_replica(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    user = WantedUser(
        name="all",
        label="monitor-password",
        grants=("ALL ON *.* WITH GRANT OPTION",),
        withheld=WITHHELD.get(bench.servers.flavor, frozenset()),
    )
    await bench.run(Amend(primary=primary.target, statements=tuple(create_user(user))))
    await bench.level(primary, replica)
    login = Login(user="all", passwords=APP.passwords)
    async with bench.dial.open(replica.address, login) as link:
        with pytest.raises(SqlError) as refused:
            await link.query("INSERT INTO shop.t VALUES (9, 1)")
    assert refused.value.code == 1290
    async with bench.dial.open(primary.address, bench.login) as link:
        found = await read_accounts(link, bench.dialect, CREDENTIALS, [user], own=False)
        assert corrections(user, found.users[user.key]) == []
        fewer = replace(user, grants=("SELECT ON *.*", "INSERT ON shop.*"))
        for one in (fewer, user):
            amended = corrections(one, found.users[user.key])
            await bench.run(Amend(primary=primary.target, statements=tuple(amended)))
            found = await read_accounts(link, bench.dialect, CREDENTIALS, [user], own=False)
            assert corrections(one, found.users[user.key]) == []


async def test_a_killed_primary_is_replaced_without_loss_and_rejoins(bench: Bench) -> None:
    primary, *replicas = await bench.start(3)
    await bench.found(primary, replicas)
    for number in range(50):
        await bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)")
    primary.kill()

    await bench.run(Fence(targets=tuple(one.target for one in replicas)))
    seen = [(await bench.see(one), one) for one in replicas]
    new = max(seen, key=lambda pair: pair[0].received.ahead_of(Position()))[1]
    other = next(one for one in replicas if one is not new)
    expected = next(server.received for server, one in seen if one is new)
    await bench.run(bench.promote(new, [other], expected))

    assert await bench.rows(new) == list(range(50))
    await bench.sql(new, "INSERT INTO shop.t VALUES (100, 1)")
    await bench.until(other, lambda it: it.replication is not None and it.replication.io_running)

    words = ("--init-rpl-role=SLAVE",) if bench.servers.flavor == "mariadb" else ()
    await primary.boot(*words)
    back, leader = await bench.see(primary), await bench.see(new)
    assert back.read_only
    assert leader.executed.contains(back.executed)
    await bench.run(
        Follow(
            targets=(primary.target,),
            source=new.target,
            source_host=new.address,
            acking=frozenset({primary.name}),
        )
    )
    await bench.shows(primary, leader, [*range(50), 100])


async def test_what_was_received_is_applied_before_a_promotion(bench: Bench) -> None:
    """Trap 2: acknowledged rows that are in the relay log alone."""
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.delay(primary, replica, 3)
    for number in range(5):
        await bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)")
    primary.kill()
    await bench.run(Fence(targets=(replica.target,)))
    assert await bench.rows(replica) == []
    assert (await bench.steps.run(bench.promote(replica))).partial
    assert (await bench.see(replica)).read_only
    await bench.run(bench.promote(replica))
    assert await bench.rows(replica) == [0, 1, 2, 3, 4]


async def test_a_client_that_holds_up_the_drain_of_a_candidate_is_disconnected(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
    await bench.level(primary, replica)
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        await asyncio.sleep(0)

    bench.steps = Steps(
        bench.dial, bench.dialect, CREDENTIALS, holds=bench.holds, sleep=sleep, monotonic=lambda: now[0]
    )
    move = bench.promote(replica)
    async with bench.client(replica) as reader:
        await reader.query("BEGIN")
        await reader.query("SELECT * FROM shop.t")
        await bench.sql(primary, "DROP TABLE shop.t")
        leader = await bench.see(primary)
        await bench.until(replica, lambda it: it.received.contains(leader.executed))
        assert (await bench.steps.run(move)).partial
        assert (await bench.steps.run(move)).partial
        assert await reader.query("SELECT 1")  # for some seconds it is let be
        now[0] += STILL
        assert (await bench.steps.run(move)).partial
        with pytest.raises(DialError):
            await reader.query("SELECT 1")
        async with asyncio.timeout(20):
            while (await bench.steps.run(move)).partial:
                pass
    promoted = await bench.see(replica)
    assert not promoted.read_only
    assert promoted.executed.contains(leader.executed)


async def test_relay_logs_are_applied_when_the_applier_was_stopped(bench: Bench) -> None:
    """F10 and F12: both threads stopped, the primary gone."""
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.level(primary, replica)
    async with bench.dial.open(replica.address, bench.login) as link:
        await link.query("STOP REPLICA SQL_THREAD")
        for number in range(5):
            await bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)")
        primary.kill()
        await link.query("STOP REPLICA IO_THREAD")
    await bench.run(bench.promote(replica))
    assert await bench.rows(replica) == [0, 1, 2, 3, 4]


async def test_a_restarted_replica_applies_what_its_relay_logs_hold(bench: Bench) -> None:
    """F11 and F12: the primary is gone for good, the replica was killed before it applied what it had acknowledged."""
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.level(primary, replica)
    async with bench.dial.open(replica.address, bench.login) as link:
        await link.query("STOP REPLICA SQL_THREAD")
    for number in range(30):
        await bench.sql(primary, f"INSERT INTO shop.t VALUES ({number}, 1)")
    await bench.sql(primary, "CREATE TABLE shop.u (id INT PRIMARY KEY)")
    everything = (await bench.see(primary)).executed
    primary.kill()
    replica.kill()
    words = ("--init-rpl-role=SLAVE",) if bench.servers.flavor == "mariadb" else ()
    await replica.boot(*words)
    seen = await bench.see(replica)
    assert not seen.executed.contains(everything)
    assert seen.received.contains(everything)
    await bench.run(bench.promote(replica, (), seen.received))
    assert await bench.rows(replica) == list(range(30))
    assert (await bench.see(replica)).executed.contains(everything)


async def test_a_server_that_lacks_what_is_expected_is_not_promoted(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [])
    expected = (await bench.see(primary)).executed
    with pytest.raises(StepFailed, match="lacks"):
        await bench.run(bench.promote(replica, (), expected))
    assert (await bench.see(replica)).read_only


async def test_a_hung_primary_is_fenced(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
    primary.kill(signal.SIGSTOP)
    await bench.run(Fence(targets=(replica.target,)))
    await bench.run(bench.promote(replica))
    primary.kill(signal.SIGCONT)
    with pytest.raises(DialError):
        await bench.sql(primary, "INSERT INTO shop.t VALUES (2, 1)", timeout=1.0)
    assert await bench.rows(replica) == [1]


async def test_a_restarted_process_is_left_alone(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    stale = Target(name=replica.name, host=replica.address, server_id=replica.server_id - 1)
    for move in (Fence(targets=(stale,)), Demote(target=stale)):
        with pytest.raises(StepFailed, match="no longer answers"):
            await bench.run(move)
    assert (await bench.see(replica)).replication is not None


async def test_a_switch_holds_writers_and_lets_them_go_to_the_new_primary(bench: Bench) -> None:
    primary, *replicas = await bench.start(3)
    new, other = replicas
    await bench.found(primary, replicas)
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")

    async def write() -> tuple[int, str]:
        """As fast as it can, until something goes wrong: the last number that was confirmed, and the error's word."""
        number = 2
        async with bench.client(primary) as client:
            while True:
                try:
                    await client.query(f"INSERT INTO shop.t VALUES ({number}, 1)")
                except DialError as error:
                    return number - 1, error.word
                number += 1

    writer = asyncio.create_task(write())
    await bench.until(primary, lambda it: it.executed.ahead_of(Position()) > 10)
    await bench.run(Switch(primary=primary.target, candidate=new.target, deadline=5.0))
    assert (await bench.see(primary)).read_only
    assert not writer.done()  # it waits
    expected = (await bench.see(primary)).executed
    await bench.run(bench.promote(new, [primary, other], expected))
    confirmed, word = await writer
    assert word == "Lost"  # disconnected, not refused: a client that connects again finds the new primary

    # What was held is left for the next pass: nothing can be changed there before.
    await bench.run(
        Follow(
            targets=(primary.target,),
            source=new.target,
            source_host=new.address,
            acking=frozenset({primary.name}),
        )
    )
    await bench.sql(new, f"INSERT INTO shop.t VALUES ({confirmed + 1}, 1)")
    leader = await bench.see(new)
    for one in (new, primary, other):
        await bench.shows(one, leader, list(range(1, confirmed + 2)))


@asynccontextmanager
async def slow_logins(one: TestServer, opened: asyncio.Event) -> AsyncIterator[str]:
    """An address that leads to a server; what clients say is held back until ``opened``."""

    async def forward(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                to.write(data)
                await to.drain()
        to.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, back = await asyncio.open_connection(one.address, 3306)
        async with asyncio.TaskGroup() as group:
            group.create_task(forward(answers, writer))
            await opened.wait()
            group.create_task(forward(reader, back))

    host = f"{one.address.rpartition('.')[0]}.250"
    async with await asyncio.start_server(accept, host, 3306):
        yield host


async def test_who_logs_in_while_clients_are_let_go_is_disconnected_if_it_is_a_client(bench: Bench) -> None:
    (primary,) = await bench.start(1)
    await bench.found(primary, [], semi_sync=False)
    opened = asyncio.Event()

    async def sleep(seconds: float) -> None:
        opened.set()
        await asyncio.sleep(seconds)

    steps = Steps(bench.dial, bench.dialect, CREDENTIALS, holds=bench.holds, sleep=sleep)
    async with slow_logins(primary, opened) as host, bench.dial.open(primary.address, bench.login) as link:
        ours = asyncio.create_task(bench.dial.session(host, bench.login))
        client = asyncio.create_task(bench.dial.session(host, APP))
        while (await link.one(bench.dialect.logging_in()))["n"] != 2:
            await asyncio.sleep(0.02)

        await steps._let_go(link)

        with pytest.raises(DialError):
            await (await client).query("SELECT 1")
        (found,) = await asyncio.gather(ours, return_exceptions=True)
        assert isinstance(found, Link), found
        assert await found.query("SELECT 1")
        found.close()


async def test_a_switch_that_takes_too_long_is_undone(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.delay(primary, replica, 5)
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
    with pytest.raises(StepFailed, match=r"did not catch up"):
        await bench.run(Switch(primary=primary.target, candidate=replica.target, deadline=1.0))
    assert not (await bench.see(primary)).read_only
    await bench.sql(primary, "INSERT INTO shop.t VALUES (2, 1)")


async def test_a_long_statement_is_killed_for_a_switch_after_the_grace(bench: Bench) -> None:
    """Trap 12."""
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
    async with bench.client(primary) as client:
        long = asyncio.create_task(client.query("UPDATE shop.t SET v = SLEEP(30)"))
        await asyncio.sleep(0.3)
        await bench.run(Switch(primary=primary.target, candidate=replica.target, deadline=8.0), within=12)
        with pytest.raises(DialError):
            await long
    assert (await bench.see(primary)).read_only


async def test_commits_that_wait_for_acknowledgements_are_never_killed(bench: Bench) -> None:
    """F4: killing one on MariaDB commits it. Here nobody acknowledges, so the primary cannot be held."""
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    async with bench.client(primary) as client:
        await bench.run(Fence(targets=(replica.target,)))
        waiting = asyncio.create_task(client.query("INSERT INTO shop.t VALUES (1, 1)"))
        await bench.until(primary, lambda it: it.semi_sync.waiting == 1)
        with pytest.raises(StepFailed, match="acknowledgements"):
            await bench.run(Demote(target=primary.target))
        assert not waiting.done()
        assert await bench.rows(primary) == []
        async with bench.dial.open(replica.address, bench.login) as link:
            await link.query("START REPLICA IO_THREAD")
        await waiting
    assert await bench.rows(primary) == [1]


async def test_durability_is_weakened_and_restored(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.run(SetDurability(primary=primary.target, semi_sync=False, acks=1, silent=(replica.target,)))
    assert not (await bench.see(primary)).semi_sync.source
    assert not (await bench.see(replica)).semi_sync.replica
    await bench.run(SetDurability(primary=primary.target, semi_sync=True, acks=1, acking=(replica.target,)))
    await bench.until(primary, lambda it: it.semi_sync.clients == 1)
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")


async def test_a_variable_is_set_and_what_the_server_refuses_is_said(bench: Bench) -> None:
    (one,) = await bench.start(1)

    async def result(key: str, value: str) -> str:
        done = await bench.run(Configure(targets=(one.target,), key=key, value=value))
        return done.config[1].state if done.config else "Applied"

    assert await result("max_connections", "77") == "Applied"
    assert await result("max-allowed-packet", "32M") == "Applied"
    assert await result("innodb_log_group_home_dir", "/tmp") == "NeedsRestart"
    assert await result("max_conections", "77") == "Unknown"
    assert await result("max_connections", "many") == "Rejected"


async def test_every_flavour_says_what_tuning_reads_and_takes_another_size(bench: Bench) -> None:
    (one,) = await bench.start(1)
    async with bench.dial.open(one.address, bench.login) as link:
        found = (await read_server(link, bench.dialect, load=True)).load
    assert found is not None
    assert {"reads", "tables", "connections", "age", "max_age", "peak", "pages"} <= found.counters.keys()
    assert found.counters["max_age"] > 0
    assert found.settings.keys() == bench.dialect.sizes.keys()
    assert min(found.settings["pool"].value, found.per_connection, found.max_connections, found.fixed) > 0

    tmp = found.settings["tmp"]
    move = Tune(
        setting="tmp",
        variables=tmp.variables,
        value=2 * tmp.value,
        previous=tmp.value,
        targets=(one.target,),
        effect="Try",
        decided=datetime.now(UTC),
    )
    await bench.run(move)
    async with bench.dial.open(one.address, bench.login) as link:
        changed = (await read_server(link, bench.dialect, load=True)).load
    assert changed is not None
    assert changed.settings["tmp"].value == 2 * tmp.value
    with pytest.raises(StepFailed, match="keeps tmp_table_size"):
        await bench.run(replace(move, previous=move.value))


async def test_a_secret_never_stands_in_an_error(bench: Bench) -> None:
    (one,) = await bench.start(1)
    await bench.found(one, [], semi_sync=False)
    with pytest.raises(StepFailed) as caught:
        await bench.run(
            Amend(
                primary=one.target, statements=("CREATE USER 'x'@'%' IDENTIFIED BY BY %(monitor-password)s",)
            )
        )
    assert CREDENTIALS.text("monitor-password") not in str(caught.value)
    assert caught.value.__cause__ is None or CREDENTIALS.text("monitor-password") not in repr(
        caught.value.__cause__
    )


async def test_all_connections_used_leave_one_for_the_operator(bench: Bench) -> None:
    """Trap 17."""
    (one,) = await bench.servers.start(1, max_connections="10")
    await bench.found(one, [], semi_sync=False)
    async with bench.client(one):
        links: list[Link] = []

        async def until_refused() -> None:
            while True:
                links.append(await bench.dial.session(one.address, APP))

        with pytest.raises(DialError, match="all connections"):
            await until_refused()
        member = Member(pod=Pod(name=one.name, ordinal=0, ip=one.address))
        # The one that servers keep for accounts with all rights is taken as well.
        links.append(await bench.dial.session(one.address, bench.login))
        for _ in range(3):
            bench.dial.forget(one.address)
            seen = await read_topology(bench.dial, bench.dialect, [member], login=bench.login)
            assert seen.members[0].server is not None, seen.members[0].error
        for link in links:
            link.close()


async def test_a_receiver_that_acknowledges_is_counted_by_the_primary_until_it_ended(bench: Bench) -> None:
    """How a server is noticed that acknowledges and is no pod's (see `Snapshot.strangers`)."""
    primary, *replicas = await bench.start(3)
    await bench.found(primary, replicas)
    await bench.until(primary, lambda it: it.semi_sync.clients == 2)

    replicas[1].kill()

    await bench.until(primary, lambda it: it.semi_sync.clients == 1, within=30.0)


async def test_errors_of_reading_are_told_apart(bench: Bench) -> None:
    up, hung, dead = await bench.start(3)
    dead.kill()
    hung.kill(signal.SIGSTOP)
    members = [Member(pod=Pod(name=one.name, ordinal=0, ip=one.address)) for one in (up, hung, dead)]
    members.append(Member(pod=Pod(name="new", ordinal=3)))
    seen = await read_topology(bench.dial, bench.dialect, members, login=bench.login, primary=hung.name)
    assert [one.error for one in seen.members] == ["", "Timeout", "Refused", "NoAddress"]
    wrong = Login(passwords=(("operator-password", "wrong"), ("operator-password-next", "wrong too")))
    seen = await read_topology(bench.dial, bench.dialect, members[:1], login=wrong)
    assert seen.members[0].error == "AccessDenied"
    second = Login(passwords=(("operator-password", "wrong"), *bench.login.passwords))
    seen = await read_topology(bench.dial, bench.dialect, members[:1], login=second)
    assert seen.members[0].server is not None


async def test_no_replica_looks_errant_under_load(bench: Bench) -> None:
    """Trap 8."""
    primary, *replicas = await bench.start(3)
    await bench.found(primary, replicas)
    members = [Member(pod=Pod(name=one.name, ordinal=0, ip=one.address)) for one in (primary, *replicas)]
    stop = asyncio.Event()

    async def write(first: int) -> int:
        async with bench.client(primary) as client:
            number = first
            while not stop.is_set():
                await client.query(f"INSERT INTO shop.t VALUES ({number}, 1)")
                number += 1
            return number - first

    writers = [asyncio.create_task(write(first)) for first in (0, 1_000_000, 2_000_000)]
    try:
        for _ in range(150):
            seen = await read_topology(
                bench.dial, bench.dialect, members, login=bench.login, primary=primary.name
            )
            leader = seen.members[0].server
            assert leader is not None
            for one in seen.members[1:]:
                assert one.server is not None
                # What the primary wrote itself may be at the replica before it counts as committed there (AFTER_SYNC).
                errant = (one.server.executed - leader.executed).without(leader.origin)
                assert errant.is_empty
    finally:
        stop.set()
    assert sum(await asyncio.gather(*writers)) > 0


async def test_a_table_of_accounts_that_a_client_locked_hides_no_server(image: str, bench: Bench) -> None:
    (one,) = await bench.start(1)
    await bench.found(one, [], semi_sync=False)
    member = Member(pod=Pod(name=one.name, ordinal=0, ip=one.address))

    async def there() -> bool:
        seen = await read_topology(bench.dial, bench.dialect, [member], login=bench.login, primary=one.name)
        assert seen.answering, seen.members[0].error
        seen = await with_backup_account(seen, bench.dial, bench.dialect, login=bench.login, primary=one.name)
        return seen.answering[0][1].backup_account

    assert await there()
    async with bench.dial.open(one.address, bench.login) as link:
        await link.query("DROP USER 'mooring_backup'@'%'")
        assert not await there()
        await link.query(f"LOCK TABLES {bench.dialect.users} WRITE")
        assert await there()  # unknown
    assert not await there()
