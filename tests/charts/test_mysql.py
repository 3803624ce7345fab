"""A MySQLCluster with the operator as the chart installs it, on a real kubelet with an image like the official one.

One cluster lives through all tests of a module; test_mysql_97.py repeats them with MySQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from hack.released import NAMESPACE, operators
from tests.charts.helm import Provided
from tests.embedded.test_mysql_backup import Backups

from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.operators.mysql.topology import Flavor
from mooring.testing.ledger_mysql import DATABASE
from mooring.testing.mysql_stage import MySQLStage, manifest

IMAGE = "mariadb:10.11"
METHODS = ("Logical", "Physical")
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1500),
    pytest.mark.real_node,
]


@pytest.fixture(scope="module")
def image(request: pytest.FixtureRequest) -> str:
    """What the module's clusters run."""
    return str(request.module.IMAGE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(provided: Provided, image: str) -> AsyncIterator[MySQLStage]:
    """The module's cluster of three, made by a release of its own."""
    await provided.helm.install("sql", "--set", "operators=mysql")
    made = MySQLStage(provided.bed, "sql", flavor=_flavor(image))
    await provided.bed.apply(manifest(made.name, image=image))
    yield made
    await made.delete(claims=True)


def _flavor(image: str) -> Flavor:
    return "mysql" if image.startswith("mysql") else "mariadb"


async def rows(stage: MySQLStage) -> dict[str, int]:
    """Number and checksum of the rows that the primary has of the ledger."""
    table = f"{DATABASE}.written"
    (found,) = await stage.query(
        await stage.primary(), f"SELECT COUNT(*) AS n, SUM(CRC32(CONCAT(id, ':', at))) AS s FROM {table}"
    )
    return {name: int(found[name]) for name in ("n", "s")}


async def test_a_life_under_writers_loses_nothing(provided: Provided, stage: MySQLStage) -> None:
    bed = provided.bed
    await stage.exact(180)
    async with stage.writing() as ledger:
        first = await stage.primary()
        stage.kill(first)
        second = await stage.led_by_another(first, within=60)
        await stage.whole(120)

        await stage.switch(first)
        assert await stage.led_by_another(second, within=60) == first
        await stage.whole(120)

        # The primary, and with it the operator.
        for name in await operators(bed):
            await bed.client.delete(Pod, name, namespace=NAMESPACE)
        await stage.delete_pod(first)
        await stage.led_by_another(first, within=90)
        await stage.whole(180)

        await stage.patch({"config": {"max_connections": "171"}})
        await stage.settled(60)
        assert {
            row["v"] for row in await stage.query(await stage.primary(), "SELECT @@max_connections AS v")
        } == {171}
        await stage.writes(ledger, 100)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report
    await stage.exact(120)


@pytest.mark.nightly
async def test_backups_of_both_methods_become_clusters_with_the_same_rows(
    stage: MySQLStage, image: str
) -> None:
    await stage.exact(180)
    async with stage.writing() as ledger:
        await stage.writes(ledger, 100)
    await stage.exact(120)
    wanted = await rows(stage)
    backups = Backups(stage)
    target = await backups.claim()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(
            backups.client.delete, PersistentVolumeClaim, "backups", namespace="default"
        )
        for method in METHODS:
            await backups.make(method.lower(), target, method=method)
            stack.push_async_callback(backups.gone, method.lower())
        for method in METHODS:
            status = await backups.over(method.lower(), within=180)
            assert status.source != await stage.primary()
            assert status.tries == 1

        copies = [MySQLStage(stage.bed, f"of-{one.lower()}", flavor=stage.flavor) for one in METHODS]
        for method, copy in zip(METHODS, copies, strict=True):
            stack.push_async_callback(copy.delete, claims=True)
            restored = {"backup": method.lower()}
            await stage.bed.apply(manifest(copy.name, size=1, image=image, restoreFrom=restored))
        for copy in copies:
            await copy.exact(180)
            assert await rows(copy) == wanted


@pytest.mark.nightly
async def test_it_grows_is_rolled_and_shrinks_under_writers(stage: MySQLStage) -> None:
    await stage.exact(180)
    before = {pod.metadata.uid for pod in await stage.pods()}
    async with stage.writing() as ledger:
        await stage.patch({"size": 4})
        await stage.whole(180)
        assert {pod.metadata.uid for pod in await stage.pods()} > before  # none restarted

        await stage.patch({"pod": {"labels": {"team": "blue"}}})

        async def rolled() -> bool:
            pods = await stage.pods()
            return len(pods) == 4 and all((pod.metadata.labels or {}).get("team") == "blue" for pod in pods)

        await stage.bed.until(rolled, "every pod has the new label", within=300)
        await stage.whole(180)

        await stage.patch({"size": 3})
        await stage.whole(180)
        await stage.writes(ledger, 100)
    report = await ledger.check()
    assert report.lost_acknowledged == 0, report.text()
    await stage.exact(120)
