"""Clusters that HarmonyCloud's operator made, with their servers running, when ours starts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.embedded.conftest import bed_with
from tests.embedded.test_rec_life import running
from tests.operators.redis.cluster.harmonycloud import legacy
from tests.operators.redis.cluster.stage import OPERATOR, Stage, manifest, remove, renewed

from mooring.actor.drift import APPLIED
from mooring.kube import NotFound
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Endpoints, PersistentVolumeClaim, Pod, Service
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.cluster.names import selector_of
from mooring.operators.redis.cluster.takeover import LOCKS
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.workload.adoption import LEADER
from mooring.testing.bed import Bed, KubernetesBed

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(loop_scope="module")
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[Bed | KubernetesBed]:
    """A plane on which no operator runs yet."""
    async with bed_with(request, OPERATOR) as running:
        await running.stop_operators()
        yield running


def starts(pods: list[Pod]) -> dict[str, tuple[str | None, int]]:
    """Which pods these are, and how often their containers were started anew."""
    return {
        pod.metadata.name or "": (
            pod.metadata.uid,
            sum(
                one.restart_count or 0
                for one in (pod.status.container_statuses if pod.status else None) or ()
            ),
        )
        for pod in pods
    }


async def labelled(stage: Stage) -> list[Pod]:
    """Its pods, as our operator finds them."""
    wanted = selector_of(stage.name)
    return await stage.bed.pods("default", ",".join(f"{key}={value}" for key, value in wanted.items()))


async def marked(stage: Stage) -> None:
    """Wait until the StatefulSet bears our mark."""

    async def applied() -> bool:
        return APPLIED in ((await stage.bed.get(StatefulSet, stage.name)).metadata.annotations or {})

    await stage.bed.until(applied, f"{stage.name} is taken over")


async def taken_over(stage: Stage) -> None:
    """Wait until it is, and all is as declared."""
    await marked(stage)
    await stage.exact(6)


async def test_a_running_cluster_is_taken_over_as_it_runs_and_rolled_when_the_user_changes_it(
    plane: Bed,
) -> None:
    pod: dict[str, Any] = {"configmap": "old-config"}
    stage = await legacy(plane, manifest("old", pod=pod))
    await stage.fill(1000)
    pods, owned = starts(await stage.pods()), await stage.owned()
    before = await plane.get(Service, "old")

    await plane.start_operators()
    try:
        await taken_over(stage)

        assert await stage.kept(1000) == 1000
        assert starts(await stage.pods()) == pods == starts(await labelled(stage))
        assert await stage.owned() == owned
        service = await plane.get(Service, "old")
        assert service.spec is not None
        assert before.spec is not None
        assert service.spec.cluster_ip == before.spec.cluster_ip
        assert {one.port for one in service.spec.ports or ()} == {6379, 19105}
        found = await plane.get(StatefulSet, "old")
        assert found.spec is not None
        assert found.spec.selector is not None
        assert found.spec.selector.match_labels == {"app": "old", "component": "old"}
        assert found.spec.update_strategy is not None
        assert found.spec.update_strategy.type == "OnDelete"

        ids = {(await stage.me(name)).id for name in await stage.addresses()}
        replica = next(name for name in await stage.addresses() if name not in owned)
        await remove(stage, replica)
        await renewed(stage, {pods[replica][0]})
        await stage.exact(6)
        assert len(await labelled(stage)) == 6, "a pod of the old template is not found"
        assert await stage.owned() == owned
        pods = starts(await stage.pods())

        await stage.patch({"pod": [{"middlewareImage": "redis:7.0", **pod, "annotations": {"team": "a"}}]})
        await renewed(stage, {uid for uid, _ in pods.values()})
        await stage.exact(6, within=120)

        assert await stage.kept(1000) == 1000
        assert {(await stage.me(name)).id for name in await stage.addresses()} == ids, "files were not found"
        for one in await stage.pods():
            assert one.spec is not None
            assert [container.name for container in one.spec.containers or ()] == ["redis"]
            assert not one.spec.init_containers
        claims = await plane.client.list(PersistentVolumeClaim, namespace="default")
        assert len(claims.items) == 6
    finally:
        await stage.delete()


@pytest.mark.nightly
async def test_a_running_pair_is_taken_over_as_it_runs_and_rolled_when_the_user_changes_it(
    plane: Bed,
) -> None:
    stage = await legacy(plane, manifest("two", replicas=2), replicas=2)
    assert await stage.call("two-0", "SET", "kept", "1") == "OK"
    await stage.confirmed("two-0")
    pods = starts(await stage.pods())

    await plane.start_operators()
    try:
        await marked(stage)
        await running(stage)
        assert starts(await stage.pods()) == pods == starts(await labelled(stage))
        assert (await stage.status()).leader == "two-0"

        # A server that writes its first log would not end by SIGTERM, and its pod would stay for the grace period.
        await stage.call("two-1", "CONFIG", "SET", "rdb-key-save-delay", 3_000_000)
        for value in ("no", "yes"):
            await stage.call("two-1", "CONFIG", "SET", "appendonly", value)
        await stage.patch({"pod": [{"middlewareImage": "redis:7.0", "annotations": {"team": "a"}}]})
        await renewed(stage, {uid for uid, _ in pods.values()})
        await running(stage)
        for pod in await stage.addresses():
            assert await stage.call(pod, "GET", "kept") == "1"
    finally:
        await stage.delete()


@pytest.mark.full
async def test_what_cannot_be_taken_over_is_named_and_left_as_it_is(plane: Bed) -> None:
    stage = await legacy(plane, manifest("kept", replicas=8, password="wrong"), password="right")
    pods, owned = starts(await stage.pods()), await stage.owned()
    labels = [pod.metadata.labels for pod in await stage.pods()]
    before = await plane.get(StatefulSet, "kept")

    async def said(*words: str) -> bool:
        status = await stage.status()
        return status.reason_type == "NotTakenOver" and all(word in (status.reason or "") for word in words)

    async def reasons(name: str) -> list[str]:
        status = (await plane.get(RedisCluster, name)).status
        return [one.reason or "" for one in (status and status.standard_conditions) or ()]

    async def left_to_its_operator(name: str = "kept") -> bool:
        return "LegacyOperatorRunning" in await reasons(name)

    record = {"holderIdentity": "manager-0", "leaseDurationSeconds": 15, "renewTime": "2126-01-01T00:00:00Z"}
    lock = ObjectMeta(name=LOCKS[0], namespace="default", annotations={LEADER: json.dumps(record)})
    await plane.client.create(Endpoints(metadata=lock))

    await plane.start_operators()
    try:
        await plane.until(left_to_its_operator, "its operator is seen")
        assert (await stage.status()).phase == "Running"
        await plane.apply(manifest("anew"))
        await plane.until(lambda: reasons("anew"), "it is looked at")
        assert await left_to_its_operator("anew"), "what is declared anew is its too"
        with pytest.raises(NotFound):
            await plane.get(StatefulSet, "anew")
        await plane.client.delete(RedisCluster, "anew", namespace="default")
        await plane.client.delete(Endpoints, LOCKS[0], namespace="default")
        await plane.until(lambda: said("spec.replicas", "give 6"), "the number is named")
        await stage.patch({"replicas": 6})
        await plane.until(lambda: said("kept-0", "requirepass"), "the password is named")

        assert (await stage.status()).phase == "Running"
        after = await plane.get(StatefulSet, "kept")
        assert (after.metadata.generation, after.metadata.annotations) == (
            before.metadata.generation,
            before.metadata.annotations,
        )
        assert [pod.metadata.labels for pod in await stage.pods()] == labels
        assert (
            len((await plane.client.list(Service, namespace="default", label_selector="app=kept")).items) == 1
        )

        right = {"middlewareImage": "redis:7.0", "requirepass": "right"}
        await stage.patch({"pod": [right]})
        await taken_over(stage)
        assert starts(await stage.pods()) == pods
        assert await stage.owned() == owned
    finally:
        await stage.delete()
