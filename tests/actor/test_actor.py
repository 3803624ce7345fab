"""An actor on a whole API server (in memory): children, status, conditions, finalizer, failures."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.actor.greetings import (
    Finalizing,
    Greeter,
    Greeting,
    GreetingStatus,
    Noting,
    condition,
    define,
    eventually,
    greeting,
    names,
    operated,
    ready,
    running,
)

from mooring.actor import Context, InSync, ObserveWrote, Outcome
from mooring.kube import Client, Forbidden, Key, MergePatch, NotFound
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.events import Event
from mooring.kube.objects.meta import Condition, ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.runtime import FenceLost


async def test_children_are_made_repaired_and_pruned() -> None:
    async with running(Greeter()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        assert await names(client) == ["a-0", "a-1"]

        await client.delete(ConfigMap, "a-0", namespace="default")
        await client.patch(ConfigMap, "a-1", MergePatch({"data": {"t": "spoilt"}}), namespace="default")

        async def repaired() -> bool:
            page = await client.list(ConfigMap, namespace="default", label_selector="g=a")
            return [(c.data or {}).get("t") for c in page.items] == ["hi", "hi"]

        await eventually(repaired)
        await client.patch(Greeting, "a", MergePatch({"spec": {"copies": 1}}), namespace="default")

        async def pruned() -> bool:
            return await names(client) == ["a-0"]

        await eventually(pruned)


async def test_a_cluster_costs_one_write_per_child_and_one_status_and_nothing_at_rest() -> None:
    actor = Greeter()
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await define(client, Greeting)
        noting = Noting(server.transport())
        async with operated(noting, actor) as manager:
            await client.create(greeting())
            await eventually(ready(client))
            assert noting.of("configmaps") == ["PATCH", "PATCH"]
            assert noting.of("greetings") == ["PATCH"]
            passes, noting.writes = actor.passes, []
            patch = MergePatch({"metadata": {"annotations": {"look": "again"}}})
            await client.patch(Greeting, "a", patch, namespace="default")

            async def looked() -> bool:
                return actor.passes > passes and manager.idle

            await eventually(looked)
            assert noting.writes == []


async def test_conditions_name_the_generation_they_speak_of() -> None:
    async with running(Greeter()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        patch = MergePatch({"spec": {"text": "ho"}})
        edited = await client.patch(Greeting, "a", patch, namespace="default")

        async def observed() -> bool:
            status = (await client.get(Greeting, "a", namespace="default")).status
            return status is not None and status.said == "ho"

        await eventually(observed)
        status = (await client.get(Greeting, "a", namespace="default")).status
        assert status is not None
        generations = {one.type: one.observed_generation for one in status.conditions or ()}
        assert generations == dict.fromkeys(("Ready", "Progressing", "Stalled"), edited.metadata.generation)
        assert status.observed_generation == edited.metadata.generation


async def test_conditions_may_live_elsewhere_and_leave_the_list_of_another_meaning_alone() -> None:
    class Elsewhere(Greeter):
        conditions_path: ClassVar[str] = "health.conditions"

        async def observe(self, ctx: Context[Greeting]) -> Outcome:
            ctx.show(GreetingStatus(conditions=[Condition(type="node-0", status="up")]))
            return ctx.in_sync()

    async with running(Elsewhere()) as client:
        await client.create(greeting())

        async def shown() -> bool:
            status = (await client.get(Greeting, "a", namespace="default")).status
            return status is not None and status.health is not None

        await eventually(shown)
        status = (await client.get(Greeting, "a", namespace="default")).status
        assert status is not None
        assert [one.type for one in status.conditions or ()] == ["node-0"]
        assert status.health is not None
        assert [one.type for one in status.health.conditions or ()] == ["Ready", "Progressing", "Stalled"]


async def test_a_status_that_came_to_the_cache_meanwhile_is_not_taken_back() -> None:
    looks, newer = asyncio.Event(), asyncio.Event()

    class Late(Greeter):
        async def observe(self, ctx: Context[Greeting]) -> Outcome:
            known = ctx.obj.status.said if ctx.obj.status is not None else None
            if not known:
                looks.set()
                await newer.wait()  # as a look at servers takes its time
                async with asyncio.timeout(10):
                    while (
                        now := ctx.client.find(Greeting, "a", namespace="default")
                    ) is None or not now.status:
                        await asyncio.sleep(0.01)
            ctx.show(GreetingStatus(said=known or "older"))
            return ctx.in_sync()

    async with running(Late()) as client:
        await client.create(greeting())
        await looks.wait()
        said = MergePatch({"status": {"said": "newer"}})
        await client.patch(Greeting, "a", said, namespace="default", subresource="status")
        newer.set()

        await eventually(ready(client))

        status = (await client.get(Greeting, "a", namespace="default")).status
        assert status is not None
        assert status.said == "newer"


async def test_a_wrong_declaration_is_said_and_taken_back_when_corrected() -> None:
    async with running(Greeter()) as client:
        await client.create(greeting("forbidden"))

        async def stalled() -> bool:
            found = await condition(client, "Stalled")
            return found is not None and found.status == "True" and "spec.text" in (found.message or "")

        await eventually(stalled)
        await client.patch(Greeting, "a", MergePatch({"spec": {"text": "fine"}}), namespace="default")
        await eventually(ready(client))


async def test_a_foreign_object_of_a_wanted_name_is_left_alone() -> None:
    async with running(Greeter()) as client:
        await client.create(
            ConfigMap(metadata=ObjectMeta(name="a-0", namespace="default"), data={"mine": "yes"})
        )
        await client.create(greeting())
        await eventually(ready(client))
        assert (await client.get(ConfigMap, "a-0", namespace="default")).data == {"mine": "yes"}


async def test_the_finalizer_waits_for_finalize() -> None:
    actor = Finalizing()
    async with running(actor) as client:
        await client.create(greeting())
        await eventually(ready(client))
        assert (await client.get(Greeting, "a", namespace="default")).metadata.finalizers == [actor.finalizer]
        await client.delete(Greeting, "a", namespace="default")

        async def gone() -> bool:
            try:
                await client.get(Greeting, "a", namespace="default")
            except NotFound:
                return True
            return False

        await eventually(gone)
        assert actor.cleaned == ["a"]


async def test_what_a_finalizer_guards_is_made_only_under_it_also_when_it_is_due_in_the_middle_of_a_turn() -> (
    None
):
    under: list[bool] = []

    class Guarding(Finalizing):
        def finalizes(self, obj: Greeting) -> bool:
            return obj.status is not None and bool(obj.status.said)

        async def observe(self, ctx: Context[Greeting]) -> Outcome:
            if not self.finalizes(ctx.obj):
                ctx.show(GreetingStatus(said="begun"))
                return ctx.act("Record", self._until_seen, ctx, record=True)
            if not under:
                return ctx.act("Make", self._make, ctx)
            return ctx.in_sync()

        async def _until_seen(self, ctx: Context[Greeting]) -> None:
            async with asyncio.timeout(10):
                while (
                    now := ctx.client.find(Greeting, "a", namespace="default")
                ) is None or not self.finalizes(now):
                    await asyncio.sleep(0.01)

        async def _make(self, ctx: Context[Greeting]) -> None:
            now = await ctx.client.refresh(Greeting, "a", namespace="default")
            under.append(now is not None and self.finalizer in (now.metadata.finalizers or ()))

    async with running(Guarding()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        assert under == [True]


async def test_an_object_goes_when_finalize_is_done_though_that_asks_for_another_look() -> None:
    class Restless(Finalizing):
        async def finalize(self, ctx: Context[Greeting]) -> Outcome:
            return InSync(again=60.0)

    async with running(Restless()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        await client.delete(Greeting, "a", namespace="default")

        async def gone() -> bool:
            return not (await client.list(Greeting, namespace="default")).items

        await eventually(gone)


async def test_finalize_without_a_finalizer_is_refused_at_the_start() -> None:
    class Forgetful(Greeter):
        async def finalize(self, ctx: Context[Greeting]) -> Outcome:
            return ctx.in_sync()

    with pytest.raises(
        TypeError, match=r'Forgetful overrides finalize\(\).*finalizer = "example.com/greeter"'
    ):
        async with running(Forgetful()):
            pass


async def test_finalizing_shows_its_progress_and_keeps_the_object_until_it_is_done() -> None:
    doors: list[str] = []

    class Closing(Finalizing):
        async def finalize(self, ctx: Context[Greeting]) -> Outcome:
            if not doors:
                return ctx.act("CloseDoors", self.close, message="closing 2 doors")
            if "closed" not in doors:
                return ctx.wait("DoorsClosing", "1 of 2 doors closed", after=0.02)
            return ctx.in_sync()

        async def close(self) -> None:
            doors.append("closing")

    async with running(Closing()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        patch = MergePatch({"metadata": {"finalizers": ["test/other", Closing.finalizer]}})
        await client.patch(Greeting, "a", patch, namespace="default")
        await client.delete(Greeting, "a", namespace="default")

        async def progress(reason: str) -> bool:
            found = await condition(client, "Progressing")
            return found is not None and found.reason == reason

        await eventually(lambda: progress("DoorsClosing"))
        held = await condition(client, "Ready")
        assert held is not None
        assert (held.status, held.reason, held.message) == ("False", "Deleting", "1 of 2 doors closed")
        assert (await client.get(Greeting, "a", namespace="default")).metadata.finalizers == [
            "test/other",
            Closing.finalizer,
        ]
        doors.append("closed")

        async def only_others() -> bool:
            return (await client.get(Greeting, "a", namespace="default")).metadata.finalizers == [
                "test/other"
            ]

        await eventually(only_others)
        left = await condition(client, "Progressing")
        assert left is not None
        assert left.reason == "DoorsClosing", "no status is written about an object that is gone in a moment"


async def test_a_step_of_finalizing_is_shown_before_it_is_taken() -> None:
    taken = asyncio.Event()

    class Slow(Finalizing):
        async def finalize(self, ctx: Context[Greeting]) -> Outcome:
            return ctx.act("CloseDoors", taken.wait, message="closing 2 doors")

    async with running(Slow()) as client:
        await client.create(greeting())
        await eventually(ready(client))
        await client.delete(Greeting, "a", namespace="default")

        async def shown() -> bool:
            found = await condition(client, "Progressing")
            return found is not None and (found.reason, found.message) == ("CloseDoors", "closing 2 doors")

        await eventually(shown)


async def test_finalizing_that_fails_says_so_and_is_tried_again() -> None:
    tried: list[int] = []

    class Failing(Finalizing):
        async def finalize(self, ctx: Context[Greeting]) -> Outcome:
            tried.append(1)
            if len(tried) < 3:
                raise RuntimeError("password is hunter2")
            return ctx.in_sync()

    actor = Failing()
    async with running(actor) as client:
        await client.create(greeting())
        await eventually(ready(client))
        await client.delete(Greeting, "a", namespace="default")

        async def gone() -> bool:
            return not (await client.list(Greeting, namespace="default")).items

        await eventually(gone)
        assert len(tried) == 3


async def test_writing_while_observing_is_refused() -> None:
    actor = Greeter()
    refused: list[str] = []

    async def write(ctx: Context[Greeting]) -> None:
        with pytest.raises(ObserveWrote) as error:
            await ctx.client.delete(ConfigMap, "x", namespace="default")
        refused.append(str(error.value))

    actor.misbehave = write
    async with running(actor) as client:
        await client.create(greeting())
        await eventually(ready(client))
    assert refused
    assert "client.delete" in refused[0]


async def test_what_the_server_refuses_is_shown_and_taken_back_when_corrected() -> None:
    name = ["not/a name"]
    passes = 0

    class Misnaming(Greeter):
        async def observe(self, ctx: Context[Greeting]) -> Outcome:
            nonlocal passes
            passes += 1
            if name:
                wrong = ConfigMap(metadata=ObjectMeta(name="a-0"), data={name[0]: ""})
                return ctx.act("ApplyChildren", ctx.children.apply, ctx.children.diff([wrong]))
            return await super().observe(ctx)

    async with running(Misnaming()) as client:
        await client.create(greeting())

        async def said() -> bool:
            stalled = await condition(client, "Stalled")
            return (
                stalled is not None and stalled.status == "True" and "not/a name" in (stalled.message or "")
            )

        await eventually(said)
        stalled = await condition(client, "Stalled")
        assert stalled is not None
        assert stalled.reason == "InvalidSpec"
        before = passes
        await asyncio.sleep(0.2)
        assert passes == before, "it stays invalid: nothing is tried in a hurry"
        name.clear()
        await client.patch(Greeting, "a", MergePatch({"spec": {"copies": 1}}), namespace="default")
        await eventually(ready(client))
        stalled = await condition(client, "Stalled")
        assert stalled is not None
        assert stalled.status == "False"


async def test_a_read_that_is_forbidden_while_observing_is_said_as_well() -> None:
    actor = Greeter()

    async def peek(ctx: Context[Greeting]) -> None:
        raise Forbidden("secrets is forbidden: may not get", status=403, reason="Forbidden")

    actor.misbehave = peek
    async with running(actor) as client:
        await client.create(greeting())

        async def said() -> bool:
            stalled = await condition(client, "Stalled")
            return (
                stalled is not None
                and stalled.reason == "Forbidden"
                and "observe: the API server refused it: secrets" in (stalled.message or "")
            )

        await eventually(said)
        actor.misbehave = None
        await eventually(ready(client))


async def test_an_unforeseen_failure_shows_its_type_but_not_its_text() -> None:
    actor = Greeter()

    async def fail(ctx: Context[Greeting]) -> None:
        raise RuntimeError("password is hunter2")

    actor.misbehave = fail
    async with running(actor) as client:
        await client.create(greeting())

        async def shown() -> bool:
            found = await condition(client, "Progressing")
            return found is not None and found.reason == "StepFailed"

        await eventually(shown)
        status = msgspec.json.encode((await client.get(Greeting, "a", namespace="default")).status)
        assert b"RuntimeError" in status
        assert b"hunter2" not in status
        actor.misbehave = None
        await eventually(ready(client))


async def test_what_the_lost_lease_forbids_is_not_shown_as_a_failure() -> None:
    actor = Greeter()

    async def fenced(ctx: Context[Greeting]) -> None:
        actor.misbehave = None
        raise FenceLost("the Lease is not held by this process; nothing was sent")

    actor.misbehave = fenced
    with capture_logs() as lines:
        async with running(actor) as client:
            await client.create(greeting())
            await eventually(ready(client))
    assert actor.passes > 1
    assert not [line for line in lines if line["log_level"] in ("warning", "error")]


async def test_an_object_that_cannot_be_read_is_told_so_and_holds_nobody_back() -> None:
    async with running(Greeter()) as client:
        path = "/apis/test.mooring.dev/v1/namespaces/default/greetings"
        # The CRD of another version once allowed it: take the schema away, store it, as an old object would be.
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/greetings.test.mooring.dev"
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        patch = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": loose}]
        await client.request(
            "PATCH", crds, body=msgspec.json.encode(patch), content_type="application/json-patch+json"
        )
        bad = {
            "apiVersion": "test.mooring.dev/v1",
            "kind": "Greeting",
            "metadata": {"name": "bad", "namespace": "default"},
            "spec": {"copies": "many"},
        }
        await client.request("POST", path, body=msgspec.json.encode(bad))
        legacy = {"status": {"conditions": [{"type": "Healthy", "status": "True"}]}}
        await client.request(
            "PATCH",
            f"{path}/bad/status",
            body=msgspec.json.encode(legacy),
            content_type="application/merge-patch+json",
        )
        await client.create(greeting())
        await eventually(ready(client))

        async def told() -> bool:
            raw = msgspec.json.decode((await client.request("GET", f"{path}/bad")).body)
            conditions = raw.get("status", {}).get("conditions", [])
            said = {c["type"]: c for c in conditions if "spec.copies" in c.get("message", "")}
            return set(said) == {"Ready", "Stalled"} and conditions[0]["type"] == "Healthy"

        await eventually(told)
        raw = msgspec.json.decode((await client.request("GET", f"{path}/bad")).body)
        shown = {c["type"]: c["status"] for c in raw["status"]["conditions"]}
        assert shown == {"Healthy": "True", "Ready": "Unknown", "Stalled": "True"}
        writers = {one["manager"] for one in raw["metadata"]["managedFields"]}
        assert "mooring-greeter" in writers, "under the name of everything it writes"

        async def announced() -> bool:
            events = (await client.list(Event, namespace="default")).items
            return any(
                one.reason == "Undecodable" and one.regarding is not None and one.regarding.name == "bad"
                for one in events
            )

        await eventually(announced)


def test_the_key_of_an_object_reads_as_kubectl_shows_it() -> None:
    assert str(Key("default", "a")) == "default/a"


async def test_a_gauge_follows_the_condition_ready_and_goes_with_the_object() -> None:
    class Measured(Greeter):
        ready_metric: ClassVar[str] = "greeting_ready"

    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await define(client, Greeting)
        async with operated(server.transport(), Measured()) as manager:

            def value() -> float | None:
                return manager.metrics.registry.get_sample_value(
                    "greeting_ready", {"namespace": "default", "name": "a"}
                )

            async def gone() -> bool:
                return value() is None

            assert value() is None
            await client.create(greeting())
            await eventually(ready(client))
            assert value() == 1.0
            await client.patch(
                Greeting, "a", MergePatch({"spec": {"text": "forbidden"}}), namespace="default"
            )
            await eventually(ready(client, "False"))
            assert value() == 0.0
            await client.delete(Greeting, "a", namespace="default")
            await eventually(gone)
