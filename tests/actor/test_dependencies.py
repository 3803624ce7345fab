"""What an object depends on is watched, waited for, and named."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from tests.actor.greetings import Greeter, Greeting, condition, eventually, greeting, ready, running

from mooring.actor import Context, Dependency, Outcome, not_ready
from mooring.kube import Client, Key, MergePatch, Object, Part, Resource
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import Condition, ObjectMeta
from mooring.runtime.crd import F, crd


class HostStatus(Part, frozen=True, kw_only=True):
    conditions: Annotated[list[Condition] | None, F("Conditions.")] = None


@crd()
class Host(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("test.mooring.dev", "v1", "Host", "hosts")
    status: Annotated[HostStatus | None, F("Status.")] = None


def hosts(obj: Greeting) -> list[Key]:
    """The text names the host, for these tests."""
    text = (obj.spec and obj.spec.text) or ""
    if text == "broken":
        raise ValueError(text)
    return [Key(obj.metadata.namespace or "", name) for name in text.split(",")]


class Guest(Greeter):
    dependencies: Any = (Dependency(Host, hosts),)

    async def observe(self, ctx: Context[Greeting]) -> Outcome:
        if wait := ctx.unmet():
            return wait
        return await super().observe(ctx)


async def says(client: Client, words: str) -> bool:
    found = await condition(client, "Progressing")
    return found is not None and found.reason == "DependenciesNotReady" and words in (found.message or "")


async def set_ready(client: Client, name: str, status: str, **more: Any) -> None:
    entry = {"type": "Ready", "status": status, "reason": "Because", "message": "of this", **more}
    entry.setdefault("lastTransitionTime", "2030-01-01T00:00:00Z")
    patch = MergePatch({"status": {"conditions": [entry]}})
    await client.patch(Host, name, patch, namespace="default", subresource="status")


async def test_a_dependency_is_named_and_its_change_comes_at_once() -> None:
    async with running(Guest(), [Host]) as client:
        await client.create(greeting("inn", copies=0))
        await eventually(lambda: says(client, "Host default/inn does not exist; create it"))

        await client.create(Host(metadata=ObjectMeta(name="inn", namespace="default")))
        await eventually(lambda: says(client, "Host default/inn has no Ready condition yet"))
        await set_ready(client, "inn", "False")
        await eventually(lambda: says(client, "Host default/inn is not ready (Because: of this)"))
        await set_ready(client, "inn", "True")
        await eventually(ready(client))

        await client.delete(Host, "inn", namespace="default")
        await eventually(lambda: says(client, "does not exist"))


async def test_every_missing_dependency_is_named() -> None:
    async with running(Guest(), [Host]) as client:
        await client.create(greeting("inn,barn", copies=0))
        await eventually(lambda: says(client, "Host default/inn does not exist"))
        assert await says(client, "Host default/barn does not exist")


async def test_a_declaration_whose_dependencies_cannot_be_told_holds_nobody_back() -> None:
    async with running(Guest(), [Host]) as client:
        bad = greeting("broken", copies=0)
        await client.create(bad)

        async def failed() -> bool:
            found = await condition(client, "Progressing")
            return found is not None and found.reason == "StepFailed"

        await eventually(failed)
        good = msgspec.structs.replace(
            greeting("inn", copies=0), metadata=ObjectMeta(name="b", namespace="default")
        )
        await client.create(good)

        async def waits() -> bool:
            status = (await client.get(Greeting, "b", namespace="default")).status
            told = [one.message or "" for one in (status and status.conditions) or ()]
            return any("Host default/inn does not exist" in text for text in told)

        await eventually(waits)


def test_an_index_of_dependencies_survives_a_declaration_it_cannot_read() -> None:
    filed: list[list[str]] = []
    with suppress(ValueError):  # raised into a store, it would end the watch of all objects
        filed.append(Dependency(Host, hosts).index(greeting("broken")))
    filed.append(Dependency(Host, hosts).index(greeting("inn,barn")))
    assert filed == [[], ["default/inn", "default/barn"]]


@pytest.mark.parametrize(
    ("obj", "trouble"),
    [
        (ConfigMap(metadata=ObjectMeta(name="a")), ""),
        (
            ConfigMap(metadata=ObjectMeta(name="a", deletion_timestamp="2030-01-01T00:00:00Z")),
            "is being deleted",
        ),
        (Host(), "has no Ready condition yet"),
        (Host(status=HostStatus(conditions=[Condition(type="Ready", status="True")])), ""),
        (
            Host(
                metadata=ObjectMeta(generation=2),
                status=HostStatus(conditions=[Condition(type="Ready", status="True", observed_generation=1)]),
            ),
            "was changed and not reconciled since",
        ),
        (Host(status=HostStatus(conditions=[Condition(type="Ready", status="Unknown")])), "is not ready"),
        (
            Host(
                status=HostStatus(
                    conditions=[
                        Condition(type="Ready", status="False", reason="Starting", message="no answer"),
                        Condition(
                            type="Stalled", status="True", reason="ImagePullBackOff", message="no image"
                        ),
                    ]
                )
            ),
            "is not ready (ImagePullBackOff: no image)",
        ),
    ],
)
def test_readiness_is_the_condition_of_the_newest_generation(obj: Object, trouble: str) -> None:
    assert not_ready(obj) == trouble
