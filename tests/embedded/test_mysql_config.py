"""Configuration on real MariaDB servers: live, by a restart, refused, corrected when somebody changed it by hand."""

from __future__ import annotations

import pytest

from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


async def everywhere(mysql: MySQLStage, variable: str) -> set[str]:
    """The values of a variable on all servers."""
    return {await mysql.value(pod.metadata.name or "", variable) for pod in await mysql.pods()}


async def result(mysql: MySQLStage, key: str) -> str:
    """What became of a key."""
    found = ((await mysql.status()).config or {}).get(key)
    return found.state if found is not None else ""


async def reached(mysql: MySQLStage, key: str, state: str, *, within: float = 30) -> None:
    async def there() -> bool:
        return await result(mysql, key) == state

    await mysql.bed.until(there, f"{key} is {state}", within=within)


async def test_a_key_that_can_change_live_changes_without_a_restart(mysql: MySQLStage) -> None:
    before = {pod.metadata.uid for pod in await mysql.pods()}
    await mysql.patch({"config": {"long_query_time": "3"}})
    await reached(mysql, "long_query_time", "Applied")
    await mysql.exact()

    assert {float(one) for one in await everywhere(mysql, "long_query_time")} == {3.0}
    assert {pod.metadata.uid for pod in await mysql.pods()} == before

    mysql.kill(await mysql.primary())  # what was changed live is there after a restart as well
    await mysql.exact()
    assert {float(one) for one in await everywhere(mysql, "long_query_time")} == {3.0}


async def test_a_value_that_was_changed_by_hand_is_corrected(mysql: MySQLStage) -> None:
    await mysql.patch({"config": {"long_query_time": "4"}})
    await reached(mysql, "long_query_time", "Applied")
    await mysql.exact()
    async with mysql.operators_away():
        await mysql.query(await mysql.primary(), "SET GLOBAL long_query_time = 9")

    async def corrected() -> bool:
        return {float(one) for one in await everywhere(mysql, "long_query_time")} == {4.0}

    await mysql.bed.until(corrected, "the declared value is back", within=20)


async def test_a_key_that_is_read_at_start_rolls_the_servers(mysql: MySQLStage) -> None:
    async with mysql.writing() as ledger:
        await mysql.patch({"config": {"back_log": "111"}})
        await reached(mysql, "back_log", "Applied", within=90)  # three servers end and start, one by one
        await mysql.whole(within=60)
    assert (await ledger.check()).lost_acknowledged == 0
    await mysql.exact()
    assert await everywhere(mysql, "back_log") == {"111"}


async def test_keys_that_the_operator_decides_or_no_server_knows_are_named_and_harm_nothing(
    mysql: MySQLStage,
) -> None:
    before = {pod.metadata.uid for pod in await mysql.pods()}
    await mysql.patch({"config": {"back_log": "111", "max_connect_errors": "x", "no_such_key": "1"}})
    await reached(mysql, "no_such_key", "Unknown")
    await reached(mysql, "max_connect_errors", "Rejected")

    async def named() -> bool:
        status, reason, message = await mysql.condition("Stalled")
        return (status, reason) == ("True", "NotAsDeclared") and "no_such_key" in message

    await mysql.bed.until(named, "the condition Stalled names the key", within=10)
    assert (await mysql.status()).phase == "Running"
    assert {pod.metadata.uid for pod in await mysql.pods()} == before
    await mysql.patch({"config": None})
    await mysql.exact(within=60)
