"""Admission rejections for the kinds of backups: what a condition would say later is said at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mooring.cache import Clock
from mooring.kube import DecodeError
from mooring.kube.object import decode
from mooring.objectstore import Problem
from mooring.operators.backup.schedule import problem
from mooring.operators.backup.targets import problems
from mooring.operators.backup.types import BackupObject, ScheduleObject
from mooring.operators.workload.admission import part, unknown_warnings
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict, Webhook

__all__ = ["backup_webhooks"]


class _Reviews:
    """Reviews one kind: what ``find`` finds in it and not in the object before the change is rejected."""

    def __init__(
        self, spec: type[msgspec.Struct], find: Callable[[Mapping[str, Any]], list[Problem]]
    ) -> None:
        self._spec = spec
        self._find = find

    async def review(self, asked: Review[Any]) -> Verdict:
        """Answer one request."""
        new, old = asked.object, asked.old
        if new is None or part(new, "metadata").get("deletionTimestamp"):
            return Allow()
        if old is not None and part(new, "spec") == part(old, "spec"):
            return Allow()
        known = self._find(old) if old is not None else []
        made = [one for one in self._find(new) if one not in known]
        warnings = tuple(unknown_warnings(self._spec, part(new, "spec")))
        if made:
            causes = tuple((one.field, one.message) for one in made)
            return Refuse("; ".join(map(str, made)), causes, warnings)
        return Allow(*warnings)


def backup_webhooks(
    clock: Clock,
    backup: tuple[type[BackupObject], type[msgspec.Struct]],
    schedule: tuple[type[ScheduleObject], type[msgspec.Struct]],
) -> list[Webhook[Any]]:
    """The webhooks of an operator's two kinds, each given with the type of its spec."""

    def of_backup(raw: Mapping[str, Any]) -> list[Problem]:
        spec = _spec(raw, backup[0])
        return problems(spec.target, "spec.target") if spec is not None and spec.target is not None else []

    def of_schedule(raw: Mapping[str, Any]) -> list[Problem]:
        spec = _spec(raw, schedule[0])
        if spec is None:
            return []
        zone = spec.time_zone or ""
        wrong = problem(spec.schedule or "", zone, now=clock.now())
        field = "spec.timeZone" if zone and "time zone" in wrong else "spec.schedule"
        found = [Problem(field=field, message=wrong)] if wrong else []
        target = spec.template.target if spec.template is not None else None
        return found + (problems(target, "spec.template.target") if target is not None else [])

    pairs = (backup, of_backup), (schedule, of_schedule)
    return [
        Webhook(kind, _Reviews(spec, find).review, operations=("CREATE", "UPDATE"), failure_policy="Ignore")
        for (kind, spec), find in pairs
    ]


def _spec(raw: Mapping[str, Any], kind: type[Any]) -> Any:
    """What is declared; ``None`` where it cannot be read, which the server's own words say better."""
    try:
        return decode(dict(raw), kind).spec
    except DecodeError:
        return None
