"""What the user changed: keys, sizes, templates; small steps that never cost the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operators.redis.sentinel.builders import Scene, at_gate, healthy
from tests.operators.redis.sentinel.test_plan import is_a, waits_for

from mooring.operators.redis.dial import Address
from mooring.operators.redis.parameters import classify, same_value
from mooring.operators.redis.sentinel.moves import (
    Configure,
    InSync,
    LabelRoles,
    PublishConfig,
    Record,
    Resize,
    SetPriority,
    Wait,
)
from mooring.operators.redis.sentinel.topology import Peer
from mooring.operators.workload.configuration import ConfigResult
from mooring.operators.workload.rollout import SetState


def configured(scene: Scene, **keys: str) -> Scene:
    """What the servers say of these keys."""
    plain = {name.replace("_", "-"): value for name, value in keys.items()}
    for name in scene.members:
        scene = scene.server(name, config={"slave-priority": "1", **plain})
    return scene


def asking(scene: Scene, **keys: str) -> Scene:
    """The user's spec.config."""
    plain = {name.replace("_", "-"): value for name, value in keys.items()}
    return scene.want(config=plain, user_keys=frozenset(plain))


# --- live keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "on_server"), [("10", "9"), ("2", "1"), ("1", "1"), ("0", "0"), ("often", "often")]
)
def test_servers_are_told_a_second_less_lag_so_that_the_declared_one_holds_to_a_second(
    declared: str, on_server: str
) -> None:
    scene = asking(configured(healthy(), min_replicas_max_lag="77"), min_replicas_max_lag=declared).settled()
    move = is_a(Configure, scene.decide())
    assert move.value == on_server
    scene = asking(configured(scene, min_replicas_max_lag=on_server), min_replicas_max_lag=declared)
    noted = is_a(Record, scene.decide())
    assert noted.config is not None
    result = noted.config["min-replicas-max-lag"]
    assert (result.wanted, result.effective, result.state) == (declared, on_server, "Applied")
    scene = scene.record(config=noted.config)
    published = is_a(PublishConfig, scene.decide())
    assert dict(published.values) == {"min-replicas-max-lag": on_server}
    published_scene = replace(scene, observed=replace(scene.observed, published=published.values))
    assert isinstance(published_scene.decide(), InSync)


def test_a_changed_key_is_noted_set_noted_again_and_published() -> None:
    scene = asking(configured(healthy(), hz="10"), hz="13")
    noted = is_a(Record, scene.decide())
    assert noted.config is not None
    assert (noted.config["hz"].state, noted.config["hz"].previous) == ("Pending", "10")
    scene = scene.record(config=noted.config)
    move = is_a(Configure, scene.decide())
    assert (move.key, move.value, len(move.targets)) == ("hz", "13", 3)
    scene = asking(configured(scene, hz="13"), hz="13")
    applied = is_a(Record, scene.decide())
    assert applied.config is not None
    assert applied.config["hz"].state == "Applied"
    scene = scene.record(config=applied.config)
    assert dict(is_a(PublishConfig, scene.decide()).values) == {"hz": "13"}
    assert is_a(InSync, scene.see(published={"hz": "13"}).decide())


def test_only_servers_that_differ_are_touched() -> None:
    scene = asking(configured(healthy(), hz="13"), hz="13").server("redis-2", config={"hz": "10"})
    scene = scene.record(
        config={"hz": ConfigResult(wanted="13", state="Applied", effective="13", previous="10")}
    )
    assert [target.name for target in is_a(Configure, scene.decide()).targets] == ["redis-2"]


def test_a_clamped_value_is_not_set_again_and_again() -> None:
    result = ConfigResult(wanted="600", effective="500", state="Clamped", previous="10")
    scene = asking(configured(healthy(), hz="500"), hz="600").record(config={"hz": result})
    assert is_a(InSync, scene.see(published={"hz": "600"}).decide())


def test_a_rejected_value_is_not_tried_again_nor_published() -> None:
    result = ConfigResult(wanted="x", state="Rejected", message="bad", previous="10")
    scene = asking(configured(healthy(), hz="10"), hz="x").record(config={"hz": result})
    assert is_a(InSync, scene.decide())


def test_one_key_in_two_spellings_with_two_values_is_not_set_to_and_fro() -> None:
    scene = configured(healthy(), replica_read_only="no")
    scene = asking(scene, replica_read_only="no", slave_read_only="yes")
    noted = is_a(Record, scene.decide())
    assert noted.config is not None
    assert {key: one.state for key, one in noted.config.items()} == {
        "replica-read-only": "Applied",
        "slave-read-only": "Rejected",
    }
    assert "replica-read-only" in noted.config["slave-read-only"].message
    scene = scene.record(config=noted.config)
    assert dict(is_a(PublishConfig, scene.decide()).values) == {"replica-read-only": "no"}
    assert is_a(InSync, scene.see(published={"replica-read-only": "no"}).decide())


@pytest.mark.parametrize(
    ("key", "shown", "state"),
    [("port", "6379", "Forbidden"), ("databases", "16", "NeedsRestart"), ("max-clients", "", "Unknown")],
)
def test_a_key_that_cannot_be_set_live_is_reported_with_a_remedy(key: str, shown: str, state: str) -> None:
    scene = healthy()
    for name in scene.members:
        scene = scene.server(name, config={"slave-priority": "1", **({key: shown} if shown else {})})
    scene = scene.want(config={key: "99"}, user_keys=frozenset({key}))
    noted = is_a(Record, scene.decide())
    assert noted.config is not None
    assert noted.config[key].state == state
    assert noted.config[key].message
    assert is_a(InSync, scene.record(config=noted.config).decide())


def test_a_key_the_servers_refuse_to_change_live_waits_for_a_start_from_then_on() -> None:
    scene = asking(configured(healthy(), odd_key="1"), odd_key="2")
    learnt = ConfigResult(wanted="2", effective="1", state="NeedsRestart", restart=True)
    noted = is_a(Record, scene.record(config={"odd-key": learnt}).decide()).config
    assert noted is not None
    assert "read at start only" in noted["odd-key"].message
    rolled = asking(configured(healthy(), odd_key="2"), odd_key="2").record(config=noted)
    applied = is_a(Record, rolled.decide()).config
    assert applied is not None
    assert (applied["odd-key"].state, applied["odd-key"].restart) == ("Applied", True)


@pytest.mark.parametrize(
    ("rolls", "remedy"), [(False, "spec.configPolicy: roll"), (True, "are rolled for it")]
)
def test_what_a_restart_only_key_waits_for_depends_on_the_policy(rolls: bool, remedy: str) -> None:
    scene = asking(configured(healthy(rolls_config=rolls), databases="16"), databases="32")
    noted = is_a(Record, scene.decide()).config
    assert noted is not None
    assert remedy in noted["databases"].message


def test_a_forbidden_keys_secret_value_is_not_repeated() -> None:
    noted = is_a(Record, asking(healthy(), requirepass="hush").decide()).config
    assert noted is not None
    assert (noted["requirepass"].state, noted["requirepass"].wanted) == ("Forbidden", "")
    assert is_a(InSync, asking(healthy(), requirepass="hush").record(config=noted).decide())


def test_a_dropped_key_gets_its_earlier_value_back() -> None:
    result = ConfigResult(wanted="13", effective="13", state="Applied", previous="10")
    scene = configured(healthy(), hz="13").record(config={"hz": result}).see(published={"hz": "13"})
    assert is_a(Configure, scene.decide()).value == "10"
    done = is_a(Record, configured(scene, hz="10").decide())
    assert done.config == {}
    assert is_a(PublishConfig, configured(scene, hz="10").record(config={}).decide()).values == {}


def test_the_persistence_switch_is_a_live_change_without_a_restart() -> None:
    scene = configured(healthy(), appendonly="yes").want(config={"appendonly": "no"})
    assert is_a(Configure, scene.decide()).value == "no"


@pytest.mark.parametrize(
    ("key", "left", "right", "same"),
    [
        ("maxmemory", "100mb", "104857600", True),
        ("maxmemory", "1g", "1000000000", True),
        ("maxmemory", "1gb", "1g", False),
        ("appendonly", "YES", "yes", True),
        ("save", "900 1 300 10", "900  1 300 10", True),
        ("save", "", '""', True),
        (
            "client-output-buffer-limit",
            "slave 256mb 64mb 60",
            "normal 0 0 0 replica 268435456 67108864 60",
            True,
        ),
        ("hz", "10", "11", False),
    ],
)
def test_values_are_compared_by_meaning(key: str, left: str, right: str, same: bool) -> None:
    assert same_value(key, left, right) is same


def test_old_and_new_spellings_are_one_key() -> None:
    assert classify("slaveof") == "forbidden"
    assert classify("slave-priority") == classify("replica-priority") == "forbidden"
    assert classify("min-slaves-to-write") == "live"


# --- sizes -----------------------------------------------------------------------------------------------


def test_growth_is_one_resize_and_the_new_pod_is_released_after_it_synchronised() -> None:
    assert is_a(Resize, healthy().want(size=5).decide()).replicas == 5
    assert is_a(Resize, healthy().want(sentinels=5).decide()).component == "sentinel"


def leaving(size: int, **changes: Any) -> Scene:
    return healthy(size=5).want(size=size, **changes)


def test_replicas_that_leave_are_held_out_of_election_first() -> None:
    closed = is_a(SetPriority, leaving(3).decide())
    assert ([target.name for target in closed.targets], closed.priority) == (["redis-3", "redis-4"], 0)


def test_pods_are_removed_once_nobody_can_elect_them() -> None:
    scene = leaving(3).server("redis-3", priority=0).server("redis-4", priority=0)
    assert is_a(Resize, scene.decide()).replicas == 3


def test_the_master_hands_over_before_its_pod_is_removed() -> None:
    scene = mastered_by_the_last(healthy(size=5)).want(size=3).server("redis-3", priority=0)
    blocked = waits_for("SwitchBlocked", scene.decide())
    assert "has not seen yet" in blocked.message
    scene = knowing(scene, unfit="redis-3")
    operation = is_a(Record, scene.decide()).operation
    assert operation is not None
    assert (operation.kind, operation.subject) == ("Switch", "redis-4")


def mastered_by_the_last(scene: Scene) -> Scene:
    name = "redis-4"
    ip = scene.members[name].ip
    lineage = scene.recorded.lineage
    assert lineage is not None
    scene = scene.record(lineage=lineage.succeed(scene.members[name].pod, replid="line", sentinel_epoch=0))
    for other in scene.members:
        scene = scene.server(other, role="slave", master=Address(ip, 6379), link_up=True)
    scene = scene.server(name, role="master", master=None, link_up=False)
    peers = tuple(
        Peer(ip=one.ip, port=6379, priority=1) for one in scene.members.values() if one.name != name
    )
    return scene.sentinels(master=Address(ip, 6379), replicas=peers)


def knowing(scene: Scene, *, unfit: str) -> Scene:
    ip = scene.members[unfit].ip
    for name, watcher in scene.watchers.items():
        assert watcher.sentinel is not None
        peers = tuple(
            replace(peer, priority=0) if peer.ip == ip else peer for peer in watcher.sentinel.replicas
        )
        scene = scene.sentinel(name, replicas=peers)
    return scene


def test_nothing_is_removed_while_no_remaining_replica_is_in_sync() -> None:
    scene = leaving(3).server("redis-3", priority=0).server("redis-4", priority=0)
    lineage = scene.recorded.lineage
    assert lineage is not None
    for name in ("redis-1", "redis-2"):
        scene = scene.server(name, syncing=True, link_up=False, priority=0)
    kept = [scene.members[name].pod for name in ("redis-0", "redis-3", "redis-4")]
    verdict = scene.record(lineage=lineage.with_members(kept)).sentinels(replicas=()).decide()
    assert not isinstance(verdict, Resize)


def test_sentinels_leave_one_by_one() -> None:
    scene = healthy(sentinels=5).want(sentinels=3)
    assert is_a(Resize, scene.decide()).replicas == 4
    settings = {**scene.watchers["sentinel-0"].sentinel.settings, "quorum": "3"}  # type: ignore[union-attr]
    going = scene.see(sentinel_set=SetState(replicas=4)).sentinels(settings=settings)
    waits_for("SentinelLeaving", going.decide())


# --- roles and pauses -----------------------------------------------------------------------------------


def labelled(scene: Scene, **roles: str) -> Scene:
    for name, role in roles.items():
        scene = scene.pod(name.replace("_", "-"), role=role)
    return scene


def test_pods_are_labelled_with_their_roles_and_nobody_is_master_twice() -> None:
    scene = labelled(healthy(), redis_0="", redis_1="master", redis_2="replica")
    assert dict(is_a(LabelRoles, scene.decide()).roles) == {"redis-0": "master", "redis-1": "replica"}
    is_a(InSync, labelled(healthy(), redis_0="master", redis_1="replica", redis_2="replica").decide())


def test_a_master_that_is_gone_loses_its_label_though_it_does_not_answer() -> None:
    scene = labelled(healthy(), redis_0="master", redis_1="replica", redis_2="master").silent("redis-2")
    assert dict(is_a(LabelRoles, scene.settled().decide()).roles) == {"redis-2": "replica"}


@pytest.mark.parametrize("running", [True, False])
def test_a_new_master_is_labelled_first_where_the_former_one_has_ended(running: bool) -> None:
    scene = labelled(healthy(), redis_0="replica", redis_1="master", redis_2="replica")
    verdict = is_a(LabelRoles, scene.pod("redis-1", running=running).settled().decide())
    assert dict(verdict.roles) == {"redis-0": "master", "redis-1": "replica"}
    assert verdict.leader_first is not running


def test_a_paused_cluster_is_left_alone_and_what_would_be_done_is_said() -> None:
    scene = asking(configured(healthy(paused=True), hz="10"), hz="13")
    scene = scene.record(config={"hz": ConfigResult(wanted="13", state="Pending", previous="10")})
    waiting = is_a(Wait, scene.planned())
    assert waiting.reason == "Paused"
    assert "Configure" in waiting.message
    assert "mooring.dev/pause" in waiting.message


def test_a_pause_stops_no_note_of_what_the_sentinels_did() -> None:
    scene = labelled(healthy(paused=True)).sentinels(epoch=3)
    is_a(Record, scene.planned())
    dead = healthy(paused=True).dead("redis-0")
    assert is_a(Wait, dead.planned()).reason == "Paused"


# --- what is missing ------------------------------------------------------------------------------------


def test_a_pod_that_is_away_is_named_with_its_reason() -> None:
    scene = healthy().silent("redis-2", seconds=3)
    scene = scene.pod("redis-2", running=False, trouble="Unschedulable", trouble_message="0/1 nodes")
    found = waits_for("Unschedulable", scene.settled().decide())
    assert found.stalled
    assert "redis-2" in found.message


def test_pods_that_are_not_ready_are_not_called_healthy() -> None:
    waits_for("PodsNotReady", healthy().pod("redis-1", ready=False).decide())


def test_gated_servers_are_no_reason_to_hurry_a_change() -> None:
    scene = healthy().want(size=5).member("redis-2", healthy().members["redis-2"])
    scene = scene.server("redis-2", master=at_gate().master, link_up=False)
    assert not isinstance(scene.decide(), Resize)
