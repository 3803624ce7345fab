"""Real servers of every version of Redis and Valkey that can be had, by name, for tests without a control plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hack import old_redis, redis_servers
from mooring.local.node.packages import PackageImages

__all__ = ["ALL", "IMAGES", "program", "programs"]

IMAGES = ("redis:8.0", "valkey:8.1", "valkey:9.1")
"""What the image catalog makes of Debian's packages."""
NEWEST = ("redis:8.0", "valkey:9.1")
VERSIONS = (
    "redis:3.2",
    "redis:5.0",
    "redis:6.0",
    "redis:6.2",
    "redis:7.0",
    "redis:7.2",
    "redis:7.4",
    "redis:8.2",
)
ALL: list[Any] = [
    *(pytest.param(one, marks=pytest.mark.full) for one in NEWEST),
    *(pytest.param(one, marks=pytest.mark.nightly) for one in (*VERSIONS, *IMAGES) if one not in NEWEST),
]
"""For `parametrize`: the newest of each kind in the tier ``full``, the others in ``nightly``."""


def programs(name: str) -> Path:
    """The directory with the programs of a version that is no image of the catalog (``redis:7.4``); made on first use.

    Raises `RedisBuildError` with what is missing.
    """
    version = name.partition(":")[2]
    if version in old_redis.SOURCES:
        return old_redis.build(version)
    return redis_servers.build(version)


def program(name: str, home: Path) -> Sequence[str]:
    """How a server of that version is started; it sees ``home``. Raises what says how to get it."""
    kind = name.partition(":")[0]
    if name == "redis:7.0":
        return ("redis-server",)
    if name not in IMAGES:
        return (str(programs(name) / "redis-server"),)
    images = PackageImages()
    image = images.store.layer(images.make(images.recipe(kind, name)).chain[-1])
    return (
        *("bwrap", "--die-with-parent", "--ro-bind", str(image), "/", "--dev", "/dev", "--proc", "/proc"),
        *("--tmpfs", "/tmp", "--tmpfs", "/run", "--bind", str(home), str(home), f"{kind}-server"),
    )
