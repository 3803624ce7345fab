"""Redis clusters on a real kubelet, with the operator as the chart installs it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.charts.helm import NAMESPACE, Helm, operators

from mooring.kube import ApiError, TooManyRequests
from mooring.kube.objects.core import Pod
from mooring.testing.bed import ClusterBed
from mooring.testing.redis import RedisStage, manifest

pytestmark = [pytest.mark.real_node, pytest.mark.timeout(300)]


@pytest.fixture
async def operated(bed: ClusterBed, helm: Helm) -> ClusterBed:
    """The cluster with the operator."""
    await helm.install("mooring")
    return bed


async def other_master(stage: RedisStage, old: str, *, within: float = 30) -> str:
    """Wait until the operator says that another pod leads."""

    async def moved() -> bool:
        return (await stage.status()).master not in (None, "", old)

    await stage.bed.until(moved, f"another master than {old}", within=within)
    return await stage.master()


async def evict(bed: ClusterBed, pod: str) -> None:
    """Ask for an eviction, as `kubectl drain` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    await bed.client.request("POST", path, body=msgspec.json.encode(body))


async def test_deleting_and_evicting_masters_under_a_writer_loses_nothing(operated: ClusterBed) -> None:
    await operated.apply(manifest("demo", password="s3cret"))
    stage = RedisStage(operated, "demo", password="s3cret")
    await stage.exact(120)
    async with stage.writing() as ledger:
        # Deleted, by somebody who does not know what it is.
        first = await stage.master()
        await operated.client.delete(Pod, first, namespace="default")
        second = await other_master(stage, first)
        await stage.exact(90)

        # Evicted, as a node is drained: it hands over first, and the budget keeps the next one.
        await evict(operated, second)
        with pytest.raises(TooManyRequests):
            await evict(operated, first)
        third = await other_master(stage, second)
        await stage.exact(90)

        # Deleted together with the operator's pod.
        for name in await operators(operated):
            await operated.client.delete(Pod, name, namespace=NAMESPACE)
        await operated.client.delete(Pod, third, namespace="default")
        await other_master(stage, third, within=60)
        await stage.exact(90)
        await stage.writes(ledger, 100)

    report = await ledger.check()
    assert report.lost_confirmed == 0, report.text()
    assert report.lost_acknowledged == 0, report.text()


async def test_a_cluster_lives_in_a_restricted_namespace(operated: ClusterBed) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await operated.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}}
    )
    security = {
        "runAsNonRoot": True,
        "runAsUser": 999,
        "runAsGroup": 999,
        "fsGroup": 999,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    declared = manifest("demo", securityContext=security)
    declared["metadata"]["namespace"] = "strict"
    declared["spec"]["sentinel"]["securityContext"] = security
    await operated.apply(declared)

    stage = RedisStage(operated, "demo", namespace="strict")
    await stage.exact(120)
    assert await stage.call(await stage.master(), "SET", "a", "b") == "OK"


async def test_containers_that_others_put_into_the_pods_are_in_nobodys_way(operated: ClusterBed) -> None:
    # Given a mutation of pods as a service mesh makes it: a first container, and one that runs before.
    await operated.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "meshed"}})
    for one in mesh("meshed"):
        await operated.apply(one)
    await mutated(operated, "meshed")
    declared = manifest("demo")
    declared["metadata"]["namespace"] = "meshed"
    await operated.apply(declared)

    stage = RedisStage(operated, "demo", namespace="meshed")
    await stage.exact(120)

    for pod in await stage.pods():
        assert pod.spec is not None
        assert (pod.spec.containers or [])[0].name == "proxy"
        assert [one.name for one in pod.spec.init_containers or ()][:1] == ["prepare"]
    old = await stage.master()
    await operated.client.delete(Pod, old, namespace="meshed")
    await other_master(stage, old)
    await stage.exact(90)


def mesh(namespace: str) -> list[dict[str, Any]]:
    """A mutation of every pod of a namespace, and what binds it there.

    Kubernetes 1.36: a list of objects as the value of a patch makes the API server panic, so one is added at a time.
    """
    proxy = 'Object.spec.containers{name: "proxy", image: "redis:7.0", command: ["sleep", "100000"]}'
    prepare = 'Object.spec.initContainers{name: "prepare", image: "redis:7.0", command: ["true"]}'
    patches = f"""[
      JSONPatch{{op: "add", path: "/spec/containers/0", value: {proxy}}},
      JSONPatch{{op: "add", path: "/spec/initContainers", value: []}},
      JSONPatch{{op: "add", path: "/spec/initContainers/-", value: {prepare}}}
    ]"""
    group = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patches}}],
    }
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return [
        {
            "apiVersion": group,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": "mesh"},
            "spec": policy,
        },
        {
            "apiVersion": group,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "mesh"},
            "spec": {"policyName": "mesh", "matchResources": where},
        },
    ]


async def mutated(bed: ClusterBed, namespace: str) -> None:
    """Wait until the API server has taken the policy up."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "main", "image": "redis:7.0"}]},
    }

    async def works() -> bool:
        try:
            answer = await bed.client.request(
                "POST",
                f"/api/v1/namespaces/{namespace}/pods",
                query={"dryRun": "All"},
                body=msgspec.json.encode(pod),
            )
        except ApiError:
            await asyncio.sleep(0.1)
            return False
        containers = msgspec.json.decode(answer.body)["spec"]["containers"]
        return bool(containers[0]["name"] == "proxy")

    await bed.until(works, "pods are mutated", within=30)
