"""Where backups are in a store, and how the object storage layer names that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath, PurePosixPath
from typing import Final

from msgspec.structs import replace

from mooring.objectstore import Target
from mooring.objectstore.target import Directory
from mooring.operators.backup.layout import is_backup_id
from mooring.operators.matrixone.bucket.erase import target_of
from mooring.operators.matrixone.storage import bucket_of
from mooring.operators.matrixone.types import S3Provider, SharedStorageProvider

__all__ = [
    "DONE",
    "HAKEEPER_FILE",
    "MARK",
    "below",
    "in_volume",
    "place_of",
    "restored_name",
    "same_kind",
    "scratch_of",
    "secrets_of",
    "shown",
    "target_for",
    "within",
]

MARK: Final = "mooring-restore.json"
"""In a path that a restore fills: whose it is. It is written first, and only into an empty path."""
DONE: Final = "mooring-restored.json"
"""In a path that a restore has filled; with it no restore writes there ever again."""
HAKEEPER_FILE: Final = "hakeeper/hk_data"


def scratch_of(place: str) -> str:
    """Where a backup is tried out, below the same path: beside the backups, so that deleting it deletes none.

    Raises ValueError for a place that is none of a backup.
    """
    cluster, separator, identity = place.rpartition("/backups/")
    if not cluster or not separator or not is_backup_id(identity):
        raise ValueError(f"{place[:200]!r} is not the place of a backup")
    return f"{cluster}/verify/{identity}"


def target_for(provider: SharedStorageProvider, *, ca_bundle: str | None = None) -> Target:
    """A path as a target of the object storage layer."""
    if provider.s3 is not None:
        return target_of(provider.s3, ca_bundle=ca_bundle)
    path = provider.file_system.path if provider.file_system is not None else None
    return Target(directory=Directory(path=path))


def within(provider: SharedStorageProvider, place: str) -> SharedStorageProvider:
    """A place below a path."""
    if provider.s3 is not None:
        path = f"{(provider.s3.path or '').strip('/')}/{place}"
        return replace(provider, s3=replace(provider.s3, path=path, s3_retention_policy=None))
    assert provider.file_system is not None
    path = str(PurePosixPath(provider.file_system.path or "/", place))
    return replace(provider, file_system=replace(provider.file_system, path=path))


def place_of(location: SharedStorageProvider) -> tuple[SharedStorageProvider, str] | None:
    """The path that a backup lies in and the backup's ID; ``None`` where the last segment is no ID.

    So that nothing is ever deleted but what Mooring's backups are called.
    """
    path = (location.s3.path if location.s3 is not None else None) or (
        location.file_system.path if location.file_system is not None else None
    )
    parent, _, identity = (path or "").rstrip("/").rpartition("/")
    if not parent or not is_backup_id(identity):
        return None
    if location.s3 is not None:
        return replace(location, s3=replace(location.s3, path=parent)), identity
    assert location.file_system is not None
    return replace(location, file_system=replace(location.file_system, path=parent)), identity


def below(names: Mapping[str, object], directory: str) -> list[str]:
    """The names below a directory, in order."""
    return sorted(one for one in names if one.startswith(f"{directory}/"))


def restored_name(name: str, *, bucket: bool) -> str:
    """Where an object of a backup belongs in the path of a cluster; "" for one that a cluster has no use for.

    In a bucket the data of a cluster is below ``data``, in a directory at its top.
    """
    if name == HAKEEPER_FILE:
        return "hk_data"
    if name.startswith("tae/"):
        rest = name.removeprefix("tae/")
        return f"data/{rest}" if bucket else rest
    return ""


def same_kind(one: SharedStorageProvider, other: SharedStorageProvider) -> bool:
    """Whether both are buckets, or both directories: in a directory the server stores files in another form."""
    return (one.s3 is None) is (other.s3 is None)


def secrets_of(*providers: SharedStorageProvider | None) -> list[str]:
    """Names of the Secrets that paths need: credentials, certificates."""
    found: list[str | None] = []
    for one in providers:
        s3 = one.s3 if one is not None else None
        if s3 is not None:
            found.append(s3.secret_ref.name if s3.secret_ref is not None else None)
            found.append(s3.certificate_ref.name if s3.certificate_ref is not None else None)
    return list(dict.fromkeys(name for name in found if name))


def shown(provider: SharedStorageProvider) -> str:
    """A path for people; holds no credentials."""
    if provider.s3 is not None:
        return _bucket(provider.s3)
    return f"directory {provider.file_system.path if provider.file_system is not None else ''}"


def _bucket(s3: S3Provider) -> str:
    bucket, prefix = bucket_of(s3)
    text = f"s3://{bucket}/{prefix}".rstrip("/")
    return f"{text} at {s3.endpoint}" if s3.endpoint else text


def in_volume(path: PurePath, mounts: str) -> bool:
    """Whether a path is below a mount other than the root; ``mounts`` as /proc/self/mountinfo has them."""
    points = (line.split()[4].replace("\\040", " ") for line in mounts.splitlines() if line)
    return any(path.is_relative_to(point) for point in points if point != "/")
