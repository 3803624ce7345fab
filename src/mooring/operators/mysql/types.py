"""The custom resource ``mysql.mooring.dev/v1alpha1`` MySQLCluster: MySQL or MariaDB servers, one of which leads.

``size`` and ``image`` alone give a correct highly available cluster; the tutorial's ``example.com/v1`` MySQLCluster is
served as a kind of its own with the same spec and status (`compatible`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final

from mooring.kube.object import Object, Resource
from mooring.kube.objects import core, meta
from mooring.kube.part import Part
from mooring.objectstore import Target
from mooring.operators.backup.types import RestoreFrom, RestoreStatus
from mooring.operators.mysql.names import BACKUP, MONITOR, NAME_LIMIT, OPERATOR_USER, REPLICATION
from mooring.operators.workload.autogrow import AutogrowSpec, AutogrowStatus
from mooring.operators.workload.autoscale import AutoscaleSpec, AutoscaleStatus, autoscale_rules, in_force
from mooring.operators.workload.configuration import ConfigResult
from mooring.operators.workload.overlay import PodTemplate
from mooring.operators.workload.retries import Failure
from mooring.operators.workload.rollout import TIME, Roll
from mooring.operators.workload.services import ServiceSpec
from mooring.operators.workload.volumes import VolumeStatus
from mooring.runtime.crd import F, PrinterColumn, Rule, Scale, crd, rules

__all__ = [
    "AUTOSCALE_TYPES",
    "COLUMNS",
    "DEFAULT_IMAGE",
    "LEAST_BY_LOAD",
    "MOST",
    "NAME_RULES",
    "RESERVED_USERS",
    "SCALE",
    "AccountResult",
    "ArchiveGap",
    "ArchiveSpec",
    "ArchiveStatus",
    "DurabilitySpec",
    "Instance",
    "MySQLCluster",
    "MySQLClusterSpec",
    "MySQLClusterStatus",
    "MySQLRestoreStatus",
    "Operation",
    "PointInTime",
    "Promotion",
    "RestoreFromSpec",
    "TuningRecommendation",
    "TuningResult",
    "TuningSample",
    "TuningStatus",
    "TuningTrial",
    "size_of",
]

DEFAULT_IMAGE: Final = "mariadb:10.11"
RESERVED_USERS: Final = ("root", "mysql", "mariadb.sys", OPERATOR_USER, REPLICATION, MONITOR, BACKUP)
"""Accounts that nobody declares: the servers' and the operator's own."""
AUTOSCALE_TYPES: Final = ("Connections", "ConnectionsPercent", "ReadsPerSecond", "CPU")
"""What can be measured: averages of the replicas, see docs/mysql.md."""
LEAST_BY_LOAD: Final = 2
"""Servers at least while the load decides: the primary, and one replica whose load is measured."""
MOST: Final = 9
"""Servers at most."""


@rules(
    Rule(
        "!(has(self.emptyDir) && has(self.storageClass))",
        "emptyDir and storageClass exclude each other; remove one",
    )
)
class Storage(Part, frozen=True, kw_only=True):
    """Where the data is stored."""

    size: Annotated[str | None, F("Of the claim made for every pod; it can grow.", default="1Gi")] = None
    storage_class: Annotated[str | None, F("Its storage class; default: the cluster's.", max_length=253)] = (
        None
    )
    keep_after_deletion: Annotated[
        bool | None,
        F(
            "Claims stay when the cluster is deleted and serve the next one of that name. Only a written false deletes."
        ),
    ] = None
    empty_dir: Annotated[
        core.EmptyDirVolumeSource | None, F("An emptyDir instead of claims: the data of a pod goes with it.")
    ] = None
    autogrow: Annotated[AutogrowSpec | None, F("The claims grow by themselves when they fill up.")] = None


class DurabilitySpec(Part, frozen=True, kw_only=True):
    """What an acknowledged write is worth."""

    mode: Annotated[
        str | None,
        F(
            "Strict: a write is acknowledged once another server has it; without one, writes wait. Available: writes go on "
            "alone when no other server acknowledges for a while, said in status first. Async: they never wait.",
            enum=("Strict", "Available", "Async"),
            default="Strict",
        ),
    ] = None
    max_lag_seconds: Annotated[
        int | None,
        F("Replicas further behind leave the replicas' Service.", minimum=1, maximum=86400, default=30),
    ] = None


class FailoverSpec(Part, frozen=True, kw_only=True):
    """When another server takes over, and what becomes of one that differs."""

    detect_seconds: Annotated[
        int | None,
        F("A primary that answers nothing for so long is replaced.", minimum=2, maximum=600, default=4),
    ] = None
    on_divergence: Annotated[
        str | None,
        F(
            "A server with transactions that the cluster does not have: Reclone saves them and copies the data again, Hold leaves it.",
            enum=("Reclone", "Hold"),
            default="Reclone",
        ),
    ] = None


class TlsSpec(Part, frozen=True, kw_only=True):
    """Encrypted connections."""

    secret_name: Annotated[
        str | None,
        F("A Secret with tls.crt, tls.key and ca.crt; without it the operator makes certificates."),
    ] = None
    required: Annotated[bool | None, F("Clients without TLS are refused.")] = None


class SecretKey(Part, frozen=True, kw_only=True):
    """One key of a Secret in the cluster's namespace."""

    name: Annotated[str | None, F("Name of the Secret.", required=True, min_length=1, max_length=253)] = None
    key: Annotated[str | None, F("Key in it.", default="password", max_length=253)] = None


@rules(
    Rule(
        f"!(self.name in {[*RESERVED_USERS]})",
        "this account is the operator's own; choose another name",
    )
)
class User(Part, frozen=True, kw_only=True):
    """An account that the operator keeps as it is declared."""

    name: Annotated[str, F("Its name.", required=True, min_length=1, max_length=32)] = ""
    host: Annotated[str | None, F("From where it may connect.", default="%", max_length=255)] = None
    password_secret: Annotated[SecretKey | None, F("Its password.", required=True)] = None
    grants: Annotated[
        list[Annotated[str, F(max_length=500)]] | None,
        F('As after GRANT and before TO: "ALL PRIVILEGES ON shop.*".', max_items=50),
    ] = None
    require_tls: Annotated[bool | None, F("It may connect by TLS only.")] = None


class Database(Part, frozen=True, kw_only=True):
    """A database that the operator creates; it never drops one."""

    name: Annotated[str, F("Its name.", required=True, min_length=1, max_length=64)] = ""
    character_set: Annotated[str | None, F("Default utf8mb4.", max_length=32)] = None
    collation: Annotated[str | None, F("Default: that of the character set.", max_length=64)] = None


class Services(Part, frozen=True, kw_only=True):
    """The Services that clients connect to."""

    primary: Annotated[ServiceSpec | None, F("NAME-primary: the pod that leads.")] = None
    replicas: Annotated[ServiceSpec | None, F("NAME-replicas: replicas that are not behind.")] = None


class PodSettings(Part, frozen=True, kw_only=True):
    """What is added to the pods."""

    labels: Annotated[dict[str, str] | None, F("Further labels.")] = None
    annotations: Annotated[dict[str, str] | None, F("Further annotations.")] = None
    node_selector: Annotated[dict[str, str] | None, F("Nodes they may run on.")] = None
    tolerations: Annotated[list[core.Toleration] | None, F("Taints they tolerate.")] = None
    affinity: Annotated[core.Affinity | None, F("Default: apart from each other where possible.")] = None
    priority_class_name: Annotated[str | None, F("Their priority.")] = None
    service_account_name: Annotated[str | None, F("Their account.")] = None
    security_context: Annotated[core.PodSecurityContext | None, F("Of the pods.")] = None


class Maintenance(Part, frozen=True, kw_only=True):
    """What a person asks for by hand."""

    paused: Annotated[
        bool | None, F("The operator does nothing, as with the annotation mooring.dev/pause.")
    ] = None
    read_only: Annotated[bool | None, F("No server takes writes.")] = None
    fenced: Annotated[
        list[str] | None, F("Pods that are kept from serving and leading; * for all.", max_items=9)
    ] = None


class Exporter(Part, frozen=True, kw_only=True):
    """A Prometheus exporter beside every server, on port 9104."""

    enabled: Annotated[bool | None, F("Whether there is one.")] = None
    image: Annotated[str | None, F("Its image.", default="prom/mysqld-exporter:v0.15.1", max_length=500)] = (
        None
    )


@rules(Rule("has(self.gtid) != has(self.time)", "name either a gtid or a time"))
class PointInTime(Part, frozen=True, kw_only=True):
    """The moment at which a new cluster begins: the backup, continued from the archive of its cluster."""

    gtid: Annotated[
        str | None,
        F(
            "The last transaction: 0-1-1000 (MariaDB) or UUID:1000 (MySQL).",
            min_length=1,
            max_length=120,
        ),
    ] = None
    time: Annotated[
        datetime | None,
        F(
            "The last moment, in UTC unless it names a zone; what was committed later is left out.",
            schema=TIME,
        ),
    ] = None
    allow_gap: Annotated[
        bool | None, F("Go on across transactions that are missing in the archive. Default: refused.")
    ] = None

    @property
    def moment(self) -> datetime | None:
        """``time`` with its zone."""
        if self.time is None or self.time.tzinfo is not None:
            return self.time
        return self.time.replace(tzinfo=UTC)


@rules(
    Rule(
        "(has(self.backup) ? 1 : 0) + (has(self.target) && has(self.prefix) ? 1 : 0) + (has(self.cluster) ? 1 : 0) == 1",
        "name either a backup, or a target and the prefix in it, or a cluster",
    ),
    Rule("!has(self.cluster) || has(self.pointInTime)", "with cluster, say in pointInTime where to end"),
)
class RestoreFromSpec(RestoreFrom, frozen=True, kw_only=True):
    """The backup that a new cluster begins with; see docs/mysql.md."""

    cluster: Annotated[
        str | None,
        F(
            "A MySQLCluster of the namespace, or one that was there: its newest backup before pointInTime is used.",
            min_length=1,
            max_length=63,
        ),
    ] = None
    point_in_time: Annotated[
        PointInTime | None,
        F(
            "Continue the backup up to here from the archive in the same target. Default: it ends where the backup does."
        ),
    ] = None


class ArchiveSpec(Part, frozen=True, kw_only=True):
    """The continuous archive of the binary log."""

    target: Annotated[
        Target | None, F("Where it is stored; best the target of the backups.", required=True)
    ] = None
    interval_seconds: Annotated[
        int | None,
        F(
            "Transactions are stored after so many seconds, and after 16 MiB of them.",
            minimum=1,
            maximum=3600,
            default=10,
        ),
    ] = None
    prune: Annotated[
        bool | None,
        F(
            "Delete what is older than the oldest backup of this cluster in the same target. Default: all is kept."
        ),
    ] = None
    resources: Annotated[core.ResourceRequirements | None, F("Of the container that archives.")] = None


@rules(
    Rule(
        "!has(self.restoreFrom) || has(oldSelf.restoreFrom)",
        "spec.restoreFrom is for new clusters; create another one with it",
    ),
    *autoscale_rules("spec.size", AUTOSCALE_TYPES, least=LEAST_BY_LOAD, most=MOST),
)
class MySQLClusterSpec(Part, frozen=True, kw_only=True):
    """The declared cluster."""

    size: Annotated[
        int | None, F("Number of servers, one of them the primary.", minimum=1, maximum=MOST, default=3)
    ] = None
    autoscale: Annotated[
        AutoscaleSpec | None,
        F(
            "The load of the replicas chooses the number of servers, in place of size. Metrics: Connections, "
            "ConnectionsPercent, ReadsPerSecond, or CPU in percent of its request (needs metrics-server)."
        ),
    ] = None
    image: Annotated[str | None, F("A MariaDB or MySQL image.", default=DEFAULT_IMAGE, max_length=500)] = None
    flavor: Annotated[
        str | None,
        F(
            "Which of the two it is; auto: told from the image's name.",
            enum=("auto", "mysql", "mariadb"),
            default="auto",
        ),
    ] = None
    image_pull_policy: Annotated[str | None, F("Always, IfNotPresent or Never.")] = None
    image_pull_secrets: Annotated[list[core.LocalObjectReference] | None, F("Secrets for the registry.")] = (
        None
    )
    storage: Annotated[Storage | None, F("Where the data is stored.")] = None
    durability: Annotated[DurabilitySpec | None, F("What an acknowledged write is worth.")] = None
    failover: Annotated[FailoverSpec | None, F("When another server takes over.")] = None
    config: Annotated[
        dict[str, str] | None,
        F("Keys of my.cnf, changed live where the server allows it.", max_properties=1000),
    ] = None
    config_policy: Annotated[
        str | None,
        F(
            "Keys that are read at start only: roll restarts servers for them, report leaves them to the next roll.",
            enum=("report", "roll"),
            default="roll",
        ),
    ] = None
    resources: Annotated[core.ResourceRequirements | None, F("Of the database containers.")] = None
    tuning: Annotated[
        str | None,
        F(
            "Static: sizes from the memory limit. Off: the server's own defaults. Recommend: Static, and what the servers' "
            "counters ask for in status. Auto: such changes are tried, and kept where they help.",
            enum=("Off", "Static", "Recommend", "Auto"),
            default="Static",
        ),
    ] = None
    tuning_window_seconds: Annotated[
        int | None,
        F("How long Recommend and Auto measure.", minimum=5, maximum=86400, default=300),
    ] = None
    restore_from: Annotated[
        RestoreFromSpec | None,
        F("The backup that a new cluster begins with. Of no effect once it did."),
    ] = None
    archive: Annotated[
        ArchiveSpec | None,
        F("Archive the binary log as it is written, so that a new cluster can begin at any moment."),
    ] = None
    credentials_secret: Annotated[
        str | None,
        F("A Secret of yours with root-password; the operator's own accounts stay in NAME-credentials."),
    ] = None
    tls: Annotated[TlsSpec | None, F("Encrypted connections; absent: as the image has it.")] = None
    users: Annotated[list[User] | None, F("Accounts.", max_items=100, list_map_keys=("name", "host"))] = None
    databases: Annotated[list[Database] | None, F("Databases.", max_items=100, list_map_keys=("name",))] = (
        None
    )
    pod: Annotated[
        PodSettings | None, F("What is added to the pods, in short; podTemplate can add more.")
    ] = None
    pod_template: Annotated[PodTemplate | None, F("What is added to the pods; see docs/mysql.md.")] = None
    services: Annotated[Services | None, F("The Services.")] = None
    maintenance: Annotated[Maintenance | None, F("What a person asks for by hand.")] = None
    exporter: Annotated[Exporter | None, F("Metrics of every server.")] = None
    update_strategy: Annotated[
        str | None,
        F(
            "RollingUpdate: a change of the pods is rolled out. OnDelete: pods are left until somebody deletes them.",
            enum=("RollingUpdate", "OnDelete"),
            default="RollingUpdate",
        ),
    ] = None


class Instance(Part, frozen=True, kw_only=True):
    """One pod."""

    name: Annotated[str, F("The pod.")] = ""
    role: Annotated[str, F("primary, replica, or empty while unknown.")] = ""
    state: Annotated[
        str, F("Online, CatchingUp, Starting, AtGate, Seeding, Diverged, Fenced, Broken or Unreachable.")
    ] = ""
    version: Annotated[str, F("The server's version.")] = ""
    reason: Annotated[str, F("What is in the way.")] = ""
    since: Annotated[datetime | None, F("Since when it is in this state.", schema=TIME)] = None


class Promotion(Part, frozen=True, kw_only=True):
    """One change of the primary."""

    term: Annotated[int, F("Counts the primaries.")] = 0
    pod: Annotated[str, F("The new primary.")] = ""
    old: Annotated[str, F("The one before.")] = ""
    at: Annotated[datetime | None, F("When it was recorded.", schema=TIME)] = None
    cause: Annotated[str, F("Founded, Died, Unreachable, Planned or Chosen.")] = ""
    position: Annotated[str, F("What it had executed when it began to lead.")] = ""
    gap_seconds: Annotated[
        float, F("From the end of the old primary, as far as it was seen, to the new one.")
    ] = 0.0


class Operation(Part, frozen=True, kw_only=True):
    """A sequence under way that cannot be derived again; recorded before its first effect."""

    kind: Annotated[str, F("Found, FailOver or Switch.")] = ""
    subject: Annotated[str, F("The pod that is to lead; empty while it is not chosen.")] = ""
    old: Annotated[str, F("The pod that led.")] = ""
    since: Annotated[datetime | None, F("When it began.", schema=TIME)] = None
    why: Annotated[str, F("The reason.")] = ""
    position: Annotated[str, F("What the new primary must have before it may lead.")] = ""


class TailCut(Part, frozen=True, kw_only=True):
    """Where the binary log of an old primary is to be cut before it starts again: nothing after was acknowledged."""

    file: Annotated[str, F("The binlog file.")] = ""
    position: Annotated[int, F("The byte.")] = 0


class StandStill(Part, frozen=True, kw_only=True):
    """An applier that waits for its own idle threads."""

    at: Annotated[str, F("Digest of the transactions that the server had executed.")] = ""
    since: Annotated[datetime | None, F("When it was seen first.", schema=TIME)] = None


class Recorded(Part, frozen=True, kw_only=True):
    """What is known of one pod's data across its restarts."""

    volume: Annotated[str, F("UID of its claim, or of the pod on an emptyDir.")] = ""
    server_id: Annotated[int, F("Of its newest start.")] = 0
    start: Annotated[str, F("The container start which that was given to.")] = ""
    version: Annotated[str, F("The highest version that ran on it: no lower one is started.")] = ""
    cut: Annotated[TailCut | None, F("To be cut before the next start.")] = None
    joined: Annotated[bool, F("It has had the cluster's data; it is not empty.")] = False
    synced: Annotated[
        bool, F("Since its newest start it has caught up with the primary: what it acknowledged counts.")
    ] = False
    reseed: Annotated[str, F("Why its data is set aside and made again at its next start.")] = ""
    seeded: Annotated[
        list[datetime] | None,
        F("When that was done within the last hour.", schema={"type": "array", "items": TIME}),
    ] = None
    failed_starts: Annotated[int, F("Starts in a row after which its server never answered.")] = 0
    stands_still: Annotated[
        StandStill | None, F("Its applier waits for its own idle threads, and nothing is applied.")
    ] = None
    freed: Annotated[
        list[datetime] | None,
        F(
            "When its server was started again for that within the last hour.",
            schema={"type": "array", "items": TIME},
        ),
    ] = None


class AccountResult(Part, frozen=True, kw_only=True):
    """What became of a declared account or database, or of a password of the operator's own."""

    state: Annotated[str, F("Applied, Changing (two passwords count), SecretMissing, Differs or Failed.")] = (
        ""
    )
    message: Annotated[str, F("What is in the way, and the remedy.")] = ""
    since: Annotated[datetime | None, F("Since when.", schema=TIME)] = None
    used_by: Annotated[
        list[str] | None, F("Replicas that already connect with the new password, while it changes.")
    ] = None


class MySQLRestoreStatus(RestoreStatus, frozen=True, kw_only=True):
    """How a cluster got its first data, and where that ends."""

    transaction: Annotated[str | None, F("Of a point in time: the newest transaction in it.")] = None
    committed_at: Annotated[datetime | None, F("When that was committed.", schema=TIME)] = None


class ArchiveGap(Part, frozen=True, kw_only=True):
    """Transactions that the servers no longer had when they were to be archived."""

    after: Annotated[str, F("The last position before it.")] = ""
    until: Annotated[str, F("The first position after it.")] = ""


class ArchiveStatus(Part, frozen=True, kw_only=True):
    """How far the archive is; written at most once a minute, and not while nothing is written to the cluster."""

    state: Annotated[str, F("Starting, Archiving, Stalled or Unreachable.")] = ""
    reason: Annotated[str, F("What is in the way: one word.")] = ""
    message: Annotated[str, F("The same in a sentence, with the remedy.")] = ""
    prefix: Annotated[str, F("Where it is in its target.")] = ""
    first_recoverable: Annotated[
        datetime | None,
        F("Backups made since then can be continued without a gap.", schema=TIME),
    ] = None
    last_recoverable: Annotated[
        datetime | None,
        F(
            "When the newest archived transaction was committed; while lagSeconds is small, every later moment can be restored too.",
            schema=TIME,
        ),
    ] = None
    position: Annotated[str, F("It has all transactions up to here.")] = ""
    lag_seconds: Annotated[
        int | None,
        F("It is at most so much behind the primary: 30, 60, 300, 900, 3600, 21600, 86400 or 604800."),
    ] = None
    gap: Annotated[ArchiveGap | None, F("The newest gap: no restore goes across it unless allowed.")] = None
    observed_at: Annotated[datetime | None, F("When this was so.", schema=TIME)] = None


class TuningSample(Part, frozen=True, kw_only=True):
    """What a server had counted when a measurement began."""

    server_id: Annotated[int, F("Of that start of the server.")] = 0
    at: Annotated[datetime | None, F("When.", schema=TIME)] = None
    counters: Annotated[dict[str, int] | None, F("By the operator's names.")] = None


class TuningRecommendation(Part, frozen=True, kw_only=True):
    """What the counters of a server ask for."""

    setting: Annotated[str, F("The operator's name of it.")] = ""
    variable: Annotated[str, F("The variable; one that belongs to it changes along.")] = ""
    pod: Annotated[str, F("The server with the strongest reason.")] = ""
    current: Annotated[int, F("Its value.")] = 0
    proposed: Annotated[int, F("The value to try.")] = 0
    permille: Annotated[int, F("The measured share, in thousandths; less is better.")] = 0
    evidence: Annotated[str, F("The numbers.")] = ""
    live: Annotated[bool, F("A running server takes it.")] = False
    held: Annotated[str, F("Why it is not applied.")] = ""


class TuningTrial(Part, frozen=True, kw_only=True):
    """The one change on trial."""

    setting: Annotated[str, F("The operator's name of it.")] = ""
    variables: Annotated[list[str] | None, F("What is changed.")] = None
    value: Annotated[int, F("The value on trial.")] = 0
    previous: Annotated[int, F("The value before.")] = 0
    stage: Annotated[str, F("Replica: on one replica. All: on every server. Revert: it is taken back.")] = ""
    pod: Annotated[str, F("The server that is measured.")] = ""
    judge: Annotated[str, F("The server whose counters asked for it.")] = ""
    since: Annotated[datetime | None, F("When this stage began.", schema=TIME)] = None
    applied: Annotated[bool, F("The servers of this stage took it.")] = False
    permille: Annotated[int, F("The share before, in thousandths.")] = 0
    evidence: Annotated[str, F("The numbers before.")] = ""
    result: Annotated[str, F("The numbers since.")] = ""


class TuningResult(Part, frozen=True, kw_only=True):
    """What became of a change."""

    value: Annotated[int, F("The value that was kept, or taken back.")] = 0
    previous: Annotated[int, F("The value before.")] = 0
    variables: Annotated[list[str] | None, F("What was changed.")] = None
    at: Annotated[datetime | None, F("When it was decided.", schema=TIME)] = None
    evidence: Annotated[str, F("The numbers before and since.")] = ""


class TuningStatus(Part, frozen=True, kw_only=True):
    """What tuning measures, proposes, tries and keeps; written once per measurement, and not while there is no work."""

    recommendations: Annotated[list[TuningRecommendation] | None, F("One per setting.")] = None
    samples: Annotated[dict[str, TuningSample] | None, F("Where the present measurement began, by pod.")] = (
        None
    )
    trial: Annotated[TuningTrial | None, F("The change on trial.")] = None
    applied: Annotated[
        dict[str, TuningResult] | None, F("Kept changes, by setting; every server starts with them.")
    ] = None
    rejected: Annotated[dict[str, TuningResult] | None, F("Changes that did not help, by setting.")] = None


class MySQLClusterStatus(Part, frozen=True, kw_only=True):
    """What was observed and what was decided."""

    conditions: Annotated[list[meta.Condition] | None, F("Ready, Progressing, Stalled, Archived.")] = None
    observed_generation: Annotated[int | None, F("The generation this speaks of.")] = None
    phase: Annotated[
        str | None,
        F(
            "Restoring, RestoreFailed, Creating, Running, Degraded, Blocked, SwitchingOver, FailingOver, Lost, ReadOnly or "
            "Paused."
        ),
    ] = None
    available_replicas: Annotated[
        int | None, F("Servers that serve: the primary and replicas that follow it.")
    ] = None
    size: Annotated[int | None, F("Pods there are.")] = None
    autoscale: Annotated[
        AutoscaleStatus | None,
        F("The number of servers that the load called for; absent without spec.autoscale."),
    ] = None
    selector: Annotated[str | None, F("Label selector of the pods.")] = None
    flavor: Annotated[str | None, F("mariadb or mysql.")] = None
    version: Annotated[str | None, F("The primary's version.")] = None
    primary: Annotated[str | None, F("The pod that leads.")] = None
    term: Annotated[int | None, F("Counts the primaries.")] = None
    promotions: Annotated[list[Promotion] | None, F("The newest ten, newest first.", max_items=10)] = None
    ack_set: Annotated[list[str] | None, F("Pods that may acknowledge writes.")] = None
    acks: Annotated[int | None, F("Acknowledgements that a write waits for.")] = None
    durability: Annotated[
        str | None, F("Strict or Async: what is in force now; recorded before it is weakened.")
    ] = None
    blocked_since: Annotated[
        datetime | None,
        F("Since when writes wait for replicas in durability mode Available.", schema=TIME),
    ] = None
    at_risk: Annotated[str | None, F("What one failure would cost now.")] = None
    instances: Annotated[list[Instance] | None, F("Every pod.")] = None
    volumes: Annotated[list[VolumeStatus] | None, F("Claims that do not have the declared size.")] = None
    autogrow: Annotated[
        AutogrowStatus | None, F("How full the volumes are, where they grow by themselves.")
    ] = None
    members: Annotated[dict[str, Recorded] | None, F("What is known of each pod's data.")] = None
    last_server_id: Annotated[
        int | None, F("The newest server_id that was given; every start has its own.")
    ] = None
    operation: Annotated[Operation | None, F("A change of primary under way.")] = None
    config: Annotated[dict[str, ConfigResult] | None, F("What became of each key of spec.config.")] = None
    accounts: Annotated[
        dict[str, AccountResult] | None,
        F("What became of spec.users, by NAME@HOST, and of changed passwords."),
    ] = None
    databases: Annotated[dict[str, AccountResult] | None, F("What became of spec.databases.")] = None
    rolls: Annotated[dict[str, Roll] | None, F("Roll-outs under way or stopped, by component.")] = None
    tuning: Annotated[TuningStatus | None, F("What spec.tuning Recommend and Auto found and changed.")] = None
    retry: Annotated[Failure | None, F("A step that failed.")] = None
    restore: Annotated[MySQLRestoreStatus | None, F("How the cluster got its first data.")] = None
    archive: Annotated[ArchiveStatus | None, F("How far the archive of the binary log is.")] = None


COLUMNS: Final = (
    PrinterColumn("Size", ".spec.size", type="integer"),
    PrinterColumn("Available", ".status.availableReplicas", type="integer"),
    PrinterColumn("Primary", ".status.primary"),
    PrinterColumn("Phase", ".status.phase"),
    PrinterColumn("Durability", ".status.durability"),
    PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    PrinterColumn("Reason", '.status.conditions[?(@.type=="Progressing")].reason'),
    PrinterColumn("Version", ".status.version", priority=1),
    PrinterColumn("Age", ".metadata.creationTimestamp", type="date"),
)
SCALE: Final = Scale(".spec.size", ".status.size", ".status.selector")
NAME_RULES: Final = (
    Rule(
        f"size(self.metadata.name) <= {NAME_LIMIT}",
        f"metadata.name is longer than {NAME_LIMIT} characters; choose a shorter name",
    ),
    Rule(
        "!self.metadata.name.contains('.')",
        "metadata.name has a dot; Services could not be named after it; choose one without",
    ),
)


@crd(short_names=("mc",), columns=COLUMNS, scale=SCALE, rules=NAME_RULES)
class MySQLCluster(Object, frozen=True, kw_only=True):
    """MySQL or MariaDB servers, one of which leads."""

    resource: ClassVar[Resource] = Resource(
        "mysql.mooring.dev", "v1alpha1", "MySQLCluster", "mysqlclusters", True
    )

    spec: MySQLClusterSpec | None = None
    status: MySQLClusterStatus | None = None


def size_of(cluster: MySQLCluster) -> int:
    """The number of servers that counts: the declared one, or the one that the load called for."""
    spec, status = cluster.spec or MySQLClusterSpec(), cluster.status or MySQLClusterStatus()
    return in_force(spec.autoscale, status.autoscale, spec.size or 3)
