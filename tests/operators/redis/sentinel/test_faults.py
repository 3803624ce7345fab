"""Faults on real servers: what was confirmed survives, and the cluster comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from tests.operators.redis.sentinel.harness import SETTINGS, Cluster, Operator, cluster
from tests.standstill import Standstill

from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.redis.sentinel.moves import Demote, FailOver, InSync, Monitor, Target, Wait
from mooring.operators.redis.sentinel.steps import Steps
from mooring.operators.redis.sentinel.topology import Peer, Topology, read_server
from mooring.testing.ledger import Ledger, Report

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]


@asynccontextmanager
async def writing(pods: Cluster) -> AsyncIterator[Ledger]:
    """A client that writes all through the block."""
    ledger = Ledger(sentinels=pods.sentinel_addresses(), password=pods.password, rate=300)
    task = asyncio.create_task(ledger.write())
    deadline = monotonic() + 5
    try:
        while ledger.acknowledged < 100:
            assert monotonic() < deadline, "nothing could be written"
            await asyncio.sleep(0.02)
        yield ledger
    finally:
        ledger.stop()
        await task


async def writes_go_on(ledger: Ledger, operator: Operator, *, seconds: float = 20) -> None:
    """Until two hundred more writes were acknowledged."""
    goal = ledger.acknowledged + 200
    await operator.until(lambda: ledger.acknowledged >= goal, seconds=seconds, what="writes accepted again")


async def fill(pods: Cluster, name: str, *, count: int) -> None:
    """Keys to keep."""
    script = "for i=1,tonumber(ARGV[1]) do redis.call('SET','kept:'..i, redis.sha1hex(i)) end"
    async with Dial(reply_timeout=15).link(Address(pods.redis[name].ip, 6379)) as link:
        await link.call("EVAL", script, 0, count)
        assert await link.call("WAIT", 2, 10000) == 2


async def kept(pods: Cluster, name: str, *, count: int) -> int:
    """How many of them are there, whole."""
    script = (
        "local n=0 for i=1,tonumber(ARGV[1]) do "
        "if redis.call('GET','kept:'..i)==redis.sha1hex(i) then n=n+1 end end return n"
    )
    return int(str(await pods.call(name, "EVAL", script, 0, count)))


def unharmed(report: Report) -> None:
    assert report.lost_confirmed == 0, report.text()
    assert report.confirmed > 100, report.text()


async def test_a_password_protected_cluster_comes_up_with_the_lowest_pod_as_master(tmp_path: Path) -> None:
    async with cluster(tmp_path, password='s3"cret \\x') as (pods, operator):
        took = await operator.in_sync()

        assert operator.master == "redis-0"
        assert took < 15
        server = await pods.server("redis-0")
        assert server.is_master
        assert len(server.replicas) == 2
        assert {(await pods.server(name)).priority for name in pods.redis} == {1}


async def test_a_killed_master_is_replaced_within_seconds_and_follows_when_it_returns(
    tmp_path: Path, stood: Standstill
) -> None:
    async with cluster(tmp_path) as (pods, operator):
        # So patient that neither a sentinel's own decision nor a busy machine can be what replaces the master.
        patient = {**SETTINGS, "down-after-milliseconds": "60000"}
        operator.wanted = replace(operator.wanted, down_after=60.0, sentinel_settings=patient)
        await operator.in_sync()
        async with writing(pods) as ledger:
            old = operator.master
            pods.kill(old)
            await operator.until(lambda: operator.master != old)
            await writes_go_on(ledger, operator)
            gap = ledger.longest_gap
        await operator.in_sync()
        report = await ledger.check()

        unharmed(report)
        assert gap - stood.within(gap) < 2.5
        assert any(isinstance(move, FailOver) for move in operator.moves), operator.history
        assert (await pods.server(old)).follows(pods.redis[operator.master].ip)
        assert operator.recorded.last_failover is not None
        assert operator.recorded.last_failover.cause == "MasterDied"


@pytest.mark.parametrize("persistence", [True, False], ids=["persistent", "in-memory"])
async def test_a_master_that_restarts_at_once_never_wipes_the_others(
    tmp_path: Path, persistence: bool
) -> None:
    async with cluster(tmp_path, persistence=persistence) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        await fill(pods, old, count=5000)
        pods.redis[old].restart_delay = 0.0
        pods.kill(old)
        await operator.until(lambda: operator.master != old)
        await operator.in_sync()

        for name in pods.redis:
            assert await kept(pods, name, count=5000) == 5000


@pytest.mark.parametrize(
    "persistence",
    [pytest.param(True, id="persistent"), pytest.param(False, id="in-memory", marks=pytest.mark.full)],
)
async def test_a_fault_while_the_operator_is_away_costs_nothing(tmp_path: Path, persistence: bool) -> None:
    async with cluster(tmp_path, persistence=persistence) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        await fill(pods, old, count=5000)
        await operator.stop()
        pods.redis[old].restart_delay = 0.0
        pods.kill(old)
        await asyncio.sleep(3)
        operator.start()
        await operator.in_sync(seconds=60)

        for name in pods.redis:
            assert await kept(pods, name, count=5000) == 5000


async def test_what_sentinels_are_told_of_reboots_is_not_what_protects_the_data(tmp_path: Path) -> None:
    async with cluster(tmp_path, persistence=False) as (pods, operator):
        settings = {**operator.wanted.sentinel_settings, "master-reboot-down-after-period": "60000"}
        operator.wanted = replace(operator.wanted, sentinel_settings=settings, elect="redis-0")
        await operator.in_sync()
        old = operator.master
        await fill(pods, old, count=5000)
        await operator.stop()
        pods.redis[old].restart_delay = 0.0
        pods.kill(old)
        await asyncio.sleep(3)
        survivors = [name for name in pods.redis if name != old]
        left = [await kept(pods, name, count=5000) for name in survivors]
        operator.start()
        await operator.in_sync(seconds=60)

        assert left == [5000, 5000]
        for name in pods.redis:
            assert await kept(pods, name, count=5000) == 5000


async def test_all_servers_restarted_at_once_keep_every_confirmed_write(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        async with writing(pods) as ledger:
            await fill(pods, old, count=5000)
            for name in list(pods.redis):
                pods.kill(name)
            await writes_go_on(ledger, operator)
        await operator.in_sync()

        unharmed(await ledger.check())
        assert await kept(pods, operator.master, count=5000) == 5000


async def test_all_servers_without_persistence_restarted_at_once_serve_again_empty(tmp_path: Path) -> None:
    async with cluster(tmp_path, persistence=False) as (pods, operator):
        await operator.in_sync()
        await fill(pods, operator.master, count=100)
        killed = list(pods.redis.values())
        for one in killed:
            pods.kill(one.name)
        await operator.until(lambda: all(one.died_at for one in killed))
        await operator.in_sync()

        assert (await pods.server(operator.master)).keys == 0


async def test_all_pods_with_new_addresses_find_each_other_and_the_sentinels_follow(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        await fill(pods, old, count=5000)
        before = {one.ip for one in pods.redis.values()}
        await pods.replace(list(pods.redis))
        took = await operator.in_sync()

        assert not before & {one.ip for one in pods.redis.values()}
        assert operator.master == old
        assert took < 15
        assert await kept(pods, old, count=5000) == 5000
        async with writing(pods) as ledger:
            await writes_go_on(ledger, operator)
        unharmed(await ledger.check())


async def test_everything_replaced_at_once_comes_back_with_its_data(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await fill(pods, operator.master, count=1000)
        await pods.replace([*pods.redis, *pods.sentinels])
        await operator.in_sync()

        assert await kept(pods, operator.master, count=1000) == 1000


async def test_replaced_sentinels_learn_the_master_again_without_touching_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        run_id = (await pods.server(old)).run_id
        await pods.replace(list(pods.sentinels))
        await operator.in_sync()

        assert operator.master == old
        assert (await pods.server(old)).run_id == run_id


async def serves_as_master(pods: Cluster, name: str) -> bool:
    """A demotion sends all clients away, this one too: then it is asked again."""
    try:
        return (await pods.server(name)).is_master
    except DialError:
        return True


async def test_a_hung_master_is_replaced_by_the_sentinels_and_demoted_when_it_wakes(
    tmp_path: Path, stood: Standstill
) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        async with writing(pods) as ledger:
            pods.freeze(old)
            try:
                await operator.until(lambda: operator.master != old, seconds=20)
                await writes_go_on(ledger, operator)
                assert not any(isinstance(move, FailOver) for move in operator.moves)
            finally:
                pods.thaw(old)
            woke = monotonic()
            while await serves_as_master(pods, old):
                slept = monotonic() - woke
                assert slept - stood.within(slept) < 3, "the old master was not demoted at once"
                await asyncio.sleep(0.02)
            await operator.in_sync()
        unharmed(await ledger.check())
        assert operator.recorded.last_failover is not None
        assert operator.recorded.last_failover.cause == "SentinelDecided"


async def test_what_a_second_master_had_alone_is_measured_when_it_is_made_to_follow(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await operator.stop()
        old = operator.master
        new = next(name for name in pods.redis if name != old)
        targets = {name: Target(name=name, address=Address(pods.redis[name].ip, 6379)) for name in (old, new)}
        await fill(pods, old, count=100)
        await pods.call(new, "SLAVEOF", "NO", "ONE")
        value = "x" * 1000
        for number in range(10):
            await pods.call(old, "SET", f"alone:{number}", value)
        async with Dial().link(targets[new].address) as link:
            forked = (await read_server(link)).second_offset - 1

        done = await Steps(Dial()).run(Demote(target=targets[old], master=targets[new], forked=forked))

        assert done.lost_bytes is not None
        assert 10_000 < done.lost_bytes < 12_000
        assert not await serves_as_master(pods, old)
        operator.start()
        await operator.in_sync(seconds=60)


async def test_a_replica_whose_pod_was_replaced_leaves_no_ghost_in_any_sentinel(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        gone = pods.redis["redis-2"].ip
        await pods.replace(["redis-2"])
        await operator.until(lambda: "redis-2" in pods.redis)
        await operator.in_sync(seconds=60)

        topology = await operator.topology()
        known = [peer.ip for one in topology.watchers if one.sentinel for peer in one.sentinel.replicas]
        assert gone not in known
        assert sum(1 for move in operator.moves if isinstance(move, Monitor)) >= 4


async def test_another_master_at_an_address_that_was_ours_keeps_its_data(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await operator.stop()
        gone = pods.redis["redis-2"].ip
        await pods.replace(["redis-2"])
        words = ["--bind", gone, "--protected-mode", "no", "--dir", str(tmp_path), "--save", ""]
        foreign = await asyncio.create_subprocess_exec(
            "redis-server", *words, stdout=asyncio.subprocess.DEVNULL
        )
        try:

            def remembered(topology: Topology) -> list[Peer | None]:
                """Their entries of the address; one that does not answer may have it."""
                known = [one.sentinel.replicas if one.sentinel else (None,) for one in topology.watchers]
                return [peer for peers in known for peer in peers if peer is None or peer.ip == gone]

            met = monotonic() + 10
            while not all(peer and peer.leads for peer in remembered(await operator.topology())):
                assert monotonic() < met, "not every sentinel has seen who is there now"
                await asyncio.sleep(0.05)
            operator.start()

            # Four greetings' time, eight seconds, after they saw it the sentinels would make it follow.
            took = await operator.until(
                lambda: not remembered(operator.seen), seconds=8, what="no sentinel remembers its address"
            )
            async with Dial().link(Address(gone, 6379)) as link:
                assert (await link.call("ROLE"))[0] == "master", f"after {took:.1f} s"
        finally:
            foreign.kill()
            await foreign.wait()


async def peers(pods: Cluster) -> dict[str, set[str]]:
    """The other sentinels that each sentinel knows, by address."""
    known = {}
    for one in pods.sentinels.values():
        async with Dial().link(Address(one.ip, 26379)) as link:
            answer = await link.call("SENTINEL", "SENTINELS", "mymaster")
        known[one.ip] = {words[words.index("ip") + 1] for words in answer}
    return known


async def test_a_sentinel_that_is_pointed_anew_knows_the_others_without_their_greetings(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await operator.stop()
        for one in pods.sentinel_addresses():
            async with Dial().link(one) as link:
                await link.call("SENTINEL", "DEBUG", "publish-period", 600_000)
        targets = {}
        for name, pod in pods.sentinels.items():
            async with Dial().link(Address(pod.ip, 26379)) as link:
                targets[await link.call("SENTINEL", "MYID")] = Target(
                    name=name, address=Address(pod.ip, 26379)
                )
        master = Target(name=operator.master, address=Address(pods.redis[operator.master].ip, 6379))
        first = next(iter(targets.values()))

        await Steps(Dial()).run(
            Monitor(sentinels=(first,), master=master, quorum=2, settings=SETTINGS, peers=targets)
        )

        known = await peers(pods)
        assert known[first.address.ip] == {one.address.ip for one in targets.values()} - {first.address.ip}


async def test_sentinels_that_met_those_of_another_cluster_are_taken_apart_again(tmp_path: Path) -> None:
    for part in ("ours", "theirs"):
        (tmp_path / part).mkdir()
    async with (
        cluster(tmp_path / "ours") as (ours, operator),
        cluster(tmp_path / "theirs") as (theirs, other),
    ):
        for pods, one in ((ours, operator), (theirs, other)):
            await one.in_sync()
            await fill(pods, one.master, count=1000)
            await one.stop()
        strayed = ours.sentinels["sentinel-0"].ip
        async with Dial().link(Address(strayed, 26379)) as link:
            await link.call("SENTINEL", "REMOVE", "mymaster")
            await link.call("SENTINEL", "MONITOR", "mymaster", theirs.redis[other.master].ip, 6379, 2)
        deadline = monotonic() + 10
        while not all(strayed in known for known in (await peers(theirs)).values()):
            assert monotonic() < deadline, "they never met"
            await asyncio.sleep(0.1)
        for one in (operator, other):
            one.start()
        for one in (operator, other):
            await one.in_sync(seconds=30)

        for pods in (ours, theirs):
            known = await peers(pods)
            assert all(met <= known.keys() for met in known.values()), known
            for name in pods.redis:
                assert await kept(pods, name, count=1000) == 1000


# --- what is planned costs nothing -----------------------------------------------------------------------


async def test_a_master_whose_pod_is_deleted_hands_over_without_losing_a_write(
    tmp_path: Path, stood: Standstill
) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        async with writing(pods) as ledger:
            pods.redis[old].terminating = True
            pods.changed.set()
            await operator.until(lambda: operator.master != old)
            await writes_go_on(ledger, operator)
            gap = ledger.longest_gap
            await pods.replace([old])
            await operator.in_sync()
        report = await ledger.check()

        assert report.lost_acknowledged == 0, report.text()
        assert gap - stood.within(gap) < 2.0
        assert operator.recorded.last_failover is not None
        assert operator.recorded.last_failover.cause == "Planned"


@pytest.mark.full
async def test_scaling_in_past_the_master_moves_it_first_and_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        operator.wanted = replace(operator.wanted, size=5, sentinels=5)
        await operator.in_sync()
        assert len(pods.redis) == len(pods.sentinels) == 5
        pods.redis_replicas = 5
        for name in ("redis-0", "redis-1", "redis-2", "redis-3"):
            await pods.call(name, "CONFIG", "SET", "slave-priority", 0)
        async with writing(pods) as ledger:
            pods.kill("redis-0")
            await operator.until(lambda: operator.master != "redis-0")
            await operator.in_sync(seconds=60)
            operator.wanted = replace(operator.wanted, size=3, sentinels=3)
            await operator.in_sync(seconds=90)
        report = await ledger.check()

        unharmed(report)
        assert sorted(pods.redis) == ["redis-0", "redis-1", "redis-2"]
        assert sorted(pods.sentinels) == ["sentinel-0", "sentinel-1", "sentinel-2"]
        topology = await operator.topology()
        for one in topology.watchers:
            assert one.sentinel is not None
            assert one.sentinel.settings["quorum"] == "2"
            assert len(one.sentinel.replicas) == 2
            assert len(one.sentinel.sentinels) == 2


async def test_keys_change_live_and_a_restarted_server_has_them_from_its_start(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        runs = {name: (await pods.server(name)).run_id for name in pods.redis}
        keys = {"hz": "600", "maxclients": "333", "appendonly": "no", "nosuchkey": "1", "databases": "99"}
        operator.wanted = replace(operator.wanted, config=keys)
        await operator.in_sync()

        states = {key: result.state for key, result in operator.recorded.config.items()}
        assert states == {
            "hz": "Clamped",
            "maxclients": "Applied",
            "appendonly": "Applied",
            "nosuchkey": "Unknown",
            "databases": "NeedsRestart",
        }
        assert runs == {name: (await pods.server(name)).run_id for name in pods.redis}
        pods.kill("redis-2")
        await operator.until(lambda: pods.redis["redis-2"].restarts == 1)
        await operator.in_sync()
        assert (await pods.server("redis-2")).config["hz"] == "500"
        operator.wanted = replace(operator.wanted, config={})
        await operator.in_sync()
        assert {(await pods.server(name)).config["hz"] for name in pods.redis} == {"10"}


async def test_an_operator_that_dies_after_every_step_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        old = operator.master
        await fill(pods, old, count=2000)
        await operator.stop()
        pods.kill(old)
        steps = 0
        successor = operator
        while not isinstance(successor.verdict, InSync) or steps < 3:
            heir = Operator(pods, successor.wanted)
            heir.recorded = successor.recorded
            successor = heir
            await successor.once()
            steps += 1
            assert steps < 400, successor.verdict
            if isinstance(successor.verdict, Wait):
                await asyncio.sleep(min(0.2, successor.verdict.after))

        assert await kept(pods, successor.master, count=2000) == 2000
