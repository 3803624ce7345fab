"""What admission rejects of backups and schedules."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.cache import SystemClock
from mooring.kube import Key
from mooring.operators.mysql.backup.types import MySQLBackupSchedule
from mooring.operators.mysql.backup.webhook import backup_webhooks
from mooring.runtime.webhooks import Allow, Refuse, Review

TARGET = {"claim": {"name": "backups"}}


def review(kind: str, spec: dict[str, Any], old: dict[str, Any] | None = None) -> Any:
    def whole(one: dict[str, Any] | None) -> dict[str, Any] | None:
        meta = {"name": "a", "namespace": "default"}
        head = {"apiVersion": "mysql.mooring.dev/v1alpha1", "kind": kind, "metadata": meta}
        return {**head, "spec": one} if one is not None else None

    return Review(
        kind=MySQLBackupSchedule,
        operation="UPDATE" if old else "CREATE",
        key=Key("default", "a"),
        object=whole(spec),
        old=whole(old),
    )


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        (
            "MySQLBackup",
            {"cluster": {"name": "a"}, "target": {"s3": {"bucket": "B"}}},
            "spec.target.s3.bucket",
        ),
        ("MySQLBackupSchedule", {"schedule": "0 0 30 2 *", "template": {"target": TARGET}}, "spec.schedule"),
        (
            "MySQLBackupSchedule",
            {"schedule": "@daily", "timeZone": "Mars/X", "template": {"target": TARGET}},
            "spec.timeZone",
        ),
    ],
)
async def test_what_could_never_run_is_rejected(kind: str, spec: dict[str, Any], field: str) -> None:
    answer = next(one for one in backup_webhooks(SystemClock()) if one.kind.resource.kind == kind).review
    refused = await answer(review(kind, spec))
    assert isinstance(refused, Refuse)
    assert refused.causes[0][0] == field
    other = {**spec, "suspend": True}
    assert isinstance(await answer(review(kind, other, old=spec)), Allow)


async def test_a_sound_schedule_is_accepted() -> None:
    spec = {"schedule": "30 3 * * *", "timeZone": "Asia/Shanghai", "template": {"target": TARGET}}
    assert isinstance(
        await backup_webhooks(SystemClock())[1].review(review("MySQLBackupSchedule", spec)), Allow
    )
