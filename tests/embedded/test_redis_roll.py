"""Rolling changes of the pods: nothing lost, one short gap, stopped by the first pod that does not come up."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import MakeCluster
from tests.embedded.overlay import are_overlaid, overlay, priority
from tests.standstill import Standstill

from mooring.kube.objects.apps import StatefulSet
from mooring.kube.patches import MergePatch
from mooring.testing.redis import RedisStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]


async def uids(stage: RedisStage) -> dict[str, str | None]:
    return {pod.metadata.name or "": pod.metadata.uid for pod in await stage.pods("redis")}


async def image(stage: RedisStage) -> str | None:
    """The image in the template."""
    found = await stage.bed.get(StatefulSet, stage.names.redis, stage.namespace)
    assert found.spec
    assert found.spec.template
    assert found.spec.template.spec
    return (found.spec.template.spec.containers or [])[0].image


async def stalled(stage: RedisStage, reason: str) -> str:
    """Wait for the reason in the condition Stalled; its message."""

    async def said() -> bool:
        return (await stage.condition("Stalled"))[:2] == ("True", reason)

    await stage.bed.until(said, f"Stalled says {reason}", within=30)
    return (await stage.condition("Stalled"))[2]


async def test_changed_pods_are_rolled_out_without_a_loss_and_with_one_switch(
    cluster: MakeCluster, stood: Standstill
) -> None:
    stage = await cluster()
    before, led = await uids(stage), await stage.master()
    async with priority(stage) as first:
        async with stage.writing() as ledger:
            await stage.patch(
                {
                    "annotations": {"team": "a"},
                    "resources": {"limits": {"memory": "512Mi"}},
                    "podTemplate": overlay("redis", "redis:7.0", first),
                }
            )
            await stage.exact(60)
            await stage.writes(ledger, 50)
        assert are_overlaid(await stage.pods("redis"), first)

    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    gap = report.longest_gap
    assert gap - stood.within(gap) <= 1.5, report.text()
    after = await uids(stage)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    for pod in await stage.pods("redis"):
        assert (pod.metadata.annotations or {})["team"] == "a"
    status = await stage.status()
    assert status.last_failover is not None
    assert (status.last_failover.cause, status.last_failover.old) == ("Planned", led)
    assert not status.rolls


@pytest.mark.full
async def test_kubectl_rollout_restart_is_a_roll_that_knows_the_roles(cluster: MakeCluster) -> None:
    stage = await cluster()
    before, led = await uids(stage), await stage.master()
    stamp = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    body = MergePatch({"spec": {"template": {"metadata": {"annotations": stamp}}}})
    await stage.bed.client.patch(StatefulSet, stage.names.redis, body, namespace=stage.namespace)

    async def renewed() -> bool:
        return not set((await uids(stage)).values()) & set(before.values())

    await stage.bed.until(renewed, "every pod is a new one", within=40)
    await stage.exact()
    last = (await stage.status()).last_failover
    assert last is not None
    assert (last.cause, last.old) == ("Planned", led)


async def test_a_pod_that_does_not_come_up_stops_the_roll_and_the_good_template_comes_back(
    cluster: MakeCluster,
) -> None:
    stage = await cluster()
    before = await uids(stage)
    await stage.patch({"image": "nobody/has:this"})

    message = await stalled(stage, "RollHalted")
    last = stage.names.pod("redis", 2)
    assert last in message
    assert "spec.image" in message

    async def serves() -> bool:
        pods = await stage.pods("redis")
        return await image(stage) == "redis:7.0" and len(pods) == 3 and await stage.master() != ""

    await stage.bed.until(serves, "the good template is back")

    async def whole() -> bool:
        status = await stage.status()
        return [node.state for node in status.nodes or ()] == ["Online"] * 3

    await stage.bed.until(whole, "all three servers are in service again")
    now = await uids(stage)
    assert [name for name in before if now[name] != before[name]] == [last]
    assert (await stage.condition("Ready"))[0] == "True"
    assert await stalled(stage, "RollHalted")

    await stage.patch({"image": "redis:7.0"})
    await stage.exact()
    assert await uids(stage) == now


async def test_a_version_that_cannot_read_the_files_is_refused(cluster: MakeCluster) -> None:
    stage = await cluster()
    before = await uids(stage)
    await stage.patch({"image": "redis:5.0"})

    message = await stalled(stage, "VersionRefused")
    assert "spec.image" in message
    assert await image(stage) == "redis:7.0"

    await stage.patch({"image": "redis:7.0"})
    await stage.exact()
    assert await uids(stage) == before
