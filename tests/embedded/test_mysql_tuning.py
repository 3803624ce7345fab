"""Tuning on real MariaDB servers: a change that helps is kept, also by a new operator, and one that does not is taken back."""

from __future__ import annotations

import pytest
from bench.mysql_tuning import LIMIT, NEVER_FITS, SMALL, Grouping, prepare, tuned
from tests.embedded.conftest import MakeMySQL

from mooring.testing.mysql_stage import MySQLStage

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]
WINDOW = 5


async def everywhere(mysql: MySQLStage) -> set[str]:
    """The size of temporary tables on all servers."""
    return {await mysql.value(pod.metadata.name or "", "tmp_table_size") for pod in await mysql.pods()}


async def test_a_change_that_helps_is_kept_and_one_that_does_not_is_taken_back(make_mysql: MakeMySQL) -> None:
    mysql = await make_mysql(size=2, resources=LIMIT, tuningWindowSeconds=WINDOW)
    await prepare(mysql)
    pods = {pod.metadata.uid for pod in await mysql.pods()}
    async with Grouping(mysql).running() as work:
        await mysql.patch({"tuning": "Auto"})
        begun = await tuned(mysql, lambda one: one.trial is not None, "a change is tried", within=90)
        assert begun.trial is not None
        assert (begun.trial.stage, begun.trial.pod != await mysql.primary()) == ("Replica", True)
        async with mysql.operators_away():  # what is on trial is in status alone
            assert await everywhere(mysql) <= {str(SMALL), str(begun.trial.value)}
        kept = await tuned(mysql, lambda one: bool(one.applied), "it is kept", within=120)
        value = str((kept.applied or {})["tmp"].value)
        assert await everywhere(mysql) == {value}

        work.query = NEVER_FITS  # TEXT is grouped on disk, whatever the size
        back = await tuned(mysql, lambda one: bool(one.rejected), "another one is taken back", within=120)
        assert str((back.rejected or {})["tmp"].value) != value
        assert await everywhere(mysql) == {value}
    assert {pod.metadata.uid for pod in await mysql.pods()} == pods

    mysql.kill(await mysql.primary())  # what was kept is what a start reads
    await mysql.exact(within=60)
    assert await everywhere(mysql) == {value}
