"""CNSet: compute nodes, which clients or proxies connect to."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import field

from mooring.kube.object import Object, Resource
from mooring.kube.objects import core
from mooring.kube.part import Part
from mooring.operators.matrixone.types.podset import (
    OBJECT,
    SET_COLUMNS,
    LogSetRef,
    MainContainerOverlay,
    PodSet,
    Reference,
    RollingUpdateStrategy,
    SetStatus,
    Volume,
    resource,
)
from mooring.operators.matrixone.types.storage import SharedStorageCache
from mooring.operators.workload.autoscale import AutoscaleSpec, AutoscaleStatus
from mooring.runtime.crd import F, Scale, crd

__all__ = [
    "METRICS",
    "POOLING",
    "SERVICE_TYPES",
    "SET_SCALE",
    "UDF_IMAGE",
    "UDF_PORT",
    "CNLabel",
    "CNSet",
    "CNSetDeps",
    "CNSetSpec",
    "CNSetStatus",
    "CNStore",
    "PythonUdfSidecar",
    "ScalingConfig",
]

METRICS: Final = ("sessions", "pipelines", "cpu")
"""What ``spec.autoscale`` can follow."""
POOLING: Final = "Pooling"
SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
SET_SCALE: Final = Scale(".spec.replicas", ".status.replicas", ".status.labelSelector")
UDF_PORT: Final = 50051
UDF_IMAGE: Final = "composer000/mo-python-udf-server:latest"


class CNLabel(Part, frozen=True, kw_only=True):
    """A label of the stores, which accounts and sessions are routed by."""

    key: Annotated[str | None, F("Its key.")] = None
    values: Annotated[list[str] | None, F("Its values.")] = None


class ScalingConfig(Part, frozen=True, kw_only=True):
    """How pods are taken out of service."""

    store_drain_enabled: Annotated[bool | None, F("Move sessions to other pods before a pod is stopped.")] = (
        None
    )
    store_drain_timeout: Annotated[
        str | None, F("How long that may take; default 5m. Sessions that are left then break.")
    ] = None
    min_delay_seconds: Annotated[
        int | None, F("Seconds at least from the drain to the stop; default 15.", format="int32")
    ] = None


class PythonUdfSidecar(Part, frozen=True, kw_only=True):
    """A server for user-defined functions in Python beside each CN."""

    enabled: Annotated[bool | None, F("Whether there is one.")] = None
    port: Annotated[int | None, F(f"Its port; default {UDF_PORT}.")] = None
    image: Annotated[str | None, F(f"Its image; default {UDF_IMAGE}.")] = None
    resources: Annotated[core.ResourceRequirements | None, F("Of its container.")] = None
    overlay: Annotated[MainContainerOverlay | None, F("Changes of its container.", schema=OBJECT)] = None


class CNSetSpec(PodSet, frozen=True, kw_only=True):
    """The declared compute nodes."""

    cache_volume: Annotated[
        Volume | None, F("A claim of each pod for the cache; absent: the node's disk.")
    ] = None
    shared_storage_cache: Annotated[SharedStorageCache | None, F("Caches of shared storage.")] = None
    python_udf_sidecar: Annotated[
        PythonUdfSidecar | None, F("A server for user-defined functions in Python.")
    ] = None
    service_type: Annotated[
        str | None, F("Type of the Service for clients.", enum=SERVICE_TYPES, default="ClusterIP")
    ] = None
    service_annotations: Annotated[dict[str, str] | None, F("Of that Service.")] = None
    node_port: Annotated[
        int | None, F("Port of the nodes, with type NodePort or LoadBalancer.", format="int32")
    ] = None
    role: Annotated[str | None, F("Deprecated: TP or AP; use cnLabels.")] = None
    cn_labels: Annotated[list[CNLabel] | None, F("Labels of the stores, changed live.")] = None
    scaling_config: Annotated[ScalingConfig | None, F("How pods are taken out of service.")] = None
    update_strategy: Annotated[
        RollingUpdateStrategy | None, F("How pods are rolled; default: one more, none less.")
    ] = None
    termination_policy: Annotated[
        str | None, F("What happens to sessions at deletion: Delete or Drain; default Delete.")
    ] = None
    pod_management_policy: Annotated[str | None, F("Pooling: a CNPool manages the pods.")] = None
    autoscale: Annotated[
        AutoscaleSpec | None,
        F(
            "The number of pods follows the load, in place of replicas; types: sessions, pipelines, or cpu in percent "
            "of its request (needs metrics-server)."
        ),
    ] = None
    pods_to_delete: Annotated[list[str] | None, F("Pods that go first at scale-in.")] = None
    pause_update: Annotated[bool | None, F("Do not roll pods.")] = None
    reuse_pvc: Annotated[bool | None, F("New pods take claims that pods before them left.")] = field(
        default=None, name="reusePVC"
    )


class CNSetDeps(LogSetRef, frozen=True, kw_only=True):
    """What compute nodes work with."""

    dn_set: Annotated[Reference | None, F("The DNSet, as an object with metadata.name.", schema=OBJECT)] = (
        None
    )


class CNStore(Part, frozen=True, kw_only=True):
    """One compute node; ``uuid``, ``podName`` and ``state`` are upstream's."""

    uuid: Annotated[str | None, F("Its identity in MatrixOne.")] = None
    pod_name: Annotated[str | None, F("Its pod.")] = None
    state: Annotated[str | None, F("Up, Idle, Draining, Drained, Starting, Outdated or Unknown.")] = None
    sessions: Annotated[int | None, F("Sessions of clients on it; absent while unknown.")] = None
    pipelines: Annotated[int | None, F("Pipelines that run on it; absent while unknown.")] = None
    since: Annotated[str | None, F("Since when it is in this state.", format="date-time")] = None
    reason: Annotated[str | None, F("Why it is in this state.")] = None


class CNSetStatus(SetStatus, frozen=True, kw_only=True):
    """What was observed."""

    stores: Annotated[list[CNStore] | None, F("Every compute node.")] = None
    replicas: Annotated[int | None, F("Pods there are.", format="int32")] = None
    ready_replicas: Annotated[int | None, F("Pods that serve.", format="int32")] = None
    label_selector: Annotated[str | None, F("Label selector of the pods.")] = None
    autoscale: Annotated[AutoscaleStatus | None, F("What the load calls for.")] = None
    host: Annotated[str | None, F("Where clients connect to.")] = None
    port: Annotated[int | None, F("Where clients connect to.")] = None


@crd(columns=SET_COLUMNS, scale=SET_SCALE, preserve_unknown=True)
class CNSet(Object, frozen=True, kw_only=True):
    """Compute nodes of a MatrixOne cluster."""

    resource: ClassVar[Resource] = resource("CNSet")

    spec: Annotated[CNSetSpec | None, F(required=True)] = None
    deps: Annotated[CNSetDeps | None, F("What the pods work with.")] = None
    status: CNSetStatus | None = None
