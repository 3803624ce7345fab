"""Commands to HAKeeper are given for pods as they are, not as they were.

A write to a pod is fenced by the pod's version. HAKeeper's commands know no pods and no claims: given from a late cache, they
would send one user's sessions to the compute node of another, or have HAKeeper forget a store that serves. So the pod is read
once more, from the API server itself, right before each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mooring.actor import StepFailed
from mooring.kube.objects import core
from mooring.operators.matrixone.cnset.moves import DeleteStore, OnStore
from mooring.runtime import CachedClient

__all__ = ["SEEN_AFTER", "unchanged"]

SEEN_AFTER: Final = 0.02
"""Seconds after which this process knows, as a rule, what somebody else changed: claims that come at once want one pod."""


async def unchanged(
    client: CachedClient, namespace: str, pods: Iterable[core.Pod], move: OnStore | DeleteStore
) -> None:
    """Raises `StepFailed` where the pod of a move is another one, or its labels or annotations are others, than in ``pods``."""
    pod = await client.refresh(core.Pod, move.pod, namespace=namespace)
    seen = next((one for one in pods if one.metadata.name == move.pod), None)
    if _marks(pod) != _marks(seen):
        raise StepFailed(f"{move.pod} changed meanwhile; the next look decides again", after=SEEN_AFTER)


def _marks(pod: core.Pod | None) -> tuple[object, ...]:
    """What is decided from: the labels and annotations tell whose it is and what was done to it."""
    if pod is None:
        return ()
    meta = pod.metadata
    return meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp is not None
