"""Data that is lost for good with every pod of a cluster: the cluster is founded again, and says so. Pure rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mooring.operators.redis.cluster.moves import Record

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.snapshot import Snapshot

__all__ = ["found_again"]

_LOST: Final = (
    "no pod of the cluster has data or slots left, and its data was on emptyDirs: all keys are lost, and the cluster is served "
    "empty again. Data on volumeClaimTemplates outlives its pods"
)


def found_again(snapshot: Snapshot) -> Record | None:
    """Found a cluster again of which nothing is left: only where nothing that held data can come back.

    All pods there are to be answer, each as a master that has neither slots nor keys and knows nobody who has slots, and
    what pods store on goes with them. A pod that is missing, ends, or does not answer may have the data.
    """
    nodes = snapshot.seen.nodes
    if not snapshot.wanted.ephemeral or not snapshot.recorded.formed or not snapshot.complete:
        return None
    if len(nodes) < snapshot.wanted.pods or len(snapshot.seen.live) < len(nodes) or snapshot.seen.assigned:
        return None
    for one in snapshot.seen.live:
        if one.node.pod.terminating or not one.is_master or one.server.keys or one.server.loading:
            return None
    return Record(formed=False, drop_plan=True, lost=_LOST, why=_LOST)
