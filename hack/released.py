"""An installed release of the chart, seen from outside: its pods, who of them leads, and how one hands over.

Signals reach the operator's process from the machine, on the embedded node as on a real one: inside of its pod it is
the first process, which the kernel guards against them.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mooring.kube import NotFound
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import Pod
from mooring.testing.bed import Bed, ClusterBed

__all__ = [
    *("LEASE", "LEASE_SECONDS", "NAMESPACE"),
    *("Frozen", "a_leader", "frozen", "holder", "leader", "lives", "operators", "struck", "writes_of"),
]

NAMESPACE = "mooring-system"
LEASE = "mooring-redis-sentinel-all"
#: Seconds of the operators' Lease.
LEASE_SECONDS = 15
#: What a standby waits beyond the Lease at most: a look, and a slow machine.
_SLACK = 20
_WRITES = ("create", "update", "patch", "delete", "deletecollection")


async def operators(bed: Bed | ClusterBed, *, ready: bool = False) -> list[str]:
    """The operator's pods that are not on their way out; on request only those that are ready."""
    pods = await bed.pods(NAMESPACE, "app.kubernetes.io/name=mooring")
    staying = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    return [pod.metadata.name or "" for pod in staying if _ready(pod) or not ready]


def _ready(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or ()
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


async def holder(bed: Bed | ClusterBed) -> str:
    """Who holds the Lease: a pod's name and what tells its processes apart; empty when nobody does."""
    try:
        lease = await bed.get(Lease, LEASE, NAMESPACE)
    except NotFound:
        return ""
    return (lease.spec.holder_identity if lease.spec else None) or ""


async def leader(bed: Bed | ClusterBed) -> str:
    """The pod that leads, by the Lease; empty when none does."""
    who = await holder(bed)
    pods = await bed.pods(NAMESPACE, "app.kubernetes.io/name=mooring")
    return next((name for pod in pods if who.startswith(name := pod.metadata.name or "")), "")


async def a_leader(bed: Bed | ClusterBed, *, pods: int = 1) -> str:
    """Wait until one leads and as many pods are ready, the others to take over; its name."""

    async def led() -> bool:
        there, ready = await operators(bed), await operators(bed, ready=True)
        return bool(await leader(bed)) and len(there) == len(ready) == pods

    await bed.until(led, f"one of {pods} leads", within=60)
    return await leader(bed)


async def struck(bed: Bed | ClusterBed, number: int) -> float:
    """Send the one of two that leads a signal that ends it; the seconds until the other leads.

    When this returns, the one that was struck is back, to take over in its turn: that it is ready still, a node may
    say for a second after its end.
    """
    name = await a_leader(bed, pods=2)
    held, before = await holder(bed), await _restarts(bed, name)
    os.kill(_pid(bed, name), number)
    seconds = await _taken_over(bed, held)

    async def back() -> bool:
        return await _restarts(bed, name) > before and name in await operators(bed, ready=True)

    await bed.until(back, f"{name} is back", within=60)
    return seconds


async def _restarts(bed: Bed | ClusterBed, name: str) -> int:
    pod = await bed.get(Pod, name, NAMESPACE)
    statuses = (pod.status.container_statuses if pod.status else None) or ()
    return sum(one.restart_count or 0 for one in statuses)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """The one of two that led, stopped in its tracks, while the other has taken over after so many seconds."""

    pod: str
    pid: int
    seconds: float


@asynccontextmanager
async def frozen(bed: Bed | ClusterBed) -> AsyncIterator[Frozen]:
    """Freeze the one that leads; within the block the other leads, at its end the frozen one wakes and ends."""
    name = await a_leader(bed, pods=2)
    held, pid = await holder(bed), _pid(bed, name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield Frozen(pod=name, pid=pid, seconds=await _taken_over(bed, held))
    finally:
        os.kill(pid, signal.SIGCONT)

    async def ended() -> bool:
        return not lives(pid)

    await bed.until(ended, "what was frozen ends", within=20)


def lives(pid: int) -> bool:
    """Whether a process is there."""
    return os.path.exists(f"/proc/{pid}")


def writes_of(audit_log: Path, since: int, pod: str) -> list[str]:
    """What the account of a pod changed since so many bytes of a real server's audit log: verb and path.

    What was refused is no change: one that wakes may have sent the renewal of a Lease that is another's by now.
    """
    written: list[str] = []
    for line in audit_log.read_bytes()[since:].decode().splitlines():
        event = json.loads(line)
        extra = event["user"].get("extra") or {}
        taken = event.get("responseStatus", {}).get("code", 0) < 300
        if (
            taken
            and event["verb"] in _WRITES
            and pod in extra.get("authentication.kubernetes.io/pod-name", ())
        ):
            written.append(f"{event['verb']} {event['requestURI']}")
    return written


def _pid(bed: Bed | ClusterBed, pod: str) -> int:
    """The operator's process in a pod."""
    return bed.plane.agent.program_pid(NAMESPACE, pod, "operator")


async def _taken_over(bed: Bed | ClusterBed, old: str) -> float:
    async def led() -> bool:
        return await holder(bed) not in ("", old)

    return await bed.until(led, f"another one than {old} leads", within=LEASE_SECONDS + _SLACK)
