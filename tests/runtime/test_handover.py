"""Two processes and one Lease: who writes when the leader is asked to go, dies, sleeps or blocks its loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

import pytest
from tests.conformance.embedded import Embedded
from tests.standstill import Standstill

from mooring.kube import Client, Config, HttpTransport
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.core import ConfigMap, Namespace
from mooring.kube.objects.meta import ObjectMeta

from .leader import LEASE_SECONDS, RETRY_SECONDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kubernetes)])
def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An embedded API server on a thread of its own, and a real kube-apiserver."""
    if request.param == "real":
        yield request.getfixturevalue("real_kubernetes")
        return
    server = Embedded(tmp_path)
    server.start()
    try:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"
    finally:
        server.stop()


class Leader:
    """One running leader.py."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.said: dict[str, float] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            moment, what = line.decode().split()
            self.said.setdefault(what, float(moment))

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; the moment it was sent."""
        moment = time.monotonic()
        os.kill(self.process.pid, number)
        return moment

    async def heard(self, what: str, *, seconds: float = 20.0) -> float:
        """The moment it said something."""

        def ready() -> bool:
            assert self.process.returncode is None or what in self.said, (
                f"{self.name} ended instead of {what}"
            )
            return what in self.said

        await until(ready, what=f"{self.name} says {what}", seconds=seconds)
        return self.said[what]

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reader


async def until(condition: Callable[[], bool], *, what: str, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)


class Contest:
    """A namespace with a Lease, a leader that writes and a standby that is warm."""

    def __init__(self, client: Client, kubeconfig: Path, stack: AsyncExitStack) -> None:
        self.client = client
        self.namespace = f"handover-{uuid.uuid4().hex[:8]}"
        self._kubeconfig = kubeconfig
        self._stack = stack

    async def start(self, name: str, *, shards: int = 0) -> Leader:
        arguments = [str(self._kubeconfig), name, self.namespace, str(shards)]
        program = [sys.executable, "-m", "tests.runtime.leader", *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        process = await asyncio.create_subprocess_exec(
            *program, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE
        )
        leader = Leader(name, process)
        self._stack.push_async_callback(leader.end)
        return leader

    async def pair(self) -> tuple[Leader, Leader]:
        old = await self.start("old")
        await old.heard("wrote")
        new = await self.start("new")
        await new.heard("warm")
        await new.heard("standing")
        return old, new

    async def written_by(self, leader: Leader) -> str:
        """The version of what a process writes: it moves with each of its writes."""
        found = await self.client.get(ConfigMap, f"written-by-{leader.name}", namespace=self.namespace)
        return found.metadata.resource_version or ""

    async def lease(self) -> LeaseSpec:
        lease = await self.client.get(Lease, "handover", namespace=self.namespace)
        assert lease.spec is not None
        return lease.spec

    async def holder(self) -> str:
        return (await self.lease()).holder_identity or ""


@pytest.fixture
async def contest(kubeconfig: Path) -> AsyncIterator[Contest]:
    client = Client(HttpTransport(Config.load(kubeconfig)))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        contest = Contest(client, kubeconfig, stack)
        await client.create(Namespace(metadata=ObjectMeta(name=contest.namespace)))
        stack.push_async_callback(client.delete, Namespace, contest.namespace)
        yield contest


def report(record_property: Callable[[str, object], None], how: str, seconds: float) -> None:
    record_property(f"handover_after_{how}_seconds", round(seconds, 3))
    sys.stdout.write(f"hand-over after {how}: {seconds:.3f} s\n")


async def test_a_leader_asked_to_stop_hands_over_within_a_second(
    contest: Contest, stood: Standstill, record_property: Callable[[str, object], None]
) -> None:
    old, new = await contest.pair()
    asked = old.signal(signal.SIGTERM)
    took = await new.heard("wrote") - asked
    report(record_property, "SIGTERM", took)
    assert took - stood.within(took) < 1.0
    assert await asyncio.wait_for(old.process.wait(), 10) == 0


async def test_a_killed_leader_is_followed_when_its_lease_has_run_out(
    contest: Contest, stood: Standstill, record_property: Callable[[str, object], None]
) -> None:
    old, new = await contest.pair()
    killed = old.signal(signal.SIGKILL)
    left = await contest.lease()
    took = await new.heard("wrote") - killed
    report(record_property, "SIGKILL", took)
    assert took - stood.within(took) < LEASE_SECONDS + 1.2
    assert (left.holder_identity, left.lease_duration_seconds) == ("old", LEASE_SECONDS)
    renewed = datetime.fromisoformat(left.renew_time or "").timestamp()
    assert time.time() - time.monotonic() + new.said["wrote"] - renewed >= LEASE_SECONDS, (
        "not before it ran out"
    )


async def test_a_leader_that_slept_writes_nothing_when_it_wakes(
    contest: Contest, stood: Standstill, record_property: Callable[[str, object], None]
) -> None:
    old, new = await contest.pair()
    stopped = old.signal(signal.SIGSTOP)
    took = await new.heard("wrote") - stopped
    report(record_property, "SIGSTOP", took)
    assert took - stood.within(took) < LEASE_SECONDS + 1.2 * RETRY_SECONDS + 1.0
    before = await contest.written_by(old)
    old.signal(signal.SIGCONT)
    status = await asyncio.wait_for(old.process.wait(), 10)
    assert await contest.written_by(old) == before, "the woken leader wrote"
    assert "lost" in old.said
    assert status == 3
    assert await contest.holder() == "new"


async def test_a_blocked_event_loop_does_not_cost_the_lease(contest: Contest) -> None:
    old, new = await contest.pair()
    old.signal(signal.SIGUSR1)
    await asyncio.sleep(2 * LEASE_SECONDS)
    before = await contest.written_by(old)
    deadline = time.monotonic() + 5
    while await contest.written_by(old) == before:
        assert time.monotonic() < deadline, "the loop turns again, and writes"
        await asyncio.sleep(0.02)
    assert "leading" not in new.said
    assert "wrote" not in new.said
    assert not {"fenced", "lost"} & old.said.keys()
    assert await contest.holder() == "old"


async def test_a_blocked_event_loop_does_not_cost_the_shards(contest: Contest) -> None:
    one = await contest.start("one", shards=2)
    await one.heard("wrote")
    one.signal(signal.SIGUSR1)
    await asyncio.sleep(2 * LEASE_SECONDS)
    before = await contest.written_by(one)
    deadline = time.monotonic() + 5
    while await contest.written_by(one) == before:
        assert time.monotonic() < deadline, "the loop turns again, and writes"
        await asyncio.sleep(0.02)
    assert "lost" not in one.said
    for shard in (0, 1):
        lease = await contest.client.get(Lease, f"handover-shard-{shard}", namespace=contest.namespace)
        assert lease.spec is not None
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("one", 0)
    one.signal(signal.SIGTERM)
    assert await asyncio.wait_for(one.process.wait(), 10) == 0
    lease = await contest.client.get(Lease, "handover-shard-0", namespace=contest.namespace)
    assert lease.spec is not None
    assert not lease.spec.holder_identity, "given back"
