"""Random faults on a MatrixOne cluster of real processes under writers: what is lost by cause, and how long nobody serves.

    python bench/matrixone_faults.py [--minutes 30] [--faults 60] [--lanes 1] [--seed N] [--publish]

Each lane is a cluster in a namespace of its own - three log stores, a transaction node, two compute nodes, two proxies - with
an operator process of its own and two clients that write through the proxies' Service. A lane's next fault strikes once its
cluster is whole: ready and as declared, every pod ready, every log store serving. Ends when so many minutes and so many
faults are over; ``--publish`` writes bench/results/matrixone_faults.json and the table in docs/benchmarks.md. Exit status 1
when an acknowledged row is lost, or when a cluster does not become whole again. A lane takes about 3 GiB.

Causes: a log store, the one that leads, the transaction node, a compute node or a proxy killed with -9; a log store, the
transaction node or a compute node stopped (SIGSTOP) for some seconds; two of three log stores stopped or killed, so that
the quorum is lost; a pod of each component deleted, a log store or a compute node removed without grace; a log store
removed with its claim; a log store or a compute node cut off from the other pods; one of four nodes with all its pods silent, out
of reach and deleted; a compute node more and less; a changed
configuration; the operator killed with -9, alone, with a compute node, or amid a drain; the operator stopped until its
Lease has run out; four of ten of the operator's requests answered with an error, or not at all, for some seconds, in which
a compute node is killed. An operator that ends by itself, as it does when it loses its Lease, is started again, as a
Deployment does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from mooring.kube.objects.core import PersistentVolumeClaim
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.matrixone_stage import MatrixOneStage, manifests

if not __package__:  # run as a program: its sibling is found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lanes import LEADS_WITHIN, Causes, Lane, Place, parser
from bench.lanes import main as run

__all__ = ["MatrixOneLane", "main"]

NAME = "mo"
WHOLE_WITHIN = 300.0
"""Seconds to be whole again: a log store is given up after `GIVEN_UP_AFTER`, and a pod may take 60 s to end."""
PATIENCE = 20.0
"""Seconds that a client waits for an answer: a leader that ends holds writes for 11."""
SETTLES = timedelta(seconds=4)
"""After it goes on, an operator that still renews its Lease has kept it."""
QUICK = '[logservice.HAKeeperConfig]\nlog-store-timeout = "30s"\n'
"""HAKeeper replaces a log store after five minutes by default."""
GIVEN_UP_AFTER = "60s"
"""Until the operator gives up the volume of a log store that does not come up and that HAKeeper has replaced; ten minutes by default.

A log store of 1.2.4 that HAKeeper replaced, and that joined again with its old volume, may list one shard twice there. It then
panics at every start ("shard already exist").
"""


class MatrixOneLane(Lane):
    """Three log stores, a transaction node, two compute nodes, two proxies."""

    operators = "matrixone"
    group = "core.matrixorigin.io"
    nodes = 4

    def __init__(self, place: Place, options: argparse.Namespace) -> None:
        super().__init__(place, options)
        self._stage = MatrixOneStage(place.bed, NAME, namespace=place.namespace)
        self._chance = place.chance
        self._rolls = 0

    def documents(self) -> list[dict[str, Any]]:
        """See `Lane`."""
        made = manifests(NAME, namespace=self.place.namespace, proxies=2, log_config=QUICK)
        spec = made[-1]["spec"]
        spec["logService"]["storeFailureTimeout"] = GIVEN_UP_AFTER
        for part in (spec["logService"], spec["tn"], spec["proxy"], *spec["cnGroups"]):
            part["nodeSelector"] = self.place.node_selector
        return made

    def document(self) -> dict[str, Any]:
        """See `Lane`."""
        return self.documents()[-1]

    async def whole(self) -> None:
        """See `Lane`."""
        await self._stage.whole(WHOLE_WITHIN)

    def writing(self, rate: float) -> AbstractAsyncContextManager[MySQLLedger]:
        """See `Lane`."""
        return self._stage.writing(clients=2, rate=rate / 2, patience=PATIENCE, gap_from=1.0)

    async def written(self, ledger: Any, *, within: float) -> None:
        """See `Lane`."""
        await self._stage.writes(ledger, 20, within=within)

    # --- the victim

    async def _one(self, kind: str) -> str:
        names = await self._stage.names(kind)
        if not names:
            raise LookupError(f"no pod of {kind}")
        return self._chance.choice(names)

    async def _follower(self) -> str:
        leader = await self._stage.log_leader()
        return self._chance.choice([one for one in await self._stage.names("LogSet") if one != leader])

    async def _hang(self, seconds: float, *pods: str) -> str:
        struck = []
        try:
            for pod in pods:
                self._stage.kill(pod, signal.SIGSTOP)
                struck.append(pod)
            await asyncio.sleep(seconds)
        finally:
            for pod in struck:
                with contextlib.suppress(LookupError, ProcessLookupError):
                    self._stage.kill(pod, signal.SIGCONT)
        return ", ".join(pods)

    async def _kill(self, *pods: str) -> str:
        for pod in pods:
            self._stage.kill(pod)
        return ", ".join(pods)

    # --- the faults: each returns its victim once the worst is over

    async def kill_master(self, _: Any) -> str:
        """A compute node: what serves the clients."""
        return await self._kill(await self._one("CNSet"))

    async def kill_follower(self, _: Any) -> str:
        return await self._kill(await self._follower())

    async def kill_log_leader(self, _: Any) -> str:
        return await self._kill(await self._stage.log_leader())

    async def kill_tn(self, _: Any) -> str:
        return await self._kill(await self._one("DNSet"))

    async def kill_proxy(self, _: Any) -> str:
        return await self._kill(await self._one("ProxySet"))

    async def kill_quorum(self, _: Any) -> str:
        return await self._kill(*self._chance.sample(await self._stage.names("LogSet"), 2))

    async def hang_log(self, _: Any) -> str:
        return await self._hang(self._chance.uniform(3, 15), await self._one("LogSet"))

    async def hang_quorum(self, _: Any) -> str:
        two = self._chance.sample(await self._stage.names("LogSet"), 2)
        return await self._hang(self._chance.uniform(8, 20), *two)

    async def hang_tn(self, _: Any) -> str:
        return await self._hang(self._chance.uniform(2, 8), await self._one("DNSet"))

    async def hang_cn(self, _: Any) -> str:
        return await self._hang(self._chance.uniform(2, 20), await self._one("CNSet"))

    async def hang_cn_long(self, _: Any) -> str:
        """HAKeeper gives a compute node up after 30 s; it registers again when it goes on."""
        return await self._hang(40, await self._one("CNSet"))

    async def _delete(self, kind: str, *, grace: int | None = None) -> str:
        pod = await self._one(kind)
        await self.remove(pod, grace=grace)
        return pod

    async def delete_log(self, _: Any) -> str:
        return await self._delete("LogSet")

    async def delete_tn(self, _: Any) -> str:
        return await self._delete("DNSet")

    async def delete_cn(self, _: Any) -> str:
        return await self._delete("CNSet")

    async def delete_proxy(self, _: Any) -> str:
        return await self._delete("ProxySet")

    async def remove_log(self, _: Any) -> str:
        return await self._delete("LogSet", grace=0)

    async def remove_cn(self, _: Any) -> str:
        return await self._delete("CNSet", grace=0)

    async def lose_log(self, _: Any) -> str:
        pod, client = await self._follower(), self.place.bed.client
        await client.delete(PersistentVolumeClaim, f"mo-data-{pod}", namespace=self.place.namespace)
        await self.remove(pod)
        return pod

    async def _cut(self, pod: str) -> str:
        names = await self._stage.names()
        async with self.cut_off(pod, names, from_machine=False):
            await asyncio.sleep(self._chance.uniform(4, 15))
        return pod

    async def cut_log(self, _: Any) -> str:
        return await self._cut(await self._one("LogSet"))

    async def cut_cn(self, _: Any) -> str:
        return await self._cut(await self._one("CNSet"))

    async def _group(self, **changes: Any) -> None:
        document = self.document()["spec"]["cnGroups"][0]
        await self._stage.patch({"cnGroups": [{**document, **changes}]})

    async def scale(self, _: Any) -> str:
        await self._group(replicas=3)
        await self.whole()
        await self._group(replicas=2)
        return "one more, one less"

    async def roll(self, _: Any) -> str:
        self._rolls += 1
        level = ("error", "warn")[self._rolls % 2]
        await self._group(config=f'[log]\nlevel = "{level}"\n')
        return "compute nodes"

    async def kill_operator_amid(self, _: Any) -> str:
        await self._group(replicas=3)
        await self.whole()
        await self._group(replicas=2)
        await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        async with self.no_operator():
            return "operator amid a drain"

    async def hang_operator(self, _: Any) -> str:
        operator, restarts = self.place.operator, len(self.place.restarts)
        os.kill(operator.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(self._chance.uniform(5, 25))
        finally:
            os.kill(operator.pid, signal.SIGCONT)
        resumed = datetime.now(UTC)

        # A process that has lost its Lease ends, perhaps after a renewal that was under way.
        async def leads() -> bool:
            return await operator.leads(since=resumed + SETTLES)

        await self.place.bed.until(leads, "an operator leads", within=LEADS_WITHIN, every=0.2)
        return "operator, which ended" if len(self.place.restarts) > restarts else "operator"

    causes: ClassVar[Causes] = {
        "log-store-killed": kill_follower,
        "log-leader-killed": kill_log_leader,
        "transaction-node-killed": kill_tn,
        "compute-node-killed": kill_master,
        "proxy-killed": kill_proxy,
        "log-quorum-killed": kill_quorum,
        "log-store-hung": hang_log,
        "log-quorum-hung": hang_quorum,
        "transaction-node-hung": hang_tn,
        "compute-node-hung": hang_cn,
        "compute-node-hung-40s": hang_cn_long,
        "log-store-deleted": delete_log,
        "transaction-node-deleted": delete_tn,
        "compute-node-deleted": delete_cn,
        "proxy-deleted": delete_proxy,
        "log-store-removed": remove_log,
        "compute-node-removed": remove_cn,
        "log-store-claim-lost": lose_log,
        "log-store-partitioned": cut_log,
        "compute-node-partitioned": cut_cn,
        "node-lost": Lane.lose_node,
        "scale": scale,
        "roll": roll,
        "operator-killed": Lane.kill_operator,
        "operator-and-compute-node-killed": Lane.kill_operator_and_master,
        "operator-killed-amid-drain": kill_operator_amid,
        "operator-hung": hang_operator,
        "api-errors": Lane.api_errors,
    }


def markdown(figures: dict[str, Any]) -> str:
    """The report for the page of benchmarks: a row per cause."""
    how = f"{figures['machine']}, one-minute load {figures['load']}"
    faults = f"{figures['faults']} faults in {figures['minutes']:.0f} minutes (seed {figures['seed']})"
    lost = figures["lost_acknowledged"] + figures["lost_later_confirmed"]
    rows = f"{figures['acknowledged']:,} acknowledged rows, of which **{lost} lost**"
    restarts = figures["operator_restarts"]
    lines = [
        f"Measured on {figures['measured']}: {how}; {faults}, {rows}. The operator lost its Lease and ended {restarts} times.",
        "",
        "| cause | faults | acknowledged | of them lost | gap p50 / max, s | exact p50 / max, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for cause, row in figures["causes"].items():
        gap, whole = row["gap"], row["whole_again"]
        cells = [
            *(cause, str(row["number"]), f"{row['acknowledged']:,}", str(row["lost_acknowledged"])),
            f"{gap['p50']:.1f} / {gap['max']:.1f}",
            f"{whole['p50']:.0f} / {whole['max']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + [f"\nFAILED: {why}" for why in figures["failures"]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    about = (__doc__ or "").partition("\n")[0]
    words = parser(MatrixOneLane, prog="matrixone_faults.py", about=about, results="matrixone_faults.json")
    words.set_defaults(lanes=1, faults=60, rate=20.0)
    options = words.parse_args(arguments)
    return run(
        MatrixOneLane,
        options,
        mark="python bench/matrixone_faults.py",
        results="matrixone_faults.json",
        text_of=markdown,
    )


if __name__ == "__main__":
    sys.exit(main())
