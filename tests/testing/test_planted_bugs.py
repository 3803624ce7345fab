"""Known mistakes of operators, planted one at a time: the campaign catches each of them.

Their kinds are those that Sieve (OSDI 2022) and Acto (SOSP 2023) found in operators that are widely used. Those in
the Redis sentinel operator are patched into it as it is; others stand in an operator as small as the mistake
allows. Further ones are in test_campaign.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar
from unittest import mock

import msgspec
import pytest
from bench.campaign import WORKLOADS
from bench.redis_model import in_memory

from mooring.actor import InSync
from mooring.kube import (
    AlreadyExists,
    Client,
    Conflict,
    Key,
    MergePatch,
    NotFound,
    Object,
    Part,
    Resource,
    owner_reference,
)
from mooring.kube.objects import core
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.sentinel import actor, effects, roll, settings, specs
from mooring.operators.redis.sentinel import status as sentinel_status
from mooring.operators.redis.sentinel.names import ROLE
from mooring.operators.redis.sentinel.specs import Specs
from mooring.operators.redis.sentinel.status import topology_status
from mooring.operators.redis.sentinel.steps import Steps
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.workload import effects as workload_effects
from mooring.operators.workload.rollout import HandOver
from mooring.runtime import Controller, Done, Manager, Result, crd
from mooring.testing.campaign import replay, run_campaign
from mooring.testing.faults import Fault, Plan
from mooring.testing.monitors import owned
from mooring.testing.redis import manifest
from mooring.testing.workload import Step, Workload, play

Select = Callable[[Fault], bool]


async def complaints(workload: Workload, select: Select) -> list[str]:
    """What the campaign says of a workload: of a run without faults, else of the plans that are selected."""
    try:
        result = await run_campaign(workload, only=lambda plan: select(plan.faults[0]))
    except ValueError as error:
        return [str(error)]
    if result.failures:
        kept_plan = Plan.load(result.failures[0].plan.dump())
        assert await replay(workload, kept_plan), "a failing plan does not fail again"
    return [said for one in result.failures for said in one.complaints]


def of(*kinds: str, at: str = "") -> Select:
    return lambda fault: fault.kind in kinds and at in fault.at


# --- in the Redis sentinel operator ---


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A mistake, the workload that meets it, and what a monitor says even where no fault strikes."""

    patch: Callable[[], AbstractContextManager[object]]
    workload: str
    says: str
    config: Mapping[str, str] | None = None


def all_sentinels_at_once() -> AbstractContextManager[object]:
    """Does not wait until a rolled sentinel is back."""

    def rolled(snapshot: Any, member: Any, server: Any) -> Any:
        rollout = roll._sentinels(snapshot)
        here = [pod for pod in rollout.old if not pod.terminating]
        return rollout.recreate(here[0], "it is old") if here else None

    return mock.patch.object(roll, "roll_sentinels", rolled)


def master_without_a_switch() -> AbstractContextManager[object]:
    """Rolls the master's pod like any other."""
    whole = roll.roll_redis

    def rolled(snapshot: Any, member: Any, server: Any) -> Any:
        verdict = whole(snapshot, member, server)
        if isinstance(verdict, HandOver):
            return roll._servers(snapshot).recreate(member.pod, "it is old")
        return verdict

    return mock.patch.object(roll, "roll_redis", rolled)


def new_label_before_the_old_is_gone() -> AbstractContextManager[object]:
    """Points the master's Service at two pods for a moment."""

    async def label_roles(ctx: Any, move: Any) -> None:
        for pod, role in sorted(move.roles.items(), key=lambda one: one[1] != "master"):
            body = MergePatch({"metadata": {"labels": {ROLE: role}}})
            await ctx.client.patch(core.Pod, pod, body, namespace=ctx.key.namespace)

    return mock.patch.object(workload_effects, "label_roles", label_roles)


def password_in_a_config_map() -> AbstractContextManager[object]:
    """Writes the password where everybody may read it."""
    whole = settings.base_conf

    def base_conf(spec: Any, learnt: Any = ()) -> str:
        return whole(spec, learnt) + f"masterauth {spec.password}\n"

    return mock.patch.object(specs, "base_conf", base_conf)


def status_with_the_time_of_day() -> AbstractContextManager[object]:
    """Writes its status in every pass."""

    def status(have: Any, look: Any, names: Any) -> Any:
        found = topology_status(have, look, names)
        nodes = [msgspec.structs.replace(one, since=look.now.isoformat()) for one in found.nodes or ()]
        return msgspec.structs.replace(found, nodes=nodes)

    return mock.patch.object(sentinel_status, "topology_status", status)


def children_without_an_owner() -> AbstractContextManager[object]:
    """Leaves everything behind when the cluster goes."""
    return mock.patch.object(
        Specs, "unowned", lambda self: [(type(one), one.metadata.name or "") for one in self.objects()]
    )


def claims_go_with_the_cluster() -> AbstractContextManager[object]:
    """Deletes the data with the custom resource."""
    return mock.patch.object(Specs, "keeps_claims", False)


def switch_without_holding_writes() -> AbstractContextManager[object]:
    """Lets the old master acknowledge writes that nobody will have."""

    async def hold(self: Steps, master: Any, move: Any) -> None:
        return None

    return mock.patch.object(Steps, "_hold", hold)


def forgotten_task() -> AbstractContextManager[object]:
    """Starts a task that nobody ends."""
    whole = actor.SentinelActor._listen
    begun: list[asyncio.Task[bool]] = []

    def listen(self: Any, ctx: Any, topology: Any, tls: Any) -> None:
        whole(self, ctx, topology, tls)
        if not begun:
            begun.append(asyncio.create_task(asyncio.Event().wait(), name="forgotten"))

    return mock.patch.object(actor.SentinelActor, "_listen", listen)


def step_that_changes_nothing() -> AbstractContextManager[object]:
    """Finds something to do wherever there is nothing to do."""
    whole = actor.SentinelActor.observe

    async def observe(self: Any, ctx: Any) -> Any:
        outcome = await whole(self, ctx)
        return ctx.act("Look", asyncio.sleep, 0, message="closer") if isinstance(outcome, InSync) else outcome

    return mock.patch.object(actor.SentinelActor, "observe", observe)


def mounted_configuration_removed() -> AbstractContextManager[object]:
    """Collects what running pods still mount."""
    return mock.patch.object(effects, "mounted", return_value=[])


IN_SENTINEL: Sequence[Planted] = (
    Planted(patch=all_sentinels_at_once, workload="roll-watchers", says="no quorum of sentinels is left"),
    Planted(patch=master_without_a_switch, workload="roll", says="no master is left without"),
    Planted(patch=new_label_before_the_old_is_gone, workload="roll", says="labelled masters, all at once"),
    Planted(patch=password_in_a_config_map, workload="password", says="a secret in configmaps"),
    Planted(patch=status_with_the_time_of_day, workload="create", says="never at rest"),
    Planted(patch=step_that_changes_nothing, workload="create", says="a step repeats: redisclusters"),
    Planted(patch=children_without_an_owner, workload="create", says="made without an owner"),
    Planted(patch=claims_go_with_the_cluster, workload="delete", says="deleted though it is to be kept"),
    Planted(
        patch=switch_without_holding_writes,
        workload="roll",
        says="two masters of one lineage",
        config={"min-slaves-to-write": "0"},
    ),
    Planted(patch=forgotten_task, workload="create", says="a task is left behind: forgotten"),
    Planted(patch=mounted_configuration_removed, workload="restart", says="mounts it: configmaps"),
)


async def create(client: Client, *, config: Mapping[str, str]) -> None:
    body = msgspec.json.encode(manifest("demo", persistence=False, config=dict(config)))
    await client.request("POST", RedisCluster.resource.path(namespace="default"), body=body)


@pytest.mark.parametrize("planted", IN_SENTINEL, ids=lambda one: one.patch.__name__)
async def test_a_bug_planted_in_the_sentinel_operator_is_caught(planted: Planted) -> None:
    workload = WORKLOADS[f"sentinel-{planted.workload}"]()
    if planted.config:
        workload = replace(workload, given=(partial(create, config=planted.config),))
    with in_memory(), planted.patch():
        trace = await play(workload, Plan(), until=lambda said: planted.says in said)

    assert any(planted.says in one for one in trace.violations), trace.violations[:10]


# --- in operators as small as the mistake allows ---


class TeamSpec(Part, frozen=True, kw_only=True):
    size: int | None = None
    text: str | None = None


class TeamStatus(Part, frozen=True, kw_only=True):
    phase: str | None = None


@crd()
class Team(Object, frozen=True, kw_only=True):
    """Wants as many ConfigMaps as it has members."""

    resource: ClassVar[Resource] = Resource("campaign.example.com", "v1", "Team", "teams")
    spec: TeamSpec | None = None
    status: TeamStatus | None = None


class Teams:
    """One process of an operator of Teams; as it stands, it is sound."""

    def __init__(self, manager: Manager) -> None:
        self.manager, self.client = manager, manager.client
        self.maps = manager.informers.of(ConfigMap, namespace="default")
        self.teams = manager.informers.of(Team)
        controller = Controller("teams", self.one_pass).watch(self.teams)
        manager.add(controller.owns(self.maps, Team))

    async def one_pass(self, key: Key) -> Result:
        team = self.teams.get(key)
        await (self.gone(key) if team is None else self.look(team))
        return Done()

    async def gone(self, key: Key) -> None:
        """Owner references do the rest."""

    def wanted(self, team: Team) -> list[ConfigMap]:
        size, text = (team.spec.size or 0, team.spec.text or "") if team.spec else (0, "")
        owner = [owner_reference(team)]
        return [
            ConfigMap(
                metadata=ObjectMeta(name=f"m{n}", namespace="default", owner_references=owner),
                data={"text": text},
            )
            for n in range(size)
        ]

    async def look(self, team: Team) -> None:
        wanted = {one.metadata.name: one for one in self.wanted(team)}
        for name, one in wanted.items():
            await self.keep(self.client.find(ConfigMap, name or "", namespace="default"), one)
        for live in self.client.list(ConfigMap, namespace="default"):
            if live.metadata.name not in wanted and (live.metadata.name or "").startswith("m"):
                await self.drop(live)
        await self.say(team, "Ready")

    async def keep(self, live: ConfigMap | None, wanted: ConfigMap) -> None:
        if live is None:
            with suppress(AlreadyExists):
                await self.client.create(wanted)
        elif live.data != wanted.data:
            await self.edit(live, wanted)

    async def edit(self, live: ConfigMap, wanted: ConfigMap) -> None:
        meta = {"resourceVersion": live.metadata.resource_version}
        patch = MergePatch({"metadata": meta, "data": wanted.data})
        await self.client.patch(ConfigMap, live.metadata.name or "", patch, namespace="default")

    async def drop(self, live: ConfigMap) -> None:
        meta = live.metadata
        with suppress(NotFound):
            await self.client.delete(
                ConfigMap,
                meta.name or "",
                namespace="default",
                uid=meta.uid,
                resource_version=meta.resource_version,
            )

    async def say(self, team: Team, phase: str) -> None:
        if team.status is None or team.status.phase != phase:
            patch = MergePatch({"status": {"phase": phase}})
            name = team.metadata.name or ""
            await self.client.patch(Team, name, patch, namespace="default", subresource="status")


class SwallowsConflicts(Teams):
    """Takes a conflict for somebody else's business."""

    async def edit(self, live: ConfigMap, wanted: ConfigMap) -> None:
        with suppress(Conflict):
            await super().edit(live, wanted)


class ForgetsWhatItDidNotFinish(Teams):
    """Notes in the process that it has seen a generation, before it has acted upon it."""

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.seen: set[tuple[str | None, int | None]] = set()

    async def look(self, team: Team) -> None:
        what = team.metadata.uid, team.metadata.generation
        if what not in self.seen:
            self.seen.add(what)
            await super().look(team)


class StaysLocked(Teams):
    """Keeps others out while it works, and for ever when that fails."""

    busy = False

    async def look(self, team: Team) -> None:
        if not self.busy:
            self.busy = True
            await super().look(team)
            self.busy = False


class DropsANamesake(Teams):
    """Deletes by name alone, in a namespace that it does not even look into."""

    async def look(self, team: Team) -> None:
        await super().look(team)
        with suppress(NotFound):
            await self.client.delete(ConfigMap, "m0", namespace="kube-system")


class NeedsToSeeThemGo(Teams):
    """Makes a child anew only once it saw the old one go."""

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.there: dict[str, str] = {}

    async def keep(self, live: ConfigMap | None, wanted: ConfigMap) -> None:
        name = wanted.metadata.name or ""
        owner = (wanted.metadata.owner_references or [])[0].uid or ""
        if live is None and self.there.get(name) == owner:
            return
        self.there[name] = owner
        await super().keep(live, wanted)


class FinalizerInMemory(Teams):
    """Remembers in the process that it has put its finalizer on, and so what it has to take off."""

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.held: set[str] = set()

    async def look(self, team: Team) -> None:
        uid, name = team.metadata.uid or "", team.metadata.name or ""
        if team.metadata.deletion_timestamp is not None:
            if uid in self.held:
                patch = MergePatch({"metadata": {"finalizers": None}})
                await self.client.patch(Team, name, patch, namespace="default")
            return
        if not team.metadata.finalizers:
            self.held.add(uid)
            patch = MergePatch({"metadata": {"finalizers": ["campaign.example.com/team"]}})
            await self.client.patch(Team, name, patch, namespace="default")
        await super().look(team)


class WaitsByTheWallClock(Teams):
    """Is ready ten seconds after it began, by a clock that somebody may set."""

    async def look(self, team: Team) -> None:
        until = self.manager.clock.now().timestamp() + 10
        await super().look(team)
        while (left := until - self.manager.clock.now().timestamp()) > 0:
            await self.manager.clock.sleep(min(left, 5.0))
        await self.say(team, "Settled")

    async def say(self, team: Team, phase: str) -> None:
        if phase != "Ready":
            await super().say(team, phase)


class NoOwner(Teams):
    """Relies on itself to be there when the Team goes."""

    def wanted(self, team: Team) -> list[ConfigMap]:
        bare = [ObjectMeta(name=one.metadata.name, namespace="default") for one in super().wanted(team)]
        return [ConfigMap(metadata=meta, data={}) for meta in bare]


async def make(client: Client, size: int = 2) -> None:
    meta = ObjectMeta(name="t", namespace="default")
    await client.create(Team(metadata=meta, spec=TeamSpec(size=size, text="one")))


async def namesake(client: Client) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="m0", namespace="kube-system")))


async def change(client: Client, **spec: object) -> None:
    await client.patch(Team, "t", MergePatch({"spec": spec}), namespace="default")


async def remove(client: Client) -> None:
    await client.delete(Team, "t", namespace="default")


RESIZED = (make, partial(change, size=1), partial(change, size=2, text="two"))
EDITED = (partial(make, size=1), partial(change, text="two"))
GONE = (make, remove)
BACK = (make, remove, make)


def team(kind: type[Teams], steps: Sequence[Step] = RESIZED) -> Workload:
    return Workload(
        name="team", kinds=(Team,), operator=kind, steps=steps, endpoints=False, monitors=(owned(),)
    )


@pytest.mark.full
async def test_a_sound_operator_of_teams_passes_every_plan() -> None:
    result = await run_campaign(team(Teams))

    assert [str(one) for one in result.failures] == []
    assert result.plans > 60


@pytest.mark.parametrize(
    ("kind", "steps", "select", "says"),
    [
        (SwallowsConflicts, EDITED, of("conflict"), "data.text is 'one', not 'two'"),
        (ForgetsWhatItDidNotFinish, RESIZED, of("error"), "is not there at the end: configmaps default/m"),
        (StaysLocked, RESIZED, of("error"), "is not there at the end: configmaps default/m"),
        (
            DropsANamesake,
            (namesake, make),
            of(),
            "deleted without having been seen: configmaps kube-system/m0",
        ),
        (WaitsByTheWallClock, RESIZED, of("wall"), "m1 was made 1 times, not 2"),
        (NoOwner, RESIZED, of(), "made without an owner: configmaps m0"),
        (NeedsToSeeThemGo, BACK, of("skip", "delay"), "is not there at the end: configmaps default/m"),
        (FinalizerInMemory, GONE, of("crash-after"), "should not be there at the end: teams"),
    ],
)
async def test_a_bug_planted_in_an_operator_of_teams_is_caught(
    kind: type[Teams], steps: Sequence[Step], select: Select, says: str
) -> None:
    said = await complaints(team(kind, steps), select)

    assert any(says in one for one in said), said[:10]
