"""MariaDB from one series to the next under load: the replicas first, system tables included, and no way back."""

from __future__ import annotations

import pytest
from tests.embedded.conftest import MakeMySQL

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]
IMAGE = "mariadb:10.11"
TABLES = (
    "SELECT GROUP_CONCAT(CONCAT(COLUMN_NAME, ' ', COLUMN_TYPE) ORDER BY TABLE_NAME, ORDINAL_POSITION) AS layout "
    "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME IN ('proc', 'event', 'db', 'column_stats')"
)


@pytest.mark.full
async def test_a_key_that_the_new_version_does_not_know_stops_it_before_any_pod_is_touched(
    make_mysql: MakeMySQL,
) -> None:
    mysql = await make_mysql(size=1, config={"innodb_change_buffer_max_size": "20", "max_connections": "60"})
    before = {pod.metadata.uid for pod in await mysql.pods()}
    await mysql.patch({"image": "mariadb:11.8"})

    async def stopped() -> bool:
        _, reason, message = await mysql.condition("Stalled")
        return (
            reason == "TrialFailed"
            and "spec.config" in message
            and "innodb_change_buffer_max_size" in message
        )

    await mysql.bed.until(stopped, "the upgrade is stopped", within=60)
    assert (await mysql.status()).phase == "Running"
    assert {pod.metadata.uid for pod in await mysql.pods()} == before

    await mysql.patch({"config": {"innodb_change_buffer_max_size": None}})
    await mysql.exact(within=120)
    assert (await mysql.value(await mysql.primary(), "version")).startswith("11.8.")


@pytest.mark.nightly
async def test_from_10_11_to_11_8_under_load_and_no_way_back(make_mysql: MakeMySQL) -> None:
    mysql = await make_mysql()
    old = (await mysql.query(await mysql.primary(), TABLES))[0]["layout"]
    async with mysql.writing() as ledger:
        await mysql.patch({"image": "mariadb:11.8"})

        async def upgraded() -> bool:
            found = (await mysql.status()).instances or ()
            return len(found) == 3 and all((one.version or "").startswith("11.8.") for one in found)

        await mysql.bed.until(upgraded, "every server runs 11.8", within=150)
        await mysql.whole(within=60)
        await mysql.writes(ledger, 50)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    await mysql.exact()
    names = [pod.metadata.name or "" for pod in await mysql.pods()]
    layouts = [(await mysql.query(name, TABLES))[0]["layout"] for name in names]
    assert len(set(layouts)) == 1
    assert layouts[0] != old  # the system tables are those of 11.8, on every server

    before = {pod.metadata.uid for pod in await mysql.pods()}
    await mysql.patch({"image": "mariadb:10.11"})

    async def refused() -> bool:
        _, reason, message = await mysql.condition("Stalled")
        return reason == "VersionRefused" and "spec.image" in message and "11.8" in message

    await mysql.bed.until(refused, "the way back is refused", within=20)
    assert {pod.metadata.uid for pod in await mysql.pods()} == before
    await mysql.patch({"image": "mariadb:11.8"})
    await mysql.exact()
