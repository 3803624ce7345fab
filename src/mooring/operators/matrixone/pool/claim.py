"""How a claim gets its pod, keeps it, moves to another, and gives it back. Pure.

The pod's labels say whose it is, and only a write that is fenced by the pod's version changes them: of two claims that
want one pod, one fails and looks again. The claim then records the pod, fenced by its own version: of two operators that
bound two pods for one claim, one fails, and the pod that was not recorded goes back. A recorded claim gets another pod
only by a move (`moving`).
"""

from __future__ import annotations

from hashlib import blake2b

from mooring.actor.verdict import InSync, Verdict, Wait
from mooring.operators.matrixone.pool.moves import Bind, Dress, GiveBack, Record
from mooring.operators.matrixone.pool.moving import move
from mooring.operators.matrixone.pool.snapshot import (
    Candidate,
    ClaimSnapshot,
    free,
    held,
    lost,
    recorded,
    spare,
)

__all__ = ["decide"]


def decide(snapshot: ClaimSnapshot) -> Verdict:
    """The next step of a claim."""
    if snapshot.stale:
        return Wait("Changing", "the claim changes at this moment", after=0.5)
    mine = held(snapshot)
    if snapshot.ending:
        return _give_back(mine[0], "its claim is deleted") if mine else InSync("no pod is held")
    for pod in spare(snapshot):
        return _give_back(pod, f"the claim is bound to {snapshot.pod_name}")
    if snapshot.pod_uid:
        return _bound(snapshot, mine)
    if mine:
        # Of two that were taken by two operators, both choose the same.
        first = min(mine, key=lambda one: one.uid)
        return Record(pod=first, version=snapshot.version, why=f"{first.name} is bound to it")
    found = _choose(snapshot)
    if isinstance(found, Wait):
        return found
    return Bind(pod=found.name, uid=found.uid, version=found.version, why=f"{found.name} is idle")


def _bound(snapshot: ClaimSnapshot, mine: list[Candidate]) -> Verdict:
    if lost(snapshot):
        text = f"its pod {snapshot.pod_name} is gone; such a claim gets no other: delete it and make another"
        return Wait("Lost", text, after=300.0, stalled=True)
    for one in mine:
        if not one.dressed and not one.terminating:
            why = f"the labels of the claim changed; {one.name} gets them"
            return Dress(pod=one.name, uid=one.uid, version=one.version, why=why)
    if step := move(snapshot, lambda: _choose(snapshot, moves=True)):
        return step
    pod = recorded(snapshot)
    assert pod is not None
    if not snapshot.pod_name:
        return Record(pod=pod, version=snapshot.version, why=f"{pod.name} is bound to it")
    if pod.terminating:
        return Wait("PodEnding", f"{pod.name} ends", after=2.0)
    if not pod.serves:
        return Wait("PodStarting", f"{pod.name} is bound, and does not serve yet", after=2.0)
    return InSync(f"{pod.name} serves{_without(pod)}")


def _without(pod: Candidate) -> str:
    """Labels that the claim asks for and its pod does not get, and what to do about it."""
    if not pod.kept:
        return ""
    left = ", ".join(pod.kept[:5])
    return f", without spec.additionalPodLabels {left}: the pool or the operator sets them; remove them from the claim"


def _choose(snapshot: ClaimSnapshot, *, moves: bool = False) -> Candidate | Wait:
    """A pod to bind; to ``moves`` only one that does not have to leave itself."""
    pod = recorded(snapshot)
    if snapshot.pod_name and (pod is None or pod.name != snapshot.pod_name):
        return _asked(snapshot, moves=moves)
    found = [one for one in snapshot.pods if free(one) and one.matches and not (moves and one.leaves)]
    if not found:
        text = "no idle pod matches spec.selector; a pool makes one, or one comes back"
        return Wait("NoIdlePod", text, after=5.0)
    return min(found, key=lambda one: _preference(snapshot, one))


def _asked(snapshot: ClaimSnapshot, *, moves: bool) -> Candidate | Wait:
    name = snapshot.pod_name
    pod = next((one for one in snapshot.pods if one.name == name), None)
    if pod is not None and free(pod) and not (moves and pod.leaves):
        return pod
    state = "is not there" if pod is None else f"is {pod.phase or 'not pooled'}"
    if pod is not None and pod.handed_over:
        state = "gave its lock tables away, and is replaced"
    elif pod is not None and free(pod):
        state = f"has to leave itself ({pod.leaves})"
    text = f"the claim names {name}, which {state}; remove spec.podName to get any idle pod"
    return Wait("PodNotIdle", text, after=5.0, stalled=True)


def _preference(snapshot: ClaimSnapshot, pod: Candidate) -> tuple[bool, bool, bytes]:
    """Pods that may stay; the owner's last one, which has a warm cache; else claims spread, so that many at once seldom want the same one."""
    again = bool(snapshot.owner) and pod.last_owner == snapshot.owner
    spread = blake2b(f"{snapshot.uid}/{pod.uid}".encode(), digest_size=8).digest()
    return bool(pod.leaves), not again, spread


def _give_back(pod: Candidate, why: str) -> GiveBack:
    return GiveBack(pod=pod.name, uid=pod.uid, version=pod.version, why=f"{pod.name}: {why}")
