"""New pods, one shard at a time: what `workload.rollout` needs to know about Redis Cluster. Pure rules.

Replicas are recreated first, masters after they handed over. Only a cluster in which everything is in order gets here, so
the first pod that does not come up well stops it. What other operators record of a roll-out is derived: the last good
template is the one that most servers run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from mooring.operators.redis.cluster.moves import DeletePod, Verdict, Wait
from mooring.operators.redis.cluster.slots import ALL
from mooring.operators.workload.rollout import COMES_UP_WITHIN, HandOver, Roll, Rollout, SetState
from mooring.operators.workload.trouble import MAY_PASS, hopeless

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.snapshot import Snapshot
    from mooring.operators.redis.cluster.topology import Node

__all__ = ["delete", "hangs", "next_pod", "replace_stuck_pod", "roll", "turn_back"]

_DECLARED: Final = "declared"
"""Stands for the digest of the declaration."""


def delete(node: Node, *, why: str) -> DeletePod:
    """Delete a node's pod, as it was seen."""
    return DeletePod(component="redis", pod=node.name, uid=node.pod.uid, version=node.pod.version, why=why)


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
    return _rollout(snapshot, (), failed=_last_good(snapshot, hanging)).begin()


def _last_good(snapshot: Snapshot, hanging: Sequence[Node]) -> Roll | None:
    """The failed roll-out, and the template that most servers run; ``None`` without either."""
    revision = snapshot.wanted.revision
    failed = next((one for one in hanging if one.pod.revision == revision), None)
    serving = Counter(
        one.pod.revision
        for one in snapshot.seen.nodes
        if one.server is not None and one.pod.revision not in ("", revision)
    )
    if failed is None or not serving:
        return None
    good, _ = serving.most_common(1)[0]
    reason = failed.pod.trouble or failed.error
    return Roll(inputs=_DECLARED, good="restored", revision=good, pod=failed.name, reason=reason)


def _rollout(snapshot: Snapshot, nodes: Sequence[Node], *, failed: Roll | None = None) -> Rollout:
    wanted = snapshot.wanted
    known = Roll(inputs=_DECLARED) if wanted.stale_template else failed
    state = SetState(
        replicas=wanted.pods,
        update_revision=wanted.revision,
        current=not wanted.stale_template,
        inputs="" if wanted.stale_template else _DECLARED,
        asked=_DECLARED,
    )
    return Rollout(
        component="redis",
        state=state,
        # A server that answers has come up, whatever the containers beside it do.
        pods=[replace(one.pod, trouble="") for one in nodes],
        rolls={"redis": known} if known is not None else {},
        now=snapshot.now,
    )


def replace_stuck_pod(snapshot: Snapshot, hanging: Sequence[Node]) -> Verdict | None:
    """Recreate stuck pods of an older template, whatever the update strategy: they serve no traffic."""
    if hanging and (verdict := _pending(snapshot)):
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
    age = (snapshot.now - pod.created if pod.created else timedelta()).total_seconds()
    if hopeless(pod.trouble, age=age):
        return True
    return pod.trouble not in MAY_PASS and not pod.running and age > COMES_UP_WITHIN


def _pending(snapshot: Snapshot) -> Wait | None:
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
    masters = [one.name for one in snapshot.seen.live if not one.master]
    verdict = next_pod(snapshot, [one.node for one in snapshot.seen.live], leading=masters)
    if not isinstance(verdict, HandOver):
        return verdict
    master = next(one for one in snapshot.seen.live if one.name == verdict.pod)
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


def next_pod(
    snapshot: Snapshot, nodes: Sequence[Node], *, leading: Collection[str]
) -> Verdict | HandOver | None:
    """Write the template, or recreate the next pod of these nodes; of those that lead, which has to hand over."""
    rollout = _rollout(snapshot, nodes)
    if verdict := rollout.begin() or _pending(snapshot):
        return verdict
    if not snapshot.wanted.rolls:
        return None
    if leaving := next((one.name for one in rollout.old if one.terminating), ""):
        text = f"{leaving} is being deleted and will be recreated"
        return Wait(reason="PodEnding", message=text, after=0.5)
    step = rollout.advance(leading=leading)
    rewriting = {one.name for one in nodes if one.server is not None and one.server.rewriting}
    if isinstance(step, DeletePod) and step.pod in rewriting:
        text = f"{step.pod} writes its append-only file, and cannot be stopped until it is done"
        return Wait(reason="RollWaiting", message=text, after=0.5)
    return step
