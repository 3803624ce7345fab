"""Appliers that wait for their own idle threads: what is said of them, and when a server starts again for it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest
from tests.operators.mysql.builders import NOW, Scene, ago, healthy
from tests.operators.mysql.declared import cluster, inputs
from tests.operators.mysql.test_steps import FLAVORS, Bench

from mooring.actor import Wait
from mooring.operators.mysql.applier import FREED, STILL, WITHIN
from mooring.operators.mysql.dial import DialError
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.moves import DeletePod, Follow, InSync, LabelRoles, Open, Promote, Record, Switch
from mooring.operators.mysql.status import report
from mooring.operators.mysql.survey import read_server, with_applier
from mooring.operators.mysql.topology import Flavor, Replication, Server
from mooring.operators.mysql.types import MySQLClusterStatus, StandStill
from mooring.testing.mysql import Servers, TestServer

UUID = "00000000-0000-0000-0000-000000000000"
RECEIVED = {"mysql": (f"{UUID}:1-90", f"{UUID}:1-100"), "mariadb": ("0-10-90", "0-10-100")}


def stuck(name: str = "demo-1", *, flavor: Flavor = "mysql", size: int = 3) -> Scene:
    """A cluster whose replica received everything and applies nothing."""
    return sticks(healthy(size=size, flavor=flavor), name)


def sticks(scene: Scene, name: str) -> Scene:
    return scene.has(name, *RECEIVED[scene.wanted.flavor]).link(name, deadlocked=True)


def seen(scene: Scene, name: str = "demo-1", *, seconds: float = STILL + 1) -> Scene:
    """The same once it was recorded, and so many seconds later."""
    verdict = scene.decide()
    assert isinstance(verdict, Record), verdict
    scene = scene.wrote(verdict)
    noted = scene.snapshot.recorded(name).stands_still
    assert noted is not None
    return scene.known(name, stands_still=StandStill(at=noted.at, since=ago(seconds)))


RECEIVER = ("Connect", "Waiting for source to send event")
IDLE = ("Query", "Waiting for an event from Coordinator")
WAITS = ("Query", "Waiting for replica workers to process their queues")
M_RECEIVER, M_IDLE = (
    ("Slave_IO", "Waiting for master to send event"),
    ("Slave_worker", "Waiting for work from SQL thread"),
)


@pytest.mark.parametrize(
    ("flavor", "threads", "so"),
    [
        ("mysql", [RECEIVER, WAITS, IDLE, IDLE, IDLE, IDLE], True),
        ("mysql", [RECEIVER, WAITS, IDLE], True),
        # One applies, or waits for a lock, a commit or the disk.
        ("mysql", [RECEIVER, WAITS, ("Query", "Applying batch of row changes (write)"), IDLE, IDLE], False),
        ("mysql", [RECEIVER, WAITS, ("Query", "Waiting for table metadata lock"), IDLE, IDLE], False),
        ("mysql", [RECEIVER, WAITS, ("Query", "waiting for handler commit"), IDLE, IDLE], False),
        ("mysql", [RECEIVER, ("Query", "Replica has read all relay log; waiting for more updates"), IDLE], False),
        ("mysql", [RECEIVER, ("Query", "Waiting for dependent transaction to commit"), IDLE, IDLE], False),
        ("mysql", [RECEIVER, WAITS], False),
        # Threads of a user's own channel cannot be told from those that apply.
        ("mysql", [RECEIVER, WAITS, IDLE, RECEIVER], False),
        ("mysql", [WAITS, IDLE], False),
        ("mysql", [], False),
        ("mariadb", [M_RECEIVER, ("Slave_SQL", "Waiting for worker threads to be idle"), M_IDLE, M_IDLE], True),
        ("mariadb", [M_RECEIVER, ("Slave_SQL", "Waiting for room in worker thread event queue"), M_IDLE], True),
        ("mariadb", [M_RECEIVER, ("Slave_SQL", "Waiting for worker threads to be idle"), M_IDLE, ("Slave_worker", "Commit")], False),
        ("mariadb", [M_RECEIVER, ("Slave_SQL", "Slave has read all relay log; waiting for more updates"), M_IDLE], False),
    ],
)  # fmt: skip
def test_sessions_tell_an_applier_that_waits_for_its_own_idle_threads(
    flavor: Flavor, threads: Sequence[tuple[str, str]], so: bool
) -> None:
    rows = [{"User": "system user", "Command": command, "State": state} for command, state in threads]
    rows.append({"User": "app", "Command": "Query", "State": "waiting for handler commit"})
    assert dialect_of(flavor).deadlocked_in(rows, Replication(io_running=True)) is so


def test_the_receiver_may_be_stopped_or_try_to_connect() -> None:
    rows = [{"User": "system user", "State": state} for _, state in (WAITS, IDLE, IDLE)]
    dialect = dialect_of("mysql")
    assert dialect.deadlocked_in(rows, Replication())
    assert not dialect.deadlocked_in(rows, Replication(connecting=True))
    assert dialect.deadlocked_in([*rows, {"User": "system user", "State": ""}], Replication(connecting=True))


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_replica_whose_applier_stands_still_starts_again_after_its_time(flavor: Flavor) -> None:
    scene = stuck(flavor=flavor)
    early = seen(scene, seconds=STILL - 1)
    late = seen(scene, seconds=STILL)

    waits, move = early.decide(), late.decide()

    assert isinstance(waits, Wait)
    assert (waits.reason, waits.stalled) == ("ReplicaCatchingUp", False)
    assert waits.message == "demo-1 applies nothing: its applier waits for its own idle threads"
    assert waits.after == 1.0
    assert isinstance(move, DeletePod)
    assert (move.pod, move.uid, move.grace) == ("demo-1", "uid-demo-1", 10)
    assert move.why == "its applier has waited for its own idle threads for 30 s; its server starts again"


def test_an_applier_that_goes_on_between_two_looks_is_left_alone() -> None:
    scene = seen(stuck(), seconds=600)
    moved = scene.has("demo-1", f"{UUID}:1-91", f"{UUID}:1-100")
    works = scene.link("demo-1", deadlocked=False)

    later = seen(stuck(), seconds=-600)  # the clock was set back since

    again, over, set_back = moved.decide(), works.decide(), later.decide()

    assert isinstance(again, Record)
    noted = again.status.members["demo-1"].stands_still if again.status.members else None
    assert noted is not None
    assert noted.since == NOW
    assert isinstance(set_back, Record)
    assert set_back.status.members
    restarted = set_back.status.members["demo-1"].stands_still
    assert restarted is not None
    assert restarted.since == NOW
    assert isinstance(over, Record)
    assert over.status.members
    assert over.status.members["demo-1"].stands_still is None
    assert not isinstance(works.wrote(over).decide(), DeletePod)


def test_no_replica_is_started_again_while_the_others_do_not_suffice() -> None:
    scene = seen(stuck()).pod("demo-1", role="")
    behind = scene.has("demo-2", f"{UUID}:1-80")
    silent = scene.link("demo-2", io_running=False, connecting=True)
    quiet = scene.semi("demo-2", replica=False)
    another = scene.known("demo-2", server_id=99)

    for one in (behind, silent, quiet, another):
        assert not isinstance(one.decide(), DeletePod)
    assert isinstance(scene.decide(), DeletePod)
    verdict = behind.decide()
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("ApplierStuck", True)
    assert "once enough others acknowledge and have what it acknowledged" in (verdict.message or "")


def test_two_replicas_that_stand_still_start_again_one_after_the_other() -> None:
    scene = sticks(stuck(), "demo-2")
    scene = seen(scene).known("demo-2", stands_still=None)
    scene = seen(scene, "demo-2")

    first = scene.decide()
    assert isinstance(first, DeletePod)
    assert first.pod == "demo-1"
    assert not isinstance(scene.pod("demo-1", terminating=True).decide(), DeletePod)
    assert not isinstance(scene.recreated("demo-1").settled().decide(), DeletePod)


def test_the_only_replica_that_acknowledges_starts_again_where_its_relay_log_stays() -> None:
    of_mysql = seen(stuck(size=2))
    of_mariadb = seen(stuck(size=2, flavor="mariadb")).pod("demo-1", role="")
    assert isinstance(of_mysql.decide(), DeletePod)
    stays = of_mariadb.decide()
    assert isinstance(stays, Wait)
    assert stays.reason == "ApplierStuck"


def test_a_server_is_started_again_for_its_applier_three_times_an_hour() -> None:
    worn = seen(stuck()).pod("demo-1", role="").known("demo-1", freed=[ago(600.0 * n) for n in (3, 2, 1)])
    old = worn.known("demo-1", freed=[ago(WITHIN + 1), ago(1200), ago(600)])

    verdict = worn.decide()

    assert FREED == 3
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("ApplierStuck", True)
    assert "3 times within an hour; it waits until 12:30:00 UTC" in (verdict.message or "")
    assert isinstance(old.decide(), DeletePod)


def test_the_start_that_follows_is_counted_and_begins_without_the_old_finding() -> None:
    scene = seen(stuck()).known("demo-1", freed=[ago(WITHIN + 1), ago(600)])

    verdict = scene.recreated("demo-1").decide()

    assert isinstance(verdict, Open)
    assert verdict.first is not None
    known = (verdict.first.members or {})["demo-1"]
    assert known.stands_still is None
    assert known.freed == [ago(600), NOW]


def test_a_replica_that_stands_still_is_not_read_from_and_does_not_lead() -> None:
    scene = seen(stuck()).known("demo-1", freed=[ago(60)] * 3)
    label = scene.decide()
    assert isinstance(label, LabelRoles)
    assert label.roles == {"demo-1": ""}
    shown = report(inputs(cluster({"size": 3, "image": "mysql:9.7"})), scene.snapshot, InSync()).status
    assert isinstance(shown, MySQLClusterStatus)
    one = next(it for it in shown.instances or () if it.name == "demo-1")
    assert (one.state, one.reason) == ("Broken", "its applier waits for its own idle threads")

    leaving = scene.pod("demo-1", role="").pod("demo-0", terminating=True).decide()
    assert isinstance(leaving, Switch)
    assert leaving.candidate.name == "demo-2"

    dead = sticks(healthy(flavor="mysql"), "demo-1").dead("demo-0").fenced("demo-1", "demo-2")
    elected = dead.operation("FailOver", old="demo-0").decide()
    assert isinstance(elected, Promote)
    assert elected.target.name == "demo-2"


def test_an_elected_primary_whose_applier_stands_still_makes_way_for_another_one_that_has_everything() -> (
    None
):
    needed = f"{UUID}:1-100"
    scene = stuck().dead("demo-0").fenced("demo-1", "demo-2").has("demo-2", f"{UUID}:1-95")
    scene = scene.record(primary="demo-1").operation(
        "FailOver", subject="demo-1", old="demo-0", position=needed
    )
    alone = seen(scene)
    other = alone.has("demo-2", f"{UUID}:1-90", needed)

    assert isinstance(alone.decide(), Promote)
    assert isinstance(seen(scene, seconds=STILL - 1).has("demo-2", needed).decide(), Promote)
    move = other.decide()
    assert isinstance(move, DeletePod)
    assert move.pod == "demo-1"

    leads = other.recreated("demo-1").decide()
    assert isinstance(leads, Promote)
    assert leads.target.name == "demo-2"


def started(scene: Scene, name: str = "demo-1") -> Scene:
    """A replica whose server was started, and whose threads were not yet."""
    fresh = scene.server(name, server_id=77).known(name, server_id=77, synced=False)
    return fresh.link(name, io_running=False, sql_running=False, deadlocked=False)


def test_a_started_replica_receives_again_what_it_had_not_applied() -> None:
    scene = started(stuck())

    verdict = scene.decide()

    assert isinstance(verdict, Follow)
    assert verdict.refetch == {"demo-1"}
    assert verdict.first is None or "demo-1" in (verdict.first.ack_set or ())
    # The begin of a transaction may be left, which nobody acknowledged.
    applied = started(stuck(size=2)).has("demo-1", f"{UUID}:1-100").decide()
    assert isinstance(applied, Follow)
    assert applied.refetch == {"demo-1"}


@pytest.mark.parametrize(
    "kept",
    [
        # The primary lacks it, or the other one does: it may be all there is.
        started(stuck()).has("demo-0", f"{UUID}:1-95"),
        started(stuck()).has("demo-2", f"{UUID}:1-95"),
        started(stuck()).known("demo-2", synced=False).has("demo-2", f"{UUID}:1-95"),
        started(stuck(size=2)),
        # Somebody stopped its threads; this process wrote the relay log itself.
        stuck().link("demo-1", io_running=False, sql_running=False, deadlocked=False),
        # Its relay log went with its process.
        started(stuck(flavor="mariadb")),
    ],
    ids=["primary", "other", "unproven", "alone", "stopped", "mariadb"],
)
def test_a_relay_log_is_kept_where_it_may_be_needed(kept: Scene) -> None:
    verdict = kept.decide()
    if isinstance(verdict, Record):
        verdict = kept.wrote(verdict).decide()
    assert isinstance(verdict, Follow), verdict
    assert verdict.refetch == frozenset()


def test_a_replica_whose_applier_stood_still_never_goes_on_in_that_relay_log() -> None:
    alone = started(stuck(size=2)).known("demo-1", freed=[ago(5)])
    beside = started(stuck()).known("demo-1", freed=[ago(5)]).has("demo-2", f"{UUID}:1-95")
    for scene in (alone, beside):
        verdict = scene.decide()
        assert isinstance(verdict, Follow)
        assert verdict.refetch == {"demo-1"}
    for scene in (alone.has("demo-0", f"{UUID}:1-95"), alone.known("demo-1", freed=[ago(301)])):
        verdict = scene.decide()
        assert isinstance(verdict, Follow)
        assert verdict.refetch == frozenset()


def test_a_primary_is_never_started_again_for_its_applier() -> None:
    scene = healthy(flavor="mysql").server("demo-0", replication=Replication(deadlocked=True))
    scene = scene.known("demo-0", stands_still=StandStill(at="", since=ago(600)))
    verdict = scene.settled().decide()
    assert not isinstance(verdict, DeletePod), verdict


# --- on real servers -------------------------------------------------------------------------------------


@pytest.fixture
async def bench(image: str) -> AsyncIterator[Bench]:
    async with Servers(image) as servers:
        made = Bench(servers)
        yield made
        made.holds.close()
        made.dial.close()


async def look(bench: Bench, one: TestServer) -> Server:
    """As a pass sees it."""
    async with bench.dial.open(one.address, bench.login) as link:
        return await with_applier(link, bench.dialect, await read_server(link, bench.dialect))


def stands(server: Server) -> bool:
    return server.replication is not None and server.replication.deadlocked


async def cut_amid_a_transaction(bench: Bench, primary: TestServer, replica: TestServer) -> None:
    """The connection ends while the replica receives a transaction that it has not begun to apply; then it receives all of it."""
    large = ", ".join(f"({number}, REPEAT('x', 1000000))" for number in range(16))
    async with bench.dial.open(primary.address, bench.login, timeout=30) as link:
        await link.query("CREATE TABLE shop.large (id INT PRIMARY KEY, d LONGBLOB) ENGINE=InnoDB")
    await bench.level(primary, replica)
    async with bench.dial.open(replica.address, bench.login) as link:
        await link.query("STOP REPLICA SQL_THREAD")
    replica.kill(signal.SIGSTOP)  # what the connection holds of it is all that arrives
    try:
        async with bench.client(primary) as link:
            await link.query(f"INSERT INTO shop.large VALUES {large}")
        async with bench.dial.open(primary.address, bench.login) as link:
            for row in await link.query("SHOW PROCESSLIST"):
                if str(row["Command"]).startswith("Binlog Dump"):
                    with suppress(DialError):
                        await link.query(f"KILL {row['Id']}")
    finally:
        replica.kill(signal.SIGCONT)
    leader = await bench.see(primary)
    await bench.until(replica, lambda it: it.received.contains(leader.executed), within=30)


@pytest.mark.embedded
@pytest.mark.full
@pytest.mark.parametrize("image", ["mysql:9.7"])
async def test_a_start_alone_brings_a_real_applier_to_wait_for_itself_and_receiving_again_frees_it(
    bench: Bench,
) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica], semi_sync=False)
    await cut_amid_a_transaction(bench, primary, replica)
    before = await bench.see(replica)
    assert not before.executed.contains(before.received)

    async def again(*, refetch: bool) -> None:
        replica.kill()
        await replica.boot()
        await bench.run(
            Follow(
                targets=(replica.target,), source=primary.target, source_host=primary.address,
                refetch=frozenset({replica.name} if refetch else ()),
            )
        )  # fmt: skip

    await again(refetch=False)
    async with asyncio.timeout(30):
        while not stands(await look(bench, replica)):
            await asyncio.sleep(0.05)
    stuck = await look(bench, replica)
    assert stands(stuck)
    assert stuck.executed == before.executed
    assert stuck.received == before.received

    await again(refetch=True)
    await bench.level(primary, replica)
    assert not stands(await look(bench, replica))
    assert (await bench.see(replica)).executed == (await bench.see(primary)).executed


@pytest.mark.parametrize("image", [FLAVORS[0], FLAVORS[-1]])
async def test_a_real_applier_that_waits_for_something_else_does_not_stand_still(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica], semi_sync=False)
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1), (2, 2)")
    await bench.level(primary, replica)
    seen: list[str] = []

    async def never(why: str, times: int = 4) -> None:
        """It has something to apply at every look, and is never taken for one that stands still."""
        leader = await bench.see(primary)
        await bench.until(
            replica,
            lambda it: it.received.contains(leader.executed) and not it.executed.contains(it.received),
        )
        for _ in range(times):
            server = await look(bench, replica)
            assert not server.executed.contains(server.received), why
            assert not stands(server), why
            seen.append(why)

    async def changed(number: int) -> None:
        await bench.sql(
            primary,
            f"UPDATE shop.t SET v = {number} WHERE id = 1",
            f"UPDATE shop.t SET v = {number} WHERE id = 2",
        )

    async with bench.client(replica) as client:
        await client.query("BEGIN")
        await client.query("SELECT * FROM shop.t WHERE id = 1 LOCK IN SHARE MODE")
        await changed(10)
        await never("a row is locked")
        await client.query("COMMIT")
    await bench.level(primary, replica)

    async with bench.dial.open(replica.address, bench.login) as link:
        for lock in ("LOCK TABLES shop.t READ", "FLUSH TABLES WITH READ LOCK"):
            await link.query(lock)
            await changed(len(lock))
            await never(lock)
            await link.query("UNLOCK TABLES")
            await bench.level(primary, replica)
        await link.query("STOP REPLICA SQL_THREAD")
        await changed(30)
        await never("the applier is stopped")
        await link.query("START REPLICA SQL_THREAD")
        await bench.level(primary, replica)
    await bench.delay(primary, replica, 2)
    await changed(40)
    await never("it applies late")
    await bench.level(primary, replica)
    assert len(seen) == 20
