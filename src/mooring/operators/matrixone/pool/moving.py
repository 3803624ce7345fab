"""How a claim moves to another pod, which serves before the old one is drained. Pure.

The claim records the new pod with a token before it takes it (`ChoosePod`), the pod carries the token from its binding
on (`Bind`), and the claim changes over (`MoveClaim`) only to a pod that has it. Only then is the old pod given back.

Why a pod that a claim is bound to is never given back: a pod is given back as it was seen (its version), and only after a
look at the claim itself, newer than the look at the pod, that shows the claim to be neither bound to it nor about to
move to it. To become bound to it later, the claim needs a new token, and the pod a new binding with it: that changes its
version, and the write fails. The first pod of a claim is safe too: it is recorded only in a claim that has none.
"""

from __future__ import annotations

from collections.abc import Callable

from mooring.actor.verdict import Move, Wait
from mooring.operators.matrixone.pool.moves import Bind, ChoosePod, MoveClaim
from mooring.operators.matrixone.pool.snapshot import (
    Candidate,
    ClaimSnapshot,
    chosen,
    free,
    recorded,
    target,
)

__all__ = ["MOVES_WITHIN", "move", "needs_move", "reason"]

MOVES_WITHIN = 600.0
"""Seconds until a move that does not end needs a person."""


def reason(snapshot: ClaimSnapshot) -> str:
    """Why the claim has to leave its pod; "" where it may stay."""
    pod = recorded(snapshot)
    if pod is None:
        return ""
    return needs_move(
        pod.name, leaves=pod.leaves, pod_name=snapshot.pod_name, source_name=snapshot.source_name
    )


def needs_move(pod: str, *, leaves: str, pod_name: str, source_name: str) -> str:
    """Why a claim leaves its pod: what its user asks for, else the word of the pod's CNSet."""
    if pod_name not in ("", pod):
        return f"spec.podName asks for {pod_name}"
    if source_name == pod:
        return "spec.sourcePod asks to leave it"
    return leaves


def move(snapshot: ClaimSnapshot, choose: Callable[[], Candidate | Wait]) -> Move | Wait | None:
    """The next step of a move; ``None`` where none is needed. ``choose`` finds a pod to move to."""
    pod, new, why = recorded(snapshot), target(snapshot), reason(snapshot)
    aim = chosen(snapshot)
    asked = snapshot.pod_name if pod is not None and snapshot.pod_name not in ("", pod.name) else ""
    if aim is not None and asked not in ("", aim.name):
        aim = None
    if aim is not None and not aim.terminating and aim == new:
        return _change_over(snapshot, pod, aim)
    if aim is not None and free(aim) and (why or pod is None):
        text = f"{aim.name} is idle; the claim moves to it"
        return Bind(pod=aim.name, uid=aim.uid, version=aim.version, token=snapshot.token, why=text)
    if pod is None:
        return None
    if not why:
        text = f"{pod.name} may stay"
        return ChoosePod(token="", version=snapshot.version, why=text) if snapshot.token else None
    found = choose()
    if isinstance(found, Wait):
        return Wait(
            found.reason, f"{_leaving(pod, why)}; {found.message}", after=found.after, stalled=found.stalled
        )
    text = f"{_leaving(pod, why)}: it moves to {found.name}"
    return ChoosePod(token=f"{found.uid}/{snapshot.version}", version=snapshot.version, why=text)


def _change_over(snapshot: ClaimSnapshot, pod: Candidate | None, new: Candidate) -> Move | Wait:
    if pod is None:
        text = f"its old pod is gone; it is bound to {new.name}"
        return MoveClaim(pod=new, left=snapshot.pod_name, version=snapshot.version, why=text)
    if not new.known:
        text = f"{new.name} starts to serve; until then {pod.name} does"
        if snapshot.late:
            text += (
                f". It takes more than {MOVES_WITHIN:.0f} s: delete the pod {new.name}, and another is chosen"
            )
        return Wait("Moving", text, after=1.0, stalled=snapshot.late)
    text = f"{new.name} serves in the place of {pod.name}"
    return MoveClaim(pod=new, left=pod.name, version=snapshot.version, why=text)


def _leaving(pod: Candidate, why: str) -> str:
    return f"the claim has to leave {pod.name} ({why}), which serves until then"
