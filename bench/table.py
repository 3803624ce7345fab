"""The faults that other operators are known for, beside Redis and Sentinel without an operator; a row per fault.

    python bench/table.py [--node] [--rounds 5] [--lanes 5] [--row NAME ...] [--peer NAME ...] [--publish]

On one embedded control plane every peer gets a cluster of its own per round, and all faults strike it one after
the other, each under a writer that comes through the sentinels, keeps its connection until an error and logs
what was acknowledged. Hangs and partitions last 20 s; the seconds until exact count from their beginning. The peers have the same servers, redis.conf, sentinel settings, machine and faults
(bench/plain.py); at any time as many clusters are at work as there are lanes. A cluster that is not exact again
in time is thrown away and made anew. First of all the operator's writes at rest are counted. ``--publish`` writes
bench/results/table.json and the table in docs/benchmarks.md; exit status 1 when a row misses its target.

``--node`` does the same on a real cluster (kubelet, containerd, kube-proxy) that is made for it, with the operator as
its chart installs it; the writes at rest are not counted there. It has a table of its own: bench/results/table-node.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from mooring.kube.objects.core import Pod
from mooring.local.node.agent import NodeAgent
from mooring.operators.redis.dial import DialError
from mooring.operators.redis.sentinel.settings import defaults
from mooring.operators.redis.sentinel.types import RedisClusterSpec
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, ClusterBed, NotInTime
from mooring.testing.ledger import Ledger
from mooring.testing.process import operator_process, served
from mooring.testing.redis import RedisStage, manifest

if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.cluster import cut_off, give_back, real_cluster
from bench.page import PAGE, RESULTS, put
from bench.plain import PlainStage, plain_manifests
from bench.rest import Writes
from bench.tally import percentile

AnyBed = Bed | ClusterBed

__all__ = ["KEYS", "ROWS", "Outcome", "Row", "cell", "main", "misses", "publish", "say", "table"]

PEERS = {"mooring": "Mooring", "plain": "Redis and Sentinel alone"}
CREATED_WITHIN = 120.0
"""Seconds to be exact at first."""
WITHIN = 30.0
"""Seconds to be exact again; else the row says "never"."""
WRITES_WITHIN = 30.0
"""Seconds until somebody acknowledges writes again."""
KEYS = 1000
"""Keys written before every fault."""
HANG = 20.0
"""Seconds a hung master stays so."""
PARTITION = 20.0
"""Seconds a partition lasts."""
RELIST = 1.0
"""Seconds between two looks of a real kubelet at its containers: so late it may hear that one has ended."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One fault: seconds without an acknowledged write, seconds until exact (None: not in time), and losses.

    ``lost_keys`` counts those that were there before the fault; ``lost_seconds`` lie between the first and the last
    acknowledged write that is gone.
    """

    row: str
    peer: str
    round: int
    gap: float = 0.0
    exact: float | None = None
    acknowledged: int = 0
    lost: int = 0
    lost_confirmed: int = 0
    lost_seconds: float = 0.0
    lost_keys: int = 0
    flaw: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault, and what ours should come to; None is not asked."""

    title: str
    strike: Callable[[Trial], Awaitable[None]] | None = None
    gap: float | None = None
    exact: float | None = None
    lost: int | None = None
    lost_seconds: float | None = None
    persistence: bool = True
    max_lag: int = 0
    """min-replicas-max-lag, where it is not the default."""
    reported: bool = False
    """The gap counts from the report of the death: a real kubelet looks at its containers once a second."""
    prepare: Callable[[Trial], Awaitable[None]] | None = None

    def gap_on(self, bed: str) -> float | None:
        """What the gap should come to there ("embedded", "node")."""
        return self.gap + RELIST if self.gap is not None and self.reported and bed == "node" else self.gap

    def target(self, bed: str) -> str:
        """In words."""
        gap = self.gap_on(bed)
        words = [
            f"gap <= {gap:g} s" if gap is not None else "",
            f"exact <= {self.exact:g} s" if self.exact is not None else "",
            f"lost {self.lost}" if self.lost is not None else "",
            f"<= {self.lost_seconds:g} s of writes" if self.lost_seconds is not None else "",
        ]
        return ", ".join(filter(None, words))


@dataclass
class Trial:
    """One cluster of one peer, and its faults."""

    bed: AnyBed
    peer: str
    round: int
    persistence: bool
    max_lag: int = 0
    stage: RedisStage = field(init=False)

    def __post_init__(self) -> None:
        kind = "" if self.persistence else "-memory"
        self.namespace = f"{self.peer}-{self.round}{kind}{f'-lag-{self.max_lag}' if self.max_lag else ''}"
        made = PlainStage if self.peer == "plain" else RedisStage
        # The name is the namespace's: a real node's containers are told apart by the names of their pods.
        self.stage = made(self.bed, self.namespace, namespace=self.namespace)

    async def create(self) -> float:
        """Make the cluster; returns the seconds until it was exact."""
        name, namespace, began = self.stage.name, self.namespace, time.monotonic()
        await self.bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        config = {"min-replicas-max-lag": str(self.max_lag)} if self.max_lag else {}
        if self.peer == "plain":
            self.stage = PlainStage(self.bed, name, namespace=namespace)
            conf = {**defaults(RedisClusterSpec(disable_persistence=not self.persistence)), **config}
            conf = {key.replace("slave", "replica"): value or '""' for key, value in conf.items()}
            made = plain_manifests(name, namespace, config=conf, persistence=self.persistence)
        else:
            document = manifest(name, persistence=self.persistence, config=config)
            document["metadata"]["namespace"] = namespace
            made = [document]
        for document in made:
            await self.bed.apply(document)
        await self.stage.exact(CREATED_WITHIN)
        return time.monotonic() - began

    async def begin_anew(self) -> None:
        """Throw the cluster away and make another."""
        await self.end()
        await self.create()

    async def end(self) -> None:
        """Throw the cluster away."""
        await self.stage.delete(claims=True, within=60)
        if isinstance(self.bed, ClusterBed):
            await give_back(self.bed, self.namespace)

    async def strike(self, name: str, row: Row) -> Outcome:
        """One fault under a writer."""
        stage, flaw, exact = self.stage, "", None
        if row.prepare is not None:
            await row.prepare(self)
        await stage.fill(KEYS, generation=self.round)
        async with stage.writing(rate=200.0, patience=0.5) as ledger:
            await asyncio.sleep(1.0)
            ledger.reset_gap()
            began = time.monotonic()
            assert row.strike is not None
            try:
                await row.strike(self)
                await stage.writes(ledger, 100, within=WRITES_WITHIN)
                exact = time.monotonic() - began + await stage.exact(WITHIN)
            except (NotInTime, DialError, LookupError) as error:
                flaw = str(error) or type(error).__name__
        outcome = Outcome(row=name, peer=self.peer, round=self.round, exact=exact, flaw=flaw)
        return await self._counted(outcome, ledger)

    async def _counted(self, outcome: Outcome, ledger: Ledger) -> Outcome:
        """What is left, by the master itself: sentinels that are lost name nobody."""
        deadline = time.monotonic() + 15.0
        while True:
            try:
                master = await self.stage.master()
                report = await ledger.check(patience=5, at=await self.stage.address(master))
                kept = await self.stage.kept(master, KEYS, generation=self.round)
                break
            except (NotInTime, DialError) as error:
                if time.monotonic() > deadline:
                    said = outcome.flaw or f"nothing could be counted: {error}"
                    return Outcome(**{**asdict(outcome), "gap": WRITES_WITHIN, "exact": None, "flaw": said})
        return Outcome(
            **{
                **asdict(outcome),
                "gap": report.longest_gap,
                "acknowledged": report.acknowledged,
                "lost": report.lost_acknowledged,
                "lost_confirmed": report.lost_confirmed,
                "lost_seconds": report.lost_seconds,
                "lost_keys": KEYS - kept,
            }
        )

    # --- what strikes

    async def _another_leads(self, old: str) -> None:
        async def another() -> bool:
            with contextlib.suppress(NotInTime, DialError):
                return await self.stage.master() != old
            return False

        await self.bed.until(another, f"another master than {old}", within=WRITES_WITHIN, every=0.1)

    async def _delete(self, pods: Sequence[Pod], *, grace: int | None) -> None:
        await asyncio.gather(
            *(
                self.bed.client.delete(
                    Pod, pod.metadata.name or "", namespace=self.namespace, grace_period=grace
                )
                for pod in pods
            )
        )

    async def crash(self) -> None:
        """kill -9."""
        master = await self.stage.master()
        await self.stage.restarted({master: self.stage.kill(master)})

    async def hang(self) -> None:
        """SIGSTOP, for a time."""
        master = await self.stage.master()
        self.stage.kill(master, signal.SIGSTOP)
        try:
            await asyncio.sleep(HANG)
        finally:
            with contextlib.suppress(LookupError, ProcessLookupError):
                self.stage.kill(master, signal.SIGCONT)

    async def delete_master(self) -> None:
        """A graceful deletion."""
        master = await self.stage.master()
        await self._delete(
            [pod for pod in await self.stage.pods("redis") if pod.metadata.name == master], grace=None
        )
        await self._another_leads(master)

    async def cut(self) -> None:
        """The master cut off from all other pods; the client still reaches it."""
        master = await self.stage.master()
        pods = {
            pod.metadata.name or "": (pod.status and pod.status.pod_ip) or ""
            for pod in await self.stage.pods()
        }
        address = pods.pop(master)
        agent = self.bed.plane.agent
        if not isinstance(agent, NodeAgent):
            async with cut_off(self.stage.pid(master), pods.values()):
                await asyncio.sleep(PARTITION)
            return
        await agent.cut_pods([(self.namespace, master)], [(self.namespace, name) for name in pods])
        try:
            await asyncio.sleep(PARTITION)
        finally:
            await agent.network.heal(IPv4Address(address))

    async def replace_servers(self) -> None:
        """All data pods removed at once; they come back with other addresses."""
        await self._delete(await self.stage.pods("redis"), grace=0)

    async def replace_all(self) -> None:
        """Servers and sentinels removed at once."""
        await self._delete(await self.stage.pods(), grace=0)

    async def lose_sentinels(self) -> None:
        """All sentinels removed at once."""
        await self._delete(await self.stage.pods("sentinel"), grace=0)

    async def grow(self) -> None:
        """To five servers, before it counts."""
        await self._scale(5)
        await self.stage.exact(CREATED_WITHIN)

    async def shrink(self) -> None:
        """Back to three."""
        await self._scale(3)

    async def _scale(self, size: int) -> None:
        if isinstance(self.stage, PlainStage):
            await self.stage.scale(size)
        else:
            await self.stage.patch({"size": size})

    async def roll(self) -> None:
        """Another pod template; until every pod was made anew."""
        before = {pod.metadata.uid for pod in await self.stage.pods("redis")}
        value = datetime.now(UTC).strftime("%H%M%S%f")
        if isinstance(self.stage, PlainStage):
            await self.stage.annotate(value)
        else:
            await self.stage.patch({"annotations": {"round": value}})

        async def anew() -> bool:
            pods = await self.stage.pods("redis")
            return len(pods) == 3 and not before & {pod.metadata.uid for pod in pods}

        await self.bed.until(anew, "every pod is a new one", within=180, every=0.1)


ROWS: dict[str, Row] = {
    "create": Row(title="create", exact=15.0),
    "crash": Row(
        title="crash of the master, persistence", strike=Trial.crash, gap=1.5, lost=0, reported=True
    ),
    "empty": Row(
        title="fast empty restart, no persistence", strike=Trial.crash, gap=7.0, lost=0, persistence=False
    ),
    "hang": Row(title=f"hang, {HANG:g} s", strike=Trial.hang, gap=7.0),
    "delete": Row(title="graceful deletion of the master's pod", strike=Trial.delete_master, gap=1.5, lost=0),
    "partition": Row(
        title=f"partition {PARTITION:g} s, client on the master's side, max-lag 10",
        strike=Trial.cut,
        lost_seconds=11.0,
    ),
    "partition-2": Row(title="the same, max-lag 2", strike=Trial.cut, lost_seconds=3.0, max_lag=2),
    "servers": Row(
        title="only the data pods replaced (new addresses)",
        strike=Trial.replace_servers,
        gap=7.0,
        exact=15.0,
    ),
    "all": Row(title="all pods deleted", strike=Trial.replace_all, exact=15.0),
    "sentinels": Row(title="sentinels deleted", strike=Trial.lose_sentinels, exact=6.0),
    "roll": Row(title="roll of the template, 3 pods", strike=Trial.roll, gap=1.5, lost=0),
    "scale": Row(title="scale 5 to 3", prepare=Trial.grow, strike=Trial.shrink, exact=10.0),
}


# --- the run ---


class Run:
    """All rounds of all peers, some side by side."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._outcomes: list[Outcome] = []
        self._rest: dict[str, Any] = {}

    async def run(self, directory: Path) -> dict[str, Any]:
        """Watch one cluster at rest while nothing else is there, then strike; returns the raw figures."""
        options, load = self._options, os.getloadavg()[0]
        async with _bed(directory, node=options.node) as bed:
            if options.steady:
                self._rest = await self._steady(bed)
            room = asyncio.Semaphore(options.lanes)

            async def one(peer: str, number: int, persistence: bool, lag: int) -> None:
                async with room:
                    await self._sequence(
                        Trial(bed=bed, peer=peer, round=number, persistence=persistence, max_lag=lag)
                    )

            kinds = sorted({(row.persistence, row.max_lag) for row in self._rows().values()}, reverse=True)
            await asyncio.gather(
                *(
                    one(peer, number, *kind)
                    for number in range(1, options.rounds + 1)
                    for kind in kinds
                    for peer in options.peer or PEERS
                )
            )
        return {
            "on": "node" if options.node else "embedded",
            "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} cores ({platform.machine()})",
            "load_before": round(load, 1),
            "load_after": round(os.getloadavg()[0], 1),
            "rounds": options.rounds,
            "lanes": options.lanes,
            "steady": self._rest,
            "outcomes": [asdict(one) for one in self._outcomes],
        }

    def _rows(self) -> dict[str, Row]:
        return {name: row for name, row in ROWS.items() if not self._options.row or name in self._options.row}

    async def _sequence(self, trial: Trial) -> None:
        """All rows that want this kind of cluster, one after the other."""
        wanted = {
            name: row
            for name, row in self._rows().items()
            if (row.persistence, row.max_lag) == (trial.persistence, trial.max_lag)
        }
        made = await trial.create()
        if "create" in wanted:
            self._note(Outcome(row="create", peer=trial.peer, round=trial.round, exact=made))
        whole = True
        for name, row in wanted.items():
            if row.strike is None:
                continue
            if not whole:
                await trial.begin_anew()
            outcome = await trial.strike(name, row)
            self._note(outcome)
            whole = outcome.exact is not None
        await trial.end()

    def _note(self, one: Outcome) -> None:
        self._outcomes.append(one)
        exact = f"{one.exact:5.1f} s" if one.exact is not None else "  never"
        say(
            f"{one.peer:8s} {one.round} {one.row:12s} gap {one.gap:6.2f} s  exact {exact}  lost {one.lost}/"
            f"{one.lost_confirmed} of {one.acknowledged} in {one.lost_seconds:.1f} s, {one.lost_keys} keys  {one.flaw}"
        )

    async def _steady(self, bed: AnyBed) -> dict[str, Any]:
        """What is written about a cluster at rest."""
        if not isinstance(bed, Bed):
            return {}
        trial = Trial(bed=bed, peer="mooring", round=0, persistence=True)
        await trial.create()
        await asyncio.sleep(self._options.steady / 4)
        writes = Writes()
        writes.attach(bed.plane.server)
        await asyncio.sleep(self._options.steady)
        counted = {"seconds": self._options.steady, "writes": writes.others, "leases": writes.leases}
        say(f"at rest for {self._options.steady:g} s: {writes.others} writes, {writes.leases} of Leases")
        await trial.end()
        return counted


@asynccontextmanager
async def _bed(directory: Path, *, node: bool) -> AsyncIterator[AnyBed]:
    if node:
        async with real_cluster(directory) as cluster:
            yield cluster
        return
    async with (
        Bed(directory, operators=()) as bed,
        operator_process(bed, directory, operators="redis-sentinel"),
    ):
        await served(bed)
        yield bed


# --- the report ---


def misses(figures: dict[str, Any]) -> list[str]:
    """Where ours is not what it should be."""
    found = []
    for name, row in ROWS.items():
        ours, gap = _of(figures, name, "mooring"), row.gap_on(figures["on"])
        for one in ours:
            said = [
                *([f"gap {one.gap:.2f} s"] if gap is not None and one.gap > gap else []),
                *(
                    [f"lost {one.lost}"]
                    if row.lost is not None and one.lost + one.lost_keys > row.lost
                    else []
                ),
                *([f"{one.lost_confirmed} confirmed writes lost"] if one.lost_confirmed else []),
                *(["never exact"] if one.exact is None else []),
            ]
            if row.exact is not None and one.exact is not None and one.exact > row.exact:
                said.append(f"exact after {one.exact:.1f} s")
            if row.lost_seconds is not None and one.lost_seconds > row.lost_seconds:
                said.append(f"{one.lost_seconds:.1f} s of writes lost")
            found += [f"{row.title}, round {one.round}: {', '.join(said)}"] if said else []
    if figures["steady"].get("writes"):
        found.append(f"{figures['steady']['writes']} writes at rest")
    return found


def _of(figures: dict[str, Any], row: str, peer: str) -> list[Outcome]:
    return [Outcome(**one) for one in figures["outcomes"] if (one["row"], one["peer"]) == (row, peer)]


def table(figures: dict[str, Any]) -> str:
    """The report as Markdown."""
    how = f"{figures['machine']}, rounds: {figures['rounds']}, {figures['lanes']} clusters at a time"
    load = f"{figures['load_before']} before, {figures['load_after']} after"
    lines = [
        f"Measured on {figures['measured']}: {how}; one-minute load {load}.",
        "",
        "| fault | ours should be | " + " | ".join(PEERS.values()) + " |",
        "|---|---|" + "---|" * len(PEERS),
    ]
    for name, row in ROWS.items():
        cells = [cell(_of(figures, name, peer), struck=row.strike is not None) for peer in PEERS]
        lines.append(f"| {row.title} | {row.target(figures['on'])} | " + " | ".join(cells) + " |")
    if steady := figures["steady"]:
        said = f"{steady['writes']} writes, {steady['leases']} of Leases"
        lines.append(f"| at rest, {steady['seconds']:g} s | 0 writes | {said} | |")
    return "\n".join(lines)


def cell(ones: Sequence[Outcome], *, struck: bool = True) -> str:
    """The median and the longest of each figure, losses summed; how many, where not all rounds count."""
    if not ones:
        return ""
    exact = [one.exact for one in ones if one.exact is not None]
    words = []
    if struck:
        gaps = [one.gap for one in ones]
        words.append(f"gap {percentile(gaps, 0.5):.2f}, max {max(gaps):.2f} s")
    if exact:
        words.append(f"exact {percentile(exact, 0.5):.1f}, max {max(exact):.1f} s")
    if len(exact) < len(ones):
        words.append(f"**never exact: {len(ones) - len(exact)} of {len(ones)}**")
    if struck:
        words.append(_losses(ones))
    return "; ".join(words)


def _losses(ones: Sequence[Outcome]) -> str:
    lost, confirmed = sum(one.lost for one in ones), sum(one.lost_confirmed for one in ones)
    wiped = sum(1 for one in ones if one.lost_keys == KEYS)
    longest = max(one.lost_seconds for one in ones)
    text = f"lost {lost} of {sum(one.acknowledged for one in ones)}"
    if lost:
        text += f", confirmed {confirmed}, at most {longest:.1f} s of writes"
    if wiped:
        return f"**everything wiped: {wiped} of {len(ones)}**, {text}"
    older = sum(one.lost_keys for one in ones)
    return f"**{older} of {KEYS * len(ones)} older keys lost**, {text}" if older else text


def publish(figures: dict[str, Any], *, results: Path = RESULTS, page: Path = PAGE) -> None:
    """Keep the raw figures, and put their table on the page: those of a real node apart from the embedded plane's."""
    on_node = figures.get("on") == "node"
    put("python bench/table.py --node" if on_node else "python bench/table.py", table(figures), page=page)
    results.mkdir(exist_ok=True)
    path = results / ("table-node.json" if on_node else "table.json")
    path.write_text(json.dumps(figures, indent=1) + "\n")


def say(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="table.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of each row and peer (5)")
    parser.add_argument("--lanes", type=int, default=5, help="clusters at a time (5)")
    parser.add_argument("--row", action="append", choices=ROWS, help="only this one (repeatable)")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one (repeatable)")
    parser.add_argument("--steady", type=float, default=120.0, help="seconds of rest; 0 leaves it out (120)")
    parser.add_argument("--node", action="store_true", help="on a real cluster with a node, made for it")
    parser.add_argument("--out", type=Path, help="write the raw figures there")
    parser.add_argument(
        "--publish", action="store_true", help="write the figures to bench/results and docs/benchmarks.md"
    )
    parser.add_argument("--from", dest="source", type=Path, help="make the table of these raw figures alone")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints the table."""
    options = _parser().parse_args(arguments)
    configure_logging(level="error")
    if options.source:
        figures = json.loads(options.source.read_text())
    else:
        directory = Path(tempfile.mkdtemp(prefix="mooring-table-"))
        try:
            figures = asyncio.run(Run(options).run(directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    text = table(figures)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    if options.publish:
        publish(figures)
    print(text)
    missed = misses(figures)
    for one in missed:
        say(f"MISSED {one}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
