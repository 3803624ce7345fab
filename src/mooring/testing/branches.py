"""Runs that share their beginning: at the moment its fault strikes, a plan's run is forked off one without faults.

Until then nothing tells the two apart, so nothing is computed twice: not the start of the control plane, nor what
the workload did before. A branch is a process of its own; it runs to its end and sends back what `judge` says.

    tree = Branches(plans, judge=judge, jobs=2, told=told)
    if tree.possible:
        await tree.grow(workload, elect=False)
    for plan in tree.left: ...      # their moment did not come, or they have more than one fault
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

import msgspec

from mooring.testing.faults import Plan
from mooring.testing.workload import Trace, Workload, run

__all__ = ["Branches", "Outcome"]

#: From 3.14 on a task does not go on in a forked process.
_FORKS: Final = hasattr(os, "fork") and sys.version_info < (3, 14)
#: Seconds within which one of the branches that run must end; they take less than one.
LIMIT: Final = 300.0
#: Complaints that are sent back; more say nothing new.
MOST: Final = 100


class Outcome(msgspec.Struct, frozen=True):
    """What became of one plan, and the seconds of a processor that it took."""

    complaints: list[str]
    missed: bool
    cpu_seconds: float


class Branches:
    """The plans of one workload that have a single fault, as branches of one run; ``jobs`` of them at a time.

    ``told`` hears of each as it ends. What could not be run so stays in `left`.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        *,
        judge: Callable[[Trace], list[str]],
        jobs: int,
        told: Callable[[Plan, Outcome], object],
    ) -> None:
        self._judge, self._jobs, self._told = judge, jobs, told
        self._several: list[Plan] = []
        self._at: dict[tuple[str, int], list[Plan]] = {}
        for plan in plans:
            if len(plan.faults) == 1:
                self._at.setdefault((plan.faults[0].at, plan.faults[0].nth), []).append(plan)
            else:
                self._several.append(plan)
        self._running: dict[int, tuple[int, Plan]] = {}
        self._report: int | None = None

    @property
    def possible(self) -> bool:
        """Whether this process can be forked: other threads would be gone, with the locks that they hold."""
        return _FORKS and threading.active_count() == 1

    @property
    def left(self) -> list[Plan]:
        """The plans that were not run."""
        return [*(plan for plans in self._at.values() for plan in plans), *self._several]

    async def grow(self, workload: Workload, *, elect: bool) -> None:
        """Run the workload without faults and every branch to its end; with ``elect`` the operator holds a Lease."""
        trace = Trace(Plan(workload=workload.name))
        try:
            await run(workload, trace, elect=elect, branch=lambda at, nth: self._branch(trace, at, nth))
            if self._report is not None:
                self._end(Outcome(self._judge(trace)[:MOST], trace.missed > 0, time.process_time()))
            while self._running:
                self._reap()
        except BaseException as error:
            if self._report is not None:
                said = traceback.format_exception(error)[-1].strip()
                self._end(
                    Outcome([f"the run broke off: {said}"], missed=False, cpu_seconds=time.process_time())
                )
            raise
        finally:
            self._abandon()

    def _branch(self, trace: Trace, at: str, nth: int) -> Plan | None:
        """Fork the plans of this moment off; returns the plan in its own process, and nothing in this one."""
        if self._report is not None:
            return None
        for plan in self._at.pop((at, nth), ()):
            while len(self._running) >= self._jobs:
                self._reap()
            if self._fork(plan):
                trace.plan = plan
                return plan
        return None

    def _fork(self, plan: Plan) -> bool:
        """Whether this is the new process."""
        loop, dice = asyncio.get_running_loop(), random.getstate()
        gc.freeze()  # what is looked at is copied, so a collector in the new process must not look
        reading, writing = os.pipe()
        if pid := os.fork():
            os.close(writing)
            self._running[reading] = pid, plan
            return False
        os.close(reading)
        self._report = writing
        gc.disable()
        # Both are reset in a new process; here it is to go on as if nothing had happened.
        asyncio._set_running_loop(loop)
        random.setstate(dice)
        return True

    def _end(self, outcome: Outcome) -> NoReturn:
        """Send the outcome and leave, without whatever the process that was copied has yet to do."""
        try:
            with os.fdopen(self._report or 0, "wb") as pipe:
                pipe.write(msgspec.json.encode(outcome))
        finally:
            os._exit(0)

    def _reap(self) -> None:
        """Wait for one branch to end, and tell of it."""
        ended = select.select(list(self._running), [], [], LIMIT)[0]
        for pid, _ in () if ended else self._running.values():
            os.kill(pid, 9)
        for reading in ended or list(self._running):
            pid, plan = self._running[reading]
            with os.fdopen(reading, "rb", closefd=False) as pipe:
                text = pipe.read()
            del self._running[reading]
            os.close(reading)
            status = os.waitpid(pid, 0)[1]
            said = f"its process ended with status {status}" if ended else f"not done within {LIMIT:.0f} s"
            gone = Outcome([said], missed=False, cpu_seconds=0.0)
            self._told(plan, msgspec.json.decode(text, type=Outcome) if text else gone)

    def _abandon(self) -> None:
        """End what still runs: somebody stopped us."""
        for reading, (pid, _) in self._running.items():
            os.close(reading)
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        self._running.clear()
