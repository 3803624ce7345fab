"""The controllers together, on the embedded API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.local.controllers.bed import Bed, controlled, keys, make_node, running

from mooring.kube import Client, TooManyRequests
from mooring.kube.object import Resource
from mooring.kube.objects.apiextensions import CustomResourceDefinition
from mooring.kube.objects.apps import ControllerRevision, Deployment, ReplicaSet, StatefulSet
from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import (
    ConfigMap,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Service,
    ServiceAccount,
)
from mooring.kube.objects.discovery import EndpointSlice
from mooring.kube.objects.events import Event
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.kube.objects.rbac import ClusterRole
from mooring.kube.objects.scheduling import PriorityClass
from mooring.kube.objects.storage import StorageClass
from mooring.kube.patches import MergePatch, StrategicMergePatch
from mooring.local.api import ApiServer
from mooring.local.controllers.kinds import metadata_kind

NO_VICTIMS = (
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for "
    "incoming pod."
)


def stateful(name: str = "redis", replicas: int = 3, *, claims: bool = False, **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "redis:7"}]},
    }
    body: dict[str, Any] = {
        "replicas": replicas,
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
        **spec,
    }
    if claims:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    return {"spec": body}


async def test_cluster_roles_gather_the_rules_of_others(tmp_path: Path) -> None:
    async with running(tmp_path, kubelet=False) as (bed, _):
        rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}
        mark = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}

        async def of_admin() -> bool:
            groups = [one.api_groups for one in (await bed.get(ClusterRole, "admin")).rules or ()]
            return ["example.com"] in groups

        assert not await of_admin()
        await bed.create(ClusterRole, "widgets", {"rules": [rule]}, labels=mark)
        await bed.eventually(of_admin, "the rule with view, edit and admin")
        await bed.client.delete(ClusterRole, "widgets")

        async def without() -> bool:
            return not await of_admin()

        await bed.eventually(without, "the rule gone again")
        assert await bed.quiet() == 0


async def all_ready(bed: Bed, name: str = "redis", replicas: int = 3) -> None:
    async def ready() -> bool:
        status = (await bed.get(StatefulSet, name)).status
        return status is not None and status.ready_replicas == replicas == status.updated_replicas

    await bed.eventually(ready, f"{name} ready")


async def test_a_stateful_set_with_volumes_and_a_service_comes_up_and_then_nothing_is_written(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (bed, _):
        service = {"spec": {"selector": {"app": "redis"}, "clusterIP": "None", "ports": [{"port": 6379}]}}
        await bed.create(Service, "redis", service)
        await bed.create(StatefulSet, "redis", stateful(claims=True))
        await all_ready(bed)
        volumes = await bed.list(PersistentVolume)
        assert len(volumes) == 3
        for volume in volumes:
            assert volume.spec is not None
            assert volume.spec.local is not None
            assert await asyncio.to_thread(Path(volume.spec.local.path or "").is_dir)

        async def endpoints() -> bool:
            (found,) = await bed.list(EndpointSlice)
            hosts = [e.hostname for e in found.endpoints or () if e.conditions and e.conditions.ready]
            return hosts == ["redis-0", "redis-1", "redis-2"]

        await bed.eventually(endpoints, "three ready endpoints")
        assert await bed.quiet() == 0
        reasons = {event.reason for event in await bed.list(Event)}
        assert {"SuccessfulCreate", "Scheduled", "ProvisioningSucceeded"} <= reasons


async def test_a_more_important_pod_takes_the_place_of_a_lesser_one(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        await bed.create(PriorityClass, "high", {"value": 1000})
        requests = {"resources": {"requests": {"memory": "12Gi"}}}
        spec: dict[str, Any] = {"containers": [{"name": "a", "image": "a", **requests}]}
        await bed.create(Pod, "lesser", {"spec": spec})

        async def on_a_node(name: str) -> bool:
            pod = await bed.get(Pod, name)
            return bool(pod.spec and pod.spec.node_name)

        await bed.eventually(lambda: on_a_node("lesser"), "the lesser pod bound")
        await bed.create(Pod, "important", {"spec": {**spec, "priorityClassName": "high"}})

        await bed.gone(Pod, "lesser")
        await bed.eventually(lambda: on_a_node("important"), "the important pod bound")
        found = await bed.get(Pod, "important")
        assert found.status is not None
        assert found.status.nominated_node_name is None
        assert await bed.quiet() == 0


async def test_a_pod_that_fits_nowhere_says_why_and_runs_when_there_is_room(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        requests = {"resources": {"requests": {"memory": "12Gi"}}}
        body = {"spec": {"containers": [{"name": "a", "image": "a", **requests}]}}
        await bed.create(Pod, "first", body)
        await bed.create(Pod, "second", body)

        async def refused() -> bool:
            pod = await bed.get(Pod, "second")
            found = (
                [c for c in (pod.status.conditions or ()) if c.type == "PodScheduled"] if pod.status else []
            )
            return [(c.status, c.reason, c.message) for c in found] == [
                ("False", "Unschedulable", f"0/1 nodes are available: 1 Insufficient memory. {NO_VICTIMS}")
            ]

        await bed.eventually(refused, "second refused")
        assert await bed.quiet() == 0
        await bed.client.delete(Pod, "first", namespace="default", grace_period=0)

        async def bound() -> bool:
            pod = await bed.get(Pod, "second")
            return bool(pod.spec and pod.spec.node_name == "n1")

        await bed.eventually(bound, "second bound")


async def test_deleting_a_claim_waits_for_its_pod_and_takes_the_directory_along(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        await bed.create(StatefulSet, "redis", stateful(replicas=1, claims=True))
        await all_ready(bed, replicas=1)
        (volume,) = await bed.list(PersistentVolume)
        await bed.client.delete(PersistentVolumeClaim, "data-redis-0", namespace="default")
        await bed.quiet()
        assert keys(await bed.list(PersistentVolumeClaim)) == ["data-redis-0"]
        await bed.patch(StatefulSet, "redis", {"spec": {"replicas": 0}})
        await bed.gone(PersistentVolumeClaim, "data-redis-0")
        await bed.gone(PersistentVolume, volume.metadata.name or "")
        assert list((tmp_path / "volumes").iterdir()) == []


async def test_volumes_are_made_enlarged_and_removed_beside_somebody_elses_binder(tmp_path: Path) -> None:
    provisioner = {"volume.kubernetes.io/storage-provisioner": "mooring.dev/local"}
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    async with (
        ApiServer.in_memory() as server,
        controlled(server, tmp_path, kubelet=False, beside=True) as (bed, _),
    ):
        await bed.eventually(lambda: bed.list(StorageClass), "the class")
        wanted = {"spec": {**body, "storageClassName": "mooring-local"}}
        claim = await bed.create(PersistentVolumeClaim, "data", wanted, annotations=provisioner)
        await bed.quiet()
        assert await bed.list(PersistentVolume) == [], "no pod has been scheduled"

        chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
        await bed.patch(PersistentVolumeClaim, "data", chosen)
        (volume,) = await bed.eventually(lambda: bed.list(PersistentVolume), "the volume")
        assert volume.spec.claim_ref.uid == claim.metadata.uid
        await bed.quiet()
        assert (await bed.get(PersistentVolumeClaim, "data")).spec == claim.spec, "binding is not ours"

        name = volume.metadata.name or ""
        done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        await bed.patch(PersistentVolumeClaim, "data", {"metadata": done, "spec": {"volumeName": name}})
        bound = MergePatch({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
        await bed.client.patch(
            PersistentVolumeClaim, "data", bound, namespace="default", subresource="status"
        )
        more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await bed.patch(PersistentVolumeClaim, "data", more)

        async def grown() -> bool:
            status = (await bed.get(PersistentVolumeClaim, "data")).status
            return status is not None and status.capacity == {"storage": "2Gi"}

        await bed.eventually(grown, "the claim has what it asks for")
        spec = (await bed.get(PersistentVolume, name)).spec
        assert spec is not None
        assert spec.capacity == {"storage": "2Gi"}

        released = MergePatch({"status": {"phase": "Released"}})
        await bed.client.patch(PersistentVolume, name, released, subresource="status")

        async def let_go() -> bool:
            return (await bed.get(PersistentVolume, name)).metadata.deletion_timestamp is not None

        await bed.eventually(let_go, "the volume is deleted")
        assert await asyncio.to_thread(lambda: list((tmp_path / "volumes").iterdir())) == []


async def test_a_rolling_update_replaces_pods_one_by_one_and_a_broken_one_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, kubelet):
        kubelet.broken = lambda pod: bool(
            pod.spec and pod.spec.containers and pod.spec.containers[0].image == "broken"
        )
        await bed.create(StatefulSet, "redis", stateful())
        await all_ready(bed)
        image = {"containers": [{"name": "main", "image": "redis:8"}]}
        await bed.patch(StatefulSet, "redis", {"spec": {"template": {"spec": image}}})

        async def rolled() -> bool:
            status = (await bed.get(StatefulSet, "redis")).status
            assert status is not None
            return status.current_revision == status.update_revision and status.updated_replicas == 3

        await bed.eventually(rolled, "rolled out")
        broken = {"containers": [{"name": "main", "image": "broken"}]}
        await bed.patch(StatefulSet, "redis", {"spec": {"template": {"spec": broken}}})

        async def halted() -> bool:
            status = (await bed.get(StatefulSet, "redis")).status
            assert status is not None
            return (status.updated_replicas, status.ready_replicas) == (1, 2)

        await bed.eventually(halted, "halted at the first broken pod")
        assert await bed.quiet() == 0


async def test_what_a_deleted_owner_leaves_goes_in_the_background(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        await bed.create(StatefulSet, "redis", stateful())
        await all_ready(bed)
        await bed.client.delete(StatefulSet, "redis", namespace="default")
        for number in range(3):
            await bed.gone(Pod, f"redis-{number}")

        async def no_revisions() -> bool:
            return await bed.list(ControllerRevision) == []

        await bed.eventually(no_revisions, "revisions collected")


async def test_a_foreground_deletion_keeps_the_owner_until_its_pods_are_gone(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, kubelet):
        await bed.create(StatefulSet, "redis", stateful(replicas=2))
        await all_ready(bed, replicas=2)
        kubelet.frozen = {"redis-1"}
        await bed.client.delete(StatefulSet, "redis", namespace="default", propagation="Foreground")
        await bed.gone(Pod, "redis-0")
        await bed.quiet()
        waiting = await bed.get(StatefulSet, "redis")
        assert waiting.metadata.finalizers == ["foregroundDeletion"]
        await bed.client.delete(Pod, "redis-1", namespace="default", grace_period=0)
        await bed.gone(StatefulSet, "redis")


async def test_orphans_stay_and_are_adopted_by_a_successor(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        await bed.create(StatefulSet, "redis", stateful())
        await all_ready(bed)
        before = {pod.metadata.uid for pod in await bed.list(Pod)}
        await bed.client.delete(StatefulSet, "redis", namespace="default", propagation="Orphan")
        await bed.gone(StatefulSet, "redis")
        assert all(not pod.metadata.owner_references for pod in await bed.list(Pod))
        await bed.create(StatefulSet, "redis", stateful())
        await all_ready(bed)
        after = await bed.list(Pod)
        assert {pod.metadata.uid for pod in after} == before
        assert all(pod.metadata.owner_references for pod in after)
        assert await bed.quiet() == 0


async def test_an_object_with_an_owner_that_never_was_goes_unless_another_owner_is_there(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (bed, _):
        real = await bed.create(ConfigMap, "owner")
        ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "00000000-dead"}
        true = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": real.metadata.uid}
        unknown = {"apiVersion": "x.example/v1", "kind": "Nothing", "name": "n", "uid": "1"}
        await bed.create(ConfigMap, "doomed", ownerReferences=[ghost])
        await bed.create(ConfigMap, "kept", ownerReferences=[ghost, true])
        await bed.create(ConfigMap, "puzzling", ownerReferences=[unknown])
        await bed.gone(ConfigMap, "doomed")

        async def released() -> bool:
            kept = await bed.get(ConfigMap, "kept")
            return [o.name for o in kept.metadata.owner_references or ()] == ["owner"]

        await bed.eventually(released, "the ghost released")
        assert await bed.get(ConfigMap, "puzzling")


async def test_custom_resources_own_and_are_owned_like_any_other(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        schema = {"openAPIV3Schema": {"type": "object"}}
        await bed.create(
            CustomResourceDefinition,
            "widgets.example.com",
            {
                "spec": {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
                }
            },
        )
        widget = metadata_kind(Resource("example.com", "v1", "Widget", "widgets", True))

        async def made() -> Any:
            return await bed.create(widget, "w")

        owner = await bed.eventually(made, "a widget made")
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": owner.metadata.uid}
        await bed.create(ConfigMap, "owned", ownerReferences=[reference])
        await bed.quiet()
        await bed.client.delete(widget, "w", namespace="default")
        await bed.gone(ConfigMap, "owned")


async def test_a_namespace_is_furnished_and_emptied(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, kubelet):
        await bed.create(Namespace, "team")

        async def furnished() -> bool:
            bundle = await bed.get(ConfigMap, "kube-root-ca.crt", "team")
            return bundle.data == {"ca.crt": "---"} and bool(await bed.get(ServiceAccount, "default", "team"))

        await bed.eventually(furnished, "team furnished")
        await bed.client.delete(ConfigMap, "kube-root-ca.crt", namespace="team")
        await bed.eventually(furnished, "the bundle is back")
        body = stateful(claims=True)
        await bed.create(StatefulSet, "redis", body, namespace="team")

        async def running_pods() -> bool:
            status = (await bed.get(StatefulSet, "redis", "team")).status
            return status is not None and status.ready_replicas == 3

        await bed.eventually(running_pods, "three pods")
        kubelet.frozen = {"redis-2"}
        await bed.create(ConfigMap, "held", namespace="team", finalizers=["example.com/held"])
        await bed.client.delete(Namespace, "team")

        async def conditions() -> dict[str | None, str | None]:
            status = (await bed.get(Namespace, "team")).status
            return {c.type: c.message for c in (status.conditions or ()) if status} if status else {}

        await bed.quiet()
        assert keys(await bed.list(ConfigMap, "team")) == ["held", "kube-root-ca.crt"]
        await bed.client.delete(Pod, "redis-2", namespace="team", grace_period=0)

        async def one_left() -> bool:
            found = await conditions()
            return found.get("NamespaceFinalizersRemaining") == (
                "Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances"
            )

        await bed.eventually(one_left, "only the held one is left")
        assert (await conditions())["NamespaceContentRemaining"] == (
            "Some resources are remaining: configmaps. has 1 resource instances"
        )
        assert await bed.quiet() == 0
        await bed.patch(ConfigMap, "held", {"metadata": {"finalizers": None}}, "team")
        await bed.gone(Namespace, "team")
        assert await bed.list(PersistentVolume) == []


async def test_a_budget_counts_and_an_eviction_is_refused_when_none_is_left(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, kubelet):
        selector = {"matchLabels": {"app": "redis"}}
        await bed.create(PodDisruptionBudget, "redis", {"spec": {"selector": selector, "maxUnavailable": 1}})
        await bed.create(StatefulSet, "redis", stateful())
        await all_ready(bed)

        async def counts() -> tuple[int | None, ...]:
            status = (await bed.get(PodDisruptionBudget, "redis")).status
            assert status is not None
            return (
                status.expected_pods,
                status.desired_healthy,
                status.current_healthy,
                status.disruptions_allowed,
            )

        async def full() -> bool:
            return await counts() == (3, 2, 3, 1)

        await bed.eventually(full, "one disruption allowed")
        kubelet.frozen = {"redis-0"}
        await bed.client.evict("redis-0", namespace="default")

        async def used() -> bool:
            return await counts() == (3, 2, 2, 0)

        await bed.eventually(used, "none allowed")
        with pytest.raises(TooManyRequests):
            await bed.client.evict("redis-1", namespace="default")
        await bed.client.delete(Pod, "redis-0", namespace="default", grace_period=0)
        kubelet.frozen = set()
        await bed.eventually(full, "one allowed again")


async def test_a_deployment_rolls_out_rolls_back_and_cleans_up(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "a"}]},
        }
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        await bed.create(Deployment, "web", {"spec": spec})

        async def complete(revision: str) -> bool:
            web = await bed.get(Deployment, "web")
            status = web.status
            assert status is not None
            told = (web.metadata.annotations or {}).get("deployment.kubernetes.io/revision")
            counts = (status.replicas, status.updated_replicas, status.available_replicas)
            return (told, status.observed_generation, counts) == (
                revision,
                web.metadata.generation,
                (3, 3, 3),
            )

        await bed.eventually(lambda: complete("1"), "first revision complete")
        first = {pod.metadata.name for pod in await bed.list(Pod)}

        async def image(name: str) -> None:
            containers = {"containers": [{"name": "main", "image": name}]}
            await bed.patch(Deployment, "web", {"spec": {"template": {"spec": containers}}})

        await image("b")
        await bed.eventually(lambda: complete("2"), "second revision complete")
        assert first.isdisjoint(pod.metadata.name for pod in await bed.list(Pod))
        await image("a")
        await bed.eventually(lambda: complete("3"), "rolled back")
        assert len(await bed.list(ReplicaSet)) == 2
        assert await bed.quiet() == 0
        await bed.client.delete(Deployment, "web", namespace="default")

        async def nothing() -> bool:
            return not await bed.list(ReplicaSet) and not await bed.list(Pod)

        await bed.eventually(nothing, "everything collected")


async def test_a_silent_node_is_tainted_and_its_pods_go_elsewhere_until_it_is_heard_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, nodes=("n1", "n2"), node_grace=0.5) as (bed, _kubelet):
        silent = {"n1"}

        async def heartbeats() -> None:
            beat = 0
            while True:
                beat += 1
                for name in {"n1", "n2"} - silent:
                    now = f"2030-01-01T00:00:00.{beat:06}Z"
                    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
                    await bed.client.patch(
                        Node,
                        name,
                        StrategicMergePatch({"status": {"conditions": [condition]}}),
                        subresource="status",
                    )
                await asyncio.sleep(0.1)

        beating = asyncio.create_task(heartbeats())
        try:
            tolerations = [
                {
                    "key": f"node.kubernetes.io/{k}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 0,
                }
                for k in ("not-ready", "unreachable")
            ]
            body = stateful(replicas=1)
            body["spec"]["template"]["spec"] |= {
                "tolerations": tolerations,
                "nodeSelector": {"kubernetes.io/hostname": "n1"},
            }
            await bed.create(StatefulSet, "redis", body)

            async def tainted() -> bool:
                node = await bed.get(Node, "n1")
                found = {(t.key, t.effect) for t in (node.spec.taints or ())} if node.spec else set()
                key = "node.kubernetes.io/unreachable"
                return {(key, "NoSchedule"), (key, "NoExecute")} <= found

            await bed.eventually(tainted, "n1 unreachable")

            async def refused() -> bool:
                pod = await bed.get(Pod, "redis-0")
                told = (
                    [c.message for c in (pod.status.conditions or ()) if c.type == "PodScheduled"]
                    if pod.status
                    else []
                )
                return told == [
                    (
                        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
                        "1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 "
                        "nodes are available: 2 Preemption is not helpful for scheduling."
                    )
                ]

            await bed.eventually(refused, "evicted and refused")
            silent.clear()
            await all_ready(bed, replicas=1)

            async def untainted() -> bool:
                node = await bed.get(Node, "n1")
                assert node.spec is not None
                return not node.spec.taints

            await bed.eventually(untainted, "n1 without taints")
        finally:
            beating.cancel()


async def test_controllers_that_start_again_write_nothing(tmp_path: Path) -> None:
    async with ApiServer.in_memory() as server:
        await make_node(Client(server.transport()), "n1")
        async with controlled(server, tmp_path) as (bed, _):
            selector = {"selector": {"matchLabels": {"app": "redis"}}, "minAvailable": 1}
            await bed.create(PodDisruptionBudget, "redis", {"spec": selector})
            await bed.create(
                Service, "redis", {"spec": {"selector": {"app": "redis"}, "ports": [{"port": 6379}]}}
            )
            await bed.create(StatefulSet, "redis", stateful(claims=True))
            await all_ready(bed)
            template: dict[str, Any] = {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "a"}]},
            }
            spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
            await bed.create(Deployment, "web", {"spec": spec})
            done = {**template["spec"], "restartPolicy": "Never"}
            await bed.create(Job, "job", {"spec": {"template": {"spec": done}}})
            assert await bed.quiet() == 0
            before = await bed.version()
        async with controlled(server, tmp_path) as (bed, _):
            assert await bed.quiet() == 0
            assert await bed.version() == before
