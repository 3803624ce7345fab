"""A statement that is given up holds nobody up, wherever it was."""

from __future__ import annotations

from time import monotonic

import pytest

from mooring.operators.mysql.dial import Dial, Unreachable
from mooring.operators.mysql.survey import login_of
from mooring.testing.mysql import CREDENTIALS, Servers

pytestmark = pytest.mark.embedded


async def test_a_statement_that_is_given_up_amid_several_results_ends_at_its_limit() -> None:
    async with Servers() as servers:
        (server,) = await servers.start(1)
        async with Dial().open(server.address, login_of(CREDENTIALS)) as link:
            began = monotonic()
            with pytest.raises(Unreachable) as refused:
                await link.results("SELECT 1; SELECT SLEEP(20); SELECT 2", timeout=0.3)

    assert refused.value.word == "Timeout"
    assert monotonic() - began < 5
