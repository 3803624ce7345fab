"""Informers against a fake server: what they show, what they tell, and how they survive the stream."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.cache.fake_api import FakeApi, status

from mooring.cache import (
    BadObject,
    Informer,
    InformerPool,
    InformerSet,
    NotCached,
    OutsideFilter,
    Transition,
)
from mooring.kube import Client, Key, TransportError
from mooring.kube.objects.core import ConfigMap, Pod
from mooring.testing.clock import VirtualClock

CONFIG_MAPS = "configmaps"


class Recorder:
    """Remembers transitions as (name, present, origin)."""

    def __init__(self) -> None:
        self.changes: list[Transition[ConfigMap]] = []

    def __call__(self, change: Transition[ConfigMap]) -> None:
        self.changes.append(change)

    @property
    def told(self) -> list[tuple[str, bool, str]]:
        return [(c.key.name, c.new is not None, c.origin) for c in self.changes]


@asynccontextmanager
async def following(
    api: FakeApi, clock: VirtualClock, **options: object
) -> AsyncIterator[tuple[Informer[ConfigMap], Recorder]]:
    informer = Informer(Client(api), ConfigMap, clock=clock, **options)  # type: ignore[arg-type]
    recorder = Recorder()
    informer.add_handler(recorder)
    informer.start()
    await clock.settle()
    try:
        yield informer, recorder
    finally:
        await informer.stop()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def names(informer: Informer[ConfigMap]) -> set[str | None]:
    return {obj.metadata.name for obj in informer.list()}


async def test_it_lists_then_follows(api: FakeApi, clock: VirtualClock) -> None:
    api.put(CONFIG_MAPS, "a")
    async with following(api, clock) as (informer, recorder):
        assert informer.synced.is_set()
        assert informer.healthy
        api.put(CONFIG_MAPS, "b")
        api.put(CONFIG_MAPS, "a", data={"x": "1"})
        api.remove(CONFIG_MAPS, "b")
        await clock.settle()
        assert recorder.told == [
            ("a", True, "list"),
            ("b", True, "watch"),
            ("a", True, "watch"),
            ("b", False, "watch"),
        ]
        found = informer.get(Key("default", "a"))
        assert found is not None
        assert found.data == {"x": "1"}
        assert informer.get(Key("default", "b")) is None


async def test_the_first_list_is_consistent_and_paged(api: FakeApi, clock: VirtualClock) -> None:
    for number in range(1201):
        api.put(CONFIG_MAPS, f"m{number}")
    async with following(api, clock) as (informer, _):
        assert len(informer) == 1201
        pages = [r for r in api.requests if r.method == "GET"]
        assert len(pages) == 3
        assert all("resourceVersion" not in page.query for page in pages)


async def test_an_expired_continue_token_costs_one_whole_list(api: FakeApi, clock: VirtualClock) -> None:
    for number in range(501):
        api.put(CONFIG_MAPS, f"m{number}")
    api.faults.append(lambda r: status(410, "Expired") if "continue" in r.query else None)
    async with following(api, clock) as (informer, _):
        assert len(informer) == 501
        assert "limit" not in [r for r in api.requests if r.method == "GET"][-1].query


@pytest.mark.parametrize("as_event", [True, False], ids=["error event", "status 410"])
async def test_a_gone_version_lists_again_and_tells_what_was_deleted(
    api: FakeApi, clock: VirtualClock, *, as_event: bool
) -> None:
    api.put(CONFIG_MAPS, "stays")
    api.put(CONFIG_MAPS, "goes")
    async with following(api, clock) as (informer, recorder):
        with api.losing_events():
            api.remove(CONFIG_MAPS, "goes")
            api.put(CONFIG_MAPS, "comes")
        api.compact(CONFIG_MAPS)
        if not as_event:
            api.fail("WATCH", status(410, "Expired"))
        recorder.changes.clear()
        api.cut()
        await clock.advance(2)
        assert names(informer) == {"stays", "comes"}
        gone = next(c for c in recorder.changes if c.key.name == "goes")
        assert gone.new is None
        assert gone.final_state_unknown
        relist = [r for r in api.requests if r.method == "GET"][-1]
        assert relist.query.get("resourceVersionMatch") == "NotOlderThan"
        assert int(relist.query["resourceVersion"]) >= 100, "never from version 0"


async def test_a_broken_stream_resumes_where_it_stopped_without_listing(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put(CONFIG_MAPS, "a")
    async with following(api, clock) as (informer, _):
        api.cut(TransportError("connection reset by peer"))
        await clock.settle()
        api.put(CONFIG_MAPS, "b")
        await clock.settle()
        assert names(informer) == {"a"}
        await clock.advance(2)
        assert names(informer) == {"a", "b"}
        assert api.count("GET", CONFIG_MAPS) == 1


async def test_a_stream_that_has_lasted_is_opened_again_at_once_when_it_breaks(
    api: FakeApi, clock: VirtualClock
) -> None:
    async with following(api, clock) as (informer, _):
        for number in range(10):  # a network that cuts every ten seconds, for ever
            await clock.advance(10)
            api.cut(TransportError("connection reset by peer"))
            await clock.settle()
            api.put(CONFIG_MAPS, f"after-{number}")
            await clock.settle()
            assert f"after-{number}" in names(informer)
        assert api.count("GET", CONFIG_MAPS) == 1


async def test_silence_is_noticed_after_seventy_seconds(api: FakeApi, clock: VirtualClock) -> None:
    async with following(api, clock) as (informer, _):
        with api.losing_events():
            api.put(CONFIG_MAPS, "missed")
        await clock.advance(69)
        assert api.count("WATCH", CONFIG_MAPS) == 1
        await clock.advance(3)
        assert api.count("WATCH", CONFIG_MAPS) == 2
        assert names(informer) == {"missed"}


async def test_bookmarks_keep_the_stream_alive_and_move_the_version(
    api: FakeApi, clock: VirtualClock
) -> None:
    async with following(api, clock) as (informer, _):
        for _ in range(5):
            await clock.advance(60)
            api.version += 10
            api.bookmark()
            await clock.settle()
        assert api.count("WATCH", CONFIG_MAPS) == 1
        assert informer.last_version == api.version


async def test_delays_grow_and_a_retry_after_is_honoured(api: FakeApi, clock: VirtualClock) -> None:
    api.fail("GET", status(500, "InternalError"), times=4)
    api.fail("GET", status(429, "TooManyRequests", retryAfterSeconds=45), times=1)
    async with following(api, clock) as (informer, _):
        moments = []
        for _ in range(20):
            moments.append(await clock.advance_to_next())
            if informer.synced.is_set():
                break
        assert informer.synced.is_set()
        assert all(first >= 0.8 for first in moments)
        assert moments == sorted(moments)
        assert moments[-1] == pytest.approx(45)


async def test_a_stream_that_ends_at_once_is_not_reopened_in_a_busy_loop(
    api: FakeApi, clock: VirtualClock
) -> None:
    async with following(api, clock):
        for _ in range(50):
            api.cut()
            await clock.settle()
        assert api.count("WATCH", CONFIG_MAPS) < 5


async def test_a_server_that_lags_is_not_believed(api: FakeApi, clock: VirtualClock) -> None:
    api.put(CONFIG_MAPS, "a")
    async with following(api, clock) as (informer, _):
        too_large = status(
            504, "Timeout", "Too large resource version", causes=[{"reason": "ResourceVersionTooLarge"}]
        )
        api.compact(CONFIG_MAPS)
        api._compacted[CONFIG_MAPS] = api.version + 1
        api.fail("GET", too_large)
        api.cut(TransportError("reset"))
        while api.count("GET", CONFIG_MAPS) < 2:
            await clock.advance_to_next()
        api._compacted.clear()
        await clock.advance(10)
        lists = [r for r in api.requests if r.method == "GET"]
        assert "resourceVersion" not in lists[-1].query, "a consistent list decides"
        assert names(informer) == {"a"}


async def test_a_restored_server_is_the_truth_even_though_it_went_back(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put(CONFIG_MAPS, "old")
    api.version = 5000
    api.put(CONFIG_MAPS, "lost")
    async with following(api, clock) as (informer, _):
        del api.collection(CONFIG_MAPS).objects[Key("default", "lost")]
        api.version = 200
        api.collection(CONFIG_MAPS).history.clear()
        too_large = status(504, "Timeout", "Too large resource version: 5001, current: 200")
        api.fail("WATCH", too_large)
        api.cut()
        await clock.advance(5)
        assert names(informer) == {"old"}
        api.put(CONFIG_MAPS, "new")
        await clock.settle()
        assert names(informer) == {"old", "new"}


async def test_one_bad_object_stops_nobody(api: FakeApi, clock: VirtualClock) -> None:
    api.put(CONFIG_MAPS, "bad", data=7)
    api.put(CONFIG_MAPS, "good")
    async with following(api, clock) as (informer, recorder):
        assert names(informer) == {"good"}
        with pytest.raises(BadObject, match="bad"):
            informer.get(Key("default", "bad"))
        api.put(CONFIG_MAPS, "good", data=7)
        await clock.settle()
        assert names(informer) == {"good"}, "the last sound state stays listed"
        with pytest.raises(BadObject):
            informer.get(Key("default", "good"))
        api.put(CONFIG_MAPS, "bad", data={"mended": "1"})
        api.put(CONFIG_MAPS, "good", data={"mended": "1"})
        await clock.settle()
        assert informer.get(Key("default", "bad")) is not None
        assert recorder.told[-2:] == [("bad", True, "watch"), ("good", True, "watch")]
        assert informer.decode_errors == 2


async def test_a_bad_object_that_is_deleted_is_gone(api: FakeApi, clock: VirtualClock) -> None:
    api.put(CONFIG_MAPS, "a")
    async with following(api, clock) as (informer, recorder):
        api.put(CONFIG_MAPS, "a", data=7)
        api.remove(CONFIG_MAPS, "a")
        await clock.settle()
        assert not informer.undecodable
        assert informer.get(Key("default", "a")) is None
        assert recorder.told[-1] == ("a", False, "watch")


async def test_garbage_on_the_stream_is_survived(api: FakeApi, clock: VirtualClock) -> None:
    async with following(api, clock) as (informer, _):
        api.streams[0].lines.put_nowait(b'{"type":"ADDED","object":{"meta')
        await clock.advance(3)
        api.put(CONFIG_MAPS, "a")
        await clock.settle()
        assert names(informer) == {"a"}


async def test_a_handler_that_raises_harms_nobody(api: FakeApi, clock: VirtualClock) -> None:
    async with following(api, clock) as (informer, recorder):

        def broken(_: object) -> None:
            raise RuntimeError("bug")

        informer.add_handler(broken)
        api.put(CONFIG_MAPS, "a")
        api.put(CONFIG_MAPS, "b")
        await clock.settle()
        assert len(recorder.changes) == 2
        assert informer.handler_errors == 2


async def test_a_late_handler_is_told_of_what_is_already_there(api: FakeApi, clock: VirtualClock) -> None:
    api.put(CONFIG_MAPS, "a")
    async with following(api, clock) as (informer, _):
        late = Recorder()
        informer.add_handler(late)
        assert late.told == [("a", True, "list")]


@pytest.mark.parametrize("served", [True, False], ids=["streamed", "refused"])
async def test_watch_list_with_fall_back(api: FakeApi, clock: VirtualClock, *, served: bool) -> None:
    api.put(CONFIG_MAPS, "a")
    api.stream_lists = served
    async with following(api, clock, watch_list=True) as (informer, recorder):
        assert recorder.told == [("a", True, "list")]
        assert api.count("GET", CONFIG_MAPS) == (0 if served else 1)
        api.put(CONFIG_MAPS, "b")
        await clock.settle()
        assert names(informer) == {"a", "b"}


async def test_watch_list_that_never_ends_falls_back(api: FakeApi, clock: VirtualClock) -> None:
    api.put(CONFIG_MAPS, "a")
    api.hold()
    async with following(api, clock, watch_list=True) as (informer, _):
        assert not informer.synced.is_set()
        await clock.advance(71)
        assert informer.synced.is_set()


async def test_asking_outside_the_filter_is_an_error_not_absence(api: FakeApi, clock: VirtualClock) -> None:
    async with following(api, clock, namespace="here") as (informer, _):
        with pytest.raises(OutsideFilter, match="there/x is outside"):
            informer.get(Key("there", "x"))
        with pytest.raises(OutsideFilter):
            informer.list("there")
        assert informer.get(Key("here", "x")) is None


async def test_a_set_shares_informers_and_knows_what_it_can_answer(api: FakeApi, clock: VirtualClock) -> None:
    informers = InformerSet(Client(api), clock)
    part = informers.of(ConfigMap, label_selector="app=x")
    with pytest.raises(OutsideFilter, match="only a part is cached"):
        informers.reading(ConfigMap, "default")
    with pytest.raises(NotCached, match="no informer"):
        informers.reading(Pod, "default")
    whole = informers.of(ConfigMap)
    assert informers.of(ConfigMap) is whole
    assert part is not whole
    with pytest.raises(NotCached, match="not synced"):
        informers.reading(ConfigMap, "default")
    async with informers:
        await informers.wait_synced(5)
        assert informers.reading(ConfigMap, "default") is whole
        late = informers.of(Pod)
        await clock.settle()
        assert late.synced.is_set(), "one asked for later is started at once"
        assert informers.healthy
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("informer")]


async def test_what_was_there_at_the_start_is_out_of_the_collectors_way(
    api: FakeApi, clock: VirtualClock
) -> None:
    for number in range(50):
        api.put(CONFIG_MAPS, f"c{number}")
    gc.unfreeze()
    async with InformerSet(Client(api), clock) as informers:
        held = informers.of(ConfigMap)
        await informers.wait_synced(5)
        try:
            assert gc.get_freeze_count() > 0
            assert len(held) == 50
        finally:
            gc.unfreeze()


async def test_a_set_is_current_when_every_informer_follows(api: FakeApi, clock: VirtualClock) -> None:
    async with InformerSet(Client(api), clock) as informers:
        maps, pods = informers.of(ConfigMap), informers.of(Pod)
        await informers.wait_current(5)
        assert (api.count("WATCH", CONFIG_MAPS), api.count("WATCH", "pods")) == (1, 1)
        await informers.wait_current(5)
        assert api.count("WATCH", CONFIG_MAPS) == 1, "heard of just now: nothing is asked"
        await clock.advance(6)
        api.bookmark()
        await clock.advance(4)
        with api.losing_events():
            api.put("pods", "a")
        await informers.wait_current(5)
        await clock.settle()
        assert api.count("WATCH", "pods") == 1, "a bookmark four seconds ago is a sign of life"
        await clock.advance(2)
        await informers.wait_current(5)
        await clock.settle()
        assert len(pods) == 1, "a new stream shows what was missed"
        assert (api.count("WATCH", "pods"), api.count("GET", "pods")) == (2, 1), "without listing"
        assert maps.healthy
        api.fail("WATCH", TransportError("no route"), times=100, path="pods")
        api.cut()
        await clock.settle()
        waiting = asyncio.create_task(informers.wait_current(20))
        await clock.advance(21)
        with pytest.raises(TimeoutError, match=r"caches not current after 20 s: <Informer Pod .*no route"):
            await waiting
        api.faults.clear()
        await clock.advance(31)


def informer_tasks() -> list[str]:
    return [t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith(("informer", "reopen"))]


async def test_sets_of_one_pool_watch_what_both_need_once_and_stop_on_their_own(
    api: FakeApi, clock: VirtualClock
) -> None:
    api.put(CONFIG_MAPS, "a")
    pool = InformerPool()
    one, two = (InformerSet(Client(api), clock, pool=pool) for _ in range(2))
    maps = one.of(ConfigMap)
    assert two.of(ConfigMap) is maps
    two.of(Pod)
    one.start()
    two.start()
    await clock.settle()
    assert (api.count("WATCH", CONFIG_MAPS), api.count("WATCH", "pods")) == (1, 1)
    with pytest.raises(NotCached, match="no informer"):
        one.reading(Pod, "default")
    assert len(one.every(Pod)) == 1, "a write of one is known to the caches of all"

    await one.stop()
    api.put(CONFIG_MAPS, "b")
    await clock.settle()
    assert names(maps) == {"a", "b"}, "the other set still needs it"

    again = InformerSet(Client(api), clock, pool=pool)
    assert again.of(ConfigMap) is maps
    again.start()
    await two.stop()
    assert informer_tasks() == ["informer configmaps"]
    await again.stop()
    assert informer_tasks() == []
    assert again.every(ConfigMap) == []

    anew = InformerSet(Client(api), clock, pool=pool)
    assert anew.of(ConfigMap) is not maps, "what nobody followed for a while is listed again"


async def test_a_set_that_starts_while_the_last_one_stops_has_an_informer_that_follows(
    api: FakeApi, clock: VirtualClock
) -> None:
    pool = InformerPool()
    one, two = (InformerSet(Client(api), clock, pool=pool) for _ in range(2))
    maps = one.of(ConfigMap)
    assert two.of(ConfigMap) is maps
    one.start()
    await clock.settle()

    stopping = asyncio.ensure_future(one.stop())
    for _ in range(2):  # until its informer is ending
        await asyncio.sleep(0)
    assert not stopping.done()
    two.start()
    await stopping
    api.put(CONFIG_MAPS, "late")
    await clock.settle()
    assert names(maps) == {"late"}
    await two.stop()
    assert informer_tasks() == []


async def test_a_set_waits_for_its_own_informers_and_for_no_other_of_the_pool(
    api: FakeApi, clock: VirtualClock
) -> None:
    pool = InformerPool()
    api.fail("GET", status(403, "Forbidden"), times=100, path="pods")
    async with InformerSet(Client(api), clock, pool=pool) as late:
        late.of(Pod)
        async with InformerSet(Client(api), clock, pool=pool) as informers:
            informers.of(ConfigMap)
            waiting = [
                asyncio.create_task(step(5)) for step in (informers.wait_synced, informers.wait_current)
            ]
            await clock.settle()
            assert all(task.done() for task in waiting)
            assert informers.healthy
            assert not late.healthy


async def test_a_reader_that_gives_up_waiting_leaves_a_shared_informer_running(
    api: FakeApi, clock: VirtualClock
) -> None:
    pool = InformerPool()
    async with (
        InformerSet(Client(api), clock, pool=pool) as one,
        InformerSet(Client(api), clock, pool=pool) as two,
    ):
        maps = one.of(ConfigMap)
        assert two.of(ConfigMap) is maps
        await one.wait_synced(5)
        await clock.advance(6)
        waiting = [asyncio.create_task(informers.wait_current(5)) for informers in (one, two)]
        while "reopen <Informer ConfigMap in all namespaces>" not in informer_tasks():
            await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting)
        assert not waiting[1].cancelled()
        assert api.count("WATCH", CONFIG_MAPS) == 2, "the silent stream is opened again once"
        api.put(CONFIG_MAPS, "a")
        await clock.settle()
        assert names(maps) == {"a"}


async def test_a_handler_that_is_removed_no_longer_hears_of_bad_objects(
    api: FakeApi, clock: VirtualClock
) -> None:
    async with following(api, clock) as (informer, _):
        bad: list[object] = []
        other = Recorder()
        informer.add_handler(other, on_bad=bad.append)
        informer.remove_handler(other, on_bad=bad.append)
        api.put(CONFIG_MAPS, "a", data=["no", "map"])
        await clock.settle()
        assert informer.decode_errors == 1
        assert bad == []
        assert other.changes == []


async def test_an_index_is_made_once_for_all_who_need_it(api: FakeApi, clock: VirtualClock) -> None:
    api.put(CONFIG_MAPS, "a")
    async with following(api, clock) as (informer, _):
        for _ in range(2):
            informer.ensure_index("name", lambda obj: [obj.metadata.name or ""])
        assert [obj.metadata.name for obj in informer.by_index("name", "a")] == ["a"]


async def test_an_object_a_selector_may_hide_is_not_called_absent(api: FakeApi, clock: VirtualClock) -> None:
    async with following(api, clock, label_selector="app=x") as (informer, _):
        with pytest.raises(OutsideFilter, match="read it live"):
            informer.get(Key("default", "a"))
        assert informer.peek(Key("default", "a")) is None
    async with following(api, clock, field_selector="metadata.name=a") as (informer, _):
        assert informer.get(Key("default", "a")) is None, "here the key alone tells"
        with pytest.raises(OutsideFilter):
            informer.get(Key("default", "b"))


async def test_a_filtered_informer_never_says_that_an_object_does_not_exist(
    api: FakeApi, clock: VirtualClock
) -> None:
    async with InformerSet(Client(api), clock) as informers:
        informers.of(ConfigMap, label_selector="app=x")
        informers.of(Pod, field_selector="spec.nodeName=n")
        await informers.wait_synced(5)
        for kind in (ConfigMap, Pod):
            with pytest.raises(OutsideFilter, match="read it live"):
                informers.reading(kind, "default")


async def test_a_set_that_cannot_sync_says_which_informer_and_why(api: FakeApi, clock: VirtualClock) -> None:
    informers = InformerSet(Client(api), clock)
    informers.of(Pod)
    api.fail("GET", status(403, "Forbidden", "pods is forbidden"), times=100)
    async with informers:
        waiting = asyncio.create_task(informers.wait_synced(20))
        await clock.advance(21)
        with pytest.raises(TimeoutError, match=r"Pod.*forbidden"):
            await waiting
