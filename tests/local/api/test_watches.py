"""Watches: nothing missed, nothing twice, bounded."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest
from tests.local.api.conftest import CM, CRDS, WIDGETS, Client, config_map, definition, lines, reader

from mooring.local.api import ApiServer, reads


async def test_a_watch_sees_what_happens_after_its_version(api: Client) -> None:
    created = await api.create(CM, config_map(x="1"))
    version = created["metadata"]["resourceVersion"]
    async with lines(api.stream(CM, watch="1", resourceVersion=version)) as events:
        await api.merge(CM + "/a", {"data": {"x": "2"}})
        changed = await anext(events)
        await api.delete(CM + "/a")
        deleted = await anext(events)

    assert (changed["type"], changed["object"]["data"]) == ("MODIFIED", {"x": "2"})
    assert (deleted["type"], deleted["object"]["data"]) == ("DELETED", {"x": "2"})
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(
        changed["object"]["metadata"]["resourceVersion"]
    )


async def test_a_watch_that_begins_after_its_time_tells_what_was_there(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await api.create(CM, config_map(x="1"))
    await api.merge(CM + "/a", {"data": {"x": "2"}})
    moments = itertools.count(0.0, 100.0)
    monkeypatch.setattr(reads, "_now", lambda: next(moments))
    query = {"watch": "1", "resourceVersion": created["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
    async with lines(api.stream(CM, **query)) as events:
        assert (await anext(events))["object"]["data"] == {"x": "2"}
        assert await anext(events, None) is None


async def test_every_event_arrives_once_and_in_order_under_load(api: Client) -> None:
    version = (await api.get(CM))["metadata"]["resourceVersion"]

    async def write(number: int) -> None:
        for count in range(25):
            await api.create(CM, config_map(f"c{number}-{count}"))

    async with lines(api.stream(CM, watch="1", resourceVersion=version)) as events:
        await asyncio.gather(*(write(n) for n in range(8)))
        seen = [await anext(events) for _ in range(200)]

    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    assert {event["object"]["metadata"]["name"] for event in seen} == {
        f"c{n}-{c}" for n in range(8) for c in range(25)
    }


async def test_bookmarks_carry_the_newest_version_of_the_whole_store(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "BOOKMARK_SECONDS", 0.05)
    async with lines(
        api.stream(CM, watch="1", resourceVersion="1", allowWatchBookmarks="true", timeoutSeconds="5")
    ) as events:
        await api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
        newest = (await api.get("/api/v1/namespaces"))["metadata"]["resourceVersion"]
        async with asyncio.timeout(5):
            while (event := await anext(events))["object"]["metadata"]["resourceVersion"] != newest:
                assert event["type"] == "BOOKMARK"

    assert event["object"] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": newest},
    }


async def test_a_watch_list_marks_the_end_of_what_was_there(api: Client) -> None:
    await api.create(CM, config_map())
    query = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with lines(api.stream(CM, **query)) as events:
        added, mark = await anext(events), await anext(events)

    assert added["type"] == "ADDED"
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_version_that_is_gone_ends_the_watch_with_410(api: Client, server: ApiServer) -> None:
    await api.create(CM, config_map())
    server.cluster.store.collection("configmaps").compact()

    async with lines(api.stream(CM, watch="1", resourceVersion="1")) as events:
        event = await anext(events)
        assert await anext(events, None) is None

    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_watch_that_falls_behind_is_ended_and_holds_nothing(api: Client, server: ApiServer) -> None:
    version = (await api.create(CM, config_map()))["metadata"]["resourceVersion"]
    async with lines(api.stream(CM, watch="1", resourceVersion=version)) as events:
        await api.merge(CM + "/a", {"data": {"x": "1"}})
        assert (await anext(events))["type"] == "MODIFIED"
        await api.merge(CM + "/a", {"data": {"x": "2"}})
        server.cluster.store.collection("configmaps").compact()
        assert (await anext(events))["type"] == "ERROR"


async def test_watches_are_counted_and_bounded(
    api: Client, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "WATCH_LIMIT", 1)
    ann = await reader(api, server)
    await api.create(CM, config_map())
    async with lines(api.stream(CM, watch="1")) as events:
        await anext(events)
        status = await ann.refused(429, "GET", CM, watch="1")
        assert status["reason"] == "TooManyRequests"
        async with lines(api.stream(CM, watch="1")) as others:
            assert (await anext(others))["type"] == "ADDED"
    assert server.cluster.watchers == 0


async def test_closing_the_server_ends_watches() -> None:
    server = ApiServer.in_memory()
    await server.start()
    client = Client(server.transport())
    async with lines(client.stream(CM, watch="1")) as events:
        waiting = asyncio.ensure_future(anext(events, None))
        await asyncio.sleep(0)
        await server.close()
        async with asyncio.timeout(5):
            assert await waiting is None


async def test_a_watch_of_custom_resources_ends_with_their_definition(api: Client) -> None:
    await api.create(CRDS, definition())
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    await api.create(WIDGETS, widget)
    async with lines(api.stream(WIDGETS, watch="1")) as events:
        assert (await anext(events))["type"] == "ADDED"
        await api.delete(CRDS + "/widgets.example.com")
        assert (await anext(events))["type"] == "DELETED"
        async with asyncio.timeout(10):
            assert await anext(events, None) is None


async def test_pages_show_one_version_whatever_happens_meanwhile(api: Client) -> None:
    for name in "abcde":
        await api.create(CM, config_map(name))
    first = await api.get(CM, limit="2")
    await api.delete(CM + "/c")
    await api.create(CM, config_map("ba"))
    second = await api.get(CM, limit="9", **{"continue": first["metadata"]["continue"]})

    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert names == list("abcde")
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert first["metadata"]["remainingItemCount"] == 3


async def test_a_continue_token_of_a_lost_version_offers_to_go_on_inconsistently(
    api: Client, server: ApiServer
) -> None:
    for name in "abc":
        await api.create(CM, config_map(name))
    token = (await api.get(CM, limit="1"))["metadata"]["continue"]
    await api.delete(CM + "/c")
    server.cluster.store.collection("configmaps").compact()

    status = await api.refused(410, "GET", CM, limit="1", **{"continue": token})
    rest = await api.get(CM, **{"continue": status["metadata"]["continue"]})

    assert status["reason"] == "Expired"
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b"]


async def test_a_list_has_its_kind_and_its_items_have_none(api: Client) -> None:
    await api.create(CM, config_map(x="1"))
    response = await api.send("GET", CM)
    body = msgspec.json.decode(response.body)
    assert body["kind"] == "ConfigMapList"
    assert "kind" not in body["items"][0]
