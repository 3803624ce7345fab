"""The work queue: nothing lost, nothing twice at a time, and nothing starves."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mooring.runtime.queue import LOW, NORMAL, QueueClosed, WorkQueue
from mooring.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(clock)


async def at_once(getting: asyncio.Task[str]) -> str:
    """What a waiting `get` returns without any time passing."""
    await asyncio.wait([getting], timeout=0.5)
    assert getting.done(), "still waiting"
    return getting.result()


async def test_adds_of_one_key_merge(queue: WorkQueue[str]) -> None:
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_key_added_while_worked_on_comes_again_only_after_done(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b"
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not getting.done()
    queue.done("a")
    assert await at_once(getting) == "a"


async def test_higher_priority_goes_first_and_raises_what_waits(queue: WorkQueue[str]) -> None:
    for key in "abc":
        queue.add(key, priority=LOW)
    queue.add("d", priority=NORMAL)
    queue.add("b", priority=NORMAL)
    assert [await queue.get() for _ in range(4)] == ["d", "b", "a", "c"]


async def test_a_key_tried_again_keeps_its_priority(queue: WorkQueue[str]) -> None:
    queue.add("patient", priority=LOW)
    assert await queue.get() == "patient"
    queue.retry("patient")
    queue.done("patient")
    queue.add("hasty")
    assert [await queue.get(), await queue.get()] == ["hasty", "patient"]


async def test_low_priority_does_not_starve(queue: WorkQueue[str]) -> None:
    queue.add("patient", priority=LOW)
    for number in range(100):
        queue.add(f"hasty{number}")
    order = [await queue.get() for _ in range(20)]
    assert "patient" in order


async def test_a_delayed_key_comes_at_its_time_or_sooner_if_asked(
    queue: WorkQueue[str], clock: VirtualClock
) -> None:
    queue.add("late", after=10)
    queue.add("soon", after=5)
    queue.add("late", after=20)
    assert (len(queue), queue.delayed) == (0, 2)
    await clock.advance(5)
    assert await queue.get() == "soon"
    await clock.advance(4.9)
    assert len(queue) == 0
    await clock.advance(0.1)
    assert await queue.get() == "late"
    queue.done("late")
    queue.add("late", after=100)
    queue.add("late")
    assert await queue.get() == "late"
    await clock.advance(200)
    assert len(queue) == 0, "the earlier add has taken the later one with it"


async def test_a_cancelled_getter_loses_nothing(queue: WorkQueue[str]) -> None:
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await at_once(second) == "a"
    assert first.cancelled() or await asyncio.gather(first, return_exceptions=True)


async def test_close_wakes_everybody(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("x")
    await queue.get()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add("later", after=5)
    queue.close()
    for getter in getters:
        with pytest.raises(QueueClosed):
            await at_once(getter)
    queue.retry("x")
    queue.done("x")
    assert clock.pending == 0


async def test_a_million_second_delays_do_not_pile_up(queue: WorkQueue[str], clock: VirtualClock) -> None:
    for number in range(2000):
        queue.add("a", after=1_000_000 - number)
    queue.add("tick", after=1)
    await clock.advance(1)
    assert len(queue._delayed) < 100


KEYS = st.sampled_from("abcde")


class QueueMachine(RuleBasedStateMachine):
    """Random adds, delays, gets, dones and cancelled gets against a model of what must still come."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock)
        self.due: dict[str, float] = {}
        self.working: set[str] = set()

    def run(self, coroutine: object) -> object:
        return self.loop.run_until_complete(coroutine)  # type: ignore[arg-type]

    @rule(key=KEYS, after=st.sampled_from([0.0, 0.0, 1.0, 5.0]), priority=st.sampled_from([LOW, NORMAL]))
    def add(self, key: str, after: float, priority: int) -> None:
        async def act() -> None:
            self.queue.add(key, after=after, priority=priority)

        self.run(act())
        due = self.clock.monotonic() + after
        self.due[key] = min(due, self.due.get(key, due))

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    def ready(self) -> set[str]:
        now = self.clock.monotonic()
        return {key for key, due in self.due.items() if due <= now and key not in self.working}

    @precondition(lambda self: bool(self.ready()))
    @rule()
    def get(self) -> None:
        key = self.run(asyncio.wait_for(self.queue.get(), 1))
        assert key in self.ready(), "handed out early, twice, or without an add"
        del self.due[str(key)]
        self.working.add(str(key))

    @precondition(lambda self: not self.ready())
    @rule()
    def get_nothing(self) -> None:
        async def act() -> None:
            getter = asyncio.create_task(self.queue.get())
            await self.clock.settle(3)
            assert not getter.done()
            getter.cancel()
            await asyncio.gather(getter, return_exceptions=True)

        self.run(act())

    @precondition(lambda self: bool(self.working))
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))

        async def act() -> None:
            self.queue.done(key)

        self.run(act())
        self.working.remove(key)

    @invariant()
    def nothing_is_lost(self) -> None:
        now = self.clock.monotonic()
        assert len(self.queue) == sum(due <= now for due in self.due.values())
        assert self.queue.working == len(self.working)
        assert all(key in self.queue for key in self.due)

    def teardown(self) -> None:
        self.loop.close()


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
