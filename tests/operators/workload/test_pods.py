"""What is done to pods: exactly to the one that was seen."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from mooring.actor import Context
from mooring.kube import Client, Conflict, MergePatch, NotFound
from mooring.kube.object import Key, decode
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.workload.effects import delete_pod
from mooring.operators.workload.moves import DeletePod
from mooring.operators.workload.pods import ROLE, pod_of
from mooring.operators.workload.trouble import SIDECAR, sidecar_trouble

DATA = "data"


def pod(*volumes: dict[str, Any]) -> core.Pod:
    spec = {"containers": [{"name": "redis", "image": "redis:7.0"}], "volumes": list(volumes)}
    return decode({"metadata": {"name": "demo-0", "namespace": "default"}, "spec": spec}, core.Pod)


def deletion(seen: ObjectMeta) -> DeletePod:
    version = seen.resource_version or ""
    return DeletePod(component="redis", pod="demo-0", uid=seen.uid or "", version=version)


async def test_a_pod_is_deleted_as_it_was_seen() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport())
        seen = (await client.create(pod())).metadata
        labels = MergePatch({"metadata": {"labels": {"changed": "yes"}}})
        now = (await client.patch(core.Pod, "demo-0", labels, namespace="default")).metadata
        ctx = cast(Context[Any], SimpleNamespace(client=client, key=Key("default", "demo")))

        with pytest.raises(Conflict):
            await delete_pod(ctx, deletion(seen))
        with pytest.raises(Conflict):
            await delete_pod(ctx, deletion(replace(now, uid="another")))
        await delete_pod(ctx, deletion(now))
        with pytest.raises(NotFound):
            await client.get(core.Pod, "demo-0", namespace="default")


@pytest.mark.parametrize(
    ("volume", "ephemeral"),
    [
        ({"emptyDir": {}}, True),
        ({"configMap": {"name": "c"}}, True),
        ({"secret": {"secretName": "s"}}, True),
        ({"persistentVolumeClaim": {"claimName": "c"}}, False),
        ({"hostPath": {"path": "/var/lib/x"}}, False),
        ({"nfs": {"server": "a", "path": "/"}}, False),
        ({"ephemeral": {}}, False),
    ],
)
def test_a_pod_is_ephemeral_if_nothing_that_it_stores_on_outlives_it(
    volume: dict[str, Any], ephemeral: bool
) -> None:
    one = pod({"name": "run", "emptyDir": {}}, {"name": DATA, **volume})
    made = pod_of(one, component="redis", claims={}, born=None, remedies={})
    assert made.ephemeral is ephemeral


@pytest.mark.parametrize(
    ("data", "lasting", "ephemeral"),
    [
        ({"emptyDir": {}}, False, True),
        ({"persistentVolumeClaim": {"claimName": "redis-data-demo-0"}}, True, False),
        ({"hostPath": {"path": "/var/lib/redis-cluster"}}, False, False),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_volumes_that_a_user_adds_are_not_taken_for_the_data(
    data: dict[str, Any], lasting: bool, ephemeral: bool, first: bool
) -> None:
    added = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
    volumes = [added, {"name": DATA, **data}] if first else [{"name": DATA, **data}, added]
    mounts = [{"name": "shared", "mountPath": "/opt/shared"}, {"name": DATA, "mountPath": "/data"}]
    one = pod(*volumes)
    assert one.spec is not None
    main = msgspec.convert({"name": "redis", "volumeMounts": mounts}, core.Container)
    one = replace(one, spec=replace(one.spec, containers=[main]))
    shared = core.PersistentVolumeClaim(metadata=ObjectMeta(name="shared", uid="of-shared"))
    claims = {"shared": shared}
    made = pod_of(one, component="redis", claims=claims, born=None, remedies={})
    assert (made.lasting, made.ephemeral) == (lasting, ephemeral)
    assert made.volume != "of-shared"


def test_a_pod_of_any_component_has_the_role_of_its_label_where_pods_bear_roles() -> None:
    one = pod({"name": "run", "emptyDir": {}})
    labelled = replace(one, metadata=replace(one.metadata, labels={ROLE: "primary"}))
    read = partial(pod_of, component="mysql", claims={}, born=None, remedies={})
    assert read(labelled).role is None
    assert read(labelled, roles=True).role == "primary"
    assert read(one, roles=True).role == ""


@pytest.mark.parametrize(
    ("remedies", "said"),
    [
        ({"exporter": "correct spec.exporter.image"}, "no such image; correct spec.exporter.image"),
        ({SIDECAR: "correct the image"}, "no such image; correct the image"),
        ({"agent": "correct spec.agent.image"}, "no such image"),
    ],
)
def test_a_container_beside_the_server_has_the_remedy_of_its_name(
    remedies: dict[str, str], said: str
) -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    containers = [{"name": "db", "state": {"running": {}}}, {"name": "exporter", "state": waiting}]
    status = decode({"status": {"containerStatuses": containers}}, core.Pod).status
    assert status is not None
    known = {"ErrImagePull": "correct spec.image", **remedies}
    assert sidecar_trouble(status, "db", known) == ("ErrImagePull", f"container exporter: {said}")
