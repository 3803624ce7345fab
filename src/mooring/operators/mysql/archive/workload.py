"""The Deployment that keeps the archive of one cluster: one pod of Mooring's image without rights on the API server. Pure.

Two archivers at once do no harm: only one of them can create the next entry of the index. So the pod of a lost node is
replaced without waiting for that node.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mooring.actor import digest
from mooring.kube.objects import apps, core, meta
from mooring.objectstore import Target
from mooring.operators.backup.layout import archive_prefix, cluster_prefix
from mooring.operators.backup.run import (
    AGENT_RESOURCES,
    agent_image,
    target_mounts,
    target_volumes,
    unprivileged,
)
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.operators.mysql.names import ARCHIVE, ARCHIVE_PORT, REPLICATION, Names, labels_of
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import ArchiveSpec, MySQLCluster, MySQLClusterSpec, PodSettings
from mooring.operators.workload.certificates import AUTHORITY, EARLIER
from mooring.operators.workload.containers import READ_ONLY, config_volume

__all__ = ["INTERVAL", "archive_objects", "is_archiver", "root_of"]

INTERVAL: Final = 10
"""Seconds: the default of ``spec.archive.intervalSeconds``."""
_GRACE: Final = 20


def root_of(cluster: MySQLCluster) -> str:
    """Where the archive of a cluster is in its target; a later cluster of the same name has another one."""
    return archive_prefix(cluster_prefix(cluster.metadata.name or "", cluster.metadata.uid or ""))


def is_archiver(pod: core.Pod) -> bool:
    """Whether it is the pod that archives, no server of the cluster's."""
    return (pod.metadata.labels or {}).get("app.kubernetes.io/name") == ARCHIVE


def archive_objects(
    cluster: MySQLCluster, *, flavor: Flavor, tls: bool, security: core.PodSecurityContext
) -> list[core.ConfigMap | apps.Deployment]:
    """The ConfigMap with the target, named by content, and the Deployment; none where no archive is declared."""
    spec = cluster.spec or MySQLClusterSpec()
    archive = spec.archive
    if archive is None or archive.target is None:
        return []
    names = Names(cluster.metadata.name or "")
    labels = {**labels_of(names.cluster), "app.kubernetes.io/name": ARCHIVE}
    data = {"target.json": msgspec.json.encode(archive.target).decode()}
    settings = core.ConfigMap(
        metadata=_meta(cluster, f"{names.archive}-{digest(data)[:10]}", labels), data=data, immutable=True
    )
    pod = spec.pod or PodSettings()
    template = core.PodTemplateSpec(
        metadata=meta.ObjectMeta(labels=labels),
        spec=core.PodSpec(
            automount_service_account_token=False,
            termination_grace_period_seconds=_GRACE,
            containers=[_container(cluster, archive, archive.target, names, flavor=flavor, tls=tls)],
            volumes=_volumes(archive.target, names, settings.metadata.name or "", tls=tls),
            # The user that writes the backups: both write to the same directory or claim.
            security_context=pod.security_context or security,
            node_selector=pod.node_selector,
            tolerations=pod.tolerations,
            priority_class_name=pod.priority_class_name,
            image_pull_secrets=spec.image_pull_secrets,
        ),
    )
    deployment = apps.Deployment(
        metadata=_meta(cluster, names.archive, labels),
        spec=apps.DeploymentSpec(
            replicas=1,
            selector=meta.LabelSelector(match_labels=labels),
            strategy=apps.DeploymentStrategy(type="Recreate"),
            template=template,
        ),
    )
    return [settings, deployment]


def _container(
    cluster: MySQLCluster, archive: ArchiveSpec, target: Target, names: Names, *, flavor: Flavor, tls: bool
) -> core.Container:
    host = f"{names.headless}.{cluster.metadata.namespace}.svc"
    arguments = [
        *("agent", "mysql", "archive", "--target=/mooring/conf/target.json"),
        f"--root={root_of(cluster)}",
        f"--host={host}",
        f"--flavor={flavor}",
        f"--uid={cluster.metadata.uid}",
        f"--interval={archive.interval_seconds or INTERVAL}",
        f"--port={ARCHIVE_PORT}",
    ]
    if archive.prune:
        arguments.append("--prune")
    if tls:
        arguments.append("--tls=/mooring/tls")
    mounts = [
        core.VolumeMount(name="conf", mount_path="/mooring/conf", read_only=True),
        core.VolumeMount(name="auth", mount_path="/mooring/auth", read_only=True),
        core.VolumeMount(name="tmp", mount_path="/tmp"),  # noqa: S108 - of the container
        *target_mounts(target),
    ]
    if tls:
        mounts.append(core.VolumeMount(name="tls", mount_path="/mooring/tls", read_only=True))
    return core.Container(
        name="archive",
        image=agent_image(),
        args=arguments,
        ports=[core.ContainerPort(name="status", container_port=ARCHIVE_PORT, protocol="TCP")],
        resources=archive.resources or AGENT_RESOURCES,
        # It answers as long as its loop turns; what stands still is told by its status.
        liveness_probe=core.Probe(
            http_get=core.HTTPGetAction(path="/healthz", port=ARCHIVE_PORT),
            initial_delay_seconds=30,
            period_seconds=10,
            timeout_seconds=5,
            failure_threshold=6,
        ),
        volume_mounts=mounts,
        security_context=unprivileged(),
    )


def _volumes(target: Target, names: Names, settings: str, *, tls: bool) -> list[core.Volume]:
    label = ACCOUNTS[REPLICATION]
    account = core.SecretVolumeSource(
        secret_name=names.credentials_copy,
        items=[core.KeyToPath(key=label, path=label)],
        default_mode=READ_ONLY,
    )
    volumes = [
        config_volume("conf", settings),
        core.Volume(name="auth", secret=account),
        core.Volume(name="tmp", empty_dir=core.EmptyDirVolumeSource(size_limit="64Mi")),
        *target_volumes(target),
    ]
    if tls:
        authorities = core.SecretVolumeSource(
            secret_name=names.tls,
            items=[core.KeyToPath(key=key, path=key) for key in (AUTHORITY, EARLIER)],
            default_mode=READ_ONLY,
            optional=True,
        )
        volumes.append(core.Volume(name="tls", secret=authorities))
    return volumes


def _meta(cluster: MySQLCluster, name: str, labels: dict[str, str]) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=name, namespace=cluster.metadata.namespace, labels=labels)
