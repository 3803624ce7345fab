"""Restart-only keys, memory from the limits, Services by role, NetworkPolicies, and a pause, on running servers."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import MakeCluster

from mooring.kube.objects.core import Pod, Service
from mooring.kube.objects.networking import NetworkPolicy
from mooring.kube.patches import MergePatch
from mooring.operators.redis.dial import Address, Dial, DialError
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.redis import RedisStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]

MEBI = 1 << 20


async def roles(stage: RedisStage) -> dict[str, str]:
    pods = await stage.pods("redis")
    return {pod.metadata.name or "": (pod.metadata.labels or {}).get("mooring.dev/role", "") for pod in pods}


async def role_behind(stage: RedisStage, service: str) -> str:
    """What the server says of itself that answers behind a Service."""
    found = await stage.bed.get(Service, service, stage.namespace)
    assert found.spec
    try:
        async with Dial().link(Address(found.spec.cluster_ip or "", 6379)) as link:
            return str((await link.call("ROLE"))[0])
    except DialError:
        return ""


async def test_services_by_role_follow_the_master(cluster: MakeCluster) -> None:
    stage = await cluster()
    old = await stage.master()
    assert (await roles(stage))[old] == "master"

    async def apart() -> bool:
        there = [await role_behind(stage, one) for one in (stage.names.master, stage.names.replica)]
        return there == ["master", "slave"]

    await stage.bed.until(apart, "each Service leads to its role")

    await stage.restarted({old: stage.kill(old)})
    await stage.exact()

    new = await stage.master()
    assert {pod for pod, role in (await roles(stage)).items() if role == "master"} == {new}

    async def follows() -> bool:
        return await role_behind(stage, stage.names.master) == "master"

    await stage.bed.until(follows, "the master's Service leads to the new one")


async def test_service_types_and_network_policies_come_and_go_with_the_declaration(
    cluster: MakeCluster,
) -> None:
    stage = await cluster()
    pods = {pod.metadata.uid for pod in await stage.pods()}
    await stage.patch({"services": {"master": {"type": "NodePort"}}, "networkPolicy": {"enabled": True}})

    async def node_port() -> int:
        found = await stage.bed.get(Service, stage.names.master, stage.namespace)
        return next((port.node_port or 0 for port in (found.spec.ports if found.spec else None) or ()), 0)

    async def policies() -> set[str]:
        found = await stage.bed.client.list(NetworkPolicy, namespace=stage.namespace)
        return {one.metadata.name or "" for one in found.items} & {stage.names.redis, stage.names.sentinel}

    async def outside() -> bool:
        pod = await stage.bed.get(Pod, await stage.master(), stage.namespace)
        host = (pod.status.host_ip if pod.status else None) or ""
        try:
            async with Dial().link(Address(host, await node_port())) as link:
                return bool((await link.call("ROLE"))[0] == "master")
        except DialError:
            return False

    async def declared() -> bool:
        return len(await policies()) == 2 and await outside()

    await stage.bed.until(declared, "a port of the node leads to the master, and there are policies")
    await stage.patch({"services": None, "networkPolicy": None})

    async def gone() -> bool:
        return not await policies() and not await node_port()

    await stage.bed.until(gone, "both are gone again")
    await stage.exact()
    assert {pod.metadata.uid for pod in await stage.pods()} == pods


async def test_memory_follows_the_limits_of_new_clusters(cluster: MakeCluster) -> None:
    stage = await cluster(resources={"limits": {"memory": "512Mi"}})
    for pod in await stage.pods("redis"):
        assert await stage.config(pod.metadata.name or "", "maxmemory") == str(384 * MEBI)


async def test_a_paused_cluster_is_left_alone_until_the_pause_is_over(cluster: MakeCluster) -> None:
    stage = await cluster()

    async def pause(value: str | None) -> None:
        body = MergePatch({"metadata": {"annotations": {"mooring.dev/pause": value}}})
        await stage.bed.client.patch(RedisCluster, stage.name, body, namespace=stage.namespace)

    async def paused() -> bool:
        return "Configure" in (await stage.condition("Progressing"))[2]

    await pause("true")
    await stage.patch({"config": {"hz": "13"}})
    await stage.bed.until(paused, "the condition says what would be done")
    assert await stage.config(stage.names.pod("redis", 0), "hz") == "10"

    await pause(None)
    await stage.exact()
    assert await stage.config(stage.names.pod("redis", 0), "hz") == "13"


@pytest.mark.full
async def test_a_restart_only_key_is_reported_and_rolled_when_asked_for(cluster: MakeCluster) -> None:
    stage = await cluster()
    await stage.patch({"config": {"databases": "32"}})

    async def reported() -> bool:
        return "spec.config.databases" in (await stage.condition("Stalled"))[2]

    await stage.bed.until(reported, "the key is reported")
    before = {pod.metadata.uid for pod in await stage.pods("redis")}

    await stage.patch({"configPolicy": "roll"})
    await stage.exact(60)
    for pod in await stage.pods("redis"):
        assert await stage.config(pod.metadata.name or "", "databases") == "32"
    assert not before & {pod.metadata.uid for pod in await stage.pods("redis")}
    result = ((await stage.status()).config or {})["databases"]
    assert (result.state, result.effective) == ("Applied", "32")


async def test_a_new_cluster_is_ready_and_healthy_in_one_write(cluster: MakeCluster) -> None:
    stage = await cluster(exact=False)
    shown: list[tuple[str, str]] = []

    async def ready() -> bool:
        conditions = (await stage.status()).conditions or []
        said = next((one.status or "" for one in conditions if one.type == "Ready"), "")
        shown.append((said, conditions[0].type or "" if conditions else ""))
        return said == "True"

    await stage.bed.until(ready, "the cluster is ready", within=30)
    assert shown[-1] == ("True", "Healthy")
    await stage.exact()
