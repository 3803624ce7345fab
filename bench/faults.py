"""Random faults under writers for half an hour: what is lost by cause, and how long nobody serves.

    python bench/faults.py [--minutes 30] [--faults 200] [--lanes 3] [--seed N] [--max-lag 2] [--publish]

Each lane is a 3 + 3 cluster in a namespace of its own, with an operator process of its own and a writer that
comes through the sentinels, all on one embedded control plane. A lane's next fault strikes once its cluster is
Healthy and every server and sentinel agrees. Ends when so many minutes and so many faults are over; ``--publish``
writes bench/results/faults.json and the tables in docs/benchmarks.md. Exit status 1 when a write that WAIT had confirmed is lost, when a partition cost more than min-replicas-max-lag and
a second of writes, or when a cluster does not become whole again.

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
import json
import os
import platform
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from mooring.kube.objects.core import Pod
from mooring.local.node.agent import NodeAgent
from mooring.operators.redis.dial import DialError
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, NotInTime
from mooring.testing.ledger import Ledger
from mooring.testing.process import OperatorProcess, operator_process, served
from mooring.testing.redis import RedisStage, manifest

if not __package__:  # run as a program: its sibling is found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.page import RESULTS, put
from bench.tally import Outcome, markdown, report, table, trouble

__all__ = ["main"]

WHOLE_WITHIN = 120.0
"""Seconds to be whole again."""
LEADS_WITHIN = 60.0
"""Seconds until somebody leads again: a dead operator's Lease, and the start of the next one."""
PASSWORD = "change-me-please"


class Lag:
    """How long this process was held up at most, since the last question."""

    def __init__(self) -> None:
        self._longest: dict[int, float] = {}

    async def watch(self) -> None:
        """Watch for ever."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            late = time.monotonic() - began - 0.02
            for lane, longest in self._longest.items():
                self._longest[lane] = max(longest, late)

    def begin(self, lane: int) -> None:
        """Measure anew for a lane."""
        self._longest[lane] = 0.0

    def of(self, lane: int) -> float:
        """The longest so far, in seconds."""
        return self._longest[lane]


class Lane:
    """One cluster, its operator and its faults, one after the other."""

    def __init__(
        self, stage: RedisStage, operator: OperatorProcess, *, number: int, chance: random.Random, rate: float
    ) -> None:
        self._stage, self._operator, self._chance = stage, operator, chance
        self._rate, self.number = rate, number
        self._ledgers: list[tuple[Ledger, int]] = []

    async def ready(self) -> None:
        """The operator leads and the cluster is whole."""
        await self._stage.bed.until(self._operator.leads, "an operator leads", within=LEADS_WITHIN)
        await self._stage.exact(WHOLE_WITHIN)

    async def strike(self, number: int, cause: str, lag: Lag) -> Outcome:
        """One fault under a writer, until all is well, and what it cost."""
        stage, chance = self._stage, self._chance
        bound = await self._bound()
        async with stage.writing(rate=self._rate, patience=0.5) as ledger:
            await asyncio.sleep(chance.uniform(0.2, 1.5))
            ledger.reset_gap()
            lag.begin(self.number)
            began = time.monotonic()
            victim, flaw = "", ""
            try:
                victim = await CAUSES[cause](self, ledger)
                await stage.writes(ledger, 100, within=90)
                await self.ready()
            except (NotInTime, DialError) as error:
                flaw = str(error) or type(error).__name__
            whole = time.monotonic() - began
            held_up = lag.of(self.number)
        counts = await ledger.check(patience=60)
        self._ledgers.append((ledger, counts.lost_confirmed))
        last = (await stage.status()).last_failover
        return Outcome(
            number=number,
            lane=self.number,
            cause=cause,
            victim=victim,
            gap=counts.longest_gap,
            whole_again=round(whole, 2),
            acknowledged=counts.acknowledged,
            confirmed=counts.confirmed,
            lost_acknowledged=counts.lost_acknowledged,
            lost_confirmed=counts.lost_confirmed,
            lost_seconds=counts.lost_seconds,
            bound=bound,
            lag=round(held_up, 3),
            said=f"{last.cause}: {last.choice}" if last else "",
            flaw=flaw,
        )

    async def lost_later(self) -> int:
        """Confirmed writes that outlived their own fault and no later one."""
        lost = 0
        for ledger, before in self._ledgers:
            lost += (await ledger.check(patience=60)).lost_confirmed - before
        return lost

    async def _bound(self) -> float:
        """The declared min-replicas-max-lag, 0 where no replica is asked for."""
        master = await self._stage.master()
        if await self._stage.config(master, "min-replicas-to-write") == "0":
            return 0.0
        spec = (await self._stage.get()).spec
        return float(((spec.config if spec else None) or {}).get("min-replicas-max-lag", "10"))

    # --- whom it strikes

    async def _other(self, component: str, count: int = 1) -> list[str]:
        """Random pods of a component, the master not among them."""
        master = await self._stage.master()
        names = [pod.metadata.name or "" for pod in await self._stage.pods(component)]
        return self._chance.sample([name for name in names if name != master], count)

    async def _remove(self, *pods: str, grace: int | None = 0) -> None:
        client, stage = self._stage.bed.client, self._stage
        for pod in pods:
            await client.delete(Pod, pod, namespace=stage.namespace, grace_period=grace)

    async def _another_leads(self, old: str) -> None:
        async def another() -> bool:
            return ((await self._stage.status()).master or old) != old

        await self._stage.bed.until(another, f"another master than {old}", within=60)

    # --- the faults: each returns whom it struck, when the worst is over

    async def kill_master(self, _: Ledger) -> str:
        master = await self._stage.master()
        await self._stage.restarted({master: self._stage.kill(master)})
        return master

    async def kill_replica(self, _: Ledger) -> str:
        (replica,) = await self._other("redis")
        await self._stage.restarted({replica: self._stage.kill(replica)})
        return replica

    async def empty_master(self, _: Ledger) -> str:
        master = await self._stage.master()
        pid = self._stage.pid(master)
        await asyncio.to_thread(self._stage.kill_empty, master)
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
        stage, agent = self._stage, self._stage.bed.plane.agent
        assert isinstance(agent, NodeAgent)
        master = await stage.master()
        mine = (stage.namespace, master)
        names = [pod.metadata.name or "" for pod in await stage.pods()]
        address = IPv4Address((await stage.address(master)).ip)
        await agent.cut_pods([mine], [(stage.namespace, name) for name in names if name != master])
        try:
            if from_machine:
                await agent.cut_pods([mine])
            await self._another_leads(master)
            await stage.writes(ledger, 50, within=30)
            await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        finally:
            await agent.network.heal(address)
        return master

    async def delete_master(self, _: Ledger) -> str:
        master = await self._stage.master()
        await self._remove(master, grace=None)
        await self._another_leads(master)
        return master

    async def delete_replica(self, _: Ledger) -> str:
        (replica,) = await self._other("redis")
        await self._remove(replica, grace=None)
        return replica

    async def remove_master(self, _: Ledger) -> str:
        master = await self._stage.master()
        await self._remove(master)
        await self._another_leads(master)
        return master

    async def kill_operator(self, _: Ledger) -> str:
        async with self._no_operator():
            pass
        return "operator"

    async def kill_operator_and_master(self, ledger: Ledger) -> str:
        async with self._no_operator():
            return "operator, " + await self.kill_master(ledger)

    @asynccontextmanager
    async def _no_operator(self) -> AsyncIterator[None]:
        """The operator is killed, and started again some seconds later."""
        await asyncio.to_thread(self._operator.kill)
        try:
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))
            yield
            await asyncio.sleep(self._chance.uniform(0.0, 3.0))
        finally:
            await asyncio.to_thread(self._operator.start)

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
        await self._remove(*lost)
        return ", ".join(lost)


CAUSES: dict[str, Callable[[Lane, Ledger], Awaitable[str]]] = {
    "master-killed": Lane.kill_master,
    "replica-killed": Lane.kill_replica,
    "master-emptied": Lane.empty_master,
    "master-hung": Lane.hang_master,
    "partition": Lane.partition,
    "isolation": Lane.isolate,
    "master-deleted": Lane.delete_master,
    "replica-deleted": Lane.delete_replica,
    "master-removed": Lane.remove_master,
    "operator-killed": Lane.kill_operator,
    "operator-and-master-killed": Lane.kill_operator_and_master,
    "one-sentinel-lost": Lane.lose_one_sentinel,
    "two-sentinels-lost": Lane.lose_two_sentinels,
    "two-sentinels-lost-and-master-killed": Lane.lose_two_sentinels_and_master,
}


def draw(causes: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Causes for ever, in random order, none more than once more often than another."""
    while True:
        hand = list(causes)
        chance.shuffle(hand)
        yield from hand


class Run:
    """All lanes side by side."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._outcomes: list[Outcome] = []
        self._struck = 0
        self._ends = 0.0
        self._lag = Lag()

    async def run(self, directory: Path) -> dict[str, Any]:
        """Make the clusters, strike, and reckon."""
        options = self._options
        async with Bed(directory, operators=()) as bed, AsyncExitStack() as stack:
            made = [await self._make(bed, directory, stack, number) for number in range(options.lanes)]
            for lane in made:
                await lane.ready()
            say(options, f"seed {options.seed}; {len(made)} clusters are Healthy")
            began = time.monotonic()
            self._ends = began + options.minutes * 60
            watching = asyncio.create_task(self._lag.watch())
            try:
                await asyncio.gather(*(self._go(lane) for lane in made))
                minutes, load = (time.monotonic() - began) / 60, round(os.getloadavg()[0], 1)
                lost = sum([await lane.lost_later() for lane in made])
            finally:
                watching.cancel()
        outcomes = sorted(self._outcomes, key=lambda one: one.number)
        return {
            "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} cores ({platform.machine()})",
            "load": load,
            "minutes": round(minutes, 1),
            "seed": options.seed,
            "lanes": options.lanes,
            **report(outcomes, lost_later=lost),
        }

    async def _make(self, bed: Bed, directory: Path, stack: AsyncExitStack, number: int) -> Lane:
        options, namespace = self._options, f"lane-{number}"
        await bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        operator = await stack.enter_async_context(operator_process(bed, directory, namespace=namespace))
        await served(bed)
        document = manifest("faults", password=PASSWORD)
        document["metadata"]["namespace"] = namespace
        if options.max_lag:
            document["spec"]["config"] = {"min-replicas-max-lag": str(options.max_lag)}
        await bed.apply(document)
        stage = RedisStage(bed, "faults", namespace=namespace, password=PASSWORD)
        chance = random.Random(f"{options.seed}/{number}")
        return Lane(stage, operator, number=number, chance=chance, rate=options.rate)

    async def _go(self, lane: Lane) -> None:
        options = self._options
        for cause in draw(
            options.cause or list(CAUSES), random.Random(f"{options.seed}/{lane.number}/causes")
        ):
            if time.monotonic() > self._ends and self._struck >= options.faults:
                return
            self._struck += 1
            outcome = await lane.strike(self._struck, cause, self._lag)
            self._outcomes.append(outcome)
            say(options, line(outcome))
            if outcome.flaw:
                return


def line(one: Outcome) -> str:
    """One outcome for people who watch."""
    verdict = f"FAILED: {why}" if (why := trouble(one)) else "ok"
    return (
        f"{one.number:3d} lane {one.lane} {one.cause:36s} gap {one.gap:6.3f} s  lost {one.lost_acknowledged}/"
        f"{one.lost_confirmed} of {one.acknowledged}  whole after {one.whole_again:5.1f} s  {one.victim}  {verdict}"
    )


def say(options: argparse.Namespace, text: str) -> None:
    """To the terminal; standard output is for the report."""
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="faults.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="at least (30)")
    parser.add_argument("--faults", type=int, default=200, help="at least (200)")
    parser.add_argument("--lanes", type=int, default=3, help="clusters side by side (3)")
    parser.add_argument("--rate", type=float, default=100.0, help="writes per second to each (100)")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, printed")
    parser.add_argument(
        "--max-lag", type=int, default=0, help="min-replicas-max-lag; default the operator's 10"
    )
    parser.add_argument("--cause", action="append", choices=CAUSES, help="only this one (repeatable)")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    parser.add_argument("--out", type=Path, help="write the JSON there too")
    parser.add_argument(
        "--publish", action="store_true", help="bench/results/faults.json and docs/benchmarks.md"
    )
    parser.add_argument("--from", dest="source", type=Path, help="publish these raw figures; strike nothing")
    parser.add_argument("--keep", action="store_true", help="keep the data directory and the operators' logs")
    return parser


def _struck(options: argparse.Namespace) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="mooring-faults-"))
    try:
        return asyncio.run(Run(options).run(directory))
    finally:
        if options.keep:
            print(f"kept: {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    options.seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    configure_logging(level="error")
    figures = json.loads(options.source.read_text()) if options.source else _struck(options)
    if options.publish:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "faults.json").write_text(json.dumps(figures, indent=1) + "\n")
        put("python bench/faults.py", markdown(figures))
    text = json.dumps(figures, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    print(text if options.json else table(figures))
    return 1 if figures["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
