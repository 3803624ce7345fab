"""Probing a running container: startup first, then liveness and readiness, each at its own period."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mooring.cache.clock import Clock
from mooring.kube.objects.core import Container, Probe
from mooring.local.node.checks import Checker, CheckFailed

__all__ = ["Probing", "Verdicts"]

_FIRST_PAUSE = 0.03

Unhealthy = Callable[[str, str], None]
"""Called with the kind of probe and what it said."""


@dataclass(slots=True)
class Verdicts:
    """What the probes say of a run; ``changed`` is called after every change."""

    started: bool
    ready: bool
    changed: Callable[[], None]

    def set(self, *, started: bool | None = None, ready: bool | None = None) -> None:
        """Note a verdict."""
        before = (self.started, self.ready)
        self.started = self.started if started is None else started
        self.ready = self.ready if ready is None else ready
        if (self.started, self.ready) != before:
            self.changed()


@dataclass(slots=True, kw_only=True)
class Probing:
    """All probes of one run of a container."""

    container: Container
    checker: Checker
    clock: Clock
    changed: Callable[[], None]
    unhealthy: Unhealthy
    kill: Callable[[str, Probe], Awaitable[None]]
    """Called when startup or liveness failed for good; the run ends by that."""
    verdicts: Verdicts = field(init=False)

    def __post_init__(self) -> None:
        started = self.container.startup_probe is None
        ready = started and self.container.readiness_probe is None
        self.verdicts = Verdicts(started, ready, self.changed)

    async def run(self) -> None:
        """Probe until cancelled, or until a probe asked to kill the container."""
        container = self.container
        if container.startup_probe is not None:
            if not await self._until_success(container.startup_probe):
                return
            self.verdicts.set(started=True, ready=container.readiness_probe is None)
        async with asyncio.TaskGroup() as group:
            if container.readiness_probe is not None:
                group.create_task(self._readiness(container.readiness_probe))
            if container.liveness_probe is not None:
                group.create_task(self._liveness(container.liveness_probe))

    async def _until_success(self, probe: Probe) -> bool:
        await self._first_wait(probe)
        streak, failures = 0, 0
        await self._eagerly(probe)
        while True:
            good = await self._once("Startup", probe)
            streak, failures = (streak + 1, 0) if good else (0, failures + 1)
            if streak >= (probe.success_threshold or 1):
                return True
            if failures >= (probe.failure_threshold or 3):
                await self.kill("startup", probe)
                return False
            await self.clock.sleep(probe.period_seconds or 10)

    async def _readiness(self, probe: Probe) -> None:
        await self._first_wait(probe)
        good_in_a_row = bad_in_a_row = 0
        await self._eagerly(probe)
        while True:
            good = await self._once("Readiness", probe)
            good_in_a_row, bad_in_a_row = (good_in_a_row + 1, 0) if good else (0, bad_in_a_row + 1)
            if good_in_a_row >= (probe.success_threshold or 1):
                self.verdicts.set(ready=True)
            elif bad_in_a_row >= (probe.failure_threshold or 3):
                self.verdicts.set(ready=False)
            await self.clock.sleep(probe.period_seconds or 10)

    async def _liveness(self, probe: Probe) -> None:
        await self._first_wait(probe)
        failures = 0
        while True:
            failures = 0 if await self._once("Liveness", probe) else failures + 1
            if failures >= (probe.failure_threshold or 3):
                await self.kill("liveness", probe)
                return
            await self.clock.sleep(probe.period_seconds or 10)

    async def _first_wait(self, probe: Probe) -> None:
        if probe.initial_delay_seconds:
            await self.clock.sleep(probe.initial_delay_seconds)

    async def _eagerly(self, probe: Probe) -> None:
        """Try in quick succession, for at most one period, until the probe succeeds for the first time.

        A program needs some milliseconds before it listens; the kubelet's first try falls into them, and the
        next comes a period later. Failures of these tries count for nothing and are not told.
        """
        left, pause = float(probe.period_seconds or 10), _FIRST_PAUSE
        while left > 0:
            try:
                await self.checker.probe(probe, timeout=probe.timeout_seconds or 1)
            except CheckFailed:
                await self.clock.sleep(min(pause, left))
                left, pause = left - pause, pause * 1.6
            else:
                return

    async def _once(self, kind: str, probe: Probe) -> bool:
        try:
            await self.checker.probe(probe, timeout=probe.timeout_seconds or 1)
        except CheckFailed as failure:
            self.unhealthy(kind, str(failure))
            return False
        return True
