"""The chart's rules against what the operators of MySQL and MatrixOne really ask for, on an API server in memory.

The databases are the models of the campaigns, and hours pass in seconds. The API server decides by the roles that Helm
renders, and its audit log has every request, as in test_rules.py.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from bench.campaign import WORKLOADS
from bench.matrixone_workloads import CLUSTER, IMAGE, LOG, S3, at_once, create, delete, edit, serves
from hack.build import helm
from hack.released import NAMESPACE
from tests.charts.audit import ACCOUNT, Right, asked, granted_in
from tests.charts.helm import CHART

from bench import mysql_model
from mooring.kube import Client, Conflict, Key, MergePatch, NotFound, Object
from mooring.kube.object import decode
from mooring.kube.objects.admissionregistration import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import Namespace, PersistentVolumeClaim, Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.audit import AuditLog, Policy
from mooring.local.api.http import User
from mooring.local.api.server import ApiServer
from mooring.local.api.storage import Collection
from mooring.local.api.storage import Event as StoreEvent
from mooring.operators.backup.agent import Result
from mooring.operators.host import Operate, Webhooks, apply_crds, operate
from mooring.operators.matrixone.types import Backup
from mooring.operators.mysql import compatible
from mooring.operators.mysql.actor import register
from mooring.operators.mysql.backup.types import MySQLBackup, MySQLBackupSchedule
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.names import SWITCH_TO
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.registry import OPERATORS, Operator
from mooring.runtime import Manager
from mooring.testing.plane import ControlPlane, Endless
from mooring.testing.workload import Step, Workload

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

NAME = ACCOUNT.format("mooring")
USER = User(
    NAME,
    groups=("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"),
)
POLICY = Policy.read(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [NAME]}],
    }
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
ROLES = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{NAMESPACE}/rolebindings",
}
PATHS = {
    **ROLES,
    "ValidatingWebhookConfiguration": f"{ADMISSION}/validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": f"{ADMISSION}/mutatingwebhookconfigurations",
}
UNSEEN: dict[str, set[Right]] = {
    "mysql": {
        ("mysql.mooring.dev", "mysqlbackups", "get"),
        ("mysql.mooring.dev", "mysqlbackupschedules", "get"),
    },
    "matrixone": {
        ("core.matrixorigin.io", "backupjobs", "get"),
        ("core.matrixorigin.io", "bucketclaims", "get"),
    },
}
"""Rights that no request shows: to read an object that cannot be decoded, which the schema keeps away."""


@dataclass(frozen=True)
class Log:
    """An audit log."""

    audit_log: Path


# --- what users do with MySQL


class Servers(mysql_model.World):
    """The servers of the campaigns, and Jobs that end well after a while."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._client = Client(plane.transport("kubelet"))
        self._jobs: dict[str, asyncio.Task[None]] = {}

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`."""
        uid = pod.metadata.uid or ""
        if "batch.kubernetes.io/job-name" not in (pod.metadata.labels or {}):
            super().started(pod, ip)
        elif uid not in self._jobs:
            self._jobs[uid] = asyncio.create_task(self._run(pod))

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        super().ended(uid)
        if uid in self._jobs:
            self._jobs.pop(uid).cancel()

    async def _run(self, pod: Pod) -> None:
        await asyncio.sleep(90)
        ended = {"exitCode": 0, "reason": "Completed", "message": Result(ok=True).encoded().decode()}
        store = {"name": "store", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        status = {
            "phase": "Succeeded",
            "containerStatuses": [{**store, "state": {"terminated": ended}}],
        }
        body = MergePatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        name = pod.metadata.name or ""
        with suppress(NotFound, Conflict):
            await self._client.patch(Pod, name, body, namespace="default", subresource="status")


class Loaded(mysql_model.InMemory):
    """The same servers, as reads keep them busy."""

    async def look(self, key: Key, inputs: Inputs, *, now: Callable[[], datetime]) -> Snapshot:
        """See `Databases.look`."""
        seen = await super().look(key, inputs, now=now)
        return replace(seen, observed=replace(seen.observed, reads={}))


def post(kind: Any, name: str, spec: dict[str, Any]) -> Step:
    """Make an object."""
    resource = kind.resource
    metadata = {"name": name, "namespace": "default"}
    document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}

    async def step(client: Client) -> None:
        await client.request("POST", resource.path(namespace="default"), body=msgspec.json.encode(document))

    return step


def change(kind: Any, name: str, body: dict[str, Any]) -> Step:
    """Change an object."""

    async def step(client: Client) -> None:
        await client.patch(kind, name, MergePatch(body), namespace="default")

    return step


def remove(kind: Any, name: str) -> Step:
    """Delete an object."""

    async def step(client: Client) -> None:
        await client.delete(kind, name, namespace="default")

    return step


def after(seconds: float) -> Step:
    """Wait."""
    return lambda client: asyncio.sleep(seconds)


async def claim(client: Client) -> None:
    """Where backups go."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    document = {"metadata": {"name": "backups", "namespace": "default"}, "spec": spec}
    await client.create(decode(document, PersistentVolumeClaim))


TARGET = {"claim": {"name": "backups"}}
SERVERS = {"size": 3, "image": "mariadb:10.11", "storage": {"size": "1Gi"}}


def mysql() -> list[Workload]:
    """What users do with MySQL, as far as it needs a right of its own."""
    base = replace(
        WORKLOADS["mysql-create"](),
        model=Servers,
        operator=functools.partial(register, databases=Loaded()),
    )

    def spec(**fields: Any) -> Step:
        return change(MySQLCluster, "demo", {"spec": fields})

    made = post(MySQLCluster, "demo", SERVERS)
    backup = {"cluster": {"name": "demo"}, "target": TARGET, "deletionPolicy": "Delete"}
    hourly = {"schedule": "0 * * * *", "retention": {"keepLast": 1}, "template": backup}
    cpu = {"minReplicas": 2, "maxReplicas": 4, "metrics": [{"type": "CPU", "target": 50}]}
    lives: dict[str, Sequence[Step]] = {
        "changed": (
            made,
            spec(config={"max_connections": "200"}),
            spec(config={"performance_schema": "ON"}),
            spec(image="mariadb:10.11.8"),
            spec(archive={"target": TARGET}),
            spec(archive=None),
            spec(pod={"nodeSelector": {"disk": "none"}}),
            spec(pod=None),
            spec(size=4, storage={"size": "2Gi"}),
            spec(autoscale=cpu),
        ),
        "backed-up": (
            made,
            claim,
            post(MySQLBackup, "first", backup),
            post(MySQLBackupSchedule, "hourly", hourly),
            after(3600),
            after(3600),
            after(3600),
            remove(MySQLBackup, "first"),
            at_once(post(MySQLBackup, "second", backup), after(60), remove(MySQLBackup, "second")),
        ),
        "compatible": (
            post(compatible.MySQLCluster, "other", SERVERS),
            change(compatible.MySQLCluster, "other", {"metadata": {"annotations": {SWITCH_TO: "other-1"}}}),
        ),
    }
    lived = [replace(base, name=f"mysql-{name}", given=(), steps=steps) for name, steps in lives.items()]
    return [*lived, WORKLOADS["mysql-switch"]()]


# --- what users do with MatrixOne


async def refill(client: Client) -> None:
    """Restore the oldest backup into a path; the job goes a minute after its end."""
    names = sorted(one.metadata.name or "" for one in (await client.list(Backup)).items)
    target = {"s3": {**S3, "path": "bucket/new"}}
    await create("RestoreJob", "again", {"backupName": names[0], "target": target, "ttl": "1m"})(client)


def matrixone() -> list[Workload]:
    """What users do with MatrixOne, as far as it needs a right of its own."""
    base = WORKLOADS["matrixone-cluster"]()
    # No store is asked for what is to be deleted there.
    kept = {**S3, "endpoint": "ftp://nowhere", "path": "bucket/mo", "s3RetentionPolicy": "Delete"}
    log = {**LOG, "sharedStorage": {"s3": kept}, "replicas": 3}
    cpu = {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "cpu", "target": 50}]}
    group = {"name": "main", "replicas": 2, "cacheVolume": {"size": "1Gi"}}
    ui = {"replicas": 1}
    whole = {**CLUSTER, "logService": log, "cnGroups": [group], "proxy": {"replicas": 1}, "webui": ui}
    spec = functools.partial(edit, "MatrixOneCluster", "mo")
    nowhere = {"nodeSelector": {"disk": "none"}}
    old = {**CLUSTER, "logService": {**LOG, "sharedStorage": {"s3": {**S3, "path": "bucket/old"}}}}
    skip = {"annotations": {"matrixorigin.io/skip-sync": "yes"}}
    job = {"source": {"clusterRef": "old"}, "target": {"s3": {**S3, "path": "bucket/backups"}}}
    hourly = {**job, "schedule": {"cron": "0 * * * *", "retention": {"keepLast": 1}}}
    deps = {"logSet": {"metadata": {"name": "mo"}}, "dnSet": {"metadata": {"name": "mo"}}}
    few = {"replicas": 1, "cacheVolume": {"size": "1Gi"}, "reusePVC": True}
    lives: dict[str, Sequence[Step]] = {
        "changed": (
            create("MatrixOneCluster", "mo", whole),
            spec({"tn": {"replicas": 1, "exportToPrometheus": True}}),
            spec({"tn": {"replicas": 1, "exportToPrometheus": False}}),
            spec({"tn": {"replicas": 1, "config": '[log]\nlevel = "debug"\n'}}),
            spec({"webui": {**ui, "config": '[log]\nformat = "json"\n'}}),
            spec({"cnGroups": [{**group, "config": '[log]\nlevel = "debug"\n'}]}),
            spec({"logService": {"volume": {"size": "2Gi"}}}),
            spec({"logService": nowhere}),
            spec({"logService": {"nodeSelector": None}}),
            spec({"cnGroups": [{**group, "replicas": 1, "autoscale": cpu}]}),
            delete("MatrixOneCluster", "mo"),
        ),
        "revised": (
            create("LogSet", "mo", {**LOG, "image": IMAGE}),
            create("DNSet", "mo", {"image": IMAGE, "replicas": 1}, deps={"logSet": deps["logSet"]}),
            create("CNSet", "few", {"image": IMAGE, **few}, deps=deps),
            edit("CNSet", "few", {"replicas": 0}),
            *(edit("CNSet", "few", {"config": f'[log]\nfilename = "{number}"\n'}) for number in range(12)),
            edit("CNSet", "few", {"replicas": 1}),
        ),
        "backed-up": (
            create("MatrixOneCluster", "old", old, metadata=skip),
            serves,
            create("BackupJob", "hourly", hourly),
            after(3600),
            after(3600),
            after(3600),
            create("BackupJob", "once", {**job, "ttl": "1m", "deletionPolicy": "Delete"}),
            after(3600),
            refill,
            create("BackupJob", "tried", {**job, "verify": True}),
            at_once(
                create("BackupJob", "cut", {**job, "verify": True}), after(7), delete("BackupJob", "cut")
            ),
        ),
    }
    lived = [replace(base, name=f"matrixone-{name}", given=(), steps=steps) for name, steps in lives.items()]
    return [*lived, *(WORKLOADS[f"matrixone-{name}"]() for name in ("claim", "set", "move", "restore"))]


LIVES: dict[str, Callable[[], list[Workload]]] = {"mysql": mysql, "matrixone": matrixone}


# --- the proof


def rendered(operator: str, home: Path) -> str:
    """The roles of a release that runs one operator."""
    command = [str(helm(3)), "template", "mooring", str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", "1.33.0", "--set", f"operators={operator}"]
    done = subprocess.run(command, env={"HOME": str(home)}, capture_output=True, text=True, check=True)
    return done.stdout


async def permit(server: ApiServer, documents: str, paths: Mapping[str, str]) -> None:
    """Make the objects of the chart that have a path, as an administrator."""
    client = Client(server.transport(), field_manager="helm")
    await client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    for one in yaml.safe_load_all(documents):
        if one and (path := paths.get(one["kind"])):
            await client.request("POST", path, body=msgspec.json.encode(one))


@dataclass
class Owners:
    """The kinds of an operator that own objects, as the objects say: the right to set that is asked for on OpenShift alone."""

    kinds: Sequence[type[Object]]
    found: set[Right] = field(default_factory=set)

    def see(self, collection: Collection, event: StoreEvent) -> None:
        """Note the owners of an object that is made or changed."""
        for reference in event.entry.obj["metadata"].get("ownerReferences") or ():
            for kind in self.kinds:
                resource = kind.resource
                named = (reference["apiVersion"], reference["kind"]) == (resource.api_version, resource.kind)
                if named and reference.get("blockOwnerDeletion"):
                    self.found.add((resource.group, f"{resource.plural}/finalizers", "update"))


async def live(workload: Workload, documents: str, log: Path) -> set[Right]:
    """Have the operator live through what the users of a workload do; the rights to own objects that it needs."""
    owners = Owners(workload.kinds)
    async with ControlPlane(model=workload.model, endpoints=workload.endpoints) as plane:
        plane.observe(owners.see)
        await plane.define(*workload.kinds)
        await permit(plane.server, documents, ROLES)
        plane.server.audit = AuditLog(log, POLICY, now=plane.clock.now)
        client = Client(Endless(plane.server.transport(user=USER)), field_manager=workload.name)
        manager = Manager(client, name=workload.name, clock=plane.clock, grace=0.0)
        workload.operator(manager)
        work = asyncio.create_task(manager.run(), name="operator")
        try:
            for step in (*workload.given, *workload.steps):
                await step(plane.client)
                await plane.settle()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    return owners.found


async def start(operator: Operator, documents: str, log: Path) -> None:
    """Run a process of the operator until it holds its Lease and has registered its webhooks."""
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="helm")
        await apply_crds(client, [operator])
        await permit(server, documents, PATHS)
        server.audit = AuditLog(log, POLICY, now=server.cluster.now)
        how = Operate(
            operators=[operator],
            namespace=NAMESPACE,
            webhooks=Webhooks(service="mooring-webhooks", port=0, inject_only=True),
            election={"retry_period": 0.2, "renew_deadline": 3.0, "lease_duration": 5.0},
        )
        work = asyncio.create_task(operate(Client(server.transport(user=USER), field_manager="mooring"), how))
        try:
            async with asyncio.timeout(20):
                while not await registered(client, operator.name):
                    await asyncio.sleep(0.05)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def registered(client: Client, operator: str) -> bool:
    """Whether the Lease was renewed, and the API server trusts the webhooks."""
    name = f"mooring-{operator}-all"
    kinds: tuple[Any, ...] = (ValidatingWebhookConfiguration,)
    if operator == "matrixone":
        kinds = (*kinds, MutatingWebhookConfiguration)
    for kind in kinds:
        hooks = (await client.get(kind, name)).webhooks or ()
        if not all(one.client_config and one.client_config.ca_bundle for one in hooks):
            return False
    try:
        lease = (await client.get(Lease, name, namespace=NAMESPACE)).spec
    except NotFound:
        return False
    return lease is not None and lease.renew_time != lease.acquire_time


@pytest.mark.parametrize("operator", LIVES)
async def test_every_rule_is_needed_and_none_is_missing(operator: str, tmp_path: Path) -> None:
    documents = await asyncio.to_thread(rendered, operator, tmp_path)
    log, used = tmp_path / "audit.log", set[Right]()
    await start(OPERATORS[operator], documents, log)
    for workload in LIVES[operator]():
        used |= await live(workload, documents, log)
    requests = set(asked(Log(log), 0))
    used |= {right for right, _ in requests}
    given = granted_in(documents, "-mooring") | granted_in(documents, "mooring-leader")
    assert {right for right, status in requests if status == 403} == set()
    assert used - given == set()
    assert given - used == UNSEEN[operator]
