"""The tutorial's operator: what docs/write-an-operator.md says that it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.examples.programs import EXAMPLES, load

from mooring.actor import run_actor
from mooring.kube import MergePatch, NotFound
from mooring.kube.errors import Invalid
from mooring.kube.objects.apps import Deployment, DeploymentSpec
from mooring.kube.objects.core import Container, PodSpec, PodTemplateSpec
from mooring.kube.objects.meta import LabelSelector, ObjectMeta
from mooring.testing.rig import Rig

example = load("deployment-operator/mooring_operator.py")
MySQLCluster = example.MySQLCluster


def cluster(name: str = "db", *, size: int = 3, image: str = "mysql:8.0") -> Any:
    meta = ObjectMeta(name=name, namespace="default")
    return MySQLCluster(metadata=meta, spec=example.Spec(size=size, image=image))


def operator(rig: Rig) -> None:
    run_actor(example.MySQLActor(), rig.manager)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(MySQLCluster, operator=operator) as rig:
        yield rig


async def deployment(rig: Rig, name: str = "db") -> Deployment:
    return await rig.client.get(Deployment, name, namespace="default")


async def available(rig: Rig, count: int, name: str = "db") -> None:
    """What the Deployment controller would report."""
    status = MergePatch({"status": {"replicas": count, "readyReplicas": count, "availableReplicas": count}})
    await rig.client.patch(Deployment, name, status, namespace="default", subresource="status")
    await rig.settle()


async def shown(rig: Rig, name: str = "db") -> tuple[int | None, dict[str, tuple[str, str]]]:
    found: Any = await rig.client.get(MySQLCluster, name, namespace="default")
    conditions = {c.type: (c.status, c.reason) for c in found.status.conditions}
    return found.status.available_replicas, conditions


async def test_a_cluster_becomes_a_deployment_and_its_status_follows(rig: Rig) -> None:
    await rig.client.create(cluster())
    await rig.settle()

    made = await deployment(rig)
    assert made.spec is not None
    assert made.spec.replicas == 3
    assert made.metadata.owner_references is not None
    assert made.metadata.owner_references[0].kind == "MySQLCluster"
    assert (await shown(rig))[1]["Ready"] == ("False", "PodsNotReady")

    await available(rig, 3)

    count, conditions = await shown(rig)
    assert count == 3
    assert conditions["Ready"] == ("True", "InSync")


async def test_an_edit_reaches_the_deployment(rig: Rig) -> None:
    """The tutorial's never did: it only ever created."""
    await rig.client.create(cluster())
    await rig.settle()

    patch = MergePatch({"spec": {"size": 5, "image": "mysql:8.4"}})
    await rig.client.patch(MySQLCluster, "db", patch, namespace="default")
    await rig.settle()

    spec = (await deployment(rig)).spec
    assert spec is not None
    assert spec.replicas == 5
    assert spec.template is not None
    assert spec.template.spec is not None
    assert spec.template.spec.containers is not None
    assert spec.template.spec.containers[0].image == "mysql:8.4"


async def test_what_others_change_or_delete_is_put_right(rig: Rig) -> None:
    await rig.client.create(cluster())
    await rig.settle()

    await rig.client.patch(Deployment, "db", MergePatch({"spec": {"replicas": 1}}), namespace="default")
    await rig.settle()
    assert (spec := (await deployment(rig)).spec) is not None
    assert spec.replicas == 3

    await rig.client.delete(Deployment, "db", namespace="default")
    await rig.settle()
    await deployment(rig)


async def test_a_deployment_of_somebody_else_is_left_alone_and_named(rig: Rig) -> None:
    labels = {"app": "shop"}
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="shop", image="shop:1")])
    )
    spec = DeploymentSpec(replicas=1, selector=LabelSelector(match_labels=labels), template=template)
    theirs = Deployment(metadata=ObjectMeta(name="db", namespace="default", labels=labels), spec=spec)
    before = await rig.client.create(theirs)

    await rig.client.create(cluster())
    await rig.settle()

    assert await deployment(rig) == before
    assert (await shown(rig))[1]["Stalled"] == ("True", "NotOwned")


async def test_nothing_is_written_at_rest_nor_by_a_restart(rig: Rig) -> None:
    await rig.client.create(cluster())
    await rig.settle()
    await available(rig, 3)
    written = rig.wrote()

    await rig.stop()
    await rig.start()
    await rig.settle()

    assert rig.wrote() == written


async def test_the_server_itself_refuses_nonsense(rig: Rig) -> None:
    with pytest.raises(Invalid, match=r"spec\.size"):
        await rig.client.create(cluster(size=-1))


async def test_a_crash_after_any_write_changes_nothing_in_the_end(rig: Rig) -> None:
    rounds = 0
    async for number in rig.every_crash():
        await rig.client.create(cluster())
        await rig.settle()
        await available(rig, 3)
        assert (await shown(rig))[1]["Ready"] == ("True", "InSync"), f"after write {number}"
        await rig.client.delete(MySQLCluster, "db", namespace="default")
        await rig.client.delete(Deployment, "db", namespace="default")  # the garbage collector's part
        await rig.settle()
        with pytest.raises(NotFound):
            await deployment(rig)
        rounds = number
    assert rounds > 3, "a create has several writes to crash after"


def test_it_is_as_short_as_the_guide_says() -> None:
    lines = (EXAMPLES / "deployment-operator" / "mooring_operator.py").read_text().splitlines()
    assert len(lines) < 100


def test_the_crd_beside_it_is_the_generated_one() -> None:
    generated = example.to_yaml(example.render_crd(MySQLCluster))
    assert (EXAMPLES / "deployment-operator" / "crd.yaml").read_text() == generated, (
        "run: python examples/deployment-operator/mooring_operator.py --crd "
        "> examples/deployment-operator/crd.yaml"
    )
