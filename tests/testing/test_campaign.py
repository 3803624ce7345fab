"""The campaign passes a sound operator and catches the bugs that it is there for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar

import pytest

from mooring.kube import (
    AlreadyExists,
    ApiError,
    Client,
    Invalid,
    Key,
    MergePatch,
    Object,
    Part,
    Resource,
    TooManyRequests,
    TransportError,
    owner_reference,
)
from mooring.kube.objects.core import ConfigMap, Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import Controller, Done, Manager, Result, crd
from mooring.testing.campaign import plans, replay, run_campaign
from mooring.testing.changes import Change
from mooring.testing.faults import Fault, Plan
from mooring.testing.oracles import learn
from mooring.testing.workload import Trace, Workload, play


class PairSpec(Part, frozen=True, kw_only=True):
    text: str | None = None


class PairStatus(Part, frozen=True, kw_only=True):
    phase: str | None = None


@crd()
class Pair(Object, frozen=True, kw_only=True):
    """Wants two ConfigMaps."""

    resource: ClassVar[Resource] = Resource("campaign.example.com", "v1", "Pair", "pairs")
    spec: PairSpec | None = None
    status: PairStatus | None = None


Reconcile = Callable[[Manager, Pair], Awaitable[None]]


def child(pair: Pair, name: str, *, generate: bool = False) -> ConfigMap:
    meta = ObjectMeta(
        name=None if generate else name,
        generate_name=f"{name}-" if generate else None,
        namespace="default",
        owner_references=[owner_reference(pair)],
    )
    return ConfigMap(metadata=meta, data={"text": (pair.spec.text if pair.spec else None) or ""})


def operator(reconcile: Reconcile) -> Callable[[Manager], object]:
    """An operator that does this for every Pair that is there."""

    def register(manager: Manager) -> None:
        maps = manager.informers.of(ConfigMap, namespace="default")

        async def one_pass(key: Key) -> Result:
            pair = manager.client.find(Pair, key.name, namespace=key.namespace)
            if pair is not None:
                await reconcile(manager, pair)
            return Done()

        controller = Controller("pairs", one_pass).watch(manager.informers.of(Pair))
        manager.add(controller.owns(maps, Pair))

    return register


async def say(manager: Manager, pair: Pair, phase: str) -> None:
    if pair.status is None or pair.status.phase != phase:
        patch = MergePatch({"status": {"phase": phase}})
        await manager.client.patch(
            Pair, pair.metadata.name or "", patch, namespace="default", subresource="status"
        )


async def sound(manager: Manager, pair: Pair) -> None:
    for name in ("left", "right"):
        if manager.client.find(ConfigMap, name, namespace="default") is None:
            try:
                await manager.client.create(child(pair, name))
            except AlreadyExists:
                await manager.client.refresh(ConfigMap, name, namespace="default")
    await say(manager, pair, "Ready")


async def done_before_it_is(manager: Manager, pair: Pair) -> None:
    """Says that it is done, and believes it, before the second is there."""
    if pair.status and pair.status.phase == "Ready":
        return
    if manager.client.find(ConfigMap, "left", namespace="default") is None:
        await manager.client.create(child(pair, "left"))
    await say(manager, pair, "Ready")
    await manager.client.create(child(pair, "right"))


async def twice(manager: Manager, pair: Pair) -> None:
    """Notes the generated child in its status only afterwards."""
    if pair.status is None:
        await manager.client.create(child(pair, "left", generate=True))
        await say(manager, pair, "Ready")


async def edge_triggered(manager: Manager, pair: Pair) -> None:
    """Makes the second only in the pass that made the first."""
    if manager.client.find(ConfigMap, "left", namespace="default") is None:
        await manager.client.create(child(pair, "left"))
        await manager.client.create(child(pair, "right"))
    await say(manager, pair, "Ready")


async def gives_up(manager: Manager, pair: Pair) -> None:
    """Takes any refusal for the last word."""
    for name in ("left", "right"):
        if manager.client.find(ConfigMap, name, namespace="default") is None:
            try:
                await manager.client.create(child(pair, name))
            except Exception:
                return
    await say(manager, pair, "Ready")


async def takes_its_own_for_anothers(manager: Manager, pair: Pair) -> None:
    """Gives up for good before what it finds made, though it made it itself and did not hear so."""
    if pair.status and pair.status.phase == "NameTaken":
        return
    for name in ("left", "right"):
        if manager.client.find(ConfigMap, name, namespace="default") is None:
            try:
                await manager.client.create(child(pair, name))
            except AlreadyExists:
                await say(manager, pair, "NameTaken")
                return
    await say(manager, pair, "Ready")


async def starts_from_scratch(manager: Manager, pair: Pair) -> None:
    """Deletes what is in its way, and makes it anew."""
    for name in ("left", "right"):
        if manager.client.find(ConfigMap, name, namespace="default") is None:
            try:
                await manager.client.create(child(pair, name))
            except AlreadyExists:
                await manager.client.delete(ConfigMap, name, namespace="default")
                await manager.client.create(child(pair, name))
    await say(manager, pair, "Ready")


async def marks_what_is_not_its_own(manager: Manager, pair: Pair) -> None:
    """Labels its namespace, which nobody else touches, when it meets what it made itself."""
    for name in ("left", "right"):
        if manager.client.find(ConfigMap, name, namespace="default") is None:
            try:
                await manager.client.create(child(pair, name))
            except AlreadyExists:
                await manager.client.live.patch(
                    Namespace, "default", MergePatch({"metadata": {"labels": {"met": name}}})
                )
                await manager.client.refresh(ConfigMap, name, namespace="default")
    await say(manager, pair, "Ready")


async def sends_again(manager: Manager, pair: Pair) -> None:
    """Takes a lost answer for a lost request, though what it asks for is another one each time."""
    if pair.status is None:
        await say(manager, pair, "Creating")
        try:
            await manager.client.create(child(pair, "left", generate=True))
        except TransportError:
            await manager.client.create(child(pair, "left", generate=True))
    await say(manager, pair, "Ready")


told: set[tuple[Manager, str]] = set()


async def silent(manager: Manager, pair: Pair) -> None:
    """Takes its status for written once it has tried."""
    for name in ("left", "right"):
        if manager.client.find(ConfigMap, name, namespace="default") is None:
            await manager.client.create(child(pair, name))
    if (which := (manager, pair.metadata.uid or "")) not in told:
        told.add(which)
        with suppress(ApiError):
            await say(manager, pair, "Ready")


async def stumbles(manager: Manager, pair: Pair) -> None:
    """Reads from a refusal what not every refusal says."""
    try:
        await sound(manager, pair)
    except ApiError as error:
        seconds: dict[int, float] = {429: 1.0, 500: 5.0}
        await manager.clock.sleep(seconds[error.status])
        raise


async def sleeps_over_it(manager: Manager, pair: Pair) -> None:
    """Waits as long as it is told to, and then forgets what for."""
    try:
        await sound(manager, pair)
    except TooManyRequests:
        await manager.clock.sleep(3)


async def talkative(manager: Manager, pair: Pair) -> None:
    """Copies the secret text into the status."""
    await say(manager, pair, f"Ready with {pair.spec.text if pair.spec else ''}")


async def create(client: Client) -> None:
    meta = ObjectMeta(name="p", namespace="default")
    await client.create(Pair(metadata=meta, spec=PairSpec(text="hunter2")))


def workload(reconcile: Reconcile) -> Workload:
    return Workload(
        name="pairs", kinds=(Pair,), operator=operator(reconcile), steps=(create,), controllers=False
    )


async def test_a_sound_operator_passes_every_plan() -> None:
    kinds: set[str] = set()

    result = await run_campaign(workload(sound), told=lambda plan, _: kinds.add(plan.faults[0].kind))

    assert [str(one) for one in result.failures] == []
    assert result.plans > 40
    assert result.missed == 0
    assert kinds >= {
        "crash-before",
        "crash-after",
        "lost-answer",
        "conflict",
        "stale",
        "delay",
        "usurp",
        "stall",
    }


@pytest.mark.parametrize(
    ("reconcile", "caught_by", "complaint"),
    [
        (done_before_it_is, "crash-after", "is not there at the end: configmaps default/right"),
        (edge_triggered, "crash-after", "is not there at the end: configmaps default/right"),
        (twice, "crash-after", "left-*"),
        (gives_up, "conflict", "is not there at the end"),
        (takes_its_own_for_anothers, "lost-answer", "pairs.campaign.example.com default/p: status"),
        (starts_from_scratch, "lost-answer", "was made 2 times, not 1"),
        (sends_again, "lost-answer", "left-*"),
        (marks_what_is_not_its_own, "lost-answer", "namespaces default: metadata.labels.met is"),
        (silent, "error", "pairs.campaign.example.com default/p: status"),
        (stumbles, "invalid", "panicked"),
        (sleeps_over_it, "throttle", "pairs.campaign.example.com default/p: status"),
    ],
)
async def test_a_planted_bug_is_caught_and_its_plan_catches_it_again(
    reconcile: Reconcile, caught_by: str, complaint: str
) -> None:
    result = await run_campaign(workload(reconcile), only=lambda plan: plan.faults[0].kind == caught_by)

    caught = [one for one in result.failures if any(complaint in said for said in one.complaints)]
    assert caught, result
    kept = Plan.load(caught[0].plan.dump())
    assert any(complaint in said for said in await replay(workload(reconcile), kept))


async def test_a_secret_outside_of_secrets_is_told() -> None:
    leaking = workload(talkative)
    with_secret = Workload(**{**vars(leaking), "secrets": ("hunter2",)})

    with pytest.raises(ValueError, match="a secret in pairs"):
        await learn(with_secret)
    assert (await play(leaking, Plan())).violations == []


async def test_an_operator_that_never_rests_is_told() -> None:
    async def restless(manager: Manager, pair: Pair) -> None:
        await say(manager, pair, f"at {manager.clock.monotonic()}")
        await manager.clock.sleep(25)

    trace = await play(workload(restless), Plan())

    assert any(said.startswith("never at rest") and "pairs" in said for said in trace.violations)


async def test_a_task_that_is_left_behind_is_told() -> None:
    forgotten: list[object] = []

    async def leaking(manager: Manager, pair: Pair) -> None:
        if not forgotten:
            forgotten.append(asyncio.create_task(asyncio.Event().wait(), name="forgotten"))

    trace = await play(workload(leaking), Plan())

    assert trace.violations == ["a task is left behind: forgotten"]


async def test_a_bug_in_a_pass_is_told() -> None:
    async def buggy(manager: Manager, pair: Pair) -> None:
        raise AttributeError("oops")

    trace = await play(workload(buggy), Plan())

    assert any("panicked" in said for said in trace.violations)


async def test_an_extra_deletion_shows_though_the_end_is_the_same() -> None:
    async def hasty(manager: Manager, pair: Pair) -> None:
        """Starts from scratch when a child is there that it has not noted yet."""
        left = manager.client.find(ConfigMap, "left", namespace="default")
        if left is not None and pair.status is None:
            await manager.client.delete(ConfigMap, "left", namespace="default")
            left = None
        if left is None:
            await manager.client.create(child(pair, "left"))
        await say(manager, pair, "Ready")

    result = await run_campaign(workload(hasty), only=lambda plan: plan.faults[0].kind == "crash-after")

    said = [complaint for one in result.failures for complaint in one.complaints]
    assert "configmaps default/left was made 2 times, not 1" in said
    assert "configmaps default/left was deleted 1 times, not 0" in said


async def test_a_fault_that_strikes_in_the_calm_is_waited_for() -> None:
    async def late(manager: Manager, pair: Pair) -> None:
        """Makes the second long after the first, and what was refused again after five minutes."""
        if manager.client.find(ConfigMap, "left", namespace="default") is None:
            await manager.client.create(child(pair, "left"))
        await manager.clock.sleep(100)
        while manager.client.find(ConfigMap, "right", namespace="default") is None:
            try:
                await manager.client.create(child(pair, "right"))
            except Invalid:
                await manager.clock.sleep(310)

    refused = Fault(kind="invalid", at="POST /api/v1/namespaces/default/configmaps", nth=2)
    result = await run_campaign(workload(late), only=lambda plan: plan.faults == (refused,))

    assert result.plans == 1
    assert not result.failures


async def test_plans_are_for_what_mattered_alone() -> None:
    reference = await learn(workload(sound))

    derived = plans(reference, "pairs")

    assert len(derived) == len(set(derived))
    assert Fault(kind="crash-after", at="POST /api/v1/namespaces/default/configmaps", nth=2) in {
        plan.faults[0] for plan in derived
    }
    moments = {plan.faults[0].at for plan in derived}
    assert not any("leases" in moment or "events" in moment or "namespaces " in moment for moment in moments)


async def test_no_plan_strikes_in_the_steps_that_are_given() -> None:
    async def lose_one(client: Client) -> None:
        await client.delete(ConfigMap, "left", namespace="default")

    later = Workload(**{**vars(workload(sound)), "given": (create,), "steps": (lose_one,)})
    reference = await learn(later)

    derived = {plan.faults[0] for plan in plans(reference, "pairs")}

    first = "POST /api/v1/namespaces/default/configmaps"
    crashes = {(one.at, one.nth) for one in derived if one.kind == "crash-after"}
    assert crashes == {(first, 3)}
    assert {one.until for one in derived if one.kind == "stale"} == {
        "DELETED configmaps default/left",
        "ADDED configmaps default/left",
    }
    assert not (await run_campaign(later)).failures


async def test_news_that_nobody_acted_upon_are_not_held_back() -> None:
    async def edit_twice(client: Client) -> None:
        for text in ("one", "two"):
            await client.patch(Pair, "p", MergePatch({"spec": {"text": text}}), namespace="default")

    async def tells(manager: Manager, pair: Pair) -> None:
        await say(manager, pair, f"has {pair.spec.text if pair.spec else None}")

    edited = Workload(**{**vars(workload(tells)), "given": (create,), "steps": (edit_twice,)})

    derived = {plan.faults[0] for plan in plans(await learn(edited), "pairs")}

    held = {one.nth for one in derived if one.kind == "delay" and one.at.startswith("MODIFIED pairs")}
    assert held == {3, 4, 5}, "2 is the first edit, which the second followed at once"


def traced(*texts: str) -> Trace:
    """A run that ended with ConfigMaps of made-up names, in the order of these names."""
    trace = Trace(Plan())
    for number, text in enumerate(texts):
        meta = {"name": f"p-{number}x{number}", "generateName": "p-", "namespace": "default"}
        made = {"metadata": meta, "data": {"text": text}}
        change = Change("ADDED configmaps", 1, "", 0, "configmaps", "ADDED", made, None)
        trace.changes.append(change)
        trace.state[change.key] = made
    return trace


async def test_objects_of_made_up_names_are_compared_by_what_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = iter([traced("a", "b"), traced("b", "a")])

    async def runs_in_turn(*_: object, **__: object) -> Trace:
        return next(runs)

    monkeypatch.setattr("mooring.testing.oracles.play", runs_in_turn)
    reference = await learn(workload(sound))

    assert reference.judge(traced("b", "a")) == []
    assert reference.judge(traced("a", "c")) == ["configmaps default/p-*#2: data.text is 'c', not 'b'"]
