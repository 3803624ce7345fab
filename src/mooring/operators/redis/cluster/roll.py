"""New pods, one shard at a time: replicas first, masters after they handed over. Pure rules.

Only a cluster in which everything is in order gets here, so the first pod that does not come up well stops it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from mooring.operators.redis.cluster.moves import (
    DeletePod,
    RestoreTemplate,
    Verdict,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.cluster.slots import ALL
from mooring.operators.workload.rollout import needs_restart
from mooring.operators.workload.trouble import MAY_PASS, hopeless

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.snapshot import Snapshot
    from mooring.operators.redis.cluster.topology import Node

__all__ = ["delete", "hangs", "outdated", "pending", "replace_stuck_pod", "replaced", "roll", "turn_back"]

COMES_UP_WITHIN: Final = timedelta(minutes=10)
"""How long a pod may take to run."""


def delete(node: Node, *, why: str) -> DeletePod:
    """Delete a node's pod, as it was seen."""
    return DeletePod(component="redis", pod=node.name, uid=node.pod.uid, version=node.pod.version, why=why)


def outdated(snapshot: Snapshot, node: Node) -> bool:
    """Its pod has another template than the present one, or a volume needs it to restart."""
    current = node.pod.revision in ("", snapshot.wanted.revision)
    return not current or needs_restart(node.pod, snapshot.now)


def replaced(snapshot: Snapshot, node: Node) -> Verdict:
    """Delete the pod of a replica that is outdated, once it can end."""
    if node.server is not None and node.server.rewriting:
        text = f"{node.name} writes its append-only file, and cannot be stopped until it is done"
        return Wait(reason="RollWaiting", message=text, after=0.5)
    older = node.pod.revision != snapshot.wanted.revision
    why = "runs an older template" if older else "restarts, so that its volume is enlarged"
    return delete(node, why=f"{node.name} {why}")


def turn_back(snapshot: Snapshot) -> Verdict | None:
    """A pod that does not come up with the new template ends the roll: the last good one is put back.

    Under OnDelete any pod that dies comes up with the newest one. Afterwards the stuck pod is recreated. A
    template that is no longer the declared one is not judged: the declared one replaces it.
    """
    hanging = [one for one in snapshot.seen.nodes if _is_member(snapshot, one) and hangs(snapshot, one)]
    if verdict := replace_stuck_pod(snapshot, hanging):
        return verdict
    if snapshot.wanted.stale_template:
        return None
    for one in hanging:
        if one.pod.revision != snapshot.wanted.revision:
            continue
        serving = Counter(
            other.pod.revision
            for other in snapshot.seen.nodes
            if other.server is not None and other.pod.revision not in ("", snapshot.wanted.revision)
        )
        if serving:
            revision, _ = serving.most_common(1)[0]
            why = f"{one.name} did not come up ({one.pod.trouble or one.error}), and the last good template is restored"
            return RestoreTemplate(component="redis", revision=revision, inputs="restored", why=why)
    return None


def replace_stuck_pod(snapshot: Snapshot, hanging: Sequence[Node]) -> Verdict | None:
    """Recreate stuck pods of an older template, whatever the update strategy: they serve no traffic."""
    if hanging and (verdict := pending(snapshot)):
        return verdict
    for one in hanging:
        if one.pod.revision != snapshot.wanted.revision != "" and not _irreplaceable(snapshot, one):
            return delete(one, why=f"{one.name} is stuck on an older pod template")
    return None


def _irreplaceable(snapshot: Snapshot, node: Node) -> bool:
    """Its data would go with it and no answering server has a copy; a pod that never ran has stored nothing."""
    if node.pod.lasting or node.pod.died_at is None:
        return False
    if snapshot.wanted.nodes == 2:
        leads = any(one.server is not None and one.server.role == "master" for one in snapshot.seen.nodes)
        return bool(snapshot.recorded.leader) and not leads
    return bool(snapshot.seen.absent_owners) or (snapshot.recorded.formed and snapshot.seen.covered != ALL)


def _is_member(snapshot: Snapshot, node: Node) -> bool:
    """Not new to the cluster: a new node that does not come up says nothing about the template."""
    return node.name in snapshot.recorded.ids or snapshot.wanted.nodes == 2


def hangs(snapshot: Snapshot, node: Node) -> bool:
    """It exists, and will not run without a person."""
    pod = node.pod
    if node.server is not None or node.gate is not None or pod.terminating or not pod.revision:
        return False
    age = snapshot.now - pod.created if pod.created else timedelta()
    if hopeless(pod.trouble, age=age.total_seconds()):
        return True
    return pod.trouble not in MAY_PASS and not pod.running and age > COMES_UP_WITHIN


def pending(snapshot: Snapshot) -> Wait | None:
    """Wait until the newest revision is known: by the one before, all pods would look current."""
    if not snapshot.wanted.pending:
        return None
    return Wait(
        reason="TemplatePending",
        message="the StatefulSet's controller has not seen the new template yet",
        after=0.2,
    )


def roll(snapshot: Snapshot) -> Verdict | None:
    """The next pod to recreate, if any."""
    if snapshot.wanted.stale_template:
        return WriteTemplate(component="redis", why="the declared pods differ from those that run")
    if verdict := pending(snapshot):
        return verdict
    if not snapshot.wanted.rolls or not snapshot.wanted.revision:
        return None
    old = [one for one in snapshot.seen.live if outdated(snapshot, one.node)]
    if not old:
        return None
    if leaving := next((one.name for one in old if one.node.pod.terminating), ""):
        return Wait(
            reason="PodEnding", message=f"{leaving} is being deleted and will be recreated", after=0.5
        )
    replicas = [one for one in old if one.master]
    if replicas:
        last = max(replicas, key=lambda one: one.node.pod.ordinal)
        return replaced(snapshot, last.node)
    master = max(old, key=lambda one: one.node.pod.ordinal)
    heirs = snapshot.seen.replicas_of(master.id)
    if not heirs:
        return Wait(
            reason="RollBlocked",
            message=f"{master.name} has no replica that could take over; its pod is left as it is",
            after=10.0,
            stalled=True,
        )
    best = max(heirs, key=lambda one: one.server.offset)
    return snapshot.promote(best, "", why=f"{master.name} must be recreated")
