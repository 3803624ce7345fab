"""A pool of compute nodes of the real server: warm, claimed, given back, claimed again, and rolled under its claim."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncmy
import pytest
import pytest_asyncio
from asyncmy.errors import MySQLError
from tests.embedded.test_matrixone_life import SETTINGS, rows, session, under_load

from mooring.kube import MergePatch
from mooring.kube.objects.core import Pod
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.conditions import is_true
from mooring.operators.matrixone.names import CN_BASE, CN_UUID, HAKEEPER
from mooring.operators.matrixone.pool.labels import DRAINING, IDLE, PHASE
from mooring.operators.matrixone.rpc.dial import Address, Dial
from mooring.operators.matrixone.rpc.hakeeper import hakeeper
from mooring.operators.matrixone.rpc.messages import (
    CnInfo,
    QueryReply,
    QueryRequest,
    SessionsOf,
    WorkState,
)
from mooring.operators.matrixone.types import CNClaim, CNPool
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.mo_service, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SHARED = """
  overlay:
    volumes: [{name: shared, persistentVolumeClaim: {claimName: mo-shared}}]
    volumeMounts: [{name: shared, mountPath: /shared}]
"""
CACHE = "sharedStorageCache: {memoryCacheSize: 256Mi}"
DEPS = "logSet: {metadata: {name: mo}}"
MANIFEST = f"""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: mo-shared}}
spec:
  accessModes: [ReadWriteMany]
  resources: {{requests: {{storage: 10Gi}}}}
---
apiVersion: core.matrixorigin.io/v1alpha1
kind: LogSet
metadata: {{name: mo}}
spec:
  image: matrixorigin/matrixone:1.2.4
  replicas: 1
  volume: {{size: 5Gi}}
  sharedStorage: {{fileSystem: {{path: /shared}}}}{SHARED}
---
apiVersion: core.matrixorigin.io/v1alpha1
kind: DNSet
metadata: {{name: mo}}
deps: {{{DEPS}}}
spec:
  image: matrixorigin/matrixone:1.2.4
  replicas: 1
  {CACHE}{SHARED}
---
apiVersion: core.matrixorigin.io/v1alpha1
kind: ProxySet
metadata: {{name: mo}}
deps: {{{DEPS}}}
spec:
  image: matrixorigin/matrixone:1.2.4
  replicas: 1{SHARED}
---
apiVersion: v1
kind: Secret
metadata: {{name: mo-credential}}
stringData: {{username: dump, password: "111"}}
---
apiVersion: core.matrixorigin.io/v1alpha1
kind: CNPool
metadata: {{name: warm}}
spec:
  podLabels: {{pool: default}}
  deps:
    {DEPS}
    dnSet: {{metadata: {{name: mo}}}}
  strategy:
    updateStrategy: {{}}
    scaleStrategy: {{maxIdle: 1, maxPods: 1}}
  template:
    image: matrixorigin/matrixone:1.2.4
    {CACHE}
    config: |
      [cn.frontend]
      proxy-enabled = true
    scalingConfig: {{minDelaySeconds: 1}}{SHARED.replace(chr(10), chr(10) + "  ")}
"""
MOVES_WITHIN = 30.0
"""Seconds that the move of a claim may take."""
QUIETER = """
[cn.frontend]
proxy-enabled = true
[log]
level = "error"
"""
CLAIM = """
apiVersion: core.matrixorigin.io/v1alpha1
kind: CNClaim
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{pool: default}}}}
  cnLabels: {labels}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed() -> AsyncIterator[Bed]:
    path = Path(tempfile.mkdtemp(prefix="mooring-bed-"))
    try:
        async with Bed(path, operators=[OPERATOR], settings=SETTINGS) as running:
            (path / "pool.yaml").write_text(MANIFEST)
            await running.apply(path / "pool.yaml")
            yield running
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def only_pod(bed: Bed) -> Pod | None:
    found = await bed.pods(selector="matrixorigin.io/component=CNSet")
    return found[0] if len(found) == 1 else None


async def declare(bed: Bed, name: str, labels: str) -> None:
    path = Path(tempfile.mkdtemp(prefix="mooring-claim-"))
    try:
        (path / "claim.yaml").write_text(CLAIM.format(name=name, labels=labels))
        await bed.apply(path / "claim.yaml")
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def serving(bed: Bed, name: str) -> Pod:
    """The pod of a claim, once it serves and has answered."""

    async def serves() -> bool:
        found = await bed.get(CNClaim, name)
        return found.status is not None and is_true(found.status.conditions, "Ready")

    await bed.until(serves, f"the claim {name} has a pod that serves", within=60)
    found = await bed.get(CNClaim, name)
    assert found.spec is not None
    pod = await bed.get(Pod, found.spec.pod_name or "")
    assert pod.status is not None
    connection = await asyncmy.connect(
        host=pod.status.pod_ip, port=6001, user="dump", password="111", connect_timeout=10
    )
    async with connection.cursor() as cursor:
        await cursor.execute("select 1")
        assert list(await cursor.fetchall()) == [(1,)]
    connection.close()
    return pod


async def store_of(bed: Bed, pod: Pod) -> CnInfo:
    """What HAKeeper knows of the compute node of a pod."""
    [log] = await bed.pods(selector="matrixorigin.io/component=LogSet")
    assert log.status is not None
    async with hakeeper(Dial(), [Address(log.status.pod_ip or "", HAKEEPER)]) as keeper:
        return (await keeper.state()).cn.stores[(pod.metadata.labels or {})[CN_UUID]]


async def proxied(bed: Bed, pod: Pod) -> set[int]:
    """The connections through the proxy that the compute node of a pod lists."""
    assert pod.status is not None
    async with Dial().link(Address(pod.status.pod_ip or "", CN_BASE + 2)) as link:
        reply = await link.call(QueryRequest(sessions=SessionsOf()), QueryReply)
    assert reply.sessions is not None
    return {one.connection_id for one in reply.sessions.sessions if one.from_proxy}


async def reached(bed: Bed) -> bool:
    try:
        async with session(bed) as cursor:
            await cursor.execute("select 1")
    except MySQLError:
        return False
    return True


async def one(cursor: Any, statement: str) -> Any:
    """The only value of the only row."""
    await cursor.execute(statement)
    [[value]] = await cursor.fetchall()
    return value


@asynccontextmanager
async def in_use(bed: Bed, pod: Pod, number: int) -> AsyncIterator[tuple[Any, int]]:
    """A session through the proxy with a setting of its own and a row that is not committed; and its connection."""
    await bed.until(lambda: reached(bed), "the proxy knows of the pod", within=60)
    async with session(bed) as cursor:
        await cursor.execute("create database if not exists t")
        await cursor.execute("create table if not exists t.numbers (n int primary key)")
        await cursor.execute("set session time_zone = '+05:00'")
        await cursor.execute("set @user_before = 'one'")
        await cursor.execute("begin")
        await cursor.execute(f"insert into t.numbers values ({number})")
        [connection] = await proxied(bed, pod)
        yield cursor, connection


async def given_back_in_use(bed: Bed, name: str, pod: Pod, cursor: Any) -> None:
    """Delete the claim of a pod and wait until it drains; its session goes on."""
    await bed.client.delete(CNClaim, name, namespace="default")

    async def drains() -> bool:
        found = await bed.get(Pod, pod.metadata.name or "")
        store = await store_of(bed, pod)
        return (found.metadata.labels or {}).get(PHASE) == DRAINING and store.work_state is WorkState.DRAINING

    await bed.until(drains, "the pod drains", within=30)
    assert await one(cursor, "select @user_before") == "one"


async def nothing_left(bed: Bed, pod: Pod, before: int, number: int, labels: dict[str, list[str]]) -> float:
    """Assert that the next user finds nothing of the one before; returns the seconds of its insert of the same row."""
    store = await store_of(bed, pod)
    assert {key: list(value.labels) for key, value in store.labels.items()} == labels
    assert store.work_state is WorkState.WORKING
    assert before not in await proxied(bed, pod)
    await bed.until(lambda: reached(bed), "the proxy knows of the pod", within=60)
    async with session(bed) as cursor:
        assert await one(cursor, "select @@time_zone") != "+05:00"
        assert await one(cursor, "select @user_before") is None
        assert await one(cursor, f"select count(*) from t.numbers where n = {number}") == 0
        return await inserted(cursor, number)


async def inserted(cursor: Any, number: int) -> float:
    """Insert a row; returns the seconds that it took."""
    began = time.monotonic()
    await asyncio.wait_for(cursor.execute(f"insert into t.numbers values ({number})"), 90)
    took = time.monotonic() - began
    sys.stderr.write(f"\nrow {number}: {took:.2f} s\n")
    return took


async def test_a_warm_pod_is_claimed_given_back_in_use_and_claimed_again(bed: Bed) -> None:
    async def idle() -> bool:
        pool, pod = await bed.get(CNPool, "warm"), await only_pod(bed)
        labels = (pod.metadata.labels if pod is not None else None) or {}
        return labels.get(PHASE) == IDLE and pool.status is not None and pool.status.idle == 1

    await bed.until(idle, "the pool has an idle pod", within=120)
    await declare(bed, "one", "[{key: account, values: [sys]}, {key: whose, values: [one]}]")
    pod = await serving(bed, "one")
    async with in_use(bed, pod, 1) as (cursor, connection):
        await given_back_in_use(bed, "one", pod, cursor)
        await declare(bed, "two", "[{key: whose, values: [two]}]")
        await bed.until(lambda: waits(bed, "two"), "the next claim waits for the session", within=30)
    again = await serving(bed, "two")
    assert again.metadata.uid == pod.metadata.uid
    assert await nothing_left(bed, again, connection, 1, {"whose": ["two"]}) < 5


async def waits(bed: Bed, name: str) -> bool:
    found = await bed.get(CNClaim, name)
    listed = (found.status.conditions if found.status is not None else None) or ()
    return "NoIdlePod" in {each.reason for each in listed}


async def test_a_changed_template_moves_the_claim_without_a_failed_statement(bed: Bed) -> None:
    await bed.until(lambda: reached(bed), "the proxy knows of the pod", within=60)
    [before] = await bed.pods(selector="matrixorigin.io/component=CNSet")
    states: list[tuple[str, bool, str]] = []
    turns: list[float] = []
    """When the move began, and when its old pod had no session left."""

    async def moved() -> bool:
        claim = await bed.get(CNClaim, "two")
        found = await bed.pods(selector="matrixorigin.io/component=CNSet")
        assert claim.spec is not None
        assert claim.status is not None
        move = claim.status.migrate
        if (move is not None) is (len(turns) % 2 == 0):
            turns.append(time.monotonic())
        state = (
            claim.spec.pod_name or "",
            is_true(claim.status.conditions, "Ready"),
            (move and move.reason) or "",
        )
        if state not in states:
            states.append(state)
        return (
            move is None
            and len(states) > 1
            and before.metadata.uid not in {each.metadata.uid for each in found}
        )

    async with under_load(bed, 1) as first, under_load(bed, 100_000) as second:
        scale = {"scaleStrategy": {"maxIdle": 1, "maxPods": 3}}
        changes = {"strategy": scale, "template": {"config": QUIETER}}
        await bed.client.patch(CNPool, "warm", MergePatch({"spec": changes}), namespace="default")
        await bed.until(moved, "the claim has moved and its old pod is gone", within=180)
    assert first.failed == second.failed == []
    began, ended = turns
    waited = max(first.longest, second.longest)
    sys.stderr.write(f"\nthe move took {ended - began:.1f} s, {waited:.2f} s without a row\n")
    assert ended - began < MOVES_WITHIN
    assert min(len(first.written), len(second.written)) > 10
    assert all(ready for _, ready, _ in states), states
    assert {reason for _, _, reason in states} == {"", "it runs an older declaration"}
    assert await rows(bed) >= {*first.written, *second.written}


@pytest.mark.nightly
async def test_a_session_that_stays_has_its_pod_replaced_and_locks_its_rows_until_it_ends(bed: Bed) -> None:
    async def alone() -> bool:
        return await only_pod(bed) is not None

    await configure(bed, strategy={"scaleStrategy": {"maxIdle": 0, "maxPods": 1}})
    await bed.until(alone, "the idle pod is gone", within=90)
    pod = await serving(bed, "two")
    async with in_use(bed, pod, -2) as (cursor, connection):
        await given_back_in_use(bed, "two", pod, cursor)
        await configure(bed, template={"scalingConfig": {"storeDrainTimeout": "1s"}})
        await declare(bed, "three", "[{key: whose, values: [three]}]")
        again = await serving(bed, "three")
        assert again.metadata.uid != pod.metadata.uid
        await bed.until(lambda: reached(bed), "the proxy knows of the pod", within=60)
        async with session(bed) as other:
            assert await inserted(other, -3) < 5
        # The pod ends while its session is open: up to 20 s in its preStop hook, then as long as its process takes.
        assert await nothing_left(bed, again, connection, -2, {"whose": ["three"]}) < 60


async def configure(bed: Bed, **spec: Any) -> None:
    await bed.client.patch(CNPool, "warm", MergePatch({"spec": spec}), namespace="default")
