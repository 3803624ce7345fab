"""Names of a backup's objects in a store: ``CLUSTER/backups/ID/manifest.json`` and its data beside it. Pure."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Final

__all__ = [
    "MANIFEST",
    "archive_of",
    "archive_prefix",
    "backup_id",
    "backup_prefix",
    "backups_prefix",
    "cluster_prefix",
    "is_backup_id",
    "made_at",
]

MANIFEST: Final = "manifest.json"
_ID: Final = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{8}")
_TIME: Final = "%Y%m%dT%H%M%SZ"


def cluster_prefix(name: str, uid: str) -> str:
    """Where everything of one cluster is stored: its name and the first 8 digits of its UID.

    A cluster of the same name that is made later has another one, so that it never writes into this one's history.
    """
    return f"{name}-{uid[:8]}"


def backups_prefix(cluster: str) -> str:
    """Where the backups of a cluster are, from its prefix."""
    return f"{cluster}/backups"


def archive_prefix(cluster: str) -> str:
    """Where the archive of a cluster's log is, from its prefix."""
    return f"{cluster}/archive"


def archive_of(backup: str) -> str:
    """Where the archive that continues a backup is, from the backup's prefix; "" where that has another form."""
    cluster, separator, identity = backup.strip("/").rpartition("/backups/")
    return archive_prefix(cluster) if separator and is_backup_id(identity) else ""


def backup_id(made: datetime, uid: str, attempt: int = 1) -> str:
    """Identity of one try of a backup object: names sort by time, and no two tries share one.

    A try that was given up may still write: never to where a later one does.
    """
    text = hashlib.sha256(f"{uid}/{attempt}".encode()).hexdigest()[:8]
    return f"{made.astimezone(UTC).strftime(_TIME)}-{text}"


def is_backup_id(text: str) -> bool:
    """Whether a name has the form of an identity."""
    return _ID.fullmatch(text) is not None


def made_at(identity: str) -> datetime:
    """The time in an identity; raises ValueError."""
    found = _ID.fullmatch(identity)
    if found is None:
        raise ValueError(f"{identity[:50]!r} is not the ID of a backup, such as 20260102T030405Z-0a1b2c3d")
    return datetime.strptime(found[1], _TIME).replace(tzinfo=UTC)


def backup_prefix(cluster: str, identity: str) -> str:
    """Where the objects of one backup are."""
    return f"{backups_prefix(cluster)}/{identity}"
