"""Leader election and its fence: at most one acts, and whoever lost the Lease sends nothing."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest
from tests.cache.fake_api import FakeApi, status

from mooring.cache.clock import rfc3339
from mooring.kube import Client, Key, MergePatch, TransportError
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.transport import Response
from mooring.runtime import Election, Elector, Fence, FencedTransport, FenceLost, LeaseLost, OpenFence
from mooring.testing.clock import VirtualClock

LEASES = "leases"


class Contender:
    """One process that wants the Lease, and effects it sends whenever its fence lets it."""

    def __init__(self, api: FakeApi, clock: VirtualClock, name: str) -> None:
        self.api = api
        self.clock = clock
        self.fence = Fence(clock)
        self.client = Client(api)
        self.elector = Elector(self.client, Election("l", "ns", identity=name), fence=self.fence, clock=clock)
        self.fenced = Client(FencedTransport(api, self.fence))
        self.task: asyncio.Task[None] | None = None
        self.lost = 0

    def leads(self) -> bool:
        return self.fence.open

    def start(self) -> None:
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.elector.acquire()
        try:
            await self.elector.keep()
        except LeaseLost:
            self.lost += 1

    async def end(self, *, release: bool = False) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if release:
            await self.elector.release()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def holder(api: FakeApi) -> str:
    return str(api.get(LEASES, "l", "ns")["spec"].get("holderIdentity", ""))


async def test_the_first_one_leads_and_renews_every_two_seconds(api: FakeApi, clock: VirtualClock) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    assert one.leads()
    assert holder(api) == "one"
    await clock.advance(20)
    assert 9 <= api.count("PATCH", LEASES) <= 11
    assert api.count("GET", LEASES) == 1, "renewing costs one request"
    assert one.fence.left == pytest.approx(10)
    await one.end()


async def test_a_standby_takes_a_released_lease_at_once(api: FakeApi, clock: VirtualClock) -> None:
    one, two = Contender(api, clock, "one"), Contender(api, clock, "two")
    one.start()
    await clock.settle()
    two.start()
    await clock.advance(5)
    assert not two.leads()
    await one.end(release=True)
    await clock.settle()
    assert two.leads(), "without the clock having moved"
    assert not one.leads()
    await two.end()


async def test_a_standby_waits_fifteen_seconds_for_a_silent_holder(api: FakeApi, clock: VirtualClock) -> None:
    one, two = Contender(api, clock, "one"), Contender(api, clock, "two")
    one.start()
    await clock.settle()
    two.start()
    await clock.advance(5)
    renewed = clock.monotonic()
    await one.end()
    for _ in range(300):
        await clock.advance(0.1)
        if two.leads():
            break
    assert 13 <= clock.monotonic() - renewed <= 18.5
    assert not one.leads()
    await two.end()


@pytest.mark.parametrize("seconds", [4.0, 4.7, 5.9, 7.3])
async def test_a_silent_holder_is_followed_the_moment_its_time_is_up(
    api: FakeApi, clock: VirtualClock, seconds: float
) -> None:
    one, two = Contender(api, clock, "one"), Contender(api, clock, "two")
    one.start()
    await clock.settle()
    two.start()
    await clock.advance(seconds)
    await one.end()
    silent_since = max(
        moment for moment in (2.0, 4.0, 6.0) if moment <= seconds
    )  # it renews every two seconds
    for _ in range(200):
        await clock.advance(0.1)
        if two.leads():
            break
    assert two.leads()
    assert 15.0 <= clock.monotonic() - silent_since < 15.3
    assert not one.leads()
    await two.end()


async def test_standbys_look_at_client_gos_pace(api: FakeApi, clock: VirtualClock) -> None:
    api.put(LEASES, "l", "ns", spec={"holderIdentity": "other", "leaseDurationSeconds": 3600})
    one = Contender(api, clock, "one")
    one.start()
    await clock.advance(660)
    looks = api.count("GET", LEASES)
    assert 660 / 4.4 <= looks <= 660 / 2.0
    assert looks < 660 / 2.6, "jittered by up to 1.2 times the period: 3.2 s on average"
    await one.end()


async def test_expiry_is_judged_by_what_we_saw_not_by_the_holders_clock(
    api: FakeApi, clock: VirtualClock
) -> None:
    # A lease renewed long ago by the record's own time, but unchanged only since we first looked.
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00.000000Z"}
    api.put(LEASES, "l", "ns", spec=spec)
    one = Contender(api, clock, "one")
    one.start()
    await clock.advance(14)
    assert not one.leads()
    await clock.advance(5)
    assert one.leads()
    await one.end()


async def test_leadership_is_lost_after_ten_seconds_without_renewal(
    api: FakeApi, clock: VirtualClock
) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    api.fail("PATCH", TransportError("no route to host"), times=1000)
    await clock.advance(9)
    assert one.lost == 0
    await clock.advance(3)
    assert one.lost == 1
    assert not one.leads()


async def test_a_short_outage_is_survived(api: FakeApi, clock: VirtualClock) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    api.fail("PATCH", status(500, "InternalError"), times=3)
    await clock.advance(30)
    assert one.lost == 0
    assert one.leads()
    await one.end()


async def test_someone_who_touches_the_record_does_not_end_leadership(
    api: FakeApi, clock: VirtualClock
) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    lease = api.get(LEASES, "l", "ns")
    api.put(LEASES, "l", "ns", metadata={"labels": {"x": "1"}}, spec=lease["spec"])
    await clock.advance(3)
    assert one.lost == 0
    assert one.leads()
    await one.end()


async def test_a_deleted_lease_is_made_anew(api: FakeApi, clock: VirtualClock) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    api.remove(LEASES, "l", "ns")
    await clock.advance(5)
    assert one.lost == 0
    assert holder(api) == "one"
    await one.end()


async def test_a_usurper_ends_leadership_at_the_next_renewal(api: FakeApi, clock: VirtualClock) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    spec = {**api.get(LEASES, "l", "ns")["spec"], "holderIdentity": "usurper"}
    api.put(LEASES, "l", "ns", spec=spec)
    await clock.advance(2.5)
    assert one.lost == 1
    assert not one.leads()


async def test_a_process_that_slept_wakes_up_fenced(api: FakeApi, clock: VirtualClock) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    config_map = ConfigMap(metadata=ObjectMeta(name="x", namespace="ns"))
    await one.fenced.create(config_map)
    clock.suspend(60)
    writes = len(api.writes())
    with pytest.raises(FenceLost):
        await one.fenced.patch(ConfigMap, "x", MergePatch({"data": {}}), namespace="ns")
    assert len(api.writes()) == writes, "nothing was sent"
    await one.fenced.get(ConfigMap, "x", namespace="ns")
    await clock.advance(3)
    assert one.lost == 1
    assert len(api.writes()) == writes


async def test_a_lost_answer_to_a_renewal_is_not_a_lost_lease(api: FakeApi, clock: VirtualClock) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    api.lose_answer("PATCH")
    await clock.advance(5)
    assert one.lost == 0
    assert one.leads()
    await one.end()


async def test_a_renewal_that_is_never_answered_is_sent_again_in_time(clock: VirtualClock) -> None:
    class Hanging(FakeApi):
        hangs = False

        async def request(self, method: str, path: str, **options: Any) -> Response:
            if method == "PATCH" and self.hangs:
                self.hangs = False
                await asyncio.Event().wait()
            return await super().request(method, path, **options)

    api = Hanging()
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    api.hangs = True
    await clock.advance(12)
    assert not api.hangs
    assert one.lost == 0
    assert one.leads()
    await one.end()


async def test_a_release_that_fails_is_left_to_run_out(api: FakeApi, clock: VirtualClock) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    api.fail("PATCH", TransportError("gone"))
    await one.end(release=True)
    assert not one.leads()
    assert holder(api) == "one"


async def test_nobody_releases_what_it_does_not_hold(api: FakeApi, clock: VirtualClock) -> None:
    one, two = Contender(api, clock, "one"), Contender(api, clock, "two")
    one.start()
    await clock.settle()
    two.start()
    await clock.advance(1)
    await two.end(release=True)
    assert holder(api) == "one"
    await one.end()


async def test_a_write_waits_no_longer_than_the_lease_lasts(clock: VirtualClock) -> None:
    timeouts: list[float | None] = []

    class Noting(FakeApi):
        async def request(self, method: str, path: str, **options: Any) -> Response:
            timeouts.append(options["timeout"])
            return await super().request(method, path, **options)

    fence = Fence(clock)
    client = Client(FencedTransport(Noting(), fence))
    fence.hold(clock.boottime() + 10, expiry=clock.boottime() + 15)
    clock.suspend(9)
    await client.create(ConfigMap(metadata=ObjectMeta(name="x", namespace="ns")))
    assert timeouts == [6]


def test_an_open_fence_passes_everything(clock: VirtualClock) -> None:
    fence = OpenFence(clock)
    fence.close()
    fence.check()
    assert fence.open


def test_impossible_times_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline"):
        Election("l", "ns", lease_duration=10, renew_deadline=12)
    assert Election("l", "ns").identity != Election("l", "ns").identity


@pytest.mark.parametrize("seed", range(12))
async def test_never_two_open_fences_whatever_fails(seed: int) -> None:
    """Three contenders, an hour of random failures, restarts and releases: leadership never overlaps."""
    rng = random.Random(seed)
    api, clock = FakeApi(), VirtualClock()
    rate = 0.0

    def fault(request: object) -> object:
        if rng.random() >= rate:
            return None
        return rng.choice([status(500, "InternalError"), status(409, "Conflict"), TransportError("cut")])

    api.faults.append(fault)  # type: ignore[arg-type]
    everyone = [Contender(api, clock, f"c{n}") for n in range(3)]
    led: set[str] = set()
    for number, contender in enumerate(everyone):
        contender.start()
        await clock.advance(number)
    for _ in range(600):
        rate = rng.choice([0.0, 0.0, 0.3, 0.9])
        if rng.random() < 0.05:
            api.lose_answer("PATCH")
        if rng.random() < 0.1:
            api.cut()
        index = rng.randrange(3)
        contender = everyone[index]
        task = contender.task
        if (task is not None and task.done()) or rng.random() < 0.03:
            await contender.end(release=rng.random() < 0.5)
            everyone[index] = Contender(api, clock, f"c{index}-{clock.monotonic():.0f}")
            everyone[index].start()
        await clock.advance(rng.choice([0.1, 1, 3, 6]))
        open_now = [c.elector.election.identity for c in everyone if c.leads()]
        assert len(open_now) <= 1, open_now
        led.update(open_now)
    assert len(led) > 2, "leadership did move"
    for contender in everyone:
        await contender.end()


def test_micro_times_are_written_as_kubernetes_does(clock: VirtualClock) -> None:
    assert rfc3339(clock.now(), micro=True) == "2030-01-01T00:00:00.000000Z"
    assert rfc3339(clock.now()) == "2030-01-01T00:00:00Z"
    assert str(Key("ns", "l")) == "ns/l"


async def test_a_lease_whose_last_renewal_was_not_awaited_is_still_given_back(
    api: FakeApi, clock: VirtualClock
) -> None:
    one = Contender(api, clock, "one")
    one.start()
    await clock.settle()
    lease = api.get(LEASES, "l", "ns")
    api.put(LEASES, "l", "ns", metadata={"labels": {"x": "1"}}, spec=lease["spec"])
    await one.end(release=True)
    assert holder(api) == ""


def test_the_fence_is_on_a_clock_that_runs_through_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def gettime(clock: int) -> float:
        asked.append(clock)
        return 100.0

    monkeypatch.setattr(time, "clock_gettime", gettime)
    fence = Fence()
    fence.hold(101.0, expiry=102.0)
    assert fence.open
    assert asked == [time.CLOCK_BOOTTIME], "CLOCK_MONOTONIC stands still while the machine sleeps"
