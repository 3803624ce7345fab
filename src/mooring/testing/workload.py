"""What a campaign runs: an operator, and what its users do, once for every plan of faults.

    RESIZE = Workload(
        name="website",
        kinds=(Website,),
        operator=lambda manager: run_actor(WebsiteActor(), manager),
        steps=(create, resize, delete),
    )
    trace = await play(RESIZE, Plan())

A step is one edit by a user; the next follows when all has been quiet for `QUIET` virtual seconds. What the run
did is in its `Trace`; `mooring.testing.oracles` judges it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import structlog

from mooring.cache.clock import Clock
from mooring.kube import Client, Object
from mooring.local.api.storage import Collection, Entry, Event
from mooring.runtime import Election, LeaseLost, Manager, redact
from mooring.testing.changes import Change
from mooring.testing.errors import NotInTime
from mooring.testing.faults import Faults, Plan, request_moment
from mooring.testing.monitors import Monitor, repeated
from mooring.testing.plane import QUIET, RESTLESS, ControlPlane
from mooring.testing.pods import PodModel
from mooring.testing.timeline import START, loaded_dice

__all__ = [
    "CALM",
    "LEASE",
    "Lives",
    "Step",
    "Trace",
    "Workload",
    "elects",
    "play",
    "run",
]

Step = Callable[[Client], Awaitable[object]]
"""One edit of a user's."""
JsonObject = dict[str, Any]

#: Virtual seconds without any write that have to follow the last step and the last fault.
CALM = 300.0
#: Virtual seconds after which a dead operator is started again.
RESTART = 1.0
LEASE = "default/campaign"
#: Seconds between two renewals, as far apart as they may be: in all the virtual quiet they are most of the work.
RENEW = 8.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """An operator and what users do; see the module's text.

    ``operator`` puts its controllers on a manager, anew for each process. ``given`` are steps before those that it
    is about: they are run, and no plan strikes in them (another workload's do). ``model`` makes what its pods do, anew
    for each run; ``secrets`` are words that may stand in Secrets and in specs of ``kinds`` alone; ``monitors`` look at every
    change. ``compared`` is given a resource (``pods``, ``deployments.apps``) and an object at the end, and returns
    what of it is compared: all, but where one tells of its past. ``controllers=False``: no other controllers, for
    an operator whose children need none; it is faster, and so is ``endpoints=False`` for one that asks for no
    Endpoints and EndpointSlices. ``alike``: objects that are numbered, as resource, namespace and what stands before the
    last ``-`` of the name. How many there are at the end is compared, and what they say, but neither which numbers are
    left nor how many there were on the way.
    """

    name: str
    kinds: Sequence[type[Object]]
    operator: Callable[[Manager], object]
    steps: Sequence[Step]
    given: Sequence[Step] = ()
    model: Callable[[ControlPlane], PodModel] | None = None
    controllers: bool = True
    endpoints: bool = True
    secrets: Sequence[str] = ()
    monitors: Sequence[Monitor] = ()
    compared: Callable[[str, JsonObject], JsonObject] = lambda resource, obj: obj
    alike: Sequence[tuple[str, str, str]] = ()


@dataclass
class Trace:
    """What happened in one run."""

    plan: Plan
    changes: list[Change] = field(default_factory=list)
    #: How many of them there were after the steps that are given.
    given: int = 0
    #: The operator's requests that change something, refused ones included, in order: moment and occurrence.
    requests: list[tuple[str, int]] = field(default_factory=list)
    #: What is there at the end, by resource, namespace and name.
    state: dict[tuple[str, str, str], JsonObject] = field(default_factory=dict)
    #: Of these what nobody has changed since the operator was started first: definitions, nodes, namespaces.
    untouched: frozenset[tuple[str, str, str]] = frozenset()
    #: Resources that the operator watched.
    watched: set[str] = field(default_factory=set)
    #: What nobody may do, whatever goes wrong.
    violations: list[str] = field(default_factory=list)
    #: Errors that were logged; faults may cause them.
    errors: list[str] = field(default_factory=list)
    #: Faults of the plan whose moment never came.
    missed: int = 0
    #: How often the operator's process was started.
    lives: int = 0
    virtual_seconds: float = 0.0


async def play(
    workload: Workload,
    plan: Plan,
    *,
    start: datetime = START,
    until: Callable[[str], bool] = lambda violation: False,
) -> Trace:
    """Run a workload under a plan, in a control plane of its own; the same plan takes the same course each time.

    The run ends early at the first violation for which ``until`` holds, of those that are seen while it goes on; its trace
    has no state then.
    """
    trace = Trace(plan)
    await run(workload, trace, start=start, elect=elects(plan), until=until)
    return trace


def elects(plan: Plan) -> bool:
    """Whether the operator has to hold a Lease for a plan's faults to mean anything."""
    return any(fault.kind in ("usurp", "suspend") for fault in plan.faults)


async def run(
    workload: Workload,
    trace: Trace,
    *,
    elect: bool,
    start: datetime = START,
    branch: Callable[[str, int], Plan | None] = lambda at, nth: None,
    until: Callable[[str], bool] = lambda violation: False,
) -> None:
    """Fill a trace with a run under its plan; ``branch`` may put another plan in its place: see `Faults.branch`.

    ``until``: see `play`.
    """
    before = asyncio.all_tasks()
    with _Noted(trace), loaded_dice(str(start)), structlog.testing.capture_logs() as logs:
        plane = ControlPlane(
            model=workload.model, controllers=workload.controllers, endpoints=workload.endpoints, start=start
        )
        async with plane:
            await plane.define(*workload.kinds)
            await _Play(workload, plane, trace, elect=elect, branch=branch, until=until).run()
            trace.virtual_seconds = plane.clock.monotonic()
    _judge_logs(workload, trace, logs)
    for task in asyncio.all_tasks() - before:
        trace.violations.append(f"a task is left behind: {task.get_name()}")
        task.cancel()


class Lives:
    """The processes of an operator under a plan, one after the other: it is started again whenever it died."""

    def __init__(self, workload: Workload, faults: Faults, *, clock: Clock, elect: bool) -> None:
        self._workload, self._faults, self._clock, self._elect = workload, faults, clock, elect
        #: How often it was started.
        self.number = 0
        #: What went wrong with a process, beside its being killed.
        self.complaints: list[str] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            client = Client(self._faults.transport(), field_manager=self._workload.name)
            died = self._faults.died
            await self._live(client, died)
            await self._clock.sleep(RESTART)

    async def _live(self, client: Client, died: asyncio.Event) -> None:
        namespace, name = LEASE.split("/")
        election = Election(name, namespace, retry_period=RENEW) if self._elect else None
        manager = Manager(client, name=self._workload.name, clock=self._clock, election=election, grace=0.0)
        self._workload.operator(manager)
        self.number += 1
        work = asyncio.create_task(manager.run(), name="operator")
        killed = asyncio.create_task(died.wait())
        try:
            await asyncio.wait({work, killed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not work.done():
                self._faults.die()
            work.cancel()
            killed.cancel()
            result = (await asyncio.gather(work, return_exceptions=True))[0]
            if isinstance(result, Exception) and not isinstance(result, LeaseLost) and not died.is_set():
                self.complaints.append(f"the operator's process ended: {result!r}")
            for controller in manager.controllers:
                if controller.stats.panics:
                    self.complaints.append(f"{controller.name}: {controller.stats.panics} passes panicked")


class _Play:
    def __init__(
        self,
        workload: Workload,
        plane: ControlPlane,
        trace: Trace,
        *,
        elect: bool,
        branch: Callable[[str, int], Plan | None],
        until: Callable[[str], bool],
    ) -> None:
        self._workload, self._plane, self._trace, self._elect = workload, plane, trace, elect
        self._until = until
        #: The task that takes the steps, while it may be ended early.
        self._taking: asyncio.Task[object] | None = None
        self._faults = Faults(trace.plan, plane)
        self._faults.on_write = lambda moment, nth: trace.requests.append((moment, nth))
        self._faults.branch = branch
        self._secrets = [word.encode() for word in workload.secrets]

    async def run(self) -> None:
        plane, trace = self._plane, self._trace
        plane.observe(self._note)
        before = {key: entry.rv for key, entry in _entries(plane).items()}
        lives = Lives(self._workload, self._faults, clock=plane.clock, elect=self._elect)
        operator = asyncio.create_task(lives.run(), name="operator's lives")
        self._taking = taking = asyncio.current_task()
        early = False
        try:
            await self._take_steps()
        except asyncio.CancelledError:
            if self._taking is not None or taking is None:
                raise
            taking.uncancel()
            early = True
        except NotInTime:
            last = ", ".join(f"{one.at} by {one.by or 'others'}" for one in trace.changes[-3:])
            trace.violations.append(f"never at rest; the last changes: {last}")
        self._taking = None
        trace.violations += self._faults.blind
        trace.missed = len(self._faults.missed)
        trace.watched = self._faults.watched
        entries = _entries(plane)
        if not early:  # what is still being made cannot be compared
            trace.state = {key: self._workload.compared(key[0], entry.obj) for key, entry in entries.items()}
        trace.untouched = frozenset(key for key, entry in entries.items() if before.get(key) == entry.rv)
        operator.cancel()
        result = (await asyncio.gather(operator, return_exceptions=True))[0]
        trace.lives = lives.number
        trace.violations += lives.complaints
        if isinstance(result, Exception):
            trace.violations.append(f"the operator's process ended: {result!r}")

    async def _take_steps(self) -> None:
        for number, step in enumerate((*self._workload.given, *self._workload.steps)):
            if number == len(self._workload.given):
                self._trace.given = len(self._trace.changes)
            await step(self._plane.client)
            await self._rest(QUIET)
        await self._rest(CALM)

    async def _rest(self, quiet: float) -> None:
        """Wait until all has been quiet for so long, and no fault that struck meanwhile lasts."""
        plane = self._plane
        await plane.settle(quiet)
        while (left := self._faults.over - plane.clock.monotonic()) > 0:
            await plane.clock.sleep(left)
            await plane.settle(quiet)

    # --- looking on

    def _note(self, collection: Collection, event: Event) -> None:
        if collection.resource in RESTLESS and not self._secrets:
            return
        self._look_for_secrets(collection.resource, event)
        if collection.resource in RESTLESS:
            return
        namespace, name = event.entry.place
        moment = f"{event.type} {collection.resource} {namespace}/{name}"
        by = request_moment.get()
        change = Change(
            moment,
            self._faults.count(moment),
            by,
            self._faults.count(by) if by else 0,
            collection.resource,
            event.type,
            event.entry.obj,
            event.previous.obj if event.previous is not None else None,
            self._plane.clock.monotonic(),
        )
        self._trace.changes.append(change)
        for monitor in (repeated, *self._workload.monitors):
            if said := monitor(change):
                self._violated(said)

    def _violated(self, said: str) -> None:
        self._trace.violations.append(said)
        if self._taking is not None and self._until(said):
            self._taking.cancel()
            self._taking = None

    def _look_for_secrets(self, resource: str, event: Event) -> None:
        """A user may have put one into a spec of his own; nobody may into anything but a Secret."""
        if resource == "secrets" or not self._secrets:
            return
        own = resource in {f"{kind.resource.plural}.{kind.resource.group}" for kind in self._workload.kinds}
        text = msgspec.json.encode(event.entry.obj.get("status")) if own else event.entry.tail
        if any(word in text for word in self._secrets):
            self._violated(f"a secret in {resource} {event.entry.name}")


def _entries(plane: ControlPlane) -> dict[tuple[str, str, str], Entry]:
    """All objects, but for what changes all the time and what every cluster has."""
    found: dict[tuple[str, str, str], Entry] = {}
    for collection in plane.server.cluster.store.collections():
        if collection.resource in RESTLESS or collection.resource.endswith(_EVERYWHERE):
            continue
        for entry in collection:
            found[(collection.resource, *entry.place)] = entry
    return found


_EVERYWHERE = ("rbac.authorization.k8s.io", "apiservices.apiregistration.k8s.io")


class _Noted(logging.Handler):
    """Takes errors that the API server logs, and what the event loop complains of."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.ERROR)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.violations.append(f"logged by {record.name}: {record.getMessage()}")

    def __enter__(self) -> None:
        logging.getLogger("mooring").addHandler(self)
        asyncio.get_running_loop().set_exception_handler(self._complain)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("mooring").removeHandler(self)
        asyncio.get_running_loop().set_exception_handler(None)

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._trace.violations.append(f"unhandled: {context.get('message')}: {context.get('exception')!r}")


def _judge_logs(workload: Workload, trace: Trace, logs: Sequence[Any]) -> None:
    for entry in logs:
        if entry.get("log_level") in ("error", "critical"):
            trace.errors.append(f"{entry.get('event')}: {entry.get('error', '')}")
        if workload.secrets:
            text = repr(redact(dict(entry)))
            trace.violations += [
                f"a secret in the log: {entry.get('event')}" for word in workload.secrets if word in text
            ]
