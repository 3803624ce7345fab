"""What the pods of every set have in common, and how an overlay changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from mooring.actor import digest
from mooring.kube.object import Object
from mooring.kube.objects import core, meta, policy
from mooring.operators.matrixone.names import (
    HAKEEPER,
    METRICS,
    OPERATOR_VERSION,
    PROMETHEUS_PORT,
    PROMETHEUS_SCRAPE,
    SEMANTIC_VERSION,
    LogNames,
    labels_of,
)
from mooring.operators.matrixone.quantities import amount
from mooring.operators.matrixone.storage import DATA_PATH, storage_env, storage_mounts, storage_volumes
from mooring.operators.matrixone.types import (
    MAIN,
    ExternalLogSet,
    LogSet,
    MainContainerOverlay,
    Overlay,
    PodSet,
    SharedStorageProvider,
    Volume,
)
from mooring.operators.matrixone.versions import FIRST_OPERATOR, operator_version, server_version
from mooring.operators.workload.containers import FROM_LOG, READ_ONLY, field_value

__all__ = [
    "CONFIG",
    "DATA",
    "DEFAULT_ARGS",
    "GRACE_SECONDS",
    "LogService",
    "PodParts",
    "budget",
    "claim_templates",
    "config_map",
    "data_claim",
    "data_mount",
    "discovered",
    "env_field",
    "exported",
    "inputs_of",
    "metadata",
    "metric_service",
    "overlaid",
    "overlaid_container",
    "pod_annotations",
    "pod_template",
    "spread",
    "upserted",
]

CONFIG: Final = "config"
DATA: Final = "mo-data"
MEMORY: Final = "tmpfs"
MEMORY_PATH: Final = "/matrixone/bin"
DEFAULT_ARGS: Final = ("-debug-http=:6060",)
"""Arguments of processes for which none are declared; upstream's chart gives them."""
GODEBUG: Final = "madvdontneed=1,gctrace=2"
GRACE_SECONDS: Final = 60
"""Log stores, transaction and compute nodes were seen to take up to 18 s to stop."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LogService:
    """The log service that a set works with."""

    address: str
    """host:port of HAKeeper."""
    members: tuple[str, ...] = ()
    """host:port of each store, for servers that take no single address."""
    storage: SharedStorageProvider | None = field(default=None, repr=False)
    """Where the cluster's data is stored; unknown of a log service elsewhere."""

    @classmethod
    def of(cls, log_set: LogSet) -> LogService:
        """The one that a LogSet declares."""
        names, spec = LogNames(log_set), log_set.spec
        stores = (spec.replicas if spec is not None else None) or 0
        found = log_set.status.discovery if log_set.status is not None else None
        host, port = names.discovery_host, HAKEEPER
        if found is not None and found.address:
            host, port = found.address, found.port or HAKEEPER
        return cls(
            address=f"{host}:{port}",
            members=tuple(f"{names.host(names.pod(at))}:{HAKEEPER}" for at in range(stores)),
            storage=spec.shared_storage if spec is not None else None,
        )

    @classmethod
    def elsewhere(cls, external: ExternalLogSet) -> LogService:
        """One that no LogSet declares."""
        address = external.ha_keeper_endpoint or ""
        return cls(address=address, members=(address,))

    @property
    def place(self) -> tuple[object, ...]:
        """What of it shapes the pods of the others: where it and the data are."""
        s3 = self.storage.s3 if self.storage is not None else None
        shared = self.storage.file_system if self.storage is not None else None
        parts = (s3.path, s3.type, s3.region, s3.endpoint, s3.secret_ref, s3.certificate_ref) if s3 else ()
        return (self.address, shared, *parts)

    def client(self, *, discovers: bool) -> dict[str, Any]:
        """How a process finds it; a process before 2.0 gets the address of every store."""
        if discovers:
            return {"discovery-address": self.address}
        return {"service-addresses": list(self.members)}


@dataclass(frozen=True, kw_only=True)
class PodParts:
    """What the pods of a set have beyond what every pod has."""

    config_path: str
    env: Sequence[core.EnvVar] = ()
    mounts: Sequence[core.VolumeMount] = ()
    volumes: Sequence[core.Volume] = ()
    readiness_gates: Sequence[str] = ()
    probe: core.Probe | None = None
    lifecycle: core.Lifecycle | None = None
    args: Sequence[str] = DEFAULT_ARGS
    godebug: bool = True
    grace_seconds: int | None = GRACE_SECONDS
    subdomain: str | None = None


# --- metadata and configuration ----------------------------------------------------------------------------


def metadata(owner: Object, name: str, annotations: Mapping[str, str] | None = None) -> meta.ObjectMeta:
    """Of a child object."""
    return meta.ObjectMeta(
        name=name,
        namespace=owner.metadata.namespace,
        labels=labels_of(owner),
        annotations=dict(annotations) if annotations else None,
    )


def config_map(owner: Object, prefix: str, files: Mapping[str, str]) -> core.ConfigMap:
    """Files, named by their content and never changed."""
    return core.ConfigMap(
        metadata=metadata(owner, f"{prefix}-{digest(dict(files))[:10]}"), data=dict(files), immutable=True
    )


def inputs_of(spec: PodSet, *, without: Iterable[str], and_also: Iterable[object] = ()) -> str:
    """Digest of what the user decided about pods: the spec but for the JSON names in ``without``, and more."""
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    for name in (*without, "replicas", "operatorVersion", "clusterDomain"):
        plain.pop(name, None)
    return digest([plain, *(msgspec.to_builtins(one) for one in and_also)])


def exported(spec: PodSet) -> bool:
    """Prometheus is to scrape the pods."""
    return bool(spec.export_to_prometheus)


def discovered(spec: PodSet) -> dict[str, str]:
    """Annotations of a Service by which Prometheus finds its pods."""
    if not exported(spec) or spec.prom_discovery_scheme == "Pod":
        return {}
    return {PROMETHEUS_SCRAPE: "true", PROMETHEUS_PORT: str(METRICS)}


def pod_annotations(spec: PodSet) -> dict[str, str]:
    """Of every pod of a set, but for its overlay's."""
    made: dict[str, str] = {}
    if exported(spec) and spec.prom_discovery_scheme == "Pod":
        made |= {PROMETHEUS_SCRAPE: "true", PROMETHEUS_PORT: str(METRICS)}
    if (version := server_version(spec)) is not None:
        made[SEMANTIC_VERSION] = str(version)
    operator = operator_version(spec)
    if operator.release > FIRST_OPERATOR.release:
        made[OPERATOR_VERSION] = str(operator)
    return made


def metric_service(owner: Object, spec: PodSet, name: str) -> core.Service:
    """By which Prometheus finds pods that have no Service for clients."""
    return core.Service(
        metadata=metadata(owner, name, discovered(spec)),
        spec=core.ServiceSpec(
            selector=labels_of(owner),
            ports=[core.ServicePort(name="metric", port=METRICS, target_port=METRICS, protocol="TCP")],
        ),
    )


def budget(
    owner: Object, name: str, *, unavailable: int | None = None, available: int | None = None
) -> policy.PodDisruptionBudget:
    """How many pods evictions may take at once, or how many they have to leave."""
    return policy.PodDisruptionBudget(
        metadata=metadata(owner, name),
        spec=policy.PodDisruptionBudgetSpec(
            max_unavailable=unavailable,
            min_available=available,
            selector=meta.LabelSelector(match_labels=labels_of(owner)),
        ),
    )


def data_claim(volume: Volume) -> core.PersistentVolumeClaim:
    """The claim with a pod's data or cache."""
    return core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name=DATA),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            resources=core.VolumeResourceRequirements(requests={"storage": volume.size or "0"}),
            storage_class_name=volume.storage_class_name,
        ),
    )


def claim_templates(spec: PodSet, volume: Volume | None) -> list[core.PersistentVolumeClaim]:
    """The claims of each pod; those of an overlay come with a cache volume only, as upstream makes them."""
    if volume is None:
        return []
    more = (spec.overlay.volume_claims if spec.overlay is not None else None) or []
    return [data_claim(volume), *more]


# --- pods --------------------------------------------------------------------------------------------------


def pod_template(
    owner: Object, spec: PodSet, storage: SharedStorageProvider | None, config: str, parts: PodParts
) -> core.PodTemplateSpec:
    """A pod as it is declared; ``config`` is the ConfigMap with its files."""
    volumes = [
        *parts.volumes,
        core.Volume(name=CONFIG, config_map=core.ConfigMapVolumeSource(name=config, default_mode=READ_ONLY)),
        *storage_volumes(storage),
    ]
    pod = core.PodSpec(
        containers=[_main(spec, storage, parts)],
        volumes=volumes,
        node_selector=spec.node_selector,
        readiness_gates=[core.PodReadinessGate(condition_type=one) for one in parts.readiness_gates] or None,
        topology_spread_constraints=spread(owner, spec),
        termination_grace_period_seconds=parts.grace_seconds,
        automount_service_account_token=False,
        subdomain=parts.subdomain,
    )
    overlay = spec.overlay or Overlay()
    made = _from_memory(overlaid(pod, overlay), spec)
    labels = {**labels_of(owner), **(overlay.pod_labels or {}), **labels_of(owner)}
    return core.PodTemplateSpec(
        metadata=meta.ObjectMeta(
            labels=labels, annotations={**pod_annotations(spec), **(overlay.pod_annotations or {})} or None
        ),
        spec=made,
    )


def _main(spec: PodSet, storage: SharedStorageProvider | None, parts: PodParts) -> core.Container:
    overlay = spec.overlay or Overlay()
    given = {one.name for one in overlay.env or ()}
    env = [env_field("POD_NAME", "metadata.name"), env_field("NAMESPACE", "metadata.namespace"), *parts.env]
    if (limit := _go_limit(spec)) is not None and "GOMEMLIMIT" not in given:
        env.append(core.EnvVar(name="GOMEMLIMIT", value=limit))
    if parts.godebug and "GODEBUG" not in given:
        env.append(core.EnvVar(name="GODEBUG", value=GODEBUG))
    made = core.Container(
        name=MAIN,
        image=spec.image,
        resources=spec.resources,
        command=["/bin/sh", f"{parts.config_path}/start.sh"],
        args=list(spec.service_args or parts.args),
        termination_message_policy=FROM_LOG,
        env=env,
        volume_mounts=[
            core.VolumeMount(name=CONFIG, mount_path=parts.config_path, read_only=True),
            *parts.mounts,
        ],
        readiness_probe=parts.probe,
        lifecycle=parts.lifecycle,
    )
    made = overlaid_container(made, overlay)
    return replace(
        made,
        env=upserted(made.env, storage_env(storage), _env_name),
        volume_mounts=upserted(made.volume_mounts, storage_mounts(storage), _mount_name),
    )


def env_field(name: str, path: str) -> core.EnvVar:
    """A variable with a field of the pod."""
    return core.EnvVar(name=name, value_from=field_value(path))


def _go_limit(spec: PodSet) -> str | None:
    limit = (spec.resources.limits if spec.resources is not None else None) or {}
    if spec.memory_limit_percent is None or "memory" not in limit:
        return None
    whole = int(amount(limit["memory"]).to_integral_value(rounding="ROUND_CEILING"))
    return str(whole * spec.memory_limit_percent // 100) if whole else None


def spread(owner: Object, spec: PodSet) -> list[core.TopologySpreadConstraint] | None:
    """Pods of a set spread evenly over the domains of node labels."""
    return [
        core.TopologySpreadConstraint(
            max_skew=1,
            topology_key=key,
            when_unsatisfiable="DoNotSchedule",
            label_selector=meta.LabelSelector(match_labels=labels_of(owner)),
        )
        for key in spec.topology_spread or ()
    ] or None


def _from_memory(pod: core.PodSpec, spec: PodSet) -> core.PodSpec:
    """The binary runs from a file system in memory, where one is declared."""
    if spec.memory_fs_size is None:
        return pod
    source = core.EmptyDirVolumeSource(medium="Memory", size_limit=str(spec.memory_fs_size))
    main, *rest = pod.containers or []
    main = replace(
        main,
        volume_mounts=upserted(
            main.volume_mounts, [core.VolumeMount(name=MEMORY, mount_path=MEMORY_PATH)], _mount_name
        ),
        env=upserted(main.env, [core.EnvVar(name="MO_BIN_PATH", value=MEMORY_PATH)], _env_name),
    )
    volumes = upserted(pod.volumes, [core.Volume(name=MEMORY, empty_dir=source)], _volume_name)
    return replace(pod, containers=[main, *rest], volumes=volumes)


# --- overlays ----------------------------------------------------------------------------------------------


def upserted(base: Sequence[T] | None, more: Sequence[T] | None, key: Callable[[T], object]) -> list[T]:
    """A list with entries added, or replaced where one of that key is there."""
    out = {key(one): one for one in base or ()}
    out.update((key(one), one) for one in more or ())
    return list(out.values())


def _env_name(one: core.EnvVar) -> object:
    return one.name


def _mount_name(one: core.VolumeMount) -> object:
    return one.name


def _volume_name(one: core.Volume) -> object:
    return one.name


def overlaid_container(made: core.Container, overlay: MainContainerOverlay) -> core.Container:
    """A container changed by an overlay."""
    given: dict[str, Any] = {
        "image_pull_policy": overlay.image_pull_policy or None,
        "command": overlay.command,
        "args": overlay.args,
        "env_from": overlay.env_from,
        "readiness_probe": overlay.readiness_probe,
        "liveness_probe": overlay.liveness_probe,
        "startup_probe": overlay.startup_probe,
        "lifecycle": overlay.lifecycle,
        "security_context": overlay.main_container_security_context,
    }
    made = replace(made, **{name: value for name, value in given.items() if value is not None})
    return replace(
        made,
        env=upserted(made.env, overlay.env, _env_name),
        volume_mounts=upserted(made.volume_mounts, overlay.volume_mounts, _mount_name),
    )


def overlaid(pod: core.PodSpec, overlay: Overlay) -> core.PodSpec:
    """A pod changed by an overlay; its main container is changed already."""
    given: dict[str, Any] = {
        "affinity": overlay.affinity,
        "service_account_name": overlay.service_account_name or None,
        "security_context": overlay.security_context,
        "image_pull_secrets": overlay.image_pull_secrets,
        "tolerations": overlay.tolerations,
        "priority_class_name": overlay.priority_class_name or None,
        "termination_grace_period_seconds": overlay.termination_grace_period_seconds,
        "host_aliases": overlay.host_aliases,
        "topology_spread_constraints": overlay.topology_spread_constraints,
        "runtime_class_name": overlay.runtime_class_name,
        "dns_config": overlay.dns_config,
        "init_containers": overlay.init_containers,
        "share_process_namespace": overlay.share_process_namespace,
    }
    if overlay.service_account_name:
        given["automount_service_account_token"] = True
    made = replace(pod, **{name: value for name, value in given.items() if value is not None})
    volumes = upserted(made.volumes, overlay.volumes, _volume_name)
    containers = [*(pod.containers or ())[:1], *(overlay.sidecar_containers or ())]
    return replace(made, volumes=volumes, containers=containers)


def data_mount() -> core.VolumeMount:
    """Where the data or the cache is."""
    return core.VolumeMount(name=DATA, mount_path=DATA_PATH)
