"""Plans run in forks of one run do what they do in runs of their own."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from tests.testing.test_campaign import Pair, Reconcile, done_before_it_is, sound, workload

from mooring.runtime import Manager
from mooring.testing.branches import Branches, Outcome
from mooring.testing.campaign import plans, run_campaign
from mooring.testing.faults import Fault, Plan
from mooring.testing.oracles import learn
from mooring.testing.workload import Trace, elects, play

forks = pytest.mark.skipif(sys.version_info >= (3, 14), reason="plans run one after the other from 3.14 on")
FIRST = "POST /api/v1/namespaces/default/configmaps"


def course(trace: Trace) -> list[str]:
    """What happened when."""
    return [f"{one.when:.3f} {one.at} #{one.nth} by {one.by} #{one.by_nth}" for one in trace.changes]


async def grown(
    reconcile: Reconcile, some: list[Plan], *, jobs: int = 2
) -> tuple[dict[str, Outcome], list[Plan]]:
    """What became of plans in forks, a run's course in place of complaints, and those that were left."""
    outcomes: dict[str, Outcome] = {}
    tree = Branches(
        some, judge=course, jobs=jobs, told=lambda plan, outcome: outcomes.setdefault(str(plan), outcome)
    )
    await tree.grow(workload(reconcile), elect=False)
    return outcomes, tree.left


@forks
async def test_a_branch_takes_the_course_of_a_run_of_its_own() -> None:
    some = [plan for plan in plans(await learn(workload(sound)), "pairs") if not elects(plan)]

    outcomes, left = await grown(sound, some)

    assert left == []
    assert len({tuple(one.complaints) for one in outcomes.values()}) > 5
    for plan in some:
        assert outcomes[str(plan)].complaints == course(await play(workload(sound), plan)), plan


async def test_the_same_plan_takes_the_same_course() -> None:
    plan = Plan(faults=(Fault(kind="conflict", at=FIRST),))

    one, other = [course(await play(workload(sound), plan)) for _ in range(2)]

    assert one == other


@forks
async def test_what_cannot_be_a_branch_is_left() -> None:
    never = Plan(faults=(Fault(kind="crash-after", at="POST /nowhere"),))
    two = Plan(faults=(Fault(kind="conflict", at=FIRST), Fault(kind="conflict", at=FIRST, nth=2)))

    outcomes, left = await grown(sound, [never, two])

    assert (outcomes, left) == ({}, [never, two])


@forks
async def test_a_branch_whose_process_ends_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    ours = os.getpid()

    async def fatal(manager: Manager, pair: Pair) -> None:
        if os.getpid() != ours and not (tmp_path / "ended").exists():
            (tmp_path / "ended").touch()
            os._exit(3)
        await sound(manager, pair)

    some = [Plan(faults=(Fault(kind=kind, at=FIRST),)) for kind in ("conflict", "crash-after")]

    outcomes, _ = await grown(fatal, some, jobs=1)

    first, second = (outcomes[str(plan)].complaints for plan in some)
    assert first == ["its process ended with status 768"]
    assert len(second) > 3


async def test_beside_threads_plans_run_in_this_process_and_find_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crashes(plan: Plan) -> bool:
        return plan.faults[0].kind == "crash-after"

    forked = await run_campaign(workload(done_before_it_is), only=crashes)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked beside a thread"))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        here = await run_campaign(workload(done_before_it_is), only=crashes)
    finally:
        done.set()
        thread.join()

    assert here.failures
    assert sorted(map(str, here.failures)) == sorted(map(str, forked.failures))
