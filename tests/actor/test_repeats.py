"""A step that is taken again and again and changes nothing is held back and named."""

from __future__ import annotations

from tests.actor.greetings import Greeter, Greeting, condition, define, eventually, greeting, operated

from mooring.actor import STEP_REPEATS, Act, Context, Outcome
from mooring.actor.repeats import FIRST, MOST, TIMES, WINDOW, Repeats
from mooring.kube import Client, Key, MergePatch
from mooring.local.api.server import ApiServer
from mooring.testing.clock import VirtualClock

KEY = Key("default", "a")


async def nothing() -> None:
    return None


def act(message: str = "the password differs") -> Act:
    return Act("SetPassword", nothing, message)


class Clumsy(Greeter):
    """Its step does not do what it is for, as long as the text is "hi"."""

    def __init__(self, *, done: bool | None = None) -> None:
        super().__init__()
        self.taken = 0
        self._done = done

    async def observe(self, ctx: Context[Greeting]) -> Outcome:
        if ctx.obj.spec is None or ctx.obj.spec.text != "hi":
            return await super().observe(ctx)
        return ctx.act("SetPassword", self._step, message="the password differs")

    async def _step(self) -> bool | None:
        self.taken += 1
        return self._done


async def test_a_step_that_changes_nothing_is_held_back_and_named_and_counted() -> None:
    actor = Clumsy()
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await define(client, Greeting)
        async with operated(server.transport(), actor) as manager:
            await client.create(greeting())

            async def named() -> bool:
                found = await condition(client, "Progressing")
                return found is not None and found.reason == STEP_REPEATS

            await eventually(named)
            found = await condition(client, "Progressing")
            assert found is not None
            assert "SetPassword (the password differs)" in (found.message or "")
            assert TIMES <= actor.taken <= TIMES + 4
            text = manager.metrics.text().decode()
            assert 'mooring_actor_repeated_steps_total{controller="greeter"}' in text

            await client.patch(Greeting, "a", MergePatch({"spec": {"text": "bye"}}), namespace="default")

            async def goes_on() -> bool:
                found = await condition(client, "Ready")
                return found is not None and found.status == "True"

            await eventually(goes_on)


async def test_a_step_that_says_it_did_not_get_through_is_not_counted() -> None:
    actor = Clumsy(done=False)
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await define(client, Greeting)
        async with operated(server.transport(), actor):
            await client.create(greeting())

            async def taken() -> bool:
                return actor.taken > 3 * TIMES

            await eventually(taken)
            found = await condition(client, "Progressing")
            assert found is None or found.reason != STEP_REPEATS


async def test_it_is_held_back_longer_each_time_and_thirty_seconds_at_most() -> None:
    clock = VirtualClock()
    repeats = Repeats(clock)
    noticed = [repeats.taken(KEY, act(), generation=1) for _ in range(TIMES)]
    assert noticed == [False] * (TIMES - 1) + [True]
    delays = []
    for _ in range(8):
        wait = repeats.held(KEY, act())
        assert wait is not None
        delays.append(wait.after)
        await clock.advance(wait.after)
        assert repeats.held(KEY, act()) is None
        assert repeats.taken(KEY, act(), generation=1)
    assert delays == [FIRST, 2.0, 4.0, 8.0, 16.0, MOST, MOST, MOST]


async def test_steps_whose_reason_changes_are_progress() -> None:
    repeats = Repeats(VirtualClock())
    assert not any(repeats.taken(KEY, act(f"{left} slots are left"), generation=1) for left in range(100))
    assert repeats.held(KEY, act("0 slots are left")) is None


async def test_a_step_on_what_has_changed_since_is_no_repetition_and_one_on_what_has_not_is() -> None:
    repeats = Repeats(VirtualClock())

    def clear(version: int) -> Act:
        return Act("ClearLabels", nothing, "the pod was given back", state=str(version))

    assert not any(repeats.taken(KEY, clear(at), generation=1) for at in range(100))
    assert repeats.held(KEY, clear(100)) is None
    assert any(repeats.taken(KEY, clear(7), generation=1) for _ in range(TIMES))
    assert repeats.held(KEY, clear(7)) is not None


async def test_steps_that_undo_one_another_are_noticed() -> None:
    repeats = Repeats(VirtualClock())
    pairs = [
        repeats.taken(KEY, act(one), generation=1)
        for _ in range(TIMES)
        for one in ("on is declared", "off is")
    ]
    assert pairs[-2:] == [True, True]
    assert not any(pairs[:-2])


async def test_a_step_now_and_then_another_generation_and_being_in_sync_begin_from_nothing() -> None:
    clock = VirtualClock()
    repeats = Repeats(clock)
    for _ in range(3 * TIMES):
        assert not repeats.taken(KEY, act(), generation=1)
        await clock.advance(WINDOW / (TIMES - 1) + 0.1)
    assert not any(repeats.taken(KEY, act(), generation=one) for one in range(2, 2 + 2 * TIMES))
    for _ in range(3 * TIMES):
        assert not repeats.taken(KEY, act(), generation=100)
        repeats.forget(KEY)
