"""Several replicas at work at once: objects are spread over shards by their UID, each shard has a Lease.

Who holds what: every replica announces itself with a Lease of its own (``<name>-member-...``); from those seen
alive, sorted, each computes the same assignment, shard i to member i modulo their number. A shard that is no
longer ours is drained (no new pass begins, running ones finish), then its Lease is given back, and its new
holder, which watches that Lease, takes it at once: it makes sure that its caches follow the server, then looks
at every object of the shard. Views may differ for a moment; the Leases decide, and a pass is fenced by the
Lease of the shard it works for.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from mooring.cache.clock import Clock
from mooring.cache.informer import Informer
from mooring.cache.store import Transition
from mooring.kube.client import Client
from mooring.kube.errors import KubeError
from mooring.kube.objects.coordination import Lease
from mooring.runtime.context import current_pass
from mooring.runtime.lease import Election, Elector, Fence, FenceLost

__all__ = ["ShardCalls", "ShardFence", "Shards", "Share", "shard_of"]

log = structlog.get_logger("mooring.runtime")

#: Label of all Leases that belong together; its value is the election's name.
LABEL: Final = "mooring.dev/election"
#: How long the Leases of the other replicas may take to be known.
SYNC_SECONDS: Final = 120.0
#: A member that was silent for so many lease durations is forgotten, and its Lease deleted.
FORGOTTEN: Final = 20


def shard_of(uid: str, shards: int) -> int:
    """The shard of an object: a hash of its UID, the same in every process and version."""
    digest = hashlib.blake2b(uid.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


class ShardFence(Fence):
    """The fence of the shard that the running pass works for; outside of a pass, of any shard held."""

    def __init__(self, clock: Clock, shards: int) -> None:
        super().__init__(clock)
        self.fences = tuple(Fence(clock) for _ in range(shards))

    def _here(self) -> tuple[Fence, ...]:
        current = current_pass()
        if current is not None and current.shard is not None:
            return (self.fences[current.shard],)
        return self.fences

    def check(self) -> None:
        """Raise `FenceLost` unless the Lease of this pass's shard is held."""
        if not self.open:
            raise FenceLost("the Lease of this shard is not held by this process; nothing was sent")

    @property
    def open(self) -> bool:
        return any(fence.open for fence in self._here())

    @property
    def left(self) -> float:
        return max(fence.left for fence in self._here())

    @property
    def arrives(self) -> float:
        return max(fence.arrives for fence in self._here())

    def close(self) -> None:
        for fence in self.fences:
            fence.close()


class Share:
    """The shards that this replica holds: kept by `Shards`, asked by controllers, maybe on another thread."""

    def __init__(self, clock: Clock, shards: int) -> None:
        self.fence = ShardFence(clock, shards)
        self.held: set[int] = set()

    def of(self, uid: str) -> int:
        """The shard of an object."""
        return shard_of(uid, len(self.fence.fences))


@dataclass(frozen=True, slots=True)
class ShardCalls:
    """Whom `Shards` tells.

    ``ready`` is awaited before a shard counts as held, with its Lease won; ``taken`` is told of each shard that
    became ours; ``drain`` waits until nothing works for one any more; ``on_change`` is told of each Lease.
    """

    ready: Callable[[], Coroutine[Any, Any, None]]
    taken: Callable[[int], object]
    drain: Callable[[int], Coroutine[Any, Any, None]]
    on_change: Callable[[str, bool], object]


class Shards:
    """Holds this replica's share of the shards; while ``trouble`` gives a reason, no Lease is renewed."""

    def __init__(
        self,
        client: Client,
        election: Election,
        *,
        share: Share,
        clock: Clock,
        calls: ShardCalls,
        trouble: Callable[[], str] | None = None,
    ) -> None:
        self._client = client
        self._election = election
        self._clock = clock
        self._share = share
        self._calls = calls
        self._seen: dict[str, float] = {}
        self._changed = asyncio.Condition()

        def elector(suffix: str, fence: Fence) -> Elector:
            name = f"{election.name}-{suffix}"
            labels = {**(election.labels or {}), LABEL: election.name}
            return Elector(
                client,
                replace(election, name=name, labels=labels),
                fence=fence,
                clock=clock,
                on_change=functools.partial(calls.on_change, name),
                trouble=trouble,
            )

        self._electors = [elector(f"shard-{n}", shard) for n, shard in enumerate(share.fence.fences)]
        self._by_name = {elector.election.name: elector for elector in self._electors}
        me = hashlib.sha256(election.identity.encode()).hexdigest()[:10]
        self._member = elector(f"member-{me}", Fence(clock))

    # --- who is there

    def members(self) -> list[str]:
        """The replicas seen alive, this one included, by the names of their Leases, sorted."""
        since = self._clock.boottime() - self._election.lease_duration
        alive = {name for name, seen in self._seen.items() if seen > since}
        return sorted({*alive, self._member.election.name})

    def mine(self) -> set[int]:
        """The shards that should be ours."""
        members = self.members()
        here = members.index(self._member.election.name)
        return {number for number in range(len(self._electors)) if number % len(members) == here}

    def _on_lease(self, change: Transition[Lease]) -> None:
        old, new = change.old, change.new
        name = change.key.name
        if (elector := self._by_name.get(name)) is not None:
            # So that a dead holder's time is counted from its last sign, not from when its shard became ours.
            if new is not None and not elector.leading:
                elector.observe(new)
        elif new is None or new.spec is None or not new.spec.holder_identity:
            self._seen.pop(name, None)
        elif old is None or old.spec != new.spec:
            self._seen[name] = self._clock.boottime()

    async def _forget(self, informer: Informer[Lease]) -> None:
        """Delete what dead replicas left behind."""
        since = self._clock.boottime() - FORGOTTEN * self._election.lease_duration
        for name in [name for name, seen in self._seen.items() if seen < since]:
            lease = next((found for found in informer.list() if found.metadata.name == name), None)
            del self._seen[name]
            if lease is not None:
                await self._delete(lease)

    async def _delete(self, lease: Lease) -> None:
        meta = lease.metadata
        try:
            await self._client.delete(
                Lease,
                meta.name or "",
                namespace=meta.namespace or "",
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
        except KubeError as error:
            log.debug("a member's lease was not deleted", lease=meta.name, error=str(error))

    # --- holding

    async def run(self) -> None:
        """Hold our share until cancelled; raises `LeaseLost` when a Lease that is ours cannot be renewed."""
        informer = Informer(
            self._client,
            Lease,
            clock=self._clock,
            namespace=self._election.namespace,
            label_selector=f"{LABEL}={self._election.name}",
        )
        informer.add_handler(self._on_lease)
        informer.start()
        await self._member.acquire()
        parts: list[Coroutine[Any, Any, None]] = [self._member.keep(), self._look_round(informer)]
        parts += [self._hold(number) for number in range(len(self._electors))]
        tasks = [asyncio.create_task(part, name=f"shards {self._election.name}") for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _cancel(*tasks)
            await informer.stop()

    async def _look_round(self, informer: Informer[Lease]) -> None:
        try:
            async with self._clock.deadline(SYNC_SECONDS):
                await informer.synced.wait()
        except TimeoutError:
            why = informer.last_error or "no answer yet"
            raise TimeoutError(f"{informer!r} not synced after {SYNC_SECONDS:.0f} s: {why}") from None
        while True:
            async with self._changed:
                self._changed.notify_all()
            await self._clock.sleep(self._election.retry_period / 4)
            await self._forget(informer)

    async def _until_mine(self, number: int, *, mine: bool) -> None:
        async with self._changed:
            await self._changed.wait()
            await self._changed.wait_for(lambda: (number in self.mine()) is mine)

    async def _hold(self, number: int) -> None:
        elector = self._electors[number]
        while True:
            await self._until_mine(number, mine=True)
            if not await _first(elector.acquire(), self._until_mine(number, mine=False)):
                await elector.release()  # it may have been won in that very moment
                continue
            keeper = asyncio.create_task(elector.keep(), name=f"lease {elector.election.name}")
            try:
                if await _first(self._calls.ready(), _result(keeper)):
                    self._share.held.add(number)
                    self._calls.taken(number)
                    await _first(_result(keeper), self._until_mine(number, mine=False))
                    self._share.held.discard(number)
                    await self._calls.drain(number)
                else:
                    keeper.result()
            finally:
                self._share.held.discard(number)
                await _cancel(keeper)
            await elector.release()

    async def release(self) -> None:
        """Give every Lease back, and leave no announcement; only after everything has stopped."""
        self._share.held.clear()
        await asyncio.gather(*(elector.release() for elector in self._electors))
        await self._member.release()
        if (left := self._member.observed) is not None:
            await self._delete(left)


async def _result(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)


async def _first(work: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> bool:
    """Whether ``work`` ended before ``other``; what it raises is raised."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        return tasks[0].done()
    finally:
        await _cancel(*tasks)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
