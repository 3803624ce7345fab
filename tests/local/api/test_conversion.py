"""Custom resources in several versions: what is stored, what is shown, and when a webhook is asked.

That the answers are those of a real server is shown in tests/conformance/test_conversion.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.converter import Converter, converting
from tests.local.api.conftest import Client, definition, lines

from mooring.local.api import ApiServer

Json = Any

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = CRDS + "/widgets.example.com"
V1 = "/apis/example.com/v1/namespaces/default/widgets"
V2 = "/apis/example.com/v2/namespaces/default/widgets"


@pytest.fixture
def converter(tmp_path: Path) -> Iterator[Converter]:
    with converting(tmp_path / "converter") as started:
        yield started


def version(name: str, size: Json, *, storage: bool = False) -> Json:
    spec = {"type": "object", "properties": {"size": size}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def two_versions(conversion: Json, *, storage: str = "v1") -> Json:
    pair = {"type": "object", "properties": {"value": {"type": "integer"}, "unit": {"type": "string"}}}
    crd = definition()
    crd["spec"]["versions"] = [
        version("v1", {"type": "string"}, storage=storage == "v1"),
        version("v2", pair, storage=storage == "v2"),
    ]
    crd["spec"]["conversion"] = conversion
    return crd


def widget(number: int, size: Json, name: str = "w") -> Json:
    meta = {"name": name}
    return {
        "apiVersion": f"example.com/v{number}",
        "kind": "Widget",
        "metadata": meta,
        "spec": {"size": size},
    }


async def test_a_webhook_is_asked_once_for_each_version_of_an_object(
    api: Client, converter: Converter
) -> None:
    await api.create(CRDS, two_versions(converter.conversion()))
    await api.create(V1, widget(1, "3Gi"))
    assert converter.asked == []

    for _ in range(3):
        assert (await api.get(V2 + "/w"))["spec"]["size"] == {"value": 3, "unit": "Gi"}
        assert (await api.get(V2))["items"][0]["spec"]["size"] == {"value": 3, "unit": "Gi"}
    assert [request["desiredAPIVersion"] for request in converter.asked] == ["example.com/v2"]

    await api.merge(V1 + "/w", {"spec": {"size": "4Gi"}})
    assert (await api.get(V2 + "/w"))["spec"]["size"] == {"value": 4, "unit": "Gi"}
    assert len(converter.asked) == 2


async def test_a_list_is_converted_in_one_review(api: Client, converter: Converter) -> None:
    await api.create(CRDS, two_versions(converter.conversion()))
    for name in ("a", "b", "c"):
        await api.create(V1, widget(1, "1Gi", name))

    listed = await api.get(V2)

    assert [item["apiVersion"] for item in listed["items"]] == ["example.com/v2"] * 3
    assert [len(request["objects"]) for request in converter.asked] == [3]


async def test_what_was_stored_before_the_storage_version_changed_is_still_read(
    tmp_path: Path, converter: Converter
) -> None:
    database = tmp_path / "state.db"
    async with ApiServer.open(database) as server:
        api = Client(server.transport())
        await api.create(CRDS, two_versions(converter.conversion()))
        await api.create(V1, widget(1, "3Gi"))
        await api.merge(CRD, two_versions(converter.conversion(), storage="v2"))
        assert (await api.get(CRD))["status"]["storedVersions"] == ["v1", "v2"]

    converter.asked.clear()
    async with ApiServer.open(database) as server:
        api = Client(server.transport())
        # The object is of version 1: that one is read without asking anybody, after a restart too.
        assert (await api.get(V1 + "/w"))["spec"]["size"] == "3Gi"
        assert converter.asked == []
        # A write that changes nothing moves it into the version of now.
        before = await api.get(V2 + "/w")
        after = await api.ok("PUT", V2 + "/w", before)
        assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        again = await api.ok("PUT", V2 + "/w", after)
        assert again["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_a_stored_object_has_the_defaults_of_the_definition_of_now(api: Client) -> None:
    await api.create(CRDS, definition())
    await api.create(V1, {**widget(1, 5), "spec": {}})
    crd = await api.get(CRD)
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["color"] = {"type": "string", "default": "blue"}
    del fields["size"]
    await api.ok("PUT", CRD, crd)

    shown = await api.get(V1 + "/w")

    assert shown["spec"] == {"color": "blue"}
    assert (await api.get(V1))["items"] == [shown]


async def test_a_watch_ends_with_what_the_webhook_failed_at(api: Client, converter: Converter) -> None:
    await api.create(CRDS, two_versions(converter.conversion("failed")))
    created = await api.create(V1, widget(1, "3Gi"))
    since = str(int(created["metadata"]["resourceVersion"]) - 1)

    async with lines(api.stream(V2, watch="1", resourceVersion=since)) as events:
        event = await anext(events)

    assert event["type"] == "ERROR"
    assert event["object"]["message"] == (
        "conversion webhook for example.com/v1, Kind=Widget failed: no way to say it"
    )


async def test_a_definition_goes_although_its_webhook_is_gone(api: Client, converter: Converter) -> None:
    await api.create(CRDS, two_versions(converter.conversion("broken")))
    await api.create(V1, widget(1, "3Gi"))

    await api.delete(CRD)

    async with asyncio.timeout(10):
        while (await api.send("GET", CRD)).status != 404:
            await asyncio.sleep(0.01)
