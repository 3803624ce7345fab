"""New pods, one shard at a time: replicas first, masters after they handed over. Pure rules.

Only a cluster in which everything is in order gets here, so the first pod that does not come up well stops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.operators.redis.cluster.look import target_of
from mooring.operators.redis.cluster.moves import DeletePod, Promote, Verdict, Wait, WriteTemplate

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.look import Look

__all__ = ["roll"]


def roll(look: Look) -> Verdict | None:
    """The next pod to make anew, if any."""
    if look.wanted.stale_template:
        return WriteTemplate(why="the pods are declared otherwise")
    if not look.wanted.rolls or not look.wanted.revision:
        return None
    old = [one for one in look.seen.live if one.node.pod.revision not in ("", look.wanted.revision)]
    if not old:
        return None
    if leaving := next((one.name for one in old if one.node.pod.terminating), ""):
        return Wait(reason="PodEnding", message=f"{leaving} is being deleted, to be made anew", after=0.5)
    replicas = [one for one in old if one.master]
    if replicas:
        last = max(replicas, key=lambda one: one.node.pod.ordinal)
        return DeletePod(pod=last.name, uid=last.node.pod.uid, why=f"{last.name} is of an older revision")
    master = max(old, key=lambda one: one.node.pod.ordinal)
    heirs = look.seen.replicas_of(master.id)
    if not heirs:
        return Wait(
            reason="RollBlocked",
            message=f"{master.name} has no replica that could take over; its pod is left as it is",
            after=10.0,
            stalled=True,
        )
    best = max(heirs, key=lambda one: one.server.offset)
    return Promote(target=target_of(best), how="", why=f"{master.name} is to be made anew")
