"""Names, labels, ports, accounts and annotations of everything that a cluster consists of."""

from __future__ import annotations

import hashlib
from typing import Final

from mooring.operators.workload.pods import READS, ROLE

__all__ = [
    "ADMIN_PORT",
    "ARCHIVE",
    "ARCHIVE_PORT",
    "BACKUP",
    "CLUSTER",
    "COMPONENT",
    "INPUTS",
    "MANAGED_BY",
    "MANAGED_SELECTOR",
    "MONITOR",
    "MOST_REPLICAS",
    "NAME_LIMIT",
    "OPERATOR_USER",
    "ORDER",
    "PAUSE",
    "PORT",
    "PRIMARY",
    "READS",
    "REPLICA",
    "REPLICATION",
    "ROLE",
    "SWITCH_TO",
    "TRIAL",
    "Names",
    "cluster_of",
    "labels_of",
    "selector",
    "trial_selector",
]

PORT: Final = 3306
ADMIN_PORT: Final = 33062
"""Where the operator and replicas still get in when all connections are used (MariaDB `extra_port`, MySQL `admin_port`)."""
MOST_REPLICAS: Final = 8
"""Of the largest cluster."""
COMPONENT: Final = "mysql"
"""Name of the data container, and the component of the pods."""
TRIAL: Final = f"{COMPONENT}-trial"
"""What the Job and the pod of a trial start are instead."""
ARCHIVE: Final = f"{COMPONENT}-archive"
"""What the Deployment and the pod that archive the binary log are instead."""
ARCHIVE_PORT: Final = 8085
"""Where that pod says how far it is."""
PRIMARY: Final = "primary"
REPLICA: Final = "replica"
MANAGED_BY: Final = "mooring-mysql"
CLUSTER: Final = "app.kubernetes.io/instance"
MANAGED_SELECTOR: Final = f"app.kubernetes.io/managed-by={MANAGED_BY}"
INPUTS: Final = "mooring.dev/inputs"
"""Annotation with the digest of the user's inputs that a pod template was made from."""
ORDER: Final = "mysql.mooring.dev/order"
"""Annotation of a pod: what its next start of the server may do; see `mooring.operators.mysql.gate`."""
SWITCH_TO: Final = "mysql.mooring.dev/switch-to"
"""Annotation of a cluster: the pod that a person wants as primary. Removed once it is, or once it is refused."""
PAUSE: Final = "mooring.dev/pause"
NAME_LIMIT: Final = 48

OPERATOR_USER: Final = "mooring"
"""Account of the operator: all rights, and the one that may write while a server is read-only."""
REPLICATION: Final = "mooring_replication"
MONITOR: Final = "mooring_monitor"
BACKUP: Final = "mooring_backup"
"""Account of the Jobs of backups: it reads everything and changes nothing."""


class Names:
    """The names derived from a cluster's."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.set = cluster
        """StatefulSet; its pods are NAME-0, NAME-1 ..."""
        self.headless = cluster
        """Headless Service: each pod has a name of its own."""
        self.primary = f"{cluster}-primary"
        self.replicas = f"{cluster}-replicas"
        self.credentials = f"{cluster}-credentials"
        """Secret with `root-password` and the passwords of the operator's own accounts."""
        self.credentials_copy = f"{cluster}-credentials-copy"
        """Secret with the passwords that the servers accept: see `mooring.operators.mysql.credentials`."""
        self.scripts = f"{cluster}-scripts"
        """ConfigMap: start gate and probes."""
        self.config = f"{cluster}-config"
        """ConfigMap: my.cnf as a start reads it."""
        self.tls = f"{cluster}-tls"
        """Secret with certificates that the operator made."""
        self.budget = cluster
        """PodDisruptionBudget."""
        self.archive = f"{cluster}-archive"
        """Deployment: archives the binary log."""
        self.trial = f"{cluster}-trial"
        """Beginning of the names of Jobs: the trial start of a new image."""

    def pod(self, ordinal: int) -> str:
        """A pod of the set."""
        return f"{self.set}-{ordinal}"

    def hosts(self, namespace: str) -> list[str]:
        """The names that a certificate of the servers is for."""
        services = (f"*.{self.headless}", self.primary, self.replicas)
        tails = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
        return [*(one + tail for one in services for tail in tails), "localhost", "127.0.0.1"]

    def host(self, pod: str, namespace: str) -> str:
        """The name by which other pods find it."""
        return f"{pod}.{self.headless}.{namespace}.svc"


def selector(cluster: str) -> str:
    """Label selector of the pods and claims of a cluster."""
    return f"{CLUSTER}={cluster},{MANAGED_SELECTOR},app.kubernetes.io/name={COMPONENT}"


def trial_selector(cluster: str) -> str:
    """Label selector of the Jobs and pods of trial starts."""
    return f"{CLUSTER}={cluster},{MANAGED_SELECTOR},app.kubernetes.io/name={TRIAL}"


def labels_of(cluster: str) -> dict[str, str]:
    """Labels of every child object; the StatefulSet selects by them."""
    return {
        "app.kubernetes.io/managed-by": MANAGED_BY,
        "app.kubernetes.io/name": COMPONENT,
        CLUSTER: cluster,
    }


def cluster_of(labels: dict[str, str] | None) -> str:
    """The cluster that an object with these labels belongs to, or ""."""
    if labels is None or labels.get("app.kubernetes.io/managed-by") != MANAGED_BY:
        return ""
    return labels.get(CLUSTER, "")


def fitting(name: str, limit: int = 63) -> str:
    """The name, cut and given a digest where it is too long for what it names."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
