"""What one object's trouble costs the others, and those who read its events."""

from __future__ import annotations

import asyncio

import msgspec

from mooring.actor import Context, Outcome, run_actor
from mooring.kube import MergePatch
from mooring.kube.objects.events import Event
from mooring.kube.objects.meta import ObjectMeta
from mooring.testing.rig import Rig

from .greetings import Greeter, Greeting, GreetingSpec, condition, eventually, greeting, ready


class Restless(Greeter):
    """Always finds one more step to take for the object ``restless``."""

    steps = 0

    async def observe(self, ctx: Context[Greeting]) -> Outcome:
        if ctx.key.name == "restless":
            return ctx.act("OnceMore", self._step, message=f"step {self.steps}")  # none repeats another
        return await super().observe(ctx)

    async def _step(self) -> None:
        self.steps += 1
        await asyncio.sleep(0)


async def test_an_object_whose_steps_never_end_lets_others_have_their_turn() -> None:
    actor = Restless()
    async with Rig(Greeting, operator=lambda rig: run_actor(actor, rig.manager, workers=1)) as rig:
        meta = ObjectMeta(name="restless", namespace="default")
        await rig.client.create(Greeting(metadata=meta, spec=GreetingSpec(text="hm")))

        async def busy() -> bool:
            return actor.steps > 0

        await eventually(busy)
        await rig.client.create(greeting())
        await eventually(ready(rig.client))


async def test_an_object_that_is_stuck_says_so_once() -> None:
    async with Rig(Greeting, operator=lambda rig: run_actor(Greeter(), rig.manager)) as rig:
        await rig.client.create(greeting("forbidden"))
        await rig.settle()
        for copies in (3, 4):
            await rig.client.patch(
                Greeting, "a", MergePatch({"spec": {"copies": copies}}), namespace="default"
            )
            await rig.settle()
        await rig.manager.events.flush()

        stalled = await condition(rig.client, "Stalled")
        assert stalled is not None
        assert (stalled.reason, stalled.observed_generation) == ("BadText", 3)
        events = (await rig.client.list(Event, namespace="default")).items
        assert [(one.reason, one.series) for one in events] == [("BadText", None)]
        note = msgspec.to_builtins(events[0])["note"]
        assert note == "spec.text: 'forbidden' may not be said; choose another text"
