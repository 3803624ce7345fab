"""The archive of real MySQL 9.7 servers, and new clusters that begin at a moment of it."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import MakeMySQL
from tests.embedded.test_mysql_archive import archived_over_a_failover, begun, text

from mooring.testing.mysql_rows import rows_of
from mooring.testing.mysql_stage import MySQLStage

IMAGE = "mysql:9.7"
pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(400),
]


async def test_a_new_cluster_begins_at_exactly_a_time_of_an_archive_over_a_failover(
    mysql: MySQLStage, make_mysql: MakeMySQL
) -> None:
    rows = await archived_over_a_failover(mysql)
    at = {"time": text(rows.times[24])}
    copy = await begun(make_mysql, at)
    assert await rows_of(copy) == list(range(1, 26))
    restore = (await copy.status()).restore
    assert restore is not None
    assert (restore.position, restore.transaction) == (rows.positions[24].newest(), rows.transaction(25))
