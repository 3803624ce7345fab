"""MatrixOne's processes in memory, and a node that ends every Job: for campaigns, in virtual time.

The simulated nodes tell `World` which pods run. `InMemory` connects the operator to the processes of the newest `World`. HAKeeper
and the compute nodes answer as those of bench/matrixone_world.py do. A client has a session on every compute node that serves,
and leaves it some seconds after its drain began. A compute node that gave its lock tables away takes no session any more. A Job of a backup or a restore succeeds after some seconds and is counted; the
first restore of a `World` that ``fails_once`` is left half-done. What no operator may do is in bench/matrixone_monitors.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from bench.matrixone_world import QUERY, SETTINGS, Keeper, Reported, query

from mooring.kube import Client, Conflict, MergePatch, NotFound
from mooring.kube.objects.core import Pod
from mooring.operators.backup.agent import Result
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.identity import log_uuid, tn_uuid
from mooring.operators.matrixone.names import CN_UUID, COMPONENT, INSTANCE
from mooring.operators.matrixone.rpc.dial import Address, Dial, Link, Unreachable
from mooring.operators.matrixone.rpc.messages import (
    LockReply,
    LockRequest,
    LogReply,
    LogRequest,
    QueryMethod,
    QueryReply,
    QueryRequest,
    Session,
    Sessions,
    WorkState,
)
from mooring.testing.plane import ControlPlane

__all__ = ["ACCOUNT", "InMemory", "World", "newest"]

RUNS: Final = 5.0
"""Seconds that a Job takes."""
LEAVES: Final = 6.0
"""Seconds until the proxies have moved the sessions of a compute node that drains."""
CATCHES_UP: Final = 3.0
"""Seconds until the replicas of a log store that started have caught up."""
HEARTBEAT: Final = 5
"""Ticks between two heartbeats of a store."""
ACCOUNT: Final = "account"
"""Label of a compute node: whose sessions it gets."""


@dataclass(slots=True)
class Used:
    """The session of a client on a compute node."""

    account: str
    until: float = float("inf")
    """When it leaves; the compute node drains since `LEAVES` before that."""


class World:
    """The processes in a control plane's pods, and what the Jobs did."""

    def __init__(self, plane: ControlPlane, *, fails_once: bool = False) -> None:
        self._client = Client(plane.transport("kubelet"))
        self._clock = plane.clock
        self.keeper = Keeper(now=plane.clock.monotonic, born=plane.clock.monotonic())
        self.hosts: dict[str, str] = {}
        """Component by address, of the processes that run."""
        self.done: Counter[tuple[str, str]] = Counter()
        """How often something was done: the action, and the place or path it was done to."""
        self.paths: dict[str, str] = {}
        """Where the data of a LogSet is, by its name."""
        self.booted: set[str] = set()
        """Paths that a log service has started on."""
        self.pods: dict[str, str] = {}
        """Pod of a compute node, by its UUID."""
        self.wrong: list[str] = []
        """What was done to the processes, and may not be."""
        self.known: dict[str, Any] = {}
        """What the monitors remember of this run."""
        self._used: dict[str, Used] = {}
        self._filled: dict[str, str] = {}
        """Whose data a path has, or is to have."""
        self._fails = fails_once
        self._ips: dict[str, tuple[str, str]] = {}
        """Address and store of a pod, by its UID."""
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
        kind, store = labels.get(COMPONENT, ""), ""
        self.hosts[ip] = kind
        ordinal = (pod.metadata.name or "").rpartition("-")[2]
        match kind:
            case "LogSet":
                store = log_uuid(int(ordinal))
                self.keeper.logs[store] = ip
                self.keeper.away.setdefault(store, 0)
                self._jobs[uid] = asyncio.create_task(self._catch_up(store))
                if path := self.paths.get(labels.get(INSTANCE, "")):
                    self.booted.add(path)
            case "DNSet":
                store = tn_uuid(int(ordinal))
                self.keeper.tns[store] = ip
            case "CNSet":
                store = labels.get(CN_UUID, "")
                self.pods[store] = uid
                self.keeper.cns[store] = Reported(
                    sql_address=f"{ip}:6001",
                    query_address=f"{ip}:{QUERY}",
                    work_state=WorkState.DRAINING,
                    up_time=int(self._clock.monotonic() * 1e9),
                    settings=SETTINGS[:16],
                )
        if kind != "LogSet":
            self.keeper.away.pop(store, None)
        self._ips[uid] = (ip, store)

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        return True

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`."""
        ip, store = self._ips.pop(uid, ("", ""))
        self.hosts.pop(ip, None)
        if store in self.keeper.logs or store in self.keeper.tns:
            self.keeper.away[store] = self.keeper.tick - HEARTBEAT
        self.keeper.ended(store)
        self.pods.pop(store, None)
        if (account := self.session(store)) is not None:
            self.wrong.append(f"a compute node was stopped with a session of {account or 'all'}")
        self._used.pop(store, None)
        if (job := self._jobs.pop(uid, None)) is not None:
            job.cancel()

    async def _catch_up(self, store: str) -> None:
        await asyncio.sleep(CATCHES_UP)
        self.keeper.away.pop(store, None)

    # --- what the processes are asked

    def log(self, request: LogRequest) -> LogReply:
        """HAKeeper's answer; clients follow what it says of a compute node."""
        before = dict(self.keeper.cns)
        reply = self.keeper.log(request)
        for uuid, one in self.keeper.cns.items():
            if one != before.get(uuid):
                self._follow(uuid, one)
        return reply

    def lock(self, request: LockRequest) -> LockReply:
        """The lock service's answer; who has a session on a compute node that gives its lock tables away can write no more."""
        asked = request.set_restart
        if asked is not None and (account := self.session(asked.uuid)) is not None:
            self.wrong.append(
                f"a compute node gave its lock tables away with a session of {account or 'all'}"
            )
        return self.keeper.lock(request)

    def _follow(self, uuid: str, one: Reported) -> None:
        if one.work_state is not WorkState.WORKING:
            if (used := self._used.get(uuid)) is not None:
                used.until = min(used.until, self._clock.monotonic() + LEAVES)
            return
        labels = dict(one.labels)
        account = next(iter(labels[ACCOUNT].labels), "") if ACCOUNT in labels else ""
        if uuid in self.keeper.restarting:
            self.wrong.append(f"a compute node that refuses work is to serve {account or 'all'}")
            return
        there = self.session(uuid)
        if there is not None and there != account:
            self.wrong.append(f"a compute node serves {account or 'all'} with a session of {there or 'all'}")
        self._used[uuid] = Used(account)

    def session(self, uuid: str) -> str | None:
        """The account of the session on a compute node; ``None``: it has none."""
        used = self._used.get(uuid)
        return used.account if used is not None and self._clock.monotonic() < used.until else None

    def query(self, ip: str, request: QueryRequest) -> QueryReply:
        """A compute node's answer."""
        uuid = next((store for at, store in self._ips.values() if at == ip), "")
        account = self.session(uuid)
        if request.method is not QueryMethod.SHOW_PROCESS_LIST or account is None:
            return query(request)
        return QueryReply(sessions=Sessions(sessions=(Session(account=account, from_proxy=True),)))

    # --- Jobs

    async def _run(self, pod: Pod) -> None:
        """Do what the Job's container is told to, some seconds later, and say so."""
        containers = (pod.spec.containers if pod.spec is not None else None) or ()
        store = next(one for one in containers if one.name == "store")
        request = msgspec.json.decode((store.env or [])[0].value or "", type=Request)
        target = request.target.s3 if request.target is not None else None
        if request.action == "restore" and target is not None:
            await self._end(pod, await self._restored(request, target.path or ""))
            return
        await asyncio.sleep(RUNS)
        self.done[request.action, request.places[-1]] += 1
        await self._end(pod, _well(request))

    async def _restored(self, request: Request, path: str) -> Result:
        """As the Job's container does it: a path belongs to the one that it was filled for, and is filled once."""
        if path in self.booted:
            self.wrong.append(f"a restore begins over the live data in {path}")
        if self._filled.setdefault(path, request.owner) != request.owner:
            return Result(ok=False, reason="TargetInUse", message=f"{path} is not empty")
        if self.done["restore", path]:
            return _well(request)
        await asyncio.sleep(RUNS)
        if self._fails:
            self._fails = False
            return Result(ok=False, reason="StoreUnreachable", message="the store went away", again=True)
        if path in self.booted:
            self.wrong.append(f"the live data in {path} was restored over")
        self.done["restore", path] += 1
        return _well(request)

    async def _end(self, pod: Pod, result: Result) -> None:
        code, reason = (0, "Completed") if result.ok else (1, "Error")
        ended = {"exitCode": code, "reason": reason, "message": result.encoded().decode()}
        state = {"name": "store", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        phase = "Succeeded" if result.ok else "Failed"
        status = {"phase": phase, "containerStatuses": [{**state, "state": {"terminated": ended}}]}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        with suppress(NotFound, Conflict):
            await self._client.patch(
                Pod,
                pod.metadata.name or "",
                MergePatch(body),
                namespace=pod.metadata.namespace or "",
                subresource="status",
            )


def _well(request: Request) -> Result:
    facts = {"position": "1-1", "prefix": request.places[-1], "began": "2026-01-02T03:04:05+00:00"}
    return Result(ok=True, size=10, objects=2, facts=facts)


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
            LogRequest: world.log,
            QueryRequest: lambda one: world.query(self._address.host, one),
            LockRequest: world.lock,
        }
        answer = replace(answers[type(request)](request), request_id=request.request_id)
        self._raise(answer, request.method.name)
        return answer
