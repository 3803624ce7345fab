"""``mooring demo --what mysql``: a MariaDB cluster that survives its primary, and what that cost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mooring.cli.demo import DemoFailed, Manifest, Show
from mooring.cli.program import program
from mooring.kube import Client, Object
from mooring.kube.objects.core import Pod
from mooring.local.directory import DataDirectory
from mooring.local.plane import Plane
from mooring.testing.errors import NotInTime
from mooring.testing.ledger import Report
from mooring.testing.mysql_stage import MySQLStage

__all__ = ["MySQLShow"]

T = TypeVar("T", bound=Object)
READY_SECONDS = 120.0
"""The image is made of Debian's packages at its first use."""
TAKEOVER_SECONDS = 40.0


class _OnPlane:
    """What a `MySQLStage` needs of a bed, on the demo's own plane."""

    def __init__(self, plane: Plane, client: Client) -> None:
        self.plane, self.client = plane, client

    async def get(self, kind: type[T], name: str, namespace: str = "default") -> T:
        return await self.client.get(kind, name, namespace=namespace)

    async def pods(self, namespace: str = "default", selector: str = "") -> list[Pod]:
        return (await self.client.list(Pod, namespace=namespace, label_selector=selector)).items

    async def until(
        self, check: Callable[[], Awaitable[object]], what: str, *, within: float = 30.0, every: float = 0.02
    ) -> float:
        began = time.monotonic()
        while time.monotonic() - began < within:
            if await check():
                return time.monotonic() - began
            await asyncio.sleep(every)
        raise NotInTime(f"waited {within:.0f} s in vain for: {what}")

    def kill(self, namespace: str, pod: str, container: str, number: int = signal.SIGKILL) -> int:
        pid = self.plane.agent.program_pid(namespace, pod, container)
        os.kill(pid, number)
        return pid


class MySQLShow(Show):
    """The story of a MySQLCluster."""

    def __init__(self, directory: DataDirectory, manifest: Manifest, *, stay: bool) -> None:
        super().__init__(directory, manifest, stay=stay)
        self._stage: Any = None

    async def tell(self, plane: Plane, client: Client) -> None:
        """See `Show`."""
        meta = self._manifest.cluster["metadata"]
        bed: Any = _OnPlane(plane, client)
        self._stage = stage = MySQLStage(bed, meta["name"], namespace=meta.get("namespace") or "default")
        began = time.monotonic()
        await self._ready()
        status = await stage.status()
        self.say(f"{status.primary} leads, Ready {time.monotonic() - began:.1f} s after the apply")
        self.say(f"a write waits for {status.acks} of {', '.join(status.ack_set or ())}")
        results = [
            ("kill -9", await self._fault("kill -9 of the primary's server", signal.SIGKILL)),
            ("SIGSTOP", await self._fault("SIGSTOP of the primary's server (it hangs)", signal.SIGSTOP)),
            ("switch", await self._switch()),
        ]
        for name, report in results:
            self.say(
                f"{name}: no row for {report.longest_gap:.2f} s; lost {report.lost_acknowledged} of "
                f"{report.acknowledged} acknowledged"
            )
        if any(report.lost_acknowledged for _, report in results):
            raise DemoFailed("acknowledged rows were lost")

    async def _ready(self) -> None:
        """Wait for it, showing what changes."""
        seen, deadline = "", time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            status = await self._stage.status()
            _, reason, message = await self._stage.condition("Progressing")
            line = f"{status.phase or 'declared'}: {reason}: {message}" if reason else "declared"
            if line != seen:
                self.say(line)
                seen = line
            if not await self._stage.flaw():
                return
            await asyncio.sleep(0.2)
        raise DemoFailed(f"not Ready within {READY_SECONDS:.0f} s; last: {seen}")

    async def _fault(self, what: str, number: signal.Signals) -> Report:
        stage = self._stage
        old = await stage.primary()
        async with stage.writing(patience=0.5) as ledger:
            pid = stage.kill(old, number)
            self.say(f"{what}: {old}, process {pid}, four clients writing")
            began = time.monotonic()
            try:
                new = await stage.led_by_another(old, within=TAKEOVER_SECONDS)
                self.say(f"{new} leads after {time.monotonic() - began:.1f} s")
                await stage.writes(ledger, 100)
            finally:
                if number == signal.SIGSTOP:
                    os.kill(pid, signal.SIGCONT)
            await stage.whole(within=TAKEOVER_SECONDS)
            self.say(f"{old} follows {new}")
        report: Report = await ledger.check()
        return report

    async def _switch(self) -> Report:
        stage = self._stage
        old = await stage.primary()
        names = sorted(pod.metadata.name or "" for pod in await stage.pods())
        new = next(name for name in names if name != old)
        async with stage.writing(patience=1.0) as ledger:
            self.say(f"kubectl annotate mc {stage.name} mysql.mooring.dev/switch-to={new}")
            await stage.switch(new)
            await stage.led_by_another(old, within=TAKEOVER_SECONDS)
            await stage.writes(ledger, 100)
            await stage.whole(within=TAKEOVER_SECONDS)
        report: Report = await ledger.check()
        return report

    def farewell(self) -> list[str]:
        """See `Show`."""
        stage = self._stage
        place = f"-n {stage.namespace}"
        return [
            f"  kubectl {place} get mc,pods -o wide",
            f"  kubectl {place} describe mc {stage.name}",
            f"  kubectl {place} exec -it {stage.name}-0 -c mysql -- mariadb -uroot -p    # Secret {stage.name}-credentials",
            f"  {program()} why mysqlcluster/{stage.name}",
        ]
