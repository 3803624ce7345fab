"""Events: aggregated, bounded, without secrets, and never in the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cache.fake_api import FakeApi, status

from mooring.kube import Client
from mooring.kube.objects.core import Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.runtime import EventRecorder, Metrics
from mooring.runtime.log import secrets
from mooring.testing.clock import VirtualClock


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def events(api: FakeApi, clock: VirtualClock, metrics: Metrics) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(Client(api), controller="redis-sentinel", clock=clock, metrics=metrics)
    recorder.start()
    yield recorder
    await recorder.stop(timeout=0)


def pod(name: str = "a") -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"))


def stored(api: FakeApi) -> list[dict[str, Any]]:
    return list(api.collection("events").objects.values())


async def test_an_event_names_what_when_who(api: FakeApi, clock: VirtualClock, events: EventRecorder) -> None:
    events.warning(pod(), "FailoverStarted", "master is down", action="Failover", related=pod("b"))
    await clock.settle()
    (event,) = stored(api)
    assert event["type"] == "Warning"
    assert event["reason"] == "FailoverStarted"
    assert event["action"] == "Failover"
    assert event["message"] == "master is down"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "a",
        "namespace": "ns",
        "uid": "uid-a",
    }
    assert event["related"]["name"] == "b"
    assert event["reportingComponent"] == "mooring.dev/redis-sentinel"
    assert event["eventTime"] == "2030-01-01T00:00:00.000000Z"
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2030-01-01T00:00:00Z"
    assert (event["count"], event["source"]) == (1, {"component": "mooring.dev/redis-sentinel"})
    assert event["metadata"]["namespace"] == "ns"


async def test_the_same_again_is_one_series_with_few_writes(
    api: FakeApi, clock: VirtualClock, events: EventRecorder
) -> None:
    for _ in range(100):
        events.normal(pod(), "Synced", "all is well")
        await clock.advance(10)
    assert len(stored(api)) == 1
    (event,) = stored(api)
    assert len(api.writes("events")) <= 6
    assert event["series"]["count"] >= 60
    assert event["count"] == event["series"]["count"]
    assert event["firstTimestamp"] == "2030-01-01T00:00:00Z"
    assert event["lastTimestamp"] == event["series"]["lastObservedTime"][:19] + "Z" > "2030-01-01T00:10:00Z"


async def test_after_ten_quiet_minutes_it_is_a_new_event(
    api: FakeApi, clock: VirtualClock, events: EventRecorder
) -> None:
    events.normal(pod(), "Synced", "all is well")
    await clock.advance(601)
    events.normal(pod(), "Synced", "all is well")
    await clock.settle()
    assert len(stored(api)) == 2


async def test_many_similar_texts_become_one_aggregate(
    api: FakeApi, clock: VirtualClock, events: EventRecorder
) -> None:
    for number in range(30):
        events.warning(pod(), "Refused", f"attempt {number}")
    await clock.settle(200)
    notes = [event["message"] for event in stored(api)]
    assert len(notes) == 11
    assert "(combined from similar events)" in notes


async def test_one_noisy_object_does_not_silence_another(
    api: FakeApi, clock: VirtualClock, events: EventRecorder, metrics: Metrics
) -> None:
    for number in range(60):
        events.normal(pod(), f"Reason{number}", "text")
    events.normal(pod("b"), "Quiet", "text")
    await clock.settle(500)
    names = [event["involvedObject"]["name"] for event in stored(api)]
    assert names.count("a") == 25
    assert names.count("b") == 1
    assert metrics.events_dropped == 35
    await clock.advance(301)
    events.normal(pod(), "Later", "one more after five minutes")
    await clock.settle()
    assert len(stored(api)) == 27


async def test_a_server_in_trouble_is_tried_again_and_refusals_are_not(
    api: FakeApi, clock: VirtualClock, events: EventRecorder, metrics: Metrics
) -> None:
    api.fail("POST", status(500, "InternalError"), times=2)
    events.normal(pod(), "First", "text")
    await clock.advance(5)
    assert [event["reason"] for event in stored(api)] == ["First"]
    api.fail("POST", status(403, "Forbidden", "namespace is being terminated"))
    events.normal(pod(), "Second", "text")
    events.normal(pod(), "Third", "text")
    await clock.advance(5)
    assert [event["reason"] for event in stored(api)] == ["First", "Third"]
    assert metrics.events_dropped == 1


async def test_a_full_queue_drops_and_never_blocks(
    api: FakeApi, clock: VirtualClock, metrics: Metrics
) -> None:
    recorder = EventRecorder(Client(api), controller="x", clock=clock, metrics=metrics)
    for number in range(1500):
        recorder.normal(pod(f"p{number}"), "Reason", "text")
    assert metrics.events_dropped == 500


async def test_secrets_are_cut_out(api: FakeApi, clock: VirtualClock, events: EventRecorder) -> None:
    secrets.add("hunter2-hunter2")
    events.warning(pod(), "Auth", "login with hunter2-hunter2 failed")
    await clock.settle()
    assert stored(api)[0]["message"] == "login with [redacted] failed"


async def test_a_long_text_is_cut_at_the_servers_limit(
    api: FakeApi, clock: VirtualClock, events: EventRecorder
) -> None:
    events.normal(pod(), "Long", "é" * 2000)
    await clock.settle()
    assert len(stored(api)[0]["message"].encode()) <= 1024
