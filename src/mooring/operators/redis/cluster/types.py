"""The custom resource ``redis.middleware.hc.cn/v1alpha1`` RedisCluster (``rec``): HarmonyCloud's API.

Names of fields, phases and reasons are theirs, those of its later releases too. New in the spec are ``tls``, ``restoreFrom``, ``autoscale``, ``balance``
and ``keyReport``, in the status ``slotPlan``, ``restore``, ``autoscale``, ``keys``, ``selector``, ``observedGeneration`` and ``standardConditions``, since their ``conditions`` has one entry per redis node.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from msgspec import field

from mooring.kube.object import Object, Resource
from mooring.kube.objects import apps, core, meta
from mooring.kube.part import Part
from mooring.kube.quantity import parse_quantity
from mooring.operators.backup.types import RestoreFrom, RestoreStatus
from mooring.operators.redis.tls import TlsSpec
from mooring.operators.redis.users.types import DefaultUserSpec, UserResult, UserSpec
from mooring.operators.workload.autogrow import AutogrowSpec, AutogrowStatus
from mooring.operators.workload.autoscale import (
    BOUNDS,
    AutoscaleSpec,
    AutoscaleStatus,
    autoscale_rules,
    in_force,
)
from mooring.operators.workload.network import NetworkAccess
from mooring.operators.workload.overlay import PodTemplate
from mooring.operators.workload.volumes import VolumeStatus
from mooring.runtime.crd import F, PrinterColumn, Rule, Scale, crd, rules

__all__ = [
    "AUTO",
    "AUTOSCALE_TYPES",
    "BY_COUNT",
    "BY_SIZE",
    "COOLDOWN",
    "LEAST_BY_LOAD",
    "MOST_BY_LOAD",
    "NAMED",
    "RATE_ANNOTATION",
    "SLOWEST",
    "AssignStrategy",
    "ClusterAutoscaleSpec",
    "DataLoss",
    "KeyReportSpec",
    "KeyReportStatus",
    "KnownKey",
    "NodeCondition",
    "RedisCluster",
    "RedisClusterPod",
    "RedisClusterSpec",
    "RedisClusterStatus",
    "Retry",
    "Sentinel",
    "SlotPlan",
    "SlotRange",
    "UpdateStrategy",
    "Volumes",
    "image_of",
    "masters_of",
    "password_of",
    "pipeline_of",
    "pod_of",
    "rate_of",
    "size_of",
    "status_of",
    "volumes_of",
]

AUTO: Final = "AutoReceive"
NAMED: Final = "AssignReceive"
RATE_ANNOTATION: Final = "mooring.dev/slot-rate"
"""Bytes of keys a second that moving slots may cost at most, as a quantity: ``8Mi``."""
SLOWEST: Final = 1 << 20
"""The least it can be: healing waits until the slot under way is empty."""
AUTOSCALE_TYPES: Final = ("MemoryPercent", "OperationsPerSecond")
"""What the load can be measured by, on average per master."""
LEAST_BY_LOAD: Final = 6
"""Nodes at least while the load decides: three masters with a replica each."""
MOST_BY_LOAD: Final = 1000
"""Nodes at most: the bus of a Redis Cluster is not made for more."""
COOLDOWN: Final = 300
"""Seconds after a change by load until the next one, where nothing is declared."""
BY_COUNT: Final = "Count"
BY_SIZE: Final = "Size"
TIME: Final = {"type": "string", "format": "date-time"}
LATER: Final = F("Of HarmonyCloud's later releases; taken as it is, and not written.")


class AssignStrategy(Part, frozen=True, kw_only=True):
    """What one new master gets."""

    slots: Annotated[int | None, F("How many slots.", minimum=0, maximum=16384)] = None
    from_replicas: Annotated[
        str | None, F("Ids of the nodes they come from, joined by commas.", max_length=8192)
    ] = None

    @property
    def sources(self) -> list[str]:
        """The ids, each once."""
        names = (name.strip() for name in (self.from_replicas or "").split(","))
        return [name for name in dict.fromkeys(names) if name]


class UpdateStrategy(Part, frozen=True, kw_only=True):
    """Where new masters get their slots from."""

    type: Annotated[
        str | None, F("AutoReceive (even parts) or AssignReceive (as assignStrategies say).", max_length=64)
    ] = None
    pipeline: Annotated[str | None, F('Keys moved at once, as text; default "10".', max_length=10)] = None
    assign_strategies: Annotated[
        list[AssignStrategy] | None,
        F("One for each new master, in the order of their pods' names.", max_items=500),
    ] = None


class Volumes(Part, frozen=True, kw_only=True):
    """Where the data is stored; without it in an emptyDir."""

    type: Annotated[str | None, F("hostPath, or nfs with a claim.", max_length=64)] = None
    persistent_volume_claim_name: Annotated[
        str | None, F("The claim of type nfs; every pod has a directory of its own on it.", max_length=253)
    ] = None


class ClusterStorage(Part, frozen=True, kw_only=True):
    """The claims with the data; ``volumeClaimTemplates`` declares them."""

    autogrow: Annotated[AutogrowSpec | None, F("The claims grow by themselves when they fill up.")] = None


class RedisClusterPod(Part, frozen=True, kw_only=True):
    """The redis instances."""

    labels: Annotated[dict[str, str] | None, F("Of the pods, beside ours.")] = None
    annotations: Annotated[dict[str, str] | None, F("Of the pods.")] = None
    env: Annotated[list[core.EnvVar] | None, F("Of the redis container; MAXMEMORY becomes maxmemory.")] = None
    affinity: Annotated[core.Affinity | None, F("Default: apart from each other where possible.")] = None
    resources: Annotated[core.ResourceRequirements | None, F("Of the redis container.")] = None
    update_strategy: Annotated[
        apps.StatefulSetUpdateStrategy | None,
        F("RollingUpdate: we roll, one shard at a time. OnDelete: the pods wait to be deleted."),
    ] = None
    volumes: Annotated[Volumes | None, F("Where the data is stored.")] = None
    configmap: Annotated[
        str | None, F("A ConfigMap with a key redis.conf, the template of the configuration.", max_length=253)
    ] = None
    monitor_image: Annotated[str | None, F("Image of a metrics exporter beside redis.", max_length=500)] = (
        None
    )
    init_image: Annotated[
        str | None, F("Accepted for old YAML: the redis image fills in the template itself.", max_length=500)
    ] = None
    middleware_image: Annotated[
        str | None, F("Image of redis; else it is made of repository and version.", max_length=500)
    ] = None
    requirepass: Annotated[str | None, F("The password, in clear text.", max_length=500)] = None
    image_pull_policy: Annotated[str | None, F("Always, IfNotPresent or Never.", max_length=20)] = None
    host_network: Annotated[bool | None, F("The pods use their nodes' network: one for each node.")] = None


class Sentinel(Part, frozen=True, kw_only=True):
    """Sentinels beside the nodes: accepted for old YAML, and not made here."""

    enable: Annotated[bool | None, F("true is answered: redis.kun/v1beta1 has sentinels.")] = None
    replicas: Annotated[int | None, F("Accepted for old YAML.")] = None
    resources: Annotated[core.ResourceRequirements | None, F("Accepted for old YAML.")] = None
    command: Annotated[list[str] | None, F("Accepted for old YAML.")] = None


@rules(BOUNDS)
class ClusterAutoscaleSpec(AutoscaleSpec, frozen=True, kw_only=True):
    """The number of nodes follows the load of the masters, in place of ``replicas``; counted as that is."""

    cooldown_seconds: Annotated[
        int | None,
        F("So long after a change by load the next one waits; default 300.", minimum=0, maximum=86400),
    ] = None


class KeyReportSpec(Part, frozen=True, kw_only=True):
    """Names of large and busy keys in the status. They may be confidential: who may read the object reads them."""

    big: Annotated[
        int | None, F("So many of the largest keys; default 10, 0 for none.", minimum=0, maximum=50)
    ] = None
    hot: Annotated[
        int | None,
        F("So many of the busiest keys, where maxmemory-policy is LFU; default 10.", minimum=0, maximum=50),
    ] = None
    min_bytes: Annotated[int | None, F("Smaller keys are not reported; default 1048576.", minimum=1)] = None


@rules(
    Rule(
        "!has(self.restoreFrom) || has(oldSelf.restoreFrom)",
        "spec.restoreFrom is for new clusters; create another one with it",
    ),
    *autoscale_rules("spec.replicas", AUTOSCALE_TYPES, least=LEAST_BY_LOAD, most=MOST_BY_LOAD),
)
class RedisClusterSpec(Part, frozen=True, kw_only=True):
    """The declared cluster."""

    replicas: Annotated[
        int | None,
        F("All nodes: 2 for a master and a replica, else 6 and more, half of them masters.", minimum=0),
    ] = None
    autoscale: Annotated[
        ClusterAutoscaleSpec | None,
        F(
            "The load of the masters chooses the number of nodes, in place of replicas. Metrics: MemoryPercent or "
            "OperationsPerSecond."
        ),
    ] = None
    balance: Annotated[
        str | None,
        F(
            "Count: masters get equal numbers of slots when nodes come or go. Size: slots move also at rest, where one "
            "master holds far more data than the others. Default: Count.",
            enum=(BY_COUNT, BY_SIZE),
        ),
    ] = None
    key_report: Annotated[
        KeyReportSpec | None, F("Names the largest and busiest keys in the status; absent: none.")
    ] = None
    pause: Annotated[bool | None, F("Maintenance: nothing is changed; the status is kept up to date.")] = None
    finalizers: Annotated[
        str | None, F("foreground: the claims go when the cluster is deleted.", max_length=64)
    ] = None
    repository: Annotated[
        str | None, F("Path of the image; one that ends in / is put before images.", max_length=400)
    ] = None
    version: Annotated[str | None, F("Tag of the image.", max_length=128)] = None
    update_strategy: Annotated[UpdateStrategy | None, F("Slots of new masters.")] = None
    pod: Annotated[list[RedisClusterPod] | None, F("One entry: the redis instances.", max_items=10)] = None
    tls: Annotated[TlsSpec | None, F("Encrypted connections; absent: none.")] = None
    users: Annotated[
        list[UserSpec] | None, F("ACL users, on every server as they are declared.", max_items=100)
    ] = None
    default_user: Annotated[DefaultUserSpec | None, F("The user of clients that name none.")] = None
    network_policy: Annotated[NetworkAccess | None, F("Who may connect; absent: everybody.")] = None
    restore_from: Annotated[
        RestoreFrom | None,
        F("The backup that a new cluster begins with, of either kind of cluster. Of no effect once it did."),
    ] = None
    pod_template: Annotated[
        PodTemplate | None, F("What is added to the pods; see docs/redis-cluster.md.")
    ] = None
    volume_claim_templates: Annotated[
        list[core.PersistentVolumeClaim] | None, F("Claims of each pod; the first holds the data.")
    ] = None
    storage: Annotated[ClusterStorage | None, F("How the claims with the data grow.")] = None
    volumes: Annotated[Volumes | None, F("As pod[0].volumes, which counts where both are given.")] = None
    type: Annotated[
        str | None, F("cluster, or replication with two nodes; sentinel is another kind.", max_length=64)
    ] = None
    redis_instance_port: Annotated[int | None, F("Where the servers listen: 6379.")] = None
    service_port: Annotated[int | None, F("Port of the Service for clients; default 6379.")] = None
    pod_management_policy: Annotated[
        str | None, F("Accepted for old YAML: pods are always made in parallel.", max_length=64)
    ] = None
    update_id: Annotated[
        str | None, F("Accepted for old YAML: revisions are the StatefulSet's.", max_length=253)
    ] = None
    sentinel: Annotated[Sentinel | None, F("Accepted for old YAML; enable: true is answered.")] = None


POD_MISSING: Final = "PodMissing"
"""The reason of a node whose pod there is not."""


class NodeCondition(Part, frozen=True, kw_only=True):
    """One redis node."""

    name: Annotated[str | None, F("The pod.")] = None
    namespace: Annotated[str | None, F("Its namespace.")] = None
    instance: Annotated[str | None, F("Address and port.")] = None
    type: Annotated[str | None, F("master or slave.")] = None
    node_id: Annotated[str | None, F("Its id in the cluster.")] = None
    master_node_id: Annotated[str | None, F("Its master's id; a master's own.")] = None
    domain_name: Annotated[str | None, F("Its name in DNS.")] = None
    slots: Annotated[str | None, F("Its slots, as 1024-2048.")] = None
    hostname: Annotated[str | None, F("The Kubernetes node it runs on.")] = None
    host_ip: Annotated[str | None, F("Address of that node.")] = field(default=None, name="hostIP")
    status: Annotated[str | None, F("True, False or Unknown.")] = None
    reason: Annotated[str | None, F("In a word.")] = None
    message: Annotated[str | None, F("For people.")] = None
    last_transition_time: Annotated[str | None, F("When its status last changed, or its pod was gone.")] = (
        None
    )


class SlotRange(Part, frozen=True, kw_only=True):
    """Slots that go from one node to another."""

    slots: Annotated[str, F("As 0-1364,2000.")] = ""
    source: Annotated[str, F("Id of the node that has them when the plan is made.")] = ""
    target: Annotated[str, F("Id of the node that gets them.")] = ""


class SlotPlan(Part, frozen=True, kw_only=True):
    """A move of slots under way: decided once, finished slots are read from the nodes."""

    kind: Annotated[str, F("Rebalance, Reshard or Drain.")] = ""
    replicas: Annotated[int, F("The spec.replicas it was made for.")] = 0
    moves: Annotated[list[SlotRange] | None, F("What goes where, in this order.")] = None
    total: Annotated[int, F("Slots to move.")] = 0
    moved: Annotated[int, F("Slots that are where they shall be.")] = 0
    since: Annotated[datetime | None, F("When it began.", schema=TIME)] = None
    updated: Annotated[datetime | None, F("When moved was last counted.", schema=TIME)] = None
    seconds_left: Annotated[int | None, F("At the pace so far.")] = None
    failure: Annotated[str | None, F("Why the last attempt failed; removed when one succeeds.")] = None
    failing: Annotated[datetime | None, F("Since when tries fail and no slot was finished.", schema=TIME)] = (
        None
    )


class Retry(Part, frozen=True, kw_only=True):
    """A step that failed and is retried; removed once it succeeds or is no longer needed."""

    step: Annotated[str, F("The step, as conditions and logs name it.")] = ""
    event: Annotated[str | None, F("The Event that was recorded of it.")] = None
    message: Annotated[str, F("What failed, and why.")] = ""
    failures: Annotated[int, F("Failures; of several within ten seconds one is counted.")] = 0
    since: Annotated[
        datetime | None, F("When it, or a step that fails in turn with it, failed first.", schema=TIME)
    ] = None
    last: Annotated[datetime | None, F("When it failed last, as far as it was counted.", schema=TIME)] = None
    next: Annotated[
        datetime | None, F("When it is retried at the earliest; absent: at once.", schema=TIME)
    ] = None


class DataLoss(Part, frozen=True, kw_only=True):
    """Data that was lost for good, and why."""

    time: Annotated[datetime | None, F("When the cluster was founded again.", schema=TIME)] = None
    message: Annotated[str, F("What was lost, for people.")] = ""


class KnownKey(Part, frozen=True, kw_only=True):
    """One key that is large or busy."""

    key: Annotated[str, F("Its name; what cannot be shown is escaped, and long names are cut.")] = ""
    pod: Annotated[str, F("The master that had it.")] = ""
    bytes: Annotated[int | None, F("Its memory, rounded to two digits.")] = None
    frequency: Annotated[int | None, F("Its OBJECT FREQ, 0 to 255 on a logarithmic scale.")] = None


class KeyReportStatus(Part, frozen=True, kw_only=True):
    """Keys that a sample of the masters' keys showed; written rarely."""

    big: Annotated[list[KnownKey] | None, F("The largest first.")] = None
    hot: Annotated[list[KnownKey] | None, F("The busiest first.")] = None


class RedisClusterStatus(Part, frozen=True, kw_only=True):
    """What was observed; HarmonyCloud's fields first."""

    replicas: Annotated[int | None, F("Pods that are ready.")] = None
    selector: Annotated[str | None, F("Label selector of the pods, for autoscalers.")] = None
    phase: Annotated[
        str | None,
        F("Empty, Creating, Restoring, Running, Failed, Scaling, Upgrading, Rollbacking or Restarting."),
    ] = None
    reason: Annotated[str | None, F("What is in the way, for people.")] = None
    reason_type: Annotated[str | None, F("What is in the way, in a word.")] = None
    conditions: Annotated[list[NodeCondition] | None, F("One per redis node.")] = None
    formed_cluster_before: Annotated[bool | None, F("All slots have had an owner.")] = None
    history_reasons: Annotated[list[Any] | None, LATER] = None
    exporter_addr: Annotated[str | None, LATER] = None
    exporter_domain_name: Annotated[str | None, LATER] = None
    sentinel_phase: Annotated[str | None, LATER] = None
    sentinel_replicas: Annotated[int | None, LATER] = None
    sentinel_conditions: Annotated[list[Any] | None, LATER] = None
    collision_count: Annotated[int | None, LATER] = None
    leader: Annotated[str | None, F("The pod that leads a pair.")] = None
    slot_plan: Annotated[SlotPlan | None, F("A move of slots under way.")] = None
    autoscale: Annotated[
        AutoscaleStatus | None,
        F("The number of nodes that the load called for; absent without spec.autoscale."),
    ] = None
    keys: Annotated[KeyReportStatus | None, F("Large and busy keys; absent without spec.keyReport.")] = None
    retry: Annotated[Retry | None, F("A step that fails and is retried.")] = None
    last_data_loss: Annotated[DataLoss | None, F("What was lost with all pods of the cluster.")] = None
    users: Annotated[dict[str, UserResult] | None, F("What became of each declared user.")] = None
    other_users: Annotated[
        list[str] | None, F("Users that the servers have and the spec does not; they are left alone.")
    ] = None
    restore: Annotated[RestoreStatus | None, F("How the cluster got its first data.")] = None
    volumes: Annotated[list[VolumeStatus] | None, F("Claims that do not have the declared size.")] = None
    autogrow: Annotated[
        AutogrowStatus | None, F("How full the volumes are, where they grow by themselves.")
    ] = None
    observed_generation: Annotated[int | None, F("The generation this describes.")] = None
    standard_conditions: Annotated[list[meta.Condition] | None, F("Ready, Progressing and Stalled.")] = None


@crd(
    short_names=("rec",),
    columns=(
        PrinterColumn("Replicas", ".spec.replicas", type="integer", description="Declared nodes"),
        PrinterColumn("Ready", ".status.replicas", type="integer", description="Nodes that are ready"),
        PrinterColumn("Phase", ".status.phase", description="What the cluster is about"),
        PrinterColumn("Age", ".metadata.creationTimestamp", type="date"),
        PrinterColumn("Reason", ".status.reason", description="What is in the way", priority=1),
    ),
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    preserve_unknown=True,
)
class RedisCluster(Object, frozen=True, kw_only=True):
    """A Redis Cluster, or with two nodes a master and its replica."""

    resource: ClassVar[Resource] = Resource(
        "redis.middleware.hc.cn", "v1alpha1", "RedisCluster", "redisclusters", True
    )

    spec: RedisClusterSpec | None = None
    status: RedisClusterStatus | None = None


def pod_of(spec: RedisClusterSpec) -> RedisClusterPod:
    """The redis instances; an empty one when there is none."""
    return next(iter(spec.pod or ()), RedisClusterPod())


def image_of(spec: RedisClusterSpec) -> str:
    """The redis image, or "" when none is named."""
    given = pod_of(spec).middleware_image
    if given:
        return given
    return f"{spec.repository}:{spec.version}" if spec.repository and spec.version else ""


def volumes_of(spec: RedisClusterSpec) -> Volumes | None:
    """Where the data is stored, in the pod's entry or beside it."""
    return pod_of(spec).volumes or spec.volumes


def pipeline_of(spec: RedisClusterSpec) -> int:
    """Keys moved at once."""
    text = (spec.update_strategy.pipeline if spec.update_strategy else None) or "10"
    return int(text) if text.isdigit() and int(text) > 0 else 10


def rate_of(cluster: RedisCluster) -> float:
    """Bytes of keys that are moved in a second at most; 0: no limit. `ValueError` where it is no such quantity."""
    text = (cluster.metadata.annotations or {}).get(RATE_ANNOTATION)
    if text is None:
        return 0.0
    if (rate := float(parse_quantity(text))) < SLOWEST:
        raise ValueError(f"{text!r} is less than 1Mi")
    return rate


def size_of(spec: RedisClusterSpec, status: RedisClusterStatus) -> int:
    """The number of nodes that counts: the declared one, or the one that the load called for; 0 for none."""
    return in_force(spec.autoscale, status.autoscale, spec.replicas or 0)


def password_of(spec: RedisClusterSpec) -> str:
    """The password, "" for none."""
    return pod_of(spec).requirepass or ""


def status_of(part: object) -> RedisClusterStatus:
    """The status, or an empty one while there is none."""
    return part if isinstance(part, RedisClusterStatus) else RedisClusterStatus()


def masters_of(nodes: int) -> int:
    """How many of the nodes are masters; the one over in an odd total is a further replica."""
    return nodes // 2
