"""The controllers together, on the embedded API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.local.controllers.plane import Plane, keys, running

from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import PersistentVolume, PersistentVolumeClaim, Pod, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.kube.objects.events import Event


def stateful(name: str = "redis", replicas: int = 3, *, claims: bool = False, **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "redis:7"}]},
    }
    body: dict[str, Any] = {
        "replicas": replicas,
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
        **spec,
    }
    if claims:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    return {"spec": body}


async def all_ready(plane: Plane, name: str = "redis", replicas: int = 3) -> None:
    async def ready() -> bool:
        status = (await plane.get(StatefulSet, name)).status
        return status is not None and status.ready_replicas == replicas == status.updated_replicas

    await plane.eventually(ready, f"{name} ready")


async def test_a_stateful_set_with_volumes_and_a_service_comes_up_and_then_nothing_is_written(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (plane, _):
        service = {"spec": {"selector": {"app": "redis"}, "clusterIP": "None", "ports": [{"port": 6379}]}}
        await plane.create(Service, "redis", service)
        await plane.create(StatefulSet, "redis", stateful(claims=True))
        await all_ready(plane)
        volumes = await plane.list(PersistentVolume)
        assert len(volumes) == 3
        for volume in volumes:
            assert volume.spec is not None
            assert volume.spec.local is not None
            assert await asyncio.to_thread(Path(volume.spec.local.path or "").is_dir)

        async def endpoints() -> bool:
            (found,) = await plane.list(EndpointSlice)
            hosts = [e.hostname for e in found.endpoints or () if e.conditions and e.conditions.ready]
            return hosts == ["redis-0", "redis-1", "redis-2"]

        await plane.eventually(endpoints, "three ready endpoints")
        assert await plane.quiet() == 0
        reasons = {event.reason for event in await plane.list(Event)}
        assert {"SuccessfulCreate", "Scheduled", "ProvisioningSucceeded"} <= reasons


async def test_a_pod_that_fits_nowhere_says_why_and_runs_when_there_is_room(tmp_path: Path) -> None:
    async with running(tmp_path) as (plane, _):
        requests = {"resources": {"requests": {"memory": "12Gi"}}}
        body = {"spec": {"containers": [{"name": "a", "image": "a", **requests}]}}
        await plane.create(Pod, "first", body)
        await plane.create(Pod, "second", body)

        async def refused() -> bool:
            pod = await plane.get(Pod, "second")
            found = (
                [c for c in (pod.status.conditions or ()) if c.type == "PodScheduled"] if pod.status else []
            )
            return [(c.status, c.reason, c.message) for c in found] == [
                ("False", "Unschedulable", "0/1 nodes are available: 1 Insufficient memory.")
            ]

        await plane.eventually(refused, "second refused")
        assert await plane.quiet() == 0
        await plane.client.delete(Pod, "first", namespace="default", grace_period=0)

        async def bound() -> bool:
            pod = await plane.get(Pod, "second")
            return bool(pod.spec and pod.spec.node_name == "n1")

        await plane.eventually(bound, "second bound")


async def test_deleting_a_claim_waits_for_its_pod_and_takes_the_directory_along(tmp_path: Path) -> None:
    async with running(tmp_path) as (plane, _):
        await plane.create(StatefulSet, "redis", stateful(replicas=1, claims=True))
        await all_ready(plane, replicas=1)
        (volume,) = await plane.list(PersistentVolume)
        await plane.client.delete(PersistentVolumeClaim, "data-redis-0", namespace="default")
        await plane.quiet()
        assert keys(await plane.list(PersistentVolumeClaim)) == ["data-redis-0"]
        await plane.patch(StatefulSet, "redis", {"spec": {"replicas": 0}})
        await plane.gone(PersistentVolumeClaim, "data-redis-0")
        await plane.gone(PersistentVolume, volume.metadata.name or "")
        assert list((tmp_path / "volumes").iterdir()) == []


async def test_a_rolling_update_replaces_pods_one_by_one_and_a_broken_one_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as (plane, kubelet):
        kubelet.broken = lambda pod: bool(
            pod.spec and pod.spec.containers and pod.spec.containers[0].image == "broken"
        )
        await plane.create(StatefulSet, "redis", stateful())
        await all_ready(plane)
        image = {"containers": [{"name": "main", "image": "redis:8"}]}
        await plane.patch(StatefulSet, "redis", {"spec": {"template": {"spec": image}}})

        async def rolled() -> bool:
            status = (await plane.get(StatefulSet, "redis")).status
            assert status is not None
            return status.current_revision == status.update_revision and status.updated_replicas == 3

        await plane.eventually(rolled, "rolled out")
        broken = {"containers": [{"name": "main", "image": "broken"}]}
        await plane.patch(StatefulSet, "redis", {"spec": {"template": {"spec": broken}}})

        async def halted() -> bool:
            status = (await plane.get(StatefulSet, "redis")).status
            assert status is not None
            return (status.updated_replicas, status.ready_replicas) == (1, 2)

        await plane.eventually(halted, "halted at the first broken pod")
        assert await plane.quiet() == 0
