"""Failed steps: what is recorded of one, its remedy, and when it is retried. Pure rules.

The status has what failed, since when, and when it is retried, so that another process reports and does the same.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from mooring.actor import Note
from mooring.operators.redis.cluster.moves import InSync, Move, MoveSlots, Verdict, Wait
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.types import RedisClusterStatus, Retry, SlotPlan
from mooring.runtime import redact

__all__ = [
    "PACE",
    "SLOTS_FAILED",
    "after_failure",
    "after_success",
    "failing_for_long",
    "said_of",
    "slots_failed",
    "spaced",
    "still_needed",
]

SLOTS_FAILED: Final = {
    "Rebalance": "RebalanceSlotsFailed",
    "Reshard": "ReshareSlotsFailed",
    "Drain": "RebalanceSlotsFailed",
}
"""HarmonyCloud's reason for each kind of plan whose last try failed."""
APART: Final = timedelta(seconds=5)
"""Between two attempts to move slots, once they have failed for long."""
REFUSED: Final = timedelta(minutes=5)
"""Until a step that the API server refused is retried, unless something changes before."""
PACE: Final = 0.8
"""Seconds to wait after each attempt before that: about one a second."""
PATIENCE: Final = timedelta(seconds=10)
"""How long steps may fail, as they do while servers come and go, before the status says so; one that goes on failing is
recorded as often."""
OTHERS: Final = timedelta(seconds=3)
"""How long the failure of another step is not recorded over the one that is."""
LATELY: Final = timedelta(seconds=60)
"""An older failure is over: an attempt may take half a minute."""
_REMEDIES: Final = {
    "OOM ": "{target} is at its maxmemory: raise it there and on its replicas by CONFIG SET maxmemory, and MAXMEMORY in "
    "spec.pod[0].env so that it stays; or put spec.replicas back",
    "IOERR ": "either {source} does not reach {target}, or a key of that slot is too large: it takes more than 20 seconds, "
    "or exceeds the proto-max-bulk-len of {target} (512 MB by default); CLUSTER GETKEYSINSLOT on {source} names its keys: "
    "split or delete the large one",
    "invalid bulk length": "a key of that slot exceeds the proto-max-bulk-len of {target} (512 MB by default): raise it "
    "there by CONFIG SET, or split or delete the key",
    "MIGRATE refused: syntax error": "Redis before 4.0.7 moves no keys to a server with a password: put spec.replicas "
    "back, and update the servers first",
}
"""What helps, by the server's words."""


def said_of(move: Move, error: str) -> str:
    """The message about a failed step; the same for each attempt while the failure is the same."""
    if not isinstance(move, MoveSlots):
        return error
    source, target = move.source.name, move.target.name
    helps = next((text for words, text in _REMEDIES.items() if words in error), "")
    remedy = f"; {helps.format(source=source, target=target)}" if helps else ""
    return str(redact(f"slots from {source} to {target}: {error}{remedy}"))


def slots_failed(plan: SlotPlan) -> str:
    """HarmonyCloud's reason for a plan whose last try failed."""
    return SLOTS_FAILED.get(plan.kind, "RebalanceSlotsFailed")


def after_failure(
    status: RedisClusterStatus,
    move: Move,
    said: str,
    *,
    note: Note | None,
    now: datetime,
    refused: bool = False,
) -> RedisClusterStatus:
    """The status after a try that failed; ``note`` tells of it.

    The first failure is recorded at once, further ones of the step every ten seconds, and each once tries are spaced.
    ``refused``: the API server does not accept it, and it is minutes until the next try.
    """
    slots = isinstance(move, MoveSlots)
    if (plan := status.slot_plan) is not None and slots:
        status = replace(status, slot_plan=replace(plan, failure=said, failing=plan.failing or now))
    before = status.retry if _is_recent(status.retry, now) else None
    if before is not None:
        spaced = slots and before.next is not None
        rest = _unrecorded(before, move, refused=refused)
        if not spaced and now - (before.last or now) < rest:
            return status
    if before is None or before.step != move.name:
        before = Retry(since=now if before is None else before.since)
    long = now - (before.since or now) >= PATIENCE
    text = said if slots else f"{move.why}: failed, and is retried: {said}"
    retry = replace(
        before,
        step=move.name,
        event=note.reason if note is not None else None,
        message=str(redact(text)),
        failures=before.failures + 1,
        last=now,
        next=now + (REFUSED if refused else APART) if refused or (slots and long) else None,
    )
    return replace(status, retry=retry)


def _unrecorded(before: Retry, move: Move, *, refused: bool) -> timedelta:
    """How long a failure is not recorded over the one before.

    Another step is recorded soon, once. Steps that fail in turn are recorded as seldom as a single one: `Retry.since` is
    when the first of them failed.
    """
    if before.step == move.name:
        return PATIENCE
    if refused:
        return timedelta()
    return PATIENCE if before.since != before.last else OTHERS


def after_success(status: RedisClusterStatus, move: Move) -> RedisClusterStatus:
    """The status after a step that succeeded."""
    if (plan := status.slot_plan) is not None and isinstance(move, MoveSlots):
        status = replace(status, slot_plan=replace(plan, failure=None, failing=None))
    if status.retry is not None and status.retry.step == move.name:
        status = replace(status, retry=None)
    return status


def still_needed(retry: Retry | None, verdict: Verdict, now: datetime) -> Retry | None:
    """What is recorded of a step, until nothing is left to do or it was not tried for long."""
    return retry if _is_recent(retry, now) and not isinstance(verdict, InSync) else None


def _is_recent(retry: Retry | None, now: datetime) -> bool:
    """It was tried lately, or is to be tried later."""
    if retry is None or retry.last is None:
        return False
    return now - max(retry.last, retry.next or retry.last) <= LATELY


def failing_for_long(retry: Retry | None, now: datetime) -> str:
    """What has failed for long and still does; "" if nothing.

    Of slots the plan says it, and of what the API server refused the reason does already.
    """
    if retry is None or retry.since is None or retry.last is None:
        return ""
    if retry.step == MoveSlots.__name__ or retry.next is not None:
        return ""
    return retry.message if retry.last - retry.since >= PATIENCE and now - retry.last <= LATELY else ""


def spaced(snapshot: Snapshot, verdict: Verdict) -> Verdict:
    """The verdict, or a wait where it is another attempt to move slots and its time has not come.

    Whatever else there is to do does not wait for it. A time further off than the longest wait is another clock's.
    """
    plan, retry = snapshot.recorded.plan, snapshot.recorded.retry
    if plan is None or retry is None or retry.next is None or not isinstance(verdict, MoveSlots):
        return verdict
    left = (retry.next - snapshot.now).total_seconds()
    if not 0 < left <= APART.total_seconds():
        return verdict
    return Wait(reason=slots_failed(plan), message=plan.failure or verdict.why, after=left)
