"""CNPool, CNClaim and CNClaimSet: compute nodes that are kept warm, and claimed one by one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import field

from mooring.kube.object import Object, Resource
from mooring.kube.objects import meta
from mooring.kube.part import Part
from mooring.operators.matrixone.types.cnset import SET_SCALE, CNLabel, CNSetDeps, CNSetSpec
from mooring.operators.matrixone.types.podset import SetStatus, resource
from mooring.runtime.crd import AGE, F, PrinterColumn, crd

__all__ = [
    "CNClaim",
    "CNClaimSet",
    "CNClaimSetSpec",
    "CNClaimSetStatus",
    "CNClaimSpec",
    "CNClaimStatus",
    "CNClaimTemplate",
    "CNPool",
    "CNPoolSpec",
    "CNPoolStatus",
    "CNStoreStatus",
    "ClaimMetadata",
    "ClaimPodRef",
    "MigrateStatus",
    "PoolScaleStrategy",
    "PoolStrategy",
    "PoolTemplate",
    "PoolUpdateStrategy",
    "Workload",
]

_TIME: Final = "date-time"


class PoolTemplate(CNSetSpec, frozen=True, kw_only=True):
    """The pods of a pool; their number follows from the claims."""

    replicas: Annotated[int | None, F("Not used: the pool decides.", minimum=0, format="int32")] = None


class PoolUpdateStrategy(Part, frozen=True, kw_only=True):
    """How a pool is rolled."""

    reclaim_timeout: Annotated[str | None, F("Accepted and not used.")] = None


class PoolScaleStrategy(Part, frozen=True, kw_only=True):
    """How many pods a pool has."""

    max_idle: Annotated[
        int | None, F("Pods that wait to be claimed.", required=True, minimum=0, format="int32")
    ] = None
    max_pods: Annotated[int | None, F("Pods in all; absent: no limit.", minimum=0, format="int32")] = None


class PoolStrategy(Part, frozen=True, kw_only=True):
    """How a pool is rolled and scaled."""

    update_strategy: Annotated[PoolUpdateStrategy | None, F("How it is rolled.", required=True)] = None
    scale_strategy: Annotated[PoolScaleStrategy | None, F("How many pods it has.", required=True)] = None


class CNPoolSpec(Part, frozen=True, kw_only=True):
    """The declared pool."""

    template: Annotated[PoolTemplate | None, F("The pods.", required=True)] = None
    pod_labels: Annotated[dict[str, str] | None, F("Labels of the pods, which claims select by.")] = None
    deps: Annotated[CNSetDeps | None, F("What the pods work with.", required=True)] = None
    strategy: Annotated[PoolStrategy | None, F("How it is rolled and scaled.", required=True)] = None


class CNPoolStatus(SetStatus, frozen=True, kw_only=True):
    """What was observed; upstream reports nothing."""

    idle: Annotated[int | None, F("Pods that wait to be claimed.", format="int32")] = None
    bound: Annotated[int | None, F("Pods that are claimed.", format="int32")] = None
    draining: Annotated[int | None, F("Pods that are taken out of service.", format="int32")] = None


@crd(columns=(AGE,), preserve_unknown=True)
class CNPool(Object, frozen=True, kw_only=True):
    """Compute nodes that are kept warm."""

    resource: ClassVar[Resource] = resource("CNPool")

    spec: Annotated[CNPoolSpec | None, F(required=True)] = None
    status: CNPoolStatus | None = None


class ClaimPodRef(Part, frozen=True, kw_only=True):
    """A pod."""

    pod_name: Annotated[str | None, F("Its name.")] = None
    node_name: Annotated[str | None, F("The node it runs on.")] = None


class CNClaimSpec(ClaimPodRef, frozen=True, kw_only=True):
    """The declared claim; podName and nodeName are filled in when a pod is bound."""

    source_pod: Annotated[ClaimPodRef | None, F("The pod to move away from.")] = None
    selector: Annotated[meta.LabelSelector | None, F("Pods that may be bound.", required=True)] = None
    cn_labels: Annotated[list[CNLabel] | None, F("Labels that the store gets.")] = None
    owner_name: Annotated[str | None, F("Who uses the pod.")] = None
    additional_pod_labels: Annotated[
        dict[str, str] | None, F("Labels that the pod gets while it is bound, unless it has them already.")
    ] = None
    pool_name: Annotated[str | None, F("The pool that serves the claim.")] = None


class CNStoreStatus(Part, frozen=True, kw_only=True):
    """The store of a bound pod."""

    service_id: Annotated[str | None, F("Its identity.")] = field(default=None, name="serviceID")
    lock_service_address: Annotated[str | None, F("Where its lock service listens.")] = None
    pipeline_service_address: Annotated[str | None, F("Where its pipelines listen.")] = None
    sql_address: Annotated[str | None, F("Where it listens for SQL.")] = None
    query_address: Annotated[str | None, F("Where its query service listens.")] = None
    work_state: Annotated[int | None, F("0 Unknown, 1 Working, 2 Draining, 3 Drained.", format="int32")] = (
        None
    )
    labels: Annotated[list[CNLabel] | None, F("Its labels.")] = None
    pod_name: Annotated[str | None, F("Its pod; the key is upstream's.")] = field(default=None, name="string")
    bound_time: Annotated[str | None, F("When it was bound.", format=_TIME)] = None


class Workload(Part, frozen=True, kw_only=True):
    """What a pod still has to do."""

    connections: Annotated[int | None, F("Sessions.")] = None
    pipelines: Annotated[int | None, F("Pipelines.")] = None
    replicas: Annotated[int | None, F("Shards of tables.")] = None


class MigrateStatus(Part, frozen=True, kw_only=True):
    """A move to another pod, until the old one is drained; ``source`` is upstream's."""

    reason: Annotated[str | None, F("Why the claim leaves its pod.")] = None
    from_pod: Annotated[str | None, F("The pod that it leaves.")] = None
    to_pod: Annotated[str | None, F("The pod that it moves to; absent while none is idle.")] = None
    since: Annotated[str | None, F("When the move began.", format=_TIME)] = None
    source: Annotated[Workload | None, F("What the old pod still has to do.")] = None


class CNClaimStatus(SetStatus, frozen=True, kw_only=True):
    """What was observed."""

    phase: Annotated[
        str | None,
        F(
            "Pending, Bound or Lost. Outdated is upstream's, for a claim whose pod runs an older template; it is never set, "
            "since such a claim moves to another pod."
        ),
    ] = None
    store: Annotated[CNStoreStatus | None, F("The store.")] = None
    bound_time: Annotated[str | None, F("When it was bound.", format=_TIME)] = None
    migrate: Annotated[MigrateStatus | None, F("A move under way.")] = None


@crd(
    columns=(PrinterColumn("Pod", ".spec.podName"), PrinterColumn("Phase", ".status.phase"), AGE),
    preserve_unknown=True,
)
class CNClaim(Object, frozen=True, kw_only=True):
    """The right to one pod of a pool."""

    resource: ClassVar[Resource] = resource("CNClaim")

    spec: CNClaimSpec | None = None
    status: CNClaimStatus | None = None


class ClaimMetadata(Part, frozen=True, kw_only=True):
    """Metadata of the claims of a set."""

    name: Annotated[str | None, F("Accepted and not used: the set names its claims.")] = None
    labels: Annotated[dict[str, str] | None, F("Of the claims.")] = None
    annotations: Annotated[dict[str, str] | None, F("Of the claims.")] = None


class CNClaimTemplate(Part, frozen=True, kw_only=True):
    """The claims of a set."""

    metadata: Annotated[ClaimMetadata | None, F("Their labels and annotations.")] = None
    spec: Annotated[CNClaimSpec | None, F("What they claim.")] = None


class CNClaimSetSpec(Part, frozen=True, kw_only=True):
    """The declared claims."""

    replicas: Annotated[int | None, F("How many.", required=True, minimum=0, format="int32")] = None
    template: Annotated[CNClaimTemplate | None, F("The claims.", required=True)] = None
    selector: Annotated[meta.LabelSelector | None, F("Claims that belong to the set.")] = None


class CNClaimSetStatus(Part, frozen=True, kw_only=True):
    """What was observed."""

    replicas: Annotated[int | None, F("Claims there are.", required=True, format="int32")] = None
    ready_replicas: Annotated[int | None, F("Claims with a ready pod.", required=True, format="int32")] = None
    claims: Annotated[list[CNClaimStatus] | None, F("Every claim.")] = None
    label_selector: Annotated[str | None, F("Label selector of the pods that the claims are bound to.")] = (
        None
    )
    pod_selector: Annotated[str | None, F("Deprecated.")] = None
    conditions: Annotated[
        list[meta.Condition] | None, F("Ready and Synced, then Progressing and Stalled.")
    ] = None
    observed_generation: Annotated[int | None, F("The generation this speaks of.")] = None


@crd(
    columns=(PrinterColumn("Replicas", ".spec.replicas", type="integer"), AGE),
    scale=SET_SCALE,
    preserve_unknown=True,
)
class CNClaimSet(Object, frozen=True, kw_only=True):
    """A number of equal claims."""

    resource: ClassVar[Resource] = resource("CNClaimSet")

    spec: CNClaimSetSpec | None = None
    status: CNClaimSetStatus | None = None
