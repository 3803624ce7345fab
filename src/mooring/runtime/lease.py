"""Leader election by Lease, and the fence that makes losing it harmless.

The algorithm is client-go's: lease 15 s, renewal every 2 s, leadership given up when no renewal succeeded for
10 s; a holder's expiry is judged by how long *we* have seen its record unchanged, never by comparing clocks.
Beyond client-go: a standby watches the Lease, so a release is taken up at once, and a silent holder's time is
up exactly that long after its last renewal, not at the next look; and the `Fence`.

The fence: an effect (a write to Kubernetes, a command to a database) may be sent only while the last
renewal, counted from before it was sent, is less than ``renew_deadline`` old on a clock that runs through
suspend. Others may take over only ``lease_duration`` after they saw that renewal, so an effect has the
difference of the two (5 s) to arrive, and a process that slept wakes up fenced.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

import structlog

from mooring.cache.clock import Clock, SystemClock, rfc3339
from mooring.cache.informer import Informer
from mooring.cache.store import Transition, version_of
from mooring.kube.client import Client
from mooring.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from mooring.kube.object import Key
from mooring.kube.objects.coordination import Lease, LeaseSpec
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import MergePatch
from mooring.kube.transport import Response, StreamResponse, Transport

__all__ = ["Election", "Elector", "Fence", "FenceLost", "FencedTransport", "LeaseLost", "OpenFence"]

log = structlog.get_logger("mooring.runtime")

LEASE_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
JITTER: Final = 1.2

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class FenceLost(Exception):
    """This process does not hold its Lease (any more): the effect was not sent."""


class LeaseLost(Exception):
    """The Lease could not be renewed in time; the process must stop acting, and should exit."""


@dataclass(frozen=True)
class Election:
    """Which Lease to hold, and as whom.

    ``identity`` defaults to host name and a random part, new for each process, as two processes must never
    share one. Times are in seconds; ``lease_duration > renew_deadline > retry_period * 1.2`` must hold.
    """

    name: str
    namespace: str
    identity: str = ""
    lease_duration: float = LEASE_SECONDS
    renew_deadline: float = RENEW_SECONDS
    retry_period: float = RETRY_SECONDS
    labels: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > self.retry_period * JITTER:
            raise ValueError(
                f"lease {self.name}: lease_duration > renew_deadline > retry_period * {JITTER} must hold, "
                f"got {self.lease_duration}, {self.renew_deadline}, {self.retry_period}"
            )
        if not self.identity:
            object.__setattr__(self, "identity", f"{socket.gethostname()}_{secrets.token_hex(4)}")


class Fence:
    """Open while the Lease is surely ours; `check` at the send of every effect."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._until = float("-inf")
        self._expiry = float("-inf")

    def check(self) -> None:
        """Raise `FenceLost` unless the Lease is held."""
        if self._clock.boottime() >= self._until:
            raise FenceLost("the Lease is not held by this process; nothing was sent")

    @property
    def open(self) -> bool:
        """Whether an effect may be sent now."""
        return self._clock.boottime() < self._until

    @property
    def left(self) -> float:
        """Seconds until the fence closes if nothing is renewed; negative when it is closed."""
        return self._until - self._clock.boottime()

    @property
    def arrives(self) -> float:
        """Seconds within which an effect sent now must have arrived: others may take over after that."""
        return self._expiry - self._clock.boottime()

    def hold(self, until: float, *, expiry: float) -> None:
        """Effects may be sent until one moment of `Clock.boottime`, and must have arrived by another."""
        # In this order: another thread may ask between the two.
        self._expiry = expiry
        self._until = until

    def close(self) -> None:
        """The Lease is not ours; until the next `hold` nothing passes."""
        self._until = float("-inf")


class OpenFence(Fence):
    """For processes without an election: everything passes."""

    def check(self) -> None:
        return

    @property
    def open(self) -> bool:
        return True

    @property
    def left(self) -> float:
        return float("inf")

    @property
    def arrives(self) -> float:
        return float("inf")


class FencedTransport:
    """A transport that sends no write while its fence is closed.

    A write that is sent waits for its answer no longer than until others could take the Lease over.
    """

    def __init__(self, inner: Transport, fence: Fence) -> None:
        self._inner = inner
        self._fence = fence

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """See `Transport.request`; a write while the fence is closed raises `FenceLost`."""
        if method not in _READS:
            self._fence.check()
            if (left := self._fence.arrives) != float("inf"):
                timeout = min(timeout or 30.0, left)
        return await self._inner.request(
            method, path, query=query, body=body, headers=headers, timeout=timeout
        )

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """See `Transport.stream`; streams only read."""
        return self._inner.stream(method, path, query=query, headers=headers, timeout=timeout)

    async def close(self) -> None:
        """See `Transport.close`."""
        await self._inner.close()


class Elector:
    """Acquires a Lease, keeps it, and gives it back.

    ``on_change`` is told when leadership begins and ends; while ``trouble`` gives a reason, nothing is renewed.
    """

    def __init__(
        self,
        client: Client,
        election: Election,
        *,
        fence: Fence,
        clock: Clock | None = None,
        on_change: Callable[[bool], object] | None = None,
        trouble: Callable[[], str] | None = None,
    ) -> None:
        self.election = election
        self.fence = fence
        self._client = client
        self._clock = clock or SystemClock()
        self._on_change = on_change
        self._trouble = trouble or (lambda: "")
        self._observed: Lease | None = None
        self._observed_at = 0.0
        self._informer: Informer[Lease] | None = None
        self._wake = asyncio.Event()

    @property
    def leader(self) -> str:
        """Who held the Lease when it was last seen; empty when nobody did."""
        spec = self._observed.spec if self._observed is not None else None
        return (spec.holder_identity if spec is not None else "") or ""

    @property
    def observed(self) -> Lease | None:
        """The Lease as it was last seen."""
        return self._observed

    @property
    def leading(self) -> bool:
        """Whether this process holds the Lease, as far as it knows."""
        return self.leader == self.election.identity and self.fence.open

    # --- acquire

    async def acquire(self) -> None:
        """Wait until the Lease is ours; the fence is open then."""
        election = self.election
        informer = self._informer = Informer(
            self._client,
            Lease,
            clock=self._clock,
            namespace=election.namespace,
            field_selector=f"metadata.name={election.name}",
        )
        informer.add_handler(self._on_lease)
        said = ""
        try:
            while not await self._try(election.retry_period * 2):
                informer.start()
                self._wake.clear()
                if self.leader != said:
                    said = self.leader
                    log.info("standing by for a lease", lease=election.name, holder=said)
                retry = election.retry_period * (1 + random.random() * JITTER)
                left = self._left()
                await self._pause(min(retry, left) if left > 0 else retry)
        finally:
            self._informer = None
            await informer.stop()
        log.info("leading", lease=str(Key(election.namespace, election.name)), identity=election.identity)
        self._changed(True)

    def _on_lease(self, change: Transition[Lease]) -> None:
        new = change.new
        seen = version_of(self._observed) if self._observed is not None else 0
        if new is not None and version_of(new) > seen and not self.leading:
            self.observe(new)
        if new is None or new.spec is None or not new.spec.holder_identity:
            self._wake.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the Lease is given back meanwhile."""
        try:
            async with self._clock.deadline(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    # --- keep

    async def keep(self) -> None:
        """Renew until cancelled; raises `LeaseLost`, with the fence closed, when that does not succeed."""
        election = self.election
        why = ""
        try:
            while True:
                await self._clock.sleep(election.retry_period)
                if not self.fence.open or (why := self._trouble()):
                    break
                # One request that hangs, on a connection that broke for instance, is not to cost the Lease.
                patience = min(self.fence.left, election.renew_deadline / 2)
                if not await self._try(patience) and self.leader not in ("", election.identity):
                    break
        finally:
            self.fence.close()
            self._changed(False)
        raise LeaseLost(
            f"lease {election.namespace}/{election.name} "
            + (f"was let go: {why}" if why else f"was not renewed for {election.renew_deadline:.0f} s")
            + (f"; {self.leader} holds it" if self.leader not in ("", election.identity) else "")
        )

    def _changed(self, leads: bool) -> None:
        if self._on_change is not None:
            self._on_change(leads)

    # --- give back

    async def release(self) -> None:
        """Let the next one take over at once; only after everything that might act has stopped."""
        self.fence.close()
        seen = self._observed
        if seen is None or seen.spec is None or seen.spec.holder_identity != self.election.identity:
            return
        try:
            async with self._clock.deadline(self.election.retry_period * 2):
                await self._give_back(seen)
            log.info("lease given back", lease=str(Key(self.election.namespace, self.election.name)))
        except (KubeError, TimeoutError) as error:
            log.warning("lease not given back; the next one waits for it to run out", error=str(error))

    async def _give_back(self, seen: Lease) -> None:
        now = rfc3339(self._clock.now(), micro=True)
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
        try:
            await self._patch({"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": spec})
        except Conflict:
            # Our own last renewal was carried out though its answer was not awaited, or someone set a label.
            election = self.election
            current = await self._client.get(Lease, election.name, namespace=election.namespace)
            if current.spec is None or current.spec.holder_identity != election.identity:
                raise
            version = current.metadata.resource_version
            await self._patch({"metadata": {"resourceVersion": version}, "spec": spec})

    # --- client-go's tryAcquireOrRenew

    async def _try(self, timeout: float) -> bool:
        """One attempt to acquire or renew; ``False`` when another holds the Lease or the server fails."""
        try:
            async with self._clock.deadline(timeout):
                return await self._attempt()
        except Conflict:
            return False  # another was faster; the next attempt looks again
        except (KubeError, TimeoutError) as error:
            log.warning(
                "lease attempt failed", lease=self.election.name, error=str(error) or "no answer in time"
            )
            return False

    async def _attempt(self) -> bool:
        election = self.election
        if not self.leading:
            try:
                self.observe(await self._client.get(Lease, election.name, namespace=election.namespace))
            except NotFound:
                return await self._create()
            if self._held_by_other():
                return False
        try:
            return await self._take()
        except Conflict:
            # Someone (kubectl, a label controller) touched the record: look, and if it is free, once more.
            self.observe(await self._client.get(Lease, election.name, namespace=election.namespace))
            return False if self._held_by_other() else await self._take()
        except NotFound:
            return await self._create()

    def observe(self, lease: Lease) -> None:
        """The Lease was seen in this state; from a change of its record on, its holder's time runs anew."""
        before = self._observed
        if before is None or before.spec != lease.spec or before.metadata.uid != lease.metadata.uid:
            self._observed_at = self._clock.boottime()
        self._observed = lease

    def _held_by_other(self) -> bool:
        return self.leader not in ("", self.election.identity) and self._left() > 0

    def _left(self) -> float:
        """Seconds until the holder's time is up, if nothing more is heard of it."""
        spec = self._observed.spec if self._observed is not None else None
        # The holder's own promise, as client-go does it is ours; theirs is safer when settings differ.
        seconds = max(float((spec.lease_duration_seconds if spec else 0) or 0), self.election.lease_duration)
        return self._observed_at + seconds - self._clock.boottime()

    async def _create(self) -> bool:
        election = self.election
        started = self._clock.boottime()
        now = rfc3339(self._clock.now(), micro=True)
        lease = Lease(
            metadata=ObjectMeta(
                name=election.name,
                namespace=election.namespace,
                labels=dict(election.labels) if election.labels else None,
            ),
            spec=LeaseSpec(
                holder_identity=election.identity,
                lease_duration_seconds=round(election.lease_duration),
                acquire_time=now,
                renew_time=now,
                lease_transitions=0,
            ),
        )
        try:
            made = await self._client.create(lease)
        except AlreadyExists:
            return False
        self._won(made, started)
        return True

    async def _take(self) -> bool:
        seen = self._observed
        if seen is None:
            return False
        election = self.election
        started = self._clock.boottime()
        now = rfc3339(self._clock.now(), micro=True)
        spec = seen.spec or LeaseSpec()
        changes: dict[str, object] = {
            "holderIdentity": election.identity,
            "leaseDurationSeconds": round(election.lease_duration),
            "renewTime": now,
        }
        if spec.holder_identity != election.identity:
            changes["acquireTime"] = now
            changes["leaseTransitions"] = (spec.lease_transitions or 0) + 1
        version = seen.metadata.resource_version
        made = await self._patch({"metadata": {"resourceVersion": version}, "spec": changes})
        self._won(made, started)
        return True

    async def _patch(self, patch: dict[str, object]) -> Lease:
        election = self.election
        made = await self._client.patch(Lease, election.name, MergePatch(patch), namespace=election.namespace)
        self.observe(made)
        return made

    def _won(self, lease: Lease, started: float) -> None:
        self.observe(lease)
        # From before the request was sent: the server cannot have counted from earlier.
        election = self.election
        self.fence.hold(started + election.renew_deadline, expiry=started + election.lease_duration)
