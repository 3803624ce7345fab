"""The actor on a whole API server (in memory), before any pod runs: children, conditions, bad input, scope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.actor.greetings import Noting

from mooring.cache import NotCached
from mooring.kube import Client, MergePatch, NotFound, metadata_of
from mooring.kube.object import Key, decode, owner_reference
from mooring.kube.objects.apps import StatefulSet, StatefulSetUpdateStrategy
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import ConfigMap, Container, Pod, PodSpec, Secret, Service
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import StrategicMergePatch
from mooring.kube.transport import Transport
from mooring.local.api.http import Answer, Request
from mooring.local.api.server import ApiServer
from mooring.operators.redis.sentinel import KINDS, RedisCluster, register
from mooring.operators.redis.sentinel.names import labels_of
from mooring.operators.redis.sentinel.types import LegacyCondition
from mooring.runtime import Clock, Manager, rfc3339
from mooring.runtime.crd import render_crd
from mooring.testing.clock import VirtualClock

NAMESPACE = "default"


@asynccontextmanager
async def operating(
    *,
    scope: str = "all",
    noted: list[Noting] | None = None,
    through: Callable[[Transport], Transport] = lambda inner: inner,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Client, Manager, ApiServer]]:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        for kind in KINDS:
            body = msgspec.json.encode(render_crd(kind))
            await client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)
        noting = Noting(through(server.transport()))
        if noted is not None:
            noted.append(noting)
        manager = Manager(Client(noting), name="redis-sentinel", clock=clock)
        register(manager, scope=scope)
        task = asyncio.create_task(manager.run())
        try:
            yield client, manager, server
        finally:
            manager.stop()
            await asyncio.wait_for(task, 15)


async def declare(
    client: Client, name: str = "shop", annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations or {}}
    await client.create(decode({"metadata": metadata, "spec": spec}, RedisCluster))


async def eventually(check: Callable[[], Any], *, within: float = 30.0) -> Any:
    found: Any = None
    try:
        async with asyncio.timeout(within):
            while not (found := await check()):
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {within} s; last seen: {found}") from None
    return found


async def conditions(client: Client, name: str = "shop") -> list[LegacyCondition]:
    status = (await client.get(RedisCluster, name, namespace=NAMESPACE)).status
    return list((status and status.conditions) or [])


def first(client: Client, kind: str, name: str = "shop") -> Callable[[], Any]:
    async def check() -> LegacyCondition | None:
        found = await conditions(client, name)
        return found[0] if found and found[0].type == kind else None

    return check


def there(client: Client, kind: type[Any], name: str) -> Callable[[], Any]:
    async def check() -> Any:
        try:
            return await client.get(kind, name, namespace=NAMESPACE)
        except NotFound:
            return None

    return check


async def test_a_declared_cluster_gets_its_children_and_says_that_it_is_created() -> None:
    async with operating() as (client, _, _):
        await declare(client, password="secret-word")
        await eventually(there(client, StatefulSet, "redis-sentinel-shop"))
        head = await eventually(first(client, "Creating"))
        assert (head.reason, head.message, head.status) == ("Creating", "Bootstrap redis cluster", "True")
        types = [entry.type for entry in await conditions(client)]
        assert types == ["Creating", "Ready", "Progressing", "Stalled"]


async def test_a_deleted_child_is_brought_back_at_once() -> None:
    async with operating() as (client, _, _):
        await declare(client)
        for kind, name in (
            (Service, "redis-sentinel-shop"),
            (ConfigMap, "redis-live-shop"),
            (StatefulSet, "redis-cluster-shop"),
        ):
            old = await eventually(there(client, kind, name))
            await client.delete(kind, name, namespace=NAMESPACE)

            async def anew(kind: Any = kind, name: str = name, old: Any = old) -> bool:
                found = await there(client, kind, name)()
                return found is not None and found.metadata.uid != old.metadata.uid

            await eventually(anew)


async def test_a_set_that_rolled_by_itself_is_taken_over_though_its_strategy_was_defaulted() -> None:
    async with operating() as (client, _, _):
        labels = labels_of(NAMESPACE, "shop", "redis")
        container = {"name": "redis", "image": "redis:5.0.4-alpine"}
        old = {
            "metadata": {"name": "redis-cluster-shop", "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "serviceName": "redis-cluster-shop",
                "replicas": 3,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        made = await client.create(decode(old, StatefulSet))
        assert made.spec
        assert made.spec.update_strategy
        assert made.spec.update_strategy.rolling_update is not None
        template = made.spec.template
        await declare(client)

        async def taken() -> bool:
            found = await client.get(StatefulSet, "redis-cluster-shop", namespace=NAMESPACE)
            owners = [one.kind for one in found.metadata.owner_references or ()]
            assert found.spec
            assert found.spec.template == template  # nothing restarts
            return owners == ["RedisCluster"] and found.spec.update_strategy == StatefulSetUpdateStrategy(
                type="OnDelete"
            )

        await eventually(taken)


def mounted(one: StatefulSet) -> str:
    """Name of the ConfigMap with the scripts that the template mounts."""
    assert one.spec
    assert one.spec.template
    assert one.spec.template.spec
    found = next(volume for volume in one.spec.template.spec.volumes or () if volume.name == "conf")
    assert found.config_map
    return found.config_map.name or ""


async def made(client: Client, manager: Manager) -> None:
    """Wait until the last of the children is there, the status says so and the operator rests."""
    await eventually(there(client, StatefulSet, "redis-sentinel-shop"))
    await eventually(first(client, "Creating"))

    async def rests() -> bool:
        return manager.idle

    await eventually(rests)


async def test_what_the_last_good_template_mounts_is_kept_while_a_roll_may_be_taken_back() -> None:
    def databases(count: int) -> MergePatch:
        return MergePatch({"spec": {"config": {"databases": str(count)}}})

    async with operating() as (client, manager, _):
        await declare(client)
        good = mounted(await eventually(there(client, StatefulSet, "redis-cluster-shop")))
        await made(client, manager)
        roll = {"redis": {"inputs": "new", "good": "old", "revision": "r1"}}
        await client.patch(
            RedisCluster,
            "shop",
            MergePatch({"status": {"rolls": roll}}),
            namespace=NAMESPACE,
            subresource="status",
        )
        before = {one.metadata.name for one in (await client.list(ConfigMap, namespace=NAMESPACE)).items}

        async def added() -> str:
            now = {one.metadata.name for one in (await client.list(ConfigMap, namespace=NAMESPACE)).items}
            return next(iter(sorted(name or "" for name in now - before)), "")

        await client.patch(RedisCluster, "shop", databases(32), namespace=NAMESPACE)
        newer = await eventually(added)
        volumes = [{"name": "conf", "configMap": {"name": newer}}]
        template = {"spec": {"template": {"spec": {"volumes": volumes}}}}
        await client.patch(
            StatefulSet, "redis-cluster-shop", StrategicMergePatch(template), namespace=NAMESPACE
        )
        before.add(newer)
        await client.patch(RedisCluster, "shop", databases(33), namespace=NAMESPACE)
        await eventually(added)
        assert await there(client, ConfigMap, good)()

        await client.patch(
            RedisCluster,
            "shop",
            MergePatch({"status": {"rolls": None}}),
            namespace=NAMESPACE,
            subresource="status",
        )
        await client.patch(RedisCluster, "shop", databases(34), namespace=NAMESPACE)

        async def gone() -> bool:
            return await there(client, ConfigMap, good)() is None

        await eventually(gone)


def writes(manager: Manager) -> float:
    requests = manager.metrics.requests.items()
    return sum(count for (_, method, _), count in requests if method not in ("GET", "WATCH"))


async def passes(clock: VirtualClock, manager: Manager, *, minutes: int = 2) -> None:
    """Let virtual time pass, a second at a time, and every pass that it brings end."""

    async def rests() -> bool:
        await clock.settle()
        return manager.idle

    for _ in range(minutes * 60):
        await clock.advance(1.0)
        await eventually(rests)


async def test_nothing_is_written_while_nothing_changes() -> None:
    clock = VirtualClock()
    async with operating(clock=clock) as (client, manager, _):
        await declare(client)
        await made(client, manager)

        async def quiet() -> bool:
            before, passed = writes(manager), looks(manager)
            await passes(clock, manager)
            return writes(manager) == before and looks(manager) > passed + 50

        await eventually(quiet)


def looks(manager: Manager) -> int:
    """How many passes there were."""
    controller = next(one for one in manager.controllers if one.name == "redis-sentinel")
    return sum(controller.stats.results.values())


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"shutdownConfigMap": "missing"}, "ShutdownConfigMapMissing"),
        ({"passwordSecret": {"name": "missing", "key": "p"}}, "PasswordSecretMissing"),
        ({"exporter": {"enabled": True}}, "InvalidSpec"),
        ({"sentinel": {"customConfig": ["nosuch 1"]}}, "InvalidSpec"),
    ],
)
async def test_what_cannot_be_met_is_said_and_nothing_is_made(spec: dict[str, Any], reason: str) -> None:
    async with operating() as (client, _, _):
        await declare(client, **spec)
        head = await eventually(first(client, "Failed"))
        assert head.reason == "Cluster failed"
        assert head.message.startswith(reason)
        assert "spec." in head.message
        with pytest.raises(NotFound):
            await client.get(StatefulSet, "redis-cluster-shop", namespace=NAMESPACE)


async def test_what_the_api_server_refuses_is_said_in_the_status_column() -> None:
    async with operating() as (client, _, _):
        await declare(client, sentinel={"tolerations": [{"key": "db", "operator": "Nearly"}]})
        head = await eventually(first(client, "Failed"))
        assert "the API server refused it" in head.message
        assert "Nearly" in head.message


async def test_a_secret_that_appears_later_lets_the_cluster_be_made() -> None:
    async with operating() as (client, _, _):
        await declare(client, passwordSecret={"name": "mine", "key": "p"})
        await eventually(first(client, "Failed"))
        given = {"metadata": {"name": "mine", "namespace": NAMESPACE}, "data": {"p": "aHVzaC1odXNo"}}
        await client.create(decode(given, Secret))
        copied = await eventually(there(client, Secret, "redis-password-shop"))
        assert copied.data["password"] == "aHVzaC1odXNo"


async def test_no_secret_but_those_of_the_cluster_is_ever_read_and_none_is_cached() -> None:
    async with operating() as (client, manager, server):
        read: list[str] = []
        handle = server.handle

        async def noting(request: Request) -> Answer:
            if request.method == "GET" and "/secrets" in request.path:
                read.append(request.path.rpartition("/")[2])
            return await handle(request)

        setattr(server, "handle", noting)  # noqa: B010
        for name in ("mine", "somebody-elses"):
            given = {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"p": "aHVzaC1odXNo"}}
            await client.create(decode(given, Secret))
        await declare(client, passwordSecret={"name": "mine", "key": "p"})
        await eventually(first(client, "Creating"))

        assert "mine" in read
        assert set(read) <= {"mine", "redis-password-shop", "secrets"}
        informers = manager.informers.every(Secret)
        assert {type(one) for informer in informers for one in informer.list()} == {metadata_of(Secret)}


async def test_a_pod_is_deleted_only_as_it_was_when_that_was_decided() -> None:
    noted: list[Noting] = []
    async with operating(noted=noted) as (client, _, _):
        await declare(client)
        await eventually(there(client, StatefulSet, "redis-sentinel-shop"))
        owner = await client.get(StatefulSet, "redis-cluster-shop", namespace=NAMESPACE)
        labels = {**labels_of(NAMESPACE, "shop", "redis"), "controller-revision-hash": "old"}
        meta = ObjectMeta(
            name="redis-cluster-shop-0",
            namespace=NAMESPACE,
            labels=labels,
            owner_references=[owner_reference(owner)],
        )
        container = Container(name="redis", image="redis:none")
        made = await client.create(Pod(metadata=meta, spec=PodSpec(containers=[container])))
        refused = {"name": "redis", "state": {"waiting": {"reason": "ErrImagePull"}}, "restartCount": 0}
        refused |= {"image": "", "imageID": "", "ready": False}
        body = MergePatch({"status": {"phase": "Pending", "containerStatuses": [refused]}})
        seen = await client.patch(
            Pod, "redis-cluster-shop-0", body, namespace=NAMESPACE, subresource="status"
        )
        revision = {"observedGeneration": owner.metadata.generation, "updateRevision": "new", "replicas": 1}
        await client.patch(
            StatefulSet,
            "redis-cluster-shop",
            MergePatch({"status": revision}),
            namespace=NAMESPACE,
            subresource="status",
        )

        async def deletes() -> list[bytes]:
            return [body for verb, path, body in noted[0].writes if verb == "DELETE" and "/pods/" in path]

        precondition = msgspec.json.decode((await eventually(deletes))[0])["preconditions"]
        assert precondition["uid"] == made.metadata.uid
        assert precondition.get("resourceVersion") == seen.metadata.resource_version


async def test_a_bad_edit_leaves_a_cluster_as_it_is() -> None:
    clock = VirtualClock()
    async with operating(clock=clock) as (client, manager, _):
        await declare(client)
        await made(client, manager)
        old = await eventually(there(client, StatefulSet, "redis-cluster-shop"))
        patch = MergePatch({"spec": {"exporter": {"enabled": True}, "size": 5}})
        await client.patch(RedisCluster, "shop", patch, namespace=NAMESPACE)
        await eventually(first(client, "Failed"))
        await passes(clock, manager)
        now = await client.get(StatefulSet, "redis-cluster-shop", namespace=NAMESPACE)
        assert now.metadata.generation == old.metadata.generation


async def known(manager: Manager, key: Key) -> bool:
    """The operator's cache has the cluster."""
    try:
        return manager.client.find(RedisCluster, key.name, namespace=key.namespace) is not None
    except NotCached:
        return False


@pytest.mark.parametrize(
    ("scope", "annotated", "ours"),
    [
        ("all", False, True),
        ("all", True, True),
        ("cluster", False, False),
        ("cluster", True, True),
        ("namespaced", False, True),
        ("namespaced", True, False),
    ],
)
async def test_each_scope_manages_its_own(scope: str, annotated: bool, ours: bool) -> None:
    clock = VirtualClock(datetime.now(UTC))
    async with operating(scope=scope, clock=clock) as (client, manager, _):
        await declare(client, "mine", {"redis.kun/scope": "cluster-scoped"} if annotated else {})
        if ours:
            await eventually(there(client, StatefulSet, "redis-cluster-mine"))
        else:
            seen = Key(NAMESPACE, "mine")
            await eventually(lambda: known(manager, seen))
            await passes(clock, manager)
            assert await there(client, StatefulSet, "redis-cluster-mine")() is None
            assert await conditions(client, "mine") == []


async def test_the_metric_is_there_while_the_cluster_is() -> None:
    async with operating() as (client, manager, _):
        await declare(client)
        await eventually(first(client, "Creating"))
        line = f'redis_operator_controller_cluster_healthy{{name="shop",namespace="{NAMESPACE}"}} 0.0'

        async def shown() -> bool:
            return line in manager.metrics.text().decode()

        async def gone() -> bool:
            return line not in manager.metrics.text().decode()

        await eventually(shown)
        await client.delete(RedisCluster, "shop", namespace=NAMESPACE)
        await eventually(gone)


async def test_what_was_left_to_a_namespaced_operator_is_taken_up_when_that_one_is_gone() -> None:
    async with operating() as (client, _, _):
        now = rfc3339(datetime.now(UTC), micro=True)
        lease = Lease(
            metadata=ObjectMeta(name="mooring-redis-sentinel-namespaced", namespace=NAMESPACE),
            spec=LeaseSpec(holder_identity="one that dies", lease_duration_seconds=4, renew_time=now),
        )
        await client.create(lease)
        await declare(client)
        assert await there(client, StatefulSet, "redis-cluster-shop")() is None

        await eventually(there(client, StatefulSet, "redis-cluster-shop"))
