"""What is carried out of a declaration, but perhaps not as meant: warnings, each with its field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from mooring.kube.object import Object
from mooring.operators.matrixone.pool.labels import ours
from mooring.operators.matrixone.storage import backend_of
from mooring.operators.matrixone.types import (
    BackupJob,
    BackupJobSpec,
    CNClaim,
    CNClaimSet,
    CNClaimSpec,
    CNSet,
    CNSetSpec,
    DNSet,
    DNSetSpec,
    LogSet,
    LogSetSpec,
    MatrixOneCluster,
    MatrixOneClusterSpec,
    Overlay,
    PodSet,
    RestoreJob,
    SharedStorageCache,
    SharedStorageProvider,
    Volume,
    groups_of,
    transaction_nodes,
)
from mooring.operators.matrixone.versions import Version, server_version, tag_of
from mooring.operators.workload.labels import keyed

__all__ = ["warnings"]

Said = Iterator[tuple[str, str]]


def warnings(obj: Object) -> list[str]:
    """What is carried out, but perhaps not as meant."""
    say = _WARNINGS.get(type(obj))
    return [] if say is None else [f"{where}: {text}" for where, text in say(obj)]


_UNKNOWN: Final = (
    "is no semantic version, so MatrixOne is taken for older than 2.0; give semanticVersion as 1.2.4"
)


def _pods_said(where: str, spec: PodSet, *, known: bool) -> Said:
    """``known``: the cluster has a version, which stands for one that the image's tag does not tell."""
    if not known and spec.image and spec.semantic_version is None and server_version(spec) is None:
        yield f"{where}.image", f"{tag_of(spec.image)!r} {_UNKNOWN}"
    if spec.dns_based_identity is not None and not isinstance(spec, DNSetSpec):
        yield f"{where}.dnsBasedIdentity", "deprecated and not used; remove it"
    if spec.cluster_domain:
        yield f"{where}.clusterDomain", "not used; remove it"
    if spec.memory_limit_percent is not None and not (
        spec.resources and (spec.resources.limits or {}).get("memory")
    ):
        yield f"{where}.memoryLimitPercent", "not used without resources.limits.memory"


def _storage_said(where: str, storage: SharedStorageProvider | None) -> Said:
    s3 = storage.s3 if storage is not None else None
    if s3 is not None and backend_of(s3) == "MINIO" and not s3.region:
        yield (
            f"{where}.s3.region",
            "not given; give the server's region, often us-east-1: without it each start asks amazonaws.com for the bucket's",
        )


def _log_said(where: str, spec: LogSetSpec, *, known: bool = False) -> Said:
    yield from _pods_said(where, spec, known=known)
    yield from _storage_said(f"{where}.sharedStorage", spec.shared_storage)
    stores = spec.replicas
    if stores == 0:
        yield f"{where}.replicas", "0: without a log service no cluster serves"
    elif stores == 2:
        yield f"{where}.replicas", "2: as many failures as with 1 stop it; give 3"
    if spec.volume is not None and spec.volume.memory_cache_size is not None:
        yield f"{where}.volume.memoryCacheSize", "deprecated and not used; remove it"


def _dn_said(where: str, spec: DNSetSpec, *, known: bool = False) -> Said:
    yield from _pods_said(where, spec, known=known)
    yield from _cache_said(where, spec.cache_volume, spec.shared_storage_cache)
    if spec.replicas == 0:
        yield f"{where}.replicas", "0: without a transaction node nothing can be written"
    if spec.cache_volume is None:
        yield (
            f"{where}.cacheVolume",
            "not given: a node that is killed and comes back in another pod may lose acknowledged writes; give a size",
        )


def _cache_said(where: str, volume: Volume | None, cache: SharedStorageCache | None) -> Said:
    if volume is None and cache is not None and cache.disk_cache_size is not None:
        yield f"{where}.sharedStorageCache.diskCacheSize", "fills the node's disk; give cacheVolume"
    if volume is not None and volume.memory_cache_size is not None:
        yield (
            f"{where}.cacheVolume.memoryCacheSize",
            "deprecated and not used; give sharedStorageCache.memoryCacheSize",
        )


def _cn_said(where: str, spec: CNSetSpec, *, known: bool = False) -> Said:
    yield from _pods_said(where, spec, known=known)
    yield from _cache_said(where, spec.cache_volume, spec.shared_storage_cache)
    scaling = spec.scaling_config
    drains = scaling is not None and scaling.store_drain_enabled
    if spec.termination_policy == "Drain" and not drains:
        yield (
            f"{where}.terminationPolicy",
            "Drain moves sessions only with scalingConfig.storeDrainEnabled: true; give it",
        )


def _log_set_said(obj: LogSet) -> Said:
    yield from _log_said("spec", obj.spec or LogSetSpec())


def _dn_set_said(obj: DNSet) -> Said:
    yield from _dn_said("spec", obj.spec or DNSetSpec())


def _cn_set_said(obj: CNSet) -> Said:
    yield from _cn_said("spec", obj.spec or CNSetSpec())


def _cluster_said(obj: MatrixOneCluster) -> Said:
    spec = obj.spec or MatrixOneClusterSpec()
    known = Version.read(spec.semantic_version or spec.version) is not None
    if spec.version and not known:
        yield "spec.version", f"{spec.version!r} {_UNKNOWN}"
    if spec.log_service is not None:
        yield from _log_said("spec.logService", spec.log_service, known=known)
    if (nodes := transaction_nodes(spec)) is not None:
        yield from _dn_said("spec.tn" if spec.tn is not None else "spec.dn", nodes, known=known)
    for _, where, group in groups_of(spec):
        yield from _cn_said(where, group, known=known)
    if spec.dn is not None:
        yield "spec.dn", "deprecated; call it spec.tn"
    for name, one in (("tp", spec.tp), ("ap", spec.ap)):
        if one is not None:
            yield f"spec.{name}", f"deprecated; make it a group named {name} in spec.cnGroups"
    if not groups_of(spec):
        yield "spec.cnGroups", "not given: without compute nodes no client can be served"


def _backup_said(obj: BackupJob) -> Said:
    spec = obj.spec or BackupJobSpec()
    if not spec.image:
        yield from _command_said(
            "spec.overlay", spec.overlay, "give spec.image to have its tool write the backup"
        )


def _restore_said(obj: RestoreJob) -> Said:
    yield from _command_said("overlay", obj.overlay, "a restore copies the backup itself")


def _command_said(where: str, overlay: Overlay | None, instead: str) -> Said:
    if overlay is not None and (overlay.command or overlay.args):
        yield f"{where}.command", f"not used; {instead}"


def _claim_said(obj: CNClaim) -> Said:
    yield from _claim_labels_said("spec", obj.spec)


def _claim_set_said(obj: CNClaimSet) -> Said:
    template = obj.spec.template if obj.spec is not None else None
    yield from _claim_labels_said("spec.template.spec", template.spec if template is not None else None)


def _claim_labels_said(where: str, spec: CNClaimSpec | None) -> Said:
    for key in (spec.additional_pod_labels if spec is not None else None) or {}:
        if ours(key):
            text = (
                "labels of this domain are the operator's; it is not used: give it another name, or remove it"
            )
            yield keyed(f"{where}.additionalPodLabels", key), text


_WARNINGS: Final = cast(
    "Mapping[type[Object], Any]",
    {
        MatrixOneCluster: _cluster_said,
        LogSet: _log_set_said,
        DNSet: _dn_set_said,
        CNSet: _cn_set_said,
        BackupJob: _backup_said,
        RestoreJob: _restore_said,
        CNClaim: _claim_said,
        CNClaimSet: _claim_set_said,
    },
)
