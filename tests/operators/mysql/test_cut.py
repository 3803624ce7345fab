"""A MySQL server whose binary log was cut, as the start script does it: real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.operators.mysql.test_gate import cut
from tests.operators.mysql.test_steps import Bench

from mooring.operators.mysql.moves import Fence, Follow
from mooring.testing.mysql import Servers

pytestmark = [pytest.mark.embedded, pytest.mark.full]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Servers("mysql:9.7") as servers:
        made = Bench(servers)
        yield made
        made.holds.close()
        made.dial.close()


async def test_what_is_written_after_a_cut_never_bears_the_number_of_what_was_cut(bench: Bench) -> None:
    primary, replica = await bench.start(2)
    await bench.found(primary, [replica])
    await bench.sql(primary, "INSERT INTO shop.t VALUES (1, 1)")
    await bench.level(primary, replica)
    old = await bench.see(primary)
    await bench.run(Fence(targets=(replica.target,)))
    link = (await bench.see(replica)).replication
    assert link is not None
    async with bench.client(primary) as client:
        writing = asyncio.create_task(client.query("INSERT INTO shop.t VALUES (2, 1)"))
        await bench.until(primary, lambda it: it.semi_sync.waiting == 1)
        primary.kill()
        await asyncio.wait([writing])
        assert writing.exception() is not None

    cut(primary.directory, f"1 replica 5 cut {link.source_file} {link.source_position}")
    await primary.boot()
    assert (await bench.see(primary)).executed.text() == old.executed.text()
    await bench.run(bench.promote(primary))
    new = await bench.see(primary)
    assert new.origin != old.origin
    await bench.run(
        Follow(
            targets=(replica.target,), source=primary.target, source_host=primary.address,
            acking=frozenset({replica.name}),
        )
    )  # fmt: skip
    await bench.sql(primary, "INSERT INTO shop.t VALUES (3, 1)")
    await bench.level(primary, replica)
    assert await bench.rows(replica) == [1, 3]
    written = (await bench.see(replica)).executed - old.executed
    assert written.without(new.origin).is_empty
    assert not written.is_empty
