"""What is measured, one function a scenario; each runs one peer in a namespace of its own and gives figures.

Seconds unless a name says otherwise. ``cpu`` is CPU seconds of the operator's process, ``apiserver_cpu`` those
of kube-apiserver meanwhile, ``writes`` what the audit log says the operator did.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.runtime.peers import Peer, Replica
from bench.runtime.stage import Stage, Writes, cpu_of, port_of, resident, until_quiet
from bench.runtime.watching import Spectator, summary, watching

__all__ = ["Place", "churned", "cold", "cut", "edits", "empty", "handover", "many"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
Figures = dict[str, Any]
#: Seconds for a peer to bring everything into line.
CONVERGE = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one peer runs one scenario."""

    stage: Stage
    peer: Peer
    account: str
    kubeconfig: Path
    namespace: str
    directory: Path

    def run(self, *, kubeconfig: Path | None = None) -> Any:
        """One replica, alone."""
        return self.peer.run(
            kubeconfig or self.kubeconfig, namespace=self.namespace, log=self.directory / "peer.log"
        )


class _Meter:
    """What a stretch of work cost."""

    def __init__(self, place: Place, replica: Replica | None = None) -> None:
        self._place = place
        self._pid = replica.pid if replica else 0
        self._mark = place.stage.mark()
        self._servers = place.stage.cpu()
        self._cpu = cpu_of(self._pid) if replica else 0.0
        self._began = time.monotonic()

    async def read(self, replica: Replica) -> tuple[Figures, Writes]:
        """The costs so far."""
        seconds = time.monotonic() - self._began
        cpu, servers = cpu_of(replica.pid) - self._cpu, self._place.stage.cpu()
        writes = await self._place.stage.writes(self._place.account, self._mark)
        return {
            "seconds": round(seconds, 3),
            "cpu": round(cpu, 3),
            "apiserver_cpu": round(servers.apiserver - self._servers.apiserver, 3),
            "etcd_cpu": round(servers.etcd - self._servers.etcd, 3),
            "writes": dataclasses.asdict(writes),
        }, writes


async def empty(place: Place) -> Figures:
    """Started with nothing to do: what importing and connecting cost, and the memory it takes."""
    async with place.run() as replica:
        quiet = await until_quiet(replica.pid)
        return {
            "until_quiet": round(quiet, 2),
            "cpu": round(cpu_of(replica.pid), 3),
            "rss_mib": round(resident(replica.pid), 1),
        }


async def cold(place: Place, *, objects: int, children: int) -> Figures:
    """Objects exist, the operator comes up: until all are as declared, from the start of its process."""
    await place.stage.make(place.namespace, objects, children=children)
    async with watching(place.stage, place.namespace) as spectator:
        meter = _Meter(place)
        async with place.run() as replica:
            await spectator.until_synced(objects, within=CONVERGE)
            converged = spectator.moments[-1] - replica.began
            await until_quiet(replica.pid)
            figures, writes = await meter.read(replica)
            return {
                **figures,
                "seconds": round(converged, 3),
                "first_status": round(spectator.moments[0] - replica.began, 3),
                "rss_mib": round(resident(replica.pid), 1),
                "cpu_ms_per_object": round(1000 * figures["cpu"] / objects, 3),
                "writes_per_object": round(writes.all / objects, 4),
            }


async def edits(place: Place, *, objects: int, rate: float, seconds: float) -> Figures:
    """Edits of a spec at a steady rate: from sending each to its status."""
    await place.stage.make(place.namespace, objects, children=1)
    async with watching(place.stage, place.namespace) as spectator, place.run() as replica:
        await spectator.until_synced(objects, within=CONVERGE)
        await until_quiet(replica.pid)
        return await _edited(place, spectator, replica, objects=objects, rate=rate, seconds=seconds)


async def _edited(
    place: Place, spectator: Spectator, replica: Replica, *, objects: int, rate: float, seconds: float
) -> Figures:
    spectator.delays.clear()
    meter = _Meter(place, replica)
    sent = await _edit(place, spectator, objects=objects, rate=rate, seconds=seconds)
    missed = await spectator.until_seen(within=30)
    await until_quiet(replica.pid)
    figures, writes = await meter.read(replica)
    return {
        **figures,
        **summary(spectator.delays),
        "edits": sent,
        "missed": missed,
        "cpu_ms_per_edit": round(1000 * figures["cpu"] / sent, 3),
        "writes_per_edit": round(writes.all / sent, 4),
    }


async def _edit(place: Place, spectator: Spectator, *, objects: int, rate: float, seconds: float) -> int:
    """Send edits on a schedule, late ones at once; how many."""
    began, total = time.monotonic(), int(rate * seconds)
    async with asyncio.TaskGroup() as group:
        for number in range(total):
            if (early := began + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(early)
            name, value = f"w-{number % objects}", f"edit-{number}"
            spectator.asked(name, value)
            group.create_task(place.stage.edit(place.namespace, name, value))
    return total


async def many(place: Place, *, objects: int, idle: float, rate: float, seconds: float) -> Figures:
    """Many objects: converge, rest, edits among them; then a start when all is in sync already."""
    stage = place.stage
    begun_with = await empty(place)
    await stage.make(place.namespace, objects, children=1)
    async with watching(stage, place.namespace) as spectator, place.run() as replica:
        await spectator.until_synced(objects, within=CONVERGE)
        converged = spectator.moments[-1] - replica.began
        await until_quiet(replica.pid)
        await asyncio.sleep(5)
        grown = resident(replica.pid) - begun_with["rss_mib"]
        meter = _Meter(place, replica)
        await asyncio.sleep(idle)
        resting, _ = await meter.read(replica)
        pause = await _probed(replica, idle)
        probing = asyncio.create_task(_probed(replica, seconds))
        edited = await _edited(place, spectator, replica, objects=objects, rate=rate, seconds=seconds)
        busy = await probing
    again = _Meter(place)
    async with place.run() as replica:
        quiet = await until_quiet(replica.pid)
        started, writes = await again.read(replica)
        return {
            "converge_seconds": round(converged, 2),
            "rss_mib": round(grown + begun_with["rss_mib"], 1),
            "kib_per_object": round(1024 * grown / objects, 2),
            "idle_cpu_percent": round(100 * resting["cpu"] / resting["seconds"], 2),
            "idle_writes": resting["writes"],
            "idle_pause_ms": pause,
            "edits": edited,
            "edits_pause_ms": busy,
            "start_in_sync": {**started, "seconds": round(quiet, 2), "writes": dataclasses.asdict(writes)},
            "start_in_sync_rss_mib": round(resident(replica.pid), 1),
        }


async def _probed(replica: Replica, seconds: float) -> Figures:
    words = [sys.executable, str(HERE / "probe.py"), str(replica.probes), str(seconds)]
    found: Figures = json.loads(await _output(words, {}))
    return found


async def _output(words: list[str], environment: dict[str, str]) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *words, cwd=ROOT, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError(f"{words} ended with status {process.returncode}")
    return output


async def cut(place: Place, *, objects: int, every: float, rate: float, seconds: float) -> Figures:
    """All connections to the server are cut again and again while objects are edited."""
    await place.stage.make(place.namespace, objects, children=1)
    async with _cutter(place, every) as (server, begin):
        kubeconfig = await place.stage.account(place.account, place.directory, server=server)
        async with (
            watching(place.stage, place.namespace) as spectator,
            place.run(kubeconfig=kubeconfig) as replica,
        ):
            await spectator.until_synced(objects, within=CONVERGE)
            begin()
            return await _edited(place, spectator, replica, objects=objects, rate=rate, seconds=seconds)


@asynccontextmanager
async def _cutter(place: Place, every: float) -> AsyncIterator[tuple[str, Callable[[], None]]]:
    words = [sys.executable, str(HERE / "cutter.py"), str(port_of(place.stage.server)), str(every)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        begin = functools.partial(process.stdin.write, b"\n")
        yield f"https://127.0.0.1:{port}", begin
    finally:
        process.kill()
        await process.wait()


async def churned(place: Place, *, objects: int, churn: float, rate: float, seconds: float) -> Figures:
    """Objects of a watched kind that belong to nobody change all the time; meanwhile a few edits."""
    await place.stage.make(place.namespace, objects, children=1)
    writer = await place.stage.account(f"{place.account}-churn", place.directory)
    async with watching(place.stage, place.namespace) as spectator, place.run() as replica:
        await spectator.until_synced(objects, within=CONVERGE)
        await until_quiet(replica.pid)
        before = cpu_of(replica.pid)
        words = [sys.executable, "-m", "bench.runtime.churn", place.namespace, str(seconds), str(churn)]
        environment = {"KUBECONFIG": str(writer), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        noise = asyncio.create_task(_output(words, environment))
        edited = await _edited(place, spectator, replica, objects=objects, rate=rate, seconds=seconds)
        done = json.loads(await noise)
        await until_quiet(replica.pid)
        cpu = cpu_of(replica.pid) - before
        return {
            **edited,
            "updates": done["updates"],
            "updates_per_second": round(done["updates"] / done["seconds"], 1),
            "cpu_ms_per_update": round(1000 * cpu / done["updates"], 4),
        }


FAULTS = {"SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}


async def handover(place: Place, *, objects: int, fault: str, rate: float, within: float) -> Figures:
    """Two replicas under edits; the leader is struck: how long no status follows, and what a woken one writes."""
    stage, peer, namespace = place.stage, place.peer, place.namespace
    await stage.make(namespace, objects, children=1)
    first = await stage.account(f"{place.account}-first", place.directory)
    second = await stage.account(f"{place.account}-second", place.directory)
    log = place.directory / "peer.log"
    async with (
        watching(stage, namespace) as spectator,
        peer.run(first, namespace=namespace, replica=0, log=log) as leader,
    ):
        await spectator.until_synced(objects, within=CONVERGE)
        async with peer.run(second, namespace=namespace, replica=1, log=log) as standby:
            await until_quiet(standby.pid, quiet=3)
            return await _struck(
                place, spectator, leader, objects=objects, fault=fault, rate=rate, within=within
            )


async def _struck(
    place: Place,
    spectator: Spectator,
    leader: Replica,
    *,
    objects: int,
    fault: str,
    rate: float,
    within: float,
) -> Figures:
    editing = asyncio.create_task(_edit(place, spectator, objects=objects, rate=rate, seconds=within))
    try:
        await asyncio.sleep(2)
        struck, mark = time.monotonic(), place.stage.mark()
        spectator.delays.clear()
        leader.signal(FAULTS[fault])
        recovered = await _until(
            lambda: _recovered(spectator.moments, struck, leader, fault), within=within - 5
        )
        taken = await place.stage.writes(f"{place.account}-second", mark)
        figures: Figures = {"fault": fault, "gap": recovered, "successor_writes": taken.all}
        if fault == "SIGSTOP":
            await asyncio.sleep(2)
            waking = place.stage.mark()
            leader.signal(signal.SIGCONT)
            await asyncio.sleep(6)
            woken = await place.stage.writes(f"{place.account}-first", waking)
            figures |= {"woken_writes": woken.all, "woken": dataclasses.asdict(woken)}
        return {**figures, "worst_delay": round(max(spectator.delays, default=0.0), 3)}
    finally:
        editing.cancel()
        await asyncio.gather(editing, return_exceptions=True)


def _recovered(moments: list[float], struck: float, leader: Replica, fault: str) -> float | None:
    """The longest time without a status since the fault, once its successor has worked for a while."""
    if fault != "SIGSTOP" and not leader.ended:
        return None  # a leader that ends in good order goes on for a moment after the signal
    since = [struck, *(moment for moment in moments if moment >= struck)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(since)]
    now = time.monotonic()
    if not gaps or now - since[-1] > 1.0 or now - struck < 4.0:
        return None
    longest = max(gaps)
    settled = now - since[gaps.index(longest) + 1] > 2.0
    return round(longest, 3) if settled else None


async def _until(check: Callable[[], float | None], *, within: float) -> float | None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if (found := check()) is not None:
            return found
        await asyncio.sleep(0.1)
    return None


Scenario = Callable[..., Awaitable[Figures]]
