"""One life of a MatrixOne cluster on its real server: made, scaled out and in, reconfigured, deleted."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncmy
import msgspec
import pytest
import pytest_asyncio
from asyncmy.errors import MySQLError
from bench.matrixone_ramp import autoscale, ramp
from tests.embedded.conftest import make_bed

from mooring.kube import MergePatch
from mooring.kube.objects.core import PersistentVolumeClaim, Pod, Secret, Service
from mooring.local.node.node import Settings
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.types import CNSet, LogSet, MatrixOneCluster
from mooring.operators.workload.credentials import secret_value
from mooring.testing.bed import Bed, KubernetesBed
from mooring.testing.matrixone_stage import MatrixOneStage

pytestmark = [pytest.mark.mo_service, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "matrixone.yaml"
#: The only transaction node is away for a while, and the only proxy breaks its sessions when it is replaced.
ROLL_BREAKS = 2
#: A log store that leads takes up to 11 s to end.
SETTINGS = Settings(crash_backoff_initial=0.5, crash_backoff_cap=2.0, stop_grace_cap=20.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed(request: pytest.FixtureRequest) -> AsyncIterator[Bed | KubernetesBed]:
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with make_bed(request, path, operators=[OPERATOR], settings=SETTINGS) as running:
            await running.apply(EXAMPLE)
            yield running
            await cleared(running)
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def cleared(bed: Bed | KubernetesBed) -> None:
    """Leave no cluster on a control plane that others use after this module."""
    if isinstance(bed, Bed):
        return
    for one in (await bed.client.list(MatrixOneCluster, namespace="default")).items:
        await bed.client.delete(MatrixOneCluster, one.metadata.name or "", namespace="default")

    async def gone() -> bool:
        return not (await bed.client.list(MatrixOneCluster, namespace="default")).items

    await bed.until(gone, "the clusters are gone", within=180, every=0.2)


async def at_rest(bed: Bed) -> bool:
    """The cluster is ready and as declared, at its newest generation."""
    found = await bed.get(MatrixOneCluster, "mo")
    listed = (found.status.conditions if found.status else None) or []
    current = [one for one in listed if one.observed_generation == found.metadata.generation]
    return {one.type for one in current if one.status == "True"} >= {"Ready", "Synced"}


async def settled(bed: Bed, within: float = 240) -> float:
    return await bed.until(
        lambda: at_rest(bed), "the cluster is ready and as declared", within=within, every=0.2
    )


async def edit(bed: Bed, **spec: Any) -> None:
    await bed.client.patch(MatrixOneCluster, "mo", MergePatch({"spec": spec}), namespace="default")


async def group(bed: Bed, **changes: Any) -> None:
    """Change the group of compute nodes, and drop what is None; a merge patch replaces the list."""
    path = MatrixOneCluster.resource.path(namespace="default", name="mo")
    groups = msgspec.json.decode((await bed.client.request("GET", path)).body)["spec"]["cnGroups"]
    made = {**groups[0], **changes}
    await edit(bed, cnGroups=[{name: value for name, value in made.items() if value is not None}])


async def pods(bed: Bed, component: str) -> dict[str, Pod]:
    found = await bed.pods(selector=f"matrixorigin.io/component={component}")
    return {one.metadata.name or "": one for one in found if not one.metadata.deletion_timestamp}


@asynccontextmanager
async def session(bed: Bed) -> AsyncIterator[Any]:
    """A session through the proxy's Service, as the cluster's first SQL user."""
    service = await bed.get(Service, "mo-proxy")
    secret = await bed.get(Secret, "mo-credential")
    assert service.spec is not None
    connection = await asyncmy.connect(
        host=service.spec.cluster_ip,
        port=6001,
        user=secret_value(secret, "username"),
        password=secret_value(secret, "password"),
        autocommit=True,
        connect_timeout=10,
    )
    try:
        async with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


@dataclass
class Load:
    """Rows written one by one over one session through the proxy, and what became of them."""

    first: int
    written: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    breaks: int = 0
    """Times that writes failed after they had succeeded."""
    longest: float = 0.0
    """Seconds between two rows that were acknowledged."""

    async def run(self, bed: Bed, stop: asyncio.Event) -> None:
        began, well = time.monotonic(), True
        number = self.first
        while not stop.is_set():
            with suppress(OSError):
                try:
                    async with session(bed) as cursor:
                        while not stop.is_set():
                            number += 1
                            await asyncio.wait_for(
                                cursor.execute(f"insert into t.numbers values ({number})"), 60
                            )
                            self.longest = max(self.longest, time.monotonic() - began)
                            began, well = time.monotonic(), True
                            self.written.append(number)
                            await asyncio.sleep(0.1)
                except (MySQLError, TimeoutError, asyncio.IncompleteReadError) as error:
                    self.failed.append(str(error))
                    self.breaks += well
                    well = False
                    await asyncio.sleep(0.5)


@asynccontextmanager
async def under_load(bed: Bed, first: int) -> AsyncIterator[Load]:
    load, stop = Load(first), asyncio.Event()
    task = asyncio.create_task(load.run(bed, stop))
    try:
        yield load
    finally:
        stop.set()
        await task


async def rows(bed: Bed) -> set[int]:
    async with session(bed) as cursor:
        await cursor.execute("select n from t.numbers")
        return {one[0] for one in await cursor.fetchall()}


async def answers(bed: Bed) -> bool:
    """The proxy knows of a compute node: it asks HAKeeper every five seconds, and is late on a machine that is busy."""
    try:
        async with session(bed) as cursor:
            await cursor.execute("select 1")
    except MySQLError:
        return False
    return True


async def test_a_cluster_serves_sql_through_its_proxy(bed: Bed) -> None:
    await settled(bed)
    await bed.until(lambda: answers(bed), "the proxy serves", within=60, every=0.5)
    async with session(bed) as cursor:
        await cursor.execute("create database t")
        await cursor.execute("create table t.numbers (n int primary key)")
        await cursor.execute("insert into t.numbers values (0)")
    assert await rows(bed) == {0}
    log = await bed.get(LogSet, "mo")
    assert log.status is not None
    assert {one.state for one in log.status.stores or ()} == {"Serving"}
    assert log.status.formed


async def test_compute_nodes_are_added_and_drained_without_a_failed_statement(bed: Bed) -> None:
    async with under_load(bed, 1) as load:
        await group(bed, replicas=2)
        await settled(bed)
        assert sorted(await pods(bed, "CNSet")) == ["mo-tp-cn-0", "mo-tp-cn-1"]
        await group(bed, replicas=1)
        await settled(bed)
        assert len(await pods(bed, "CNSet")) == 1
    assert load.failed == []
    assert await rows(bed) >= set(load.written)


async def test_a_group_follows_its_sessions_without_a_failed_statement(bed: Bed) -> None:
    policy = autoscale(target=4, up=2, down=4)
    await group(bed, autoscale=policy, scalingConfig={"storeDrainEnabled": True, "minDelaySeconds": 2})
    trace = await ramp(MatrixOneStage(bed), "tp", least=2, most=6, hold=6)
    assert trace[-1].failed == 0
    assert trace[-1].statements > 50
    serving = [one.serving for one in trace]
    assert [one for one, _ in itertools.groupby(serving)] == [1, 2, 1]
    await group(bed, autoscale=None, scalingConfig={"storeDrainEnabled": True})
    await settled(bed)
    found = await bed.get(CNSet, "mo-tp")
    assert found.status is not None
    assert found.status.autoscale is None
    assert len(await pods(bed, "CNSet")) == 1


async def test_a_changed_configuration_is_rolled_through_all_components(bed: Bed) -> None:
    before = {one.metadata.uid for one in await bed.pods()}
    level = '[log]\nlevel = "error"\n'
    async with under_load(bed, 100_000) as load:
        await edit(bed, logService={"config": level}, tn={"config": level}, proxy={"config": level})
        await group(bed, config=level)
        await settled(bed, within=400)
    assert load.breaks <= ROLL_BREAKS, load.failed
    assert load.longest < 40

    async def replaced() -> bool:
        return not before & {one.metadata.uid for one in await bed.pods()}

    # A replaced proxy's pod ends after the new one serves.
    await bed.until(replaced, "no pod of before is left", within=60)
    assert await rows(bed) >= set(load.written)


async def test_a_deleted_cluster_goes_from_the_clients_side_and_takes_its_claims(bed: Bed) -> None:
    await bed.client.delete(MatrixOneCluster, "mo", namespace="default")
    order: list[str] = []

    async def gone() -> bool:
        left = await bed.pods()
        kinds = {(one.metadata.labels or {}).get("matrixorigin.io/component", "") for one in left}
        for kind in ("ProxySet", "CNSet", "DNSet", "LogSet"):
            if kind not in kinds and kind not in order:
                order.append(kind)
        return not left

    await bed.until(gone, "every pod is gone", within=120, every=0.05)
    assert order == ["ProxySet", "CNSet", "DNSet", "LogSet"]

    async def only_the_shared_claim() -> bool:
        left = (await bed.client.list(PersistentVolumeClaim, namespace="default")).items
        return [one.metadata.name for one in left] == ["mo-shared"]

    await bed.until(only_the_shared_claim, "the claims of the log stores are gone", within=30)
