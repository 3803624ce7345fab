"""Which claims a claim set makes and deletes. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import blake2b

from mooring.actor.verdict import InSync, Move, Verdict, Wait

__all__ = ["CreateClaim", "DeleteClaim", "Relabel", "SetClaim", "SetSnapshot", "decide"]


@dataclass(frozen=True, kw_only=True)
class SetClaim:
    """A claim of the set."""

    name: str
    uid: str
    version: str
    phase: str = "Pending"
    has_pod: bool = False
    ready: bool = False
    ending: bool = False
    as_declared: bool = True
    """The labels that it gives its pod are those of the template."""
    created: str = ""


@dataclass(frozen=True, kw_only=True)
class SetSnapshot:
    """One look at a claim set."""

    uid: str
    name: str
    replicas: int
    claims: tuple[SetClaim, ...] = ()
    taken: Collection[str] = field(default=())
    """Names of claims that are not the set's."""
    paused: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateClaim(Move):
    """Make a claim; of two operators that want one more, one finds the name taken."""

    claim: str


@dataclass(frozen=True, kw_only=True)
class DeleteClaim(Move):
    """Delete a claim exactly as it was seen: it may have got a pod meanwhile."""

    claim: str
    uid: str
    version: str


@dataclass(frozen=True, kw_only=True)
class Relabel(Move):
    """Give a claim the labels of the template."""

    claim: str
    uid: str
    version: str


def decide(snapshot: SetSnapshot) -> Verdict:
    """The next step of a claim set."""
    living = [one for one in snapshot.claims if not one.ending and one.phase != "Lost"]
    if len(living) < snapshot.replicas:
        why = f"{len(living)} of {snapshot.replicas} claims are there"
        return CreateClaim(claim=_free_name(snapshot), why=why)
    if len(living) > snapshot.replicas:
        first = min(living, key=_order)
        return _delete(first, f"{snapshot.replicas} claims are declared")
    for one in snapshot.claims:
        if one.phase == "Lost" and not one.ending:
            return _delete(one, "its pod is gone, and another claim stands for it")
    for one in living:
        if not one.as_declared:
            return Relabel(
                claim=one.name, uid=one.uid, version=one.version, why=f"{one.name} has other labels"
            )
    ready = sum(one.ready for one in living)
    if ready < snapshot.replicas:
        return Wait(
            "ClaimsPending", f"{ready} of {snapshot.replicas} claims have a pod that serves", after=10.0
        )
    if len(snapshot.claims) > len(living):
        return Wait("ClaimsEnding", "claims that were deleted give their pods back", after=10.0)
    return InSync(f"{ready} claims have pods that serve")


def _order(claim: SetClaim) -> tuple[bool, bool, bool, str, str]:
    """Who goes first: a claim without a pod, one that does not serve, the newest."""
    newest = "".join(chr(0x10FFF - ord(one)) for one in claim.created)
    return claim.has_pod, claim.phase == "Bound", claim.ready, newest, claim.name


def _delete(claim: SetClaim, why: str) -> DeleteClaim:
    return DeleteClaim(claim=claim.name, uid=claim.uid, version=claim.version, why=f"{claim.name}: {why}")


def _free_name(snapshot: SetSnapshot) -> str:
    """The first name that is free: who looks at the same claims chooses the same."""
    used = {one.name for one in snapshot.claims} | set(snapshot.taken)
    at = 0
    while (name := f"{snapshot.name}-{_suffix(snapshot.uid, at)}") in used:
        at += 1
    return name


def _suffix(uid: str, at: int) -> str:
    return blake2b(f"{uid}/{at}".encode(), digest_size=4).hexdigest()[:5]
