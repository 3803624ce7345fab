"""The Job of a backup of a RedisCluster of either kind. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mooring.kube.object import Object
from mooring.kube.objects import core
from mooring.objectstore import Target
from mooring.operators.backup.agent import Draft
from mooring.operators.backup.manifest import Origin
from mooring.operators.backup.run import Run
from mooring.operators.redis.backup import scripts
from mooring.operators.redis.backup.load import Into
from mooring.operators.redis.backup.reader import Source
from mooring.operators.redis.backup.types import RedisBackupSpec
from mooring.operators.redis.pods import auth_volume
from mooring.operators.redis.users.accounts import BACKUP
from mooring.operators.workload.certificates import AUTHORITY
from mooring.operators.workload.containers import READ_ONLY

__all__ = ["Choice", "Servers", "backup_run", "load_run", "verify_run"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a backup reads; or ``why`` there is nothing to read."""

    source: Source | None = None
    flavor: str = ""
    """``sentinel`` or ``cluster``."""
    version: str = ""
    secret: str = ""
    """Has the password."""
    authority: str = ""
    """The Secret with ca.crt, where the servers take TLS."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Servers:
    """By which image a backup is loaded."""

    image: str
    pull_policy: str | None = None
    pull_secrets: Sequence[core.LocalObjectReference] | None = None
    resources: core.ResourceRequirements | None = None


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
        volumes=_access(choice.secret, choice.authority, BACKUP),
        mounts=_mounts(choice.authority),
        resources=spec.resources,
    )


def load_run(
    into: Into, *, target: Target, prefix: str, secret: str, authority: str, attempt: int, agent_image: str
) -> Run:
    """A restore into servers that run: every key goes to the owner of its slot."""
    return Run(
        purpose="restore",
        action="get",
        target=target,
        prefixes=(prefix,),
        attempt=attempt,
        agent_image=agent_image,
        parts=(),
        image=agent_image,
        script=scripts.LOAD,
        files={"into.json": msgspec.json.encode(into).decode()},
        volumes=_access(secret, authority),
        mounts=_mounts(authority),
        timeout=604800,
    )


def _mounts(authority: str) -> list[core.VolumeMount]:
    return [
        core.VolumeMount(name=one, mount_path=f"/mooring/{one}", read_only=True)
        for one in ("auth", *(("tls",) if authority else ()))
    ]


def _access(secret: str, authority: str, *accounts: str) -> list[core.Volume]:
    """The password, those of accounts, what is trusted, and nothing of the servers' keys."""
    volumes = [auth_volume(secret, "password", *accounts)]
    if not authority:
        return volumes
    source = core.SecretVolumeSource(
        secret_name=authority,
        items=[core.KeyToPath(key=AUTHORITY, path=AUTHORITY)],
        default_mode=READ_ONLY,
    )
    return [*volumes, core.Volume(name="tls", secret=source)]


def verify_run(servers: Servers, *, target: Target, prefix: str, agent_image: str) -> Run:
    """A restore into servers that end with the pod."""
    return Run(
        purpose="verify",
        action="get",
        target=target,
        prefixes=(prefix,),
        agent_image=agent_image,
        image=servers.image,
        pull_policy=servers.pull_policy,
        pull_secrets=servers.pull_secrets,
        script=scripts.VERIFY,
        parts=(),
        volumes=[core.Volume(name="scratch", empty_dir=core.EmptyDirVolumeSource())],
        mounts=[core.VolumeMount(name="scratch", mount_path="/mooring/scratch")],
        resources=servers.resources,
    )
