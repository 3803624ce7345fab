"""What the Job of a run is told, as JSON in its environment; no credentials."""

from __future__ import annotations

from typing import Literal

import msgspec

from mooring.operators.backup.manifest import Origin
from mooring.operators.matrixone.types import SharedStorageProvider

__all__ = ["Action", "Request"]

Action = Literal["backup", "restore", "verify", "delete"]


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One run."""

    action: Action
    root: SharedStorageProvider
    """The path that the backup is below."""
    places: list[str] = msgspec.field(default_factory=list)
    """Where below it: of a backup those of every try, the present one last; of a deletion all."""
    base: str = ""
    """Of an incremental backup: the place of the one that it builds on."""
    tool: str = ""
    """The image of the container beside that writes the backup; "": the server writes it."""
    full_because: str = ""
    """Why a backup that was to be incremental is a full one."""
    host: str = ""
    port: int = 6001
    login: str = ""
    """Of a backup and of a test restore: the Secret with username and password."""
    origin: Origin = msgspec.field(default_factory=Origin)
    parallelism: int = 4
    target: SharedStorageProvider | None = None
    """Of a restore: the path of the new cluster; of a test restore: a path below `scratch`."""
    owner: str = ""
    """Of a restore: UID of the object that the path is filled for."""
    scratch: str = ""
    """Of a test restore: the place below ``root`` that is deleted before and after it."""
