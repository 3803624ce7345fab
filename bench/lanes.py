"""Lanes of random faults, side by side: what bench/faults.py and bench/cluster_faults.py have in common.

Each lane is one cluster in a namespace of its own, with an operator process of its own and a writer; its next fault
strikes once it is whole. A run ends when so many minutes and so many faults are over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import secrets
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from bench.faulty_api import FaultyAPI, faulty_api
from bench.keeping import kept_running
from bench.page import RESULTS, publishing, put
from bench.small_volumes import filled, small_volumes
from bench.tally import Outcome, markdown, report, table, trouble

from bench import node_loss
from mooring.kube.objects.core import PersistentVolumeClaim, Pod
from mooring.operators.mysql.dial import DialError as SqlDialError
from mooring.operators.redis.dial import Address, DialError
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, NotInTime
from mooring.testing.ledger import Ledger
from mooring.testing.process import OperatorProcess, operator_process, served

__all__ = ["LEADS_WITHIN", "WHOLE_WITHIN", "Causes", "Lane", "Place", "draw", "main", "parser"]

WHOLE_WITHIN = 120.0
"""Seconds to be whole again."""
LEADS_WITHIN = 180.0
"""Seconds until an operator leads again: a dead one's Lease, and the start of the next one."""


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


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a lane is: its number, bed, namespace and operator, and the chance that chooses whom it strikes."""

    number: int
    bed: Bed
    namespace: str
    operator: OperatorProcess
    restarts: Sequence[int]
    """The pids of operators that were started because the one before had ended by itself."""
    chance: random.Random
    api: FaultyAPI
    """What the operator talks to."""
    clock: Path
    """The offset of the operator's clock in seconds, as libfaketime reads it."""

    @property
    def node_selector(self) -> dict[str, str]:
        """Labels of the lane's own nodes, where it has some."""
        return {"topology.kubernetes.io/zone": f"lane-{self.number}"}


Causes = Mapping[str, Callable[[Any, Ledger], Awaitable[str]]]
"""Faults of a kind of lane by name: methods that are given the ledger."""


class Lane(ABC):
    """One cluster, its operator and its faults, one after the other."""

    operators: ClassVar[str]
    """What its operator process runs, as ``--operators`` takes it."""
    group: ClassVar[str]
    """The API group of its resource."""
    volumes: ClassVar[int] = 0
    """Megabytes of each volume, a file system of its own that can be full; 0: directories without a bound."""
    nodes: ClassVar[int] = 0
    """Nodes of each lane, to which `Place.node_selector` leads; 0: one node for all lanes."""
    causes: ClassVar[Causes]
    """Its faults: each returns whom it struck when the worst is over."""

    def __init__(self, place: Place, options: argparse.Namespace) -> None:
        self.place, self.number = place, place.number
        self._rate: float = options.rate
        self._ledgers: list[tuple[Ledger, int]] = []
        self.broken = False

    # --- what each has of its own

    @classmethod
    def measured(cls, options: argparse.Namespace) -> dict[str, Any]:
        """What the figures say about the servers that were struck (default: nothing)."""
        return {}

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """The custom resource, to be applied once."""

    def documents(self) -> list[dict[str, Any]]:
        """That and what it needs, in their order."""
        return [self.document()]

    @abstractmethod
    async def whole(self) -> None:
        """Wait until everybody agrees that all is well."""

    async def disagreement(self) -> str:
        """Once nobody writes: what a server lacks or has of its own (default: "", it is not asked)."""
        return ""

    @abstractmethod
    def writing(self, rate: float) -> AbstractAsyncContextManager[Any]:
        """A writer, all through the block; some writes are in at first."""

    @abstractmethod
    async def written(self, ledger: Ledger, *, within: float) -> None:
        """Wait until all of it is written again."""

    @abstractmethod
    async def kill_master(self, ledger: Ledger) -> str:
        """The fault of that name."""

    async def server(self) -> Address | None:
        """A server to begin with, where none of those that a ledger knew may be left."""
        return None

    async def bound(self) -> float:
        """The declared min-replicas-max-lag, 0 where no replica is asked for."""
        return 0.0

    async def said(self) -> str:
        """What status says of the last fail-over."""
        return ""

    # --- what is the same

    async def ready(self) -> None:
        """The operator leads and the cluster is whole."""
        await self.place.bed.until(self.place.operator.leads, "an operator leads", within=LEADS_WITHIN)
        await self.whole()

    async def strike(self, number: int, cause: str, lag: Lag) -> Outcome:
        """One fault under a writer, until all is well, and what it cost."""
        bound = await self.bound()
        async with self.writing(self._rate) as ledger:
            await asyncio.sleep(self.place.chance.uniform(0.2, 1.5))
            ledger.reset_gap()
            lag.begin(self.number)
            began = time.monotonic()
            victim, flaw = "", ""
            try:
                victim = await self.causes[cause](self, ledger)
                await self.written(ledger, within=90)
                await self.ready()
            except (NotInTime, DialError, SqlDialError, LookupError) as error:
                flaw = str(error) or type(error).__name__
            whole = time.monotonic() - began
            held_up = lag.of(self.number)
        flaw = flaw or await self.disagreement()
        outcome = Outcome(
            number=number,
            lane=self.number,
            cause=cause,
            victim=victim,
            whole_again=round(whole, 2),
            bound=bound,
            lag=round(held_up, 3),
            flaw=flaw,
        )
        try:
            counts, said = await ledger.check(patience=60), await self.said()
        except (DialError, SqlDialError) as error:
            return replace(outcome, flaw=flaw or f"nothing could be counted: {error}")
        self._ledgers.append((ledger, counts.lost_confirmed))
        return replace(
            outcome,
            gap=counts.longest_gap,
            acknowledged=counts.acknowledged,
            confirmed=counts.confirmed,
            lost_acknowledged=counts.lost_acknowledged,
            lost_confirmed=counts.lost_confirmed,
            lost_seconds=counts.lost_seconds,
            said=said,
        )

    async def lost_later(self) -> int:
        """Confirmed writes that outlived their own fault and no later one."""
        lost = 0
        for ledger, before in self._ledgers:
            lost += (await ledger.check(patience=60, at=await self.server())).lost_confirmed - before
        return lost

    # --- faults that are the same

    async def kill_operator(self, _: Ledger) -> str:
        """The operator killed with -9."""
        async with self.no_operator():
            return "operator"

    async def kill_operator_and_master(self, ledger: Ledger) -> str:
        """The operator killed with -9, and a master while there is none."""
        async with self.no_operator():
            return "operator, " + await self.kill_master(ledger)

    async def api_errors(self, ledger: Ledger) -> str:
        """The API server answers the operator wrongly for some seconds, in which a master is killed."""
        with self.place.api.failing():
            await asyncio.sleep(self.place.chance.uniform(0.5, 2.0))
            victim = await self.kill_master(ledger)
            await asyncio.sleep(self.place.chance.uniform(4.0, 10.0))
        return f"API, {victim}"

    async def move_clock(self, ledger: Ledger) -> str:
        """The operator's clock jumps by minutes to a day, a master is killed, and the clock jumps back."""
        offset = self.place.chance.choice((-240, 300, 3600, 86400))
        self.place.clock.write_text(f"{offset:+d}\n")
        try:
            await asyncio.sleep(self.place.chance.uniform(1.5, 3.0))  # the file is read once a second
            victim = await self.kill_master(ledger)
            await asyncio.sleep(self.place.chance.uniform(3.0, 8.0))
        finally:
            self.place.clock.write_text("+0\n")
        return f"clock by {offset:+d} s, {victim}"

    async def lose_node(self, _: Ledger) -> str:
        """A node is silent, nobody reaches its pods, and it is deleted; it comes back once they are removed."""
        bed, namespace = self.place.bed, self.place.namespace
        pods = (await bed.client.list(Pod, namespace=namespace)).items
        node = self.place.chance.choice(sorted({pod.spec.node_name or "" for pod in pods if pod.spec} - {""}))
        async with node_loss.silent(bed, namespace, node) as struck:
            await asyncio.sleep(self.place.chance.uniform(2.0, 10.0))
            await node_loss.delete(bed, namespace, node, struck)
        return f"{node}: {', '.join(sorted(struck))}"

    # --- means of the faults

    async def full(self, pod: str) -> AbstractContextManager[None]:
        """The volume of a pod's claim ``data`` without a free byte, through the block that is returned."""
        namespace, name = self.place.namespace, f"data-{pod}"
        claim = await self.place.bed.get(PersistentVolumeClaim, name, namespace)
        volume = (claim.spec.volume_name if claim.spec else None) or ""
        return filled(self.place.bed.plane.directory.volumes / f"{volume}_{namespace}_{name}")

    async def remove(self, *pods: str, grace: int | None = 0) -> None:
        """Delete pods; ``grace`` None: as their template says."""
        for pod in pods:
            await self.place.bed.client.delete(Pod, pod, namespace=self.place.namespace, grace_period=grace)

    def cut_off(
        self, pod: str, others: Sequence[str], *, from_machine: bool
    ) -> AbstractAsyncContextManager[None]:
        """No packets between a pod and the others, in both directions, and none from this machine if asked."""
        others = [name for name in others if name != pod]
        return node_loss.cut_off(
            self.place.bed, self.place.namespace, [pod], others, from_machine=from_machine
        )

    @asynccontextmanager
    async def no_operator(self) -> AsyncIterator[None]:
        """The operator is killed, and started again some seconds later."""
        operator, chance = self.place.operator, self.place.chance
        await asyncio.to_thread(operator.kill)
        try:
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            yield
            await asyncio.sleep(chance.uniform(0.0, 3.0))
        finally:
            await asyncio.to_thread(operator.start)


def _clock_of(file: Path) -> dict[str, str]:
    """What a process needs in its environment for its clock to be moved by a file; monotonic time stays as it is."""
    found = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if found is None:
        raise SystemExit("clocks are moved by libfaketime: apt-get install libfaketime")
    return {
        "LD_PRELOAD": str(found),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def draw(causes: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Causes for ever, in random order, none more than once more often than another."""
    while True:
        hand = list(causes)
        chance.shuffle(hand)
        yield from hand


class Run:
    """All lanes side by side."""

    def __init__(self, kind: type[Lane], options: argparse.Namespace) -> None:
        self._kind, self._options = kind, options
        self._outcomes: list[Outcome] = []
        self._struck = 0
        self._ends = 0.0
        self._lag = Lag()

    async def run(self, directory: Path) -> dict[str, Any]:
        """Make the clusters, strike, and reckon."""
        options = self._options
        async with AsyncExitStack() as stack:
            if self._kind.volumes:
                stack.enter_context(small_volumes(megabytes=self._kind.volumes))
            bed = await stack.enter_async_context(self._bed(directory))
            made = [await self._make(bed, directory, stack, number) for number in range(options.lanes)]
            for lane in made:
                await lane.ready()
            say(options, f"seed {options.seed}; {len(made)} clusters are whole")
            began = time.monotonic()
            self._ends = began + options.minutes * 60
            watching = asyncio.create_task(self._lag.watch())
            try:
                async with asyncio.TaskGroup() as lanes:
                    for lane in made:
                        lanes.create_task(self._go(lane))
                minutes, load = (time.monotonic() - began) / 60, round(os.getloadavg()[0], 1)
                # One that did not become whole counts as a failure already, and may not answer.
                lost = sum([await lane.lost_later() for lane in made if not lane.broken])
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
            "operator_restarts": sum(len(lane.place.restarts) for lane in made),
            **self._kind.measured(options),
            **report(outcomes, lost_later=lost),
        }

    def _bed(self, directory: Path) -> Bed:
        lanes = range(self._options.lanes)
        if not self._kind.nodes:
            return Bed(directory, operators=())
        return Bed(
            directory,
            operators=(),
            nodes=[f"node-{lane}-{number}" for number in range(self._kind.nodes) for lane in lanes],
            zones=[f"lane-{lane}" for lane in lanes],
        )

    async def _make(self, bed: Bed, directory: Path, stack: AsyncExitStack, number: int) -> Lane:
        kind, namespace = self._kind, f"lane-{number}"
        await bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        chance, clock = random.Random(f"{self._options.seed}/{number}"), directory / f"clock-{number}"
        clock.write_text("+0\n")
        api = await stack.enter_async_context(
            faulty_api(bed, random.Random(f"{self._options.seed}/{number}/api"))
        )
        apart = operator_process(
            bed,
            directory,
            namespace=namespace,
            operators=kind.operators,
            server=api.url,
            environment=_clock_of(clock),
        )
        operator = await stack.enter_async_context(apart)
        restarts = await stack.enter_async_context(kept_running(operator))
        await served(bed, group=kind.group)
        place = Place(
            number=number,
            bed=bed,
            namespace=namespace,
            operator=operator,
            restarts=restarts,
            chance=chance,
            api=api,
            clock=clock,
        )
        lane = kind(place, self._options)
        for document in lane.documents():
            document["metadata"]["namespace"] = namespace
            await bed.apply(document)
        return lane

    async def _go(self, lane: Lane) -> None:
        options = self._options
        chance = random.Random(f"{options.seed}/{lane.number}/causes")
        for cause in draw(options.cause or list(lane.causes), chance):
            if time.monotonic() > self._ends and self._struck >= options.faults:
                return
            self._struck += 1
            outcome = await lane.strike(self._struck, cause, self._lag)
            self._outcomes.append(outcome)
            say(options, line(outcome))
            if outcome.flaw:
                lane.broken = True
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


def parser(kind: type[Lane], *, prog: str, about: str, results: str) -> argparse.ArgumentParser:
    """The options that every run of lanes has; ``results`` is the file that ``--publish`` writes."""
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("--minutes", type=float, default=30.0, help="at least (30)")
    parser.add_argument("--faults", type=int, default=200, help="at least (200)")
    parser.add_argument("--lanes", type=int, default=3, help="clusters side by side (3)")
    parser.add_argument("--rate", type=float, default=100.0, help="writes per second to each (100)")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, printed")
    parser.add_argument("--cause", action="append", choices=kind.causes, help="only this one (repeatable)")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    publishing(parser, results)
    parser.add_argument("--keep", action="store_true", help="keep the data directory and the operators' logs")
    return parser


def _struck(kind: type[Lane], options: argparse.Namespace) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="mooring-faults-"))
    try:
        return asyncio.run(Run(kind, options).run(directory))
    finally:
        if options.keep:
            print(f"kept: {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def main(
    kind: type[Lane],
    options: argparse.Namespace,
    *,
    mark: str,
    results: str,
    text_of: Callable[[dict[str, Any]], str] = markdown,
) -> int:
    """Strike and report; ``mark`` is the command whose table on the page ``--publish`` renews, by ``text_of``."""
    options.seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    configure_logging(level="error")
    figures = json.loads(options.source.read_text()) if options.source else _struck(kind, options)
    if options.publish:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / results).write_text(json.dumps(figures, indent=1) + "\n")
        put(mark, text_of(figures))
    text = json.dumps(figures, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    print(text if options.json else table(figures))
    return 1 if figures["failures"] else 0
