"""The life of a MatrixOneCluster by helm and kubectl on a real node: the commands of docs/matrixone.md, under clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.matrixone_ramp import Clients
from hack.images.recipes import build
from hack.kubernetes.controlplane import ControlPlane
from hack.operations import ROOT, Command, at_hand, commands, differs, run
from tests.charts.helm import Provided, tell
from tests.embedded.test_matrixone_directory import CLAIM, CLUSTER, SHARED, round_trip

from mooring.kube.objects.core import Pod
from mooring.operators.matrixone.types import BackupJob, MatrixOneCluster
from mooring.operators.mysql.dial import Dial, DialError
from mooring.testing.bed import Bed, ClusterBed
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.matrixone_stage import SQL_PORT, MatrixOneStage

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.real_node,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(2400),
]

PAGE, SECTION = ROOT / "docs" / "matrixone.md", "## By Helm, on Kubernetes"
IMAGES = ("mooring", "mooring-next", "mariadb", "matrixone")
READERS = 9
#: A client gives a statement up when a roll should long be over.
WRITERS = {"clients": 3, "rate": 4.0, "patience": 120.0}


@pytest.fixture(scope="module")
def real_cluster() -> Iterator[ControlPlane]:
    """A cluster with a node of its own: no other test takes the image of MatrixOne."""
    with ControlPlane(images=[build(name) for name in IMAGES]) as plane:
        yield plane


@dataclass
class Page:
    """The page's commands, run one after the other."""

    place: Path
    environment: dict[str, str]
    left: list[Command] = field(default_factory=lambda: list(commands(PAGE, SECTION)))

    async def up_to(self, word: str = "") -> None:
        """Run what comes before the next command with this word in it; without one all that is left."""
        while self.left and not (word and word in self.left[0].line):
            command = self.left.pop(0)
            ran = await run(command, self.place, self.environment)
            assert differs(command, ran) == ""
        assert bool(self.left) is bool(word)


@dataclass
class Load:
    """Clients that read and others that write, and what they were refused."""

    readers: Clients
    ledger: MySQLLedger


@asynccontextmanager
async def under_load(stage: MatrixOneStage, what: str, *, failed: int) -> AsyncIterator[Load]:
    """Sessions through the proxy all through the block; so many statements may fail, and no row may be lost."""
    readers, began = Clients(stage), time.monotonic()
    try:
        async with stage.writing(**WRITERS) as ledger:
            await readers.hold(READERS)
            yield Load(readers, ledger)
            await stage.writes(ledger, 20, within=180)
    finally:
        await readers.hold(0)
    report = await ledger.check()
    errors = sum(report.errors.values())
    statements = readers.statements + report.acknowledged
    tell(
        f"{what}: {time.monotonic() - began:.0f} s, {statements} statements of {READERS + WRITERS['clients']:.0f} clients, "
        f"{len(readers.failed) + errors} failed, longest without a row {report.longest_gap:.1f} s"
    )
    assert report.lost_acknowledged == 0, report
    assert len(readers.failed) + errors <= failed, (readers.failed, report.errors)
    assert readers.statements > READERS


async def serving(stage: MatrixOneStage) -> set[str]:
    """The compute nodes that clients' sessions are on."""
    async with Dial(connect_timeout=20.0, reply_timeout=60.0, port=SQL_PORT).open(
        await stage.entry(), await stage.login(), timeout=60.0
    ) as link:
        return {str(row["node_id"]) for row in await link.query("SHOW PROCESSLIST") if row["proxy_host"]}


async def spread(stage: MatrixOneStage, nodes: int) -> float:
    """Wait until clients' sessions are on so many compute nodes."""

    async def is_so() -> bool:
        # The server asks all compute nodes, for a moment also one that has just gone.
        with suppress(DialError):
            return len(await serving(stage)) == nodes
        return False

    return await stage.bed.until(is_so, f"sessions on {nodes} compute nodes", within=240, every=1.0)


async def pods(bed: Bed | ClusterBed) -> set[str]:
    """The UIDs of the cluster's pods."""
    found: list[Pod] = await bed.pods("default", "matrixorigin.io/cluster=mo")
    return {one.metadata.uid or "" for one in found}


async def test_a_backup_in_a_directory_is_restored_into_a_new_cluster(provided: Provided) -> None:
    bed, name = provided.bed, "backups"
    await provided.helm.install(name, "--set", "operators=matrixone")
    await bed.apply(CLAIM)
    await bed.apply(CLUSTER.format(name="one", restore="", shared=SHARED))
    began = time.monotonic()
    await round_trip(bed, within=600)
    tell(f"made, backed up, verified and restored in {time.monotonic() - began:.0f} s")
    for kind in (MatrixOneCluster, BackupJob):
        for one in (await bed.client.list(kind, namespace="default")).items:
            await bed.client.delete(kind, one.metadata.name or "", namespace="default")

    async def gone() -> bool:
        left = [await bed.client.list(kind, namespace="default") for kind in (MatrixOneCluster, BackupJob)]
        return not any(one.items for one in left)

    await bed.until(gone, "the clusters and the backup jobs are gone", within=300, every=0.5)
    await provided.helm("uninstall", name, "--wait")


async def test_every_command_on_the_page_under_clients(provided: Provided, tmp_path: Path) -> None:
    bed, stage = provided.bed, MatrixOneStage(provided.bed)
    page = Page(tmp_path, await asyncio.to_thread(at_hand, tmp_path, provided.kubeconfig))
    await page.up_to('"value":3')

    async with under_load(stage, "one compute node to three and back", failed=0):
        await page.up_to('"value":1')
        seconds = await spread(stage, 3)
        tell(f"sessions on all three {seconds:.0f} s after the cluster was as declared")
        await page.up_to("log-level")
        await spread(stage, 1)

    before = await pods(bed)
    # The only transaction node and the only proxy are replaced: a session breaks at most once for each.
    async with under_load(stage, "all components rolled", failed=2 * (READERS + 3)):
        await page.up_to("helm package")

        async def replaced() -> bool:
            return not before & await pods(bed)

        # A replaced proxy's pod ends after the new one serves.
        await bed.until(replaced, "no pod of before is left", within=240, every=0.5)

    before = await pods(bed)
    async with under_load(stage, "the operator upgraded, doubled and removed", failed=0):
        await page.up_to()
    assert await pods(bed) == before
    assert await provided.helm.releases() == {}
