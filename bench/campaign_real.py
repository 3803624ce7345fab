"""A sample of the campaign's plans on real servers, in real time: what the models cannot show.

    python -m bench.campaign_real [WORKLOAD ...] [--plans 2] [--seed N]

The plans are derived as `make campaign` derives them, from a run with the models of bench/redis_model.py and
bench/cluster_model.py; so many of each workload are drawn and strike the same edits on an embedded control plane whose
pods are redis-server and redis-sentinel. A fault strikes at the first such request (or change) of the edit that the
workload is about. After it every server has to be in its role and serve, by its own word, with the declared configuration; every key
that was there before has to be there; every object has to have been made and deleted as often as in such a run without
a fault, and the containers to be the same; and all has to be quiet. A process that "crashes" is cancelled here: what it
is about to say to a server while it ends is said. What only virtual time shows is left out: waits of minutes, clocks that jump, lists from the past.
Exit status 1 when a plan fails or its moment does not come.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.campaign import NEW_PASSWORD, OLD_PASSWORD, WORKLOADS
from bench.cluster_model import in_virtual_time
from bench.redis_model import in_memory
from tests.operators.redis.cluster import stage as rec

from mooring.cache.clock import SystemClock
from mooring.kube import Client, Transport
from mooring.kube.object import to_dict
from mooring.kube.objects.apps import StatefulSet
from mooring.local.api.storage import Collection, Event
from mooring.operators.host import apply_crds
from mooring.operators.redis import cluster as clusters
from mooring.operators.redis.dial import DialError
from mooring.operators.registry import Operator
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, NotInTime
from mooring.testing.campaign import plans
from mooring.testing.faults import Fault, Faults, Plan
from mooring.testing.oracles import learn
from mooring.testing.plane import RESTLESS
from mooring.testing.redis import RedisStage
from mooring.testing.workload import Lives, Workload

__all__ = ["REAL", "drawn", "main"]

#: The workloads with servers that can be asked; the password that they have in the end.
REAL: Final = {
    **dict.fromkeys(("sentinel-create", "sentinel-grow", "sentinel-shrink", "sentinel-watchers"), ""),
    **dict.fromkeys(
        ("sentinel-configure", "sentinel-restart", "sentinel-roll", "sentinel-roll-watchers"), ""
    ),
    "sentinel-password": NEW_PASSWORD,
    **dict.fromkeys(("cluster-create", "cluster-grow", "cluster-shrink", "cluster-roll"), ""),
    "cluster-password": NEW_PASSWORD,
}
#: What needs neither minutes nor a clock that can be moved.
KINDS: Final = (
    *("crash-before", "crash-after", "lost-answer", "reset", "conflict", "throttle", "error"),
    *("cut", "torn", "gone"),
)
KEYS = 500
WITHIN = 120.0
"""Seconds for an edit to be carried out."""
QUIET = 5.0
"""Seconds without a write at the end, which have to come within `CALM`."""
CALM = 60.0
#: Objects whose names hold a hash or a uid, and those that come and go by themselves.
MADE_UP: Final = frozenset({"controllerrevisions.apps", "persistentvolumes"})
UNCOUNTED: Final = frozenset({"endpoints", "endpointslices.discovery.k8s.io", *RESTLESS})


def drawn(names: Sequence[str], number: int, chance: random.Random) -> list[Plan]:
    """So many plans of each workload, at different moments where there are as many."""
    found: list[Plan] = []
    with in_memory(), in_virtual_time():
        for name in names:
            derived = plans(asyncio.run(learn(WORKLOADS[name]())), name)
            moments: dict[str, list[Fault]] = {}
            for (fault,) in (one.faults for one in derived if len(one.faults) == 1):
                if fault.kind in KINDS:
                    moments.setdefault(fault.at, []).append(_at(fault))
            struck = chance.sample(sorted(moments), min(number, len(moments)))
            found += [Plan(workload=name, faults=(chance.choice(moments[at]),)) for at in struck]
    return found


def _at(fault: Fault, nth: int = 1) -> Fault:
    """The same fault at another occurrence of its moment."""
    return Fault(kind=fault.kind, at=fault.at, nth=nth, seconds=fault.seconds)


class _RealTime(SystemClock):
    """Time that nobody can move."""

    def suspend(self, seconds: float) -> None:
        """See `Movable.suspend`."""
        raise ValueError("the time of real servers passes by itself")

    def set_wall(self, seconds: float) -> None:
        """See `Movable.set_wall`."""
        raise ValueError("the time of real servers passes by itself")


class _Embedded:
    """A bed's control plane as faults see it: a `Boundary`."""

    def __init__(self, bed: Bed) -> None:
        self._server = bed.plane.server
        self.clock = _RealTime()
        self.client: Client = bed.plane.client("user")

    def transport(self, agent: str) -> Transport:
        """See `Boundary.transport`."""
        return self._server.transport(agent=agent)

    def observe(self, observer: Callable[[Collection, Event], None]) -> None:
        """See `Boundary.observe`."""
        self._server.cluster.store.observers.append(observer)


@dataclass(frozen=True)
class Course:
    """What one run came to."""

    counts: Counter[tuple[str, str]]
    """How often objects were made and deleted, by what happened and whom to; made-up names count as one."""
    containers: dict[str, Any]
    """Image and resources of every container of every StatefulSet, in the end."""
    complaints: tuple[str, ...]


class _Servers:
    """The servers of a workload's cluster, asked by themselves."""

    def __init__(self, bed: Bed, name: str) -> None:
        self._bed, self.is_cluster = bed, name.startswith("cluster-")
        before = OLD_PASSWORD if REAL[name] else ""
        self._sentinel = RedisStage(bed, "demo", password=before)
        self._cluster = rec.Stage(bed, "demo", password=before)
        self._after = REAL[name]

    async def exact(self) -> None:
        """Wait until all is as declared, by the servers' own word."""
        if self.is_cluster:
            obj = await self._bed.get(clusters.RedisCluster, "demo")
            await self._cluster.exact((obj.spec.replicas if obj.spec else None) or 0, within=WITHIN)
        else:
            await self._sentinel.exact(WITHIN)
            await self._configured()

    async def _configured(self) -> None:
        """What the sentinel operator's resource declares of the configuration, asked of every server."""
        spec = (await self._sentinel.get()).spec
        declared = {"maxmemory-policy": "noeviction", "tcp-backlog": "511", **((spec and spec.config) or {})}
        for pod in await self._sentinel.pods("redis"):
            for key, value in declared.items():
                if (found := await self._sentinel.config(pod.metadata.name or "", key)) != value:
                    raise NotInTime(f"{pod.metadata.name} has {key} {found}, not {value}")

    def edited(self) -> None:
        """From now on the new password holds."""
        self._sentinel.password = self._cluster.password = self._after

    async def fill(self) -> None:
        """Write keys that every replica has."""
        await (self._cluster.fill(KEYS) if self.is_cluster else self._sentinel.fill(KEYS))

    async def kept(self) -> int:
        """How many of them there are."""
        if self.is_cluster:
            return await self._cluster.kept(KEYS)
        return await self._sentinel.kept(await self._sentinel.master(), KEYS)


class _Run:
    """One plan, on a bed."""

    def __init__(self, bed: Bed, plan: Plan) -> None:
        self._bed, self._plan = bed, plan
        self._workload: Workload = WORKLOADS[plan.workload]()
        self._plane = _Embedded(bed)
        self._faults = Faults(Plan(workload=plan.workload), self._plane)
        self._servers = _Servers(bed, plan.workload)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._written = 0.0
        self._armed = False

    async def course(self) -> Course:
        """Make the cluster, edit it while the plan strikes, and look."""
        self._plane.observe(self._note)
        self._faults.branch = self._strike
        lives = Lives(self._workload, self._faults, clock=self._plane.clock, elect=False)
        said: list[str] = []
        async with _running(lives, self._faults, said):
            try:
                await self._live(said)
            except (NotInTime, DialError) as error:
                said.append(str(error) or type(error).__name__)
        if self._plan.faults and not self._faults.struck:
            said.append("the moment of the fault did not come")
        return Course(self._counts, await self._containers(), (*said, *lives.complaints))

    async def _containers(self) -> dict[str, Any]:
        found = (await self._bed.client.list(StatefulSet, namespace="default")).items
        specs = {one.metadata.name or "": to_dict(one)["spec"]["template"]["spec"] for one in found}
        return {
            f"{name}/{container['name']}": (container["image"], container.get("resources"))
            for name, spec in specs.items()
            for container in spec["containers"]
        }

    async def _live(self, said: list[str]) -> None:
        workload, client = self._workload, self._bed.plane.client("user")
        for step in workload.given:
            await step(client)
            await self._servers.exact()
        if workload.given:
            await self._servers.fill()
        self._armed = True
        for step in workload.steps:
            await step(client)
            self._servers.edited()
            await self._servers.exact()
        await self._calm()
        if workload.given and (kept := await self._servers.kept()) != KEYS:
            said.append(f"{KEYS - kept} of {KEYS} keys are gone")
        self._armed = False

    async def _calm(self) -> None:
        began = time.monotonic()
        while time.monotonic() - max(self._written, began) < QUIET:
            if time.monotonic() - began > CALM:
                raise NotInTime(f"after {CALM:.0f} s there are still writes")
            await asyncio.sleep(0.2)

    def _note(self, collection: Collection, event: Event) -> None:
        if collection.resource in RESTLESS or not self._armed:
            return
        self._written = time.monotonic()
        if event.type in ("ADDED", "DELETED") and collection.resource not in UNCOUNTED:
            name = "" if collection.resource in MADE_UP else f" {event.entry.name}"
            self._counts[event.type, f"{collection.resource}{name}"] += 1

    def _strike(self, moment: str, nth: int) -> Plan | None:
        """The fault strikes when its moment first comes after what is given."""
        (fault,) = self._plan.faults or (None,)
        if not self._armed or fault is None or fault.at != moment or self._faults.struck:
            return None
        return Plan(workload=self._plan.workload, faults=(_at(fault, nth),))


@asynccontextmanager
async def _running(lives: Lives, faults: Faults, said: list[str]) -> AsyncIterator[None]:
    task = asyncio.create_task(lives.run(), name="operator's lives")
    try:
        yield
    finally:
        faults.die()
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(result, Exception):
            said.append(f"the operator's process ended: {result!r}")


async def _strike(sample: Sequence[Plan], directory: Path, say: Callable[[str], None]) -> int:
    """Run them all; returns how many failed."""
    failed = 0
    usual: dict[str, Course] = {}
    for number, plan in enumerate(sample):
        if plan.workload not in usual:
            without = Plan(workload=plan.workload)
            usual[plan.workload] = await _course(without, directory / f"{plan.workload}")
            if said := usual[plan.workload].complaints:
                say(f"FAILED  {plan.workload} without a fault: {'; '.join(said)}")
                return failed + 1
        began = time.monotonic()
        course = await _course(plan, directory / str(number))
        complaints = [*course.complaints, *_miscounted(usual[plan.workload].counts, course.counts)]
        if course.containers != usual[plan.workload].containers:
            complaints.append(f"the containers are {course.containers}")
        failed += bool(complaints)
        say(f"{'FAILED' if complaints else 'ok':7s} {plan} ({time.monotonic() - began:.0f} s)")
        for complaint in complaints:
            say(f"        {complaint}")
    return failed


async def _course(plan: Plan, directory: Path) -> Course:
    """One run on a control plane of its own."""
    kinds = tuple(WORKLOADS[plan.workload]().kinds)
    async with Bed(directory, operators=()) as bed:
        await apply_crds(bed.plane.client("mooring"), [Operator(plan.workload, kinds, lambda *_: None)])
        return await _Run(bed, plan).course()


def _miscounted(usual: Counter[tuple[str, str]], found: Counter[tuple[str, str]]) -> list[str]:
    """What was made or deleted more or less often than without a fault."""
    return [
        f"{whom} was {'made' if what == 'ADDED' else 'deleted'} {found[what, whom]} times, not {usual[what, whom]}"
        for what, whom in sorted(usual.keys() | found.keys())
        if usual[what, whom] != found[what, whom]
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="campaign_real", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(REAL)} (all)")
    parser.add_argument("--plans", type=int, default=2, help="of each workload (2)")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, printed")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options: Any = _parser().parse_args(arguments)
    if unknown := sorted(set(options.workloads) - set(REAL)):
        print(f"no workload {', '.join(unknown)}; there are {', '.join(REAL)}", file=sys.stderr)
        return 2
    configure_logging(level="critical")
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    sample = drawn(options.workloads or list(REAL), options.plans, random.Random(seed))
    print(f"seed {seed}: {len(sample)} plans", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="mooring-campaign-"))
    try:
        failed = asyncio.run(_strike(sample, directory, lambda text: print(text, flush=True)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{len(sample)} plans on real servers, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
