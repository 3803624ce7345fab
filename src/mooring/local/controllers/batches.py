"""Many equal effects at once, carefully: one first, then two, four ... as long as all go well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

__all__ = ["slow_start"]

S = TypeVar("S")


async def slow_start(steps: Sequence[S], run: Callable[[S], Awaitable[object]], *, most: int = 64) -> None:
    """Run every step; a batch with a failure is the last, and its first error is raised.

    A cluster that refuses one pod (quota, admission) is asked once, not a hundred times.
    """
    size, done = 1, 0
    while done < len(steps):
        batch = steps[done : done + size]
        results = await asyncio.gather(*(run(step) for step in batch), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        done += len(batch)
        size = min(2 * size, most)
