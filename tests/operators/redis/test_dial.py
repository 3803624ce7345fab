"""The dial on a real server: what becomes of a command whose caller is cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.operators.redis.cluster.servers import servers

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]


async def test_a_cancellation_ends_calls_at_whatever_moment_it_comes(tmp_path: Path) -> None:
    async with servers(tmp_path, 1) as nodes:

        async def call_on_and_on() -> None:
            async with nodes.dial.link(nodes.address(0)) as link:
                called.set()
                while True:
                    await link.call("PING")

        survived = []
        for turns in range(30):
            called = asyncio.Event()
            task = asyncio.create_task(call_on_and_on())
            await called.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=1.0)
            if not task.done():
                survived.append(turns)
            while not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=0.01)
        assert survived == []
