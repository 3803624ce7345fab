"""What becomes of a BucketClaim. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.operators.matrixone.types import DELETE, DELETING, IN_USE, RELEASED

__all__ = ["Erase", "MarkDeleting", "Release", "Snapshot", "decide", "leave"]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One look at a claim."""

    state: str
    """InUse, Released or Deleting."""
    bound_to: str = ""
    """namespace/name of the LogSet."""
    owner_there: bool = True
    """That LogSet exists, the very one that took the claim, and is not being deleted."""
    users: tuple[str, ...] = ()
    """Sets and pods that may still write there."""
    policy: str = DELETE
    was_live: bool = False
    """A process of the owner has run: what is in the path is the cluster's."""
    deleted: bool = False
    """The claim itself is being deleted."""


@dataclass(frozen=True, kw_only=True)
class Release(Move):
    """Nobody owns the path any more; the data stays."""


@dataclass(frozen=True, kw_only=True)
class MarkDeleting(Move):
    """The data is to be deleted: recorded before the first object goes, and the claim is deleted with it."""


@dataclass(frozen=True, kw_only=True)
class Erase(Move):
    """Delete objects of the path, a part of them at a time."""


def decide(snapshot: Snapshot) -> Verdict:
    """The next step of a claim that is not being deleted."""
    if snapshot.state == RELEASED:
        return InSync("nobody uses the path; a LogSet may take it")
    if snapshot.state == DELETING:
        return MarkDeleting(why="the path is being emptied")
    return _after_owner(snapshot) or InSync(f"{snapshot.bound_to} uses the path", again=60.0)


def _after_owner(snapshot: Snapshot) -> Verdict | None:
    """What follows once the LogSet is gone; ``None`` while it is there."""
    if snapshot.owner_there:
        return None
    if snapshot.users:
        text = f"LogSet {snapshot.bound_to} is gone; still there: {', '.join(snapshot.users)}"
        return Wait("InUse", text, after=2.0)
    if snapshot.policy == DELETE:
        return MarkDeleting(why=f"LogSet {snapshot.bound_to} is gone, and its data is to be deleted with it")
    return Release(why=f"LogSet {snapshot.bound_to} is gone, and its data is to be kept")


def leave(snapshot: Snapshot) -> Verdict:
    """The next step of a claim that is being deleted; `InSync` lets it go."""
    if snapshot.state == RELEASED:
        return InSync("the data is kept")
    if snapshot.state == IN_USE:
        if snapshot.owner_there:
            text = (
                f"LogSet {snapshot.bound_to} uses the path; the claim goes once that is deleted. To keep the data, set its "
                "s3RetentionPolicy to Retain first"
            )
            return Wait("InUse", text, after=30.0)
        return _after_owner(snapshot) or InSync()
    if not snapshot.was_live:
        return InSync("no process ever ran: there is no data of the cluster")
    return Erase(why="the data of the path is deleted")
