"""MatrixOne's processes in memory, and a node that ends every Job: for campaigns, in virtual time.

The simulated nodes tell `World` which pods run. `InMemory` connects the operator to the processes of the newest `World`. HAKeeper
and the compute nodes answer as those of bench/matrixone_world.py do. A Job of a backup or a restore succeeds after some seconds
and is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import msgspec
from bench.matrixone_world import QUERY, SETTINGS, Keeper, Reported, lock, query

from mooring.kube import Client, Conflict, MergePatch, NotFound
from mooring.kube.objects.core import Pod
from mooring.operators.backup.agent import Result
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.identity import log_uuid, tn_uuid
from mooring.operators.matrixone.names import CN_UUID, COMPONENT
from mooring.operators.matrixone.pool.labels import POD_UID
from mooring.operators.matrixone.rpc.dial import Address, Dial, Link, Unreachable
from mooring.operators.matrixone.rpc.messages import LockRequest, LogRequest, QueryRequest, WorkState
from mooring.testing.changes import Change
from mooring.testing.monitors import Monitor, owned
from mooring.testing.plane import ControlPlane

__all__ = ["InMemory", "World", "monitors", "newest"]

RUNS = 5.0
"""Seconds that a Job takes."""


class World:
    """The processes in a control plane's pods, and what the Jobs did."""

    def __init__(self, plane: ControlPlane) -> None:
        self._client = Client(plane.transport("kubelet"))
        self._clock = plane.clock
        self.keeper = Keeper(now=plane.clock.monotonic, born=plane.clock.monotonic())
        self.hosts: dict[str, str] = {}
        """Component by address, of the processes that run."""
        self.done: Counter[tuple[str, str]] = Counter()
        """How often something was done: the action, and the place or path it was done to."""
        self._ips: dict[str, tuple[str, str]] = {}
        """Address and compute node of a pod, by its UID."""
        self._jobs: dict[str, asyncio.Task[None]] = {}
        _newest[:] = [self]

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`."""
        uid, labels = pod.metadata.uid or "", pod.metadata.labels or {}
        if uid in self._ips:
            return
        if "batch.kubernetes.io/job-name" in labels:
            self._ips[uid] = (ip, "")
            self._jobs[uid] = asyncio.create_task(self._run(pod))
            return
        kind, cn = labels.get(COMPONENT, ""), ""
        self.hosts[ip] = kind
        ordinal = (pod.metadata.name or "").rpartition("-")[2]
        match kind:
            case "LogSet":
                self.keeper.logs[log_uuid(int(ordinal))] = ip
            case "DNSet":
                self.keeper.tns[tn_uuid(int(ordinal))] = ip
            case "CNSet":
                cn = labels.get(CN_UUID, "")
                self.keeper.cns[cn] = Reported(
                    sql_address=f"{ip}:6001",
                    query_address=f"{ip}:{QUERY}",
                    work_state=WorkState.DRAINING,
                    up_time=int(self._clock.monotonic() * 1e9),
                    settings=SETTINGS[:16],
                )
        self._ips[uid] = (ip, cn)

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        return True

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        ip, cn = self._ips.pop(uid, ("", ""))
        self.hosts.pop(ip, None)
        self.keeper.cns.pop(cn, None)
        if (job := self._jobs.pop(uid, None)) is not None:
            job.cancel()

    async def _run(self, pod: Pod) -> None:
        """Do what the Job's container is told to, some seconds later, and say so."""
        await asyncio.sleep(RUNS)
        containers = (pod.spec.containers if pod.spec is not None else None) or ()
        store = next(one for one in containers if one.name == "store")
        request = msgspec.json.decode((store.env or [])[0].value or "", type=Request)
        path = request.target.s3.path if request.target is not None and request.target.s3 is not None else ""
        self.done[request.action, path or request.places[-1]] += 1
        facts = {"position": "1-1", "prefix": request.places[-1], "began": "2026-01-02T03:04:05+00:00"}
        said = Result(ok=True, size=10, objects=2, facts=facts).encoded().decode()
        ended = {"exitCode": 0, "reason": "Completed", "message": said}
        state = {"name": "store", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [{**state, "state": {"terminated": ended}}]}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        with suppress(NotFound, Conflict):
            await self._client.patch(
                Pod,
                pod.metadata.name or "",
                MergePatch(body),
                namespace=pod.metadata.namespace or "",
                subresource="status",
            )


_newest: list[World] = []


def newest() -> World:
    """That of the present run."""
    return _newest[-1]


class InMemory(Dial):
    """Reaches the processes of the newest `World`."""

    @asynccontextmanager
    async def link(self, address: Address, *, reply_timeout: float | None = None) -> AsyncIterator[Link]:
        """See `Dial.link`."""
        if address.host not in newest().hosts:
            raise Unreachable(f"{address}: cannot connect: no route to host")
        yield _Link(address)


class _Link(Link):
    def __init__(self, address: Address) -> None:
        self._address = address

    async def call(self, request: Any, reply: Any) -> Any:
        """See `Link.call`."""
        world = newest()
        if self._address.host not in world.hosts:
            raise Unreachable(f"{self._address}: the connection ended")
        answers: dict[type[Any], Callable[[Any], Any]] = {
            LogRequest: world.keeper.log,
            QueryRequest: query,
            LockRequest: lock,
        }
        answer = replace(answers[type(request)](request), request_id=request.request_id)
        self._raise(answer, request.method.name)
        return answer


# --- what nobody may do


def monitors() -> tuple[Monitor, ...]:
    """For a workload with this model: what no operator may ever do."""
    return (
        owned(but=("backups.core.matrixorigin.io", "bucketclaims.core.matrixorigin.io")),
        _bound_once(),
        _done_once,
    )


def _bound_once() -> Monitor:
    """No two claims have one pod, and a pod never goes from one claim to another one."""
    holders: dict[str, dict[str, str]] = {}

    def look(change: Change) -> str:
        if change.resource != "cnclaims.core.matrixorigin.io":
            return ""
        world = id(newest())
        held = holders.setdefault(str(world), {})
        meta = change.object["metadata"]
        held.pop(meta["uid"], None)
        if change.type != "DELETED" and not meta.get("deletionTimestamp"):
            held[meta["uid"]] = (meta.get("annotations") or {}).get(POD_UID, "")
        pods = [one for one in held.values() if one]
        twice = sorted({one for one in pods if pods.count(one) > 1})
        return f"two claims have the pod {twice[0]}" if twice else ""

    return look


def _done_once(change: Change) -> str:
    """What was backed up or restored is never done again."""
    twice = sorted(f"{action} of {place}" for (action, place), times in newest().done.items() if times > 1)
    return f"done twice: {', '.join(twice)}" if twice else ""
