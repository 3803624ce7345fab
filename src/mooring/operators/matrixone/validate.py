"""What is wrong with a declaration, each with its field and the remedy.

`changes` says it of a change, `advice` what is carried out but perhaps not as meant. A cluster is asked everything that its
sets would be, so that none is admitted whose sets are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from mooring.kube.object import Object
from mooring.kube.objects import meta
from mooring.operators.backup.schedule import problem as cron_problem
from mooring.operators.backup.schedule import zone_problem
from mooring.operators.matrixone.configuration import unusable
from mooring.operators.matrixone.faults import (
    Problem,
    address_faults,
    choice_faults,
    domain_faults,
    duration_faults,
    env_faults,
    mount_faults,
    name_faults,
    number_faults,
    quantity_faults,
    scaled_faults,
)
from mooring.operators.matrixone.storage import backend_of, bucket_of, endpoint_host, is_address
from mooring.operators.matrixone.types import (
    DELETE,
    MAIN,
    METRICS,
    NAME_LIMIT,
    POOLING,
    RETAIN,
    SERVICE_TYPES,
    BackupJob,
    BackupJobSpec,
    BucketClaim,
    ClaimMetadata,
    CNClaim,
    CNClaimSet,
    CNClaimSpec,
    CNLabel,
    CNPool,
    CNSet,
    CNSetSpec,
    DNSet,
    DNSetSpec,
    LogSet,
    LogSetRef,
    LogSetSpec,
    MainContainerOverlay,
    MatrixOneCluster,
    MatrixOneClusterSpec,
    Overlay,
    PodSet,
    ProxySet,
    ProxySetSpec,
    Reference,
    RestoreJob,
    RollingUpdateStrategy,
    S3Provider,
    SharedStorageCache,
    SharedStorageProvider,
    Volume,
    WebUI,
    WebUISpec,
    groups_of,
    transaction_nodes,
)
from mooring.operators.matrixone.versions import Version
from mooring.operators.workload.labels import annotation_faults, keyed, label_faults
from mooring.operators.workload.resources import resource_faults

__all__ = ["Problem", "validate"]

Faults = Iterable[Problem]

LIMITS: Final[Mapping[type[Object], int]] = {
    LogSet: 48,
    DNSet: 49,
    CNSet: 51,
    ProxySet: 57,
    WebUI: 57,
    CNPool: 40,
}
"""Characters of a name: Services are called after it, and a label of pods holds it with the set's revision."""
GROUP_LIMIT: Final = 50
"""Characters of the name of a cluster and of a group together."""
_RESERVED: Final = {
    **dict.fromkeys(
        (
            "POD_NAME",
            "NAMESPACE",
            "POD_IP",
            "HEADLESS_SERVICE_NAME",
            "CN_UUID",
            "CONFIG_SUFFIX",
            "MO_BIN_PATH",
        ),
        "is for the operator to set; remove it",
    ),
    "AWS_CA_BUNDLE": "MatrixOne does not start with it; give sharedStorage.s3.certificateRef instead",
}
_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_REFERENCE: Final = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?", re.ASCII)


def validate(obj: Object) -> list[Problem]:
    """Everything wrong with a declaration by itself."""
    check = _CHECKS.get(type(obj))
    return [] if check is None else list(check(obj))


# --- pods --------------------------------------------------------------------------------------------------


def _pods(where: str, spec: PodSet, *, image: bool = True) -> Faults:
    """What every set of pods is asked; ``image``: it must be said here, since no cluster says it."""
    if image and not spec.image:
        yield Problem(f"{where}.image", "image must be set; give one as repository:tag")
    elif spec.image and not _REFERENCE.fullmatch(spec.image):
        yield Problem(f"{where}.image", f"{spec.image[:80]!r} is no image; write repository:tag")
    if spec.semantic_version is not None and Version.read(spec.semantic_version) is None:
        yield Problem(
            f"{where}.semanticVersion", f"{spec.semantic_version!r} is no version; write one as 1.2.3"
        )
    if spec.operator_version is not None and Version.read(spec.operator_version) is None:
        yield Problem(f"{where}.operatorVersion", f"{spec.operator_version!r} is no version; write 1.3.0")
    yield from number_faults(f"{where}.replicas", spec.replicas, low=0, high=10000)
    yield from (Problem(*fault) for fault in resource_faults(f"{where}.resources", spec.resources))
    percent = spec.memory_limit_percent
    if percent is not None and not 0 < percent <= 100:
        yield Problem(f"{where}.memoryLimitPercent", f"{percent} must be in (0, 100]; give 1 to 100")
    yield from domain_faults(f"{where}.clusterDomain", spec.cluster_domain)
    yield from label_faults(f"{where}.nodeSelector", spec.node_selector)
    for at, key in enumerate(spec.topology_spread or ()):
        yield from label_faults(f"{where}.topologySpread[{at}]", {key: ""})
    yield from choice_faults(f"{where}.promDiscoveryScheme", spec.prom_discovery_scheme, ("Pod", "Service"))
    yield from quantity_faults(f"{where}.memoryFsSize", spec.memory_fs_size)
    if "-cfg" in (spec.service_args or ()):
        yield Problem(f"{where}.serviceArgs", "-cfg is for the operator to give; remove it")
    yield from (Problem(f"{where}.config", why) for why in unusable(spec))
    if spec.overlay is not None:
        yield from _overlay(f"{where}.overlay", spec.overlay)


def _container(where: str, overlay: MainContainerOverlay) -> Faults:
    yield from env_faults(f"{where}.env", overlay.env, _RESERVED)
    yield from choice_faults(f"{where}.imagePullPolicy", overlay.image_pull_policy, _POLICIES)
    mounts = overlay.volume_mounts or []
    yield from mount_faults(f"{where}.volumeMounts", (one.name for one in mounts), unique=False)
    for at, one in enumerate(mounts):
        if not one.mount_path:
            yield Problem(f"{where}.volumeMounts[{at}].mountPath", "is missing; give a path")


def _overlay(where: str, overlay: Overlay) -> Faults:
    yield from _container(where, overlay)
    yield from mount_faults(f"{where}.volumes", (one.name for one in overlay.volumes or ()))
    claims = overlay.volume_claims or []
    yield from mount_faults(f"{where}.volumeClaims", (one.metadata.name for one in claims), taken=_is_data)
    yield from mount_faults(f"{where}.initContainers", (one.name for one in overlay.init_containers or ()))
    yield from mount_faults(
        f"{where}.sidecarContainers", (one.name for one in overlay.sidecar_containers or ()), taken=_is_main
    )
    grace = overlay.termination_grace_period_seconds
    if grace is not None and grace < 0:
        yield Problem(f"{where}.terminationGracePeriodSeconds", f"{grace} must be 0 or more; give 60")
    yield from label_faults(f"{where}.podLabels", overlay.pod_labels)
    yield from annotation_faults(f"{where}.podAnnotations", overlay.pod_annotations)
    for at, one in enumerate(overlay.topology_spread_constraints or ()):
        if not one.topology_key or (one.max_skew or 0) < 1:
            yield Problem(
                f"{where}.topologySpreadConstraints[{at}]", "needs topologyKey and maxSkew; give them"
            )


def _is_main(name: str) -> bool:
    return name == MAIN


def _is_data(name: str) -> bool:
    return name == "mo-data"


def _volume(where: str, volume: Volume | None) -> Faults:
    if volume is None:
        return
    if volume.size is None:
        yield Problem(f"{where}.size", "is missing; give one as 10Gi")
    yield from quantity_faults(f"{where}.size", volume.size)


def _strategy(where: str, strategy: RollingUpdateStrategy | None) -> Faults:
    if strategy is None:
        return
    yield from scaled_faults(f"{where}.maxSurge", strategy.max_surge)
    yield from scaled_faults(f"{where}.maxUnavailable", strategy.max_unavailable)
    if all(str(one).rstrip("%") == "0" for one in (strategy.max_surge, strategy.max_unavailable)):
        yield Problem(
            where, "maxSurge and maxUnavailable are both 0, so no pod could be rolled; give maxSurge 1"
        )


def _service(where: str, service_type: str | None, node_port: int | None) -> Faults:
    yield from choice_faults(f"{where}.serviceType", service_type, SERVICE_TYPES)
    if node_port is None:
        return
    if service_type in (None, "", "ClusterIP"):
        yield Problem(
            f"{where}.nodePort", "cannot be set with serviceType ClusterIP; give NodePort, or remove it"
        )
    yield from number_faults(f"{where}.nodePort", node_port, low=1, high=65535)


def _labels(where: str, labels: list[CNLabel] | None) -> Faults:
    for at, label in enumerate(labels or ()):
        if not label.key:
            yield Problem(f"{where}[{at}].key", "label key cannot be empty; give one")
        if not label.values:
            yield Problem(f"{where}[{at}].values", "label values cannot be empty; give at least one")
        for place, value in enumerate(label.values or ()):
            if not value:
                yield Problem(f"{where}[{at}].values[{place}]", "cannot be empty; give a value or remove it")


# --- storage -----------------------------------------------------------------------------------------------


def _storage(where: str, storage: SharedStorageProvider | None) -> Faults:
    given = [] if storage is None else [one for one in (storage.s3, storage.file_system) if one is not None]
    if storage is None or not given:
        yield Problem(where, "no shared storage provider configured; give s3 or fileSystem")
        return
    if len(given) > 1:
        yield Problem(where, "more than 1 storage provider configured; keep s3 or fileSystem")
    if storage.s3 is not None:
        yield from _s3(f"{where}.s3", storage.s3)
    if storage.file_system is not None and not (storage.file_system.path or "").startswith("/"):
        yield Problem(
            f"{where}.fileSystem.path", "path must be set for file-system storage; give one as /mnt/data"
        )


def _s3(where: str, s3: S3Provider) -> Faults:
    bucket, _ = bucket_of(s3)
    if not bucket:
        yield Problem(f"{where}.path", "path must be set for S3 storage; give bucket/prefix")
    yield from choice_faults(f"{where}.type", s3.type, ("aws", "minio"))
    yield from choice_faults(f"{where}.s3RetentionPolicy", s3.s3_retention_policy, (DELETE, RETAIN))
    host = endpoint_host(s3.endpoint)
    if s3.endpoint and not host:
        yield Problem(f"{where}.endpoint", f"{s3.endpoint[:80]!r} is no URL; write https://host:port")
    if s3.type == "minio" and not s3.endpoint:
        yield Problem(f"{where}.endpoint", "is missing; type minio needs the URL of the server")
    if backend_of(s3) == "S3" and is_address(host):
        yield Problem(
            f"{where}.type",
            f"aws asks for {bucket or 'the bucket'}.{host}, which is no host; give minio for a server at an address",
        )
    if s3.secret_ref is not None and not s3.secret_ref.name:
        yield Problem(f"{where}.secretRef.name", "is missing; name the Secret with the credentials")
    certificates = s3.certificate_ref
    if certificates is not None:
        if not certificates.name:
            yield Problem(f"{where}.certificateRef.name", "is missing; name the Secret with the certificates")
        if not certificates.files:
            yield Problem(f"{where}.certificateRef.files", "is empty; name the keys of the Secret")
        for at, name in enumerate(certificates.files or ()):
            if not name or "/" in name:
                yield Problem(
                    f"{where}.certificateRef.files[{at}]", f"{name!r} is no key of a Secret; correct it"
                )


def _cache(where: str, cache: SharedStorageCache | None) -> Faults:
    if cache is None:
        return
    yield from quantity_faults(f"{where}.memoryCacheSize", cache.memory_cache_size, positive=False)
    yield from quantity_faults(f"{where}.diskCacheSize", cache.disk_cache_size, positive=False)


# --- references --------------------------------------------------------------------------------------------


def _log_ref(where: str, deps: LogSetRef | None) -> Faults:
    log, external = (deps.log_set, deps.external_log_set) if deps is not None else (None, None)
    if log is None and external is None:
        yield Problem(
            where,
            f"one of {where}.logSet or {where}.externalLogSet must be set; name the LogSet it works with",
        )
    if log is not None and external is not None:
        yield Problem(where, "logSet and externalLogSet exclude each other; keep one")
    yield from _reference(f"{where}.logSet", log)
    if external is not None:
        yield from address_faults(f"{where}.externalLogSet.haKeeperEndpoint", external.ha_keeper_endpoint)


def _reference(where: str, reference: Reference | None) -> Faults:
    if reference is not None and not (reference.metadata and reference.metadata.name):
        yield Problem(f"{where}.metadata.name", "is missing; name the object")


# --- kinds -------------------------------------------------------------------------------------------------


def _own_name(obj: Object) -> Faults:
    if obj.metadata.name:
        yield from name_faults("metadata.name", obj.metadata.name, limit=LIMITS[type(obj)])


def _log_spec(where: str, spec: LogSetSpec, *, alone: bool = True) -> Faults:
    yield from _pods(where, spec, image=alone)
    if spec.volume is None:
        yield Problem(f"{where}.volume", "is missing; give its size")
    yield from _volume(f"{where}.volume", spec.volume)
    yield from _storage(f"{where}.sharedStorage", spec.shared_storage)
    yield from duration_faults(f"{where}.storeFailureTimeout", spec.store_failure_timeout)
    yield from choice_faults(f"{where}.failedPodStrategy", spec.failed_pod_strategy, (DELETE, "Orphan"))
    yield from choice_faults(f"{where}.pvcRetentionPolicy", spec.pvc_retention_policy, (DELETE, RETAIN))
    initial, stores = spec.initial_config, spec.replicas or 0
    if initial is None:
        return
    replicas = initial.log_shard_replicas
    if replicas is not None and stores and replicas > stores:
        yield Problem(
            f"{where}.initialConfig.logShardReplicas",
            f"{replicas} must not be more than the {stores} of {where}.replicas; lower it, or give more stores",
        )
    for name, value in (("logShards", initial.log_shards), ("dnShards", initial.dn_shards)):
        yield from number_faults(f"{where}.initialConfig.{name}", value, low=1, high=1000)
    yield from number_faults(f"{where}.initialConfig.logShardReplicas", replicas, low=1, high=1000)


def _log(obj: LogSet) -> Faults:
    yield from _own_name(obj)
    yield from _log_spec("spec", obj.spec or LogSetSpec())


def _dn_spec(where: str, spec: DNSetSpec, *, alone: bool = True) -> Faults:
    yield from _pods(where, spec, image=alone)
    yield from _volume(f"{where}.cacheVolume", spec.cache_volume)
    yield from _cache(f"{where}.sharedStorageCache", spec.shared_storage_cache)


def _dn(obj: DNSet) -> Faults:
    yield from _own_name(obj)
    yield from _log_ref("deps", obj.deps)
    yield from _dn_spec("spec", obj.spec or DNSetSpec())


def _cn_spec(where: str, spec: CNSetSpec, *, alone: bool = True) -> Faults:
    yield from _pods(where, spec, image=alone)
    yield from _volume(f"{where}.cacheVolume", spec.cache_volume)
    yield from _cache(f"{where}.sharedStorageCache", spec.shared_storage_cache)
    yield from _service(where, spec.service_type, spec.node_port)
    yield from annotation_faults(f"{where}.serviceAnnotations", spec.service_annotations)
    yield from choice_faults(f"{where}.role", spec.role, ("TP", "AP"))
    yield from _labels(f"{where}.cnLabels", spec.cn_labels)
    yield from choice_faults(f"{where}.terminationPolicy", spec.termination_policy, (DELETE, "Drain"))
    yield from choice_faults(f"{where}.podManagementPolicy", spec.pod_management_policy, (POOLING,))
    yield from _strategy(f"{where}.updateStrategy", spec.update_strategy)
    yield from _autoscale(f"{where}.autoscale", spec)
    scaling = spec.scaling_config
    if scaling is not None:
        yield from duration_faults(f"{where}.scalingConfig.storeDrainTimeout", scaling.store_drain_timeout)
        yield from number_faults(
            f"{where}.scalingConfig.minDelaySeconds", scaling.min_delay_seconds, low=0, high=86400
        )
    sidecar = spec.python_udf_sidecar
    if sidecar is not None:
        yield from number_faults(f"{where}.pythonUdfSidecar.port", sidecar.port, low=0, high=65535)
        faults = resource_faults(f"{where}.pythonUdfSidecar.resources", sidecar.resources)
        yield from (Problem(*fault) for fault in faults)
        if sidecar.overlay is not None:
            yield from _container(f"{where}.pythonUdfSidecar.overlay", sidecar.overlay)


def _autoscale(where: str, spec: CNSetSpec) -> Faults:
    scale = spec.autoscale
    if scale is None:
        return
    if spec.pod_management_policy == POOLING:
        yield Problem(where, "the pool decides how many pods there are; remove it, and scale the claims")
    if scale.min_replicas > scale.max_replicas:
        yield Problem(
            f"{where}.minReplicas",
            f"{scale.min_replicas} is more than maxReplicas ({scale.max_replicas}); lower it, or raise maxReplicas",
        )
    yield from number_faults(f"{where}.maxReplicas", scale.max_replicas, low=1, high=10000)
    if not scale.metrics:
        yield Problem(f"{where}.metrics", "names nothing to measure; give one with type sessions")
    for at, metric in enumerate(scale.metrics):
        if metric.type not in METRICS:
            yield Problem(
                f"{where}.metrics[{at}].type",
                f"{metric.type[:80]!r} is not measured; give {' or '.join(METRICS)}",
            )
        if metric.target <= 0:
            yield Problem(f"{where}.metrics[{at}].target", "must be more than 0; give a number per pod")


def _cn(obj: CNSet) -> Faults:
    yield from _own_name(obj)
    yield from _log_ref("deps", obj.deps)
    yield from _reference("deps.dnSet", obj.deps.dn_set if obj.deps is not None else None)
    yield from _cn_spec("spec", obj.spec or CNSetSpec())


def _proxy_spec(where: str, spec: ProxySetSpec, *, alone: bool = True) -> Faults:
    yield from _pods(where, spec, image=alone)
    yield from _service(where, spec.service_type, spec.node_port)
    yield from annotation_faults(f"{where}.serviceAnnotations", spec.service_annotations)
    yield from number_faults(f"{where}.minReadySeconds", spec.min_ready_seconds, low=0, high=86400)
    if spec.wait_plugin_addr is not None:
        yield from address_faults(f"{where}.waitPluginAddr", spec.wait_plugin_addr)


def _proxy(obj: ProxySet) -> Faults:
    yield from _own_name(obj)
    yield from _log_ref("deps", obj.deps)
    yield from _proxy_spec("spec", obj.spec or ProxySetSpec())


def _ui_spec(where: str, spec: WebUISpec) -> Faults:
    yield from _pods(where, spec, image=False)
    yield from choice_faults(f"{where}.serviceType", spec.service_type, SERVICE_TYPES)
    yield from choice_faults(f"{where}.imagePullPolicy", spec.image_pull_policy, _POLICIES)
    yield from _strategy(f"{where}.updateStrategy", spec.update_strategy)


def _ui(obj: WebUI) -> Faults:
    yield from _own_name(obj)
    yield from _reference("deps.cnset", obj.deps.cnset if obj.deps is not None else None)
    yield from _ui_spec("spec", obj.spec or WebUISpec())


def _cluster(obj: MatrixOneCluster) -> Faults:
    spec, name = obj.spec or MatrixOneClusterSpec(), obj.metadata.name or ""
    if name:
        yield from name_faults("metadata.name", name, limit=NAME_LIMIT)
    if not spec.version:
        yield Problem("spec.version", "version must be set; give the version of MatrixOne as 1.2.4")
    elif not re.fullmatch(r"[\w][\w.-]{0,127}", spec.version, re.ASCII):
        yield Problem("spec.version", f"{spec.version[:80]!r} is no tag of an image; give a version as 1.2.4")
    if spec.semantic_version is not None and Version.read(spec.semantic_version) is None:
        yield Problem("spec.semanticVersion", f"{spec.semantic_version!r} is no version; write one as 1.2.4")
    if spec.operator_version is not None and Version.read(spec.operator_version) is None:
        yield Problem("spec.operatorVersion", f"{spec.operator_version!r} is no version; write 1.3.0")
    repository = spec.image_repository
    if repository and not re.fullmatch(r"[\w.-]+(:\d+)?(/[\w.-]+)*", repository, re.ASCII):
        yield Problem("spec.imageRepository", f"{repository[:80]!r} is no repository of images; correct it")
    yield from choice_faults("spec.imagePullPolicy", spec.image_pull_policy, _POLICIES)
    yield from label_faults("spec.nodeSelector", spec.node_selector)
    for at, key in enumerate(spec.topology_spread or ()):
        yield from label_faults(f"spec.topologySpread[{at}]", {key: ""})
    yield from quantity_faults("spec.memoryFsSize", spec.memory_fs_size)
    yield from _components(spec)
    yield from _groups(name, spec)


def _components(spec: MatrixOneClusterSpec) -> Faults:
    if spec.log_service is None:
        yield Problem("spec.logService", "is missing; give replicas, volume and sharedStorage")
    else:
        yield from _log_spec("spec.logService", spec.log_service, alone=False)
    if spec.tn is None and spec.dn is None:
        yield Problem("spec.tn", "must be set; give replicas 1")
    if spec.tn is not None and spec.dn is not None:
        yield Problem("spec.dn", "cannot be set when spec.tn is; remove it")
    where = "spec.tn" if spec.tn is not None else "spec.dn"
    if (nodes := transaction_nodes(spec)) is not None:
        yield from _dn_spec(where, nodes, alone=False)
    if spec.proxy is not None:
        yield from _proxy_spec("spec.proxy", spec.proxy, alone=False)
    if spec.webui is not None:
        yield from _ui_spec("spec.webui", spec.webui)


def _groups(cluster: str, spec: MatrixOneClusterSpec) -> Faults:
    seen: set[str] = set()
    for name, where, group in groups_of(spec):
        field = f"{where}.name" if where.startswith("spec.cnGroups") else where
        yield from _cn_spec(where, group, alone=False)
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
            yield Problem(field, f"{name[:80]!r} is no name of a group; give one of a-z, 0-9 and -")
        elif len(cluster) + len(name) > GROUP_LIMIT:
            yield Problem(
                field,
                f"{name!r} and the cluster's name have more than {GROUP_LIMIT} characters together; shorten one",
            )
        if name in seen:
            yield Problem(field, f"name must be unique, {name!r} is there twice; rename one")
        seen.add(name)


def _bucket(obj: BucketClaim) -> Faults:
    spec = obj.spec
    if spec is None or spec.s3 is None:
        yield Problem("spec.s3", "is missing; give the path")
        return
    yield from _s3("spec.s3", spec.s3)


def _backup_job(obj: BackupJob) -> Faults:
    spec = obj.spec
    source, target = (spec.source, spec.target) if spec is not None else (None, None)
    cluster, nodes = (source.cluster_ref, source.cn_set_ref) if source is not None else (None, None)
    if not cluster and not nodes:
        yield Problem("spec.source", "says nothing to back up; give clusterRef, or cnSetRef and secretRef")
    if cluster and nodes:
        yield Problem("spec.source", "clusterRef and cnSetRef exclude each other; keep one")
    if nodes and source is not None and not source.secret_ref:
        yield Problem(
            "spec.source.secretRef", "is missing; cnSetRef needs a Secret with username and password"
        )
    yield from _storage("spec.target", target)
    if target is not None and target.s3 is not None and target.s3.certificate_ref is not None:
        yield Problem(
            "spec.target.s3.certificateRef",
            "cannot be used: the server's BACKUP statement takes no authorities; trust them in the server's image",
        )
    if spec is None:
        return
    yield from duration_faults("spec.ttl", spec.ttl)
    if spec.overlay is not None:
        yield from _overlay("spec.overlay", spec.overlay)
    if spec.image:
        yield from _backup_tool(spec)
    if (schedule := spec.schedule) is not None:
        if spec.incremental_from:
            yield Problem(
                "spec.incrementalFrom",
                "cannot be set with a schedule, which chooses it for each run; remove it, and set schedule.fullEvery",
            )
        zone = schedule.time_zone or "UTC"
        if wrong := zone_problem(zone):
            yield Problem("spec.schedule.timeZone", wrong)
        elif wrong := cron_problem(schedule.cron or "", zone, now=_SOME_TIME):
            yield Problem("spec.schedule.cron", wrong)


def _backup_tool(spec: BackupJobSpec) -> Faults:
    if spec.overlay is None or not spec.overlay.command:
        yield Problem(
            "spec.image",
            "needs spec.overlay.command: how its tool is called; or remove it, and the server writes the backup",
        )
    no_base = "cannot be set with spec.image: a tool writes full backups; remove one of them"
    if spec.incremental_from:
        yield Problem("spec.incrementalFrom", no_base)
    if spec.schedule is not None and (spec.schedule.full_every or 1) > 1:
        yield Problem("spec.schedule.fullEvery", no_base)


_SOME_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Whether an expression ever fires does not depend on when it is asked."""


def _restore_job(obj: RestoreJob) -> Faults:
    spec = obj.spec
    name, external = (spec.backup_name, spec.external_source) if spec is not None else (None, None)
    if not name and external is None:
        yield Problem("spec.backupName", "must be set unless externalSource is; name the Backup")
    if name and external is not None:
        yield Problem("spec.externalSource", "excludes backupName; keep one")
    if external is not None:
        yield from _storage("spec.externalSource", external)
    yield from _storage("spec.target", spec.target if spec is not None else None)
    yield from duration_faults("spec.ttl", spec.ttl if spec is not None else None)
    if obj.overlay is not None:
        yield from _overlay("overlay", obj.overlay)


def _pool(obj: CNPool) -> Faults:
    yield from _own_name(obj)
    spec = obj.spec
    if spec is None or spec.template is None:
        yield Problem("spec.template", "is missing; give its image")
        return
    yield from _cn_spec("spec.template", spec.template)
    if spec.template.autoscale is not None:
        yield Problem(
            "spec.template.autoscale",
            "the pool decides how many pods there are; remove it, and scale the claims",
        )
    yield from _log_ref("spec.deps", spec.deps)
    yield from _reference("spec.deps.dnSet", spec.deps.dn_set if spec.deps is not None else None)
    yield from label_faults("spec.podLabels", spec.pod_labels)
    scale = spec.strategy.scale_strategy if spec.strategy is not None else None
    if scale is None:
        yield Problem("spec.strategy.scaleStrategy", "is missing; give maxIdle")
        return
    yield from number_faults("spec.strategy.scaleStrategy.maxIdle", scale.max_idle, low=0, high=10000)
    if scale.max_pods is not None and scale.max_pods < (scale.max_idle or 0):
        yield Problem(
            "spec.strategy.scaleStrategy.maxPods",
            f"{scale.max_pods} is less than maxIdle ({scale.max_idle}); raise it, or lower maxIdle",
        )


def _claim_spec(where: str, spec: CNClaimSpec | None) -> Faults:
    if spec is None:
        yield Problem(where, "is missing; give selector")
        return
    if spec.selector is None:
        yield Problem(f"{where}.selector", "is missing; give matchLabels with labels of a pool's pods")
    else:
        yield from label_faults(f"{where}.selector.matchLabels", spec.selector.match_labels)
        for at, one in enumerate(spec.selector.match_expressions or ()):
            place = f"{where}.selector.matchExpressions[{at}]"
            if not one.key:
                yield Problem(f"{place}.key", "is missing; give the key of a label")
            if one.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
                yield Problem(
                    f"{place}.operator",
                    f"{one.operator!r} is not known; give In, NotIn, Exists or DoesNotExist",
                )
    yield from _labels(f"{where}.cnLabels", spec.cn_labels)
    yield from label_faults(f"{where}.additionalPodLabels", spec.additional_pod_labels)
    yield from _against_selector(where, spec)


def _against_selector(where: str, spec: CNClaimSpec) -> Faults:
    """Labels that no pod which the claim selects can get: it has them, with another value."""
    selector = spec.selector or meta.LabelSelector()
    held = {key: [value] for key, value in (selector.match_labels or {}).items()}
    for one in selector.match_expressions or ():
        if one.key and one.operator == "In":
            held.setdefault(one.key, one.values or [])
    for key, value in (spec.additional_pod_labels or {}).items():
        if key in held and value not in held[key]:
            yield Problem(
                keyed(f"{where}.additionalPodLabels", key),
                f"{value!r} is another value than spec.selector asks of the pod, which keeps it; remove the label",
            )


def _claim(obj: CNClaim) -> Faults:
    yield from _claim_spec("spec", obj.spec)


def _claim_set(obj: CNClaimSet) -> Faults:
    spec = obj.spec
    if spec is None or spec.template is None:
        yield Problem("spec.template", "is missing; give its spec")
        return
    yield from number_faults("spec.replicas", spec.replicas, low=0, high=10000)
    yield from _claim_spec("spec.template.spec", spec.template.spec)
    metadata = spec.template.metadata or ClaimMetadata()
    labels = metadata.labels or {}
    yield from label_faults("spec.template.metadata.labels", labels)
    yield from annotation_faults("spec.template.metadata.annotations", metadata.annotations)
    wanted = (spec.selector.match_labels if spec.selector is not None else None) or {}
    missing = [key for key, value in wanted.items() if labels.get(key) != value]
    if missing:
        yield Problem(
            "spec.selector.matchLabels",
            f"the claims have no label {missing[0]}={wanted[missing[0]]}; add it to spec.template.metadata.labels",
        )


_CHECKS: Final = cast(
    "Mapping[type[Object], Any]",
    {
        MatrixOneCluster: _cluster,
        LogSet: _log,
        DNSet: _dn,
        CNSet: _cn,
        ProxySet: _proxy,
        WebUI: _ui,
        BucketClaim: _bucket,
        BackupJob: _backup_job,
        RestoreJob: _restore_job,
        CNPool: _pool,
        CNClaim: _claim,
        CNClaimSet: _claim_set,
    },
)
