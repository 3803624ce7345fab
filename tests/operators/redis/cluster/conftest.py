"""Real servers without Kubernetes, for the tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.operators.redis.cluster.servers import KEYS, Servers, servers

__all__ = ["cluster", "strangers"]


@pytest.fixture
async def strangers(tmp_path: Path) -> AsyncIterator[Servers]:
    """Six servers that know nothing of one another."""
    async with servers(tmp_path) as made:
        yield made


@pytest.fixture
async def cluster(strangers: Servers) -> Servers:
    """Three masters with a replica each, and the keys."""
    await strangers.operate(6)
    await strangers.fill(KEYS)
    return strangers
