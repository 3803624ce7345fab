"""MatrixOne's processes that only answer, and a node that only says its pods run: for counting at scale.

Every pod gets a loopback address. Log stores, transaction nodes and compute nodes listen there and speak as much of
MatrixOne's RPC as the operator asks; HAKeeper's state of a namespace comes from memory, with 45 KB of settings for each
compute node as the server sends them. Connections are real, so what the operator spends on them is real too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from bench.simulated import SimulatedNode

from mooring.kube import Client, Key, MergePatch, NotFound
from mooring.kube.errors import Conflict
from mooring.kube.objects.core import Pod
from mooring.operators.matrixone.identity import FIRST_REPLICA, log_uuid, tn_uuid
from mooring.operators.matrixone.names import CN_UUID, COMPONENT, HAKEEPER
from mooring.operators.matrixone.rpc.frames import FrameError, pack, size_of, unpack
from mooring.operators.matrixone.rpc.messages import (
    CheckerState,
    CnInfo,
    CnState,
    Count,
    KeeperState,
    LabelList,
    LockReply,
    LockRequest,
    LogMethod,
    LogReplica,
    LogReply,
    LogRequest,
    LogShard,
    LogState,
    LogStoreInfo,
    QueryMethod,
    QueryReply,
    QueryRequest,
    Sessions,
    TnInfo,
    TnState,
    WorkState,
    Yes,
)
from mooring.operators.matrixone.rpc.wire import Message, decode, encode
from mooring.runtime.controller import Done, Result

__all__ = ["Keeper", "MatrixOneNode"]

QUERY, LOCK = 6004, 41012
SETTINGS = bytes(45 << 10)
"""What a compute node reports of its configuration with every state."""
_UNKNOWN_STORE = 20101
_SHARDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(CnInfo):
    """A compute node with its settings, which no reader declares."""

    settings: Annotated[bytes, 14] = b""


@dataclass
class Keeper:
    """HAKeeper of one namespace: the stores of its pods; those that run are well."""

    now: Callable[[], float] = time.monotonic
    born: float = field(default_factory=time.monotonic)
    logs: dict[str, str] = field(default_factory=dict)
    tns: dict[str, str] = field(default_factory=dict)
    cns: dict[str, Reported] = field(default_factory=dict)
    restarting: set[str] = field(default_factory=set)
    """Compute nodes that gave their lock tables away: their process refuses new transactions until its end."""
    away: dict[str, int] = field(default_factory=dict)
    """The last tick of log stores and transaction nodes whose process does not run."""

    @property
    def tick(self) -> int:
        """Ten a second."""
        return 1000 + int((self.now() - self.born) * 10)

    def state(self) -> CheckerState:
        """What it answers now: all that runs was heard at this tick."""
        tick = self.tick
        members = sorted(self.logs)
        shards = {number: self._shard(number, members) for number in range(_SHARDS)}
        stores = {
            uuid: LogStoreInfo(
                tick=self.away.get(uuid, tick),
                service_address=f"{host}:{HAKEEPER}",
                replicas=tuple(
                    LogReplica(
                        shard=one, replica_id=next(id for id, it in one.replicas.items() if it == uuid)
                    )
                    for one in shards.values()
                ),
            )
            for uuid, host in self.logs.items()
        }
        return CheckerState(
            tick=tick,
            state=KeeperState.RUNNING,
            log=LogState(shards=shards, stores=stores),
            tn=TnState(
                stores={
                    uuid: TnInfo(tick=self.away.get(uuid, tick), lock_address=f"{host}:{LOCK}")
                    for uuid, host in self.tns.items()
                }
            ),
            cn=CnState(stores={uuid: replace(one, tick=tick) for uuid, one in self.cns.items()}),
        )

    def _shard(self, number: int, members: list[str]) -> LogShard:
        first = FIRST_REPLICA * (1 + number)
        replicas = {first + at: uuid for at, uuid in enumerate(members)}
        leader = next((id for id, uuid in replicas.items() if uuid not in self.away), 0)
        return LogShard(shard_id=number, replicas=replicas, epoch=1, leader_id=leader)

    # --- what it is asked

    def log(self, request: LogRequest) -> LogReply:
        """Answer the log service's methods."""
        match request.method:
            case LogMethod.CHECK_HAKEEPER:
                return LogReply(is_hakeeper=True)
            case LogMethod.GET_CLUSTER_STATE:
                return LogReply(state=self.state())
            case LogMethod.PATCH_CN_STORE if request.patch is not None:
                patch = request.patch
                labels = {"labels": patch.labels} if patch.labels else {}
                return self._change(patch.uuid, work_state=patch.state, **labels)
            case LogMethod.UPDATE_CN_LABEL if request.labels is not None:
                labelled: dict[str, LabelList] = dict(request.labels.labels)
                return self._change(request.labels.uuid, labels=labelled)
            case LogMethod.DELETE_CN_STORE if request.delete is not None:
                self.cns.pop(request.delete.uuid, None)
        return LogReply()

    def lock(self, request: LockRequest) -> LockReply:
        """Answer the lock service's methods: it gives everything away at once, and nothing takes that back."""
        if request.set_restart is not None:
            self.restarting.add(request.set_restart.uuid)
            return LockReply(set_restart=Yes(ok=True))
        asked = request.can_restart
        return LockReply(can_restart=Yes(ok=asked is not None and asked.uuid in self.restarting))

    def ended(self, uuid: str) -> None:
        """The process of a compute node is gone; one that comes after it knows nothing of it."""
        self.cns.pop(uuid, None)
        self.restarting.discard(uuid)

    def _change(self, uuid: str, **changes: Any) -> LogReply:
        if uuid not in self.cns:
            return LogReply(error_code=_UNKNOWN_STORE, error_message=f"store {uuid} does not exist")
        self.cns[uuid] = replace(self.cns[uuid], **changes)
        return LogReply()


def query(request: QueryRequest) -> QueryReply:
    """A compute node on which nothing runs."""
    if request.method is QueryMethod.SHOW_PROCESS_LIST:
        return QueryReply(sessions=Sessions())
    if request.method is QueryMethod.GET_PIPELINE_INFO:
        return QueryReply(pipelines=Count())
    return QueryReply(replicas=Count())


async def listen(
    host: str, port: int, kind: type[Message], answer: Callable[[Any], Message]
) -> asyncio.Server:
    """Answer requests of this kind at an address."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = unpack(await reader.readexactly(size_of(await reader.readexactly(4))))
                request: Any = decode(kind, frame.body)
                said: Any = replace(answer(request), request_id=request.request_id)  # type: ignore[type-var]
                writer.write(pack(encode(said), timeout=1, payload=kind is LogRequest))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, FrameError):
            pass
        finally:
            writer.transport.abort()

    return await asyncio.start_server(accept, host, port, backlog=200)


class MatrixOneNode(SimulatedNode):
    """Says of every pod that it runs, once its process listens; ends those that are deleted."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.keepers: dict[str, Keeper] = {}
        """HAKeeper by namespace: one cluster in each."""
        self._uuids: dict[Key, str] = {}

    async def _reconcile(self, key: Key) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            await self._end(key, pod)
            return Done()
        if not (pod.spec and pod.spec.node_name):
            return Done()
        ip = await self._start(key, pod)
        wanted = self._status(pod, ip)
        if pod.status is None or pod.status.phase != "Running" or _ready(pod) != _gates_open(pod):
            with_gates = [*wanted["conditions"], *_gates(pod)]
            body = {"status": {**wanted, "conditions": with_gates}}
            await self._client.patch(
                Pod, key.name, MergePatch(body), namespace=key.namespace, subresource="status"
            )
        return Done()

    async def _end(self, key: Key, pod: Pod | None) -> None:
        keeper = self.keepers.get(key.namespace)
        uuid = self._uuids.pop(key, None)
        if keeper is not None and uuid is not None:
            keeper.ended(uuid)
        if pod is None:
            return
        try:
            await self._client.delete(
                Pod, key.name, namespace=key.namespace, grace_period=0, uid=pod.metadata.uid
            )
        except (NotFound, Conflict):
            return

    async def _start(self, key: Key, pod: Pod) -> str:
        uid, labels = pod.metadata.uid or "", pod.metadata.labels or {}
        if uid in self._ips:
            return self._ips[uid]
        ip = self._ips[uid] = next(self._addresses)
        keeper = self.keepers.setdefault(key.namespace, Keeper())
        ordinal = int(key.name.rpartition("-")[2]) if key.name.rpartition("-")[2].isdecimal() else 0
        match labels.get(COMPONENT):
            case "LogSet":
                self._listening.append(await listen(ip, HAKEEPER, LogRequest, keeper.log))
                keeper.logs[log_uuid(ordinal)] = ip
            case "DNSet":
                self._listening.append(await listen(ip, LOCK, LockRequest, keeper.lock))
                keeper.tns[tn_uuid(ordinal)] = ip
            case "CNSet":
                self._listening.append(await listen(ip, QUERY, QueryRequest, query))
                uuid = self._uuids[key] = labels.get(CN_UUID, "")
                keeper.cns[uuid] = Reported(
                    sql_address=f"{ip}:6001",
                    query_address=f"{ip}:{QUERY}",
                    work_state=WorkState.DRAINING,
                    up_time=time.time_ns(),
                    settings=SETTINGS,
                )
        return ip

    def _serves(self, ip: str) -> bool:
        return True

    def _status(self, pod: Pod, ip: str) -> dict[str, Any]:
        made = super()._status(pod, ip)
        for one in made["conditions"]:
            if one["type"] == "Ready":
                one["status"] = "True" if _gates_open(pod) else "False"
        return made


def _gates(pod: Pod) -> list[dict[str, Any]]:
    """The conditions that others set, as they are."""
    names = {one.condition_type for one in (pod.spec.readiness_gates if pod.spec else None) or ()}
    return [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "lastTransitionTime": one.last_transition_time,
        }
        for one in (pod.status.conditions if pod.status else None) or ()
        if one.type in names
    ]


def _gates_open(pod: Pod) -> bool:
    wanted = [one.condition_type for one in (pod.spec.readiness_gates if pod.spec else None) or ()]
    there = {one["type"] for one in _gates(pod) if one["status"] == "True"}
    return all(one in there for one in wanted)


def _ready(pod: Pod) -> bool:
    return any(
        one.type == "Ready" and one.status == "True"
        for one in (pod.status.conditions if pod.status else None) or ()
    )
