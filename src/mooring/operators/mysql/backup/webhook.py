"""Admission rejections for MySQLBackup and MySQLBackupSchedule: what a condition would say later is said at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.cache import Clock
from mooring.kube import DecodeError
from mooring.kube.object import decode
from mooring.objectstore import Problem, validate
from mooring.operators.backup.schedule import problem
from mooring.operators.mysql.backup.types import (
    MySQLBackup,
    MySQLBackupSchedule,
    MySQLBackupScheduleSpec,
    MySQLBackupSpec,
)
from mooring.operators.workload.admission import part, unknown_warnings
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict, Webhook

__all__ = ["backup_webhooks"]


class _Reviews:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def backup(self, asked: Review[MySQLBackup]) -> Verdict:
        """Answer for a MySQLBackup."""
        return self._answer(asked.object, asked.old, MySQLBackupSpec, self._of_backup)

    async def schedule(self, asked: Review[MySQLBackupSchedule]) -> Verdict:
        """Answer for a MySQLBackupSchedule."""
        return self._answer(asked.object, asked.old, MySQLBackupScheduleSpec, self._of_schedule)

    def _answer(
        self, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, spec: Any, find: Any
    ) -> Verdict:
        if new is None or part(new, "metadata").get("deletionTimestamp"):
            return Allow()
        if old is not None and part(new, "spec") == part(old, "spec"):
            return Allow()
        known = find(old) if old is not None else []
        made = [one for one in find(new) if one not in known]
        warnings = tuple(unknown_warnings(spec, part(new, "spec")))
        if made:
            causes = tuple((one.field, one.message) for one in made)
            return Refuse("; ".join(map(str, made)), causes, warnings)
        return Allow(*warnings)

    def _of_backup(self, raw: Mapping[str, Any]) -> list[Problem]:
        try:
            spec = decode(dict(raw), MySQLBackup).spec
        except DecodeError:
            return []
        return validate(spec.target, "spec.target") if spec is not None and spec.target is not None else []

    def _of_schedule(self, raw: Mapping[str, Any]) -> list[Problem]:
        try:
            spec = decode(dict(raw), MySQLBackupSchedule).spec or MySQLBackupScheduleSpec()
        except DecodeError:
            return []
        zone = spec.time_zone or ""
        wrong = problem(spec.schedule or "", zone, now=self._clock.now())
        field = "spec.timeZone" if zone and "time zone" in wrong else "spec.schedule"
        found = [Problem(field=field, message=wrong)] if wrong else []
        target = spec.template.target if spec.template is not None else None
        return found + (validate(target, "spec.template.target") if target is not None else [])


def backup_webhooks(clock: Clock) -> list[Webhook[Any]]:
    """The webhooks of both kinds."""
    reviews = _Reviews(clock)
    return [
        Webhook(MySQLBackup, reviews.backup, operations=("CREATE", "UPDATE"), failure_policy="Ignore"),
        Webhook(
            MySQLBackupSchedule, reviews.schedule, operations=("CREATE", "UPDATE"), failure_policy="Ignore"
        ),
    ]
