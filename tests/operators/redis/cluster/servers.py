"""A whole cluster of real servers on loopback without Kubernetes, kept by the planner and its steps alone.

What the rest of the operator does is small: it asks the planner, carries out, and writes down. Here the test does
it, so that an operator can die at any send (`Servers.operate` with ``sends``), and a server at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from redis.crc import key_slot

from mooring.actor import StepFailed
from mooring.operators.redis.cluster.moves import InSync, Record, Resize, Verdict, Wait
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.slots import Slots, count
from mooring.operators.redis.cluster.snapshot import Recorded, Snapshot, Wanted
from mooring.operators.redis.cluster.steps import Steps
from mooring.operators.redis.cluster.topology import Peer, parse_nodes, read_nodes
from mooring.operators.redis.dial import Address, Dial, DialError, Refused, Unreachable
from mooring.operators.workload.pods import Pod

__all__ = ["KEYS", "Dead", "Servers", "servers"]

KEYS = [f"key:{at}" for at in range(5000)]
OPTIONS = ("--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0")
CLUSTERED = (
    *("--cluster-enabled", "yes", "--cluster-node-timeout", "15000", "--cluster-require-full-coverage", "no"),
    *("--cluster-allow-replica-migration", "no"),
)
WITHIN = 60.0
"""Seconds until all has to be as declared."""
Watch = Callable[[Verdict], Awaitable[None]]
"""Is shown every decision before it is carried out."""


async def _unwatched(_: Verdict) -> None:
    pass


class Dead(Exception):
    """The operator died: nothing more is sent."""


class _Heart:
    """Stops after so many sends; never, without a number."""

    def __init__(self, sends: int | None) -> None:
        self._left = sends

    def __call__(self) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            raise Dead


class Servers:
    """The nodes of one cluster, by ordinal, and what was written down of it."""

    def __init__(self, home: Path, program: Sequence[str] = ("redis-server",)) -> None:
        self._home, self._program = home, program
        self._net = f"127.{random.randint(10, 250)}.{random.randint(0, 250)}"
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._died: dict[int, datetime] = {}
        self._pod: dict[int, int] = {}
        self.pods = 0
        self.recorded = Recorded()
        self.dial = Dial(connect_timeout=10.0, reply_timeout=10.0)

    # --- processes

    def address(self, ordinal: int) -> Address:
        return Address(f"{self._net}.{ordinal + 1 + 20 * self._pod.get(ordinal, 0)}", 6379)

    def directory(self, ordinal: int) -> Path:
        """Where its files are."""
        return self._home / f"{ordinal}.{self._pod.get(ordinal, 0)}"

    async def start(self, ordinal: int, *, clustered: bool = True) -> None:
        """Start a server, on the files it left; one that is not clustered knows nothing of slots."""
        ip, home = self.address(ordinal).ip, self.directory(ordinal)
        await asyncio.to_thread(home.mkdir, parents=True, exist_ok=True)
        self._running[ordinal] = await asyncio.create_subprocess_exec(
            *(*self._program, "--bind", ip, "--port", "6379", "--dir", str(home)),
            *OPTIONS,
            *(("--cluster-announce-ip", ip, *CLUSTERED) if clustered else ()),
            stdout=asyncio.subprocess.DEVNULL,
        )
        self._died.pop(ordinal, None)
        async with asyncio.timeout(10):
            while not await self._answers(ordinal):
                await asyncio.sleep(0.02)

    async def _answers(self, ordinal: int) -> bool:
        try:
            async with self.dial.link(self.address(ordinal)) as link:
                [answer] = await link.pipeline([("PING",)])
        except Unreachable:
            return False
        return not isinstance(answer, Refused) or not answer.reply.startswith("LOADING")

    async def kill(self, ordinal: int) -> None:
        """kill -9; Kubernetes sees it at once."""
        process = self._running.pop(ordinal)
        process.kill()
        await process.wait()
        self._died[ordinal] = datetime.now(UTC)

    @contextlib.contextmanager
    def frozen(self, ordinal: int) -> Iterator[None]:
        """SIGSTOP, for as long."""
        process = self._running[ordinal]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    async def renew(self, ordinal: int) -> None:
        """Another pod takes its place: at another address, without any file, and so with another id."""
        await self.kill(ordinal)
        self._pod[ordinal] = self._pod.get(ordinal, 0) + 1
        await self.start(ordinal)

    async def end(self) -> None:
        """End all of them."""
        for ordinal in list(self._running):
            await self.kill(ordinal)

    # --- the operator

    async def snapshot(self, dial: Dial, wanted: Wanted) -> Snapshot:
        pods = [
            Pod(
                name=f"demo-{at}",
                ordinal=at,
                ip=self.address(at).ip,
                running=at in self._running,
                died_at=self._died.get(at),
            )
            for at in range(self.pods)
        ]
        seen = await read_nodes(dial, pods, password="")
        ids = dict(self.recorded.ids) | {node.name: node.id for node in seen.nodes if node.id}
        self.recorded = replace(self.recorded, ids=ids)
        wanted = replace(wanted, pods=self.pods)
        found = Snapshot(wanted=wanted, seen=seen, recorded=self.recorded, places={}, now=datetime.now(UTC))
        slots = {id: seen.owners.get(id, 0) | found.lost_by(id) for id in self.recorded.ids.values()}
        self.recorded = replace(self.recorded, slots=slots)
        return found

    async def operate(
        self,
        nodes: int,
        *,
        sends: int | None = None,
        seconds: float | None = None,
        watch: Watch = _unwatched,
        patience: float = 10.0,
        **wanted: Any,
    ) -> bool:
        """Look and act until all is as declared; False when the operator died on the way.

        It dies after so many ``sends`` or ``seconds``, if either is given, and when ``watch`` raises `Dead`. A server
        that gives no answer for ``patience`` seconds is silent.
        """
        dial = Dial(fence=_Heart(sends), connect_timeout=0.5, reply_timeout=patience)
        end, verdict = monotonic() + (seconds or WITHIN), None
        while monotonic() < end:
            try:
                verdict = next_step(await self.snapshot(dial, Wanted(nodes=nodes, **wanted)))
                await watch(verdict)
                if isinstance(verdict, InSync):
                    return True
                await self._act(dial, verdict)
            except Dead:
                return False
        if seconds:
            return False
        said = verdict.message if isinstance(verdict, Wait) else getattr(verdict, "why", "")
        raise AssertionError(f"not as declared after {WITHIN:.0f} s: {type(verdict).__name__}: {said}")

    async def _act(self, dial: Dial, verdict: Verdict) -> None:
        match verdict:
            case Wait():
                await asyncio.sleep(min(verdict.after, 0.1))
            case Record():
                plan = None if verdict.drop_plan else verdict.plan or self.recorded.plan
                formed = self.recorded.formed if verdict.formed is None else verdict.formed
                self.recorded = replace(self.recorded, plan=plan, formed=formed)
            case Resize():
                for ordinal in range(self.pods, verdict.replicas):
                    await self.start(ordinal)
                for ordinal in range(verdict.replicas, self.pods):
                    await self.kill(ordinal)
                    self._died.pop(ordinal)
                self.pods = verdict.replicas
            case InSync():
                pass
            case _:
                with contextlib.suppress(StepFailed, DialError):
                    await Steps(dial).run(verdict)

    # --- seen from outside

    async def call(self, ordinal: int, *words: str | int) -> Any:
        async with self.dial.link(self.address(ordinal)) as link:
            return await link.call(*words)

    async def view(self, ordinal: int) -> tuple[Peer, ...]:
        return parse_nodes(await self.call(ordinal, "CLUSTER", "NODES"))

    async def me(self, ordinal: int) -> Peer:
        return next(peer for peer in await self.view(ordinal) if "myself" in peer.flags)

    async def owned(self) -> dict[int, Slots]:
        """Slots of every master by its own word."""
        mine = {at: await self.me(at) for at in sorted(self._running)}
        return {at: me.slots for at, me in mine.items() if me.is_master}

    async def marks(self) -> int:
        """Open marks on all nodes."""
        return sum([len((await self.me(at)).marks) for at in self._running])

    async def sizes(self) -> list[int]:
        return sorted(map(count, (await self.owned()).values()))

    async def fill(self, keys: Sequence[str]) -> None:
        """Set keys, each to its own name, at their owners."""
        for at, slots in (await self.owned()).items():
            mine = [key for key in keys if slots >> key_slot(key.encode()) & 1]
            async with self.dial.link(self.address(at)) as link:
                assert set(await link.pipeline([("SET", key, key) for key in mine])) == {"OK"}
                await link.call("WAIT", 1, 5000)

    async def kept(self, keys: Sequence[str]) -> int:
        """How many of them their slots' owners have."""
        found = 0
        for at, slots in (await self.owned()).items():
            mine = [key for key in keys if slots >> key_slot(key.encode()) & 1]
            async with self.dial.link(self.address(at)) as link:
                answers = await link.pipeline([("GET", key) for key in mine])
            found += sum(1 for key, answer in zip(mine, answers, strict=True) if key == answer)
        return found

    async def stored(self) -> int:
        """All keys on all masters, wanted there or not."""
        return sum([int(await self.call(at, "DBSIZE")) for at in await self.owned()])


@asynccontextmanager
async def servers(home: Path, nodes: int = 6) -> AsyncIterator[Servers]:
    """Servers that know nothing of one another yet."""
    made = Servers(home)
    try:
        for ordinal in range(nodes):
            await made.start(ordinal)
        made.pods = nodes
        yield made
    finally:
        await made.end()
