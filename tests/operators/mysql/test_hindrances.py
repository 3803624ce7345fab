"""What is in the way of one child object keeps no operator from looking after a cluster that runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.campaign import WORKLOADS

from mooring.kube import Client, MergePatch
from mooring.kube.object import decode
from mooring.kube.objects.admissionregistration import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from mooring.kube.objects.apps import Deployment, DeploymentSpec, StatefulSet, StatefulSetSpec
from mooring.kube.objects.core import Container, Pod, PodSpec, PodTemplateSpec, Service
from mooring.kube.objects.meta import Condition, LabelSelector, ObjectMeta
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterSpec, MySQLClusterStatus
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane


@asynccontextmanager
async def created() -> AsyncIterator[ControlPlane]:
    """A cluster of three, whole."""
    workload = WORKLOADS["mysql-create"]()
    async with ControlPlane(model=workload.model, endpoints=False) as plane:
        await plane.define(*workload.kinds)
        manager = Manager(Client(plane.transport("operator")), name="mysql", clock=plane.clock, grace=0.0)
        workload.operator(manager)
        work = asyncio.create_task(manager.run())
        await workload.steps[0](plane.client)
        await plane.settle()
        yield plane
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def seen(client: Client) -> tuple[MySQLClusterStatus, dict[str, Condition]]:
    status = (await client.get(MySQLCluster, "demo", namespace="default")).status
    assert status is not None
    return status, {one.type or "": one for one in status.conditions or ()}


async def lose_primary(plane: ControlPlane) -> None:
    """Another one leads, and the pod comes back."""
    before, _ = await seen(plane.client)
    await plane.client.delete(Pod, before.primary or "", namespace="default", grace_period=0)
    await plane.settle(60)
    after, conditions = await seen(plane.client)
    assert after.primary != before.primary
    assert {one.state for one in after.instances or ()} == {"Online"}
    assert conditions["Ready"].status == "True", conditions["Ready"]


async def forbid(client: Client, what: str, *, group: str = "", unless: str, message: str) -> None:
    """The administrator's policy, which the operator cannot know."""
    metadata = {"metadata": {"name": what}}
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [what],
    }
    check = {"expression": unless, "message": message}
    policy = {**metadata, "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [check]}}
    binding = {**metadata, "spec": {"policyName": what, "validationActions": ["Deny"]}}
    await client.create(decode(policy, ValidatingAdmissionPolicy))
    await client.create(decode(binding, ValidatingAdmissionPolicyBinding))


async def forbid_public_services(client: Client) -> None:
    unless = "!has(object.metadata.annotations) || !('public' in object.metadata.annotations)"
    await forbid(client, "services", unless=unless, message="no Service is public here")


async def test_another_primary_leads_while_the_name_of_a_child_is_taken() -> None:
    async with created() as plane:
        client = plane.client
        body = MergePatch({"metadata": {"ownerReferences": None, "labels": None}})
        await client.patch(PodDisruptionBudget, "demo", body, namespace="default")
        await plane.settle(5)
        _, said = await seen(client)
        assert (said["Stalled"].status, said["Stalled"].reason) == ("True", "NameTaken"), said
        assert "PodDisruptionBudget default/demo exists" in (said["Stalled"].message or "")
        assert said["Ready"].status == "True", said["Ready"]

        await lose_primary(plane)
        assert (await seen(client))[1]["Stalled"].reason == "NameTaken"

        await client.delete(PodDisruptionBudget, "demo", namespace="default")
        await plane.settle(60)
        assert (await seen(client))[1]["Stalled"].status == "False"
        own = await client.get(PodDisruptionBudget, "demo", namespace="default")
        assert own.metadata.owner_references


async def test_another_primary_leads_while_a_service_cannot_be_as_declared() -> None:
    async with created() as plane:
        client = plane.client

        async def annotated(annotations: dict[str, str] | None) -> None:
            body = MergePatch({"spec": {"services": {"primary": {"annotations": annotations}}}})
            await client.patch(MySQLCluster, "demo", body, namespace="default")
            await plane.settle(5)

        await forbid_public_services(client)
        await annotated({"public": "yes"})
        _, said = await seen(client)
        assert (said["Stalled"].status, said["Stalled"].reason) == ("True", "InvalidSpec"), said
        assert "no Service is public here" in (said["Stalled"].message or "")
        assert said["Ready"].status == "True", said["Ready"]

        await lose_primary(plane)

        await annotated(None)
        await annotated({"team": "shop"})
        assert (await seen(client))[1]["Stalled"].status == "False"
        found = await client.get(Service, "demo-primary", namespace="default")
        assert (found.metadata.annotations or {}).get("team") == "shop"


async def test_nothing_is_rolled_while_a_child_cannot_be_as_declared() -> None:
    async with created() as plane:
        client = plane.client
        pods = {one.metadata.uid for one in (await client.list(Pod, namespace="default")).items}
        spec = {
            "services": {"primary": {"annotations": {"public": "yes"}}},
            "pod": {"labels": {"team": "shop"}},
            "size": 4,
        }
        await forbid_public_services(client)
        await client.patch(MySQLCluster, "demo", MergePatch({"spec": spec}), namespace="default")
        await plane.settle(60)
        assert {one.metadata.uid for one in (await client.list(Pod, namespace="default")).items} == pods
        _, said = await seen(client)
        assert (said["Stalled"].message or "").startswith("ApplyChildren: ")  # no resize was tried


async def test_a_set_of_somebody_else_is_left_alone() -> None:
    async with created() as plane:
        client = plane.client
        metadata = ObjectMeta(name="other", namespace="default")
        labels = {"app": "theirs"}
        template = PodTemplateSpec(
            metadata=ObjectMeta(labels=labels),
            spec=PodSpec(containers=[Container(name="any", image="mariadb:10.11")]),
        )
        spec = StatefulSetSpec(
            replicas=1, service_name="other", selector=LabelSelector(match_labels=labels), template=template
        )
        await client.create(StatefulSet(metadata=metadata, spec=spec))
        await plane.settle(5)
        before = await client.get(StatefulSet, "other", namespace="default")
        await client.create(
            MySQLCluster(metadata=metadata, spec=MySQLClusterSpec(size=3, image="mariadb:10.11"))
        )
        await plane.settle(120)
        status = (await client.get(MySQLCluster, "other", namespace="default")).status
        assert status is not None
        said = {one.type: one for one in status.conditions or ()}
        assert (said["Stalled"].status, said["Stalled"].reason) == ("True", "NameTaken"), said
        after = await client.get(StatefulSet, "other", namespace="default")
        assert after.metadata.resource_version == before.metadata.resource_version


async def archive(plane: ControlPlane, archived: dict[str, Any] | None) -> Condition | None:
    """Declare an archive, and what is said of it then."""
    body = MergePatch({"spec": {"archive": archived}})
    await plane.client.patch(MySQLCluster, "demo", body, namespace="default")
    await plane.settle(5)
    return (await seen(plane.client))[1].get("Archived")


CLAIM = {"target": {"claim": {"name": "archive"}}}


async def test_an_archiver_that_is_refused_is_made_as_soon_as_the_declaration_is_corrected() -> None:
    async with created() as plane:
        client = plane.client
        unless = "object.spec.template.spec.containers.all(one, one.resources.limits.memory == '1Gi')"
        await forbid(client, "deployments", group="apps", unless=unless, message="the limit is 1Gi")
        said = await archive(plane, CLAIM)
        assert said is not None
        assert (said.status, said.reason) == ("False", "ArchiverNotMade")
        assert "ApplyArchive: the API server refused it" in (said.message or "")
        assert "the limit is 1Gi" in (said.message or "")
        conditions = (await seen(client))[1]
        assert (conditions["Stalled"].status, conditions["Ready"].status) == ("False", "True")

        limits = {"cpu": "1", "memory": "1Gi"}
        await archive(plane, {**CLAIM, "resources": {"limits": limits}})  # well before TRY_AGAIN
        assert await client.get(Deployment, "demo-archive", namespace="default")


async def test_the_remedy_for_the_taken_name_of_an_archiver_is_not_to_rename_the_cluster() -> None:
    async with created() as plane:
        metadata = ObjectMeta(name="demo-archive", namespace="default")
        labels = {"app": "theirs"}
        template = PodTemplateSpec(
            metadata=ObjectMeta(labels=labels),
            spec=PodSpec(containers=[Container(name="any", image="mariadb:10.11")]),
        )
        spec = DeploymentSpec(replicas=0, selector=LabelSelector(match_labels=labels), template=template)
        await plane.client.create(Deployment(metadata=metadata, spec=spec))
        said = await archive(plane, CLAIM)
        assert said is not None
        assert said.reason == "ArchiverNotMade"
        assert "Deployment default/demo-archive exists" in (said.message or "")
        assert (said.message or "").endswith("; delete that object, or remove spec.archive")
        assert (await seen(plane.client))[1]["Stalled"].status == "False"
        assert await archive(plane, None) is None
