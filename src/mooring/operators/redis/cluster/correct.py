"""A declaration that was wrong and is corrected, while all there is to do is wait. Pure rules.

What is waited for may be pods that cannot run as they were declared, or that a quota does not let be made so, and no
roll begins before they run. So these alone are made anew; whoever answers, or may, is left to the roll.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mooring.operators.redis.cluster.moves import DeletePod, Resize, Verdict, Wait, WriteTemplate
from mooring.operators.redis.cluster.roll import hangs, made_anew

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.look import Look
    from mooring.operators.redis.cluster.topology import Node

__all__ = ["correct", "pods_starting", "troubles"]

_NEEDS_SOMEBODY: Final = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CrashLoopBackOff",
        "Unschedulable",
        "UnboundClaim",
    }
)


def correct(look: Look) -> Verdict | None:
    """What the declaration says now, for pods that do not run; before a cluster is formed their number too."""
    if not look.recorded.formed and (verdict := _resize(look)):
        return verdict
    hanging = [one for one in look.seen.nodes if hangs(look, one)]
    if look.wanted.stale_template and (hanging or look.unmade or not look.recorded.formed):
        return WriteTemplate(why="what does not run is declared otherwise now")
    return made_anew(look, hanging) or _in_the_way(look, hanging)


def _in_the_way(look: Look, hanging: Sequence[Node]) -> DeletePod | None:
    """An empty pod of an older template goes where pods of the present one find no place: it may take up all there is."""
    if not any(
        one.pod.trouble == "Unschedulable" and one.pod.revision == look.wanted.revision for one in hanging
    ):
        return None
    for one in look.seen.live:
        older = one.node.pod.revision not in ("", look.wanted.revision)
        empty = one.is_master and not one.slots and not one.server.keys
        if older and empty and not look.seen.assigned and not one.node.pod.terminating:
            why = f"{one.name} has no slots and is of an older pod template, and other pods find no place"
            return DeletePod(pod=one.name, uid=one.node.pod.uid, why=why)
    return None


def _resize(look: Look) -> Resize | None:
    """As many pods as are declared: once slots have owners fewer of them are for `scale`, which moves the slots first."""
    there, wanted = look.wanted.pods, look.wanted.nodes
    leaving = [one for one in look.seen.nodes if not look.stays(one)]
    if there == wanted or (there > wanted and (look.seen.assigned or not all(map(_is_empty, leaving)))):
        return None
    return Resize(replicas=wanted, why=f"{wanted} nodes are declared, {there} there, and no cluster yet")


def _is_empty(node: Node) -> bool:
    """It says so, or does not run; silence alone proves nothing."""
    return not node.server.keys if node.server is not None else not node.pod.running


def pods_starting(look: Look, *, answering: int) -> Wait:
    """Pods are waited for, and what keeps them is named."""
    return Wait(
        reason="PodsStarting",
        message=f"{answering} of {look.wanted.nodes} nodes answer{troubles(look)}",
        after=1.0,
        stalled=bool(look.unmade)
        or any(one.pod.trouble in _NEEDS_SOMEBODY and not one.pod.terminating for one in look.missing),
    )


def troubles(look: Look) -> str:
    """What keeps each pod from answering, to be said after something else."""
    said = [
        f"{one.name}: {one.pod.trouble or one.error}" for one in look.missing if one.pod.trouble or one.error
    ]
    if unmade := look.unmade:
        owner = unmade.rpartition("-")[0]
        said.append(f"{unmade} cannot be made: kubectl describe statefulset {owner} says why")
    return "; " + "; ".join(said) if said else ""
