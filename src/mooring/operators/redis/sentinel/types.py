"""The custom resource ``redis.kun/v1beta1`` RedisCluster: UCloud's API, complete, and what we add to it.

Names, defaults and condition texts of UCloud's fields stay, ``toleRations`` too. New fields are
``passwordSecret`` and everything in ``status`` but ``conditions``, ``masterIP`` and ``sentinelIP``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Final

from msgspec import field
from msgspec.structs import replace

from mooring.kube.object import Object, Resource
from mooring.kube.objects import core
from mooring.kube.part import Part
from mooring.operators.backup.types import RestoreFrom, RestoreStatus
from mooring.operators.redis.sentinel.lineage import Lineage
from mooring.operators.redis.tls import Ports, TlsProgress, TlsSpec
from mooring.operators.redis.users.types import DefaultUserSpec, UserResult, UserSpec
from mooring.operators.workload.autogrow import AutogrowSpec, AutogrowStatus
from mooring.operators.workload.configuration import ConfigResult
from mooring.operators.workload.network import NetworkAccess
from mooring.operators.workload.overlay import PodTemplate
from mooring.operators.workload.rollout import TIME, Roll
from mooring.operators.workload.services import ServiceSpec
from mooring.operators.workload.volumes import VolumeStatus
from mooring.runtime.crd import F, PrinterColumn, Rule, Scale, at_most_one_of, crd, rules

__all__ = [
    "DISCARD_ANNOTATION",
    "DOT_MESSAGE",
    "ELECT_ANNOTATION",
    "NAME_LIMIT",
    "PAUSE_ANNOTATION",
    "SENTINEL_MESSAGE",
    "SIZE_MESSAGE",
    "LastFailover",
    "LegacyCondition",
    "NodeStatus",
    "Operation",
    "PasswordChange",
    "RedisCluster",
    "RedisClusterSpec",
    "RedisClusterStatus",
    "RedisExporter",
    "RedisStorage",
    "RoleServices",
    "SecretKey",
    "SentinelSettings",
    "SentinelStatus",
    "SentinelTls",
    "spec_of",
]

DEFAULT_IMAGE: Final = "redis:5.0.4-alpine"
ELECT_ANNOTATION: Final = "mooring.dev/elect-master"
DISCARD_ANNOTATION: Final = "mooring.dev/discard-data"
PAUSE_ANNOTATION: Final = "mooring.dev/pause"
NAME_LIMIT: Final = 48
SIZE_MESSAGE: Final = "number of redis in spec is less than the minimum"
DOT_MESSAGE: Final = "metadata.name has a dot, and the cluster's Services could not be named after it"
SENTINEL_MESSAGE: Final = "number of sentinels in spec is less than the minimum"


class SecretKey(Part, frozen=True, kw_only=True):
    """One key of a Secret in the cluster's namespace."""

    name: Annotated[str | None, F("Name of the Secret.", required=True, min_length=1, max_length=253)] = None
    key: Annotated[str | None, F("Key in it.", default="password", max_length=253)] = None


@rules(
    at_most_one_of(
        "emptyDir",
        "persistentVolumeClaim",
        message="storage.emptyDir and persistentVolumeClaim exclude each other",
    ),
    Rule(
        "!(has(self.keepAfterDeletion) && self.keepAfterDeletion && has(self.emptyDir))",
        "storage.keepAfterDeletion needs a persistentVolumeClaim; an emptyDir goes with its pod",
    ),
)
class RedisStorage(Part, frozen=True, kw_only=True):
    """Where the data is stored; without it in an emptyDir."""

    keep_after_deletion: Annotated[
        bool | None,
        F(
            "Claims stay when the cluster is deleted, and serve the next of that name. Only a written false deletes."
        ),
    ] = None
    empty_dir: Annotated[core.EmptyDirVolumeSource | None, F("An emptyDir with these settings.")] = None
    persistent_volume_claim: Annotated[
        core.PersistentVolumeClaim | None,
        F("The claim made for every redis pod; its metadata.name names the volume."),
    ] = None
    autogrow: Annotated[AutogrowSpec | None, F("The claims grow by themselves when they fill up.")] = None


class RedisExporter(Part, frozen=True, kw_only=True):
    """A Prometheus exporter beside every redis server, on port 9121."""

    enabled: Annotated[bool | None, F("Whether there is one.")] = None
    image: Annotated[str | None, F("Its image; there is no default.", max_length=500)] = None
    image_pull_policy: Annotated[str | None, F("Always, IfNotPresent or Never.")] = None


class SentinelSettings(Part, frozen=True, kw_only=True):
    """The sentinels."""

    image: Annotated[str | None, F(f"Default {DEFAULT_IMAGE}.")] = None
    image_pull_policy: Annotated[str | None, F("Always, IfNotPresent or Never.")] = None
    image_pull_secrets: Annotated[list[core.LocalObjectReference] | None, F("Secrets for its registry.")] = (
        None
    )
    replicas: Annotated[
        int | None,
        F(
            "How many; 0 or absent means 3.",
            minimum=0,
            maximum=15,
            rules=(Rule("self == 0 || self >= 3", SENTINEL_MESSAGE + " (3)"),),
        ),
    ] = None
    resources: Annotated[core.ResourceRequirements | None, F("Default 20m/16Mi, at most 100m/60Mi.")] = None
    custom_config: Annotated[
        list[Annotated[str, F(max_length=500)]] | None,
        F('"parameter value" for SENTINEL SET, as "down-after-milliseconds 5000".', max_items=50),
    ] = None
    command: Annotated[
        list[str] | None, F("Replaces the command line; it finds /mooring/run/sentinel.conf.")
    ] = None
    affinity: Annotated[core.Affinity | None, F("Default: apart from each other where possible.")] = None
    security_context: Annotated[core.PodSecurityContext | None, F("Of the pods.")] = None
    tolerations: Annotated[list[core.Toleration] | None, F("Of the pods.")] = None
    node_selector: Annotated[dict[str, str] | None, F("Of the pods.")] = None
    annotations: Annotated[dict[str, str] | None, F("Of the pods.")] = None
    pod_template: Annotated[
        PodTemplate | None, F("What is added to the pods of the sentinels; see docs/redis-sentinel.md.")
    ] = None


class SentinelTls(TlsSpec, frozen=True, kw_only=True):
    """Encrypted connections: of clients, between servers, and of sentinels."""

    plain_ports: Annotated[
        bool | None,
        F("Keep the ports without TLS (6379, sentinels 26379) open for clients that do not use it yet."),
    ] = None

    @property
    def ports(self) -> Ports:
        """Which ports are to be open."""
        if not self.enabled:
            return "plain"
        return "both" if self.plain_ports else "tls"


class RoleServices(Part, frozen=True, kw_only=True):
    """The Services that clients connect to without asking sentinels."""

    master: Annotated[ServiceSpec | None, F("redis-master-NAME: the pod that leads.")] = None
    replica: Annotated[ServiceSpec | None, F("redis-replica-NAME: the pods that follow.")] = None


@rules(
    at_most_one_of(
        "password", "passwordSecret", message="give spec.password or spec.passwordSecret, not both"
    ),
    Rule(
        "!has(self.restoreFrom) || has(oldSelf.restoreFrom)",
        "spec.restoreFrom is for new clusters; create another one with it",
    ),
    Rule(
        "!has(self.restoreFrom) || (has(self.storage) && has(self.storage.persistentVolumeClaim))",
        "spec.restoreFrom fills a claim; declare spec.storage.persistentVolumeClaim",
    ),
)
class RedisClusterSpec(Part, frozen=True, kw_only=True):
    """The declared cluster."""

    size: Annotated[
        int | None, F("Number of redis servers, one of them the master.", minimum=3, maximum=10, default=3)
    ] = None
    resources: Annotated[core.ResourceRequirements | None, F("Of the redis containers.")] = None
    image: Annotated[str | None, F(f"Default {DEFAULT_IMAGE}.")] = None
    image_pull_policy: Annotated[str | None, F("Always, IfNotPresent or Never; default Always.")] = None
    image_pull_secrets: Annotated[list[core.LocalObjectReference] | None, F("Secrets for the registry.")] = (
        None
    )
    command: Annotated[
        list[str] | None,
        F("Replaces the redis-server command line; the start gate's arguments are appended."),
    ] = None
    shutdown_config_map: Annotated[
        str | None,
        F("A ConfigMap with a key shutdown.sh that runs before a pod stops; it must exist.", max_length=253),
    ] = None
    storage: Annotated[RedisStorage | None, F("Where the data is stored.")] = None
    password: Annotated[str | None, F("In clear text; passwordSecret is better.", max_length=48)] = None
    tls: Annotated[SentinelTls | None, F("Encrypted connections; absent: none.")] = None
    services: Annotated[RoleServices | None, F("Types of the Services by role.")] = None
    network_policy: Annotated[NetworkAccess | None, F("Who may connect; absent: everybody.")] = None
    password_secret: Annotated[SecretKey | None, F("The password, from a Secret; it is copied.")] = None
    password_grace_seconds: Annotated[
        int | None,
        F(
            "How long the old password stays valid after a new one was published.",
            minimum=0,
            maximum=604800,
            default=60,
        ),
    ] = None
    users: Annotated[
        list[UserSpec] | None, F("ACL users, on every server as they are declared.", max_items=100)
    ] = None
    default_user: Annotated[DefaultUserSpec | None, F("The user of clients that name none.")] = None
    exporter: Annotated[RedisExporter | None, F("Metrics of every server.")] = None
    affinity: Annotated[core.Affinity | None, F("Default: apart from each other where possible.")] = None
    security_context: Annotated[core.PodSecurityContext | None, F("Of the pods.")] = None
    node_selector: Annotated[dict[str, str] | None, F("Of the pods.")] = None
    tole_rations: Annotated[list[core.Toleration] | None, F("Of the pods; spelled as it always was.")] = None
    config: Annotated[
        dict[str, str] | None,
        F("redis.conf keys, changed live where the server allows it.", max_properties=1000),
    ] = None
    config_policy: Annotated[
        str | None,
        F(
            "Keys that are read at start only: report says so and leaves them to the next roll, roll begins one.",
            enum=("report", "roll"),
            default="report",
        ),
    ] = None
    annotations: Annotated[dict[str, str] | None, F("Of the redis pods.")] = None
    disable_persistence: Annotated[bool | None, F("No append-only file and no snapshots.")] = None
    sentinel: Annotated[SentinelSettings | None, F("The sentinels.")] = None
    pod_template: Annotated[
        PodTemplate | None, F("What is added to the pods of the servers; see docs/redis-sentinel.md.")
    ] = None
    restore_from: Annotated[
        RestoreFrom | None,
        F("The backup that a new cluster begins with. Of no effect once it did."),
    ] = None


class LegacyCondition(Part, frozen=True, kw_only=True):
    """One entry of the list: UCloud's, newest first and never cleared, then Ready, Progressing and Stalled."""

    type: Annotated[str | None, F("Healthy, Creating, Scaling ..., or Ready, Progressing, Stalled.")] = None
    status: Annotated[str | None, F("True, False or Unknown.")] = None
    last_update_time: Annotated[str | None, F("When it last became true.")] = None
    last_transition_time: Annotated[str | None, F("When its status last changed.")] = None
    observed_generation: Annotated[int | None, F("The generation it speaks of.")] = None
    reason: Annotated[str | None, F("In a word.")] = None
    message: Annotated[str | None, F("For people.")] = None


class NodeStatus(Part, frozen=True, kw_only=True):
    """One redis pod."""

    name: Annotated[str, F("The pod.")] = ""
    role: Annotated[str, F("master, replica, or empty while unknown.")] = ""
    state: Annotated[str, F("Online, Synchronising, Gated, Loading, SetAside or Unreachable.")] = ""
    ip: Annotated[str, F("Its address.")] = ""
    node: Annotated[str, F("The node it runs on.")] = ""
    version: Annotated[str, F("The server's version.")] = ""
    reason: Annotated[str, F("What is in the way.")] = ""
    since: Annotated[str, F("Since when it is in this state.", format="date-time")] = ""


class SentinelStatus(Part, frozen=True, kw_only=True):
    """One sentinel pod."""

    name: Annotated[str, F("The pod.")] = ""
    state: Annotated[str, F("Watching, Learning, Idle, Astray or Unreachable.")] = ""
    ip: Annotated[str, F("Its address.")] = ""
    reason: Annotated[str, F("What is in the way.")] = ""
    since: Annotated[str, F("Since when it is in this state.", format="date-time")] = ""


class Operation(Part, frozen=True, kw_only=True):
    """A sequence under way that cannot be derived again; recorded before its first effect."""

    kind: Annotated[str, F("Promote, FailOver or Switch.")] = ""
    subject: Annotated[str, F("The pod to promote, the dead master, or the master to relieve.")] = ""
    since: Annotated[datetime | None, F("When it began.", schema=TIME)] = None
    why: Annotated[str, F("The reason.")] = ""
    fence: Annotated[str, F("The min-slaves-to-write to put back after a switch below 6.2.")] = ""


class LastFailover(Part, frozen=True, kw_only=True):
    """What happened the last time another server became master."""

    at: Annotated[datetime | None, F("When.", schema=TIME)] = None
    old: Annotated[str, F("The pod that led before.")] = ""
    new: Annotated[str, F("The pod that leads since.")] = ""
    cause: Annotated[str, F("MasterDied, MasterUnreachable, Planned or SentinelDecided.")] = ""
    choice: Annotated[str, F("Why this one and not another.")] = ""
    gap_seconds: Annotated[float, F("From the old master's end to the record of the new one.")] = 0.0
    loss_bound: Annotated[str, F("What may be lost at most.")] = ""
    lost_bytes: Annotated[
        int | None,
        F(
            "Bytes of writes that the old master had and the new one had not, measured when the old one was made to "
            "follow; absent where it could not be asked, such as after a restart."
        ),
    ] = None


class PasswordChange(Part, frozen=True, kw_only=True):
    """Where a change of the password stands; the passwords themselves are in the cluster's Secret alone."""

    phase: Annotated[str, F("Announced, or BothValid while the old and the new one are.")] = ""
    since: Annotated[datetime | None, F("Since when.", schema=TIME)] = None


class RedisClusterStatus(Part, frozen=True, kw_only=True):
    """What was observed; ``conditions``, ``masterIP`` and ``sentinelIP`` as UCloud declared them."""

    conditions: Annotated[
        list[LegacyCondition] | None, F("Newest first; the first is the Status column.")
    ] = None
    master_ip: Annotated[str | None, F("Address of the master.")] = field(default=None, name="masterIP")
    sentinel_ip: Annotated[str | None, F("Address of the sentinels' Service.")] = field(
        default=None, name="sentinelIP"
    )
    observed_generation: Annotated[int | None, F("The generation this describes.")] = None
    master: Annotated[str | None, F("Pod of the master.")] = None
    replicas: Annotated[list[str] | None, F("Pods in sync with it.")] = None
    nodes: Annotated[list[NodeStatus] | None, F("Every redis pod.")] = None
    sentinels: Annotated[list[SentinelStatus] | None, F("Every sentinel pod.")] = None
    lineage: Annotated[Lineage | None, F("Whose data is the cluster's.")] = None
    operation: Annotated[Operation | None, F("A fail-over or promotion under way.")] = None
    last_failover: Annotated[LastFailover | None, F("The last change of master.")] = None
    config: Annotated[dict[str, ConfigResult] | None, F("What became of each key of spec.config.")] = None
    password: Annotated[PasswordChange | None, F("A change of the password under way.")] = None
    users: Annotated[dict[str, UserResult] | None, F("What became of each declared user.")] = None
    other_users: Annotated[
        list[str] | None, F("Users that the servers have and the spec does not; they are left alone.")
    ] = None
    tls: Annotated[TlsProgress | None, F("Where turning TLS on or off stands.")] = None
    rolls: Annotated[dict[str, Roll] | None, F("Roll-outs under way or stopped, by component.")] = None
    size: Annotated[int | None, F("Redis pods there are.")] = None
    selector: Annotated[str | None, F("Label selector of the redis pods.")] = None
    restore: Annotated[RestoreStatus | None, F("How the cluster got its first data.")] = None
    volumes: Annotated[list[VolumeStatus] | None, F("Claims that do not have the declared size.")] = None
    autogrow: Annotated[
        AutogrowStatus | None, F("How full the volumes are, where they grow by themselves.")
    ] = None
    quarantined: Annotated[list[str] | None, F("Claims whose foreign data is kept from being replaced.")] = (
        None
    )


@crd(
    columns=(
        PrinterColumn(
            "Size", ".spec.size", type="integer", description="The number of Redis node in the ensemble"
        ),
        # UCloud prints the first condition; before the first pass, that may be one which is False.
        PrinterColumn(
            "Status",
            '.status.conditions[?(@.status=="True")].type',
            description="The newest condition that is True",
        ),
        PrinterColumn("Age", ".metadata.creationTimestamp", type="date"),
        PrinterColumn(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            description="Whether the master takes writes and the sentinels name it",
        ),
        PrinterColumn(
            "Reason",
            '.status.conditions[?(@.type=="Progressing")].reason',
            description="What is under way or in the way; InSync at rest",
        ),
        PrinterColumn("Master", ".status.master", description="Pod of the master", priority=1),
    ),
    scale=Scale(".spec.size", ".status.size", ".status.selector"),
    rules=(
        Rule(
            f"size(self.metadata.name) <= {NAME_LIMIT}",
            f"metadata.name is longer than {NAME_LIMIT} characters",
        ),
        Rule("!self.metadata.name.contains('.')", DOT_MESSAGE),
    ),
    preserve_unknown=True,
)
class RedisCluster(Object, frozen=True, kw_only=True):
    """A Redis master with replicas, watched over by sentinels."""

    resource: ClassVar[Resource] = Resource("redis.kun", "v1beta1", "RedisCluster", "redisclusters", True)

    spec: RedisClusterSpec | None = None
    status: RedisClusterStatus | None = None


def spec_of(cluster: RedisCluster) -> RedisClusterSpec:
    """The spec with the defaults that code relies on: sizes and images."""
    spec = cluster.spec or RedisClusterSpec()
    sentinel = spec.sentinel or SentinelSettings()
    return replace(
        spec,
        size=spec.size or 3,
        image=spec.image or DEFAULT_IMAGE,
        image_pull_policy=spec.image_pull_policy or "Always",
        storage=spec.storage or RedisStorage(),
        sentinel=replace(
            sentinel,
            replicas=sentinel.replicas or 3,
            image=sentinel.image or DEFAULT_IMAGE,
            image_pull_policy=sentinel.image_pull_policy or "Always",
        ),
    )
