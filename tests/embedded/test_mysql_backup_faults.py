"""Faults in the middle of a backup: what is called good is whole, and the next try succeeds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.embedded.test_mysql_backup import Backups, eventually

from mooring.kube.objects.core import Pod
from mooring.operators.backup.manifest import decode_manifest
from mooring.operators.backup.types import BackupStatus
from mooring.testing.mysql_stage import MySQLStage

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

Fault = Callable[[MySQLStage, BackupStatus], Awaitable[None]]


async def pod_deleted(stage: MySQLStage, status: BackupStatus) -> None:
    found = await stage.bed.pods("default", f"batch.kubernetes.io/job-name={status.job}")
    for pod in found:
        await stage.bed.client.delete(Pod, pod.metadata.name or "", namespace="default", grace_period=0)


async def server_killed(stage: MySQLStage, status: BackupStatus) -> None:
    stage.kill(status.source or "")


async def operator_away(stage: MySQLStage, status: BackupStatus) -> None:
    async with stage.operators_away():
        pass


@pytest.mark.parametrize("fault", [pod_deleted, server_killed, operator_away])
async def test_a_backup_survives_a_fault_or_is_made_again(
    mysql: MySQLStage, tmp_path: Path, fault: Fault
) -> None:
    backups = Backups(mysql)
    target, directory = await backups.directory(tmp_path)
    name = fault.__name__.replace("_", "-")
    await backups.make(name, target, bandwidth="150k")

    async def moves() -> bool:
        found = await mysql.bed.pods(
            "default", f"batch.kubernetes.io/job-name={(await backups.status(name)).job}"
        )
        return any(pod.status and pod.status.phase == "Running" for pod in found)

    await eventually(moves)
    await fault(mysql, await backups.status(name))
    status = await backups.over(name)
    manifests = list(directory.rglob("manifest.json"))
    assert [str(path.parent.relative_to(directory)) for path in manifests] == [status.prefix]
    manifest = decode_manifest(manifests[0].read_bytes())
    (part,) = manifest.parts
    stored = directory / (status.prefix or "") / part.place
    assert stored.stat().st_size == manifest.size == status.size_bytes
    await mysql.exact()
