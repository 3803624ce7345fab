"""What users do with MatrixOne while faults strike its operator; the processes are those of bench/matrixone_model.py.

| workload | what users do |
|---|---|
| matrixone-claim | two claims at once, of a pool with two warm pods; one is deleted, and a claim of that name made for another user |
| matrixone-set | a set of two claims, of a pool with one warm pod, scaled to one |
| matrixone-move | a claim leaves its pod for another one; then the pool is rolled, and claims follow |
| matrixone-cluster | a cluster with three log stores, a transaction node, a group of two compute nodes and a proxy; one compute node goes |
| matrixone-roll | another version of such a cluster |
| matrixone-backup | a backup; its first try is killed half-way, and the second one when it is done, before it reports |
| matrixone-verify | a backup that is tried out; the first test restore is killed half-way, and its copy deleted |
| matrixone-restore | a cluster that begins with the backup, whose first try fails half-way; then `restoreFrom` is removed |
| matrixone-restore-job | a RestoreJob into a path, whose first try fails half-way, and another one into the same path |
"""

from __future__ import annotations

import base64
import functools
import re
from typing import Any, Final

import msgspec
from bench.matrixone_model import ACCOUNT, InMemory, World
from bench.matrixone_monitors import TEAM, monitors, rest_from_now_on

from mooring.kube import Client, MergePatch
from mooring.kube.objects.core import Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.actor import register
from mooring.operators.matrixone.names import CN_LABELS, STORE_ID
from mooring.operators.matrixone.pool.labels import LAST_OWNER, MOVE, RECLAIMED_AT
from mooring.operators.matrixone.specs.compute import READY_GATE
from mooring.operators.matrixone.types import Backup, CNClaim, MatrixOneCluster
from mooring.testing.workload import Step, Workload

__all__ = ["MATRIXONE", "matrixone"]

MATRIXONE: Final = (
    "backup",
    "claim",
    "cluster",
    "move",
    "restore",
    "restore-job",
    "roll",
    "set",
    "verify",
)

Document = dict[str, Any]

PASSWORD: Final = "battery-of-another-cluster"
IMAGE: Final = "matrixorigin/matrixone:1.2.4"
S3: Final = {"type": "minio", "endpoint": "http://minio:9000", "region": "us-east-1"}
LOG: Final[Document] = {
    "replicas": 1,
    "volume": {"size": "1Gi"},
    "sharedStorage": {"s3": {**S3, "path": "bucket/mo"}},
}
CLUSTER: Final[Document] = {
    "version": "1.2.4",
    "logService": LOG,
    "tn": {"replicas": 1},
}
KINDS: Final = {kind.resource.kind: kind for kind in OPERATOR.kinds}


# --- steps of users


def create(kind: str, called: str, spec: Document, **more: Any) -> Step:
    """Make an object."""
    resource = KINDS[kind].resource
    document = {"apiVersion": resource.api_version, "kind": kind, **more, "spec": spec}
    metadata = {"name": called, "namespace": "default", **more.get("metadata", {})}

    async def step(client: Client) -> None:
        body = msgspec.json.encode({**document, "metadata": metadata})
        await client.request("POST", resource.path(namespace="default"), body=body)

    return step


def edit(kind: str, called: str, spec: Document) -> Step:
    """Change an object's declaration."""

    async def step(client: Client) -> None:
        await client.patch(KINDS[kind], called, MergePatch({"spec": spec}), namespace="default")

    return step


def delete(kind: str, called: str) -> Step:
    """Delete an object."""

    async def step(client: Client) -> None:
        await client.delete(KINDS[kind], called, namespace="default")

    return step


def at_once(*steps: Step) -> Step:
    """One after the other, with nothing in between."""

    async def step(client: Client) -> None:
        for one in steps:
            await one(client)

    return step


def claimed(account: str) -> Document:
    """A claim of a user, whose labels its pod and its compute node get."""
    return {
        "selector": {"matchLabels": {"pool": "default"}},
        "ownerName": account,
        "cnLabels": [{"key": ACCOUNT, "values": [account]}],
        "additionalPodLabels": {TEAM: account},
    }


async def move(client: Client) -> None:
    """Have a claim leave the pod it has."""
    claim = await client.get(CNClaim, "one", namespace="default")
    source = {"sourcePod": {"podName": claim.spec.pod_name if claim.spec is not None else ""}}
    await edit("CNClaim", "one", source)(client)


async def serves(client: Client) -> None:
    """A cluster that serves, and that the operator leaves alone: it is only backed up."""
    cluster = await client.get(MatrixOneCluster, "old", namespace="default")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Given",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": cluster.metadata.generation,
    }
    status = {"host": "old", "port": 6001, "credentialRef": {"name": "old-credential"}, "conditions": [ready]}
    body = MergePatch({"status": status})
    await client.patch(MatrixOneCluster, "old", body, namespace="default", subresource="status")
    data = {
        entry: base64.b64encode(text.encode()).decode()
        for entry, text in (("username", "dump"), ("password", PASSWORD))
    }
    await client.create(Secret(metadata=ObjectMeta(name="old-credential", namespace="default"), data=data))


async def _backup(client: Client) -> str:
    (backup,) = (await client.list(Backup, namespace="")).items
    return backup.metadata.name or ""


async def restore(client: Client) -> None:
    """Make a cluster that begins with the backup."""
    await create("MatrixOneCluster", "mo", {**CLUSTER, "restoreFrom": await _backup(client)})(client)


async def forget(client: Client) -> None:
    """Remove the field that the cluster was restored by: nothing follows from that."""
    rest_from_now_on()
    await edit("MatrixOneCluster", "mo", {"restoreFrom": None})(client)


def fill(called: str) -> Step:
    """Make a RestoreJob into the path of a cluster to come."""

    async def step(client: Client) -> None:
        target = {"s3": {**S3, "path": "bucket/new"}}
        await create("RestoreJob", called, {"backupName": await _backup(client), "target": target})(client)

    return step


# --- workloads


def matrixone(name: str) -> Workload:
    """The workload ``matrixone-<name>``; see the module's text."""
    deps = {"logSet": {"metadata": {"name": "mo"}}, "dnSet": {"metadata": {"name": "mo"}}}
    pooled = {
        "podLabels": {"pool": "default"},
        "deps": deps,
        "strategy": {"updateStrategy": {}, "scaleStrategy": {"maxIdle": 2 if name == "claim" else 1}},
        "template": {"image": IMAGE},
    }
    pool = (
        create("LogSet", "mo", {**LOG, "image": IMAGE}),
        create("DNSet", "mo", {"image": IMAGE, "replicas": 1}, deps={"logSet": deps["logSet"]}),
        create("CNPool", "warm", pooled),
    )
    old = {**CLUSTER, "logService": {**LOG, "sharedStorage": {"s3": {**S3, "path": "bucket/old"}}}}
    if name == "verify":  # with the image of its compute nodes
        old = {**old, "cnGroups": [{"name": "main", "replicas": 1}]}
    skip = {"annotations": {"matrixorigin.io/skip-sync": "yes"}}
    served = (create("MatrixOneCluster", "old", old, metadata=skip), serves)
    job = {
        "source": {"clusterRef": "old"},
        "target": {"s3": {**S3, "path": "bucket/backups"}},
        "ttl": "900000h",
    }
    backup = create("BackupJob", "first", job)
    one = create("CNClaim", "one", claimed("one"))
    both = at_once(one, create("CNClaim", "two", claimed("two")))
    claims = {"replicas": 2, "template": {"spec": claimed("set")}}
    group = {"name": "main", "replicas": 2}
    whole = {**CLUSTER, "logService": {**LOG, "replicas": 3}, "cnGroups": [group], "proxy": {"replicas": 1}}
    made = create("MatrixOneCluster", "mo", whole)
    fewer = edit("MatrixOneCluster", "mo", {"cnGroups": [{**group, "replicas": 1}]})
    given, steps = {
        "cluster": ((), (made, fewer)),
        "roll": ((made,), (edit("MatrixOneCluster", "mo", {"version": "1.2.5"}),)),
        "claim": (pool, (both, delete("CNClaim", "one"), create("CNClaim", "one", claimed("other")))),
        "set": (
            pool,
            (create("CNClaimSet", "set", claims), edit("CNClaimSet", "set", {"replicas": 1})),
        ),
        "move": ((*pool, one), (move, edit("CNPool", "warm", {"template": {"image": "matrixone:1.2.5"}}))),
        "backup": (served, (backup,)),
        "verify": (served, (create("BackupJob", "first", {**job, "verify": True}),)),
        "restore": ((*served, backup), (restore, forget)),
        "restore-job": ((*served, backup), (fill("again"), fill("twice"))),
    }[name]
    return Workload(
        name=f"matrixone-{name}",
        kinds=tuple(KINDS.values()),
        operator=functools.partial(register, dial=InMemory()),
        given=given,
        steps=steps,
        model=functools.partial(World, fails_once={"restore-job": "restore"}.get(name, name))
        if name in ("backup", "restore", "restore-job", "verify")
        else World,
        endpoints=False,
        secrets=(PASSWORD,),
        monitors=monitors(),
        compared=_but_the_past,
        alike=(("pods", "default", "warm-cn"), ("pods", "default", "mo-main-cn")),
    )


def _but_the_past(resource: str, obj: Document) -> Document:
    """Without which of the equal pods of a set are left or claimed, and what a pod or a claim tells of earlier times."""
    meta = obj["metadata"]
    if resource.startswith("matrixoneclusters") and meta["name"] == "old":
        return {part: value for part, value in obj.items() if part != "status"}  # a user's step wrote it
    text = msgspec.json.encode(obj)
    if resource.startswith("backup"):  # how long a test restore took
        text = _TOOK.sub(rb"\g<1>0", text)
        obj = msgspec.json.decode(text)
    if _NUMBERED.search(text):
        obj = msgspec.json.decode(_NUMBERED.sub(rb"\1-cn-*", text))
    if resource.startswith("controllerrevisions"):
        # The pods do not follow from the size; the first declaration of a revision is kept, whatever it was then.
        spec = {name: value for name, value in obj["data"]["spec"].items() if name != "replicas"}
        return {**obj, "revision": 0, "data": {**obj["data"], "spec": spec}}
    if resource != "pods" or not meta["name"].startswith(("warm-cn-", "mo-main-cn-")):
        return obj
    meta, status = obj["metadata"], obj["status"]
    notes = {
        name: value for name, value in meta["annotations"].items() if (name, value) != (CN_LABELS, "null")
    }
    for name in (RECLAIMED_AT, MOVE):
        notes.pop(name, None)
    labels = {name: value for name, value in meta["labels"].items() if name not in (LAST_OWNER, STORE_ID)}
    truths = [one for one in status["conditions"] if (one["type"], one["status"]) != (READY_GATE, "False")]
    return {
        **obj,
        "metadata": {**meta, "annotations": notes, "labels": labels},
        "status": {**status, "conditions": truths},
    }


_TOOK: Final = re.compile(rb'( bytes in |"seconds":)[\d.]+')
_NUMBERED: Final = re.compile(rb"(warm|mo-main)-cn-\d+")
