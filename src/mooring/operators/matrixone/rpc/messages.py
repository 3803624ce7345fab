"""Messages of MatrixOne's log, query and lock services: the fields that the operator reads or writes.

Field numbers are those of MatrixOne 1.2; a field that later versions moved (a CN's commit) is not declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

from mooring.operators.matrixone.rpc.wire import Enumeration, Message

__all__ = [
    *(
        "CheckerState",
        "ClusterDetails",
        "CnDetail",
        "CnInfo",
        "CnState",
        "Count",
        "DeletedStore",
        "KeeperState",
    ),
    *(
        "LabelList",
        "LockMethod",
        "LockReply",
        "LockRequest",
        "LogDetail",
        "LogMethod",
        "LogQuestion",
        "LogReplica",
    ),
    *(
        "LogReply",
        "LogRequest",
        "LogShard",
        "LogState",
        "LogStoreInfo",
        "MoError",
        "Named",
        "NodeState",
        "Nothing",
    ),
    *(
        "ProxyInfo",
        "ProxyState",
        "QueryMethod",
        "QueryReply",
        "QueryRequest",
        "ReplicaInfo",
        "Session",
        "Sessions",
    ),
    *(
        "SessionsOf",
        "ShardInfo",
        "StateLabel",
        "StoreId",
        "TnDetail",
        "TnInfo",
        "TnState",
        "WorkState",
        "Yes",
    ),
]


def _empty() -> Any:
    return field(default_factory=lambda: MappingProxyType({}))


# --- enumerations


class WorkState(Enumeration):
    """What a CN does; `UNKNOWN` in a request keeps the state."""

    UNKNOWN = 0
    WORKING = 1
    DRAINING = 2
    DRAINED = 3


class NodeState(Enumeration):
    """Whether HAKeeper has heard of a store in time."""

    NORMAL = 0
    TIMEOUT = 1


class KeeperState(Enumeration):
    """HAKeeper's own state; every other than `RUNNING` says nothing about the cluster."""

    CREATED = 0
    BOOTSTRAPPING = 1
    COMMANDS_RECEIVED = 2
    BOOTSTRAP_FAILED = 3
    RUNNING = 4


class LogMethod(Enumeration):
    """Methods of the log service."""

    CHECK_HAKEEPER = 10
    GET_CLUSTER_DETAILS = 11
    GET_SHARD_INFO = 12
    GET_CLUSTER_STATE = 14
    UPDATE_CN_LABEL = 15
    PATCH_CN_STORE = 17
    DELETE_CN_STORE = 18


class QueryMethod(Enumeration):
    """Methods of a CN's query service."""

    SHOW_PROCESS_LIST = 1
    GET_PIPELINE_INFO = 19
    GET_REPLICA_COUNT = 24


class LockMethod(Enumeration):
    """Methods of the lock table allocator, which the TN is.

    RemainTxnInService (13) is left out: its handler dereferences a CN's entry that may just have gone.
    """

    SET_RESTART_SERVICE = 12
    CAN_RESTART_SERVICE = 14


# --- what stores are labelled with


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelList(Message):
    """The values of one label."""

    labels: Annotated[tuple[str, ...], 1] = ()


# --- log shards and stores


@dataclass(frozen=True, slots=True, kw_only=True)
class LogShard(Message):
    """A log shard: its members, and the replica that leads it (0: none is known)."""

    shard_id: Annotated[int, 1] = 0
    replicas: Annotated[Mapping[int, str], 2] = _empty()
    """UUIDs of log stores by replica id."""
    epoch: Annotated[int, 3] = 0
    leader_id: Annotated[int, 4] = 0
    term: Annotated[int, 5] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReplica(Message):
    """A replica as the store that runs it reports it."""

    shard: Annotated[LogShard | None, 1] = None
    replica_id: Annotated[int, 2] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStoreInfo(Message):
    """A log store as it reported itself last, at a tick of HAKeeper's."""

    tick: Annotated[int, 1] = 0
    raft_address: Annotated[str, 2] = ""
    service_address: Annotated[str, 3] = ""
    gossip_address: Annotated[str, 4] = ""
    replicas: Annotated[tuple[LogReplica, ...], 5] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState(Message):
    """All log shards by id and log stores by UUID. Stores that are gone for good stay listed."""

    shards: Annotated[Mapping[int, LogShard], 1] = _empty()
    stores: Annotated[Mapping[str, LogStoreInfo], 2] = _empty()


# --- the other stores, in the cluster state


@dataclass(frozen=True, slots=True, kw_only=True)
class TnInfo(Message):
    """A transaction node."""

    tick: Annotated[int, 1] = 0
    service_address: Annotated[str, 2] = ""
    logtail_address: Annotated[str, 5] = ""
    lock_address: Annotated[str, 6] = ""
    query_address: Annotated[str, 9] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TnState(Message):
    """Transaction nodes by UUID."""

    stores: Annotated[Mapping[str, TnInfo], 1] = _empty()


@dataclass(frozen=True, slots=True, kw_only=True)
class CnInfo(Message):
    """A compute node."""

    tick: Annotated[int, 1] = 0
    service_address: Annotated[str, 2] = ""
    sql_address: Annotated[str, 3] = ""
    lock_address: Annotated[str, 4] = ""
    runs_tasks: Annotated[bool, 7] = False
    labels: Annotated[Mapping[str, LabelList], 8] = _empty()
    work_state: Annotated[WorkState, 9] = WorkState.UNKNOWN
    query_address: Annotated[str, 10] = ""
    up_time: Annotated[int, 15] = 0
    """Nanoseconds since 1970: when it registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CnState(Message):
    """Compute nodes by UUID."""

    stores: Annotated[Mapping[str, CnInfo], 1] = _empty()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyInfo(Message):
    """A proxy; its address is the one it listens on, which may be 0.0.0.0."""

    uuid: Annotated[str, 1] = ""
    tick: Annotated[int, 2] = 0
    listen_address: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyState(Message):
    """Proxies by UUID."""

    stores: Annotated[Mapping[str, ProxyInfo], 1] = _empty()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerState(Message):
    """The state of the whole cluster, as HAKeeper decides by it. Without quorum the server sends an empty one."""

    tick: Annotated[int, 1] = 0
    """Advances ten times a second by default while HAKeeper has a quorum."""
    tn: Annotated[TnState, 3] = TnState()
    log: Annotated[LogState, 4] = LogState()
    cn: Annotated[CnState, 5] = CnState()
    state: Annotated[KeeperState, 6] = KeeperState.CREATED
    proxy: Annotated[ProxyState, 11] = ProxyState()


# --- details: the same with HAKeeper's verdict on each store


@dataclass(frozen=True, slots=True, kw_only=True)
class CnDetail(Message):
    """A compute node with HAKeeper's verdict."""

    uuid: Annotated[str, 1] = ""
    sql_address: Annotated[str, 3] = ""
    tick: Annotated[int, 7] = 0
    state: Annotated[NodeState, 8] = NodeState.NORMAL
    labels: Annotated[Mapping[str, LabelList], 9] = _empty()
    work_state: Annotated[WorkState, 10] = WorkState.UNKNOWN
    query_address: Annotated[str, 11] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TnDetail(Message):
    """A transaction node with HAKeeper's verdict."""

    uuid: Annotated[str, 1] = ""
    tick: Annotated[int, 3] = 0
    state: Annotated[NodeState, 4] = NodeState.NORMAL
    lock_address: Annotated[str, 7] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDetail(Message):
    """A log store with HAKeeper's verdict."""

    uuid: Annotated[str, 1] = ""
    service_address: Annotated[str, 2] = ""
    tick: Annotated[int, 3] = 0
    state: Annotated[NodeState, 4] = NodeState.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedStore(Message):
    """A store that HAKeeper has forgotten; times in nanoseconds since 1970."""

    uuid: Annotated[str, 1] = ""
    store_type: Annotated[str, 2] = ""
    address: Annotated[str, 3] = ""
    up_time: Annotated[int, 4] = 0
    down_time: Annotated[int, 5] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDetails(Message):
    """All stores, and those that HAKeeper has forgotten."""

    tn_stores: Annotated[tuple[TnDetail, ...], 1] = ()
    cn_stores: Annotated[tuple[CnDetail, ...], 2] = ()
    log_stores: Annotated[tuple[LogDetail, ...], 3] = ()
    proxy_stores: Annotated[tuple[ProxyInfo, ...], 4] = ()
    deleted: Annotated[tuple[DeletedStore, ...], 5] = ()


# --- log service


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuestion(Message):
    """Which shard a request is about."""

    shard_id: Annotated[int, 2] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLabel(Message):
    """A CN's new state and labels; without labels they stay, with any all are replaced."""

    uuid: Annotated[str, 1] = ""
    state: Annotated[WorkState, 2] = WorkState.UNKNOWN
    labels: Annotated[Mapping[str, LabelList], 3] = _empty()


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Message):
    """A CN and the labels that replace its own."""

    uuid: Annotated[str, 1] = ""
    labels: Annotated[Mapping[str, LabelList], 3] = _empty()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreId(Message):
    """The UUID of a store."""

    uuid: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest(Message):
    """A request to the log service."""

    request_id: Annotated[int, 1] = 0
    method: Annotated[LogMethod, 2] = LogMethod.CHECK_HAKEEPER
    question: Annotated[LogQuestion, 3] = LogQuestion()
    labels: Annotated[Named | None, 9] = None
    patch: Annotated[StateLabel | None, 11] = None
    delete: Annotated[StoreId | None, 12] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo(Message):
    """Where a replica runs."""

    uuid: Annotated[str, 1] = ""
    service_address: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo(Message):
    """A log shard as one log store knows it; stale where that store has lost its quorum."""

    shard_id: Annotated[int, 1] = 0
    replicas: Annotated[Mapping[int, ReplicaInfo], 2] = _empty()
    epoch: Annotated[int, 3] = 0
    leader_id: Annotated[int, 4] = 0
    term: Annotated[int, 5] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReply(Message):
    """An answer of the log service. An error may have no text, and an empty state beside it."""

    request_id: Annotated[int, 1] = 0
    error_code: Annotated[int, 3] = 0
    error_message: Annotated[str, 4] = ""
    is_hakeeper: Annotated[bool, 5] = False
    details: Annotated[ClusterDetails | None, 9] = None
    shard: Annotated[ShardInfo | None, 10] = None
    state: Annotated[CheckerState | None, 12] = None


# --- query service


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsOf(Message):
    """Whose sessions are asked for."""

    system: Annotated[bool, 2] = True
    """Those of all accounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Message):
    """A request without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest(Message):
    """A request to a CN's query service."""

    request_id: Annotated[int, 1] = 0
    method: Annotated[QueryMethod, 2] = QueryMethod.SHOW_PROCESS_LIST
    sessions: Annotated[SessionsOf | None, 4] = None
    pipelines: Annotated[Nothing | None, 22] = None
    replicas: Annotated[Nothing | None, 27] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Message):
    """A session on a CN, without its statement and user."""

    connection_id: Annotated[int, 2] = 0
    account: Annotated[str, 4] = ""
    from_proxy: Annotated[bool, 19] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions(Message):
    """All sessions on a CN, internal ones too."""

    sessions: Annotated[tuple[Session, ...], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Message):
    """How many there are."""

    count: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReply(Message):
    """An answer of the query service; ``error`` is a `MoError`."""

    request_id: Annotated[int, 1] = 0
    error: Annotated[bytes, 3] = b""
    sessions: Annotated[Sessions | None, 4] = None
    pipelines: Annotated[Count | None, 22] = None
    replicas: Annotated[Count | None, 27] = None


# --- lock service


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest(Message):
    """A request to the lock table allocator."""

    request_id: Annotated[int, 1] = 0
    method: Annotated[LockMethod, 3] = LockMethod.CAN_RESTART_SERVICE
    set_restart: Annotated[StoreId | None, 14] = None
    can_restart: Annotated[StoreId | None, 15] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Yes(Message):
    """Yes or no."""

    ok: Annotated[bool, 1] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReply(Message):
    """An answer of the lock table allocator; ``error`` is a `MoError`."""

    request_id: Annotated[int, 1] = 0
    error: Annotated[bytes, 3] = b""
    set_restart: Annotated[Yes | None, 15] = None
    can_restart: Annotated[Yes | None, 16] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoError(Message):
    """An error of MatrixOne's, as it is sent inside of an answer."""

    code: Annotated[int, 1] = 0
    message: Annotated[str, 3] = ""
