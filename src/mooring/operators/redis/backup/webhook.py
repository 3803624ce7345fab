"""Admission rejections for RedisBackup and RedisBackupSchedule; see `operators.backup.webhook`."""

from __future__ import annotations

from typing import Any

from mooring.cache import Clock
from mooring.operators.backup import webhook
from mooring.operators.redis.backup.types import (
    RedisBackup,
    RedisBackupSchedule,
    RedisBackupScheduleSpec,
    RedisBackupSpec,
)
from mooring.runtime.webhooks import Webhook

__all__ = ["backup_webhooks"]


def backup_webhooks(clock: Clock) -> list[Webhook[Any]]:
    """The webhooks of both kinds, for operators of either kind of RedisCluster."""
    return webhook.backup_webhooks(
        clock, (RedisBackup, RedisBackupSpec), (RedisBackupSchedule, RedisBackupScheduleSpec)
    )
