"""Ids that no pod has any more, on real servers: without them nobody knows whose slots are missing."""

from __future__ import annotations

import pytest
from tests.operators.redis.cluster.servers import KEYS, Servers

from mooring.operators.redis.cluster.topology import Peer

pytestmark = pytest.mark.embedded


async def known(cluster: Servers, id: str, at: list[int]) -> list[Peer]:
    """What these nodes say of an id."""
    return [peer for one in at for peer in await cluster.view(one) if peer.id == id]


async def test_an_id_that_is_gone_is_forgotten_only_after_its_slots_have_a_live_owner(
    cluster: Servers,
) -> None:
    master = next(iter(await cluster.owned()))
    ghost = await cluster.me(master)
    (replica,) = [at for at in range(6) if (await cluster.me(at)).master == ghost.id]
    others = [at for at in range(6) if at not in (master, replica)]

    await cluster.kill(replica)
    await cluster.renew(master)
    assert not await cluster.operate(6, seconds=4.0), "slots are without an owner"
    kept = await known(cluster, ghost.id, others)
    assert [peer.slots for peer in kept] == [ghost.slots] * 4

    await cluster.start(replica)
    await cluster.operate(6)
    assert await cluster.sizes() == [5461, 5461, 5462]
    assert await cluster.kept(KEYS) == len(KEYS)
    assert await known(cluster, ghost.id, list(range(6))) == []
    assert (await cluster.me(replica)).slots == ghost.slots
