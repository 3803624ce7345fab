"""How servers are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Connection
from tests.operators.redis.sentinel.builders import healthy

from mooring.operators.redis.dial import Address, Dial, Link, Unreachable, no_fence
from mooring.operators.redis.sentinel import topology
from mooring.operators.redis.sentinel.topology import SILENT_TIMEOUT, Sentinel, Server, read_topology
from mooring.operators.redis.tls import Ports


class Unanswered(Dial):
    """Notes how long each server is waited for; none answers."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: dict[str, float | None] = {}

    @asynccontextmanager
    async def link(self, address: Address, **options: Any) -> AsyncIterator[Link]:
        self.waits[address.ip] = options.get("reply_timeout")
        answering: list[Link] = []
        for one in answering:
            yield one
        raise Unreachable(f"{address}: no answer")


async def test_a_pod_that_did_not_answer_before_delays_the_others_less() -> None:
    scene, dial = healthy(), Unanswered()
    seen = await read_topology(
        dial,
        redis=[one.pod for one in scene.members.values()],
        sentinels=[one.pod for one in scene.watchers.values()],
        silent={"redis-0", "sentinel-1"},
    )
    short = {ip for ip, wait in dial.waits.items() if wait == SILENT_TIMEOUT}
    assert short == {"10.0.0.1", "10.0.1.2"}
    assert {wait for ip, wait in dial.waits.items() if ip not in short} == {None}
    assert all(one.server is None and one.error for one in seen.members)


class PlainAlone(Dial):
    """The ports for TLS are open in the pods, and something between drops what is sent there."""

    @asynccontextmanager
    async def link(self, address: Address, **options: Any) -> AsyncIterator[Link]:
        if address.port in (6380, 26380):
            raise Unreachable(f"{address}: cannot connect")
        yield Link(Connection(), address, no_fence)


async def test_the_port_that_is_not_used_yet_is_tried_where_both_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = healthy()

    async def answer(*_: object, **__: object) -> Server | None:
        return scene.members["redis-1"].server

    async def watch(*_: object, **__: object) -> Sentinel | None:
        return scene.watchers["sentinel-1"].sentinel

    async def pong(*_: object) -> str:
        return "PONG"

    monkeypatch.setattr(topology, "read_server", answer)
    monkeypatch.setattr(topology, "read_sentinel", watch)
    monkeypatch.setattr(Link, "call", pong)
    pods = [one.pod for one in scene.members.values()], [one.pod for one in scene.watchers.values()]
    ports: dict[str, Ports] = {
        **dict.fromkeys(scene.members, "both"),
        **dict.fromkeys(scene.watchers, "both"),
    }
    ports["redis-0"] = "plain"

    async def closed(*, tries_other: bool) -> set[str]:
        seen = await read_topology(
            PlainAlone(), redis=pods[0], sentinels=pods[1], ports=ports, tries_other=tries_other
        )
        assert all(one.server for one in seen.members)
        servers = {one.name for one in seen.members if one.closed}
        return servers | {one.name for one in seen.watchers if one.closed}

    assert await closed(tries_other=False) == set()
    assert await closed(tries_other=True) == set(ports) - {"redis-0"}
