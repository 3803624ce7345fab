"""A cluster of real redis-server processes without Kubernetes: pods are records, the kubelet is a few lines.

Every pod has a loopback address of its own, a directory as its volume and runs the operator's own start
script. `Operator` drives topology, plan and steps as the actor does, with status in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from mooring.actor import StepFailed
from mooring.operators.redis.dial import Address, Dial
from mooring.operators.redis.sentinel import scripts
from mooring.operators.redis.sentinel.moves import (
    DatabaseMove,
    DeletePod,
    InSync,
    Move,
    PublishConfig,
    Record,
    Resize,
    Verdict,
    Wait,
)
from mooring.operators.redis.sentinel.plan import next_step
from mooring.operators.redis.sentinel.snapshot import Observed, Recorded, Snapshot, Wanted
from mooring.operators.redis.sentinel.specs import gate_arguments
from mooring.operators.redis.sentinel.steps import Steps
from mooring.operators.redis.sentinel.topology import Server, Topology, read_server, read_topology
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import SetState

__all__ = ["Cluster", "Container", "Operator", "cluster"]

#: Of the test itself, for which no answer is late; nobody asks a server so that is stopped.
PATIENT = Dial(connect_timeout=10.0, reply_timeout=10.0)
SETTINGS = {"down-after-milliseconds": "1500", "failover-timeout": "3000", "parallel-syncs": "2"}


@dataclass
class Container:
    """One pod's main container and its kubelet."""

    name: str
    ordinal: int
    component: str
    ip: str
    home: Path
    volume: Path
    volume_uid: str
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    restarts: int = 0
    restart_delay: float = 0.05
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    died_at: datetime | None = None
    terminating: bool = False
    process: asyncio.subprocess.Process | None = None
    keeper: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def pod(self, *, report_death: bool = True) -> Pod:
        """What Kubernetes would say."""
        return Pod(
            name=self.name,
            ordinal=self.ordinal,
            uid=self.uid,
            ip=self.ip,
            volume=self.volume_uid,
            fresh=True,
            incarnation=f"{self.uid}/{self.restarts}",
            running=self.running or not report_death,
            ready=self.running,
            died_at=self.died_at,
            created=self.created,
            terminating=self.terminating,
            trouble="" if self.running else "Restarting",
        )


class Cluster:
    """The pods, and what a kubelet and a StatefulSet controller do with them."""

    def __init__(
        self, root: Path, *, size: int = 3, sentinels: int = 3, persistence: bool = True, password: str = ""
    ) -> None:
        self.root = root
        self.persistence = persistence
        self.password = password
        self.network = f"127.{random.randint(10, 250)}.{random.randint(0, 250)}"
        self.addresses = iter(range(1, 250))
        self.uid = uuid.uuid4().hex
        self.redis: dict[str, Container] = {}
        self.sentinels: dict[str, Container] = {}
        self.redis_replicas = size
        self.sentinel_replicas = sentinels
        self.live: dict[str, str] = {}
        self.changed = asyncio.Event()

    # --- the StatefulSet controller ------------------------------------------------------------------------

    async def settle(self) -> None:
        """Make and remove pods as the two sets ask."""
        for component, pods, replicas in (
            ("redis", self.redis, self.redis_replicas),
            ("sentinel", self.sentinels, self.sentinel_replicas),
        ):
            for ordinal in range(replicas):
                name = f"{component}-{ordinal}"
                if name not in pods:
                    pods[name] = self._make(component, ordinal)
                    await self.start(pods[name])
            for name in [name for name, one in pods.items() if one.ordinal >= replicas]:
                await self.remove(pods[name])

    def _make(self, component: str, ordinal: int) -> Container:
        name = f"{component}-{ordinal}"
        volume = self.root / f"claim-{name}"
        volume.mkdir(exist_ok=True)
        identity = volume / ".claim"
        if not identity.exists():
            identity.write_text(uuid.uuid4().hex)
        home = self.root / f"home-{name}-{uuid.uuid4().hex[:6]}"
        for part in ("conf", "live", "run", "auth"):
            (home / part).mkdir(parents=True)
        ip = f"{self.network}.{next(self.addresses)}"
        return Container(
            name=name,
            ordinal=ordinal,
            component=component,
            ip=ip,
            home=home,
            volume=volume,
            volume_uid=identity.read_text(),
        )

    # --- the kubelet -----------------------------------------------------------------------------------------

    async def start(self, one: Container) -> None:
        """Start the container and keep it running."""
        self._mount(one)
        redis = one.component == "redis"
        script = one.home / "conf" / "start.sh"
        script.write_text(scripts.REDIS_START if redis else scripts.SENTINEL_START)
        arguments = [*(gate_arguments() if redis else ()), "--bind", one.ip]
        log = (one.home / "log").open("ab")
        environment = {
            "PATH": os.environ["PATH"],
            "MOORING_HOME": str(one.home),
            "DATA_DIR": str(one.volume),
            "POD_IP": one.ip,
            "REDIS_HOST": one.ip,
            "POD_NAME": one.name,
            "POD_NAMESPACE": self.uid,
            "CLUSTER_UID": self.uid,
        }
        one.process = await asyncio.create_subprocess_exec(
            "sh", str(script), *arguments, env=environment, stdout=log, stderr=log, cwd=one.volume
        )
        log.close()
        one.keeper = asyncio.create_task(self._keep(one))
        self.changed.set()

    def _mount(self, one: Container) -> None:
        if one.component == "redis":
            lines = ["port 6379", "daemonize no", "repl-diskless-sync-delay 0", "protected-mode no"]
            lines += ["appendonly yes"] if self.persistence else ['save ""', "appendonly no"]
            (one.home / "conf" / "redis.conf").write_text("\n".join(lines) + "\n")
            live = "".join(f'{key} "{value}"\n' for key, value in self.live.items())
            (one.home / "live" / "live.conf").write_text(live)
        else:
            (one.home / "conf" / "sentinel.conf").write_text(
                f'port 26379\ndir "{one.home}/run"\nprotected-mode no\n'
            )
        (one.home / "auth" / "password").write_text(self.password)

    async def _keep(self, one: Container) -> None:
        process = one.process
        assert process is not None
        await process.wait()
        one.died_at = datetime.now(UTC)
        self.changed.set()
        await asyncio.sleep(one.restart_delay)
        if one.name in (self.redis if one.component == "redis" else self.sentinels):
            one.restarts += 1
            if not self.persistence and one.component == "redis":
                for leftover in one.volume.glob("*.rdb"):
                    leftover.unlink()
            await self.start(one)

    def kill(self, name: str) -> None:
        """kill -9; the kubelet restarts the container in place."""
        one = self.redis.get(name) or self.sentinels[name]
        os.kill(one.pid, signal.SIGKILL)

    def freeze(self, name: str) -> None:
        """SIGSTOP: hung, not dead."""
        os.kill(self.redis[name].pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        os.kill(self.redis[name].pid, signal.SIGCONT)

    async def remove(self, one: Container) -> None:
        """The pod is gone; its claim stays."""
        (self.redis if one.component == "redis" else self.sentinels).pop(one.name)
        if one.keeper is not None:
            one.keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await one.keeper
        if one.process is not None and one.process.returncode is None:
            one.process.kill()
            await one.process.wait()

    async def replace(self, names: list[str], *, keep_claims: bool = True) -> None:
        """Delete pods at once; new ones come with new addresses."""
        gone = [self.redis.get(name) or self.sentinels[name] for name in names]
        for one in gone:
            await self.remove(one)
            if not keep_claims:
                shutil.rmtree(one.volume)
        await self.settle()

    async def stop(self) -> None:
        for one in [*self.redis.values(), *self.sentinels.values()]:
            await self.remove(one)

    # --- ways to look ----------------------------------------------------------------------------------------

    @property
    def pods(self) -> list[Pod]:
        return [one.pod() for one in self.redis.values()]

    @property
    def sentinel_pods(self) -> list[Pod]:
        return [one.pod() for one in self.sentinels.values()]

    async def server(self, name: str) -> Server:
        async with PATIENT.link(Address(self.redis[name].ip, 6379), password=self.password) as link:
            return await read_server(link, keys=["min-slaves-to-write", "hz", "appendonly"])

    async def call(self, name: str, *words: str | int) -> object:
        async with PATIENT.link(Address(self.redis[name].ip, 6379), password=self.password) as link:
            return await link.call(*words)

    def sentinel_addresses(self) -> list[Address]:
        return [Address(one.ip, 26379) for one in self.sentinels.values()]


class Operator:
    """The actor's loop, with status kept in memory (and kept when the operator 'restarts')."""

    def __init__(self, cluster: Cluster, wanted: Wanted | None = None) -> None:
        self.cluster = cluster
        self.wanted = wanted or Wanted(
            size=cluster.redis_replicas,
            sentinels=cluster.sentinel_replicas,
            down_after=1.5,
            failover_timeout=3.0,
            sentinel_settings=SETTINGS,
            persistence=cluster.persistence,
        )
        self.recorded = Recorded()
        self.verdict: Verdict = Wait(reason="Start", message="")
        self.seen = Topology()
        self.history: list[str] = []
        self.moves: list[Move] = []
        self._dial = Dial(connect_timeout=0.3, reply_timeout=0.5)
        self._steps = Steps(self._dial, kept=Kept(password=cluster.password))
        self._task: asyncio.Task[None] | None = None
        self._begun = self._decided = 0

    async def topology(self) -> Topology:
        return await read_topology(
            self._dial,
            redis=self.cluster.pods,
            sentinels=self.cluster.sentinel_pods,
            kept=Kept(password=self.cluster.password),
            keys=[*self.wanted.config, *self.recorded.config, "min-slaves-to-write"],
        )

    async def once(self) -> Verdict:
        """Look, decide, act."""
        self._begun += 1
        snapshot = self._begun
        topology = self.seen = await self.topology()
        self.wanted = replace(self.wanted, user_keys=frozenset(self.wanted.config))
        now = datetime.now(UTC)
        self._note_unreachable(topology, now)
        volumes = {
            claim.name.removeprefix("claim-"): (claim / ".claim").read_text()
            for claim in self.cluster.root.glob("claim-*")
        }
        observed = Observed(
            topology=topology,
            redis_set=SetState(replicas=self.cluster.redis_replicas),
            sentinel_set=SetState(replicas=self.cluster.sentinel_replicas),
            published=self.cluster.live,
            volumes=volumes,
        )
        self.verdict = next_step(Snapshot(self.wanted, observed, self.recorded, now))
        self._decided = snapshot
        line = str(self.verdict)
        if not self.history or not self.history[-1].endswith(line):
            self.history.append(f"{monotonic():.2f} {line}")
        if isinstance(self.verdict, Move):
            self.moves.append(self.verdict)
            await self._act(self.verdict)
        return self.verdict

    def _note_unreachable(self, topology: Topology, now: datetime) -> None:
        silent = {one.name for one in topology.members if one.server is None}
        silent |= {f"redis-{n}" for n in range(self.wanted.size)} - {one.name for one in topology.members}
        since = {name: self.recorded.unreachable_since.get(name, now) for name in silent}
        self.recorded = replace(self.recorded, unreachable_since=since)

    async def _act(self, move: Move) -> None:
        match move:
            case Record():
                self._record(move)
            case Resize():
                if move.component == "redis":
                    self.cluster.redis_replicas = move.replicas
                else:
                    self.cluster.sentinel_replicas = move.replicas
                await self.cluster.settle()
            case PublishConfig():
                self.cluster.live = dict(move.values)
            case DeletePod():
                await self.cluster.replace([move.pod])
            case DatabaseMove():
                with contextlib.suppress(StepFailed):
                    done = await self._steps.run(move)
                    if done.config is not None:
                        key, result = done.config
                        self.recorded = replace(self.recorded, config={**self.recorded.config, key: result})

    def _record(self, move: Record) -> None:
        operation = None if move.finish else self.recorded.operation
        self.recorded = replace(
            self.recorded,
            lineage=move.lineage or self.recorded.lineage,
            operation=move.operation or operation,
            last_failover=move.last_failover or self.recorded.last_failover,
            config=self.recorded.config if move.config is None else move.config,
            rolls=self.recorded.rolls if move.rolls is None else move.rolls,
            quarantined=self.recorded.quarantined if move.quarantined is None else move.quarantined,
        )

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _loop(self) -> None:
        while True:
            self.cluster.changed.clear()
            verdict = await self.once()
            if isinstance(verdict, Move):
                continue
            after = verdict.after if isinstance(verdict, Wait) else 0.5
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.cluster.changed.wait(), after)

    async def until(self, condition: Callable[[], bool], *, seconds: float = 30, what: str = "") -> float:
        """Wait for a condition; returns how long it took."""
        started = monotonic()
        while not condition():
            if monotonic() - started > seconds:
                tail = "\n".join(self.history[-25:])
                raise AssertionError(f"not within {seconds} s: {what or 'in sync'}; {self.verdict}\n{tail}")
            if self._task is not None and self._task.done():
                self._task.result()
            await asyncio.sleep(0.02)
        return monotonic() - started

    async def in_sync(self, *, seconds: float = 30) -> float:
        """Wait until the planner, looking afresh, has nothing to do."""
        asked = self._begun
        self.cluster.changed.set()
        return await self.until(
            lambda: self._decided > asked and isinstance(self.verdict, InSync), seconds=seconds
        )

    @property
    def master(self) -> str:
        assert self.recorded.lineage is not None
        return self.recorded.lineage.master.pod


@asynccontextmanager
async def cluster(
    root: Path, *, size: int = 3, sentinels: int = 3, persistence: bool = True, password: str = ""
) -> AsyncIterator[tuple[Cluster, Operator]]:
    """Pods started, operator looping; everything ended at the end."""
    made = Cluster(root, size=size, sentinels=sentinels, persistence=persistence, password=password)
    operator = Operator(made)
    try:
        await made.settle()
        operator.start()
        yield made, operator
    finally:
        await operator.stop()
        await made.stop()
