"""Admission rejections for MySQLBackup and MySQLBackupSchedule; see `operators.backup.webhook`."""

from __future__ import annotations

from typing import Any

from mooring.cache import Clock
from mooring.operators.backup import webhook
from mooring.operators.mysql.backup.types import (
    MySQLBackup,
    MySQLBackupSchedule,
    MySQLBackupScheduleSpec,
    MySQLBackupSpec,
)
from mooring.runtime.webhooks import Webhook

__all__ = ["backup_webhooks"]


def backup_webhooks(clock: Clock) -> list[Webhook[Any]]:
    """The webhooks of both kinds."""
    return webhook.backup_webhooks(
        clock, (MySQLBackup, MySQLBackupSpec), (MySQLBackupSchedule, MySQLBackupScheduleSpec)
    )
