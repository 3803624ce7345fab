"""Everything that a decision about a claim is made from, at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.operators.matrixone.pool.labels import BOUND, IDLE

__all__ = [
    "Candidate",
    "ClaimSnapshot",
    "chosen",
    "free",
    "gone",
    "held",
    "lost",
    "recorded",
    "spare",
    "target",
]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A compute node of the claim's namespace, as a claim sees it."""

    name: str
    uid: str
    version: str
    phase: str
    claimed_by: str = ""
    claim_uid: str = ""
    matches: bool = True
    """The claim's selector selects it."""
    terminating: bool = False
    serves: bool = False
    """Sessions are sent to it."""
    known: bool = False
    """It serves, and every proxy has had the time to learn of it."""
    dressed: bool = True
    """It has the labels that the claim gives it."""
    kept: tuple[str, ...] = ()
    """Labels that the claim asks for and cannot have: the pod has them with another value, or they are the operator's."""
    handed_over: bool = False
    """It gave its lock tables away, and serves no writes until its process is another one."""
    leaves: str = ""
    """Why it has to leave, by its CNSet's word; "" while it may stay."""
    token: str = ""
    """The move by which its claim took it; "" for the first pod of a claim."""
    last_owner: str = ""
    node: str = ""
    pool: str = ""


@dataclass(frozen=True, kw_only=True)
class ClaimSnapshot:
    """One look at a claim."""

    name: str
    uid: str
    version: str
    pods: tuple[Candidate, ...] = ()
    pod_name: str = ""
    """The pod that the claim names: the one it is bound to, or one that its user asks for."""
    pod_uid: str = ""
    """The pod that it is bound to, as recorded; "" before."""
    source_name: str = ""
    """The pod that its user asks it to leave."""
    token: str = ""
    """The move that is under way, as recorded: the UID of the pod to move to, and a word that no other move has."""
    owner: str = ""
    stale: bool = False
    """The claim is not as it was seen: nothing follows from this look."""
    late: bool = False
    """The move that is under way takes too long."""
    ending: bool = False
    paused: bool = False


def held(snapshot: ClaimSnapshot) -> list[Candidate]:
    """The pods that are bound to this very claim, not to an earlier one of its name."""
    return [
        one
        for one in snapshot.pods
        if one.claimed_by == snapshot.name and one.claim_uid == snapshot.uid and one.phase == BOUND
    ]


def recorded(snapshot: ClaimSnapshot) -> Candidate | None:
    """The pod that the claim is bound to, while it is held."""
    return next((one for one in held(snapshot) if one.uid == snapshot.pod_uid), None)


def chosen(snapshot: ClaimSnapshot) -> Candidate | None:
    """The pod that the claim moves to, even if another claim has it now."""
    uid = snapshot.token.partition("/")[0]
    return next((one for one in snapshot.pods if uid and one.uid == uid), None)


def target(snapshot: ClaimSnapshot) -> Candidate | None:
    """The pod that the claim is to move to, once the claim has it by this move and not by an earlier one."""
    pod = chosen(snapshot)
    return pod if pod is not None and pod in held(snapshot) and pod.token == snapshot.token else None


def free(pod: Candidate) -> bool:
    """A claim may take the pod; one that has to leave serves it until it moves, but not one that serves no writes."""
    return pod.phase == IDLE and not pod.terminating and not (pod.claimed_by or pod.handed_over)


def spare(snapshot: ClaimSnapshot) -> list[Candidate]:
    """Pods of a bound claim that it neither serves on nor moves to."""
    if not snapshot.pod_uid:
        return []
    new = target(snapshot)
    return [one for one in held(snapshot) if one.uid != snapshot.pod_uid and one != new]


def gone(snapshot: ClaimSnapshot) -> bool:
    """The pod of the claim is gone, or not its own any more."""
    return bool(snapshot.pod_uid) and recorded(snapshot) is None


def lost(snapshot: ClaimSnapshot) -> bool:
    """The pod of the claim is gone, and it does not move to another."""
    if not gone(snapshot):
        return False
    new = chosen(snapshot)
    return new is None or new.terminating or not (free(new) or new == target(snapshot))
