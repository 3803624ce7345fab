"""Names, labels and ports of everything a cluster consists of; the StatefulSet is called as the cluster."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BUS_PORT",
    "INPUTS",
    "LINK",
    "MANAGED_SELECTOR",
    "REDIS_PORT",
    "REFUSED",
    "Names",
    "cluster_of",
    "selector_of",
]

REDIS_PORT: Final = 6379
BUS_PORT: Final = 16379
INPUTS: Final = "mooring.dev/inputs"
"""Annotation with the digest of the user's inputs a pod template was made from."""
REFUSED: Final = "mooring.dev/refused"
"""Annotation with the digest of the inputs whose pods did not come up, and why; they are not tried again."""
LINK: Final = "redis.middleware.hc.cn"
"""HarmonyCloud's annotation on the StatefulSet: the cluster it belongs to."""
MANAGED_BY: Final = "operator-manager"
MANAGED_SELECTOR: Final = f"app.kubernetes.io/managed-by={MANAGED_BY}"
_NAME: Final = "app.kubernetes.io/name"


class Names:
    """The names derived from a cluster's."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.service = cluster
        """The headless Service that gives pods their names."""
        self.entry = f"{cluster}-service"
        """Service with an address of its own, for clients."""
        self.password = f"{cluster}-password"
        """Secret with the password."""

        self.tls = f"{cluster}-tls"
        """Secret with the certificate that pods mount; clients read ca.crt there."""
        self.tls_authority = f"{cluster}-tls-authority"
        """Secret with the operator's authority and its key."""

    def hosts(self, namespace: str) -> list[str]:
        """The names of Services and pods that clients use, for certificates."""
        found = ["localhost", "127.0.0.1"]
        for one in (self.service, self.entry):
            full = f"{one}.{namespace}.svc"
            found += [one, f"{one}.{namespace}", full, f"{full}.cluster.local"]
        pods = f"*.{self.service}.{namespace}.svc"
        return [*found, pods, f"{pods}.cluster.local"]

    def pod(self, ordinal: int) -> str:
        """A pod of it."""
        return f"{self.cluster}-{ordinal}"

    def domain(self, pod: str, namespace: str) -> str:
        """A pod's name in DNS."""
        return f"{pod}.{self.service}.{namespace}.svc.cluster.local"


def selector_of(cluster: str) -> dict[str, str]:
    """What tells this cluster's pods from all others; labels of the user's are not among it."""
    return {
        "app.kubernetes.io/managed-by": MANAGED_BY,
        "app.kubernetes.io/component": "redis",
        _NAME: cluster,
    }


def cluster_of(labels: dict[str, str] | None) -> str:
    """The cluster an object with these labels belongs to, or ""."""
    if labels is None or labels.get("app.kubernetes.io/managed-by") != MANAGED_BY:
        return ""
    return labels.get(_NAME, "")
