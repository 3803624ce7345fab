"""The Job of a backup of a RedisCluster of either kind. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mooring.kube.object import Object
from mooring.kube.objects import core
from mooring.operators.backup.agent import Draft
from mooring.operators.backup.manifest import Origin
from mooring.operators.backup.run import Run
from mooring.operators.redis.backup import scripts
from mooring.operators.redis.backup.reader import Source
from mooring.operators.redis.backup.types import RedisBackupSpec
from mooring.operators.redis.pods import auth_volume

__all__ = ["Choice", "backup_run"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a backup reads; or ``why`` there is nothing to read."""

    source: Source | None = None
    flavor: str = ""
    """``sentinel`` or ``cluster``."""
    version: str = ""
    secret: str = ""
    """Has the password."""
    why: str = ""


def backup_run(cluster: Object, spec: RedisBackupSpec, choice: Choice, *, agent_image: str) -> Run:
    """A backup of every shard."""
    assert spec.target is not None
    assert choice.source is not None
    meta = cluster.metadata
    draft = Draft(
        id="",
        operator="redis",
        flavor=choice.flavor,
        method="Snapshot",
        cluster=Origin(
            namespace=meta.namespace or "",
            name=meta.name or "",
            uid=meta.uid or "",
            kind=f"{cluster.resource.plural}.{cluster.resource.group}",
        ),
    )
    return Run(
        purpose="backup",
        action="put",
        target=spec.target,
        prefixes=(),
        agent_image=agent_image,
        parts=choice.source.parts,
        draft=draft,
        image=agent_image,
        script=scripts.READ,
        files={"source.json": msgspec.json.encode(choice.source).decode()},
        volumes=[auth_volume(choice.secret, "password")],
        mounts=[core.VolumeMount(name="auth", mount_path="/mooring/auth", read_only=True)],
        resources=spec.resources,
    )
