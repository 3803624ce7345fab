"""Roll-outs on real MariaDB servers: replicas first, the primary after a switch, halted where a pod does not come up."""

from __future__ import annotations

import pytest
from tests.embedded.overlay import are_overlaid, overlay
from tests.standstill import Standstill

from mooring.testing.mysql_stage import MySQLStage

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


async def test_a_changed_template_is_rolled_out_without_a_lost_row(
    mysql: MySQLStage, stood: Standstill
) -> None:
    before = {pod.metadata.name: pod.metadata.uid for pod in await mysql.pods()}
    spec = (await mysql.get()).spec
    assert spec is not None
    image = spec.image or ""
    async with mysql.writing() as ledger:
        await mysql.patch({"pod": {"labels": {"team": "blue"}}, "podTemplate": overlay("mysql", image)})

        async def rolled() -> bool:
            pods = await mysql.pods()
            return len(pods) == 3 and all((pod.metadata.labels or {}).get("team") == "blue" for pod in pods)

        await mysql.bed.until(rolled, "every pod has the new label", within=60)
        await mysql.whole(within=60)
        await mysql.writes(ledger, 50)
        assert are_overlaid(await mysql.pods())
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 1.5, report.text()
    assert not set(before.values()) & {pod.metadata.uid for pod in await mysql.pods()}
    await mysql.exact()
    status = await mysql.status()
    assert status.rolls is None
    assert status.promotions
    assert status.promotions[0].cause == "Planned"


async def test_an_image_that_does_not_run_touches_no_pod_and_is_taken_back(mysql: MySQLStage) -> None:  # 24
    before, spec = {pod.metadata.uid for pod in await mysql.pods()}, (await mysql.get()).spec
    assert spec is not None
    async with mysql.writing() as ledger:
        await mysql.patch({"image": f"{mysql.flavor}:77.1", "imagePullPolicy": "IfNotPresent"})

        async def stopped() -> bool:
            _, reason, message = await mysql.condition("Stalled")
            return reason in ("TrialFailed", "VersionRefused") and "spec.image" in message

        await mysql.bed.until(stopped, "the image is not rolled out", within=40)
        await mysql.writes(ledger, 50)
        assert {pod.metadata.uid for pod in await mysql.pods()} == before
        await mysql.patch({"image": spec.image})
        await mysql.whole(within=60)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert {pod.metadata.uid for pod in await mysql.pods()} == before
    await mysql.exact()


async def test_pods_that_do_not_run_stop_at_the_first_replica(mysql: MySQLStage, stood: Standstill) -> None:
    primary = await mysql.primary()
    async with mysql.writing() as ledger:
        await mysql.patch({"pod": {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}})

        async def halted() -> bool:
            return (await mysql.condition("Stalled"))[:2] == ("True", "RollHalted")

        await mysql.bed.until(halted, "the roll-out halts", within=60)
        await mysql.writes(ledger, 50)
        assert await mysql.primary() == primary
        await mysql.patch({"pod": None})
        await mysql.whole(within=60)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    assert ledger.longest_gap - stood.within(ledger.longest_gap) < 1.5, report.text()
    await mysql.exact()


async def test_an_older_version_than_the_datas_is_refused(mysql: MySQLStage) -> None:
    spec = (await mysql.get()).spec
    assert spec is not None
    await mysql.patch({"image": "mariadb:10.6" if mysql.flavor == "mariadb" else "mysql:8.4"})

    async def refused() -> bool:
        return (await mysql.condition("Stalled"))[1] == "VersionRefused" or "older" in (
            await mysql.condition("Progressing")
        )[2]

    await mysql.bed.until(refused, "the version is refused", within=20)
    declared = (spec.image or "").rpartition(":")[2]
    running = {one.version or "" for one in (await mysql.status()).instances or ()}
    assert all(version.startswith(f"{declared}.") for version in running), running
    await mysql.patch({"image": spec.image})
    await mysql.exact()
