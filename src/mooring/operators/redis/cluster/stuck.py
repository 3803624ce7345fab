"""A declaration that was wrong and is corrected, while all there is to do is wait. Pure rules.

What is waited for may be pods that cannot run as they were declared, or that a quota does not let be made so, and no
roll begins before they run. So only these are recreated; a pod whose server answers, or may answer, is left to the roll.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mooring.operators.redis.cluster.moves import DeletePod, Resize, Verdict, Wait, WriteTemplate
from mooring.operators.redis.cluster.roll import delete, hangs, replace_stuck_pod
from mooring.operators.workload.trouble import HOPELESS, MAY_PASS

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.snapshot import Snapshot
    from mooring.operators.redis.cluster.topology import Node

__all__ = ["pods_starting", "replace_stuck", "troubles"]


def replace_stuck(snapshot: Snapshot) -> Verdict | None:
    """What the declaration says now, for pods that do not run; before a cluster is formed their number too."""
    if not snapshot.recorded.formed and (verdict := _resize(snapshot)):
        return verdict
    hanging = [one for one in snapshot.seen.nodes if hangs(snapshot, one)]
    if snapshot.wanted.stale_template and (hanging or snapshot.unmade or not snapshot.recorded.formed):
        return WriteTemplate(component="redis", why="the declaration of the pods that do not run has changed")
    return replace_stuck_pod(snapshot, hanging) or _in_the_way(snapshot, hanging)


def _in_the_way(snapshot: Snapshot, hanging: Sequence[Node]) -> DeletePod | None:
    """An empty pod of an older template goes where pods of the present one find no place: it may take up all there is."""
    if not any(
        one.pod.trouble == "Unschedulable" and one.pod.revision == snapshot.wanted.revision for one in hanging
    ):
        return None
    for one in snapshot.seen.live:
        older = one.node.pod.revision not in ("", snapshot.wanted.revision)
        empty = one.is_master and not one.slots and not one.server.keys
        if older and empty and not snapshot.seen.assigned and not one.node.pod.terminating:
            why = f"{one.name} has no slots and runs an older pod template, and other pods find no place"
            return delete(one.node, why=why)
    return None


def _resize(snapshot: Snapshot) -> Resize | None:
    """As many pods as are declared: once slots have owners fewer of them are for `scale`, which moves the slots first."""
    there, wanted = snapshot.wanted.pods, snapshot.wanted.nodes
    leaving = [one for one in snapshot.seen.nodes if not snapshot.stays(one)]
    if there == wanted or (there > wanted and (snapshot.seen.assigned or not all(map(_is_empty, leaving)))):
        return None
    return Resize(
        component="redis",
        replicas=wanted,
        why=f"{wanted} nodes are declared, {there} there, and no cluster yet",
    )


def _is_empty(node: Node) -> bool:
    """It says so, or does not run; silence alone proves nothing."""
    return not node.server.keys if node.server is not None else not node.pod.running


def pods_starting(snapshot: Snapshot, *, answering: int) -> Wait:
    """Pods are waited for, and what keeps them is named."""
    return Wait(
        reason="PodsStarting",
        message=f"{answering} of {snapshot.wanted.nodes} nodes answer{troubles(snapshot)}",
        after=1.0,
        stalled=bool(snapshot.unmade)
        or any(
            one.pod.trouble in HOPELESS | MAY_PASS and not one.pod.terminating for one in snapshot.missing
        ),
    )


def troubles(snapshot: Snapshot) -> str:
    """What keeps each pod from answering, to be said after something else."""
    said = [
        f"{one.name}: {one.pod.trouble or one.error}"
        for one in snapshot.missing
        if one.pod.trouble or one.error
    ]
    if unmade := snapshot.unmade:
        owner = unmade.rpartition("-")[0]
        said.append(f"{unmade} cannot be made: kubectl describe statefulset {owner} says why")
    return "; " + "; ".join(said) if said else ""
