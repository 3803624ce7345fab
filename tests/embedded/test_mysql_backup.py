"""Backups of real MariaDB servers: taken under a writer, restored into a new cluster, scheduled, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.embedded.conftest import MakeMySQL

from mooring.kube import NotFound
from mooring.kube.objects.core import PersistentVolumeClaim
from mooring.operators.backup.types import BackupStatus
from mooring.operators.mysql.backup.types import MySQLBackup
from mooring.operators.mysql.dial import Dial
from mooring.testing.mysql_stage import MySQLStage, manifest

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


async def eventually(check: Callable[[], Awaitable[Any]], *, within: float = 60.0) -> Any:
    found: Any = None
    try:
        async with asyncio.timeout(within):
            while not (found := await check()):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {within} s; last seen: {found}") from None
    return found


class Backups:
    """Backup objects of one bed, to one claim."""

    def __init__(self, stage: MySQLStage) -> None:
        self.stage, self.bed, self.client = stage, stage.bed, stage.bed.client

    async def claim(self, name: str = "backups") -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        body["metadata"]["namespace"] = "default"
        await self.bed.apply(body)
        return {"claim": {"name": name}}

    async def make(self, name: str, target: dict[str, Any], **spec: Any) -> None:
        await self.bed.apply(
            {
                "apiVersion": "mysql.mooring.dev/v1alpha1",
                "kind": "MySQLBackup",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"cluster": {"name": self.stage.name}, "target": target, **spec},
            }
        )

    async def status(self, name: str) -> BackupStatus:
        return (await self.bed.get(MySQLBackup, name)).status or BackupStatus()

    async def over(self, name: str, phase: str = "Succeeded") -> BackupStatus:
        async def check() -> BackupStatus | None:
            status = await self.status(name)
            assert status.phase != "Failed" or phase == "Failed", status
            return status if status.phase == phase else None

        try:
            return await eventually(check)
        except AssertionError:
            raise AssertionError(str(await self.status(name))) from None

    async def gone(self, name: str) -> None:
        await self.client.delete(MySQLBackup, name, namespace="default")

        async def check() -> bool:
            try:
                await self.bed.get(MySQLBackup, name)
            except NotFound:
                return True
            return False

        await eventually(check)


async def test_a_backup_is_taken_from_a_replica_and_says_what_it_has(mysql: MySQLStage) -> None:
    backups = Backups(mysql)
    target = await backups.claim()
    root = await mysql.login("root")
    async with Dial().open(await mysql.entry(), root) as link:
        await link.query("CREATE DATABASE IF NOT EXISTS shop")
        await link.query("CREATE TABLE IF NOT EXISTS shop.orders (id INT PRIMARY KEY, what VARCHAR(20))")
        await link.query("REPLACE INTO shop.orders VALUES (1, 'tea'), (2, 'it''s')")
    await mysql.exact()
    await backups.make("first", target)
    status = await backups.over("first")
    assert status.source != await mysql.primary()
    assert status.position
    assert (status.size_bytes or 0) > 1000
    assert status.prefix is not None
    assert status.tries == 1
