"""How servers are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.operators.redis.sentinel.builders import healthy

from mooring.operators.redis.dial import Address, Dial, Link, Unreachable
from mooring.operators.redis.sentinel.topology import SILENT_TIMEOUT, read_topology


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
