"""Operators as a process of their own, which a test can kill: ``mooring run`` against a bed's API server.

async with Bed(directory, operators=()) as bed, operator_process(bed, directory) as operator:
    await served(bed)
    operator.kill()
    operator.start()
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mooring
from mooring.kube import Client, NotFound
from mooring.kube.objects.coordination import Lease
from mooring.operators.registry import choose
from mooring.operators.workload.scope import lease_name
from mooring.testing.bed import Bed, KubernetesBed

__all__ = ["OperatorProcess", "operator_process", "served"]

RENEWED = timedelta(seconds=3)
"""Since the renewal of a Lease whose holder lives (it renews every two seconds)."""


class OperatorProcess:
    """One `mooring run` of these operators; with a ``namespace`` it looks after that one alone and has its Lease there."""

    def __init__(
        self,
        kubeconfig: Path,
        client: Client,
        *,
        log: Path,
        namespace: str = "",
        operators: str = "*",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = dict(environment or {})
        self._kubeconfig = kubeconfig
        self._client = client
        self._namespace = namespace
        self._operators = operators
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started = datetime.now(UTC)

    def start(self) -> None:
        """Start it (anew)."""
        words = ["-m", "mooring", "run", "--kubeconfig", str(self._kubeconfig), "--log-format", "json"]
        words += ["--operators", self._operators]
        words += ["--bind", "127.0.0.1", "--metrics-port", "-1", "--probe-port", "-1"]
        if self._namespace:
            words += [
                "--scope",
                "namespaced",
                "--namespaces",
                self._namespace,
                "--namespace",
                self._namespace,
            ]
        self._started = datetime.now(UTC)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path(mooring.__file__).parents[1]),
                    **self._environment,
                },
            )

    @property
    def pid(self) -> int:
        """Its pid; raises LookupError while it does not run."""
        if self._process is None:
            raise LookupError("the operators' process does not run")
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it ended by itself, as it does when it loses its Lease; a Deployment would start it again."""
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    async def leads(self, *, since: datetime | None = None) -> bool:
        """Whether the Lease was renewed just now, and by this process: the one before may have died just now.

        ``since``: only a later renewal counts; for a process that was stopped and may have lost its Lease.
        """
        scope = "namespaced" if self._namespace else "all"
        try:
            lease = await self._client.get(
                Lease,
                lease_name(choose(self._operators)[0].name, scope),
                namespace=self._namespace or "mooring-system",
            )
        except NotFound:
            return False
        renewed = lease.spec.renew_time if lease.spec else None
        if not renewed:
            return False
        at = datetime.fromisoformat(renewed)
        after = max(self._started, since or self._started, datetime.now(UTC) - RENEWED)
        return self._process is not None and after < at

    def stop(self) -> None:
        """SIGTERM, for the end."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(timeout=30)


@asynccontextmanager
async def operator_process(
    bed: Bed,
    directory: Path,
    *,
    namespace: str = "",
    operators: str = "*",
    server: str = "",
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[OperatorProcess]:
    """The operators apart, from here to the end of the block; which ones, as ``--operators`` takes them.

    ``server`` is the URL of the API server as they see it (the bed's own), ``environment`` comes on top of this process's.
    """
    plane, name = bed.plane, f"operator-{namespace}" if namespace else "operator"
    kubeconfig = directory / f"{name}.kubeconfig"
    plane.directory.write_kubeconfig(
        kubeconfig,
        server=server or f"https://{plane.ranges.pods[1]}:6443",
        authority=plane.certificates.authority,
    )
    log = directory / f"{name}.log"
    process = OperatorProcess(
        kubeconfig, bed.client, log=log, namespace=namespace, operators=operators, environment=environment
    )
    await asyncio.to_thread(process.start)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.stop)


async def served(bed: Bed | KubernetesBed, *, group: str = "redis.kun") -> None:
    """Wait until the RedisClusters of a group are served: another process applies their definition."""

    async def there() -> bool:
        listing = await bed.client.request("GET", "/apis")
        return group.encode() in listing.body

    await bed.until(there, "the RedisCluster definition", within=60)
