"""What the five sets of pods share: the container, its overlay, its configuration, and references to other sets.

Names, defaults and the shape of JSON are upstream's (``matrixorigin/matrixone-operator``), and so is what has no schema:
``overlay`` and the ``logSet``, ``dnSet`` and ``cnset`` of ``deps``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from mooring.kube.object import Resource
from mooring.kube.objects import core, meta
from mooring.kube.part import Part
from mooring.runtime.crd import AGE, F, PrinterColumn

__all__ = [
    "ANYTHING",
    "GROUP",
    "MAIN",
    "OBJECT",
    "SET_COLUMNS",
    "TIME",
    "ExternalLogSet",
    "FailoverStatus",
    "LogSetRef",
    "MainContainerOverlay",
    "Overlay",
    "PodSet",
    "Quantity",
    "Reference",
    "ReferenceMetadata",
    "RollingUpdateStrategy",
    "SetStatus",
    "Store",
    "Volume",
    "named",
    "resource",
]

GROUP: Final = "core.matrixorigin.io"
MAIN: Final = "main"
"""Name of the container that runs MatrixOne."""
ANYTHING: Final[Mapping[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}
OBJECT: Final[Mapping[str, Any]] = {"type": "object", **ANYTHING}
TIME: Final[Mapping[str, Any]] = {"type": "string", "format": "date-time"}
SET_COLUMNS: Final = (
    PrinterColumn("Image", ".spec.image"),
    PrinterColumn("Replicas", ".spec.replicas", type="integer"),
    AGE,
)
Quantity = str | int | float


def resource(kind: str, *, namespaced: bool = True) -> Resource:
    """Where a kind of this group lives in the API."""
    return Resource(GROUP, "v1alpha1", kind, f"{kind.lower()}s", namespaced)


class MainContainerOverlay(Part, frozen=True, kw_only=True):
    """Changes of the main container."""

    command: Annotated[list[str] | None, F("Replaces the command.")] = None
    args: Annotated[list[str] | None, F("Replaces the arguments.")] = None
    env_from: Annotated[
        list[core.EnvFromSource] | None, F("Replaces the sources of variables.", schema=ANYTHING)
    ] = None
    env: Annotated[list[core.EnvVar] | None, F("Added to the variables, by name.", schema=ANYTHING)] = None
    image_pull_policy: Annotated[
        str | None,
        F("Of the image.", enum=("Always", "Never", "IfNotPresent"), default="IfNotPresent"),
    ] = None
    volume_mounts: Annotated[
        list[core.VolumeMount] | None, F("Added to the mounts, by name.", schema=ANYTHING)
    ] = None
    liveness_probe: Annotated[core.Probe | None, F("Replaces the liveness probe.", schema=ANYTHING)] = None
    readiness_probe: Annotated[core.Probe | None, F("Replaces the readiness probe.", schema=ANYTHING)] = None
    startup_probe: Annotated[core.Probe | None, F("Replaces the startup probe.", schema=ANYTHING)] = None
    lifecycle: Annotated[core.Lifecycle | None, F("Replaces the lifecycle hooks.", schema=ANYTHING)] = None
    main_container_security_context: Annotated[
        core.SecurityContext | None, F("Replaces the container's security context.", schema=ANYTHING)
    ] = None


class Overlay(MainContainerOverlay, frozen=True, kw_only=True):
    """Changes of the pod: env, volumes and mounts are added by name, everything else replaces what was there."""

    volumes: Annotated[list[core.Volume] | None, F("Added to the volumes, by name.", schema=ANYTHING)] = None
    volume_claims: Annotated[
        list[core.PersistentVolumeClaim] | None, F("Further claims of each pod.", schema=ANYTHING)
    ] = None
    init_containers: Annotated[
        list[core.Container] | None, F("Replaces the init containers.", schema=ANYTHING)
    ] = None
    sidecar_containers: Annotated[
        list[core.Container] | None, F("Replaces all containers but the main one.", schema=ANYTHING)
    ] = None
    service_account_name: Annotated[str | None, F("Of the pod.")] = None
    security_context: Annotated[core.PodSecurityContext | None, F("Of the pod.", schema=ANYTHING)] = None
    image_pull_secrets: Annotated[
        list[core.LocalObjectReference] | None, F("Secrets for the image's registry.", schema=ANYTHING)
    ] = None
    affinity: Annotated[core.Affinity | None, F("Of the pod.", schema=ANYTHING)] = None
    tolerations: Annotated[list[core.Toleration] | None, F("Of the pod.", schema=ANYTHING)] = None
    priority_class_name: Annotated[str | None, F("Of the pod.")] = None
    termination_grace_period_seconds: Annotated[int | None, F("Of the pod, in seconds.")] = None
    host_aliases: Annotated[list[core.HostAlias] | None, F("Of the pod.", schema=ANYTHING)] = None
    topology_spread_constraints: Annotated[
        list[core.TopologySpreadConstraint] | None, F("Replaces topologySpread.", schema=ANYTHING)
    ] = None
    runtime_class_name: Annotated[str | None, F("Of the pod.")] = None
    dns_config: Annotated[core.PodDNSConfig | None, F("Of the pod.", schema=ANYTHING)] = None
    pod_labels: Annotated[dict[str, str] | None, F("Added to the pod's labels.")] = None
    pod_annotations: Annotated[dict[str, str] | None, F("Added to the pod's annotations.")] = None
    share_process_namespace: Annotated[bool | None, F("Of the pod.")] = None


class PodSet(Part, frozen=True, kw_only=True):
    """A set of pods."""

    image: Annotated[
        str | None, F("Image of the main container; required unless a MatrixOneCluster gives it.")
    ] = None
    resources: Annotated[core.ResourceRequirements | None, F("Of the main container.")] = None
    overlay: Annotated[Overlay | None, F("Changes of the pod beyond the other fields.", schema=OBJECT)] = None
    replicas: Annotated[int | None, F("How many pods.", required=True, minimum=0, format="int32")] = None
    topology_spread: Annotated[
        list[str] | None, F("Keys of node labels over which the pods are spread evenly.")
    ] = None
    node_selector: Annotated[dict[str, str] | None, F("Labels of the nodes that pods may run on.")] = None
    config: Annotated[
        str | None, F("Configuration of the processes as TOML; what the operator must set wins.")
    ] = None
    dns_based_identity: Annotated[bool | None, F("Deprecated; accepted and not used.")] = None
    cluster_domain: Annotated[str | None, F("Domain of the cluster's DNS; accepted and not used.")] = None
    service_args: Annotated[list[str] | None, F("Further arguments of the process; not -cfg.")] = None
    memory_limit_percent: Annotated[
        int | None, F("Sets GOMEMLIMIT to this part of limits.memory, in percent: more than 0, at most 100.")
    ] = None
    export_to_prometheus: Annotated[bool | None, F("Let Prometheus discover and scrape the pods.")] = None
    prom_discovery_scheme: Annotated[
        str | None, F("Where the annotations for Prometheus stand: Pod or Service; default Service.")
    ] = None
    semantic_version: Annotated[str | None, F("Version of MatrixOne; default: the image's tag.")] = None
    operator_version: Annotated[
        str | None, F("Version of upstream's operator whose pods are made; absent means 1.2.0.")
    ] = None
    memory_fs_size: Annotated[
        Quantity | None, F("Size of a file system in memory that the binary runs from; absent: none.")
    ] = None


class Volume(Part, frozen=True, kw_only=True):
    """A claim of each pod."""

    size: Annotated[Quantity | None, F("How large; it may grow.", required=True)] = None
    storage_class_name: Annotated[str | None, F("Its StorageClass; default: the cluster's.")] = None
    memory_cache_size: Annotated[Quantity | None, F("Deprecated: use sharedStorageCache.")] = None


class RollingUpdateStrategy(Part, frozen=True, kw_only=True):
    """How many pods a roll may add and take away."""

    max_surge: Annotated[int | str | None, F("Pods beyond replicas, as a number or percent.")] = None
    max_unavailable: Annotated[int | str | None, F("Pods that may be missing, as a number or percent.")] = (
        None
    )


class ReferenceMetadata(Part, frozen=True, kw_only=True):
    """Which object is meant."""

    name: str | None = None
    namespace: str | None = None


class Reference(Part, frozen=True, kw_only=True):
    """Another object, given as a whole object of which only name and namespace are read."""

    metadata: ReferenceMetadata | None = None


def named(name: str, *, namespace: str) -> Reference:
    """A reference to an object."""
    return Reference(metadata=ReferenceMetadata(name=name, namespace=namespace))


class ExternalLogSet(Part, frozen=True, kw_only=True):
    """A log service that no LogSet of this cluster declares."""

    ha_keeper_endpoint: Annotated[str | None, F("host:port of its HAKeeper.", required=True)] = None


class LogSetRef(Part, frozen=True, kw_only=True):
    """The log service that a set works with: one of the two."""

    log_set: Annotated[Reference | None, F("The LogSet, as an object with metadata.name.", schema=OBJECT)] = (
        None
    )
    external_log_set: Annotated[ExternalLogSet | None, F("A log service elsewhere.")] = None


class Store(Part, frozen=True, kw_only=True):
    """One store of a LogSet, DNSet or WebUI."""

    pod_name: Annotated[str | None, F("Its pod.")] = None
    phase: Annotated[str | None, F("Up or Down.")] = None
    last_transition: Annotated[str | None, F("Since when it is in this phase.", format="date-time")] = None
    uuid: Annotated[str | None, F("Its identity in MatrixOne.")] = None
    reason: Annotated[str | None, F("What is in the way.")] = None


class SetStatus(Part, frozen=True, kw_only=True):
    """What every kind reports."""

    conditions: Annotated[
        list[meta.Condition] | None, F("Ready and Synced, then Progressing and Stalled.")
    ] = None
    observed_generation: Annotated[int | None, F("The generation this speaks of.")] = None


class FailoverStatus(SetStatus, frozen=True, kw_only=True):
    """What a set with stores reports."""

    available_stores: Annotated[list[Store] | None, F("Stores that serve.")] = None
    failed_stores: Annotated[list[Store] | None, F("Stores that do not.")] = None
