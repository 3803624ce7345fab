"""Names, labels and ports of everything a cluster consists of; UCloud's where it had them."""

from __future__ import annotations

import hashlib
from typing import Final, Literal

from mooring.operators.workload.pods import ROLE

__all__ = ["INPUTS", "ROLE", "Component", "Names", "cluster_of", "labels_of", "selector", "selector_of"]

Component = Literal["redis", "sentinel"]

INPUTS: Final = "mooring.dev/inputs"
"""Annotation with the digest of the user's inputs a pod template was made from."""
MANAGED_BY: Final = "redis-operator"
MANAGED_SELECTOR: Final = f"app.kubernetes.io/managed-by={MANAGED_BY}"
_NAME: Final = "app.kubernetes.io/name"
_SERVICE_LIMIT: Final = 63
_SET_LIMIT: Final = 52
"""A pod's label ``controller-revision-hash`` is the set's name and eleven characters, at most 63 together."""
_COMPONENT: Final = "app.kubernetes.io/component"


def selector(cluster: str) -> str:
    """Label selector of the pods and claims of a cluster."""
    return f"{_NAME}={cluster},{MANAGED_SELECTOR}"


class Names:
    """The names derived from a cluster's."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.redis = _fitting(f"redis-cluster-{cluster}", _SET_LIMIT)
        """Service, StatefulSet and PodDisruptionBudget of the data servers."""
        self.sentinel = _fitting(f"redis-sentinel-{cluster}", _SET_LIMIT)
        """Service (the clients' entry), StatefulSet, PodDisruptionBudget and ConfigMap of the sentinels."""
        self.sentinel_headless = _fitting(f"redis-sentinel-headless-{cluster}", _SERVICE_LIMIT)
        self.master = f"redis-master-{cluster}"
        """Service of the pod that leads."""
        self.replica = f"redis-replica-{cluster}"
        """Service of the pods that follow."""
        self.readiness = f"redis-sentinel-readiness-{cluster}"
        self.shutdown = f"redisr-s-{cluster}"
        self.live = f"redis-live-{cluster}"
        """ConfigMap with the live keys in force."""
        self.password = f"redis-password-{cluster}"
        """Secret with the password in force."""
        self.tls = f"redis-tls-{cluster}"
        """Secret with the certificate that pods mount; clients read ca.crt there."""
        self.tls_authority = f"redis-tls-authority-{cluster}"
        """Secret with the operator's authority and its key."""
        self.lineage = f"redis-lineage-{cluster}"
        """ConfigMap that outlives the cluster beside its kept claims."""

    def hosts(self, namespace: str) -> list[str]:
        """The names of Services and pods that clients use, for certificates."""
        services = (self.master, self.replica, self.sentinel, self.redis, self.sentinel_headless)
        found = ["localhost", "127.0.0.1"]
        for one in services:
            full = f"{one}.{namespace}.svc"
            found += [one, f"{one}.{namespace}", full, f"{full}.cluster.local"]
        for one in (self.redis, self.sentinel_headless):
            found += [f"*.{one}.{namespace}.svc", f"*.{one}.{namespace}.svc.cluster.local"]
        return found

    def set_of(self, component: Component) -> str:
        """The StatefulSet of a component."""
        return self.redis if component == "redis" else self.sentinel

    def pod(self, component: Component, ordinal: int) -> str:
        """A pod of it."""
        return f"{self.set_of(component)}-{ordinal}"


def selector_of(namespace: str, cluster: str, component: Component) -> dict[str, str]:
    """UCloud's labels, without the CR's own: those may change, a selector may not."""
    return {
        "app.kubernetes.io/managed-by": MANAGED_BY,
        "redis.kun/v1beta1": _bounded(f"{namespace}_{cluster}"),
        "app.kubernetes.io/part-of": "redis-cluster",
        _COMPONENT: component,
        _NAME: cluster,
    }


def labels_of(
    namespace: str, cluster: str, component: Component, own: dict[str, str] | None = None
) -> dict[str, str]:
    """Labels of a child: the selector's, and those of the CR."""
    return {**(own or {}), **selector_of(namespace, cluster, component)}


def cluster_of(labels: dict[str, str] | None) -> str:
    """The cluster an object with these labels belongs to, or ""."""
    if labels is None or labels.get("app.kubernetes.io/managed-by") != MANAGED_BY:
        return ""
    return labels.get(_NAME, "")


def _fitting(name: str, limit: int) -> str:
    """The name, if it is short enough for what it names; no cluster with a longer one ever came up."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 9].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _bounded(value: str) -> str:
    """A label value has at most 63 characters."""
    if len(value) <= 63:
        return value
    return f"{value[:50]}_{hashlib.sha256(value.encode()).hexdigest()[:12]}"
