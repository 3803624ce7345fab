"""``mooring up`` with other nodes than before on the same data, and without nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.program import Program, until

from mooring.cli import up
from mooring.kube.objects.apps import Deployment, DeploymentSpec
from mooring.kube.objects.core import (
    Container,
    Namespace,
    Node,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    PodTemplateSpec,
    ServiceAccount,
    Volume,
    VolumeResourceRequirements,
)
from mooring.kube.objects.meta import LabelSelector, ObjectMeta
from mooring.local.directory import DataDirectory
from mooring.local.node import rootless

pytestmark = pytest.mark.embedded


def claiming(name: str) -> Pod:
    source = PersistentVolumeClaimVolumeSource(claim_name="data")
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodSpec(
            containers=[Container(name="main", image="registry.k8s.io/pause:3.10")],
            volumes=[Volume(name="data", persistent_volume_claim=source)],
        ),
    )


async def test_data_on_a_node_that_is_not_started_is_named_at_the_start_and_at_its_pods(
    program: Program, home: Path
) -> None:
    async with program.up(home / "data", "--operators", "none", "--nodes", "left") as running:
        client = running.client()
        claim = PersistentVolumeClaim(
            metadata=ObjectMeta(name="data", namespace="default"),
            spec=PersistentVolumeClaimSpec(
                access_modes=["ReadWriteOnce"],
                resources=VolumeResourceRequirements(requests={"storage": "1Mi"}),
            ),
        )
        await client.create(claim)
        await client.create(claiming("first"))

        async def bound() -> bool:
            found = await client.get(PersistentVolumeClaim, "data", namespace="default")
            return found.status is not None and found.status.phase == "Bound"

        await until(bound, "the claim is bound")
        await client.delete(Pod, "first", namespace="default", grace_period=0)
        running.kill()
        await running.client_closed()
        running.options = ("--operators", "none", "--nodes", "right,other")

        await running.start()

        said = running.said()
        assert "warning: the data of default/data is on node left, which is not started" in said
        assert "Add it: --nodes left,right,other" in said
        client = running.client()
        await client.create(claiming("second"))

        async def refused() -> str:
            pod = await client.get(Pod, "second", namespace="default")
            conditions = (pod.status.conditions if pod.status else None) or ()
            return next((one.message or "" for one in conditions if one.type == "PodScheduled"), "")

        await until(refused, "the scheduler looked at it")
        assert 'persistentvolumeclaim "data" is bound to node "left", which does not exist' in await refused()


def deployment() -> Deployment:
    labels = {"app": "web"}
    pod = PodSpec(containers=[Container(name="main", image="nginx")])
    return Deployment(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=DeploymentSpec(
            selector=LabelSelector(match_labels=labels),
            template=PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=pod),
        ),
    )


async def test_without_nodes_the_controllers_make_pods_that_wait(program: Program, home: Path) -> None:
    async with program.up(home / "data", "--operators", "none", "--nodes", "0") as running:
        client = running.client()
        await client.create(deployment())

        async def refused() -> list[str]:
            pods = (await client.list(Pod, namespace="default")).items
            conditions = [
                one for pod in pods for one in (pod.status.conditions if pod.status else None) or ()
            ]
            return [one.message or "" for one in conditions if one.type == "PodScheduled"]

        await until(refused, "the scheduler looked at its pod")
        assert "no nodes available to schedule pods" in (await refused())[0]
        assert (await client.list(Node)).items == []
        assert await running.exit() == 0


async def test_without_controllers_objects_are_what_clients_made_of_them(
    program: Program, home: Path
) -> None:
    options = ("--operators", "none", "--nodes", "0", "--controllers", "none")
    async with program.up(home / "data", *options) as running:
        client = running.client()
        await client.create(Namespace(metadata=ObjectMeta(name="team")))
        made = await client.create(deployment())
        pod = await client.create(claiming("first"))

        # What controllers would do takes them milliseconds; the plane ends what it has begun before it stops.
        assert await running.exit() == 0
        await running.client_closed()
        await running.start()

        client = running.client()
        assert await client.get(Deployment, "web", namespace="default") == made
        assert await client.get(Pod, "first", namespace="default") == pod
        assert [one.metadata.uid for one in (await client.list(Pod)).items] == [pod.metadata.uid]
        assert (await client.list(ServiceAccount)).items == []


def test_without_nodes_a_plain_user_needs_no_namespaces(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootless, "needed", lambda: True)
    monkeypatch.setattr(rootless, "reexec", lambda *_, **__: pytest.fail("it enters namespaces"))

    (sock,) = up.enter_namespaces(DataDirectory(home / "data"), "127.0.0.1:0", pods=False)

    with sock:
        assert sock.getsockname()[0] == "127.0.0.1"
