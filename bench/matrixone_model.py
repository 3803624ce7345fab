"""MatrixOne's processes in memory, and a node that ends every Job: for campaigns, in virtual time.

The simulated nodes tell `World` which pods run. `InMemory` connects the operator to the processes of the newest `World`. HAKeeper
and the compute nodes answer as those of bench/matrixone_world.py do. A client has a session on every compute node that serves,
and leaves it some seconds after its drain began. A compute node that gave its lock tables away takes no session any more. A Job of
a backup, a restore or a test restore succeeds after some seconds and is counted. Where ``fails_once`` names its action, the first
one is left half-done, or is whole and its pod ends before it can report. What no operator may do is in
bench/matrixone_monitors.py.
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
from mooring.operators.backup.layout import made_at
from mooring.operators.backup.run import OF
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.verification import CLEAN
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
from mooring.operators.matrixone.types import SharedStorageProvider
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
_HALF, _UNHEARD = "half-done", "unheard"
"""How a run fails: killed half-way, or once it is done and before it reports."""
_KILLED: Final = 137


@dataclass(slots=True)
class Used:
    """The session of a client on a compute node."""

    account: str
    until: float = float("inf")
    """When it leaves; the compute node drains since `LEAVES` before that."""


class World:
    """The processes in a control plane's pods, and what the Jobs did."""

    def __init__(self, plane: ControlPlane, *, fails_once: str = "") -> None:
        self._client = Client(plane.transport("kubelet"))
        self._clock = plane.clock
        self.keeper = Keeper(now=plane.clock.monotonic, born=plane.clock.monotonic())
        self.hosts: dict[str, str] = {}
        """Component by address, of the processes that run."""
        self.done: Counter[tuple[str, str]] = Counter()
        """How often something was begun and did not fail: the action, and whose backup it is or which path was filled."""
        self.stored: dict[str, bool] = {}
        """Places of a store with something in them; true: a whole backup."""
        self.restored: set[str] = set()
        """Paths with all of a backup's data."""
        self.tried_out: set[str] = set()
        """Places of backups that a test restore found good."""
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
        self._fails = {
            "": {},
            "backup": {"backup": [_HALF, _UNHEARD]},
            "restore": {"restore": [_HALF]},
            "verify": {"backup": [_UNHEARD], "verify": [_HALF]},
        }[fails_once]
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
        owner = (pod.metadata.labels or {}).get(OF, "")
        match request.action:
            case "backup":
                result = await self._backed_up(request, owner)
            case "restore":
                result = await self._restored(request)
            case "verify":
                result = await self._tried_out(request)
            case "delete":
                await asyncio.sleep(RUNS)
                for one in request.places:
                    self._delete(_path(request.root, one))
                result = _well(request.places[-1])
        await self._end(pod, result)

    async def _backed_up(self, request: Request, owner: str) -> Result | None:
        """As the Job's container does it: what an earlier try left is found whole, or deleted; ``None``: it is killed."""
        for place in request.places:
            if self.stored.get(_path(request.root, place)):
                return _well(place)
        *earlier, place = request.places
        path = _path(request.root, place)
        if path in self.stored:
            return Result(ok=False, reason="PlaceTaken", message=f"something is at {place}", again=True)
        for one in earlier:
            self._delete(_path(request.root, one))
        self.stored[path] = False
        await asyncio.sleep(RUNS)
        fails = self._failure("backup")
        if fails == _HALF:
            return None
        self.done["backup", owner] += 1
        self.stored[path] = True
        return None if fails == _UNHEARD else _well(place)

    async def _tried_out(self, request: Request) -> Result | None:
        """As the Job's container does it: a copy is tried out and deleted; ``None``: it is killed, and the copy stays."""
        assert request.target is not None
        place = request.places[-1]
        if not self.stored.get(path := _path(request.root, place)):
            return Result(ok=False, reason="ObjectNotFound", message=f"no complete backup at {place}")
        scratch = _path(request.root, request.scratch)
        self._delete(scratch)
        self.stored[_path(request.target)] = False
        await asyncio.sleep(RUNS)
        if self._failure("verify"):
            return None
        self._delete(scratch)
        self.done["test restore", path] += 1
        self.tried_out.add(path)
        result = _well(place)
        return msgspec.structs.replace(result, facts={"checked": "1 rows in 1 tables", CLEAN: "deleted"})

    def _delete(self, path: str) -> None:
        for one in [one for one in self.stored if one == path or one.startswith(f"{path}/")]:
            del self.stored[one]

    def _failure(self, action: str) -> str:
        """How this run fails; "": it does not."""
        due = self._fails.get(action)
        return due.pop(0) if due else ""

    async def _restored(self, request: Request) -> Result:
        """As the Job's container does it: a path belongs to the one that it was filled for, and is filled once."""
        assert request.target is not None
        path = _path(request.target)
        if path in self.booted:
            self.wrong.append(f"a restore begins over the live data in {path}")
        if self._filled.setdefault(path, request.owner) != request.owner:
            return Result(ok=False, reason="TargetInUse", message=f"{path} is not empty")
        if not self.stored.get(source := _path(request.root, request.places[0])):
            return Result(ok=False, reason="ObjectNotFound", message=f"no complete backup at {source}")
        self.done["restore", path] += 1
        whole = False
        try:
            await asyncio.sleep(RUNS)
            if self._failure("restore"):
                return Result(ok=False, reason="StoreUnreachable", message="the store went away", again=True)
            whole = True
        finally:
            if not whole:
                self.done["restore", path] -= 1
        if path in self.booted:
            self.wrong.append(f"the live data in {path} was restored over")
        self.restored.add(path)
        return _well(request.places[0])

    async def _end(self, pod: Pod, result: Result | None) -> None:
        well = result is not None and result.ok
        ended: dict[str, Any] = {"exitCode": 0 if well else 1, "reason": "Completed" if well else "Error"}
        if result is None:
            ended["exitCode"] = _KILLED
        else:
            ended["message"] = result.encoded().decode()
        state = {"name": "store", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        phase = "Succeeded" if well else "Failed"
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


def _path(provider: SharedStorageProvider, place: str = "") -> str:
    assert provider.s3 is not None
    return "/".join(one for one in (provider.s3.path or "", place) if one)


def _well(place: str) -> Result:
    began = made_at(place.rpartition("/")[2]).isoformat()
    facts = {"position": "1-1", "prefix": place, "began": began}
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
