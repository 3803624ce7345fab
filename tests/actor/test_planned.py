"""The planned actor: its rooms come in one order, decisions are recorded before steps, and a failed step is decided again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace
from tests.actor.greetings import Greeting, GreetingStatus, condition, eventually, running
from tests.actor.greetings import greeting as declared

from mooring.actor import (
    ConditionState,
    Context,
    InSync,
    Move,
    Note,
    Outcome,
    Planned,
    Report,
    StepFailed,
    Terminal,
    Verdict,
    Wait,
)
from mooring.actor.planned import AFTER_FAILURE
from mooring.kube import Client, MergePatch
from mooring.kube.objects.events import Event


@dataclass(frozen=True, kw_only=True)
class Say(Move):
    """Say a text."""

    text: str


@dataclass(frozen=True)
class Heard:
    """A snapshot: what is wanted and what was said."""

    wanted: str
    said: tuple[str, ...]


@dataclass
class Speaker(Planned[Greeting, str, Heard]):
    """Says the text of a Greeting, and notes the rooms that it passes through."""

    kind = Greeting
    name: ClassVar[str] = "speaker"
    rooms: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    before: Outcome | None = None
    instead_of_inputs: Outcome | None = None
    child: Callable[[Context[Greeting]], Outcome | None] | None = None
    verdict: Callable[[Heard], Verdict] | None = None
    record: bool = False
    notes: tuple[Note, ...] = ()
    instead: Wait | Terminal | InSync | None = None
    answers: list[object] = field(default_factory=list)
    """What the steps give, in order: an exception to raise, or a result; then the default."""
    seen_by_step: list[str | None] = field(default_factory=list)

    async def precede(self, ctx: Context[Greeting]) -> Outcome | None:
        self.rooms.append("precede")
        return self.before

    async def inputs(self, ctx: Context[Greeting]) -> str | Outcome:
        self.rooms.append("inputs")
        return self.instead_of_inputs or (ctx.obj.spec and ctx.obj.spec.text) or ""

    def children(self, ctx: Context[Greeting], inputs: str) -> Outcome | None:
        self.rooms.append("children")
        return self.child(ctx) if self.child else None

    async def snapshot(self, ctx: Context[Greeting], inputs: str) -> Heard:
        self.rooms.append("snapshot")
        return Heard(inputs, tuple(self.said))

    def plan(self, snapshot: Heard) -> Verdict:
        self.rooms.append("plan")
        if self.verdict:
            return self.verdict(snapshot)
        if snapshot.wanted in snapshot.said:
            return InSync()
        return Say(text=snapshot.wanted, why="it was not said yet")

    def report(self, ctx: Context[Greeting], inputs: str, snapshot: Heard, verdict: Verdict) -> Report:
        self.rooms.append("report")
        shown = snapshot.wanted if isinstance(verdict, Move) else ",".join(snapshot.said)
        return Report(
            status=replace(ctx.obj.status or GreetingStatus(), said=shown),
            ready=ConditionState(bool(snapshot.said), "Speaks" if snapshot.said else "Silent", "as reported"),
            notes=self.notes,
            instead=self.instead,
            record=self.record,
        )

    async def step(self, ctx: Context[Greeting], inputs: str, snapshot: Heard, move: Move) -> Any:
        self.rooms.append("step")
        live = await ctx.client.live.get(Greeting, ctx.key.name, namespace=ctx.key.namespace)
        self.seen_by_step.append(live.status.said if live.status else None)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not False:
            self.said.append(snapshot.wanted)
        return answer

    def failed(
        self, ctx: Context[Greeting], snapshot: Heard, move: Move, message: str
    ) -> GreetingStatus | None:
        self.rooms.append("failed")
        return replace(ctx.obj.status or GreetingStatus(), said=f"failed: {message}")


async def said(client: Client) -> str | None:
    status = (await client.get(Greeting, "a", namespace="default")).status
    return status.said if status else None


def shows(client: Client, kind: str, reason: str) -> Callable[[], Any]:
    async def check() -> bool:
        found = await condition(client, kind)
        return found is not None and found.reason == reason

    return check


ONE_PASS = ["precede", "inputs", "children", "snapshot", "plan", "report"]


async def test_a_pass_goes_through_the_rooms_in_their_order_and_the_step_comes_last() -> None:
    actor = Speaker()
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "InSync"))
    assert actor.rooms == [*ONE_PASS, "step", *ONE_PASS]
    assert actor.said == ["hi"]


async def test_what_precedes_ends_the_pass_before_anything_is_read() -> None:
    actor = Speaker(before=Wait("OtherOperator", "another operator works on it", after=60))
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "OtherOperator"))
    assert actor.rooms == ["precede"]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Wait("SecretMissing", "the Secret is not there", after=60), "Progressing"),
        (Terminal("Bad", "no"), "Stalled"),
    ],
)
async def test_inputs_that_cannot_be_resolved_are_the_outcome_and_nothing_is_planned(
    outcome: Wait | Terminal, kind: str
) -> None:
    actor = Speaker(instead_of_inputs=outcome)
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, kind, outcome.reason))
        assert await said(client) is None
    assert actor.rooms == ["precede", "inputs"]


async def test_children_come_before_the_snapshot_and_end_the_pass() -> None:
    actor = Speaker(child=lambda ctx: ctx.wait("NameTaken", "somebody has it", after=60, stalled=True))
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Stalled", "NameTaken"))
    assert actor.rooms == ["precede", "inputs", "children"]


async def test_a_step_for_children_is_followed_by_a_pass_of_its_own() -> None:
    done: list[str] = []

    async def make() -> None:
        done.append("made")

    actor = Speaker(child=lambda ctx: None if done else ctx.act("Make", make))
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "InSync"))
    assert actor.rooms == ["precede", "inputs", "children", *ONE_PASS, "step", *ONE_PASS]


async def test_the_report_is_shown_with_readiness_and_events() -> None:
    actor = Speaker(
        verdict=lambda heard: Wait("Listening", "nobody asked", after=60),
        notes=(
            Note(reason="Heard", message="a note"),
            Note(reason="Lost", message="a warning", warning=True),
        ),
    )
    actor.said.append("before")
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "Listening"))
        assert await said(client) == "before"
        found = await condition(client, "Ready")
        assert found is not None
        assert (found.status, found.reason, found.message) == ("True", "Speaks", "as reported")

        async def recorded() -> bool:
            events = (await client.list(Event, namespace="default")).items
            return {("Heard", "Normal"), ("Lost", "Warning")} <= {(one.reason, one.type) for one in events}

        await eventually(recorded)
    assert "step" not in actor.rooms


async def test_what_a_report_puts_in_the_place_of_a_verdict_counts_for_waits_alone() -> None:
    blocked = Wait("Blocked", "spec.text cannot be met", after=60, stalled=True)
    actor = Speaker(instead=blocked)
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Stalled", "Blocked"))
    assert actor.said == ["hi"], "a move is carried out all the same"


@pytest.mark.parametrize(("record", "seen"), [(True, "hi"), (False, None)])
async def test_a_decision_is_in_the_status_before_its_step_where_the_report_says_so(
    record: bool, seen: str | None
) -> None:
    actor = Speaker(record=record)
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "InSync"))
    assert actor.seen_by_step == [seen]


async def test_a_step_that_failed_is_recorded_and_decided_again_after_a_moment() -> None:
    actor = Speaker(answers=[StepFailed("no voice")])
    async with running(actor) as client:
        began = asyncio.get_running_loop().time()
        await client.create(declared())
        await eventually(lambda: _holds(lambda: "failed" in actor.rooms))
        await eventually(lambda: _is(client, "failed: no voice"))
        await eventually(shows(client, "Progressing", "InSync"))
        assert asyncio.get_running_loop().time() - began >= AFTER_FAILURE
        found = await condition(client, "Stalled")
        assert found is not None
        assert found.status == "False"
    assert actor.rooms == [*ONE_PASS, "step", "failed", *ONE_PASS, "step", *ONE_PASS]
    assert actor.said == ["hi"]


async def test_a_step_that_failed_may_say_after_how_long_it_is_decided_again() -> None:
    actor = Speaker(answers=[StepFailed("somebody was faster", after=0.0)] * 3)
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "InSync"))
    assert actor.rooms.count("failed") == 3
    assert (StepFailed("no voice").after, StepFailed("no voice", after=0.0).after) == (AFTER_FAILURE, 0.0)


async def test_another_exception_of_a_step_is_a_failure_of_the_pass() -> None:
    actor = Speaker(answers=[ValueError("a defect")] * 3)
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "StepFailed"))
    assert "failed" not in actor.rooms


async def test_a_part_of_the_way_is_no_repeated_step() -> None:
    actor = Speaker(answers=[False] * 30)
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "InSync"))
    assert actor.rooms.count("step") == 31


async def test_a_step_that_is_done_and_asked_for_again_is_held_back() -> None:
    actor = Speaker(verdict=lambda heard: Say(text="again", why="the same"))
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "StepRepeats"))


async def test_the_status_that_a_step_leads_to_is_written_at_once() -> None:
    seen: list[str | None] = []
    actor = Speaker(answers=[GreetingStatus(said="done")])

    def verdict(heard: Heard) -> Verdict:
        return InSync() if heard.said else Say(text=heard.wanted, why="first")

    actor.verdict = verdict
    async with running(actor) as client:
        original = actor.inputs

        async def inputs(ctx: Context[Greeting]) -> str | Outcome:
            seen.append(ctx.obj.status.said if ctx.obj.status else None)
            return await original(ctx)

        actor.inputs = inputs  # type: ignore[method-assign]
        await client.create(declared())
        await eventually(shows(client, "Progressing", "InSync"))
    assert seen == [None, "done"], "the next pass finds it"


async def test_an_edit_is_planned_from_the_new_inputs() -> None:
    actor = Speaker()
    async with running(actor) as client:
        await client.create(declared())
        await eventually(shows(client, "Progressing", "InSync"))
        await client.patch(Greeting, "a", MergePatch({"spec": {"text": "bye"}}), namespace="default")
        await eventually(lambda: _is(client, "hi,bye"))
    assert actor.said == ["hi", "bye"]


async def _is(client: Client, text: str) -> bool:
    return await said(client) == text


async def _holds(check: Callable[[], bool]) -> bool:
    return check()
