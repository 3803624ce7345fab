"""An operator process that is started again when it ends by itself, as a Deployment starts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mooring.testing.process import OperatorProcess

__all__ = ["LOOKS_EVERY", "kept_running"]

LOOKS_EVERY = 1.0
"""Seconds between two looks at the process."""


@asynccontextmanager
async def kept_running(operator: OperatorProcess) -> AsyncIterator[list[int]]:
    """Start the operator again whenever it ended by itself, to the end of the block.

    An operator ends when it loses its Lease. One that the caller killed stays dead. Yields the pids of the processes that
    were started here, in their order.
    """
    started: list[int] = []

    async def keep() -> None:
        while True:
            await asyncio.sleep(LOOKS_EVERY)
            if operator.ended:
                await asyncio.to_thread(operator.start)
                started.append(operator.pid)

    keeping = asyncio.create_task(keep(), name="keep the operator running")
    try:
        yield started
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
