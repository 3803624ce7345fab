"""Clusters of upstream's operator are left alone: while it runs, and as long as OpenKruise's objects own their pods.

Two operators on one log service would work against each other. This version adopts no pods of OpenKruise's workloads.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from mooring.actor.outcome import Wait
from mooring.kube.object import controller_of
from mooring.kube.objects import coordination, core
from mooring.operators.workload.scope import yields

__all__ = ["LEASE", "left_alone"]

LEASE: Final = "0c8ab548.matrixorigin.io"
"""The Lease of upstream's operator, in its own namespace."""
_KRUISE: Final = "apps.kruise.io/"


def left_alone(
    leases: Iterable[coordination.Lease], pods: Iterable[core.Pod], *, now: datetime
) -> Wait | None:
    """Why nothing is done for a set; ``pods`` are its own. Pure."""
    for lease in leases:
        if yields(lease, now):
            holder = lease.spec.holder_identity if lease.spec is not None else None
            where = f"{lease.metadata.namespace}/{lease.metadata.name}"
            text = f"upstream's operator runs ({holder} holds the Lease {where}); stop it first"
            return Wait("LegacyOperatorRunning", text, after=10.0, stalled=True)
    foreign = sorted(
        one.metadata.name or ""
        for one in pods
        if (owner := controller_of(one)) is not None and (owner.api_version or "").startswith(_KRUISE)
    )
    if foreign:
        text = (
            f"the pods {', '.join(foreign)} belong to OpenKruise's workloads, which upstream's operator made; this version "
            "does not adopt them. Nothing is changed"
        )
        return Wait("NotAdopted", text, after=60.0, stalled=True)
    return None
