"""Random faults under writers for half an hour: what is lost by cause, and how long nobody serves.

    python bench/faults.py [--minutes 30] [--faults 200] [--lanes 3] [--seed N] [--max-lag 2] [--secure] [--publish]

Each lane is a 3 + 3 cluster in a namespace of its own, with an operator process of its own and a writer that
comes through the sentinels, all on one embedded control plane. A lane's next fault strikes once its cluster is
Healthy and every server and sentinel agrees. Ends when so many minutes and so many faults are over; ``--publish``
writes bench/results/faults.json and the tables in docs/benchmarks.md. Exit status 1 when a write that WAIT had
confirmed is lost, when a partition cost more than min-replicas-max-lag and a second of writes, or when a cluster
does not become whole again. With ``--secure`` servers and sentinels take TLS alone, the default user is off, and the
writer comes as a user of the spec; the figures go to bench/results/faults-secure.json.

Causes: the master's server or a replica's killed with -9; the master stopped (SIGSTOP) until another leads; the
master cut off from the other pods (partition: the client still reaches it) or from everything (isolation), in
both directions, healed some seconds after another leads; the master's or a replica's pod deleted, so that it
comes back with another address; the master's pod removed without grace; the master killed and its volume
emptied; the operator killed with -9, alone or with the master; one or two sentinels' pods removed, and two
together with the master's server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

from mooring.testing.ledger import Ledger
from mooring.testing.redis import RedisStage, manifest

if not __package__:  # run as a program: its sibling is found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lanes import WHOLE_WITHIN, Causes, Lane, Place, parser
from bench.lanes import main as run
from bench.secure import APP, OPS, Secure

__all__ = ["SentinelLane", "main"]

PASSWORD = "change-me-please"
NAME = "faults"


class SentinelLane(Lane):
    """A master, two replicas and three sentinels."""

    operators = "redis-sentinel"
    group = "redis.kun"

    def __init__(self, place: Place, options: argparse.Namespace) -> None:
        super().__init__(place, options)
        self._secure = Secure.made() if options.secure else None
        tls = self._secure.context if self._secure else None
        self._stage = RedisStage(place.bed, NAME, namespace=place.namespace, password=PASSWORD, tls=tls)
        if self._secure:
            self._stage.login(OPS)
        self._chance, self._max_lag = place.chance, options.max_lag

    def document(self) -> dict[str, Any]:
        """See `Lane`."""
        document = manifest(NAME, password=PASSWORD)
        if self._max_lag:
            document["spec"]["config"] = {"min-replicas-max-lag": str(self._max_lag)}
        if self._secure:
            document["spec"].update(self._secure.spec())
        return document

    def documents(self) -> list[dict[str, Any]]:
        """See `Lane`."""
        return [*(self._secure.secrets() if self._secure else ()), self.document()]

    async def whole(self) -> None:
        """See `Lane`."""
        await self._stage.exact(WHOLE_WITHIN)

    def writing(self, rate: float) -> AbstractAsyncContextManager[Ledger]:
        """See `Lane`."""
        how: dict[str, Any] = {"password": [APP], "connect": 1.0} if self._secure else {}
        return self._stage.writing(rate=rate, patience=0.5, **how)

    async def written(self, ledger: Ledger, *, within: float) -> None:
        """See `Lane`."""
        await self._stage.writes(ledger, 100, within=within)

    async def bound(self) -> float:
        """See `Lane`."""
        master = await self._stage.master()
        if await self._stage.config(master, "min-replicas-to-write") == "0":
            return 0.0
        spec = (await self._stage.get()).spec
        return float(((spec.config if spec else None) or {}).get("min-replicas-max-lag", "10"))

    async def said(self) -> str:
        """See `Lane`."""
        last = (await self._stage.status()).last_failover
        return f"{last.cause}: {last.choice}" if last else ""

    # --- the victim

    async def _other(self, component: str, count: int = 1) -> list[str]:
        """Random pods of a component, the master not among them."""
        master = await self._stage.master()
        names = [pod.metadata.name or "" for pod in await self._stage.pods(component)]
        return self._chance.sample([name for name in names if name != master], count)

    async def _another_leads(self, old: str) -> None:
        async def another() -> bool:
            return ((await self._stage.status()).master or old) != old

        await self._stage.bed.until(another, f"another master than {old}", within=60)

    # --- the faults: each returns its victim once the worst is over

    async def kill_master(self, ledger: Ledger) -> str:
        """See `Lane`."""
        master = await self._stage.master()
        await self._stage.restarted({master: self._stage.kill(master)})
        return master

    async def kill_replica(self, _: Ledger) -> str:
        (replica,) = await self._other("redis")
        await self._stage.restarted({replica: self._stage.kill(replica)})
        return replica

    async def empty_master(self, _: Ledger) -> str:
        master = await self._stage.master()
        pid = await asyncio.to_thread(self._stage.kill_empty, master)
        await self._stage.restarted({master: pid})
        return master

    async def hang_master(self, ledger: Ledger) -> str:
        master = await self._stage.master()
        self._stage.kill(master, signal.SIGSTOP)
        try:
            await self._another_leads(master)
            await self._stage.writes(ledger, 50, within=30)
        finally:
            with contextlib.suppress(LookupError, ProcessLookupError):
                self._stage.kill(master, signal.SIGCONT)
        return master

    async def partition(self, ledger: Ledger) -> str:
        return await self._cut(ledger, from_machine=False)

    async def isolate(self, ledger: Ledger) -> str:
        return await self._cut(ledger, from_machine=True)

    async def _cut(self, ledger: Ledger, *, from_machine: bool) -> str:
        stage = self._stage
        master = await stage.master()
        names = [pod.metadata.name or "" for pod in await stage.pods()]
        async with self.cut_off(master, names, from_machine=from_machine):
            await self._another_leads(master)
            await stage.writes(ledger, 50, within=30)
            await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        return master

    async def delete_master(self, _: Ledger) -> str:
        master = await self._stage.master()
        await self.remove(master, grace=None)
        await self._another_leads(master)
        return master

    async def delete_replica(self, _: Ledger) -> str:
        (replica,) = await self._other("redis")
        await self.remove(replica, grace=None)
        return replica

    async def remove_master(self, _: Ledger) -> str:
        master = await self._stage.master()
        await self.remove(master)
        await self._another_leads(master)
        return master

    async def lose_one_sentinel(self, _: Ledger) -> str:
        return await self._lose_sentinels(1)

    async def lose_two_sentinels(self, _: Ledger) -> str:
        return await self._lose_sentinels(2)

    async def lose_two_sentinels_and_master(self, ledger: Ledger) -> str:
        lost = await self._lose_sentinels(2)
        await asyncio.sleep(self._chance.uniform(0.0, 0.5))
        return f"{lost}, {await self.kill_master(ledger)}"

    async def _lose_sentinels(self, count: int) -> str:
        lost = await self._other("sentinel", count)
        await self.remove(*lost)
        return ", ".join(lost)

    causes: ClassVar[Causes] = {
        "master-killed": kill_master,
        "replica-killed": kill_replica,
        "master-emptied": empty_master,
        "master-hung": hang_master,
        "partition": partition,
        "isolation": isolate,
        "master-deleted": delete_master,
        "replica-deleted": delete_replica,
        "master-removed": remove_master,
        "operator-killed": Lane.kill_operator,
        "operator-and-master-killed": Lane.kill_operator_and_master,
        "one-sentinel-lost": lose_one_sentinel,
        "two-sentinels-lost": lose_two_sentinels,
        "two-sentinels-lost-and-master-killed": lose_two_sentinels_and_master,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    about = (__doc__ or "").partition("\n")[0]
    words = parser(SentinelLane, prog="faults.py", about=about, results="faults.json")
    words.add_argument(
        "--max-lag", type=int, default=0, help="min-replicas-max-lag; default the operator's 10"
    )
    words.add_argument("--secure", action="store_true", help="with TLS, users, and the default user off")
    options = words.parse_args(arguments)
    if options.secure:
        return run(
            SentinelLane, options, mark="python bench/faults.py --secure", results="faults-secure.json"
        )
    return run(SentinelLane, options, mark="python bench/faults.py", results="faults.json")


if __name__ == "__main__":
    sys.exit(main())
