"""The Jobs of backups and restores of MySQLClusters. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from mooring.kube.objects import core
from mooring.objectstore import Target
from mooring.operators.backup.agent import Draft
from mooring.operators.backup.manifest import Origin
from mooring.operators.backup.run import Run
from mooring.operators.mysql.archive.forward import FETCHED, FORWARD, fetcher
from mooring.operators.mysql.backup import scripts
from mooring.operators.mysql.backup.types import CHECKSUMS, LOGICAL, PHYSICAL, MySQLBackupSpec
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.operators.mysql.names import BACKUP, Names
from mooring.operators.mysql.specs import DATA, pod_security
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import (
    DEFAULT_IMAGE,
    MySQLCluster,
    MySQLClusterSpec,
    PodSettings,
    PointInTime,
)
from mooring.operators.workload.certificates import AUTHORITY
from mooring.operators.workload.claims import claim_name
from mooring.operators.workload.containers import READ_ONLY

__all__ = ["Choice", "backup_run", "choose", "impossible", "restore_run", "verify_run"]

OPERATOR: Final = "mysql"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The pod that a backup reads; or ``why`` there is none."""

    pod: str = ""
    why: str = ""


def choose(cluster: MySQLCluster, policy: str) -> Choice:
    """A replica that follows and is not behind, the last one first; the primary only where the policy allows it."""
    status = cluster.status
    instances = (status.instances if status is not None else None) or ()
    online = [one for one in instances if one.state == "Online"]
    replicas = [one.name for one in online if one.role == "replica"]
    primary = [one.name for one in online if one.role == "primary"]
    if policy != "Primary" and replicas:
        return Choice(pod=replicas[-1])
    if policy != "Replica" and primary:
        return Choice(pod=primary[-1])
    what = {"Replica": "replica", "Primary": "primary"}.get(policy, "server")
    return Choice(
        why=f"no {what} of the cluster is online; see kubectl get mysqlcluster {cluster.metadata.name}"
    )


def impossible(cluster: MySQLCluster, spec: MySQLBackupSpec, flavor: Flavor) -> str:
    """Why this backup can never be made of this cluster; "" where it can."""
    if spec.method != PHYSICAL or flavor != "mariadb":
        return ""
    if spec.verification == CHECKSUMS:
        return (
            "spec.verification: Checksums needs method Logical on MariaDB, as no server runs on the copied files; "
            "set method: Logical or verification: Tables"
        )
    storage = (cluster.spec or MySQLClusterSpec()).storage
    if storage is not None and storage.empty_dir is not None:
        return (
            "spec.method: a physical backup of MariaDB reads the claim of a server, and this cluster has an emptyDir; "
            "set method: Logical"
        )
    return ""


def backup_run(
    cluster: MySQLCluster,
    spec: MySQLBackupSpec,
    *,
    pod: str,
    node: str = "",
    flavor: Flavor,
    tls: bool,
    agent_image: str,
) -> Run:
    """A backup from that pod, which runs on ``node``: a physical one of MariaDB reads its claim there."""
    assert spec.target is not None
    meta = cluster.metadata
    names, declared = Names(meta.name or ""), cluster.spec or MySQLClusterSpec()
    method = spec.method or LOGICAL
    draft = Draft(
        id="",
        operator=OPERATOR,
        flavor=flavor,
        method=method,
        cluster=Origin(
            namespace=meta.namespace or "",
            name=meta.name or "",
            uid=meta.uid or "",
            kind=f"{cluster.resource.plural}.{cluster.resource.group}",
        ),
    )
    volumes, mounts = _common(names, (BACKUP,), tls=tls)
    files = method == PHYSICAL
    beside = files and flavor == "mariadb"
    if files:
        volumes.append(
            _data_of(pod) if beside else core.Volume(name=DATA, empty_dir=core.EmptyDirVolumeSource())
        )
        mounts.append(core.VolumeMount(name=DATA, mount_path="/var/lib/mysql", read_only=beside or None))
    env = {"HOST": names.host(pod, meta.namespace or ""), "FLAVOR": flavor}
    if spec.verification == CHECKSUMS:
        env["VERIFICATION"] = CHECKSUMS
    return _run(
        declared,
        purpose="backup",
        action="put",
        target=spec.target,
        prefixes=(),
        agent_image=agent_image,
        draft=draft,
        script=scripts.PHYSICAL if files else scripts.LOGICAL,
        env=env,
        volumes=volumes,
        mounts=mounts,
        node=node if beside else "",
        resources=spec.resources,
    )


def _data_of(pod: str) -> core.Volume:
    """The claim of a pod that runs, to read only: then the node leaves its owner and its labels as they are."""
    source = core.PersistentVolumeClaimVolumeSource(claim_name=claim_name(DATA, pod), read_only=True)
    return core.Volume(name=DATA, persistent_volume_claim=source)


def restore_run(
    cluster: MySQLCluster,
    *,
    target: Target,
    prefix: str,
    flavor: Flavor,
    attempt: int,
    agent_image: str,
    point: PointInTime | None = None,
) -> Run:
    """A restore into the claim of the first pod; ``point``: continued up to there from the archive."""
    names, declared = Names(cluster.metadata.name or ""), cluster.spec or MySQLClusterSpec()
    volumes, mounts = _common(names, tuple(ACCOUNTS), tls=False)
    claim = core.PersistentVolumeClaimVolumeSource(claim_name=claim_name(DATA, names.pod(0)))
    volumes.append(core.Volume(name=DATA, persistent_volume_claim=claim))
    mounts.append(core.VolumeMount(name=DATA, mount_path="/var/lib/mysql"))
    before: list[core.Container] = []
    script, env = scripts.RESTORE, {"FLAVOR": str(flavor)}
    if point is not None:
        before = [fetcher(target, prefix, point, image=agent_image, data=DATA)]
        script, env = FORWARD + scripts.RESTORE, {**env, "FORWARD": FETCHED}
    return _run(
        declared,
        purpose="restore",
        action="get",
        target=target,
        prefixes=(prefix,),
        attempt=attempt,
        agent_image=agent_image,
        before=before,
        script=script,
        env=env,
        volumes=volumes,
        mounts=mounts,
        resources=declared.resources,
    )


def verify_run(
    cluster: MySQLCluster, *, target: Target, prefix: str, flavor: Flavor, agent_image: str
) -> Run:
    """The same into a volume that goes with the pod; every table is checked, and nobody reaches the server."""
    run = restore_run(
        cluster, target=target, prefix=prefix, flavor=flavor, attempt=1, agent_image=agent_image
    )
    volumes = [
        core.Volume(name=DATA, empty_dir=core.EmptyDirVolumeSource()) if one.name == DATA else one
        for one in run.volumes
    ]
    auth = _passwords(Names(cluster.metadata.name or ""), (BACKUP,))
    volumes = [auth if one.name == auth.name else one for one in volumes]
    return replace(run, purpose="verify", volumes=volumes, env={**run.env, "VERIFY": "yes"})


def _passwords(names: Names, accounts: tuple[str, ...]) -> core.Volume:
    """The passwords of these accounts alone."""
    items = [core.KeyToPath(key=ACCOUNTS[one], path=ACCOUNTS[one]) for one in accounts]
    secret = core.SecretVolumeSource(secret_name=names.credentials_copy, items=items, default_mode=READ_ONLY)
    return core.Volume(name="auth", secret=secret)


def _common(
    names: Names, accounts: tuple[str, ...], *, tls: bool
) -> tuple[list[core.Volume], list[core.VolumeMount]]:
    """Passwords of these accounts, the authority of the certificates, and room in memory for client files."""
    scratch = core.EmptyDirVolumeSource(medium="Memory", size_limit="64Mi")
    volumes = [_passwords(names, accounts), core.Volume(name="scratch", empty_dir=scratch)]
    mounts = [
        core.VolumeMount(name="auth", mount_path="/mooring/auth", read_only=True),
        core.VolumeMount(name="scratch", mount_path="/mooring/scratch"),
    ]
    if tls:
        authority = core.SecretVolumeSource(
            secret_name=names.tls,
            items=[core.KeyToPath(key=AUTHORITY, path=AUTHORITY)],
            default_mode=READ_ONLY,
            optional=True,
        )
        volumes.append(core.Volume(name="tls", secret=authority))
        mounts.append(core.VolumeMount(name="tls", mount_path="/mooring/tls", read_only=True))
    return volumes, mounts


def _run(declared: MySQLClusterSpec, **how: Any) -> Run:
    pod = declared.pod or PodSettings()
    return Run(
        image=declared.image or DEFAULT_IMAGE,
        pull_policy=declared.image_pull_policy,
        pull_secrets=declared.image_pull_secrets,
        security=pod.security_context or pod_security(),
        node_selector=pod.node_selector,
        tolerations=pod.tolerations,
        priority_class=pod.priority_class_name,
        **how,
    )
