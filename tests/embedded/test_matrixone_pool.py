"""A pool of compute nodes of the real server: warm, claimed, given back, and claimed again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncmy
import pytest
import pytest_asyncio
from tests.embedded.test_matrixone_life import SETTINGS

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
    scalingConfig: {{minDelaySeconds: 1}}{SHARED.replace(chr(10), chr(10) + "  ")}
"""
CLAIM = """
apiVersion: core.matrixorigin.io/v1alpha1
kind: CNClaim
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{pool: default}}}}
  cnLabels: [{{key: account, values: [{name}]}}]
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


async def claimed(bed: Bed, name: str) -> str:
    """Claim the pod, wait until it serves, and ask it something."""
    path = Path(tempfile.mkdtemp(prefix="mooring-claim-"))
    try:
        (path / "claim.yaml").write_text(CLAIM.format(name=name))
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
    assert await claimed(bed, "two") == first
