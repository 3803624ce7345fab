"""Steps act only on the process that was seen, not on another one at the same address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.operators.redis.sentinel.builders import healthy
from tests.operators.redis.sentinel.harness import SETTINGS, Cluster, cluster
from tests.operators.redis.sentinel.test_plan import is_a

from mooring.actor import StepFailed
from mooring.operators.redis.dial import Address, Dial
from mooring.operators.redis.passwords.moves import (
    AddPassword,
    PasswordMove,
    PresentPassword,
    PublishPassword,
    ServerAuth,
    SetPassword,
    SwitchPassword,
)
from mooring.operators.redis.passwords.seen import Auth
from mooring.operators.redis.sentinel.moves import (
    Configure,
    DatabaseMove,
    Demote,
    FailOver,
    Follow,
    Hasten,
    Monitor,
    Promote,
    Quarantine,
    SetPriority,
    Switch,
    Target,
    TuneSentinel,
    data_target,
)
from mooring.operators.redis.sentinel.steps import Steps
from mooring.operators.redis.sentinel.topology import read_sentinel, read_topology
from mooring.operators.workload.credentials import Kept


async def targets(pods: Cluster) -> dict[str, Target]:
    """Every server and sentinel as it is now."""
    found = {}
    for name, port, ones in (("redis", 6379, pods.redis), ("sentinel", 26379, pods.sentinels)):
        for one in ones.values():
            address = Address(one.ip, port)
            async with Dial().link(address) as link:
                info = str(await link.call("INFO", "server"))
            run_id = next(line for line in info.splitlines() if line.startswith("run_id:")).partition(":")[2]
            found[f"{name}-{one.ordinal}"] = Target(name=one.name, address=address, run_id=run_id)
    return found


async def state(pods: Cluster) -> Mapping[str, Any]:
    """What a step could change."""
    found: dict[str, Any] = {}
    for name, one in pods.redis.items():
        async with Dial().link(Address(one.ip, 6379)) as link:
            asked = ("slave-priority", "min-slaves-to-write", "hz", "masterauth", "requirepass")
            role: Any = await link.call("ROLE")
            found[name] = (
                role[0],
                role[1:3] if role[0] == "slave" else None,
                [await link.call("CONFIG", "GET", key) for key in asked],
                await link.call("ACL", "LIST"),
            )
    for name, one in pods.sentinels.items():
        async with Dial().link(Address(one.ip, 26379)) as link:
            it = await read_sentinel(link)
            settings = {key: it.settings[key] for key in ("quorum", "failover-timeout", "config-epoch")}
            found[name] = (it.master, settings, dict(it.periods))
    return found


@pytest.mark.embedded
@pytest.mark.timeout(120)
async def test_a_stranger_at_an_address_that_was_ours_is_told_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await operator.stop()
        known = await targets(pods)
        master = known[operator.master]
        other = next(one for name, one in known.items() if name.startswith("redis") and one is not master)
        watcher = known["sentinel-0"]
        stranger, strange_master, strange_watcher = (
            replace(one, run_id="f" * 40) for one in (other, master, watcher)
        )
        server = ServerAuth(target=stranger, auth=Auth(two=True))
        moves: tuple[DatabaseMove | PasswordMove, ...] = (
            Promote(target=stranger),
            Follow(targets=(stranger,), unsynced=(stranger,), master=master),
            Follow(targets=(other,), unsynced=(other,), master=strange_master),
            Demote(target=stranger, master=master),
            Demote(target=other, master=strange_master),
            Quarantine(target=stranger),
            SetPriority(targets=(stranger,), priority=0),
            FailOver(best=stranger, heirs=(stranger,), sentinels=(watcher,), equalise=True),
            FailOver(best=other, heirs=(other,), sentinels=(strange_watcher,)),
            Switch(master=strange_master, heirs=(other,), sentinels=(watcher,)),
            Monitor(sentinels=(strange_watcher,), master=master, quorum=1, settings=SETTINGS),
            Monitor(sentinels=(watcher,), master=strange_master, quorum=1, settings=SETTINGS),
            TuneSentinel(sentinel=strange_watcher, settings={"failover-timeout": "77000"}),
            Hasten(sentinels=(strange_watcher,), periods={"info-period": 7777}),
            AddPassword(targets=(server,), passwords=("next",)),
            PresentPassword(targets=(server,), password="next"),
            PublishPassword(sentinels=(strange_watcher,)),
            SwitchPassword(targets=(server,), sentinels=(strange_watcher,)),
            SetPassword(targets=(server,), sentinels=()),
            Configure(targets=(stranger,), key="hz", value="99"),
        )
        before = await state(pods)
        steps = Steps(Dial(), kept=Kept(password="", next="another"))
        for move in moves:
            with pytest.raises(StepFailed, match="no longer answers"):
                await steps.run(move)
            assert await state(pods) == before, move.name

        await steps.run(Configure(targets=(other,), key="hz", value="99"))
        assert await state(pods) != before


def test_what_the_planner_decides_names_the_processes_that_were_seen() -> None:
    scene = healthy().server("redis-0", run_id="leads").server("redis-1", run_id="strays", master=None)
    follow = is_a(Follow, scene.decide())
    assert [one.run_id for one in follow.targets] == ["strays"]
    assert follow.master.run_id == "leads"
    assert data_target(scene.silent("redis-1").members["redis-1"]).run_id == ""


@pytest.mark.embedded
@pytest.mark.timeout(60)
async def test_the_process_is_read_from_servers_and_sentinels(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (pods, operator):
        await operator.in_sync()
        await operator.stop()
        seen = await read_topology(Dial(), redis=pods.pods, sentinels=pods.sentinel_pods)
        known = await targets(pods)
        assert {one.name: one.server and one.server.run_id for one in seen.members} | {
            one.name: one.sentinel and one.sentinel.run_id for one in seen.watchers
        } == {one.name: one.run_id for one in known.values()}
