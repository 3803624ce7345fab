"""Masters of a Redis Cluster under overload: none of them may be taken for one that hangs.

    python -m bench.overload [--minutes 60] [--megabytes 1024] [--seed N]

One cluster of three masters with a replica each on an embedded control plane, its operator a process of its own. One
load follows the other, drawn at random: more busy processes than there are processors, a script during which a master
answers nobody for 12 seconds, a fork of a large server that takes writes meanwhile, and all of them at once. After each
one every master must have the slots it had, under the number it had. What the servers decide after the node timeout counts
as well. It prints a line for every load and the result as JSON; exit status 1 when a master was replaced.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redis.crc import key_slot
from tests.operators.redis.cluster.stage import Stage, manifest

from mooring.operators.redis.dial import Dial, DialError
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, NotInTime
from mooring.testing.process import operator_process, served

__all__ = ["main"]

NODES = 6
BUSY_SECONDS = 12
"""Shorter than the default of cluster-node-timeout: the servers themselves replace no master."""
STARVED_SECONDS = 20.0
SCRIPT = (
    f"local at = redis.call('TIME')[1] while redis.call('TIME')[1] - at < {BUSY_SECONDS} do end return 'done'"
)
FILL = "for at = 1, 128 do redis.call('SET', KEYS[1] .. ARGV[1] .. ':' .. at, string.rep('x', 65536)) end return 1"
"""Writes 8 MiB."""
PATIENCE = 180.0
"""Seconds to wait for an answer of a server under load, and to be exact after it."""


@dataclass
class Overload:
    """One cluster, and what is done to it."""

    stage: Stage
    megabytes: int
    chance: random.Random
    replaced: list[str] = field(default_factory=list)
    loads: Counter[str] = field(default_factory=Counter)

    async def state(self) -> dict[str, tuple[int, int]]:
        """Slots and number of every master."""
        mine = {pod: await self.stage.me(pod) for pod in await self.stage.addresses()}
        return {pod: (me.slots, me.epoch) for pod, me in mine.items() if me.is_master}

    async def master(self) -> str:
        """One of them."""
        return self.chance.choice(sorted(await self.state()))

    async def call(self, pod: str, *words: str | int) -> None:
        """One command, however long it takes."""
        address = (await self.stage.addresses())[pod]
        async with self.stage.dial.link(address) as link:
            await link.call(*words)

    async def idle(self, pod: str) -> None:
        """Wait until no fork of it works: it would refuse another."""

        async def alone() -> bool:
            said = await self.stage.call(pod, "INFO", "persistence")
            return "aof_rewrite_in_progress:0" in said and "rdb_bgsave_in_progress:0" in said

        await self.stage.bed.until(alone, f"{pod} has no fork", within=PATIENCE)

    # --- the loads

    async def starve(self) -> None:
        """Four busy processes for each processor."""
        async with _busy(4 * (os.cpu_count() or 1)):
            await asyncio.sleep(STARVED_SECONDS)

    async def script(self) -> None:
        """A script that lets nobody in."""
        pod = await self.master()
        await self.call(pod, "CONFIG", "SET", "lua-time-limit", 0)
        await self.call(pod, "EVAL", SCRIPT, 0)

    async def fork(self) -> None:
        """A master with so many megabytes forks, and copies what is written meanwhile."""
        pod = await self.master()
        slots = (await self.state())[pod][0]
        tag = next(str(at) for at in range(100_000) if slots >> key_slot(str(at).encode()) & 1)
        pieces = self.megabytes // 8
        for at in range(pieces):
            await self.call(pod, "EVAL", FILL, 1, f"{{{tag}}}", at)
        await self.idle(pod)
        await self.call(pod, "BGREWRITEAOF")
        for at in range(pieces // 4):
            await self.call(pod, "EVAL", FILL, 1, f"{{{tag}}}", at)
        await self.call(pod, "FLUSHALL", "SYNC")

    async def all_at_once(self) -> None:
        """A script and a fork while there are no processors left."""
        async with _busy(4 * (os.cpu_count() or 1)):
            await asyncio.gather(self.script(), self.fork())

    async def one(self, name: str, load: Callable[[], Awaitable[None]]) -> None:
        """Put one load on; nothing may be different afterwards."""
        before, began = await self.state(), time.monotonic()
        self.loads[name] += 1
        await load()
        await self.stage.exact(NODES, within=PATIENCE)
        after = await self.state()
        for pod in sorted(before):
            if after.get(pod) != before[pod]:
                self.replaced.append(f"{name}: {pod}")
        said = ", ".join(sorted(set(before) ^ set(after))) or "nothing changed"
        print(f"{name:12} {time.monotonic() - began:6.1f} s  {said}", flush=True)


@asynccontextmanager
async def _busy(number: int) -> AsyncIterator[None]:
    words = [sys.executable, "-c", "while True: pass"]
    made = [subprocess.Popen(words) for _ in range(number)]  # noqa: ASYNC220
    try:
        yield
    finally:
        for one in made:
            one.kill()
            one.wait()


async def run(options: argparse.Namespace, directory: Path) -> int:
    """Load after load until the time is over."""
    async with (
        Bed(directory, operators=()) as bed,
        operator_process(bed, directory, operators="redis-cluster"),
    ):
        await served(bed, group="redis.middleware.hc.cn")
        await bed.apply(manifest())
        stage = Stage(bed, "demo")
        stage.dial = Dial(connect_timeout=PATIENCE, reply_timeout=PATIENCE)
        await stage.exact(NODES, within=PATIENCE)
        at = Overload(stage, options.megabytes, random.Random(options.seed))
        loads = {
            "starved": at.starve,
            "script": at.script,
            "fork": at.fork,
            "all at once": at.all_at_once,
        }
        began, flaw = time.monotonic(), ""
        try:
            while time.monotonic() - began < options.minutes * 60:
                name = at.chance.choice(sorted(loads))
                await at.one(name, loads[name])
        except (NotInTime, DialError) as error:
            flaw = str(error)
        hung = (await stage.told())["Failover"]
    result = {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "loads": dict(sorted(at.loads.items())),
        "replaced": at.replaced,
        "failovers of the operator": hung,
        "flaw": flaw,
        "seed": options.seed,
        "one-minute load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result, indent=2))
    return 1 if at.replaced or hung or flaw else 0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--megabytes", type=int, default=1024, help="of data on a master that forks")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args()
    configure_logging(level="warning", json=True)
    directory = Path(tempfile.mkdtemp(prefix="mooring-overload-"))
    try:
        return asyncio.run(run(options, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
