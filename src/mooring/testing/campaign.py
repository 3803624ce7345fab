"""Every fault plan of a workload, derived from a run without faults, and what became of them.

    result = await run_campaign(WORKLOAD)
    assert not result.failures

Plans follow Sieve's three rules (OSDI 2022), from the changes and requests of the reference run:

- *intermediate state*: at every request that changed something the process dies, before and after; the answer is
  lost, the request is refused with each of the statuses that a server uses, or never arrives; the Lease goes.
- *unobserved state*: a change that a later one takes back is never told.
- *stale state*: after a later change of the same object the process starts anew and finds lists from before it.

and watches break, stall, end and lag at the changes that the operator watches. What cannot have mattered is pruned:
requests that changed nothing, changes of what the operator does not watch, and changes after its last request; and
for what is seen late, changes of an object that changed once more before the operator did anything, and those amid
a row of its own: not to see the next one, or the first, is as bad.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.testing.branches import Branches, Outcome
from mooring.testing.changes import Change
from mooring.testing.faults import Fault, FaultKind, Plan
from mooring.testing.oracles import Reference, learn
from mooring.testing.workload import LEASE, Trace, Workload, elects, play

__all__ = ["Failure", "Result", "plans", "replay", "run_campaign"]

#: What may happen to a request that changes something.
AT_REQUESTS: Final[tuple[FaultKind, ...]] = (
    "crash-before",
    "crash-after",
    "lost-answer",
    "reset",
    "conflict",
    "invalid",
    "throttle",
    "error",
    "suspend",
    "usurp",
)
AT_WATCHES: Final[tuple[FaultKind, ...]] = ("cut", "torn", "gone", "stall")
#: Plans between two rounds of the garbage collector over everything.
COLLECT = 50
HOUR = 3600.0


@dataclass(frozen=True)
class Failure:
    """A plan under which something went wrong, and what."""

    plan: Plan
    complaints: tuple[str, ...]


@dataclass
class Result:
    """What became of a workload's plans."""

    workload: str
    plans: int = 0
    #: Plans whose moment did not come: other faults' consequences, or names that are made up anew.
    missed: int = 0
    #: Real seconds, and those of a processor.
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


async def run_campaign(
    workload: Workload,
    *,
    only: Callable[[Plan], bool] = lambda plan: True,
    told: Callable[[Plan, Sequence[str]], object] = lambda plan, complaints: None,
    jobs: int = 1,
) -> Result:
    """Learn a workload, derive its plans and run those that ``only`` selects (all); ``told`` hears of each.

    A plan is run in a fork of a run without faults (see `mooring.testing.branches`), ``jobs`` of them at a time;
    where that cannot be, one after the other in this process.
    """
    began, used = time.perf_counter(), time.process_time()
    reference = await learn(workload)
    result = Result(workload.name)
    branched = 0.0

    def ended(plan: Plan, outcome: Outcome) -> None:
        nonlocal branched
        branched += outcome.cpu_seconds
        result.plans += 1
        result.missed += outcome.missed
        if outcome.complaints:
            result.failures.append(Failure(plan, tuple(outcome.complaints)))
        told(plan, outcome.complaints)

    chosen = [plan for plan in plans(reference, workload.name) if only(plan)]
    for elect in (False, True):
        alike = [plan for plan in chosen if elects(plan) == elect]
        branches = Branches(alike, judge=reference.judge, jobs=jobs, told=ended)
        if alike and branches.possible:
            _collect()  # a process is forked the sooner the less it has
            await branches.grow(workload, elect=elect)
        for number, plan in enumerate(branches.left, 1):
            complaints, missed = await _run(workload, reference, plan)
            ended(plan, Outcome(complaints, missed, 0.0))
            if number % COLLECT == 0:
                _collect()
    result.seconds = time.perf_counter() - began
    result.cpu_seconds = time.process_time() - used + branched
    return result


def _collect() -> None:
    """Let go of the runs before: a manager freezes what is there when it starts, and so does a fork.

    What stays is frozen at once: each manager would go through all of it again, in a process of tests for a quarter of a
    second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def replay(workload: Workload, plan: Plan) -> list[str]:
    """Run one plan, a kept one say; returns what went wrong, and whether it struck at all."""
    complaints, missed = await _run(workload, await learn(workload), plan)
    return [*complaints, *(["the moment of a fault did not come"] if missed else [])]


async def _run(workload: Workload, reference: Reference, plan: Plan) -> tuple[list[str], bool]:
    trace = await play(workload, plan)
    return reference.judge(trace), trace.missed > 0


# --- deriving plans


def plans(reference: Reference, workload: str) -> list[Plan]:
    """All plans of a reference run, each once."""
    changes = _Changes(reference)
    faults = [
        *_at_requests(changes),
        *_unobserved(changes),
        *_stale(changes),
        *_watches(changes),
        *_clocks(changes),
    ]
    return [Plan(workload=workload, faults=(one,)) for one in dict.fromkeys(faults)]


class _Changes:
    """The changes of the reference run that can matter."""

    def __init__(self, reference: Reference) -> None:
        trace = reference.trace
        given, later = trace.changes[: trace.given], trace.changes[trace.given :]
        self.requests = list(dict.fromkeys((one.by, one.by_nth) for one in later if one.by))
        last = max((number for number, one in enumerate(later) if one.by), default=-1)
        #: Watched ones that the operator wrote something after, after the steps that are given.
        self.seen = [one for one in later[: last + 1] if _is_seen(one, trace)]
        #: The newest of each object before those.
        self.before = list({one.key: one for one in given if _is_seen(one, trace)}.values())
        self.acted_upon = {*self.before, *_acted_upon(later, self.seen)}

    def pairs(self, *, since: Sequence[Change] = ()) -> Iterator[tuple[Change, Change]]:
        """Each change with every later one of the same object."""
        for number, one in enumerate([*since, *self.seen], -len(since)):
            for later in self.seen[max(0, number + 1) :]:
                if later.key == one.key:
                    yield one, later


def _is_seen(one: Change, trace: Trace) -> bool:
    return one.resource in trace.watched and not one.made_up


def _acted_upon(changes: Sequence[Change], seen: Sequence[Change]) -> set[Change]:
    """Changes that were the newest of their objects when the operator next wrote something."""
    found: set[Change] = set()
    newest: dict[tuple[str, str, str], Change] = {}
    watched = set(seen)
    for one in changes:
        if one.by:
            found.update(newest.values())
            newest.clear()
        if one in watched:
            newest[one.key] = one
    return found.union(one for one in newest.values() if one.by)


def _at_requests(changes: _Changes) -> Iterator[Fault]:
    for moment, nth in changes.requests:
        for kind in AT_REQUESTS:
            lease = LEASE if kind == "usurp" else ""
            yield Fault(kind=kind, at=moment, nth=nth, lease=lease)


def _unobserved(changes: _Changes) -> Iterator[Fault]:
    """From a change until the first that takes it back."""
    told: set[Change] = set()
    for one, later in changes.pairs():
        if one not in told and _cancels(one, later):
            told.add(one)
            yield Fault(kind="skip", at=one.at, nth=one.nth, until=later.at, until_nth=later.nth)


def _cancels(one: Change, later: Change) -> bool:
    if one.type == "DELETED":
        return later.type == "ADDED"
    if one.object["metadata"]["uid"] != later.object["metadata"]["uid"]:
        return False
    if one.type == "ADDED":
        return later.type == "DELETED"
    if later.type != "MODIFIED" or one.previous is None:
        return later.type == "DELETED" and bool(one.object["metadata"].get("deletionTimestamp"))
    before, during, after = (_meaning(obj) for obj in (one.previous, one.object, later.object))
    return any(before.get(name) == after.get(name) != during.get(name) for name in {*before, *during})


def _meaning(obj: dict[str, Any]) -> dict[str, Any]:
    """What an object says, by part and field."""
    return {
        f"{part}.{name}": value
        for part in ("spec", "status", "data")
        for name, value in (obj.get(part) or {}).items()
        if name != "observedGeneration"
    }


def _stale(changes: _Changes) -> Iterator[Fault]:
    """From a change until the next of its object that matters."""
    told: set[Change] = set()
    for one, later in changes.pairs(since=changes.before):
        if one not in told and one in changes.acted_upon:
            told.add(one)
            yield Fault(kind="stale", at=one.at, nth=one.nth, until=later.at, until_nth=later.nth)
        if later.type == "DELETED" or (later.type == "ADDED" and one.type == "DELETED"):
            yield Fault(kind="stale", at=one.at, nth=one.nth, until=later.at, until_nth=later.nth)


def _watches(changes: _Changes) -> Iterator[Fault]:
    """Streams break at the first and the last change of each resource; they lag at each."""
    by_resource: dict[str, list[Change]] = {}
    for one in changes.seen:
        by_resource.setdefault(one.resource, []).append(one)
    for news in by_resource.values():
        for one in (news[0], news[len(news) // 2], news[-1]):
            for kind in AT_WATCHES:
                yield Fault(kind=kind, at=one.at, nth=one.nth)
        for before, one, after in zip([None, *news], news, [*news[1:], None], strict=False):
            amid = before is not None and after is not None and all(x.by for x in (before, one, after))
            if one in changes.acted_upon and not amid:
                yield Fault(kind="delay", at=one.at, nth=one.nth)


def _clocks(changes: _Changes) -> Iterator[Fault]:
    for moment, nth in changes.requests[:1]:
        yield Fault(kind="wall", at=moment, nth=nth, seconds=HOUR)
        yield Fault(kind="wall", at=moment, nth=nth, seconds=-HOUR)
