"""What ``spec.podTemplate`` must leave to the operator."""

from __future__ import annotations

from typing import Final

from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.cluster.names import BUS_PORT, REDIS_PORT, selector_of
from mooring.operators.redis.cluster.types import RedisClusterSpec, pod_of
from mooring.operators.redis.pods import DATA, EXPORTER_PORT
from mooring.operators.workload.overlay import PROBES, Ours

__all__ = ["GRACE_SECONDS", "OURS", "ours"]

GRACE_SECONDS: Final = 30
"""How long a node may take to hand over and to stop."""
OURS: Final = frozenset(
    {"POD_NAME", "POD_IP", "PODIP", "NAMESPACE", "REDIS_CLUSTER_NAME", "DOMAINNAME", "MODE"}
)
"""Variables of the redis container that are the operator's."""
_VARIABLES: Final = frozenset(
    {
        *OURS,
        *("KEEP_PLAIN", "REDIS_HOST", "REDIS_ALIAS", "REDIS_ADDR", "REDIS_PASSWORD", "REDIS_PASSWORD_FILE"),
        *("REDIS_USER", "REDIS_EXPORTER_SKIP_TLS_VERIFICATION"),
    }
)


def ours(spec: RedisClusterSpec) -> Ours:
    """What the operator decides about the pods."""
    pod = pod_of(spec)
    claims = [one.metadata.name or DATA for one in spec.volume_claim_templates or ()]
    data = claims[0] if claims else DATA
    where = "spec.pod[0]"
    return Ours(
        where="spec.podTemplate",
        containers={
            "redis": {
                "image": f"{where}.middlewareImage",
                "imagePullPolicy": f"{where}.imagePullPolicy",
                "resources": f"{where}.resources",
            },
            "redis-exporter": {
                "image": f"{where}.monitorImage",
                "imagePullPolicy": f"{where}.imagePullPolicy",
            },
        },
        off={} if pod.monitor_image else {"redis-exporter": f"give {where}.monitorImage, or remove it"},
        volumes=["conf", "auth", "run", "tls", DATA, data],
        absent=[
            *([] if spec.tls is not None and spec.tls.enabled else ["tls"]),
            *([DATA] if data != DATA else []),
        ],
        claims=claims[1:],
        paths=["/mooring", "/data"],
        variables=_VARIABLES,
        ports=[REDIS_PORT, BUS_PORT, TLS_PORT, TLS_PORT + BUS_PORT - REDIS_PORT, EXPORTER_PORT],
        labels=selector_of(""),
        grace=GRACE_SECONDS,
        probes={"redis": PROBES},
        stops=["redis"],
    )
