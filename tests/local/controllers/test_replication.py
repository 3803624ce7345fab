"""ReplicationControllers: planned as ReplicaSets, told as what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.local.controllers.bed import running

from mooring.kube.objects.core import Pod, ReplicationController, ResourceQuota

BODY: dict[str, Any] = {
    "spec": {
        "replicas": 2,
        "selector": {"app": "a"},
        "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        },
    }
}


async def test_pods_are_made_counted_let_go_and_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        await bed.create(ReplicationController, "rc", BODY)

        async def ready(number: int) -> bool:
            status = (await bed.get(ReplicationController, "rc")).status
            return status is not None and (status.ready_replicas or 0) == (status.replicas or 0) == number

        await bed.eventually(lambda: ready(2))
        [first, _] = await bed.list(Pod)
        [owner] = first.metadata.owner_references or []
        assert (owner.kind, owner.name, owner.controller) == ("ReplicationController", "rc", True)

        await bed.patch(Pod, first.metadata.name or "", {"metadata": {"labels": {"app": "other"}}})

        async def released() -> bool:
            pods = await bed.list(Pod)
            return len(pods) == 3 and sum(not pod.metadata.owner_references for pod in pods) == 1

        await bed.eventually(released)
        await bed.patch(ReplicationController, "rc", {"spec": {"replicas": 1}})
        await bed.eventually(lambda: ready(1))
        assert await bed.quiet() == 0


async def test_pods_that_are_refused_show_in_a_condition_until_they_are_not(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        await bed.create(ResourceQuota, "q", {"spec": {"hard": {"pods": "1"}}})
        await bed.create(ReplicationController, "rc", BODY)

        async def failing() -> list[tuple[str | None, str | None]]:
            status = (await bed.get(ReplicationController, "rc")).status
            return [(c.type, c.reason) for c in (status.conditions or ()) if status] if status else []

        async def told() -> bool:
            return await failing() == [("ReplicaFailure", "FailedCreate")]

        await bed.eventually(told)
        await bed.patch(ResourceQuota, "q", {"spec": {"hard": {"pods": "2"}}})

        async def fine() -> bool:
            return await failing() == [] and len(await bed.list(Pod)) == 2

        await bed.eventually(fine)
