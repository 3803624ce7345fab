"""Real Redis servers of both kinds: what is in the way of one child object keeps nobody from looking after them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.operators.redis.cluster.stage import Stage
from tests.operators.redis.cluster.stage import manifest as of_nodes

from mooring.kube import MergePatch
from mooring.kube.objects.core import Pod
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.operators.registry import choose
from mooring.testing.bed import Bed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.nightly, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("kind", "budget", "pod"),
    [("sentinel", "redis-cluster-demo", "redis-cluster-demo-0"), ("cluster", "demo", "demo-0")],
)
async def test_a_server_comes_back_while_the_name_of_a_child_is_taken(
    tmp_path: Path, kind: str, budget: str, pod: str
) -> None:
    async with Bed(tmp_path, operators=choose(f"redis-{kind}")) as bed:
        stage: RedisStage | Stage
        if kind == "sentinel":
            stage = RedisStage(bed, "demo")
            await bed.apply(manifest("demo"))
            await stage.exact(within=120)
        else:
            stage = Stage(bed, "demo")
            await bed.apply(of_nodes("demo", replicas=6))
            await stage.exact(6, within=120)

        async def stands(condition: str, status: str, reason: str = "") -> bool:
            found = await stage.status()
            listed = getattr(found, "standard_conditions", None) or found.conditions or ()
            one = next((one for one in listed if one.type == condition), None)
            return one is not None and one.status == status and (not reason or one.reason == reason)

        async def ready() -> bool:
            found = (await bed.get(Pod, pod)).status
            listed = (found.conditions or ()) if found is not None else ()
            return any(one.type == "Ready" and one.status == "True" for one in listed)

        async def restarted() -> bool:
            found = (await bed.get(Pod, pod)).status
            counts = [one.restart_count or 0 for one in (found.container_statuses or ())] if found else []
            return sum(counts) > 0 and await ready()

        body = MergePatch({"metadata": {"ownerReferences": None, "labels": None}})
        await bed.client.patch(PodDisruptionBudget, budget, body, namespace="default")
        await bed.until(lambda: stands("Stalled", "True", "NameTaken"), "it is said", within=30)
        assert await stands("Ready", "True")

        bed.kill("default", pod, "redis", 9)
        await bed.until(restarted, "the server is back and serves", within=60)
        await bed.until(lambda: stands("Stalled", "True", "NameTaken"), "it is said again", within=30)
        assert await stands("Ready", "True")

        await bed.client.delete(PodDisruptionBudget, budget, namespace="default")
        await bed.until(lambda: stands("Stalled", "False"), "nothing is in the way", within=60)
