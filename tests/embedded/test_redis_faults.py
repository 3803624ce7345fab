"""Faults on a whole control plane with real servers: what was confirmed survives, and all is well by itself."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from bench.safety import CASES, Case, Safety
from bench.soak import soak, soak_on
from tests.embedded.conftest import MakeCluster
from tests.standstill import Standstill

from mooring.kube import Object
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import ConfigMap, PersistentVolumeClaim, Pod, Service
from mooring.kube.objects.events import Event
from mooring.local.node.agent import NodeAgent
from mooring.testing.bed import Bed
from mooring.testing.ledger import Ledger, Report
from mooring.testing.redis import RedisStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "redis-sentinel.yaml"


def rounds(count: int, *, seed: int, apart: bool) -> argparse.Namespace:
    """The options of a soak."""
    return argparse.Namespace(
        rounds=count, seed=seed, rate=200.0, operator_process=apart, file=EXAMPLE, json=True
    )


def unharmed(report: Report) -> None:
    """Nothing that WAIT confirmed is lost, and something was confirmed at all."""
    assert report.lost_confirmed == 0, report.text()
    assert report.confirmed > 50, report.text()


async def other_master(stage: RedisStage, old: str, *, within: float = 20.0) -> str:
    """Wait until status names another master."""

    async def another() -> str:
        master = (await stage.status()).master or ""
        return master if master != old else ""

    await stage.bed.until(another, f"another master than {old}", within=within)
    return await stage.master()


async def writes_go_on(stage: RedisStage, ledger: Ledger) -> None:
    await stage.writes(ledger, 100, within=30)


#: Seconds after which sentinels with their defaults call a master down.
DOWN_AFTER = 5.0
#: Cases of `test_every_key_survives` that are half of a harder one beside them.
BY_NIGHT = ("empty-master-no-persistence", "all-killed-operator-away")

# --- rounds of death ---------------------------------------------------------------------------------------


def survived(totals: dict[str, Any]) -> None:
    """Nothing confirmed was lost in any round, and nobody was missed for long without a reason."""
    assert totals["confirmed"] > 100
    assert totals["lost_confirmed"] == 0, totals
    assert totals["masters_killed"] >= 1
    # Before the sentinels would even have noticed; how much faster is for the soak, on a machine at rest.
    slow = [one for one in totals["rounds"] if one["gap"] >= DOWN_AFTER and not one["explanation"]]
    assert slow == [], totals


@pytest.mark.nightly
async def test_rounds_of_death_lose_nothing_confirmed(shared_bed: Bed) -> None:
    survived(await soak_on(shared_bed, rounds(3, seed=3, apart=False)))


@pytest.mark.full
@pytest.mark.nightly
async def test_rounds_of_death_of_servers_and_operator_lose_nothing_confirmed(directory: Path) -> None:
    survived(await soak(rounds(3, seed=3, apart=True), directory))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("apart", [False, True], ids=["within", "as-a-process-killed-too"])
async def test_twenty_rounds_of_death_lose_nothing_confirmed(directory: Path, apart: bool) -> None:
    totals = await soak(rounds(20, seed=int(time.time()), apart=apart), directory)

    assert totals["lost_confirmed"] == 0, totals
    assert totals["unexplained"] == [], totals
    assert totals["masters_killed"] >= 8


# --- whole data sets ---------------------------------------------------------------------------------------


async def keys_survive(stage: RedisStage, case: Case, *, keys: int, times: int, wait: float) -> None:
    safety = Safety(stage, case, argparse.Namespace(keys=keys, wait=wait))
    for number in range(1, times + 1):
        outcome = await safety.once(number)
        assert set(outcome.kept.values()) == {keys}, outcome


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.nightly] if case.name in BY_NIGHT else []) for case in CASES],
    ids=[case.name for case in CASES],
)
async def test_every_key_survives(cluster: MakeCluster, case: Case) -> None:
    stage = await cluster(password="s3cret", persistence=case.persistence)

    await keys_survive(stage, case, keys=5000, times=1, wait=4)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_every_key_survives_ten_times(cluster: MakeCluster, case: Case) -> None:
    stage = await cluster(password="s3cret", persistence=case.persistence, sentinel_settings=())

    await keys_survive(stage, case, keys=100_000, times=10, wait=30)


# --- hung and cut off --------------------------------------------------------------------------------------


async def test_a_hung_master_is_replaced_and_follows_when_it_thaws(
    cluster: MakeCluster, stood: Standstill
) -> None:
    stage = await cluster()
    old = await stage.master()
    async with stage.writing(patience=0.3) as ledger:
        pid = stage.kill(old, signal.SIGSTOP)
        try:
            new = await other_master(stage, old)
            await writes_go_on(stage, ledger)
            gap = ledger.longest_gap
        finally:
            stage.kill(old, signal.SIGCONT)
        await stage.exact()
        await writes_go_on(stage, ledger)

    unharmed(await ledger.check())
    assert gap - stood.within(gap) < 1.5 + 3.0, "down-after and the sentinels' own time limit for a fail-over"
    assert await stage.master() == new
    assert stage.pid(old) == pid, "it was not restarted"


async def test_a_briefly_hung_master_stays_master(cluster: MakeCluster) -> None:
    stage = await cluster(sentinel_settings=())  # five seconds, so that 0.7 are brief on a busy machine too
    master = await stage.master()
    async with stage.writing() as ledger:
        stage.kill(master, signal.SIGSTOP)
        await asyncio.sleep(0.7)
        stage.kill(master, signal.SIGCONT)
        await writes_go_on(stage, ledger)
        await stage.exact()

    report = await ledger.check()
    unharmed(report)
    assert report.lost_acknowledged == 0
    assert await stage.master() == master


@pytest.mark.parametrize(
    "from_machine",
    [pytest.param(False, marks=pytest.mark.nightly), True],
    ids=["from-its-peers", "from-everything"],
)
async def test_a_master_cut_off_is_replaced_and_follows_when_the_cut_heals(
    cluster: MakeCluster, from_machine: bool
) -> None:
    stage = await cluster()
    old = await stage.master()
    agent = stage.bed.plane.agent
    assert isinstance(agent, NodeAgent), "only our own node can cut pods off"
    peers = [(stage.namespace, pod.metadata.name or "") for pod in await stage.pods()]
    peers = [pod for pod in peers if pod[1] != old]
    async with stage.writing() as ledger:
        await agent.cut_pods([(stage.namespace, old)], peers)
        if from_machine:
            await agent.cut_pods([(stage.namespace, old)])
        try:
            new = await other_master(stage, old)
            await writes_go_on(stage, ledger)
        finally:
            await agent.heal()
        await stage.exact()
        await writes_go_on(stage, ledger)

    unharmed(await ledger.check())
    assert await stage.master() == new


# --- things deleted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [StatefulSet, Service, pytest.param(ConfigMap, marks=pytest.mark.nightly)],
    ids=lambda kind: kind.__name__,
)
async def test_deleted_children_come_back_at_once(cluster: MakeCluster, kind: type[Object]) -> None:
    stage = await cluster()
    client = stage.bed.client
    selector = f"app.kubernetes.io/name={stage.name}"

    async def children() -> dict[str, str]:
        page = await client.list(kind, namespace=stage.namespace, label_selector=selector)
        return {one.metadata.name or "": one.metadata.uid or "" for one in page.items}

    before = await children()
    await stage.fill(1000)
    for name in before:
        await client.delete(kind, name, namespace=stage.namespace)

    async def back() -> bool:
        now = await children()
        return now.keys() == before.keys() and not set(now.values()) & set(before.values())

    took = await stage.bed.until(back, f"every {kind.__name__} is back", within=20)
    await stage.exact(60)

    assert len(before) >= 2
    assert took < 10
    assert await stage.kept(await stage.master(), 1000) == 1000


async def test_a_deleted_master_hands_over_before_it_goes(cluster: MakeCluster, stood: Standstill) -> None:
    stage = await cluster()
    old = await stage.master()
    async with stage.writing() as ledger:
        await stage.bed.client.delete(Pod, old, namespace=stage.namespace)
        await other_master(stage, old)
        await writes_go_on(stage, ledger)
        gap = ledger.longest_gap
        await stage.exact()

    report = await ledger.check()
    unharmed(report)
    assert report.lost_acknowledged == 0
    assert gap - stood.within(gap) <= 1.5
    last = (await stage.status()).last_failover
    assert last is not None
    assert last.cause == "Planned"


async def test_all_pods_deleted_by_force_come_back_with_every_key(cluster: MakeCluster) -> None:
    stage = await cluster()
    await stage.fill(5000)
    before = {pod.metadata.uid for pod in await stage.pods()}

    for pod in await stage.pods():
        await stage.bed.client.delete(Pod, pod.metadata.name or "", namespace=stage.namespace, grace_period=0)
    await stage.exact(60)

    assert not before & {pod.metadata.uid for pod in await stage.pods()}
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", 5000) == 5000


async def test_a_cluster_that_lost_all_claims_serves_empty_and_says_that_all_data_is_lost(
    cluster: MakeCluster,
) -> None:
    stage = await cluster()
    await stage.fill(1000)
    client, old = stage.bed.client, set((await stage.claims()).values())
    async with stage.operators_away():
        for name in await stage.claims():
            await client.delete(PersistentVolumeClaim, name, namespace=stage.namespace)
        for pod in await stage.pods("redis"):
            await client.delete(Pod, pod.metadata.name or "", namespace=stage.namespace, grace_period=0)

        async def renewed() -> bool:
            claims = set((await stage.claims()).values())
            return len(claims) == 3 and not claims & old

        await stage.bed.until(renewed, "the claims are made again", within=60)
    await stage.exact(60)

    assert await stage.call(await stage.master(), "DBSIZE") == 0
    last = (await stage.status()).last_failover
    assert last is not None
    assert last.loss_bound.startswith("all data")
    events = (await client.list(Event, namespace=stage.namespace)).items
    (warned,) = [
        one
        for one in events
        if one.reason == "DataLost" and one.regarding and one.regarding.name == stage.name
    ]
    assert (warned.type, "all data" in (warned.note or "")) == ("Warning", True)


async def test_everything_restarted_at_once_comes_back_with_every_key(cluster: MakeCluster) -> None:
    stage = await cluster(password="s3cret", sentinel_settings=())
    bed = stage.bed
    await stage.fill(5000)
    master = await stage.master()

    await bed.stop_operators()
    await bed.stop_plane()
    await bed.start_plane()
    await bed.start_operators()
    took = await stage.exact(60)

    assert await stage.master() == master
    for pod in await stage.pods("redis"):
        assert await stage.kept(pod.metadata.name or "", 5000) == 5000
    assert took < 30
