"""Random faults to Redis Clusters under writers for half an hour: what is lost by cause, how long a part is not served.

    python -m bench.cluster_faults [--minutes 30] [--faults 200] [--lanes 3] [--seed N] [--secure] [--publish]

As bench/faults.py, with clusters of three masters and a replica each. The writer writes all over the slots and times
each eighth of them by itself: the gap is that of the worst eighth. A lane's next fault strikes once its cluster is
Running, all slots have an owner, and every node sees the others as they see themselves. Exit status 1 when a write
that WAIT had confirmed is lost, or when a cluster does not become whole again. ``--secure``: see bench/faults.py.

Causes: a master's or a replica's server killed with -9, both servers of a shard, or two masters (most of them) at
once; a master stopped (SIGSTOP) until its replica leads; a master cut off from the other pods (partition: the
client still reaches it) or from everything (isolation), in both directions, healed some seconds after its replica
leads; a master's or a replica's pod deleted, so that it comes back with another address; a master's pod removed
without grace; a master killed and its volume emptied; the operator killed with -9, alone or with a master.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from bench.lanes import WHOLE_WITHIN, Causes, Lane, Place, parser
from bench.lanes import main as run
from bench.secure import APP, OPS, Secure
from tests.operators.redis.cluster.stage import OPERATOR, Stage, manifest, renewed

from mooring.operators.redis.cluster import RedisCluster
from mooring.operators.redis.cluster.topology import Peer
from mooring.operators.redis.dial import Address, Dial
from mooring.testing.ledger import Ledger
from mooring.testing.ledger_cluster import ClusterLedger

__all__ = ["COMMAND", "ClusterLane", "main"]

COMMAND = "python -m bench.cluster_faults"
RESULTS = "cluster-faults.json"
PASSWORD = "change-me-please"
NAME = "faults"
NODES = 6


class ClusterLane(Lane):
    """Three masters with a replica each."""

    operators = OPERATOR.name
    group = RedisCluster.resource.group

    def __init__(self, place: Place, options: argparse.Namespace) -> None:
        super().__init__(place, options)
        self._secure = Secure.made() if options.secure else None
        tls = self._secure.context if self._secure else None
        self._stage = Stage(place.bed, NAME, namespace=place.namespace, password=PASSWORD, tls=tls)
        if self._secure:
            self._stage.dial = Dial(connect_timeout=5.0, reply_timeout=10.0, tls=tls, keys=[OPS])

    def document(self) -> dict[str, Any]:
        """See `Lane`."""
        more = self._secure.spec() if self._secure else {}
        return manifest(NAME, replicas=NODES, password=PASSWORD, **more)

    def documents(self) -> list[dict[str, Any]]:
        """See `Lane`."""
        return [*(self._secure.secrets() if self._secure else ()), self.document()]

    async def whole(self) -> None:
        """See `Lane`."""
        await self._stage.exact(NODES, within=WHOLE_WITHIN)

    @asynccontextmanager
    async def writing(self, rate: float) -> AsyncIterator[Ledger]:
        """See `Lane`."""
        nodes = list((await self._stage.addresses()).values())
        secure, tls = self._secure, self._secure.context if self._secure else None
        password = [APP] if secure else PASSWORD
        ledger = ClusterLedger(
            nodes, password=password, rate=rate, patience=0.5, tls=tls, connect=1.0 if tls else None
        )
        task = asyncio.create_task(ledger.write())
        try:
            await self.written(ledger, within=30)
            yield ledger
        finally:
            ledger.stop()
            await task

    async def written(self, ledger: Ledger, *, within: float) -> None:
        """See `Lane`: a write to every eighth of the slots, from now on."""
        began = time.monotonic()

        async def everywhere() -> bool:
            return ledger.silence < time.monotonic() - began

        await self.place.bed.until(everywhere, "every eighth of the slots is written", within=within)

    async def server(self) -> Address | None:
        """See `Lane`."""
        return next(iter((await self._stage.addresses()).values()))

    # --- the victim

    async def _shards(self, count: int = 1) -> list[tuple[str, str]]:
        """Master and replica of so many shards, drawn at random."""
        mine = {pod: await self._stage.me(pod) for pod in await self._stage.addresses()}
        replicas = {me.master: pod for pod, me in mine.items() if me.master}
        shards = [(pod, replicas[me.id]) for pod, me in mine.items() if me.is_master]
        return self.place.chance.sample(shards, count)

    async def _master(self) -> str:
        ((master, _),) = await self._shards()
        return master

    async def _replica(self) -> str:
        ((_, replica),) = await self._shards()
        return replica

    async def _kill(self, *pods: str) -> None:
        """kill -9, until their containers have been started again."""
        bed, namespace = self.place.bed, self.place.namespace
        pids = {(pod, "redis"): bed.kill(namespace, pod, "redis") for pod in pods}
        await bed.restarted(namespace, pids)

    @asynccontextmanager
    async def _replaced(self, master: str, replica: str, ledger: Ledger) -> AsyncIterator[None]:
        """At the end of the block its replica leads in its place, and all slots are written again."""
        old = await self._stage.me(master)
        yield

        async def leads() -> bool:
            seen: Peer = await self._stage.me(replica)
            return seen.slots == old.slots

        await self.place.bed.until(leads, f"{replica} leads", within=60, every=0.1)
        await self.written(ledger, within=30)

    # --- the faults

    async def kill_master(self, ledger: Ledger) -> str:
        """See `Lane`."""
        master = await self._master()
        await self._kill(master)
        return master

    async def kill_replica(self, _: Ledger) -> str:
        replica = await self._replica()
        await self._kill(replica)
        return replica

    async def kill_shard(self, _: Ledger) -> str:
        (shard,) = await self._shards()
        await self._kill(*shard)
        return ", ".join(shard)

    async def kill_two_masters(self, _: Ledger) -> str:
        masters = [master for master, _ in await self._shards(2)]
        await self._kill(*masters)
        return ", ".join(masters)

    async def empty_master(self, _: Ledger) -> str:
        master, bed, namespace = await self._master(), self.place.bed, self.place.namespace
        pid = await asyncio.to_thread(bed.kill_empty, namespace, master, "redis")
        await bed.restarted(namespace, {(master, "redis"): pid})
        return master

    async def hang_master(self, ledger: Ledger) -> str:
        bed, namespace = self.place.bed, self.place.namespace
        ((master, replica),) = await self._shards()
        try:
            async with self._replaced(master, replica, ledger):
                bed.kill(namespace, master, "redis", signal.SIGSTOP)
        finally:
            with contextlib.suppress(LookupError, ProcessLookupError):
                bed.kill(namespace, master, "redis", signal.SIGCONT)
        return master

    async def partition(self, ledger: Ledger) -> str:
        return await self._cut(ledger, from_machine=False)

    async def isolate(self, ledger: Ledger) -> str:
        return await self._cut(ledger, from_machine=True)

    async def _cut(self, ledger: Ledger, *, from_machine: bool) -> str:
        ((master, replica),) = await self._shards()
        others = list(await self._stage.addresses())
        async with contextlib.AsyncExitStack() as stack:
            async with self._replaced(master, replica, ledger):
                await stack.enter_async_context(self.cut_off(master, others, from_machine=from_machine))
            await asyncio.sleep(self.place.chance.uniform(0.0, 5.0))
        return master

    async def delete_master(self, ledger: Ledger) -> str:
        ((master, replica),) = await self._shards()
        async with self._replaced(master, replica, ledger):
            await self.remove(master, grace=None)
        return master

    async def delete_replica(self, _: Ledger) -> str:
        replica = await self._replica()
        await self.remove(replica, grace=None)
        return replica

    async def remove_master(self, _: Ledger) -> str:
        master = await self._master()
        before = {pod.metadata.uid for pod in await self._stage.pods() if pod.metadata.name == master}
        await self.remove(master)
        await renewed(self._stage, before)
        return master

    causes: ClassVar[Causes] = {
        "master-killed": kill_master,
        "replica-killed": kill_replica,
        "shard-killed": kill_shard,
        "two-masters-killed": kill_two_masters,
        "master-emptied": empty_master,
        "master-hung": hang_master,
        "partition": partition,
        "isolation": isolate,
        "master-deleted": delete_master,
        "replica-deleted": delete_replica,
        "master-removed": remove_master,
        "operator-killed": Lane.kill_operator,
        "operator-and-master-killed": Lane.kill_operator_and_master,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    about = (__doc__ or "").partition("\n")[0]
    words = parser(ClusterLane, prog="cluster_faults.py", about=about, results=RESULTS)
    words.add_argument("--secure", action="store_true", help="with TLS, users, and the default user off")
    options = words.parse_args(arguments)
    if options.secure:
        return run(ClusterLane, options, mark=f"{COMMAND} --secure", results="cluster-faults-secure.json")
    return run(ClusterLane, options, mark=COMMAND, results=RESULTS)


if __name__ == "__main__":
    sys.exit(main())
