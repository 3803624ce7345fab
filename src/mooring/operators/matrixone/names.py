"""Names, labels, annotations and ports of everything a MatrixOne cluster consists of; all of them are upstream's.

Objects of clusters that upstream's operator made are found by them, and labels that select pods cannot be changed.
"""

from __future__ import annotations

from typing import Final

from mooring.kube.object import Object

__all__ = [
    "BOOTSTRAP",
    "BUCKET_ID",
    "BUCKET_LIVE",
    "CLUSTER",
    "CN_BASE",
    "CN_LABELS",
    "CN_LOCK",
    "CN_RPC",
    "CN_UUID",
    "COMPONENT",
    "CONFIG_SUFFIX",
    "DELETION_COST",
    "GOSSIP",
    "HAKEEPER",
    "INPUTS",
    "INSTANCE",
    "LOGTAIL",
    "METRICS",
    "NAMESPACE",
    "OPERATOR_VERSION",
    "PROMETHEUS_PORT",
    "PROMETHEUS_SCRAPE",
    "RAFT",
    "SAFE_TO_EVICT",
    "SEMANTIC_VERSION",
    "SQL",
    "STORE_ID",
    "TN_BASE",
    "UI_BACKEND",
    "UI_WEB",
    "CNNames",
    "DNNames",
    "LogNames",
    "ProxyNames",
    "UINames",
    "cn_set",
    "labels_of",
]

RAFT: Final = 32000
HAKEEPER: Final = 32001
GOSSIP: Final = 32002
LOGTAIL: Final = 32003
TN_BASE: Final = 41010
SQL: Final = 6001
CN_BASE: Final = 6002
CN_RPC: Final = 6002
CN_LOCK: Final = 6003
METRICS: Final = 7001
UI_WEB: Final = 8001
UI_BACKEND: Final = 8007

NAMESPACE: Final = "matrixorigin.io/namespace"
INSTANCE: Final = "matrixorigin.io/instance"
COMPONENT: Final = "matrixorigin.io/component"
CLUSTER: Final = "matrixorigin.io/cluster"
"""Label of the CNSets and pods of a MatrixOneCluster: its name."""
CN_UUID: Final = "matrixone.cloud/cn-uuid"
"""Label of a compute node's pod: its identity in MatrixOne, which the start script reads."""
STORE_ID: Final = "mooring.dev/store-id"
"""Label of a compute node's pod and of its claims: what its name ends in, which a claim keeps for the next pod."""
BUCKET_ID: Final = "matrixorigin.io/bucket-unique-id"

BOOTSTRAP: Final = "logset.matrixorigin.io/bootstrap"
"""Annotation of a LogSet: ordinals and replica ids that HAKeeper was bootstrapped with."""
BUCKET_LIVE: Final = "bucket.matrixorigin.io/any-instance-running"
CONFIG_SUFFIX: Final = "matrixorigin.io/config-suffix"
SEMANTIC_VERSION: Final = "matrixorigin.io/semantic-version"
OPERATOR_VERSION: Final = "matrixorigin.io/operator-version"
CN_LABELS: Final = "matrixone.cloud/cn-label"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
PROMETHEUS_SCRAPE: Final = "prometheus.io/scrape"
PROMETHEUS_PORT: Final = "prometheus.io/port"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
INPUTS: Final = "mooring.dev/inputs"
"""Annotation with the digest of the user's inputs that a pod or a pod template was made from."""


def labels_of(owner: Object) -> dict[str, str]:
    """The labels that tell the objects of one set from all others; pods are selected by them."""
    return {
        NAMESPACE: owner.metadata.namespace or "",
        INSTANCE: owner.metadata.name or "",
        COMPONENT: owner.resource.kind,
    }


def cn_set(cluster: str, group: str) -> str:
    """The CNSet of a group of a MatrixOneCluster."""
    return f"{cluster}-{group}"


class _Names:
    suffix = ""

    def __init__(self, owner: Object) -> None:
        self.owner = owner.metadata.name or ""
        self.namespace = owner.metadata.namespace or ""
        self.main = f"{self.owner}{self.suffix}"
        """The workload: StatefulSet, Deployment, or what the names of pods begin with."""
        self.headless = f"{self.main}-headless"
        """The Service that gives pods their names in DNS."""
        self.config = f"{self.main}-config"
        """What the names of ConfigMaps begin with."""
        self.metric = f"{self.main}-metric"
        """The Service that Prometheus discovers."""

    def pod(self, ordinal: int) -> str:
        """A pod of the StatefulSet."""
        return f"{self.main}-{ordinal}"

    def host(self, pod: str) -> str:
        """A pod's name in DNS, as MatrixOne knows it."""
        return f"{pod}.{self.headless}.{self.namespace}.svc"


class LogNames(_Names):
    """Names of the objects of a LogSet."""

    suffix = "-log"

    def __init__(self, owner: Object) -> None:
        super().__init__(owner)
        self.discovery = f"{self.main}-discovery"
        """The Service of HAKeeper."""

    @property
    def discovery_host(self) -> str:
        """The host of HAKeeper."""
        return f"{self.discovery}.{self.namespace}.svc"


class DNNames(_Names):
    """Names of the objects of a DNSet."""

    suffix = "-dn"


class CNNames(_Names):
    """Names of the objects of a CNSet; the Service for clients is called as the set of pods."""

    suffix = "-cn"

    def store(self, store_id: str) -> str:
        """The pod of a store."""
        return f"{self.main}-{store_id}"

    def claim(self, template: str, store_id: str) -> str:
        """A claim of a store, called as OpenKruise's CloneSet calls it."""
        return f"{template}-{self.main}-{store_id}"


class ProxyNames(_Names):
    """Names of the objects of a ProxySet; the Service for clients is called as the Deployment."""

    suffix = "-proxy"


class UINames(_Names):
    """Names of the objects of a WebUI."""

    suffix = "-webui"
