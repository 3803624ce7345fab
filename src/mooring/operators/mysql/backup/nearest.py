"""The backup that a point in time is restored from: the newest one before it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from mooring.actor import Wait
from mooring.objectstore import Target
from mooring.operators.backup.layout import archive_of
from mooring.operators.backup.rules import reach
from mooring.operators.backup.types import SUCCEEDED, BackupStatus
from mooring.operators.mysql.archive.target import Refused, goal_gtid, holds
from mooring.operators.mysql.backup.types import MySQLBackup
from mooring.operators.mysql.gtid import parse
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import PointInTime

__all__ = ["nearest"]

_NEVER = datetime.min.replace(tzinfo=UTC)


def nearest(
    backups: Sequence[MySQLBackup],
    cluster: str,
    point: PointInTime,
    *,
    flavor: Flavor,
    began: str = "",
    archived: Target | None = None,
) -> MySQLBackup | Wait:
    """That backup of the cluster; or why there is none, with the bounds.

    ``began`` is the one that an earlier try of the restore began with: it stays that one, whatever was made since.
    ``archived`` is where the cluster has its archive, if that is known: a backup elsewhere cannot be continued.
    """
    where = "spec.restoreFrom.cluster"
    made = sorted((one for one in backups if _counts(one, cluster)), key=_finished)
    if same := [one for one in made if began and one.metadata.name == began]:
        return same[0]
    if not made:
        text = f"{where}: no backup of {cluster} has succeeded in this namespace; make one, or name a target and a prefix"
        return Wait("BackupNotFound", text, after=30.0, stalled=True)
    before = [one for one in made if _is_before(one, point, flavor)]
    if before:
        # One whose test restore failed is the last resort: an older one leads to the same point.
        beside = [one for one in before if archived is not None and _target(one) == archived] or before
        return ([one for one in beside if not _is_refuted(one)] or beside)[-1]
    status, asked = _status(made[0]), point.gtid or ""
    if point.moment is not None:
        asked = f"{point.moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    text = (
        f"spec.restoreFrom.pointInTime: the oldest backup of {cluster}, {made[0].metadata.name}, ended at "
        f"{_finished(made[0]):%Y-%m-%dT%H:%M:%SZ} ({reach(status.position)}), which is not before {asked}; choose a "
        "later point, or name an older backup by target and prefix"
    )
    return Wait("BeforeBackups", text, after=60.0, stalled=True)


def _counts(one: MySQLBackup, cluster: str) -> bool:
    status, spec = _status(one), one.spec
    return (
        spec is not None
        and spec.cluster is not None
        and spec.cluster.name == cluster
        and status.phase == SUCCEEDED
        and not one.metadata.deletion_timestamp
        and bool(archive_of(status.prefix or ""))
    )


def _is_refuted(one: MySQLBackup) -> bool:
    known = _status(one).verified
    return known is not None and known.at is not None and not known.passed


def _is_before(one: MySQLBackup, point: PointInTime, flavor: Flavor) -> bool:
    if point.moment is not None:
        return _finished(one) <= point.moment
    try:
        return not holds(
            flavor, parse(flavor, _status(one).position or ""), goal_gtid(flavor, point.gtid or "")
        )
    except (Refused, ValueError):
        return False


def _status(one: MySQLBackup) -> BackupStatus:
    return one.status or BackupStatus()


def _target(one: MySQLBackup) -> Target | None:
    return one.spec.target if one.spec is not None else None


def _finished(one: MySQLBackup) -> datetime:
    return _status(one).finished_at or _NEVER
