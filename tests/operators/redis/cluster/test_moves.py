"""A move of slots on real servers, cut off anywhere: whoever comes next finishes it, and every key is kept."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.operators.redis.cluster.servers import Servers, servers

KEYS = [f"key:{at}" for at in range(5000)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Servers]:
    """Three masters with a replica each, and keys."""
    async with servers(tmp_path) as made:
        await made.fill(KEYS)
        yield made


async def exact(cluster: Servers, *sizes: int) -> None:
    """All slots, no mark, every key where its slot is and nowhere else."""
    assert await cluster.sizes() == sorted(sizes)
    assert await cluster.marks() == 0
    assert await cluster.kept(KEYS) == len(KEYS)
    assert await cluster.stored() == len(KEYS)


@pytest.mark.embedded
@pytest.mark.parametrize("seed", [1])
async def test_an_operator_that_dies_at_twenty_points_of_a_move_loses_nothing(
    cluster: Servers, seed: int
) -> None:
    chance, deaths = random.Random(seed), 0
    while not await cluster.operate(8, sends=chance.randint(20, 160)):
        deaths += 1
    assert deaths >= 20
    await exact(cluster, 4096, 4096, 4096, 4096)
