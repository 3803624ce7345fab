"""What ``spec.podTemplate`` and ``spec.sentinel.podTemplate`` must leave to the operator."""

from __future__ import annotations

from mooring.operators.redis.address import SENTINEL_TLS_PORT, TLS_PORT
from mooring.operators.redis.pods import DATA, EXPORTER_PORT
from mooring.operators.redis.sentinel.names import Component, selector_of
from mooring.operators.redis.sentinel.topology import REDIS_PORT, SENTINEL_PORT
from mooring.operators.redis.sentinel.types import RedisClusterSpec, SentinelSettings
from mooring.operators.workload.overlay import PROBES, Ours, PodTemplate

__all__ = ["GRACE_SECONDS", "ours", "overlay_of"]

GRACE_SECONDS = 40
"""How long a server may take to hand over and to stop."""
_SENTINEL_SECONDS = 5
_VARIABLES = frozenset(
    {
        *("POD_IP", "POD_NAME", "POD_NAMESPACE", "CLUSTER_UID", "SENTINEL_HOST", "KEEP_PLAIN", "RENDER_ONLY"),
        *("REDIS_HOST", "REDIS_ALIAS", "REDIS_ADDR", "REDIS_PASSWORD", "REDIS_PASSWORD_FILE", "REDIS_USER"),
        "REDIS_EXPORTER_SKIP_TLS_VERIFICATION",
    }
)


def overlay_of(spec: RedisClusterSpec, component: Component) -> PodTemplate | None:
    """What the user adds to the pods of a component."""
    if component == "redis":
        return spec.pod_template
    return spec.sentinel.pod_template if spec.sentinel is not None else None


def ours(spec: RedisClusterSpec, component: Component) -> Ours:
    """What the operator decides about the pods of a component."""
    labels = selector_of("", "", component)
    without = [] if spec.tls is not None and spec.tls.enabled else ["tls"]
    if component == "sentinel":
        sentinel = spec.sentinel or SentinelSettings()
        declared = _elsewhere("spec.sentinel")
        return Ours(
            where="spec.sentinel.podTemplate",
            containers={"sentinel": declared, "sentinel-config-copy": {"image": declared["image"]}},
            inits=["sentinel-config-copy"],
            off={} if sentinel.command else {"sentinel-config-copy": "remove it"},
            volumes=["conf", "auth", "run", "tls"],
            absent=without,
            paths=["/mooring"],
            variables=_VARIABLES,
            ports=[SENTINEL_PORT, SENTINEL_TLS_PORT],
            labels=labels,
            grace=_SENTINEL_SECONDS,
            probes={"sentinel": PROBES},
        )
    storage = spec.storage.persistent_volume_claim if spec.storage is not None else None
    data = (storage.metadata.name if storage is not None else None) or DATA
    exporter = spec.exporter is not None and spec.exporter.enabled
    return Ours(
        where="spec.podTemplate",
        containers={
            "redis": _elsewhere("spec"),
            "redis-exporter": {
                "image": "spec.exporter.image",
                "imagePullPolicy": "spec.exporter.imagePullPolicy",
            },
        },
        off={} if exporter else {"redis-exporter": "enable spec.exporter, or remove it"},
        volumes=["conf", "live", "auth", "run", "tls", DATA, data],
        absent=[*without, *([DATA] if data != DATA else [])],
        paths=["/mooring", "/data"],
        variables=_VARIABLES,
        ports=[REDIS_PORT, TLS_PORT, EXPORTER_PORT],
        labels=labels,
        grace=GRACE_SECONDS,
        probes={"redis": PROBES},
        stops=["redis"],
    )


def _elsewhere(where: str) -> dict[str, str]:
    """What UCloud's fields declare of a container."""
    return {name: f"{where}.{name}" for name in ("image", "imagePullPolicy", "command", "resources")}
