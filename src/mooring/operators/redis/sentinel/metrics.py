"""The metrics of this operator, by cluster."""

from __future__ import annotations

from contextlib import suppress

from mooring.kube.object import Key
from mooring.runtime import Manager

__all__ = ["Metrics"]

_LABELS = ["namespace", "name"]


class Metrics:
    """Whether each cluster works, under UCloud's name, and how often one lost all data."""

    def __init__(self, manager: Manager) -> None:
        self._healthy = manager.metrics.gauge(
            "redis_operator_controller_cluster_healthy",
            "Status of redis clusters managed by the operator.",
            _LABELS,
        )
        self._lost = manager.metrics.gauge(
            "redis_operator_controller_data_lost",
            "How often this process saw a redis cluster come back without any of its data.",
            _LABELS,
        )

    def show(self, key: Key, *, healthy: bool) -> None:
        """Set whether a cluster works."""
        self._healthy.labels(key.namespace, key.name).set(1.0 if healthy else 0.0)

    def count_loss(self, key: Key) -> None:
        """Count a cluster that came back empty."""
        self._lost.labels(key.namespace, key.name).inc()

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        with suppress(KeyError):
            self._healthy.remove(key.namespace, key.name)
