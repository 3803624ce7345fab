"""What the operator deletes is the very object that it decided about; claims it only hands over, as it saw them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace as changed
from tests.operators.mysql.builders import Scene, ago, healthy
from tests.operators.mysql.declared import cluster, inputs, made
from tests.operators.mysql.test_applier import seen, stuck

from mooring.actor import Context
from mooring.kube import Client, Conflict, Key, MergePatch, NotFound
from mooring.kube.objects import apps, core
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.local.api.server import ApiServer
from mooring.operators.mysql.effects import carry_out
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import DeletePod, LabelRoles, Record
from mooring.operators.mysql.names import labels_of
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus
from mooring.operators.workload.claims import own_claims


def settled(scene: Scene) -> Scene:
    """The same once it was recorded and its pods are labelled."""
    verdict = scene.decide()
    while isinstance(verdict, Record | LabelRoles):
        scene = scene.wrote(verdict)
        for name, role in verdict.roles.items() if isinstance(verdict, LabelRoles) else ():
            scene = scene.pod(name, role=role)
        verdict = scene.decide()
    return scene


def hung() -> Scene:
    """Without acknowledgements a primary that hangs has to end before another one leads."""
    scene = healthy(mode="Async").record(durability="Async", acks=0, ack_set=[])
    return scene.silent("demo-0", seconds=10).lost("demo-1", "demo-2")


def woken() -> Scene:
    """The former primary holds writes that nobody acknowledges."""
    scene = healthy().record(primary="demo-1").server("demo-1", read_only=False, replication=None)
    return scene.semi("demo-0", waiting=3)


def diverged() -> Scene:
    """A replica with transactions of its own is seeded again."""
    return settled(healthy().has("demo-2", "0-10-100,0-77-101").server("demo-0", purged=Position()))


def stands_still() -> Scene:
    """The applier of a replica waits for its own idle threads."""
    return seen(stuck())


def rolled() -> Scene:
    """No pod has the template that was written."""
    scene = healthy()
    state = replace(scene.observed.set, current=False, asked="new")
    scene = scene.see(set=state)
    scene = scene.wrote(scene.decide())
    return scene.see(set=replace(state, current=True, update_revision="two", inputs="new"))


def hopeless() -> Scene:
    """No server runs, and the older template cannot."""
    scene = rolled()
    for name in scene.members:
        scene = scene.dead(name).pod(name, trouble="ImagePullBackOff", created=ago(600))
    return scene


@pytest.mark.parametrize(
    ("scene", "name"),
    [
        (hung, "demo-0"),
        (woken, "demo-0"),
        (diverged, "demo-2"),
        (stands_still, "demo-1"),
        (rolled, "demo-2"),
        (hopeless, "demo-0"),
    ],
)
def test_a_pod_that_is_to_be_deleted_is_named_by_its_uid_and_version(
    scene: Callable[[], Scene], name: str
) -> None:  # trap 29
    one = scene()
    for pod in one.members:
        one = one.pod(pod, version=f"version-of-{pod}")

    move = one.decide()

    assert isinstance(move, DeletePod), move
    assert (move.pod, move.uid, move.version) == (name, f"uid-{name}", f"version-of-{name}")


def test_the_version_of_a_pod_is_that_of_the_object_that_was_read() -> None:
    owned = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="demo", uid="s1", controller=True)
    (found,) = (one for one in made(inputs(cluster()).specs) if isinstance(one, apps.StatefulSet))
    pod = core.Pod(
        metadata=ObjectMeta(
            name="demo-0",
            namespace="shop",
            uid="p1",
            resource_version="17",
            labels=labels_of("demo"),
            owner_references=[owned],
        ),
        spec=core.PodSpec(containers=[core.Container(name="mysql")]),
    )

    (one,) = inputs(cluster(), found, pod).pods

    assert (one.uid, one.version) == ("p1", "17")


def _context(client: Client) -> Context[MySQLCluster]:
    obj = cluster()
    return cast(Context[MySQLCluster], SimpleNamespace(client=client, key=Key("default", "demo"), obj=obj))


async def _pod(client: Client) -> ObjectMeta:
    spec = core.PodSpec(containers=[core.Container(name="mysql", image="mariadb:10.11")])
    made = ObjectMeta(name="demo-0", namespace="default")
    return (await client.create(core.Pod(metadata=made, spec=spec))).metadata


def _deletion(seen: ObjectMeta) -> DeletePod:
    return DeletePod(
        component="mysql", pod="demo-0", uid=seen.uid or "", version=seen.resource_version or "", why="a test"
    )


async def test_a_pod_that_changed_or_was_made_again_since_it_was_seen_is_not_deleted() -> None:  # trap 29
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        ctx, given, status = _context(client), inputs(cluster()), MySQLClusterStatus()
        first = await _pod(client)
        labels = MergePatch({"metadata": {"labels": {"changed": "yes"}}})
        second = (await client.patch(core.Pod, "demo-0", labels, namespace="default")).metadata
        with pytest.raises(Conflict):
            await carry_out(ctx, given, _deletion(first), status)
        await client.delete(core.Pod, "demo-0", namespace="default", grace_period=0)
        third = await _pod(client)

        for stale in (second, changed(third, uid=second.uid)):
            with pytest.raises(Conflict):
                await carry_out(ctx, given, _deletion(stale), status)
        assert (await client.get(core.Pod, "demo-0", namespace="default")).metadata.uid == third.uid
        await carry_out(ctx, given, _deletion(third), status)
        with pytest.raises(NotFound):
            await client.get(core.Pod, "demo-0", namespace="default")


async def test_a_claim_that_was_made_again_since_it_was_seen_does_not_go_with_the_cluster() -> None:
    """The operator deletes no claim itself: with ``keepAfterDeletion: false`` it gives them an owner."""
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        ctx = _context(client)
        wanted = inputs(cluster()).specs.first_claim()
        wanted = changed(
            wanted, metadata=changed(wanted.metadata, namespace="default", owner_references=None)
        )
        old = await client.create(wanted)
        name = old.metadata.name or ""
        await client.delete(core.PersistentVolumeClaim, name, namespace="default")
        ended = MergePatch({"metadata": {"finalizers": None}})
        await client.patch(core.PersistentVolumeClaim, name, ended, namespace="default")
        new = await client.create(wanted)

        with pytest.raises(Conflict):
            await own_claims(ctx, [old], True)
        assert (await client.get(core.PersistentVolumeClaim, name, namespace="default")) == new
        await own_claims(ctx, [new], True)
        there = await client.get(core.PersistentVolumeClaim, name, namespace="default")
        assert [one.uid for one in there.metadata.owner_references or ()] == ["u1"]
