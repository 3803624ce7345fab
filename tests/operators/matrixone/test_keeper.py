"""What the sets of a cluster share of HAKeeper: one look, kept up to date by what was changed, and one connection for several changes."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.operators.matrixone.builders import typed
from tests.operators.matrixone.rpc.test_dial import server

from mooring.actor import StepFailed
from mooring.cache import InformerSet, SystemClock
from mooring.kube import Client
from mooring.kube.object import Key, decode
from mooring.kube.objects import core
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.matrixone.cnset.actor import CNSetActor
from mooring.operators.matrixone.cnset.moves import SetWorking, Several
from mooring.operators.matrixone.cnset.specs import DRAINING, GATE
from mooring.operators.matrixone.look import Keeper
from mooring.operators.matrixone.names import HAKEEPER
from mooring.operators.matrixone.rpc.dial import Dial, RpcError
from mooring.operators.matrixone.rpc.messages import (
    CheckerState,
    CnInfo,
    CnState,
    KeeperState,
    LogMethod,
    LogReply,
    LogRequest,
    WorkState,
)
from mooring.operators.matrixone.rpc.wire import Message
from mooring.operators.matrixone.sets import Surroundings
from mooring.runtime import CachedClient

CLUSTER = Key("ns", "mo")
HOST = f"127.11.{os.getpid() % 250}.1"


@dataclass
class World:
    """A HAKeeper that knows some compute nodes and counts what it is asked."""

    states: dict[str, WorkState] = field(default_factory=dict)
    labels: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    asked: Counter[LogMethod] = field(default_factory=Counter)

    def answer(self, request: Message) -> Message:
        assert isinstance(request, LogRequest)
        self.asked[request.method] += 1
        match request.method:
            case LogMethod.CHECK_HAKEEPER:
                return LogReply(is_hakeeper=True)
            case LogMethod.GET_CLUSTER_STATE:
                stores = {
                    uuid: CnInfo(tick=100, work_state=state, labels=self.labels.get(uuid, {}))
                    for uuid, state in self.states.items()
                }
                state = CheckerState(tick=100, state=KeeperState.RUNNING, cn=CnState(stores=stores))
                return LogReply(state=state)
            case LogMethod.UPDATE_CN_LABEL if request.labels is not None:
                self.labels[request.labels.uuid] = request.labels.labels
            case LogMethod.PATCH_CN_STORE if request.patch is not None:
                patch = request.patch
                if patch.uuid not in self.states:
                    text = f"internal error: CN [{patch.uuid}] does not exist"
                    return LogReply(error_code=20101, error_message=text)
                self.states[patch.uuid] = patch.state
                if patch.labels:
                    self.labels[patch.uuid] = patch.labels
        return LogReply()


class Still(SystemClock):
    """The time stands, so that an answer is shared however slow the machine is."""

    def monotonic(self) -> float:
        return 1000.0


@asynccontextmanager
async def keeping(world: World) -> AsyncIterator[tuple[Keeper, list[core.Pod]]]:
    pod = core.Pod(metadata=ObjectMeta(name="mo-log-0", namespace="ns"), status=core.PodStatus(pod_ip=HOST))
    async with server(world.answer, host=HOST, port=HAKEEPER):
        yield Keeper(Dial(), Still()), [pod]


async def test_what_was_confirmed_is_seen_without_another_look() -> None:
    world = World({"a": WorkState.DRAINING, "b": WorkState.WORKING})
    async with keeping(world) as (keeper, pods):
        before = await keeper.see(CLUSTER, pods)
        await keeper.set_working(CLUSTER, pods, "a", {"account": ("x", "y")})
        await keeper.drain(CLUSTER, pods, "b")
        after = await keeper.see(CLUSTER, pods)
        assert world.asked[LogMethod.GET_CLUSTER_STATE] == 1
        assert before.view is not None
        assert after.view is not None
        assert before.view.cns["a"].state is WorkState.DRAINING
        again = await Keeper(Dial(), Still()).see(CLUSTER, pods)
        assert after == again  # as HAKeeper itself has it


async def test_after_a_change_that_was_not_confirmed_hakeeper_is_asked_again() -> None:
    world = World({"a": WorkState.DRAINING})
    async with keeping(world) as (keeper, pods):
        await keeper.see(CLUSTER, pods)
        with pytest.raises(RpcError):
            await keeper.set_working(CLUSTER, pods, "unknown", {"account": ("x",)})
        await keeper.see(CLUSTER, pods)
        assert world.asked[LogMethod.GET_CLUSTER_STATE] == 2
        await keeper.delete(CLUSTER, pods, "a")
        await keeper.see(CLUSTER, pods)
        assert world.asked[LogMethod.GET_CLUSTER_STATE] == 3


async def test_changes_that_come_together_share_a_connection_and_each_has_its_own_answer() -> None:
    names = [f"cn-{at}" for at in range(6)]
    world = World(dict.fromkeys(names, WorkState.DRAINING))
    async with keeping(world) as (keeper, pods):
        orders = [keeper.set_working(CLUSTER, pods, one, {"account": (one,)}) for one in (*names, "unknown")]
        done = await asyncio.gather(*orders, return_exceptions=True)
        assert [type(one) for one in done[:-1]] == [type(None)] * len(names)
        assert isinstance(done[-1], RpcError)
        assert world.asked[LogMethod.PATCH_CN_STORE] == len(names) + 1
        assert world.asked[LogMethod.CHECK_HAKEEPER] == 1
        assert set(world.states.values()) == {WorkState.WORKING}


async def test_nothing_is_carried_out_for_a_pass_that_was_given_up() -> None:
    world = World({"a": WorkState.DRAINING, "b": WorkState.DRAINING})
    async with keeping(world) as (keeper, pods):
        first = asyncio.create_task(keeper.set_working(CLUSTER, pods, "a", {"account": ("x",)}))
        given_up = asyncio.create_task(keeper.set_working(CLUSTER, pods, "b", {"account": ("x",)}))
        await asyncio.sleep(0)
        given_up.cancel()
        await first
        assert world.states == {"a": WorkState.WORKING, "b": WorkState.DRAINING}
        await keeper.drain(CLUSTER, pods, "a")
        assert world.states == {"a": WorkState.DRAINING, "b": WorkState.DRAINING}


async def test_changes_whose_connection_fails_say_so_each() -> None:
    world = World()
    async with keeping(world) as (keeper, pods):
        gone = [replace_ip(pods[0], f"{HOST[:-1]}9")]
        done = await asyncio.gather(
            keeper.drain(CLUSTER, gone, "a"), keeper.drain(CLUSTER, gone, "b"), return_exceptions=True
        )
        assert all(isinstance(one, RpcError) for one in done)


def replace_ip(pod: core.Pod, ip: str) -> core.Pod:
    return core.Pod(metadata=pod.metadata, status=core.PodStatus(pod_ip=ip))


# --- a claimed pod serves


async def two_pods(client: Client) -> tuple[core.Pod, core.Pod]:
    made = []
    for name in ("known", "unknown"):
        raw = {
            "metadata": {"name": name, "namespace": "ns", "annotations": {DRAINING: "2026-11-28T20:00:00Z"}},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        }
        made.append(await client.create(decode(raw, core.Pod)))
    return made[0], made[1]


async def test_the_gate_of_each_claimed_pod_opens_when_hakeeper_has_confirmed_it_and_else_stays_closed() -> (
    None
):
    world = World({"known": WorkState.DRAINING})
    async with ApiServer.in_memory() as server, keeping(world) as (keeper, logs):
        client = Client(server.transport(), field_manager="test")
        await client.create(core.Namespace(metadata=ObjectMeta(name="ns")))
        pods = await two_pods(client)
        around = SimpleNamespace(keeper=keeper, pods=lambda *_: logs, live=None)
        cn_set = typed("CNSet", deps__logSet={"metadata": {"name": "mo", "namespace": "ns"}})
        ctx: Any = SimpleNamespace(
            client=CachedClient(client, InformerSet(client)),
            key=Key("ns", "warm"),
            now=Still().now,
            did=noted,
        )
        steps = tuple(
            SetWorking(
                pod=one.metadata.name or "",
                uid=one.metadata.uid or "",
                uuid=one.metadata.name or "",
                labels={"account": ("a",)},
                opens=True,
            )
            for one in reversed(pods)
        )
        inputs: Any = SimpleNamespace(cn_set=cn_set, pods=pods)
        actor = CNSetActor(cast("Surroundings", around), nodes=False)
        with pytest.raises(StepFailed, match="unknown"):
            await actor.step(ctx, inputs, cast("Any", None), Several(moves=steps))
        known, unknown = [await client.get(core.Pod, one, namespace="ns") for one in ("known", "unknown")]
        assert gates(known) == ["True"]
        assert DRAINING not in (known.metadata.annotations or {})
        assert gates(unknown) == []
        assert DRAINING in (unknown.metadata.annotations or {})
        assert world.states == {"known": WorkState.WORKING}

        stale = replace(steps[1], labels={"account": ("b",)})  # the pod has changed since it was seen
        told = world.asked.total()
        with pytest.raises(StepFailed, match="changed meanwhile"):
            await actor.step(ctx, inputs, cast("Any", None), stale)
        assert world.asked.total() == told


async def noted(_: str) -> None:
    return None


def gates(pod: core.Pod) -> list[str]:
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    return [one.status or "" for one in conditions if one.type == GATE]
