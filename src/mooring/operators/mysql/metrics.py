"""The metrics of this operator, by cluster."""

from __future__ import annotations

from contextlib import suppress

from mooring.kube.object import Key
from mooring.operators.mysql.types import MySQLClusterStatus
from mooring.runtime import Manager

__all__ = ["Metrics"]

_LABELS = ["namespace", "name"]


class Metrics:
    """Whether each cluster works, its term, and how many of its servers serve."""

    def __init__(self, manager: Manager) -> None:
        gauge = manager.metrics.gauge
        self._gauges = {
            "ready": gauge("mooring_mysql_ready", "1 while the cluster takes writes.", _LABELS),
            "term": gauge("mooring_mysql_term", "Changes of primary since the cluster was made.", _LABELS),
            "available": gauge("mooring_mysql_available_servers", "Servers that serve.", _LABELS),
            "strict": gauge(
                "mooring_mysql_strict", "1 while no single failure can lose an acknowledged write.", _LABELS
            ),
            "recommended": gauge(
                "mooring_mysql_tuning_recommendations",
                "Settings that the servers' counters ask to change.",
                _LABELS,
            ),
            "tuned": gauge("mooring_mysql_tuning_applied", "Changes that tuning keeps.", _LABELS),
        }

    def show(self, key: Key, status: MySQLClusterStatus, *, ready: bool) -> None:
        """Set the values of a cluster."""
        values = {
            "ready": float(ready),
            "term": float(status.term or 0),
            "available": float(status.available_replicas or 0),
            "strict": float(status.durability == "Strict"),
            "recommended": float(len((status.tuning and status.tuning.recommendations) or ())),
            "tuned": float(len((status.tuning and status.tuning.applied) or ())),
        }
        for name, value in values.items():
            self._gauges[name].labels(key.namespace, key.name).set(value)

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        for gauge in self._gauges.values():
            with suppress(KeyError):
                gauge.remove(key.namespace, key.name)
