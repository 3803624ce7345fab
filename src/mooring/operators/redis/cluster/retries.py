"""Moves of slots that do not get through: what is said of one, what helps, when it is tried again.

The plan in the status keeps what the last try failed with and since when, so another operator says the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.kube.object import Key
from mooring.operators.redis.cluster.moves import Move, MoveSlots, Verdict, Wait
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.status import slots_failed
from mooring.operators.redis.cluster.types import RedisClusterStatus
from mooring.runtime import redact
from mooring.runtime.backoff import KeyedBackoff
from mooring.runtime.clock import Clock

__all__ = ["Tries", "failed", "got_through", "said_of"]

FIRST: Final = 0.2
MOST: Final = 5.0
"""Seconds between two tries, twice as long each time."""

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
    """What is said of a step that failed; the same from try to try, as long as it is the same failure."""
    if not isinstance(move, MoveSlots):
        return error
    source, target = move.source.name, move.target.name
    helps = next((text for words, text in _REMEDIES.items() if words in error), "")
    remedy = f"; {helps.format(source=source, target=target)}" if helps else ""
    return str(redact(f"slots from {source} to {target}: {error}{remedy}"))


def failed(status: RedisClusterStatus, said: str, *, now: datetime) -> RedisClusterStatus:
    """The status after a try that failed."""
    plan = status.slot_plan
    if plan is None:
        return status
    return replace(status, slot_plan=replace(plan, failure=said, failing=plan.failing or now))


def got_through(status: RedisClusterStatus) -> RedisClusterStatus:
    """The status after a try that did not fail."""
    plan = status.slot_plan
    if plan is None:
        return status
    return replace(status, slot_plan=replace(plan, failure=None, failing=None))


class Tries:
    """When each cluster's slots are tried again; whatever else there is to do does not wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._backoff: KeyedBackoff[Key] = KeyedBackoff(first=FIRST, most=MOST)
        self._next: dict[Key, float] = {}

    def failed(self, key: Key) -> None:
        """A try failed."""
        self._next[key] = self._clock.monotonic() + self._backoff.next(key)

    def spaced(self, key: Key, verdict: Verdict, snapshot: Snapshot) -> Verdict:
        """The verdict, or to wait where it is another try and its time has not come."""
        left = self._next.get(key, 0.0) - self._clock.monotonic()
        plan = snapshot.recorded.plan
        if left <= 0 or plan is None or not isinstance(verdict, MoveSlots):
            return verdict
        return Wait(reason=slots_failed(plan), message=plan.failure or verdict.why, after=left)

    def forget(self, key: Key) -> None:
        """A try got through, or the cluster is gone."""
        self._backoff.forget(key)
        self._next.pop(key, None)
