"""BackupJob, RestoreJob and a cluster from a backup on an API server (in memory), the operator killed at every write."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.operators.matrixone.builders import declared
from tests.operators.redis.sentinel.test_actor import eventually as soon

from mooring.kube import Client, Invalid, MergePatch, NotFound, TransportError
from mooring.kube.object import decode, owner_reference
from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import Pod, Secret
from mooring.kube.transport import Response
from mooring.local.api.server import ApiServer
from mooring.operators.backup.agent import Result
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.types import (
    Backup,
    BackupJob,
    BucketClaim,
    LogSet,
    MatrixOneCluster,
    RestoreJob,
)

WRITES = ("POST", "PUT", "PATCH", "DELETE")
NS = "default"
#: Each takes seconds: the others run at night.
ALWAYS = {"backup": (2, 3), "restore": (2, 5, 7), "verify": (6, 8), "damage": (7,)}


def deaths(what: str, last: int) -> list[Any]:
    """The writes at which the operator dies."""
    return [
        number if number in ALWAYS[what] else pytest.param(number, marks=pytest.mark.nightly)
        for number in range(1, last + 1)
    ]


async def eventually(check: Any) -> Any:
    return await soon(check, within=60)


class Mortal:
    """A way to the server whose user dies at the n-th write: it is carried out, and nobody hears of it."""

    def __init__(self, inner: Any, at: int) -> None:
        self._inner, self._left = inner, at
        self.dead, self.buried = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, path: str, **given: Any) -> Response:
        if self.dead.is_set():
            await self._end()
        counts = method in WRITES and "/leases" not in path and "/events" not in path
        answer: Response = await self._inner.request(method, path, **given)
        if counts:
            self._left -= 1
            if self._left == 0:
                self.dead.set()
                await self._end()
        return answer

    async def _end(self) -> None:
        """No answer comes; the process that waits for it is taken away."""
        await self.buried.wait()
        raise TransportError("killed")

    def stream(self, method: str, path: str, **given: Any) -> Any:
        return self._inner.stream(method, path, **given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _passed(request: Request) -> Result:
    """The copy is made, and deleted by the run itself."""
    return Result(ok=True, size=9, facts={"checked": "1 rows in 1 tables", "scratch": "deleted"})


class Kubelet:
    """Ends every Job once: what a run did is counted by what it was asked."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ran: list[Request] = []
        self.trial: Callable[[Request], Result] = _passed
        self.seen: set[str] = set()

    async def live(self) -> None:
        while True:
            for job in (await self.client.list(Job, namespace=NS)).items:
                if (job.metadata.uid or "") not in self.seen:
                    self.seen.add(job.metadata.uid or "")
                    await self.end(job)
            await asyncio.sleep(0.01)

    async def end(self, job: Job) -> None:
        assert job.spec is not None
        assert job.spec.template is not None
        assert job.spec.template.spec is not None
        containers = job.spec.template.spec.containers or []
        container = next(one for one in containers if one.name == "store")
        request = msgspec.json.decode((container.env or [])[0].value or "", type=Request)
        self.ran.append(request)
        facts = {"position": "1-1", "prefix": request.places[-1], "began": "2026-01-02T03:04:05+00:00"}
        if request.base:
            facts["base"] = request.base.rpartition("/")[2]
        if request.full_because:
            facts["fullBecause"] = request.full_because
        result = Result(ok=True, size=10, objects=2, facts=facts)
        if request.action == "verify":
            result = self.trial(request)
        said = result.encoded().decode()
        labels = {**(job.metadata.labels or {}), "batch.kubernetes.io/job-name": job.metadata.name or ""}
        state = {"name": "store", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        ended = {"exitCode": 0 if result.ok else 1, "reason": "Completed", "message": said}
        raw = {
            "metadata": {"name": f"{job.metadata.name}-x", "namespace": NS, "labels": labels},
            "spec": {"containers": [{"name": "store", "image": "x"}]},
        }
        pod = decode(raw, Pod)
        pod = msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=[owner_reference(job)])
        )
        await self.client.create(pod)
        ends = "Succeeded" if result.ok else "Failed"
        status = {"phase": ends, "containerStatuses": [{**state, "state": {"terminated": ended}}]}
        await self.client.patch(
            Pod, pod.metadata.name or "", MergePatch({"status": status}), namespace=NS, subresource="status"
        )
        done: dict[str, Any] = {
            "succeeded": 1,
            "startTime": "2026-01-02T03:04:05Z",
            "completionTime": "2026-01-02T03:05:05Z",
            "conditions": [
                {"type": "SuccessCriteriaMet", "status": "True"},
                {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-02T03:05:05Z"},
            ],
        }
        if not result.ok:
            done = {
                "failed": 1,
                "startTime": "2026-01-02T03:04:05Z",
                "conditions": [
                    {"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:05:05Z"}
                    for kind in ("FailureTarget", "Failed")
                ],
            }
        await self.client.patch(
            Job, job.metadata.name or "", MergePatch({"status": done}), namespace=NS, subresource="status"
        )


@asynccontextmanager
async def plane(*, dies_at: int = 0) -> AsyncIterator[tuple[Client, Kubelet, Mortal]]:
    """A server, a kubelet, and an operator that is killed at its n-th write; then another one."""
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await apply_crds(client, [OPERATOR])
        mortal = Mortal(server.transport(), dies_at)
        kubelet = Kubelet(client)

        async def run() -> None:
            how = Operate(operators=[OPERATOR], elect=False)
            first = asyncio.create_task(operate(Client(mortal, field_manager="test"), how))
            try:
                await mortal.dead.wait()
            finally:
                first.cancel()
                mortal.buried.set()
                await asyncio.gather(first, return_exceptions=True)
            await operate(Client(server.transport(), field_manager="test"), how)

        tasks = [asyncio.create_task(run()), asyncio.create_task(kubelet.live())]
        try:
            yield client, kubelet, mortal
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def secret(client: Client, name: str, **data: str) -> None:
    raw = {"metadata": {"name": name, "namespace": NS}, "stringData": data}
    await client.request("POST", Secret.resource.path(namespace=NS), body=msgspec.json.encode(raw))


async def make(client: Client, kind: Any, name: str, **changes: Any) -> Any:
    raw = declared(kind.resource.kind, name, **changes)
    del raw["metadata"]["uid"]
    return await client.create(decode(raw, kind))


async def status_of(client: Client, kind: Any, name: str, status: Mapping[str, Any]) -> None:
    await client.patch(kind, name, MergePatch({"status": status}), namespace=NS, subresource="status")


async def served(client: Client) -> None:
    """A cluster that serves: the operator leaves it alone."""
    made = declared("MatrixOneCluster", "mo")
    del made["metadata"]["uid"]
    made["metadata"]["annotations"] = {"matrixorigin.io/skip-sync": "yes"}
    cluster = await client.create(decode(made, MatrixOneCluster))
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": cluster.metadata.generation,
    }
    said = {"host": "mo-proxy", "port": 6001, "credentialRef": {"name": "login"}, "conditions": [ready]}
    await status_of(client, MatrixOneCluster, "mo", said)
    await secret(client, "login", username="dump", password="x")


async def ended(client: Client, kind: Any, name: str) -> Any:
    found = await client.get(kind, name, namespace=NS)
    return found if found.status is not None and found.status.phase in ("Completed", "Failed") else None


@pytest.mark.parametrize("dies_at", deaths("backup", 6))
async def test_a_backup_is_made_once_and_recorded_whenever_the_operator_dies(dies_at: int) -> None:
    async with plane(dies_at=dies_at) as (client, kubelet, mortal):
        await make(client, BackupJob, "nightly", spec__ttl="900000h")
        await served(client)
        done = await eventually(lambda: ended(client, BackupJob, "nightly"))
        assert done.status.phase == "Completed", done.status
        assert (done.status.tries, done.status.size_bytes, done.status.position) == (1, 10, "1-1")
        (backup,) = (await client.list(Backup, namespace="")).items
        assert backup.metadata.name == done.status.backup
        assert backup.meta is not None
        assert backup.meta.id == done.status.id
        (request,) = kubelet.ran
        assert request.places == [done.status.prefix]
        assert mortal.dead.is_set() or dies_at > 4, "the operator was to die in this test"


async def test_what_is_built_on_a_backup_is_recorded_and_keeps_its_data() -> None:
    async with plane() as (client, kubelet, _):
        await served(client)

        async def made(name: str, base: str = "", **labels: str) -> Any:
            given = {"spec__incrementalFrom": base} if base else {}
            raw = declared("BackupJob", name, spec__ttl="900000h", spec__deletionPolicy="Delete", **given)
            del raw["metadata"]["uid"]
            raw["metadata"]["labels"] = labels
            await client.create(decode(raw, BackupJob))
            return await eventually(lambda: ended(client, BackupJob, name))

        full = (await made("full")).status
        assert full.base is None
        more = (await made("more", full.backup)).status
        assert (more.phase, more.base) == ("Completed", full.backup)
        assert kubelet.ran[-1].base == kubelet.ran[0].places[-1]
        backup = await client.get(Backup, more.backup, namespace="")
        assert backup.status is not None
        assert backup.status.base == full.backup

        # A run of a schedule is a full one where its base cannot be one; what a person asked for waits.
        alone = (await made("run-1", "missing", **{"mooring.dev/backup-schedule": "u"})).status
        assert (alone.phase, alone.base) == ("Completed", None)
        assert "a full backup was made: the Backup missing does not exist" in (alone.message or "")
        await make(client, BackupJob, "waits", spec__incrementalFrom="missing")

        async def waits() -> bool:
            found = (await client.get(BackupJob, "waits", namespace=NS)).status
            return found is not None and found.reason == "BaseUnusable"

        await eventually(waits)

        # The data of a base goes after what was built on it, in whatever order the objects are deleted.
        await client.delete(Backup, full.backup, namespace="")

        async def in_use() -> bool:
            there = {one.metadata.name: one for one in (await client.list(Backup, namespace="")).items}
            assert full.backup in there, "it is gone before what was built on it"
            status, text = there[full.backup].status, f"Backup {more.backup} needs it"
            conditions = status.conditions if status is not None else None
            return any(text in (one.message or "") for one in conditions or ())

        await eventually(in_use)
        assert [one.action for one in kubelet.ran] == ["backup"] * 3
        await client.delete(Backup, more.backup, namespace="")

        async def both_gone() -> bool:
            return {one.metadata.name for one in (await client.list(Backup, namespace="")).items} == {
                alone.backup
            }

        await eventually(both_gone)
        deleted = [one.places[-1] for one in kubelet.ran if one.action == "delete"]
        assert deleted == [more.id, full.id]


async def over(client: Client, name: str) -> Any:
    """The BackupJob once its test restore is over."""
    found = await client.get(BackupJob, name, namespace=NS)
    known = found.status.verified if found.status is not None else None
    return found if known is not None and known.at is not None else None


def said(one: Any, kind: str) -> str:
    conditions = (one.status.conditions if one.status is not None else None) or []
    return next((each.status for each in conditions if each.type == kind), "")


@pytest.mark.parametrize("dies_at", deaths("verify", 12))
async def test_a_backup_is_tried_out_once_whenever_the_operator_dies(dies_at: int) -> None:
    async with plane(dies_at=dies_at) as (client, kubelet, _):
        await make(client, BackupJob, "nightly", spec__ttl="900000h", spec__verify=True)
        await served(client)
        done = await eventually(lambda: over(client, "nightly"))
        assert (done.status.phase, done.status.verified.passed, done.status.verified.size_bytes) == (
            "Completed",
            True,
            9,
        )
        assert (said(done, "BackupVerified"), said(done, "Ready")) == ("True", "True")
        (backup,) = (await client.list(Backup, namespace="")).items
        assert backup.status is not None
        assert backup.status.verified == done.status.verified
        assert said(backup, "BackupVerified") == "True"
        assert [one.action for one in kubelet.ran] == ["backup", "verify"]
        made, tried = kubelet.ran
        assert tried.places == made.places == [done.status.prefix]
        assert tried.scratch == done.status.prefix.replace("/backups/", "/verify/")
        assert tried.target is not None
        assert tried.target.s3 is not None
        assert (tried.target.s3.path or "").endswith(f"{tried.scratch}/1")
        await client.delete(BackupJob, "nightly", namespace=NS)
        await eventually(lambda: gone(client, "nightly"))
        assert len(kubelet.ran) == 2


async def gone(client: Client, name: str) -> bool:
    try:
        await client.get(BackupJob, name, namespace=NS)
    except NotFound:
        return True
    return False


def _damaged(request: Request) -> Result:
    """What a run reports that was ended before it could delete the copy."""
    text = "the backup is not whole: tae/one is in the server's list and not in the store"
    return Result(ok=False, reason="ObjectCorrupt", message=text)


@pytest.mark.parametrize("dies_at", deaths("damage", 14))
async def test_a_damaged_backup_fails_once_its_copy_is_deleted_whenever_the_operator_dies(
    dies_at: int,
) -> None:
    async with plane(dies_at=dies_at) as (client, kubelet, _):
        kubelet.trial = _damaged
        await make(client, BackupJob, "nightly", spec__ttl="900000h", spec__verify=True)
        await served(client)
        done = await eventually(lambda: over(client, "nightly"))
        assert (done.status.phase, done.status.reason) == ("Failed", "ObjectCorrupt")
        assert "tae/one" in done.status.message
        assert (said(done, "BackupVerified"), said(done, "Ready")) == ("False", "False")
        (backup,) = (await client.list(Backup, namespace="")).items
        assert said(backup, "BackupVerified") == "False"
        assert [one.action for one in kubelet.ran] == ["backup", "verify", "delete"]
        # The copy alone is deleted, never the backup.
        assert kubelet.ran[-1].places == [done.status.prefix.replace("/backups/", "/verify/")]


async def test_a_backup_job_goes_only_when_the_copy_of_its_test_restore_is_deleted() -> None:
    async with plane() as (client, kubelet, _):
        held = asyncio.Event()

        def never(request: Request) -> Result:
            held.set()
            raise asyncio.CancelledError

        kubelet.trial = never
        await make(client, BackupJob, "nightly", spec__ttl="900000h", spec__verify=True)
        await served(client)
        await eventually(lambda: asyncio.sleep(0, held.is_set()))
        # The kubelet that ran it is gone: nobody says how it ended.
        kubelet.trial = _passed
        again = asyncio.create_task(kubelet.live())
        try:
            await client.delete(BackupJob, "nightly", namespace=NS)
            await eventually(lambda: gone(client, "nightly"))
        finally:
            again.cancel()
            await asyncio.gather(again, return_exceptions=True)
        assert [one.action for one in kubelet.ran] == ["backup", "verify", "delete"]
        assert "/verify/" in kubelet.ran[-1].places[0]


@pytest.mark.parametrize("dies_at", deaths("restore", 9))
async def test_a_cluster_is_restored_once_before_its_log_service_is_made(dies_at: int) -> None:
    async with plane(dies_at=dies_at) as (client, kubelet, _):
        target = declared("BackupJob")["spec"]["target"]
        location = {"s3": {**target["s3"], "path": "bucket/backups/mo-1/backups/20260102T030405Z-0a1b2c3d"}}
        meta = {
            "location": location,
            "id": "x",
            "size": "1",
            "atTime": "2026-01-02T03:04:05Z",
            "completeTime": "2026-01-02T03:04:05Z",
            "sourceRef": "matrixonecluster/default/old",
            "raw": "{}",
        }
        await client.create(decode({"metadata": {"name": "nightly"}, "meta": meta}, Backup))
        await secret(client, "old-credential", username="dump", password="the-old-one")
        await make(client, MatrixOneCluster, "mo", spec__restoreFrom="nightly")

        async def log_set() -> Any:
            try:
                return await client.get(LogSet, "mo", namespace=NS)
            except NotFound:
                found = await client.get(MatrixOneCluster, "mo", namespace=NS)
                assert (
                    found.status is None
                    or found.status.restore is None
                    or found.status.restore.phase != "Founded"
                )
                return None

        made = await eventually(log_set)
        assert made.spec.initial_config.restore_from == "hk_data"
        found = await client.get(MatrixOneCluster, "mo", namespace=NS)
        assert found.status is not None
        assert found.status.restore is not None
        assert found.status.restore.phase in ("Restored", "Founded")
        (job,) = (await client.list(RestoreJob, namespace=NS)).items
        assert job.status is not None
        assert job.status.phase == "Completed"
        assert job.metadata.owner_references is not None
        (request,) = kubelet.ran
        assert (request.action, request.owner) == ("restore", found.metadata.uid)
        credential = await client.get(Secret, "mo-credential", namespace=NS)
        old = await client.get(Secret, "old-credential", namespace=NS)
        assert credential.data == old.data

        async def founded() -> bool:
            now = await client.get(MatrixOneCluster, "mo", namespace=NS)
            return (
                now.status is not None
                and now.status.restore is not None
                and now.status.restore.phase == "Founded"
            )

        await eventually(founded)
        await client.patch(MatrixOneCluster, "mo", MergePatch({"spec": {"restoreFrom": None}}), namespace=NS)

        async def observed() -> bool:
            now = await client.get(MatrixOneCluster, "mo", namespace=NS)
            return now.status is not None and now.status.observed_generation == now.metadata.generation

        await eventually(observed)
        assert (await client.get(LogSet, "mo", namespace=NS)).spec == made.spec
        assert len(kubelet.ran) == 1

        # Another backup is refused, and changes nothing.
        await client.patch(
            MatrixOneCluster, "mo", MergePatch({"spec": {"restoreFrom": "other"}}), namespace=NS
        )

        async def refused() -> bool:
            now = await client.get(MatrixOneCluster, "mo", namespace=NS)
            found = (now.status.conditions if now.status is not None else None) or []
            return any("began with the Backup nightly" in (one.message or "") for one in found)

        await eventually(refused)
        assert (await client.get(LogSet, "mo", namespace=NS)).spec == made.spec
        assert len(kubelet.ran) == 1


async def test_without_the_password_of_the_data_nothing_is_restored() -> None:
    async with plane() as (client, kubelet, _):
        location = declared("BackupJob")["spec"]["target"]
        meta = {
            "location": location,
            "id": "x",
            "atTime": "2026-01-02T03:04:05Z",
            "completeTime": "2026-01-02T03:04:05Z",
            "sourceRef": "matrixonecluster/elsewhere/old",
            "raw": "{}",
        }
        await client.create(decode({"metadata": {"name": "nightly"}, "meta": meta}, Backup))
        await make(client, MatrixOneCluster, "mo", spec__restoreFrom="nightly")

        async def reason() -> bool:
            found = await client.get(MatrixOneCluster, "mo", namespace=NS)
            said = (found.status.conditions if found.status else None) or []
            return any(one.reason == "CredentialNeeded" for one in said)

        await eventually(reason)
        assert kubelet.ran == []
        await secret(client, "mo-credential", username="dump", password="x")

        async def there() -> bool:
            return bool((await client.list(LogSet, namespace=NS)).items)

        await eventually(there)


def s3(path: str, *, keys: str = "", **more: str) -> dict[str, Any]:
    """A path of a bucket, with the Secret of its keys."""
    made: dict[str, Any] = {**declared("BackupJob")["spec"]["target"]["s3"], "path": path, **more}
    return {"s3": {**made, "secretRef": {"name": keys}} if keys else made}


async def run_of(client: Client, job: str) -> tuple[Request, Any]:
    """What the Job of a run is told, and its pod."""
    found = await client.get(Job, job, namespace=NS)
    assert found.spec is not None
    assert found.spec.template is not None
    pod = found.spec.template.spec
    assert pod is not None
    (store,) = pod.containers or []
    return msgspec.json.decode((store.env or [])[0].value or "", type=Request), pod


async def test_a_path_that_no_backup_describes_is_restored_with_the_keys_of_both_paths() -> None:
    identity = "20260102T030405Z-0a1b2c3d"
    async with plane() as (client, kubelet, _):
        for name in ("theirs", "ours"):
            await secret(client, name, AWS_ACCESS_KEY_ID=f"id-of-{name}", AWS_SECRET_ACCESS_KEY="battery")
        source = s3("elsewhere/of/mo_br", keys="theirs", region="eu-central-1")
        target = s3("bucket/new", keys="ours")
        await make(
            client,
            RestoreJob,
            "back",
            spec__backupName=None,
            spec__externalSource=source,
            spec__target=target,
            spec__ttl="900000h",
        )
        done = await eventually(lambda: ended(client, RestoreJob, "back"))
        assert (done.status.phase, done.status.size_bytes) == ("Completed", 10)
        request, pod = await run_of(client, done.status.job)
        assert kubelet.ran == [request]
        told = msgspec.to_builtins(request)
        assert (told["action"], told["root"], told["places"]) == ("restore", source, [""])
        assert (told["target"], told["owner"]) == (target, done.metadata.uid)
        (store,) = pod.containers
        mounted = {one.name: one.mount_path for one in store.volume_mounts}
        secrets = {one.secret.secret_name: mounted[one.name] for one in pod.volumes if one.secret}
        assert secrets == {name: f"/mooring/secrets/{name}" for name in ("theirs", "ours")}
        shown = msgspec.json.encode(await client.get(Job, done.status.job, namespace=NS))
        assert b"battery" not in shown
        assert b"id-of-" not in shown

        # A path that ends as Mooring's backups do is one of them: its manifest, and what it builds on, are below its parent.
        place = s3(f"elsewhere/mo-1/backups/{identity}", keys="theirs")
        other = s3("bucket/other")
        await make(
            client,
            RestoreJob,
            "chain",
            spec__backupName=None,
            spec__externalSource=place,
            spec__target=other,
            spec__ttl="900000h",
        )
        done = await eventually(lambda: ended(client, RestoreJob, "chain"))
        request, _ = await run_of(client, done.status.job)
        assert request.places == [identity]
        assert msgspec.to_builtins(request)["root"] == s3("elsewhere/mo-1/backups", keys="theirs")


async def test_a_directory_is_restored_with_the_volumes_of_the_overlay_and_without_its_command() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}
    overlay = {
        "volumes": [claim],
        "volumeMounts": [{"name": "data", "mountPath": "/shared"}],
        "command": ["sh", "-c", "evil"],
        "args": ["more"],
    }
    async with plane() as (client, _, _):
        raw = declared("RestoreJob", "back")
        del raw["metadata"]["uid"]
        paths = {name: {"fileSystem": {"path": f"/shared/{name}"}} for name in ("externalSource", "target")}
        await client.create(
            decode({**raw, "spec": {**paths, "ttl": "900000h"}, "overlay": overlay}, RestoreJob)
        )
        done = await eventually(lambda: ended(client, RestoreJob, "back"))
        request, pod = await run_of(client, done.status.job)
        assert msgspec.to_builtins(request)["root"] == paths["externalSource"]
        (store,) = pod.containers
        assert (store.command, store.args) == (None, ["agent", "matrixone", "--report=/dev/termination-log"])
        assert "/shared" in {one.mount_path for one in store.volume_mounts}
        assert {
            one.persistent_volume_claim.claim_name for one in pod.volumes if one.persistent_volume_claim
        } == {"shared"}
        assert pod.security_context.run_as_user == 0  # the files are those of the server's user


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("two sources", {"spec__externalSource": s3("other/x")}, "spec.externalSource: excludes backupName"),
    ("no source", {"spec__backupName": None}, "spec.backupName: must be set unless externalSource is"),
    (
        "no such Secret",
        {"spec__backupName": None, "spec__externalSource": s3("other/x", keys="missing")},
        "the Secret missing does not exist in this namespace",
    ),
    (
        "a path in use",
        {
            "spec__backupName": None,
            "spec__externalSource": s3("other/x"),
            "spec__target": s3("bucket/used/in"),
        },
        "spec.target: overlaps the path of BucketClaim default/used, which keeps data",
    ),
]


async def test_a_restore_that_would_do_harm_or_cannot_be_done_is_refused_and_begins_nothing() -> None:
    async with plane() as (client, kubelet, _):
        await make(client, BucketClaim, "used", spec__s3=s3("bucket/used", s3RetentionPolicy="Retain")["s3"])
        with pytest.raises(Invalid, match="exactly one storage provider"):
            await make(client, RestoreJob, "back", spec__backupName=None, spec__externalSource={})
        for number, (_, changes, _) in enumerate(REFUSED):
            await make(client, RestoreJob, f"back-{number}", **{"spec__ttl": "900000h", **changes})

        async def said(number: int, text: str) -> bool:
            found = (await client.get(RestoreJob, f"back-{number}", namespace=NS)).status
            return found is not None and any(text in (one.message or "") for one in found.conditions or ())

        for number, (_, _, text) in enumerate(REFUSED):
            await eventually(functools.partial(said, number, text))
        assert kubelet.ran == []
        assert (await client.list(Job, namespace=NS)).items == []


async def test_a_job_that_cannot_begin_says_why() -> None:
    async with plane() as (client, kubelet, _):
        await make(client, BackupJob, "nightly")
        await make(client, RestoreJob, "back")

        async def said() -> bool:
            backup = await client.get(BackupJob, "nightly", namespace=NS)
            back = await client.get(RestoreJob, "back", namespace=NS)
            found = [one.status.reason for one in (backup, back) if one.status is not None]
            return found == ["SourceNotFound", "BackupNotFound"]

        await eventually(said)
        assert kubelet.ran == []
