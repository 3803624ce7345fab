"""A move of slots on real servers, cut off anywhere: whoever comes next finishes it, and every key is kept."""

from __future__ import annotations

import random

import pytest
from tests.operators.redis.cluster.servers import KEYS, Servers

from mooring.operators.redis.cluster.topology import Server, outranked, parse_nodes


async def exact(cluster: Servers, *sizes: int) -> None:
    """All slots, no mark, every key where its slot is and nowhere else."""
    assert await cluster.sizes() == sorted(sizes)
    assert await cluster.marks() == 0
    assert await cluster.kept(KEYS) == len(KEYS)
    assert await cluster.stored() == len(KEYS)


@pytest.mark.embedded
async def test_an_operator_that_dies_at_twenty_points_of_a_move_loses_nothing(cluster: Servers) -> None:
    chance, deaths = random.Random(8), 0
    while not await cluster.operate(8, sends=chance.randint(20, 70)):
        deaths += cluster.recorded.plan is not None
    assert deaths >= 20
    await exact(cluster, 4096, 4096, 4096, 4096)


@pytest.mark.full
@pytest.mark.embedded
@pytest.mark.parametrize("which", ["source", "target"])
async def test_a_move_goes_on_with_the_replica_of_a_side_that_is_gone(cluster: Servers, which: str) -> None:
    while not (cluster.recorded.plan and len(await cluster.owned()) > 3 and min(await cluster.sizes())):
        assert not await cluster.operate(8, sends=150)
    plan = cluster.recorded.plan
    ids = {getattr(move, which) for move in plan.moves or ()}
    victim = max(int(pod.rpartition("-")[2]) for pod, id in cluster.recorded.ids.items() if id in ids)

    await cluster.kill(victim)
    assert not await cluster.operate(8, seconds=5.0)
    assert victim not in await cluster.owned()
    await cluster.start(victim)
    await cluster.operate(8)

    await exact(cluster, 4096, 4096, 4096, 4096)


def test_who_claims_slots_by_a_number_that_is_too_low_has_not_taken_over() -> None:
    """As a replica does that counts the votes of an election that it won before: others take the former master's word."""
    mine = "{me} 10.0.0.4:6379@16379 myself,master - 0 0 {epoch} connected 0-5460"
    theirs = "{former} 10.0.0.1:6379@16379 {role} 0 0 8 connected"
    ids = {"me": "a" * 40, "former": "b" * 40}

    def is_outranked(epoch: int, role: str) -> bool:
        lines = (mine.format(epoch=epoch, **ids), theirs.format(role=role.format(**ids), **ids))
        return outranked(Server(view=parse_nodes("\n".join(lines))), ids["former"])

    assert is_outranked(7, "master -")
    assert is_outranked(8, "master -")
    assert not is_outranked(9, "master -")
    assert not is_outranked(8, "slave {me}"), "beside a replica stands its master's number"
