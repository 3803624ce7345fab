"""A pool of compute nodes of the real server: warm, claimed, given back, claimed again, and rolled under its claim."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncmy
import pytest
import pytest_asyncio
from asyncmy.errors import MySQLError
from tests.embedded.test_matrixone_life import SETTINGS, rows, session, under_load

from mooring.kube import MergePatch
from mooring.kube.objects.core import Pod
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.conditions import is_true
from mooring.operators.matrixone.pool.labels import IDLE, PHASE
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


async def claimed(bed: Bed, name: str, labels: str = "[{key: account, values: [one]}]") -> str:
    """Claim the pod, wait until it serves, and ask it something."""
    path = Path(tempfile.mkdtemp(prefix="mooring-claim-"))
    try:
        (path / "claim.yaml").write_text(CLAIM.format(name=name, labels=labels))
        await bed.apply(path / "claim.yaml")
    finally:
        shutil.rmtree(path, ignore_errors=True)

    async def serves() -> bool:
        found = await bed.get(CNClaim, name)
        return found.status is not None and is_true(found.status.conditions, "Ready")

    await bed.until(serves, f"the claim {name} has a pod that serves", within=30)
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
    return pod.metadata.uid or ""


async def test_a_warm_pod_is_claimed_given_back_and_claimed_again(bed: Bed) -> None:
    async def idle() -> bool:
        pool, pod = await bed.get(CNPool, "warm"), await only_pod(bed)
        labels = (pod.metadata.labels if pod is not None else None) or {}
        return labels.get(PHASE) == IDLE and pool.status is not None and pool.status.idle == 1

    await bed.until(idle, "the pool has an idle pod", within=120)
    first = await claimed(bed, "one")
    await bed.client.delete(CNClaim, "one", namespace="default")
    await bed.until(idle, "the pod is idle again", within=60)
    pod = await only_pod(bed)
    assert pod is not None
    assert (pod.metadata.annotations or {})["matrixone.cloud/cn-label"] == "null"
    assert await claimed(bed, "two", labels="[]") == first


async def test_a_changed_template_moves_the_claim_without_a_failed_statement(bed: Bed) -> None:
    async def reached() -> bool:
        try:
            async with session(bed) as cursor:
                await cursor.execute("select 1")
        except MySQLError:
            return False
        return True

    await bed.until(reached, "the proxy knows of the pod", within=60)
    async with session(bed) as cursor:
        await cursor.execute("create database t")
        await cursor.execute("create table t.numbers (n int primary key)")
    [before] = await bed.pods(selector="matrixorigin.io/component=CNSet")
    states: list[tuple[str, bool, str]] = []

    async def moved() -> bool:
        claim = await bed.get(CNClaim, "two")
        found = await bed.pods(selector="matrixorigin.io/component=CNSet")
        assert claim.spec is not None
        assert claim.status is not None
        move = claim.status.migrate
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
            and before.metadata.uid not in {one.metadata.uid for one in found}
        )

    async with under_load(bed, 1) as first, under_load(bed, 100_000) as second:
        scale = {"scaleStrategy": {"maxIdle": 1, "maxPods": 3}}
        changes = {"strategy": scale, "template": {"config": QUIETER}}
        await bed.client.patch(CNPool, "warm", MergePatch({"spec": changes}), namespace="default")
        await bed.until(moved, "the claim has moved and its old pod is gone", within=180)
    assert first.failed == second.failed == []
    assert min(len(first.written), len(second.written)) > 10
    assert all(ready for _, ready, _ in states), states
    assert {reason for _, _, reason in states} == {"", "it runs an older declaration"}
    assert await rows(bed) >= {*first.written, *second.written}
