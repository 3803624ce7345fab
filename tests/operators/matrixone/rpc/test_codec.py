"""Frames and messages against bytes recorded from MatrixOne 1.2.4 (`record.py`)."""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.operators.matrixone.rpc.frames import MAX_FRAME, Flag, FrameError, pack, size_of, unpack
from mooring.operators.matrixone.rpc.messages import (
    CheckerState,
    KeeperState,
    LabelList,
    LockMethod,
    LockReply,
    LockRequest,
    LogMethod,
    LogReply,
    LogRequest,
    MoError,
    Named,
    NodeState,
    Nothing,
    QueryMethod,
    QueryReply,
    QueryRequest,
    SessionsOf,
    StateLabel,
    StoreId,
    WorkState,
)
from mooring.operators.matrixone.rpc.wire import Message, WireError, decode, encode

RECORDED = Path(__file__).with_name("recorded")
CN0, CN1 = "64396564-3061-3238-3164-000000000000", "64396564-3061-3238-3164-000000000001"
LOG0, TN0 = "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-100000000000"
M = TypeVar("M", bound=Message)


def answer(name: str, kind: type[M]) -> M:
    return decode(kind, unpack(raw(name)).body)


def raw(name: str) -> bytes:
    """A recorded answer without its size."""
    data = lzma.decompress((RECORDED / f"{name}.xz").read_bytes())
    assert size_of(data[:4]) == len(data) - 4
    return data[4:]


# --- requests: the very bytes that the server took

REQUESTS: Mapping[str, Message] = {
    "check": LogRequest(request_id=1, method=LogMethod.CHECK_HAKEEPER),
    "labels": LogRequest(
        request_id=2,
        method=LogMethod.UPDATE_CN_LABEL,
        labels=Named(
            uuid=CN0, labels={"account": LabelList(labels=("a", "b")), "role": LabelList(labels=("ap",))}
        ),
    ),
    "patch": LogRequest(
        request_id=3, method=LogMethod.PATCH_CN_STORE, patch=StateLabel(uuid=CN1, state=WorkState.DRAINING)
    ),
    "delete": LogRequest(request_id=7, method=LogMethod.DELETE_CN_STORE, delete=StoreId(uuid="nobody")),
    "state": LogRequest(request_id=8, method=LogMethod.GET_CLUSTER_STATE),
    "sessions-cn0": QueryRequest(request_id=1, method=QueryMethod.SHOW_PROCESS_LIST, sessions=SessionsOf()),
    "replicas-cn0": QueryRequest(request_id=3, method=QueryMethod.GET_REPLICA_COUNT, replicas=Nothing()),
    "set-restart": LockRequest(
        request_id=2, method=LockMethod.SET_RESTART_SERVICE, set_restart=StoreId(uuid=CN1)
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_the_bytes_that_a_server_took(name: str) -> None:
    request = REQUESTS[name]
    payload = isinstance(request, LogRequest)
    assert pack(encode(request), timeout=5.0, payload=payload) == (RECORDED / f"{name}.request").read_bytes()


@pytest.mark.parametrize("payload", [True, False])
def test_no_frame_is_sent_without_the_header_whose_lack_ends_a_server(payload: bool) -> None:
    assert Flag(pack(b"", timeout=1, payload=payload)[4]) & Flag.HEADER


# --- answers


def test_the_state_of_a_cluster_is_read_without_its_settings_and_secrets() -> None:
    reply = answer("state", LogReply)
    state = reply.state
    assert state is not None
    assert (reply.error_code, state.state) == (0, KeeperState.RUNNING)
    assert state.tick > 0
    assert set(state.cn.stores) == {CN0, CN1}
    assert dict(state.cn.stores[CN0].labels) == {
        "account": LabelList(labels=("a", "b")),
        "role": LabelList(labels=("ap",)),
    }
    assert [state.cn.stores[uuid].work_state for uuid in (CN0, CN1)] == [
        WorkState.WORKING,
        WorkState.DRAINING,
    ]
    assert state.cn.stores[CN1].query_address.endswith(".41:6004")
    assert state.cn.stores[CN1].up_time > 1_700_000_000 * 10**9
    assert state.tn.stores[TN0].lock_address.endswith(".30:6003")
    assert {number: shard.leader_id for number, shard in state.log.shards.items()} == {0: 131072, 1: 262145}
    assert {one.replica_id for one in state.log.stores[LOG0].replicas} == {131072, 262145}
    assert [one.listen_address[-8:] for one in state.proxy.stores.values()] == [".60:6001"]
    assert len(raw("state")) > 100_000
    assert len(encode(reply)) < 2_000


def test_details_have_hakeepers_verdict() -> None:
    details = answer("details", LogReply).details
    assert details is not None
    assert {one.uuid: (one.state, one.work_state) for one in details.cn_stores} == {
        CN0: (NodeState.NORMAL, WorkState.WORKING),
        CN1: (NodeState.NORMAL, WorkState.DRAINING),
    }
    assert [one.uuid for one in details.log_stores] == [LOG0]
    assert details.deleted == ()


def test_small_answers() -> None:
    assert answer("check", LogReply).is_hakeeper
    shard = answer("shard", LogReply).shard
    assert shard is not None
    assert {number: one.uuid for number, one in shard.replicas.items()} == {shard.leader_id: LOG0}
    assert answer("delete", LogReply).error_code == 0
    sessions = answer("sessions-cn0", QueryReply).sessions
    others = answer("sessions-cn1", QueryReply).sessions
    assert sessions is not None
    assert others is not None
    assert sum(one.from_proxy for one in (*sessions.sessions, *others.sessions)) == 2
    pipelines = answer("pipelines-cn0", QueryReply).pipelines
    assert pipelines is not None
    assert pipelines.count == 0
    assert answer("can-restart", LockReply).can_restart is not None
    done = answer("set-restart", LockReply).set_restart
    assert done is not None
    assert done.ok


def test_errors_may_come_without_a_text_and_inside_of_an_answer() -> None:
    unknown = answer("shard-unknown", LogReply)
    assert (unknown.error_code, unknown.error_message) == (20437, "")
    nobody = answer("patch-unknown", LogReply)
    assert (nobody.error_code, nobody.error_message) == (20101, "internal error: CN [nobody] does not exist")
    inside = decode(MoError, answer("replicas-cn0", QueryReply).error)
    assert (inside.code, inside.message) == (20105, "not supported: 24 not support in current service")


# --- bytes that are wrong


def test_a_frame_with_a_wrong_checksum_is_refused() -> None:
    data = bytearray(raw("check"))
    data[-1] ^= 1
    with pytest.raises(FrameError, match="checksum"):
        unpack(bytes(data))


@given(st.integers(min_value=1, max_value=60))
def test_a_frame_that_is_cut_off_is_refused(size: int) -> None:
    data = raw("shard")
    with pytest.raises(FrameError):
        unpack(data[:size])


@pytest.mark.parametrize("size", [0, MAX_FRAME + 1, (1 << 32) - 1])
def test_a_frame_of_an_absurd_size_is_not_read(size: int) -> None:
    with pytest.raises(FrameError):
        size_of(size.to_bytes(4, "big"))


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_frame_or_a_frame_error(data: bytes) -> None:
    try:
        unpack(b"\x06" + data)
    except FrameError:
        return


@given(st.binary(max_size=300))
def test_whatever_comes_is_a_message_or_a_wire_error(data: bytes) -> None:
    try:
        decode(CheckerState, data)
    except WireError:
        return


@given(st.data())
def test_a_state_with_a_changed_byte_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(unpack(raw("shard")).body)
    at = data.draw(st.integers(min_value=0, max_value=len(body) - 1))
    body[at] = data.draw(st.integers(min_value=0, max_value=255))
    try:
        decode(LogReply, bytes(body))
    except WireError:
        return


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("08", "a number is cut off"),
        ("08" + "ff" * 10 + "01", "more than ten bytes"),
        ("0a05", "field 1 is cut off"),
        ("0b", "wire type 3"),
        ("00", "without a number"),
        ("0a0161", "has another type"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(data: str, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        decode(LogReply, bytes.fromhex(data))


# --- what goes in comes out


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Message):
    number: Annotated[int, 1] = 0
    yes: Annotated[bool, 2] = False
    text: Annotated[str, 3] = ""
    data: Annotated[bytes, 4] = b""
    state: Annotated[WorkState, 5] = WorkState.UNKNOWN
    inner: Annotated[LabelList | None, 6] = None
    many: Annotated[tuple[LabelList, ...], 7] = ()
    words: Annotated[tuple[str, ...], 16] = ()
    by_name: Annotated[Mapping[str, LabelList], 200] = ()  # type: ignore[assignment]
    by_number: Annotated[Mapping[int, str], 201] = ()  # type: ignore[assignment]


LISTS = st.builds(LabelList, labels=st.lists(st.text(max_size=5), max_size=3).map(tuple))


@given(
    st.builds(
        Sample,
        number=st.integers(min_value=-(2**63), max_value=2**63 - 1),
        yes=st.booleans(),
        text=st.text(),
        data=st.binary(),
        state=st.sampled_from(WorkState),
        inner=st.none() | LISTS,
        many=st.lists(LISTS, max_size=3).map(tuple),
        words=st.lists(st.text(), max_size=3).map(tuple),
        by_name=st.dictionaries(st.text(), LISTS, min_size=1, max_size=3),
        by_number=st.dictionaries(
            st.integers(min_value=0, max_value=2**40), st.text(), min_size=1, max_size=3
        ),
    )
)
def test_a_message_is_read_as_it_was_written(sample: Sample) -> None:
    assert decode(Sample, encode(sample)) == sample


def test_a_number_of_a_newer_server_is_read_as_unknown() -> None:
    assert decode(StateLabel, bytes.fromhex("1009")).state is WorkState.UNKNOWN


def test_fields_that_are_not_declared_are_skipped() -> None:
    more = bytes.fromhex("f80601fa0603616263f906" + "00" * 8 + "fd06" + "00" * 4)
    assert decode(StoreId, more + encode(StoreId(uuid="x")) + more) == StoreId(uuid="x")
