"""What ``spec.podTemplate`` must leave to the operator."""

from __future__ import annotations

from mooring.operators.mysql.names import ADMIN_PORT, COMPONENT, PORT, labels_of
from mooring.operators.mysql.types import MySQLClusterSpec
from mooring.operators.workload.overlay import Ours

__all__ = ["DATA", "EXPORTER_PORT", "GRACE_SECONDS", "ours"]

DATA = "data"
"""The volume; its claims are ``data-NAME-0`` ..."""
EXPORTER_PORT = 9104

GRACE_SECONDS = 120
"""How long a server may take to hand over and to stop."""
_DOCUMENTS_PORT = 33060
"""Where MySQL listens besides."""


def ours(spec: MySQLClusterSpec) -> Ours:
    """What the operator decides about the pods."""
    exporter = spec.exporter is not None and spec.exporter.enabled
    return Ours(
        where="spec.podTemplate",
        containers={
            COMPONENT: {name: f"spec.{name}" for name in ("image", "imagePullPolicy", "resources")},
            "exporter": {"image": "spec.exporter.image"},
        },
        off={} if exporter else {"exporter": "enable spec.exporter, or remove it"},
        volumes=["scripts", "live", "auth", "order", "starts", "run", "tls", DATA],
        absent=[] if spec.tls is not None else ["tls"],
        paths=["/mooring", "/run/mysqld", "/var/run/mysqld", "/var/lib/mysql"],
        variables=["POD_NAME", "POD_IP", "HOST", "FLAVOR"],
        ports=[PORT, ADMIN_PORT, _DOCUMENTS_PORT, EXPORTER_PORT],
        labels=labels_of(""),
        grace=GRACE_SECONDS,
        probes={COMPONENT: ("livenessProbe", "readinessProbe")},
        stops=[COMPONENT],
    )
