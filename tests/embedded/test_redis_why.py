"""`mooring why` and `mooring replay` against a running cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.embedded.conftest import MakeCluster

from mooring.operators.redis.sentinel.moves import InSync
from mooring.operators.redis.sentinel.plan import decide
from mooring.operators.redis.sentinel.saved import dump, gather, load

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(90)]


async def test_a_decision_is_gathered_by_a_person_as_by_the_operator(cluster: MakeCluster) -> None:
    stage = await cluster(password="not-for-files", resources={"limits": {"memory": "256Mi"}})
    saved = await gather(stage.bed.client, await stage.get(), now=datetime.now(UTC))

    text = dump(saved)
    assert b"not-for-files" not in text
    assert isinstance(decide(load(text)), InSync), decide(load(text))
    assert len(saved.observed.topology.members) == 3
