"""What is measured of real servers: sizes of slots, loads, and names of large and busy keys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis.crc import key_slot
from tests.operators.redis.cluster.servers import Servers

from mooring.kube.object import Key
from mooring.operators.redis.cluster import sizes as module
from mooring.operators.redis.cluster.bigkeys import KeySurvey, Sample, _report, chosen, readable
from mooring.operators.redis.cluster.sizes import SlotSizes, stats_of
from mooring.operators.redis.cluster.slots import size_of
from mooring.operators.redis.cluster.snapshot import Snapshot, Wanted
from mooring.operators.redis.cluster.topology import read_nodes
from mooring.operators.redis.cluster.types import KeyReportSpec, KeyReportStatus

KEY = Key("default", "demo")
LARGE = "large\xff\n"


async def seen(cluster: Servers, *, by_size: bool = True) -> Snapshot:
    found = await cluster.snapshot(cluster.dial, Wanted(nodes=6, by_size=by_size))
    return replace(found, recorded=replace(found.recorded, formed=True))


async def put(cluster: Servers, key: str, value: str) -> str:
    """Write to the owner of the key; the name of its pod."""
    owners = {one.name: one for one in (await seen(cluster)).owners}
    owner = next(one for one in owners.values() if one.slots >> key_slot(key.encode()) & 1)
    async with cluster.dial.link(owner.node.address) as link:
        await link.call("SET", key, value)
    return owner.name


async def test_every_slot_is_measured_in_bounded_parts(
    cluster: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET", 2000)
    pod = await put(cluster, "{big}", "x" * 9_000_000)
    measured, found = SlotSizes(period=0.0), await seen(cluster)
    looks = [await measured.look(KEY, found, cluster.dial, password="") for _ in range(3)]
    assert [len(one) for one in looks] == [0, 0, 16384]  # 5461 or 5462 slots of each master
    big = next(one for one in found.owners if one.name == pod)
    assert looks[2][key_slot(b"{big}")] > 9_000_000
    others = [size_of(one.slots, looks[2]) for one in found.owners if one is not big]
    keys = [one.server.keys for one in found.owners if one is not big]
    for size, number in zip(others, keys, strict=True):
        assert 50 * number < size < 200 * number  # small strings
    silent = replace(found, wanted=replace(found.wanted, by_size=False))
    assert await measured.look(KEY, silent, cluster.dial, password="") == ()


async def test_a_look_that_is_not_due_or_disturbed_asks_nothing(cluster: Servers) -> None:
    found, measured = await seen(cluster), SlotSizes(period=3600.0)

    def sends_nothing() -> None:
        raise AssertionError("a command was sent")

    silent = replace(found, recorded=replace(found.recorded, formed=False))
    refusing = type(cluster.dial)(fence=sends_nothing)
    assert await measured.look(KEY, silent, refusing, password="") == ()
    await measured.look(KEY, found, cluster.dial, password="")
    assert await measured.look(KEY, found, refusing, password="") == ()


def test_what_a_server_counts_itself_is_read_in_both_forms_of_its_answer() -> None:
    flat = [[0, ["key-count", 2, "memory-bytes", 120]], [5, ["key-count", 0]]]
    assert dict(stats_of(flat)) == {0: {"key-count": 2, "memory-bytes": 120}, 5: {"key-count": 0}}
    assert dict(stats_of([[7, {"cpu-usec": 3}]])) == {7: {"cpu-usec": 3}}


async def test_loads_are_asked_for_only_where_they_count(cluster: Servers) -> None:
    pods = [one.pod for one in (await seen(cluster)).seen.nodes]
    plain = await read_nodes(cluster.dial, pods, password="")
    assert {one.server.load for one in plain.live} == {None}
    asked = await read_nodes(cluster.dial, pods, password="", load=True)
    loads = [one.server.load for one in asked.live]
    assert len(loads) == 6
    assert all(one is not None and one.memory > 500_000 and one.commands and one.process for one in loads)
    assert len({one.process for one in loads if one is not None}) == 6


async def test_large_and_busy_keys_are_named_until_they_are_gone(cluster: Servers) -> None:
    for one in (await seen(cluster)).owners:
        async with cluster.dial.link(one.node.address) as link:
            await link.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    pod = await put(cluster, LARGE, "x" * 3_000_000)
    busy = await put(cluster, "busy", "1")
    busier = next(one for one in (await seen(cluster)).owners if one.name == busy)
    async with cluster.dial.link(busier.node.address) as link:
        for _ in range(10):
            await link.pipeline([("GET", "busy")] * 2000)

    survey, spec, told = KeySurvey(period=0.0, publish=0.0), KeyReportSpec(), None

    async def until(done: bool) -> KeyReportStatus:
        nonlocal told
        for _ in range(30):  # three masters with 1,700 keys each, about 1,000 in a look
            told = await survey.look(KEY, await seen(cluster), spec, told, dial=cluster.dial, password="")
            assert told is not None
            if bool(told.big and told.hot) is done:
                return told
        raise AssertionError(f"after 30 looks the report is {told}")

    named = await until(True)
    assert named.big is not None
    [big] = named.big
    assert (big.key, big.pod) == (readable(LARGE), pod)
    assert big.key.isprintable()
    assert 3_000_000 <= (big.bytes or 0) < 6_000_000
    assert [one.key for one in named.hot or ()] == ["busy"]
    again = await survey.look(KEY, await seen(cluster), spec, told, dial=cluster.dial, password="")
    assert again is not None
    assert again.big == named.big  # nothing changed, and nothing is written
    owner = next(one for one in (await seen(cluster)).owners if one.name == pod)
    async with cluster.dial.link(owner.node.address) as link:
        await link.call("DEL", LARGE)
    gone = await until(False)
    assert gone.big is None
    assert await survey.look(KEY, await seen(cluster), None, gone, dial=cluster.dial, password="") is None


def test_the_report_is_bounded_and_readable() -> None:
    samples = [Sample(f"k{at:02}", "demo-0", 2 << 20, at * 10) for at in range(30)]
    big, hot = chosen(samples, KeyReportSpec(big=3, hot=0))
    assert [one.key for one in big] == ["k00", "k01", "k02"]
    assert hot == []
    assert readable("a" * 200) == "a" * 100 + "..."
    assert readable(b"\xff\x00ok".decode("utf-8", "surrogateescape")) == "\\xff\\x00ok"


def test_a_report_stays_while_measurements_go_up_and_down() -> None:
    spec = KeyReportSpec(big=2, hot=2, min_bytes=1_000_000)

    def told(a: int, b: int, c: int, *, often: int, before: KeyReportStatus | None) -> KeyReportStatus:
        samples = [
            Sample("a", "demo-0", a, often),
            Sample("b", "demo-1", b, 40 - often),
            Sample("c", "demo-2", c, 100),
        ]
        return _report(*chosen(samples, spec, before), before)

    first = told(1_290_000, 1_310_000, 1_280_000, often=19, before=None)
    assert [one.key for one in first.big or ()] == ["b", "a"]
    # Their order, what is the third, and each rounded number would be others.
    assert told(1_310_000, 1_290_000, 1_320_000, often=21, before=first) == first
    named = told(990_000, 1_200_000, 900_000, often=25, before=first)
    assert [one.key for one in named.big or ()] == ["b", "a"], "named until it is clearly below the least"
    grown = told(1_310_000, 1_290_000, 3_000_000, often=19, before=first)
    assert [(one.key, one.bytes) for one in grown.big or ()] == [("c", 3_000_000), ("a", 1_200_000)]
    assert [one.key for one in told(10, 10, 10, often=0, before=first).big or ()] == []
