"""The chart's rules against what the operator really asks for, as the API server's audit log has it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hack.kubernetes.controlplane import ControlPlane
from hack.released import LEASE, NAMESPACE
from tests.charts.audit import asked, granted, granted_in
from tests.charts.helm import Provided
from tests.embedded.test_redis_backup import Backups
from tests.operators.redis.cluster import stage as rec

from mooring.kube import MergePatch, NotFound
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import ConfigMap, Secret, Service
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.objects.policy import PodDisruptionBudget
from mooring.kube.objects.rbac import ClusterRole, Role
from mooring.operators.redis.backup.types import RedisBackup, RedisBackupSchedule
from mooring.testing.bed import Bed, ClusterBed
from mooring.testing.redis import RedisStage, manifest

# By night: five clusters on one node of two processors, beside what the tests before left busy, are more than it carries.
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

LEASES = (LEASE, "mooring-redis-cluster-all")
#: Rights of each release's account that no request shows: to own objects, asked of whoever sets owner references where
#: that admission plugin is on (OpenShift), to label pods that HarmonyCloud's operator made, to read an object that
#: cannot be decoded, which the schema of backups keeps away, to read the log of a backup that takes minutes, to look at the
#: process of a master that hangs, and to make claims of nodes to come where they are to be larger, which the storage class
#: of this cluster does not allow.
BACKUPS = {
    ("", "pods/log", "get"),
    ("redis.mooring.dev", "redisbackups/finalizers", "update"),
    ("redis.mooring.dev", "redisbackups", "get"),
    ("redis.mooring.dev", "redisbackupschedules", "get"),
}
UNSEEN = {
    "mooring": {("redis.kun", "redisclusters/finalizers", "update"), *BACKUPS},
    "rec-mooring": {
        ("redis.middleware.hc.cn", "redisclusters/finalizers", "update"),
        ("", "pods", "patch"),
        ("", "pods/exec", "get"),
        ("", "pods/exec", "create"),
        ("", "persistentvolumeclaims", "create"),
        *BACKUPS,
    },
}


#: Clusters are made one after the other: one node of two processors starts the pods of all of them.
BEGINNING = asyncio.Lock()


async def is_changed(bed: Bed | ClusterBed) -> None:
    """What somebody deletes or spoils is made again; what is changed live, by a switch, and by a roll."""
    declared = manifest("changed", password="first", config={"maxclients": "1000"})
    declared["spec"]["storage"]["keepAfterDeletion"] = False
    stage = RedisStage(bed, "changed", password="first")
    async with BEGINNING:
        await bed.apply(declared)
        await stage.exact(180)
    await bed.client.delete(Service, stage.names.master, namespace="default")
    await bed.client.delete(PodDisruptionBudget, stage.names.redis, namespace="default")
    await bed.client.patch(Secret, stage.names.password, MergePatch({"data": None}), namespace="default")
    await stage.patch(
        {"config": {"maxclients": "1001"}, "password": "second", "networkPolicy": {"enabled": True}}
    )
    stage.password = "second"
    await stage.exact(120)
    await stage.patch(
        {"config": {"maxclients": "1001", "databases": "20"}, "configPolicy": "roll", "networkPolicy": None}
    )
    await stage.exact(180)


async def is_broken_and_resized(bed: Bed | ClusterBed) -> None:
    """A version that does not start and the way back; one server more and one less."""
    stage = RedisStage(bed, "resized")
    async with BEGINNING:
        await bed.apply(manifest("resized"))
        await stage.exact(180)
    await stage.patch({"image": "redis:none"})

    async def halted() -> bool:
        return any(roll.pod for roll in ((await stage.status()).rolls or {}).values())

    await bed.until(halted, "the roll is stopped", within=120)
    await stage.patch({"image": "redis:7.0"})
    await stage.exact(180)
    await stage.patch({"size": 4})
    await stage.exact(120)
    await stage.patch({"size": 3})
    await stage.exact(120)


async def has_its_slots_moved(bed: Bed | ClusterBed) -> None:
    """All that and more of a Redis Cluster: nodes come and go, and a version that does not start is turned back."""
    stage = rec.Stage(bed, "slots", password="first")
    try:
        async with BEGINNING:
            await bed.apply(rec.manifest("slots", password="first", finalizers="foreground"))
            await stage.exact(6, within=180)
        # What somebody deletes or spoils is made again; nodes come and go; the pods are made anew.
        await bed.client.delete(Service, "slots-service", namespace="default")
        await bed.client.delete(PodDisruptionBudget, "slots", namespace="default")
        await bed.client.patch(
            Secret, "slots-password", MergePatch({"data": {"exporter.json": None}}), namespace="default"
        )
        for replicas, policed in ((8, True), (6, False)):
            await stage.patch({"replicas": replicas, "networkPolicy": {"enabled": policed}})
            await stage.exact(replicas, within=180)
        # To a version that does not start, which is turned back, and then to other pods.
        await stage.patch({"pod": [{"middlewareImage": "redis:none", "requirepass": "first"}]})

        async def turned_back() -> bool:
            return "did not come up" in str((await stage.status()).standard_conditions)

        await bed.until(turned_back, "the roll is turned back", within=180)
        template = ConfigMap(
            metadata=ObjectMeta(name="slots-template", namespace="default"),
            data={"redis.conf": "hz 20\n"},
        )
        await bed.client.create(template)
        await stage.patch(
            {"pod": [{"middlewareImage": "redis:7.0", "requirepass": "first", "configmap": "slots-template"}]}
        )
        await stage.exact(6, within=240)

        async def swept() -> bool:
            """What the former pods read is gone."""
            ours = await bed.client.list(
                ConfigMap, namespace="default", label_selector="app.kubernetes.io/name=slots"
            )
            return len(ours.items) == 1

        await bed.until(swept, "the former configuration is gone", within=60)
    finally:
        await stage.delete()


async def is_backed_up(bed: Bed | ClusterBed) -> None:
    """Backups by the clock, of which one stays; one that is deleted while it is made; a cluster from another."""
    stage = RedisStage(bed, "saved")
    async with BEGINNING:
        await bed.apply(manifest("saved"))
        await stage.exact(180)
    await stage.fill(2000)
    backups = Backups(bed, "saved")
    target = await have_backups(backups)
    await backups.make("saved-once", target)
    await backups.over("saved-once")
    await bed.apply(manifest("copy", restoreFrom={"backup": "saved-once"}))
    await RedisStage(bed, "copy").exact(180)
    await lose_backups(backups)


async def has_its_shards_backed_up(bed: Bed | ClusterBed) -> None:
    """The same of a Redis Cluster, but for the cluster from a backup."""
    stage = rec.Stage(bed, "shards")
    try:
        async with BEGINNING:
            await bed.apply(rec.manifest("shards"))
            await stage.exact(6, within=180)
        await stage.fill(2000)
        backups = Backups(bed, "shards", "redis.middleware.hc.cn")
        await have_backups(backups)
        await lose_backups(backups)
    finally:
        await stage.delete()


async def have_backups(backups: Backups) -> dict[str, Any]:
    """Begin a schedule, and delete a backup while it is made; returns where they go."""
    target, name = await backups.claim(), backups.cluster
    cluster = {"group": backups.group, "name": name}
    spec = {
        "schedule": "* * * * *",
        "retention": {"keepLast": 1},
        "template": {"cluster": cluster, "target": target},
    }
    metadata = {"name": f"{name}-minutely", "namespace": "default"}
    kind = {"apiVersion": "redis.mooring.dev/v1alpha1", "kind": "RedisBackupSchedule"}
    await backups.bed.apply({**kind, "metadata": metadata, "spec": spec})
    slow = f"{name}-slow"
    await backups.make(slow, target, bandwidth="1Ki", deletionPolicy="Delete")

    async def runs() -> bool:
        return (await backups.status(slow)).phase == "Running"

    await backups.bed.until(runs, f"{slow} is made", within=60)
    await backups.bed.client.delete(RedisBackup, slow, namespace="default")
    return target


async def lose_backups(backups: Backups) -> None:
    """Wait until retention takes the first scheduled backup away, then delete all of them."""
    bed, ours = backups.bed, f"{backups.cluster}-"

    async def names() -> list[str]:
        listed = (await bed.client.list(RedisBackup, namespace="default")).items
        return [one.metadata.name or "" for one in listed if (one.metadata.name or "").startswith(ours)]

    first: set[str] = set()

    async def one_went() -> bool:
        now = {name for name in await names() if name.startswith(f"{ours}minutely")}
        first.update(now)
        return bool(first - now)

    await bed.until(one_went, "the first of two backups is deleted", within=240)
    await bed.client.delete(RedisBackupSchedule, f"{ours}minutely", namespace="default")
    for name in await names():
        with contextlib.suppress(NotFound):
            await bed.client.delete(RedisBackup, name, namespace="default")

    async def gone() -> bool:
        return not await names()

    await bed.until(gone, "no backup is left", within=120)


async def is_undefined(bed: Bed | ClusterBed) -> None:
    """The kind is not known yet, as before the first release."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/redisclusters.redis.kun"
    with contextlib.suppress(NotFound):
        await bed.client.request("DELETE", path)

    async def gone() -> bool:
        try:
            await bed.client.request("GET", path)
        except NotFound:
            return True
        return False

    await bed.until(gone, "the definition is gone", within=60)


async def test_every_rule_is_needed_and_none_is_missing(
    provided: Provided, real_cluster: ControlPlane
) -> None:
    bed, helm = provided.bed, provided.helm
    await is_undefined(bed)
    # What earlier releases asked for when their rights had gone before them is not of interest.
    since = real_cluster.audit_log.stat().st_size
    for lease in LEASES:
        with contextlib.suppress(NotFound):
            await bed.client.delete(Lease, lease, namespace=NAMESPACE)
    await helm.install("mooring", "--set", "operators=redis-sentinel")
    await helm.install("rec", "--set", "operators=redis-cluster")
    # Everything that clusters can go through and that needs a right of its own.
    async with asyncio.TaskGroup() as lives:
        for life in (
            is_changed,
            is_broken_and_resized,
            has_its_slots_moved,
            is_backed_up,
            has_its_shards_backed_up,
        ):
            lives.create_task(life(bed))

    for account, unseen in UNSEEN.items():
        wide = await bed.get(ClusterRole, f"{NAMESPACE}-{account}")
        own = await bed.get(Role, f"{account}-leader", NAMESPACE)
        requests = await asyncio.to_thread(list, asked(real_cluster, since, account))
        used, given = {right for right, _ in requests}, granted(wide.rules, own.rules)
        assert {right for right, status in requests if status == 403} == set()
        assert used - given == set()
        assert given - used == unseen

    # The hooks have accounts of their own: what applies the definitions, and what takes the clusters along.
    await helm.upgrade("mooring", "--reuse-values", "--set", "uninstall.deleteClusters=true")
    hooks = await helm("get", "hooks", "mooring")
    await helm("uninstall", "mooring", "--wait", "--timeout", "300s")
    for account in ("mooring-crds", "mooring-removal"):
        requests = await asyncio.to_thread(list, asked(real_cluster, since, account))
        assert {right for right, status in requests if status == 403} == set()
        assert {right for right, _ in requests} == granted_in(hooks, account)
