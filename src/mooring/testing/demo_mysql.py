"""``mooring demo --what mysql``: a MariaDB cluster that survives its primary, and what that cost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from mooring.kube import Client
from mooring.local.directory import DataDirectory
from mooring.local.plane import Plane
from mooring.testing.ledger import Report
from mooring.testing.mysql_stage import MySQLStage
from mooring.testing.show import DemoFailed, Manifest, OnPlane, Show, namespace_of

__all__ = ["MySQLShow"]

READY_SECONDS = 120.0
"""The image is made of Debian's packages at its first use."""
TAKEOVER_SECONDS = 40.0


class MySQLShow(Show):
    """The story of a MySQLCluster."""

    def __init__(self, directory: DataDirectory, manifest: Manifest, *, stay: bool, program: str) -> None:
        super().__init__(directory, manifest, stay=stay, program=program)
        self._stage: Any = None

    async def tell(self, plane: Plane, client: Client) -> None:
        """See `Show`."""
        cluster = self._manifest.cluster
        bed: Any = OnPlane(plane, client)
        name = cluster["metadata"]["name"]
        self._stage = stage = MySQLStage(bed, name, namespace=namespace_of(cluster))
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
            f"  {self._program} why mysqlcluster/{stage.name}",
        ]
