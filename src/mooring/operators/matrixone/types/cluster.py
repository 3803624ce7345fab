"""MatrixOneCluster: a whole cluster, which its sets are made from."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from mooring.kube.object import Object, Resource
from mooring.kube.objects import core
from mooring.kube.part import Part
from mooring.operators.matrixone.types.cnset import CNSetSpec
from mooring.operators.matrixone.types.dnset import DNSetSpec, DNSetStatus
from mooring.operators.matrixone.types.logset import LogSetSpec, LogSetStatus
from mooring.operators.matrixone.types.podset import Quantity, SetStatus, resource
from mooring.operators.matrixone.types.proxyset import ProxySetSpec, ProxySetStatus
from mooring.operators.matrixone.types.webui import WebUISpec, WebUIStatus
from mooring.runtime.crd import AGE, F, PrinterColumn, Rule, crd, exactly_one_of, immutable, rules

__all__ = [
    "DEFAULT_REPOSITORY",
    "NAME_LIMIT",
    "CNGroup",
    "CNGroupStatus",
    "CNGroupsStatus",
    "ClusterMetrics",
    "ClusterRestore",
    "MatrixOneCluster",
    "MatrixOneClusterSpec",
    "MatrixOneClusterStatus",
    "ReadableStatus",
    "groups_of",
    "transaction_nodes",
]

NAME_LIMIT: Final = 46
DEFAULT_REPOSITORY: Final = "matrixorigin/matrixone"
_NAME: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


class CNGroup(CNSetSpec, frozen=True, kw_only=True):
    """One group of compute nodes."""

    name: Annotated[
        str | None, F("Its name; the CNSet is called CLUSTER-NAME.", required=True, max_length=253)
    ] = None


@rules(
    exactly_one_of(
        "tn", "dn", message="the transaction nodes are needed once: give spec.tn, or the older spec.dn"
    )
)
class MatrixOneClusterSpec(Part, frozen=True, kw_only=True):
    """The declared cluster."""

    tp: Annotated[CNSetSpec | None, F("Deprecated: a group named tp.")] = None
    ap: Annotated[CNSetSpec | None, F("Deprecated: a group named ap.")] = None
    cn_groups: Annotated[
        list[CNGroup] | None, F("Groups of compute nodes.", list_map_keys=("name",), max_items=256)
    ] = None
    dn: Annotated[DNSetSpec | None, F("Deprecated: use tn.")] = None
    tn: Annotated[DNSetSpec | None, F("The transaction nodes.")] = None
    log_service: Annotated[LogSetSpec | None, F("The log service.", required=True)] = None
    webui: Annotated[WebUISpec | None, F("The dashboard; absent: none.")] = None
    proxy: Annotated[ProxySetSpec | None, F("The SQL proxy; absent: none.")] = None
    version: Annotated[str | None, F("Version of MatrixOne: the tag of the image.", required=True)] = None
    image_repository: Annotated[str | None, F(f"Repository of the image; default {DEFAULT_REPOSITORY}.")] = (
        None
    )
    topology_spread: Annotated[list[str] | None, F("For components that do not say it themselves.")] = None
    node_selector: Annotated[dict[str, str] | None, F("For components that do not say it themselves.")] = None
    image_pull_policy: Annotated[
        str | None, F("Of every MatrixOne container: Always, IfNotPresent or Never.")
    ] = None
    restore_from: Annotated[
        str | None,
        F(
            "The Backup that a new cluster starts from.",
            max_length=253,
            rules=(immutable("another backup cannot be restored into a cluster; make a new one for it"),),
        ),
    ] = None
    metric_reader_enabled: Annotated[
        bool | None, F("Make a SQL user that reads the metrics; its Secret is status.clusterMetrics.")
    ] = None
    semantic_version: Annotated[str | None, F("Version of MatrixOne; default: spec.version.")] = None
    operator_version: Annotated[
        str | None, F("Version of upstream's operator whose pods are made; new clusters get 1.3.0.")
    ] = None
    memory_fs_size: Annotated[Quantity | None, F("For components that do not say it themselves.")] = None


class ClusterMetrics(Part, frozen=True, kw_only=True):
    """The SQL user that reads the metrics."""

    secret_ref: Annotated[core.LocalObjectReference | None, F("Its Secret.")] = None
    initialized: Annotated[bool | None, F("It was made.")] = None


class ReadableStatus(Part, frozen=True, kw_only=True):
    """Of upstream's API; not written."""

    log: Annotated[str | None, F("Not written.")] = None
    dn: Annotated[str | None, F("Not written.")] = None
    cn: Annotated[str | None, F("Not written.")] = None


class CNGroupStatus(Part, frozen=True, kw_only=True):
    """One group of compute nodes."""

    name: Annotated[str | None, F("Its name.")] = None
    host: Annotated[str | None, F("Where clients connect to.")] = None
    ready: Annotated[bool | None, F("All its pods serve.")] = None
    synced: Annotated[bool | None, F("All its pods are as declared.")] = None
    replicas: Annotated[int | None, F("Pods that its CNSet declares. Ours.", format="int32")] = None
    scaled_by: Annotated[
        str | None,
        F("Who set that number by the scale subresource: kube-controller-manager is an HPA. Ours."),
    ] = None


class CNGroupsStatus(Part, frozen=True, kw_only=True):
    """The groups of compute nodes."""

    desired_groups: Annotated[int | None, F("Declared groups.")] = None
    ready_groups: Annotated[int | None, F("Groups that are ready.")] = None
    synced_groups: Annotated[int | None, F("Groups that are as declared.")] = None
    groups: Annotated[list[CNGroupStatus] | None, F("Every group.")] = None


class ClusterRestore(Part, frozen=True, kw_only=True):
    """How the cluster got its first data; recorded before anything is made."""

    backup: Annotated[str | None, F("The Backup.")] = None
    phase: Annotated[
        str | None,
        F("Restoring; Restored once the data is there; Founded once a log service has started on it."),
    ] = None
    job: Annotated[str | None, F("The RestoreJob.")] = None
    position: Annotated[str | None, F("What was restored has all transactions up to here.")] = None
    started_at: Annotated[str | None, F("When it began.", format="date-time")] = None
    finished_at: Annotated[str | None, F("When the data was there.", format="date-time")] = None


class MatrixOneClusterStatus(SetStatus, frozen=True, kw_only=True):
    """What was observed."""

    phase: Annotated[str | None, F("Ready or NotReady.")] = None
    credential_ref: Annotated[
        core.LocalObjectReference | None, F("Secret with the first SQL user: username and password.")
    ] = None
    cluster_metrics: Annotated[ClusterMetrics | None, F("The SQL user that reads the metrics.")] = None
    cn_groups: Annotated[CNGroupsStatus | None, F("The groups of compute nodes.")] = None
    dn: Annotated[DNSetStatus | None, F("The transaction nodes.")] = None
    proxy: Annotated[ProxySetStatus | None, F("The proxy.")] = None
    webui: Annotated[WebUIStatus | None, F("The dashboard.")] = None
    log_service: Annotated[LogSetStatus | None, F("The log service.")] = None
    readable: Annotated[ReadableStatus | None, F("Of upstream's API; not written.")] = None
    host: Annotated[str | None, F("Where clients connect to.")] = None
    port: Annotated[int | None, F("Where clients connect to.")] = None
    restore: Annotated[ClusterRestore | None, F("How the cluster got its first data, with restoreFrom.")] = (
        None
    )


@crd(
    short_names=("mo",),
    columns=(
        PrinterColumn("Log", ".spec.logService.replicas", type="integer"),
        PrinterColumn("DN", ".spec.dn.replicas", type="integer"),
        PrinterColumn("Version", ".spec.version"),
        PrinterColumn("Phase", ".status.phase"),
        AGE,
    ),
    rules=(
        Rule(
            f"size(self.metadata.name) <= {NAME_LIMIT}",
            f"metadata.name is longer than {NAME_LIMIT} characters; its Services could not be named after it",
        ),
        Rule(
            f"self.metadata.name.matches('{_NAME}')",
            "metadata.name must begin with a letter and have only a-z, 0-9 and -; Services are named after it",
        ),
    ),
    preserve_unknown=True,
)
class MatrixOneCluster(Object, frozen=True, kw_only=True):
    """A MatrixOne cluster."""

    resource: ClassVar[Resource] = resource("MatrixOneCluster")

    spec: Annotated[MatrixOneClusterSpec | None, F(required=True)] = None
    status: MatrixOneClusterStatus | None = None


def transaction_nodes(spec: MatrixOneClusterSpec) -> DNSetSpec | None:
    """The transaction nodes, however they are called."""
    return spec.tn if spec.tn is not None else spec.dn


def groups_of(spec: MatrixOneClusterSpec) -> list[tuple[str, str, CNSetSpec]]:
    """Name, field and spec of every group of compute nodes, ``tp`` and ``ap`` first.

    A deprecated field wins over a group of its name, which is refused anyway.
    """
    legacy = [(name, f"spec.{name}", one) for name, one in (("tp", spec.tp), ("ap", spec.ap)) if one]
    return [
        *legacy,
        *((one.name or "", f"spec.cnGroups[{at}]", one) for at, one in enumerate(spec.cn_groups or ())),
    ]
