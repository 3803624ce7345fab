"""Random faults on MySQL clusters under writers: what is lost by cause, and how long nobody serves.

    python bench/mysql_faults.py [--minutes 30] [--faults 200] [--lanes 3] [--seed N] [--image mariadb:10.11] [--publish]

Each lane is a cluster of three servers in a namespace of its own, with an operator process of its own and four clients
that write through the primary's Service, all on one embedded control plane. A lane's next fault strikes once its cluster
is whole: the operator is done, every replica follows and has applied everything. After each fault, with nobody writing, every
server has to have the primary's transactions and none of its own. Ends when so many minutes and so many
faults are over; ``--publish`` writes bench/results/FLAVOR_faults.json and its tables in docs/benchmarks.md. Exit status 1
when an acknowledged row is lost, or when a cluster does not become whole again.

Causes: the primary's, a replica's, two servers or all of them killed with -9; the primary stopped (SIGSTOP) until another
leads, a replica for some seconds; the primary cut off from the other pods (partition: clients still reach it) or from
everything (isolation), healed some seconds after another leads; a node silent, out of reach and deleted; the primary's or a replica's pod deleted, removed without
grace, or removed together with its claim; the operator killed with -9, alone, with the primary, or in the middle of a
failover; a planned switch; a roll-out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

from mooring.kube.objects.core import PersistentVolumeClaim
from mooring.operators.mysql.dial import DialError
from mooring.operators.mysql.flavors import flavor_of
from mooring.testing.bed import NotInTime
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.mysql_stage import MySQLStage, manifest

if not __package__:  # run as a program: its sibling is found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lanes import WHOLE_WITHIN, Causes, Lane, Place, parser
from bench.lanes import main as run
from bench.tally import markdown

__all__ = ["MySQLLane", "image_in", "main"]

NAME = "faults"


class MySQLLane(Lane):
    """A primary and two replicas."""

    operators = "mysql"
    group = "mysql.mooring.dev"
    volumes = 2048
    nodes = 3

    def __init__(self, place: Place, options: argparse.Namespace) -> None:
        super().__init__(place, options)
        self._image, self._size = options.image, options.size
        flavor = flavor_of(self._image, None) or "mariadb"
        self._stage = MySQLStage(place.bed, NAME, namespace=place.namespace, flavor=flavor)
        self._chance = place.chance
        self._rolls = 0

    @classmethod
    def measured(cls, options: argparse.Namespace) -> dict[str, Any]:
        """See `Lane`."""
        return {"image": options.image}

    def document(self) -> dict[str, Any]:
        """See `Lane`."""
        pod = {"nodeSelector": self.place.node_selector}
        return manifest(NAME, image=self._image, size=self._size, pod=pod)

    async def whole(self) -> None:
        """See `Lane`."""
        await self._stage.whole(WHOLE_WITHIN)

    async def disagreement(self) -> str:
        """See `Lane`."""
        try:
            await self._stage.exact(WHOLE_WITHIN)
        except (NotInTime, DialError) as error:
            return str(error)
        return ""

    def writing(self, rate: float) -> AbstractAsyncContextManager[MySQLLedger]:
        """See `Lane`."""
        return self._stage.writing(rate=rate / 4, patience=0.5)

    async def written(self, ledger: Any, *, within: float) -> None:
        """See `Lane`."""
        await self._stage.writes(ledger, 100, within=within)

    async def said(self) -> str:
        """See `Lane`."""
        last = next(iter((await self._stage.status()).promotions or ()), None)
        return f"term {last.term}: {last.cause}, {last.gap_seconds} s" if last else ""

    # --- the victim

    async def _replicas(self, count: int = 1) -> list[str]:
        primary = await self._stage.primary()
        names = [pod.metadata.name or "" for pod in await self._stage.pods()]
        return self._chance.sample([name for name in names if name != primary], count)

    async def _another_leads(self, old: str) -> None:
        await self._stage.led_by_another(old, within=60)

    # --- the faults: each returns its victim once the worst is over

    async def kill_master(self, ledger: Any) -> str:
        """See `Lane`."""
        primary = await self._stage.primary()
        self._stage.kill(primary)
        return primary

    async def kill_replica(self, _: Any) -> str:
        (replica,) = await self._replicas()
        self._stage.kill(replica)
        return replica

    async def kill_two(self, _: Any) -> str:
        pods = [pod.metadata.name or "" for pod in await self._stage.pods()]
        struck = self._chance.sample(pods, 2)
        for pod in struck:
            with contextlib.suppress(LookupError):
                self._stage.kill(pod)
            await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.1, 0.3)))
        return ", ".join(struck)

    async def kill_all(self, _: Any) -> str:
        pods = [pod.metadata.name or "" for pod in await self._stage.pods()]
        self._chance.shuffle(pods)
        for pod in pods:
            with contextlib.suppress(LookupError):
                self._stage.kill(pod)
            await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.05, 0.2)))
        return "all"

    async def kill_twice(self, ledger: Any) -> str:
        struck = []
        for _ in range(2):
            with contextlib.suppress(LookupError):  # the first one is on its way back
                struck.append(await self.kill_master(ledger))
            await asyncio.sleep(self._chance.uniform(0.05, 1.5))
        return ", ".join(struck)

    async def hang_master(self, ledger: Any) -> str:
        primary = await self._stage.primary()
        self._stage.kill(primary, signal.SIGSTOP)
        try:
            await self._another_leads(primary)
            await self._stage.writes(ledger, 20, within=30)
        finally:
            with contextlib.suppress(LookupError, ProcessLookupError):
                self._stage.kill(primary, signal.SIGCONT)
        return primary

    async def hang_briefly(self, _: Any) -> str:
        primary = await self._stage.primary()
        self._stage.kill(primary, signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(1.0, 6.0))
        with contextlib.suppress(LookupError, ProcessLookupError):
            self._stage.kill(primary, signal.SIGCONT)
        return primary

    async def hang_replica(self, _: Any) -> str:
        (replica,) = await self._replicas()
        self._stage.kill(replica, signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(2.0, 8.0))
        with contextlib.suppress(LookupError, ProcessLookupError):
            self._stage.kill(replica, signal.SIGCONT)
        return replica

    async def partition(self, ledger: Any) -> str:
        return await self._cut(ledger, from_machine=False)

    async def isolate(self, ledger: Any) -> str:
        return await self._cut(ledger, from_machine=True)

    async def _cut(self, ledger: Any, *, from_machine: bool) -> str:
        primary = await self._stage.primary()
        names = [pod.metadata.name or "" for pod in await self._stage.pods()]
        async with self.cut_off(primary, names, from_machine=from_machine):
            if from_machine:
                await self._another_leads(primary)
                await self._stage.writes(ledger, 20, within=30)
            await asyncio.sleep(self._chance.uniform(2.0, 8.0))
        return primary

    async def delete_master(self, _: Any) -> str:
        primary = await self._stage.primary()
        await self.remove(primary, grace=None)
        await self._another_leads(primary)
        return primary

    async def delete_replica(self, _: Any) -> str:
        (replica,) = await self._replicas()
        await self.remove(replica, grace=None)
        return replica

    async def remove_master(self, _: Any) -> str:
        primary = await self._stage.primary()
        await self.remove(primary)
        return primary

    async def lose_master(self, _: Any) -> str:
        primary = await self._stage.primary()
        await self._lose_claim(primary)
        await self._another_leads(primary)
        return primary

    async def lose_replica(self, _: Any) -> str:
        (replica,) = await self._replicas()
        await self._lose_claim(replica)
        return replica

    async def _lose_claim(self, pod: str) -> None:
        client = self.place.bed.client
        await client.delete(PersistentVolumeClaim, f"data-{pod}", namespace=self.place.namespace)
        await self.remove(pod)

    async def fill_master(self, _: Any) -> str:
        primary = await self._stage.primary()
        await self._fill(primary)
        return primary

    async def fill_replica(self, _: Any) -> str:
        (replica,) = await self._replicas()
        await self._fill(replica)
        return replica

    async def _fill(self, pod: str) -> None:
        with await self.full(pod):
            await asyncio.sleep(self._chance.uniform(4.0, 12.0))

    async def kill_operator_amid(self, ledger: Any) -> str:
        primary = await self.kill_master(ledger)
        await asyncio.sleep(self._chance.uniform(0.0, 0.6))
        async with self.no_operator():
            return f"{primary}, then operator"

    async def switch(self, _: Any) -> str:
        primary, (replica,) = await self._stage.primary(), await self._replicas()
        await self._stage.switch(replica)
        await self._another_leads(primary)
        return f"{primary} to {replica}"

    async def roll(self, _: Any) -> str:
        self._rolls += 1
        label = f"r{self._rolls}"
        await self._stage.patch({"pod": {"labels": {"roll": label}}})

        async def rolled() -> bool:
            pods = await self._stage.pods()
            return all((pod.metadata.labels or {}).get("roll") == label for pod in pods)

        await self._stage.bed.until(rolled, "every pod has the new label", within=WHOLE_WITHIN)
        return "every pod"

    causes: ClassVar[Causes] = {
        "primary-killed": kill_master,
        "replica-killed": kill_replica,
        "two-killed": kill_two,
        "all-killed": kill_all,
        "two-primaries-killed": kill_twice,
        "primary-hung": hang_master,
        "primary-hung-briefly": hang_briefly,
        "replica-hung": hang_replica,
        "primary-partitioned": partition,
        "primary-isolated": isolate,
        "node-lost": Lane.lose_node,
        "primary-deleted": delete_master,
        "replica-deleted": delete_replica,
        "primary-removed": remove_master,
        "primary-claim-lost": lose_master,
        "replica-claim-lost": lose_replica,
        "primary-disk-full": fill_master,
        "replica-disk-full": fill_replica,
        "api-errors-and-primary-killed": Lane.api_errors,
        "clock-moved-and-primary-killed": Lane.move_clock,
        "operator-killed": Lane.kill_operator,
        "operator-and-primary-killed": Lane.kill_operator_and_master,
        "operator-killed-amid-failover": kill_operator_amid,
        "switch": switch,
        "roll": roll,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    about = (__doc__ or "").partition("\n")[0]
    words = parser(MySQLLane, prog="mysql_faults.py", about=about, results="FLAVOR_faults.json")
    words.add_argument(
        "--image",
        default="mariadb:10.11",
        help="MariaDB or MySQL (mariadb:10.11); of --from the figures say it",
    )
    words.add_argument("--size", type=int, default=3, help="servers of each cluster (3)")
    options = words.parse_args(arguments)
    if options.source:
        options.image = image_in(options.source)
    flavor = flavor_of(options.image, None) or "mariadb"
    mark = f"python bench/mysql_faults.py --image {flavor}"
    return run(MySQLLane, options, mark=mark, results=f"{flavor}_faults.json", text_of=_page)


def image_in(source: Path) -> str:
    """The image of raw figures: what they say, else what their file is called (``mysql_faults.json``)."""
    said = str(json.loads(source.read_text()).get("image") or source.stem)
    if flavor_of(said, None) is None:
        raise SystemExit(f"{source}: neither its figures nor its name say mysql or mariadb")
    return said


def _page(figures: dict[str, Any]) -> str:
    """In `Strict` a replica has every write that is acknowledged."""
    return markdown(figures).replace("confirmed by WAIT", "confirmed by a replica")


if __name__ == "__main__":
    sys.exit(main())
