"""Links, HAKeeper and topology against servers that answer late, wrongly, emptily or not at all."""

from __future__ import annotations

import asyncio
import lzma
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mooring.operators.matrixone.rpc.compute import load
from mooring.operators.matrixone.rpc.dial import Address, Dial, Refused, Unreachable, Unsupported
from mooring.operators.matrixone.rpc.frames import Flag, pack, size_of, unpack
from mooring.operators.matrixone.rpc.hakeeper import NotRunning, UnknownStore, hakeeper
from mooring.operators.matrixone.rpc.locks import locks
from mooring.operators.matrixone.rpc.messages import (
    CheckerState,
    CnInfo,
    CnState,
    Count,
    KeeperState,
    LockReply,
    LockRequest,
    LogMethod,
    LogReply,
    LogRequest,
    LogShard,
    LogState,
    MoError,
    QueryMethod,
    QueryReply,
    QueryRequest,
    ReplicaInfo,
    Session,
    Sessions,
    ShardInfo,
    WorkState,
    Yes,
)
from mooring.operators.matrixone.rpc.wire import Message, decode, encode
from mooring.operators.matrixone.topology import Topology, Unseen, read_topology, view_of

RECORDED = Path(__file__).with_name("recorded")
Answers = Callable[[Message], Message | bytes | None]
"""What a server says to a request: a message, raw bytes, or None for nothing at all."""

RUNNING = CheckerState(tick=100, state=KeeperState.RUNNING)


@asynccontextmanager
async def server(
    answers: Answers, kind: type[Message] = LogRequest, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Address]:
    """A server on loopback that reads requests of this kind."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = unpack(await reader.readexactly(size_of(await reader.readexactly(4))))
                request = decode(kind, frame.body)
                said = answers(request)
                if isinstance(said, Message):
                    numbered = replace(said, request_id=request.request_id)  # type: ignore[type-var,attr-defined]
                    said = pack(encode(numbered), timeout=1, payload=kind is LogRequest)
                if said == b"":
                    break
                if said is not None:
                    writer.write(said)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(accept, host, port)
    try:
        yield Address(host, listening.sockets[0].getsockname()[1])
    finally:
        listening.close()


def log_service(answers: Mapping[LogMethod, Message | bytes | None]) -> Answers:
    """A log store that runs HAKeeper unless its answers say otherwise."""
    said = {LogMethod.CHECK_HAKEEPER: LogReply(is_hakeeper=True), **answers}
    return lambda request: said[request.method] if isinstance(request, LogRequest) else b""


async def state_of(answer: Message | bytes | None, *, timeout: float = 2.0) -> Topology | Unseen:
    async with server(log_service({LogMethod.GET_CLUSTER_STATE: answer})) as address:
        return await read_topology(Dial(reply_timeout=timeout), [address])


# --- unknown is not empty


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (LogReply(error_code=20429, state=CheckerState()), "refused with 20429"),
        (LogReply(state=CheckerState()), "empty answer"),
        (LogReply(), "empty answer"),
        (LogReply(state=CheckerState(tick=9, state=KeeperState.BOOTSTRAPPING)), "BOOTSTRAPPING"),
        (b"", "no answer to GET_CLUSTER_STATE"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\x00\x00\x00\x03\x07\x00\x00", "cut off"),
    ],
    ids=["no quorum", "empty state", "no state", "starting", "closed", "too large", "cut off"],
)
async def test_a_cluster_whose_state_is_not_told_is_unseen(answer: Message | bytes, reason: str) -> None:
    seen = await state_of(answer)
    assert isinstance(seen, Unseen)
    assert reason in seen.reason


async def test_silence_is_unseen_within_the_time_limit() -> None:
    began = time.monotonic()
    seen = await state_of(None, timeout=0.1)
    assert isinstance(seen, Unseen)
    assert "no answer to GET_CLUSTER_STATE in 0.1 s" in seen.reason
    assert time.monotonic() - began < 2


async def test_pings_and_late_answers_are_read_over() -> None:
    ping = bytearray(pack(b"12345678", timeout=1, payload=False))
    ping[4] |= Flag.PING
    late = pack(encode(LogReply(request_id=77)), timeout=1, payload=True)
    good = pack(encode(LogReply(request_id=2, state=RUNNING)), timeout=1, payload=True)
    seen = await state_of(bytes(ping) + late + good)
    assert isinstance(seen, Topology)
    assert seen.tick == 100


async def test_a_store_that_sends_only_other_frames_is_given_up() -> None:
    late = pack(encode(LogReply(request_id=77)), timeout=1, payload=True)
    seen = await state_of(late * 50)
    assert isinstance(seen, Unseen)
    assert "other frames" in seen.reason


async def test_not_running_is_told_apart_from_silence() -> None:
    bootstrapping = LogReply(state=CheckerState(tick=9, state=KeeperState.BOOTSTRAPPING))
    async with (
        server(log_service({LogMethod.GET_CLUSTER_STATE: bootstrapping})) as address,
        hakeeper(Dial(), [address]) as keeper,
    ):
        with pytest.raises(NotRunning):
            await keeper.state()


# --- finding HAKeeper


async def test_a_store_without_hakeeper_names_those_that_run_it() -> None:
    async with server(log_service({LogMethod.GET_CLUSTER_STATE: LogReply(state=RUNNING)})) as good:
        shard = ShardInfo(
            replicas={1: ReplicaInfo(service_address=f"log-0.headless:{good.port}"), 2: ReplicaInfo()}
        )
        spare = {
            LogMethod.CHECK_HAKEEPER: LogReply(),
            LogMethod.GET_SHARD_INFO: LogReply(shard=shard),
        }
        async with server(log_service(spare)) as address:
            seen = await read_topology(Dial(), [address], hosts={"log-0.headless": "127.0.0.1"})
            assert isinstance(seen, Topology)
            unresolved = await read_topology(Dial(), [address], hosts={"log-0.headless": "127.0.0.2"})
    assert isinstance(unresolved, Unseen)


async def test_a_dead_store_is_passed_over() -> None:
    async with server(log_service({})) as dead:
        pass
    async with server(log_service({LogMethod.GET_CLUSTER_STATE: LogReply(state=RUNNING)})) as good:
        assert isinstance(await read_topology(Dial(), [dead, good]), Topology)


async def test_without_any_store_nothing_is_seen() -> None:
    assert await read_topology(Dial(), []) == Unseen("no log store is known")


# --- errors


async def test_an_unknown_cn_is_told_apart_from_other_errors() -> None:
    for text, kind in (
        ("internal error: CN [x] does not exist", UnknownStore),
        ("internal error: y", Refused),
    ):
        refusal = LogReply(error_code=20101, error_message=text)
        async with (
            server(log_service({LogMethod.PATCH_CN_STORE: refusal})) as address,
            hakeeper(Dial(), [address]) as keeper,
        ):
            with pytest.raises(kind):
                await keeper.patch("x", WorkState.DRAINING)


async def test_a_lost_lease_sends_nothing() -> None:
    asked = []

    def answers(request: Message) -> Message:
        asked.append(request)
        return LogReply(is_hakeeper=True)

    class LeaseLost(Exception):
        pass

    lost = False

    def fence() -> None:
        if lost:
            raise LeaseLost

    async with server(answers) as address, hakeeper(Dial(fence=fence), [address]) as keeper:
        lost = True
        with pytest.raises(LeaseLost):
            await keeper.delete_cn("x")
        with pytest.raises(LeaseLost):
            async with locks(Dial(fence=fence), address):
                pass
    assert len(asked) == 1


async def test_set_restart_that_is_not_accepted_is_an_error() -> None:
    async with (
        server(lambda _: LockReply(set_restart=Yes()), LockRequest) as address,
        locks(Dial(), address) as one,
    ):
        with pytest.raises(Refused):
            await one.set_restart("x")


async def test_an_empty_answer_does_not_let_a_cn_stop() -> None:
    async with server(lambda _: LockReply(), LockRequest) as address, locks(Dial(), address) as one:
        with pytest.raises(Unreachable):
            await one.can_restart("x")


# --- load


def compute(answers: Mapping[QueryMethod, QueryReply]) -> Answers:
    return lambda request: answers[request.method] if isinstance(request, QueryRequest) else b""


async def test_a_server_without_pipelines_has_none() -> None:
    unsupported = QueryReply(error=encode(MoError(code=20105, message="not supported")))
    sessions = QueryReply(sessions=Sessions(sessions=(Session(from_proxy=True), Session(), Session())))
    answers = {QueryMethod.SHOW_PROCESS_LIST: sessions, QueryMethod.GET_PIPELINE_INFO: unsupported}
    async with server(compute(answers), QueryRequest) as address:
        found = await load(Dial(), address)
    assert (found.sessions, found.others, found.pipelines) == (1, 2, 0)


@pytest.mark.parametrize(
    "broken",
    [QueryReply(), QueryReply(error=encode(MoError(code=20101, message="x"))), QueryReply(error=b"\xff")],
)
async def test_load_that_is_not_told_is_unknown_and_the_rest_is_seen(broken: QueryReply) -> None:
    answers = {
        QueryMethod.SHOW_PROCESS_LIST: QueryReply(sessions=Sessions()),
        QueryMethod.GET_PIPELINE_INFO: broken,
    }
    async with server(compute(answers), QueryRequest) as query:
        stores = {"a": CnInfo(query_address=str(query)), "b": CnInfo(query_address="nonsense"), "c": CnInfo()}
        state = replace(RUNNING, cn=CnState(stores=stores))
        async with server(log_service({LogMethod.GET_CLUSTER_STATE: LogReply(state=state)})) as address:
            seen = await read_topology(Dial(), [address], ask=["a", "b"])
    assert isinstance(seen, Topology)
    assert [seen.cns[name].load for name in "abc"] == [None, None, None]
    assert seen.cns["a"].silence
    assert "no address" in seen.cns["b"].silence
    assert seen.cns["c"].silence == ""


async def test_replicas_are_only_asked_for_where_the_caller_says_so() -> None:
    asked = []

    def answers(request: Message) -> Message:
        assert isinstance(request, QueryRequest)
        asked.append(request.method)
        return QueryReply(sessions=Sessions(), pipelines=Count(count=2), replicas=Count(count=3))

    async with server(answers, QueryRequest) as address:
        assert (await load(Dial(), address)).replicas == 0
        assert QueryMethod.GET_REPLICA_COUNT not in asked
        assert (await load(Dial(), address, sharding=True)).replicas == 3


def test_unsupported_is_an_error_like_others() -> None:
    assert issubclass(Unsupported, Refused)


# --- what a state shows


def recorded() -> CheckerState:
    reply = decode(LogReply, unpack(lzma.decompress((RECORDED / "state.xz").read_bytes())[4:]).body)
    assert reply.state is not None
    return reply.state


def test_ages_are_counted_in_ticks() -> None:
    state = recorded()
    uuid = next(iter(state.cn.stores))
    old = replace(state, tick=state.cn.stores[uuid].tick + 300)
    assert view_of(old).cns[uuid].heard == 30.0
    assert view_of(old, ticks_per_second=100).cns[uuid].heard == 3.0


def test_a_state_that_no_store_reaches_is_told_by_its_silence() -> None:
    state = recorded()
    ticks = [one.tick for one in state.cn.stores.values()] + [one.tick for one in state.log.stores.values()]
    assert view_of(replace(state, tick=max(ticks) + 5)).silence <= 0.5
    deaf = view_of(replace(state, tick=max(ticks) + 1200, cn=CnState()))
    assert deaf.cns == {}
    assert deaf.silence >= 120
    assert view_of(RUNNING).silence == math.inf


@pytest.mark.parametrize(
    ("shard", "settled"),
    [
        ({}, True),
        ({"replicas": {131099: "00000000-0000-0000-0000-000000000000"}}, False),
        ({"replicas": {}}, False),
        ({"epoch": 9}, False),
    ],
    ids=["as reported", "another replica", "no longer a member", "a membership not yet taken over"],
)
def test_a_store_is_settled_when_it_runs_what_the_shards_want(
    shard: Mapping[str, object], settled: bool
) -> None:
    state = recorded()
    shards = {**state.log.shards, 0: replace(state.log.shards[0], **shard)}  # type: ignore[arg-type]
    seen = view_of(replace(state, log=replace(state.log, shards=shards)))
    (uuid,) = seen.logs
    assert seen.settled(uuid) is settled
    assert not seen.settled("nobody")


@pytest.mark.parametrize(
    ("shards", "led"),
    [
        ({}, False),
        ({0: LogShard(leader_id=0, replicas={1: "a"})}, False),
        ({0: LogShard(leader_id=7, replicas={1: "a"})}, False),
        ({0: LogShard(leader_id=1, replicas={1: "a"})}, True),
    ],
)
def test_a_cluster_is_led_when_every_shard_has_a_member_that_leads(
    shards: Mapping[int, LogShard], led: bool
) -> None:
    assert view_of(replace(RUNNING, log=LogState(shards=shards))).led is led


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:6004", Address("10.0.0.1", 6004)),
        ("[::1]:6004", Address("::1", 6004)),
        ("name.ns.svc:1", Address("name.ns.svc", 1)),
        *((text, None) for text in ("", ":1", "host", "host:", "host:x", "host:70000")),
    ],
)
def test_addresses_are_read(text: str, address: Address | None) -> None:
    assert Address.parse(text) == address
    assert address is None or str(address) == text
