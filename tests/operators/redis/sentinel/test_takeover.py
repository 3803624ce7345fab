"""UCloud's operator that still runs: its lock is seen, its clusters are left to it, and taken over once it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.actor.greetings import Noting
from tests.operators.redis.sentinel.test_actor import (
    NAMESPACE,
    conditions,
    declare,
    eventually,
    first,
    operating,
    there,
)

from mooring.kube import Client, MergePatch, TransportError
from mooring.kube.object import Key, decode, to_dict
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import ConfigMap, Namespace, Pod, Service
from mooring.kube.transport import Response, Transport
from mooring.local.api.server import ApiServer
from mooring.operators.redis.sentinel import RedisCluster
from mooring.operators.redis.sentinel.names import Component, labels_of
from mooring.operators.redis.sentinel.takeover import FRESH, LOCK, LOOK_FOR_PREDECESSOR, Predecessor
from mooring.testing import VirtualClock

LEGACY = "legacy"
LEADER = "redis-operator-5d4f"


class Asked:
    """A transport that notes the looks for locks and for their owners; ``broken`` lets them fail."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close
        self.looks: list[str] = []
        self.broken = False

    async def request(self, method: str, path: str, **options: Any) -> Response:
        selector = (options.get("query") or {}).get("fieldSelector", "")
        if method == "GET" and selector in (f"metadata.name={LOCK}", f"metadata.name={LEADER}"):
            self.looks.append(path)
            if self.broken:
                raise TransportError("the API server does not answer")
        return await self._inner.request(method, path, **options)


@asynccontextmanager
async def looking(
    *, namespaced: bool = False
) -> AsyncIterator[tuple[Client, Predecessor, Asked, VirtualClock]]:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await client.create(decode({"metadata": {"name": LEGACY}}, Namespace))
        asked, clock = Asked(server.transport()), VirtualClock(datetime.now(UTC))
        yield client, Predecessor(Client(asked), clock, namespaced=namespaced), asked, clock


async def leads(client: Client, *, phase: str = "Running", namespace: str = LEGACY, **owner: Any) -> Pod:
    """A Pod of UCloud's operator, in a phase, and the lock that names it; ``owner`` changes what the lock says."""
    pod = {
        "metadata": {"name": LEADER, "namespace": namespace},
        "spec": {"nodeName": "one", "containers": [{"name": "operator", "image": "redis-operator"}]},
    }
    made = await client.create(decode(pod, Pod))
    status = MergePatch({"status": {"phase": phase}})
    made = await client.patch(Pod, LEADER, status, namespace=namespace, subresource="status")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": LEADER, "uid": made.metadata.uid, **owner}
    lock = {"metadata": {"name": LOCK, "namespace": namespace, "ownerReferences": [reference]}}
    await client.create(decode(lock, ConfigMap))
    return made


async def ends(client: Client) -> None:
    await client.delete(Pod, LEADER, namespace=LEGACY, grace_period=0)


# --- the lock ----------------------------------------------------------------------------------------------


async def test_without_a_lock_nobody_leads_and_one_read_tells() -> None:
    async with looking() as (_, predecessor, asked, _):
        assert await predecessor.leader(NAMESPACE) is None
        assert asked.looks == ["/api/v1/configmaps"]


async def test_whoever_owns_the_lock_and_lives_leads_in_whatever_namespace() -> None:
    async with looking() as (client, predecessor, asked, _):
        await leads(client)
        assert await predecessor.leader(NAMESPACE) == Key(LEGACY, LEADER)
        assert asked.looks == ["/api/v1/configmaps", f"/api/v1/namespaces/{LEGACY}/pods"]


@pytest.mark.parametrize("phase", ["Pending", "Unknown"])
async def test_a_pod_of_which_nobody_knows_that_it_ended_lives(phase: str) -> None:
    async with looking() as (client, predecessor, _, _):
        await leads(client, phase=phase)
        assert await predecessor.leader(NAMESPACE) == Key(LEGACY, LEADER)


@pytest.mark.parametrize(
    "how",
    [
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"uid": "of-one-that-is-gone"},
        {"name": "one-that-is-gone"},
        {"kind": "ConfigMap"},
    ],
)
async def test_a_lock_whose_owner_has_ended_is_nobodys(how: dict[str, str]) -> None:
    async with looking() as (client, predecessor, _, _):
        await leads(client, **how)
        assert await predecessor.leader(NAMESPACE) is None


async def test_a_leader_that_is_being_deleted_lives_until_its_grace_is_over() -> None:
    async with looking() as (client, predecessor, _, clock):
        await leads(client)
        await client.delete(Pod, LEADER, namespace=LEGACY, grace_period=30)
        await clock.advance(25)
        assert await predecessor.leader(NAMESPACE) == Key(LEGACY, LEADER)
        await clock.advance(10)
        assert await predecessor.leader(NAMESPACE) is None


async def test_one_look_serves_all_clusters_for_some_seconds() -> None:
    async with looking() as (client, predecessor, asked, clock):
        await leads(client)
        assert set(await asyncio.gather(*(predecessor.leader(f"n{at}") for at in range(50)))) == {
            Key(LEGACY, LEADER)
        }
        assert len(asked.looks) == 2
        await ends(client)
        await clock.advance(FRESH)
        assert await predecessor.leader(NAMESPACE) is None
        assert len(asked.looks) == 4


async def test_within_a_namespace_only_that_one_is_asked() -> None:
    async with looking(namespaced=True) as (client, predecessor, asked, _):
        await leads(client)
        assert await predecessor.leader(NAMESPACE) is None
        assert await predecessor.leader(LEGACY) == Key(LEGACY, LEADER)
        assert asked.looks[0] == f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        assert "/api/v1/configmaps" not in asked.looks


async def test_a_look_that_fails_tells_nothing_and_is_made_again() -> None:
    async with looking() as (client, predecessor, asked, _):
        await leads(client)
        asked.broken = True
        with pytest.raises(TransportError):
            await predecessor.leader(NAMESPACE)
        asked.broken = False
        assert await predecessor.leader(NAMESPACE) == Key(LEGACY, LEADER)


# --- the clusters ------------------------------------------------------------------------------------------


async def left(client: Client) -> None:
    """What UCloud's operator made of a cluster, as far as it matters here."""
    await client.create(decode({"metadata": {"name": LEGACY}}, Namespace))
    names: dict[Component, str] = {"redis": "redis-cluster-shop", "sentinel": "redis-sentinel-shop"}
    for component, name in names.items():
        labels = labels_of(NAMESPACE, "shop", component)
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        ports = [{"name": component, "port": 6379 if component == "redis" else 26379}]
        service: dict[str, Any] = {"ports": ports, "selector": labels}
        if component == "redis":
            service["clusterIP"] = "None"
        await client.create(decode({"metadata": metadata, "spec": service}, Service))
        container = {"name": component, "image": "redis:5.0.4-alpine"}
        spec = {
            "serviceName": name,
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        }
        await client.create(decode({"metadata": metadata, "spec": spec}, StatefulSet))


async def adopted(client: Client) -> bool:
    """Both of its sets belong to the custom resource."""
    sets = (await client.list(StatefulSet, namespace=NAMESPACE)).items
    return len(sets) == 2 and all(one.metadata.owner_references for one in sets)


def written(noting: Noting) -> set[str]:
    """What was written, without Events."""
    return {path.rpartition("/redisclusters/")[2] for _, path, _ in noting.writes if "/events" not in path}


async def test_a_cluster_is_left_to_a_leader_that_lives_and_taken_over_once_that_has_ended() -> None:
    noted: list[Noting] = []
    asking: list[Asked] = []
    clock = VirtualClock(datetime.now(UTC))
    async with operating(noted=noted, through=asking_into(asking), clock=clock) as (client, _, _):
        await left(client)
        await leads(client)
        before = [to_dict(one) for one in (await client.list(StatefulSet, namespace=NAMESPACE)).items]
        await declare(client)

        said = {entry.type: entry for entry in await eventually(lambda: conditions(client))}
        assert list(said) == ["Ready", "Progressing", "Stalled"]  # UCloud's own are left to it
        assert {entry.reason for entry in said.values()} == {"LegacyOperatorRunning"}
        assert [entry.status for entry in said.values()] == ["False", "False", "True"]
        assert f"{LEGACY}/{LEADER}" in (said["Ready"].message or "")
        assert "scale its Deployment to 0" in (said["Ready"].message or "")

        async def looked_often() -> bool:
            await clock.advance(LOOK_FOR_PREDECESSOR)
            return len(asking[0].looks) >= 10

        await eventually(looked_often)
        assert written(noted[0]) == {"shop/status"}
        assert len(noted[0].of("/status")) == 1
        assert [to_dict(one) for one in (await client.list(StatefulSet, namespace=NAMESPACE)).items] == before

        await ends(client)

        async def taken() -> bool:
            await clock.advance(LOOK_FOR_PREDECESSOR)
            return await adopted(client)

        await eventually(taken)
        await eventually(first(client, "Creating"))


async def test_a_cluster_is_taken_over_when_nobody_leads() -> None:
    async with operating() as (client, _, _):
        await left(client)
        await declare(client)
        await eventually(lambda: adopted(client))


async def test_nothing_is_taken_over_while_the_lock_cannot_be_read() -> None:
    noted: list[Noting] = []
    asking: list[Asked] = []
    async with operating(noted=noted, through=asking_into(asking, broken=True)) as (client, _, _):
        await left(client)
        await declare(client)
        await eventually(lambda: some(len(asking[0].looks) >= 3))
        assert written(noted[0]) == set()

        asking[0].broken = False
        await eventually(lambda: adopted(client))


async def test_a_cluster_that_is_ours_never_asks() -> None:
    asking: list[Asked] = []
    async with operating(through=asking_into(asking)) as (client, _, _):
        await client.create(decode({"metadata": {"name": LEGACY}}, Namespace))
        await leads(client)
        await declare(client)
        await eventually(first(client, "Creating"))
        patch = MergePatch({"spec": {"config": {"databases": "32"}}})
        await client.patch(RedisCluster, "shop", patch, namespace=NAMESPACE)
        await client.delete(Service, "redis-cluster-shop", namespace=NAMESPACE)
        await eventually(there(client, Service, "redis-cluster-shop"))
        assert asking[0].looks == []


async def test_a_cluster_is_left_to_an_old_operator_that_is_started_again_and_replaces_a_set() -> None:
    async with operating() as (client, _, _):
        await client.create(decode({"metadata": {"name": LEGACY}}, Namespace))
        await declare(client)
        made = await eventually(there(client, StatefulSet, "redis-sentinel-shop"))
        await leads(client)
        body = to_dict(made)
        body["metadata"]["annotations"] = {}
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/redis-sentinel-shop"
        del body["metadata"]["resourceVersion"]
        await client.request("PUT", path, body=msgspec.json.encode(body))

        async def told() -> bool:
            return any(entry.reason == "LegacyOperatorRunning" for entry in await conditions(client))

        await eventually(told)


def asking_into(found: list[Asked], *, broken: bool = False) -> Any:
    """How `operating` comes to a transport of ours."""

    def through(inner: Transport) -> Transport:
        found.append(Asked(inner))
        found[0].broken = broken
        return found[0]

    return through


async def some(value: bool) -> bool:
    return value
