"""Faults at the boundary between an operator and its API server, as data.

    plan = Plan(name="...", faults=(Fault(kind="crash-after", at="POST /api/v1/namespaces/default/configmaps"),))
    faults = Faults(plan, plane)
    manager = Manager(Client(faults.transport()), ...)

A fault strikes at a moment. That is the ``nth`` time the operator sends a request
(``PATCH /apis/apps/v1/namespaces/default/deployments/web``), or the ``nth`` time the server makes a change
(``MODIFIED deployments.apps default/web``), whoever caused it. A plan is JSON; one that fails can be kept.

| kind | at a | what happens |
|---|---|---|
| crash-before, crash-after | request | the process dies right before, or right after the server carried it out |
| lost-answer, reset | request | it is carried out and the answer is lost, or it never arrives |
| conflict, invalid, throttle, error | request | 409; 422; 429 with Retry-After; 500: not carried out |
| usurp | request | another process takes the Lease ``lease``, then the request goes on |
| suspend, wall | either | ``seconds`` pass in which nothing runs; the wall clock is set by ``seconds`` |
| cut, torn, gone | change | the watches that should tell it break; break within a line; end with 410 |
| stall | change | the watches that should tell it never tell anything again |
| delay | change | the watches tell it, and all that follows, ``seconds`` later |
| skip | change | watches tell nothing of it, nor of what follows, until ``until`` or for a minute; then they end with 410 |
| stale | change | at ``until`` the process dies; the next one fills its caches with what was at ``at``, for ``seconds``; what it asks live is of now |
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Literal, Protocol, get_args

import msgspec

from mooring.cache.clock import Timer, rfc3339
from mooring.kube import Client, MergePatch, Response, StreamResponse, Transport, TransportError
from mooring.kube.objects.coordination import Lease
from mooring.local.api.storage import Collection, Event

__all__ = ["KINDS", "Boundary", "Fault", "FaultKind", "Faults", "Movable", "Plan", "request_moment"]

FaultKind = Literal[
    "crash-before",
    "crash-after",
    "lost-answer",
    "reset",
    "conflict",
    "invalid",
    "throttle",
    "error",
    "usurp",
    "suspend",
    "wall",
    "cut",
    "torn",
    "gone",
    "stall",
    "delay",
    "skip",
    "stale",
]
KINDS: Final[tuple[str, ...]] = get_args(FaultKind)

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_CHANGES: Final = ("ADDED ", "MODIFIED ", "DELETED ")
_REFUSALS: Final = {
    "conflict": (
        409,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version",
    ),
    "invalid": (422, "Invalid", "an admission plugin does not like it today"),
    "throttle": (429, "TooManyRequests", "too many requests, please try again later"),
    "error": (500, "InternalError", "etcdserver: request timed out"),
}
RETRY_AFTER: Final = 3
#: Virtual seconds that ``skip`` waits for its other end: one that sees nothing may never write it.
PATIENCE: Final = 60.0
#: Virtual seconds after which what was refused for good has been tried again.
REFUSED: Final = 600.0

#: The moment of the request that is being carried out, for whoever observes the server's changes.
request_moment: ContextVar[str] = ContextVar("request_moment", default="")


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault; see the module's text. ``seconds`` is 30 unless given."""

    kind: FaultKind
    at: str
    nth: int = 1
    until: str = ""
    until_nth: int = 1
    seconds: float = 30.0
    lease: str = ""

    def __post_init__(self) -> None:
        needs_change = self.kind in ("cut", "torn", "gone", "stall", "delay", "skip", "stale")
        if self.kind not in ("suspend", "wall") and self.at.startswith(_CHANGES) != needs_change:
            raise ValueError(
                f"{self.kind} strikes at a {'change' if needs_change else 'request'}, not {self.at!r}"
            )
        if self.kind in ("skip", "stale") and not self.until.startswith(_CHANGES):
            raise ValueError(f"{self.kind} needs the change that it lasts until")
        if self.kind == "usurp" and "/" not in self.lease:
            raise ValueError("usurp needs the lease, as namespace/name")

    def __str__(self) -> str:
        nth = f" #{self.nth}" if self.nth > 1 else ""
        return f"{self.kind} at {self.at}{nth}" + (f" until {self.until}" if self.until else "")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to go wrong in one run of a workload; without faults: nothing."""

    workload: str = ""
    faults: tuple[Fault, ...] = ()

    @classmethod
    def load(cls, text: bytes | str) -> Plan:
        """From JSON; raises msgspec.ValidationError."""
        return msgspec.json.decode(text, type=cls)

    def dump(self) -> bytes:
        """As JSON, for a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def __str__(self) -> str:
        return f"{self.workload}: {'; '.join(map(str, self.faults)) or 'no fault'}"


def _lasts(fault: Fault) -> float:
    """Virtual seconds for which an operator may be held up; an object that came and went meanwhile is not waited for."""
    if fault.kind == "skip" and not fault.at.startswith("MODIFIED"):
        return 0.0
    return {"delay": fault.seconds + 1.0, "skip": PATIENCE, "stall": 2 * PATIENCE, "invalid": REFUSED}.get(
        fault.kind, 0.0
    )


class Movable(Protocol):
    """A clock that faults may move."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        ...

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """See `Clock.call_later`."""
        ...

    def suspend(self, seconds: float) -> None:
        """Pass time in which nothing runs."""
        ...

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        ...


class Boundary(Protocol):
    """What faults ask of a control plane: `ControlPlane` has it."""

    @property
    def clock(self) -> Movable:
        """Its time."""
        ...

    @property
    def client(self) -> Client:
        """An administrator's."""
        ...

    def transport(self, agent: str) -> Transport:
        """A transport into its server."""
        ...

    def observe(self, observer: Callable[[Collection, Event], None]) -> None:
        """Have every change told at the moment it is made."""
        ...


class _Gate:
    """What is held back of one resource's changes, from a version on."""

    def __init__(self, fault: Fault, resource: str, version: int) -> None:
        self.fault, self.resource, self.version = fault, resource, version
        self.opened = asyncio.Event()


class Faults:
    """Carries a plan out, over all the lives of an operator on a plane.

    `transport` is what a new process of the operator talks through; `died` is set when the plan ends it. What
    it does after that reaches nobody.
    """

    def __init__(self, plan: Plan, plane: Boundary) -> None:
        self._plane = plane
        self._clock = plane.clock
        self._waiting = list(plan.faults)
        self._count: Counter[str] = Counter()
        self._gates: list[_Gate] = []
        self._life: _Life | None = None
        #: Told of every request that changes something: its moment and which occurrence it is.
        self.on_write: Callable[[str, int], object] = lambda moment, nth: None
        #: Asked at every moment and occurrence for a plan that takes this one's place from there on.
        self.branch: Callable[[str, int], Plan | None] = lambda moment, nth: None
        #: Resources that the operator watched so far.
        self.watched: set[str] = set()
        #: When, by the clock, the last fault will be over that a user would wait for before the next edit.
        self.over = 0.0
        #: What was deleted though the process that asked for it never saw it: another object of that name was meant.
        #: Only where a server carries requests out one by one, as that of `ControlPlane` does.
        self.blind: list[str] = []
        #: The faults that came to strike.
        self.struck: list[Fault] = []
        self.died = asyncio.Event()
        #: While set, lists and watches of new processes show the past.
        self.frozen: int | None = None
        self.thawed = asyncio.Event()
        plane.observe(self._on_change)

    @property
    def missed(self) -> list[Fault]:
        """The faults whose moment never came."""
        return list(self._waiting)

    def transport(self) -> Transport:
        """A new process's transport; the one before is dead."""
        self.die()
        self.died = asyncio.Event()
        self._life = _Life(self, self._plane.transport("operator"), self.frozen)
        return self._life

    def die(self) -> None:
        """End the process that talks through the newest transport, as SIGKILL would."""
        if self._life is not None:
            self._life.dead = True
        self.died.set()

    # --- moments

    def _due(self, moment: str) -> list[Fault]:
        """The faults that begin at this occurrence of a moment."""
        self._count[moment] += 1
        if (plan := self.branch(moment, self._count[moment])) is not None:
            self._waiting = list(plan.faults)
        due = [one for one in self._waiting if one.at == moment and one.nth == self._count[moment]]
        for fault in due:
            self._waiting.remove(fault)
            self.struck.append(fault)
            self.over = max(self.over, self._clock.monotonic() + _lasts(fault))
        return due

    def count(self, moment: str) -> int:
        """How often a moment has come."""
        return self._count[moment]

    def on_request(self, moment: str) -> list[Fault]:
        """Count a request; returns what is to happen to it."""
        due = self._due(moment)
        self.on_write(moment, self._count[moment])
        for fault in due:
            self._move_clock(fault)
        return due

    def _move_clock(self, fault: Fault) -> None:
        if fault.kind == "suspend":
            self._clock.suspend(fault.seconds)
        elif fault.kind == "wall":
            self._clock.set_wall(fault.seconds)

    def _on_change(self, collection: Collection, event: Event) -> None:
        namespace, name = event.entry.place
        moment = f"{event.type} {collection.resource} {namespace}/{name}"
        if request_moment.get().startswith("DELETE ") and self._life is not None:
            uid = event.entry.obj["metadata"]["uid"]
            if uid.encode() not in self._life.seen:
                self.blind.append(
                    f"deleted without having been seen: {collection.resource} {namespace}/{name}"
                )
        count = self._count[moment] + 1
        for gate in self._gates:
            if (gate.fault.until, gate.fault.until_nth) == (moment, count):
                self._end(gate)
        for fault in self._due(moment):
            self._move_clock(fault)
            if fault.kind not in ("suspend", "wall"):
                self._begin(fault, collection.resource, event.rv)

    def _begin(self, fault: Fault, resource: str, version: int) -> None:
        gate = _Gate(fault, resource, version)
        self._gates.append(gate)
        if fault.kind in ("delay", "skip"):
            longest = fault.seconds if fault.kind == "delay" else PATIENCE
            self._clock.call_later(longest, gate.opened.set)

    def _end(self, gate: _Gate) -> None:
        """What lasts until a change has come to it."""
        if gate.fault.kind == "stale":
            # The old process sees the change yet; it takes a few turns of the loop.
            self._clock.call_later(0.05, lambda: self._freeze(gate))
        else:
            gate.opened.set()

    def _freeze(self, gate: _Gate) -> None:
        self.frozen = gate.version
        self.thawed = asyncio.Event()
        self.die()
        self._clock.call_later(gate.fault.seconds, self._thaw)

    def _thaw(self) -> None:
        self.frozen = None
        self.thawed.set()

    def gates(self, resource: str, version: int) -> list[_Gate]:
        """What concerns the news of a resource at a version."""
        return [
            g
            for g in self._gates
            if g.resource == resource and g.fault.kind != "stale" and version >= g.version
        ]

    async def usurp(self, fault: Fault) -> None:
        """Give a Lease to another process, which never renews it."""
        namespace, name = fault.lease.split("/")
        now = rfc3339(self._clock.now())[:-1] + ".000000Z"
        spec = {"holderIdentity": "usurper", "renewTime": now, "acquireTime": now, "leaseDurationSeconds": 15}
        await self._plane.client.patch(Lease, name, MergePatch({"spec": spec}), namespace=namespace)


class _Life:
    """The transport of one process."""

    def __init__(self, faults: Faults, inner: Transport, frozen: int | None) -> None:
        self._faults, self._inner, self._frozen = faults, inner, frozen
        #: UIDs in whatever this process was told.
        self.seen: set[bytes] = set()
        self.dead = False

    def note(self, text: bytes) -> bytes:
        """The text; what it names is seen from now on."""
        self.seen.update(_UIDS(text))
        return text

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
        """See `Transport.request`."""
        self._alive()
        send = _Sending(self._inner, method, path, query=query, body=body, headers=headers, timeout=timeout)
        if method in READS:
            # What fills a cache reads page by page, or names a version. A list that does neither is asked for since the
            # caches are not enough: it goes to the database, as single reads do.
            cached = not (query or {}).keys().isdisjoint(("limit", "resourceVersion"))
            answer = await (self._past(send) if cached and not self._shown_now else send.go())
            self.note(answer.body)
            return answer
        moment = f"{method} {path}"
        due = self._faults.on_request(moment)
        for fault in due:
            if fault.kind == "crash-before":
                await self._die()
            if fault.kind == "reset":
                raise TransportError(f"{moment}: connection reset by peer")
            if fault.kind in _REFUSALS:
                return _refusal(fault.kind)
            if fault.kind == "usurp":
                await self._faults.usurp(fault)
        answer = await send.go(moment)
        self._alive()
        for fault in due:
            if fault.kind == "crash-after":
                await self._die()
            if fault.kind == "lost-answer":
                raise TransportError(f"{moment}: no answer in time")
        self.note(answer.body)
        return answer

    @property
    def _shown_now(self) -> bool:
        return self._frozen is None or self._faults.thawed.is_set()

    async def _past(self, send: _Sending) -> Response:
        """A list as a server shows it that has heard of nothing for a while; single reads go to the database."""
        answer = await send.go()
        if answer.status == 200 and _is_list(answer.body):
            return await send.at(self._frozen or 0)
        return answer

    def _alive(self) -> None:
        if self.dead:
            raise TransportError("this process is dead")

    async def _die(self) -> None:
        self._faults.die()
        await asyncio.Event().wait()  # until whoever runs the process takes it away

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[StreamResponse]:
        """See `Transport.stream`."""
        self._alive()
        resource = _resource(path)
        self._faults.watched.add(resource)
        async with self._inner.stream(method, path, query=query, headers=headers, timeout=timeout) as stream:
            frozen = None if self._shown_now else self._frozen
            yield _Watch(self._faults, stream, resource, frozen, told=self.note)

    async def close(self) -> None:
        """See `Transport.close`."""


class _Sending:
    """One request, which may be sent in more than one way."""

    def __init__(self, inner: Transport, method: str, path: str, **options: Any) -> None:
        self._inner, self._method, self._path, self._options = inner, method, path, options

    async def go(self, moment: str = "") -> Response:
        """As it is."""
        token = request_moment.set(moment)
        try:
            return await self._inner.request(self._method, self._path, **self._options)
        finally:
            request_moment.reset(token)

    async def at(self, version: int) -> Response:
        """A list, as of a version."""
        query = {name: value for name, value in (self._options["query"] or {}).items() if name != "continue"}
        query |= {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
        return await self._inner.request(self._method, self._path, **{**self._options, "query": query})


class _News(msgspec.Struct):
    """As much of a watch's line as is needed."""

    class Object(msgspec.Struct):
        class Metadata(msgspec.Struct):
            resourceVersion: str = "0"

        metadata: Metadata = msgspec.field(default_factory=Metadata)

    type: str
    object: Object


_UIDS = re.compile(rb'"uid":"([^"]+)"').findall
_decode = msgspec.json.Decoder(_News).decode


class _Watch:
    """A watch that tells what the faults leave of it."""

    def __init__(
        self,
        faults: Faults,
        inner: StreamResponse,
        resource: str,
        frozen: int | None,
        *,
        told: Callable[[bytes], bytes],
    ) -> None:
        self._faults, self._inner, self._resource, self._told = faults, inner, resource, told
        self._frozen = frozen
        self._done = {
            id(gate) for gate in faults._gates if gate.fault.kind in ("cut", "torn", "gone", "stall")
        }
        self.status, self.headers = inner.status, inner.headers

    async def read(self) -> bytes:
        """See `StreamResponse.read`."""
        return await self._inner.read()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for line in self._inner:
            version = int(_decode(line).object.metadata.resourceVersion or 0)
            if self._frozen is not None and version > self._frozen:
                await self._faults.thawed.wait()
            for gate in self._faults.gates(self._resource, version):
                if id(gate) in self._done:
                    continue
                match gate.fault.kind:
                    case "cut":
                        raise TransportError("the stream broke")
                    case "torn":
                        yield line[: len(line) // 2]
                        return
                    case "gone":
                        yield _GONE
                        return
                    case "stall":
                        await asyncio.Event().wait()
                    case "delay":
                        await gate.opened.wait()
                    case "skip":
                        if gate.opened.is_set():
                            continue
                        await gate.opened.wait()
                        yield _GONE
                        return
            yield self._told(line)


_GONE: Final = msgspec.json.encode(
    {
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "too old resource version",
            "reason": "Expired",
            "code": 410,
        },
    }
)


class _Kind(msgspec.Struct):
    kind: str = ""


def _is_list(body: bytes) -> bool:
    return msgspec.json.decode(body, type=_Kind).kind.endswith("List")


def _refusal(kind: str) -> Response:
    code, reason, message = _REFUSALS[kind]
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    headers = {"Content-Type": "application/json"}
    if kind == "throttle":
        headers["Retry-After"] = str(RETRY_AFTER)
        status["details"] = {"retryAfterSeconds": RETRY_AFTER}
    return Response(code, headers, msgspec.json.encode(status))


def _resource(path: str) -> str:
    """The storage's name of what a watch's path lists: ``deployments.apps``."""
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[3:] if group else parts[2:]
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return f"{rest[0]}.{group}" if group else rest[0]
