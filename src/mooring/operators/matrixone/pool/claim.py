"""How a claim gets its pod, keeps it, and gives it back. Pure.

The pod's labels say whose it is, and only a write that is fenced by the pod's version changes them: of two claims that
want one pod, one fails and looks again. The claim then records the pod, fenced by its own version: of two operators that
bound two pods for one claim, one fails, and the pod that was not recorded goes back. A recorded claim never gets another pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.matrixone.pool.labels import BOUND, IDLE

__all__ = [
    "Bind",
    "Candidate",
    "ClaimSnapshot",
    "Dress",
    "GiveBack",
    "OnPod",
    "Record",
    "decide",
    "held",
    "lost",
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
    dressed: bool = True
    """It has the labels that the claim gives it."""
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
    owner: str = ""
    moves: bool = False
    """Its user asks for a move to another pod."""
    ending: bool = False
    paused: bool = False


@dataclass(frozen=True, kw_only=True)
class OnPod(Move):
    """A change of one pod, exactly as it was seen."""

    pod: str
    uid: str
    version: str


@dataclass(frozen=True, kw_only=True)
class Bind(OnPod):
    """Take an idle pod for the claim."""


@dataclass(frozen=True, kw_only=True)
class Dress(OnPod):
    """Give the bound pod the labels that the claim has now."""


@dataclass(frozen=True, kw_only=True)
class GiveBack(OnPod):
    """Let a pod go; its sessions are moved away before anybody else gets it."""


@dataclass(frozen=True, kw_only=True)
class Record(Move):
    """Write the pod into the claim, exactly as the claim was seen."""

    pod: Candidate
    version: str


def decide(snapshot: ClaimSnapshot) -> Verdict:
    """The next step of a claim."""
    mine = held(snapshot)
    if snapshot.ending:
        return _give_back(mine[0], "its claim is deleted") if mine else InSync("no pod is held")
    for pod in mine:
        if snapshot.pod_uid and pod.uid != snapshot.pod_uid:
            return _give_back(pod, f"the claim is bound to {snapshot.pod_name}")
    if snapshot.pod_uid:
        return _bound(snapshot, mine)
    if mine:
        # Of two that were taken by two operators, both choose the same.
        first = min(mine, key=lambda one: one.uid)
        return Record(pod=first, version=snapshot.version, why=f"{first.name} is bound to it")
    return _choose(snapshot)


def held(snapshot: ClaimSnapshot) -> list[Candidate]:
    """The pods that are bound to this very claim, not to an earlier one of its name."""
    return [
        one
        for one in snapshot.pods
        if one.claimed_by == snapshot.name and one.claim_uid == snapshot.uid and one.phase == BOUND
    ]


def lost(snapshot: ClaimSnapshot) -> bool:
    """The pod of the claim is gone, or not its own any more: it never gets another."""
    return bool(snapshot.pod_uid) and all(one.uid != snapshot.pod_uid for one in held(snapshot))


def _bound(snapshot: ClaimSnapshot, mine: list[Candidate]) -> Verdict:
    if not mine:
        text = f"its pod {snapshot.pod_name} is gone; a claim is bound once: delete it and make another"
        return Wait("Lost", text, after=300.0, stalled=True)
    pod = mine[0]
    if snapshot.moves:
        text = (
            f"spec.sourcePod or another podName asks for a move to another pod, which this version does not carry out; "
            f"it stays bound to {pod.name}. Remove spec.sourcePod and name {pod.name}, or make another claim"
        )
        return Wait("MigrationNotSupported", text, after=300.0, stalled=True)
    if pod.terminating:
        return Wait("PodEnding", f"{pod.name} ends", after=2.0)
    if not pod.dressed:
        return Dress(pod=pod.name, uid=pod.uid, version=pod.version, why="the labels of the claim changed")
    if not pod.serves:
        return Wait("PodStarting", f"{pod.name} is bound, and does not serve yet", after=2.0)
    return InSync(f"{pod.name} serves")


def _choose(snapshot: ClaimSnapshot) -> Verdict:
    idle = [one for one in snapshot.pods if one.phase == IDLE and not one.terminating and not one.claimed_by]
    if snapshot.pod_name:
        asked = next((one for one in snapshot.pods if one.name == snapshot.pod_name), None)
        if asked is None or asked not in idle:
            state = "is not there" if asked is None else f"is {asked.phase or 'not pooled'}"
            text = (
                f"the claim names {snapshot.pod_name}, which {state}; remove spec.podName to get any idle pod"
            )
            return Wait("PodNotIdle", text, after=5.0, stalled=True)
        return _bind(asked)
    free = [one for one in idle if one.matches]
    if not free:
        return Wait(
            "NoIdlePod", "no idle pod matches spec.selector; a pool makes one, or one comes back", after=5.0
        )
    return _bind(min(free, key=lambda one: _preference(snapshot, one)))


def _preference(snapshot: ClaimSnapshot, pod: Candidate) -> tuple[bool, bytes]:
    """The owner's last pod has a warm cache; else claims spread, so that many at once seldom want the same one."""
    again = bool(snapshot.owner) and pod.last_owner == snapshot.owner
    return not again, blake2b(f"{snapshot.uid}/{pod.uid}".encode(), digest_size=8).digest()


def _bind(pod: Candidate) -> Bind:
    return Bind(pod=pod.name, uid=pod.uid, version=pod.version, why=f"{pod.name} is idle")


def _give_back(pod: Candidate, why: str) -> GiveBack:
    return GiveBack(pod=pod.name, uid=pod.uid, version=pod.version, why=f"{pod.name}: {why}")
