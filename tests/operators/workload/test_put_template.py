"""Writing a pod template: what the API server answers when the StatefulSet changed meanwhile, or the template is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mooring.kube import Client, Conflict, Invalid, Key, MergePatch
from mooring.kube.objects import apps, core, meta
from mooring.local.api.server import ApiServer
from mooring.operators.workload.adoption import put_template

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "shop"}},
    "spec": {"containers": [{"name": "server", "image": "busybox:2"}]},
}


async def made(client: Client) -> apps.StatefulSet:
    pod = core.PodSpec(containers=[core.Container(name="server", image="busybox:1")])
    labels = {"app": "shop"}
    return await client.create(
        apps.StatefulSet(
            metadata=meta.ObjectMeta(name="shop", namespace="default", annotations={"inputs": "one"}),
            spec=apps.StatefulSetSpec(
                service_name="shop",
                selector=meta.LabelSelector(match_labels=labels),
                template=core.PodTemplateSpec(metadata=meta.ObjectMeta(labels=labels), spec=pod),
            ),
        )
    )


def seen(client: Client, one: apps.StatefulSet) -> Any:
    """A context whose cache has the StatefulSet as it was then."""
    cached = SimpleNamespace(get=lambda *_, **__: one, patch=client.patch)
    return cast(Any, SimpleNamespace(client=cached, key=Key("default", "shop")))


async def test_a_set_that_changed_meanwhile_is_a_conflict_and_keeps_its_template() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(agent="operator"))
        before = await made(client)
        await client.patch(
            apps.StatefulSet, "shop", MergePatch({"spec": {"replicas": 4}}), namespace="default"
        )

        with pytest.raises(Conflict):
            await put_template(seen(client, before), before, TEMPLATE, annotations={"inputs": "two"})

        now = await client.get(apps.StatefulSet, "shop", namespace="default")
        assert (now.metadata.annotations or {})["inputs"] == "one"


async def test_a_template_that_breaks_a_rule_is_invalid_and_named() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(agent="operator"))
        before = await made(client)
        wrong = {**TEMPLATE, "metadata": {"labels": {"app": "other"}}}

        with pytest.raises(Invalid) as caught:
            await put_template(seen(client, before), before, wrong, annotations={"inputs": "two"})

        assert [one["field"] for one in caught.value.causes] == ["spec.template.metadata.labels"]
