"""Backup and restore of real MySQL 9.7 servers."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import MakeMySQL
from tests.embedded.test_mysql_backup import Backups

from mooring.operators.mysql.dial import Dial
from mooring.testing.mysql_stage import MySQLStage

IMAGE = "mysql:9.7"
pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(480),
]


@pytest.mark.parametrize("method", ["Logical", pytest.param("Physical", marks=pytest.mark.nightly)])
async def test_a_new_cluster_begins_with_the_rows_and_accounts_of_the_backup(
    mysql: MySQLStage, make_mysql: MakeMySQL, method: str
) -> None:
    name = f"first-{method.lower()}"
    backups = Backups(mysql)
    target = await backups.claim()
    async with Dial().open(await mysql.served(), await mysql.login("root")) as link:
        await link.query("CREATE DATABASE IF NOT EXISTS shop")
        await link.query("CREATE TABLE IF NOT EXISTS shop.orders (id INT PRIMARY KEY, what VARCHAR(20))")
        await link.query("REPLACE INTO shop.orders VALUES (1, 'tea'), (2, 'it''s')")
        await link.query("CREATE USER IF NOT EXISTS 'shop'@'%' IDENTIFIED BY 'secret-of-the-shop'")
    await mysql.exact()
    await backups.make(name, target, method=method)
    status = await backups.over(name)
    copy = await make_mysql(restoreFrom={"backup": name}, size=2 if method == "Logical" else 1)
    async with Dial().open(await copy.served(), await copy.login("root")) as link:
        assert await link.one("SELECT COUNT(*) AS n FROM shop.orders") == {"n": 2}
        assert (await link.one("SELECT COUNT(*) AS n FROM mysql.user WHERE User = 'shop'"))["n"] == 1
        executed = (await link.one("SELECT @@GLOBAL.gtid_executed AS g"))["g"]
        assert (await link.one(f"SELECT GTID_SUBSET('{status.position}', '{executed}') AS s"))["s"] == 1
