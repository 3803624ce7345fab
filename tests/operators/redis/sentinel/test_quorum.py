"""Sentinels are mended one at a time, with a quorum at every moment."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.operators.redis.sentinel.builders import Scene, ago, healthy
from tests.operators.redis.sentinel.test_plan import is_a, waits_for

from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.moves import DeletePod, Hasten, InSync, Monitor, TuneSentinel
from mooring.operators.redis.sentinel.quorum import PERIODS
from mooring.operators.redis.sentinel.topology import Peer, Replica
from mooring.operators.redis.sentinel.types import LastFailover

DEAD = Address("10.9.9.9", 6379)


def names(move: Monitor) -> list[str]:
    return [target.name for target in move.sentinels]


def test_sentinels_that_watch_nothing_are_told_the_master_with_the_right_quorum() -> None:
    scene = healthy(sentinels=5).sentinels(master=None, replicas=(), sentinels=(), settings={})
    move = is_a(Monitor, scene.decide())
    assert (move.master.address.ip, move.quorum, len(move.sentinels)) == ("10.0.0.1", 3, 5)


def test_a_majority_that_watches_a_dead_address_is_emptied_first_and_then_pointed() -> None:
    move = is_a(Monitor, healthy().sentinels(master=DEAD, epoch=4).decide())
    assert len(move.sentinels) == 3


def test_sentinels_that_have_not_heard_of_a_new_master_get_a_moment() -> None:
    scene = healthy().sentinel("sentinel-0", epoch=1).sentinel("sentinel-1", master=DEAD)
    scene = scene.sentinel("sentinel-2", epoch=1)
    lineage = scene.recorded.lineage
    assert lineage is not None
    scene = scene.record(lineage=msgspec.structs.replace(lineage, sentinel_epoch=1))
    waits_for("SentinelsLearning", scene.record(last_failover=LastFailover(at=ago(1))).decide())
    late = scene.record(last_failover=LastFailover(at=ago(60)))
    assert names(is_a(Monitor, late.decide())) == ["sentinel-1"]


def test_settings_that_differ_are_set_and_nothing_else() -> None:
    scene = healthy()
    settings = {**scene.watchers["sentinel-1"].sentinel.settings, "quorum": "3"}  # type: ignore[union-attr]
    move = is_a(TuneSentinel, scene.sentinel("sentinel-1", settings=settings).decide())
    assert (move.sentinel.name, dict(move.settings)) == ("sentinel-1", {"quorum": "2"})


@pytest.mark.parametrize("late", [{"info-period": 10000}, {"publish-period": 1000}], ids=str)
def test_sentinels_that_can_are_told_to_ask_more_often_and_not_to_take_others_sooner(
    late: dict[str, int],
) -> None:
    scene = healthy().sentinel("sentinel-0", periods={})
    scene = scene.sentinel("sentinel-1", periods={**PERIODS, "tilt-period": 30000, **late})
    move = is_a(Hasten, scene.sentinel("sentinel-2", periods=PERIODS).decide())
    assert [one.name for one in move.sentinels] == ["sentinel-1"]
    assert (move.periods["info-period"], move.periods["publish-period"]) == (800, 2000)
    assert is_a(InSync, scene.sentinel("sentinel-1", periods=move.periods).decide())


def test_the_users_quorum_wins() -> None:
    move = is_a(TuneSentinel, healthy(quorum=3).decide())
    assert dict(move.settings) == {"quorum": "3"}


def haunted(scene: Scene, *sentinels: str) -> Scene:
    ghost = Peer(ip="10.9.9.9", port=6379, flags=frozenset({"slave", "s_down", "disconnected"}))
    for name in sentinels:
        watcher = scene.watchers[name]
        assert watcher.sentinel is not None
        scene = scene.sentinel(name, replicas=(*watcher.sentinel.replicas, ghost))
    return scene


def test_a_dead_replicas_address_is_forgotten_by_one_sentinel_at_a_time() -> None:
    scene = haunted(healthy(), "sentinel-0", "sentinel-1", "sentinel-2")
    assert names(is_a(Monitor, scene.decide())) == ["sentinel-0"]


def test_the_next_sentinel_waits_until_the_last_one_knows_everybody() -> None:
    scene = haunted(healthy(), "sentinel-1", "sentinel-2").sentinel("sentinel-0", replicas=(), sentinels=())
    waits_for("SentinelsLearning", scene.decide())


def test_a_sentinel_that_knows_no_replica_is_no_quorum_whatever_it_says() -> None:
    scene = haunted(healthy(), "sentinel-0").sentinel("sentinel-1", replicas=(), quorum_ok=True)
    waits_for("SentinelsLearning", scene.decide())


def test_a_sentinel_that_sees_nobody_it_could_elect_is_no_quorum_either() -> None:
    scene = haunted(healthy(), "sentinel-0")
    watcher = scene.watchers["sentinel-1"]
    assert watcher.sentinel is not None
    barred = tuple(replace(peer, priority=0) for peer in watcher.sentinel.replicas)
    waits_for("SentinelsLearning", scene.sentinel("sentinel-1", replicas=barred).decide())


def without(scene: Scene, name: str, *, replica: str) -> Scene:
    """A sentinel that has not heard of a replica yet."""
    watcher = scene.watchers[name]
    assert watcher.sentinel is not None
    return scene.sentinel(name, replicas=tuple(one for one in watcher.sentinel.replicas if one.ip != replica))


def test_a_replica_that_has_just_come_up_does_not_keep_the_sentinels_from_forgetting() -> None:
    scene = haunted(healthy(), "sentinel-0", "sentinel-1", "sentinel-2")
    for name in ("sentinel-0", "sentinel-1", "sentinel-2"):
        scene = without(scene, name, replica="10.0.0.3")
    assert names(is_a(Monitor, scene.decide())) == ["sentinel-0"]


def test_a_sentinel_that_knows_a_replica_the_others_do_not_is_not_the_one_that_forgets() -> None:
    scene = haunted(healthy(), "sentinel-0", "sentinel-1")
    scene = without(scene, "sentinel-1", replica="10.0.0.3")
    assert names(is_a(Monitor, scene.decide())) == ["sentinel-1"]
    scene = without(haunted(healthy(), "sentinel-0"), "sentinel-1", replica="10.0.0.3")
    waiting = waits_for("SentinelsLearning", scene.decide())
    assert "sentinel-1 must be able to fail over first" in waiting.message


def test_those_who_forget_and_those_who_stay_are_introduced() -> None:
    scene = haunted(healthy(), "sentinel-1")
    for number in range(3):
        scene = scene.sentinel(f"sentinel-{number}", my_id=f"id-{number}")
    move = is_a(Monitor, scene.decide())
    assert {id: peer.name for id, peer in move.peers.items()} == {
        "id-0": "sentinel-0",
        "id-1": "sentinel-1",
        "id-2": "sentinel-2",
    }


def followed(scene: Scene) -> Scene:
    """Every sentinel lists a live follower that is no pod of ours."""
    foreign = Peer(ip="172.16.0.1", port=6379, priority=0, flags=frozenset({"slave"}))
    for name, watcher in scene.watchers.items():
        assert watcher.sentinel is not None
        scene = scene.sentinel(name, replicas=(*watcher.sentinel.replicas, foreign))
    return scene


def test_a_live_follower_that_is_not_ours_is_left_alone() -> None:
    theirs = Replica(ip="172.16.0.1", port=6379, state="online", offset=1000, lag=0)
    assert is_a(InSync, followed(healthy()).server("redis-0", replicas=(theirs,)).decide())


def test_a_follower_that_no_sentinel_reaches_is_left_alone_while_the_master_lists_it() -> None:
    theirs = Replica(ip="10.9.9.9", port=6379, state="online", offset=1000, lag=0)
    scene = haunted(healthy(), "sentinel-0", "sentinel-1", "sentinel-2")
    assert is_a(InSync, scene.server("redis-0", replicas=(theirs,)).decide())


def test_a_pod_that_is_gone_is_forgotten_before_the_sentinels_miss_it() -> None:
    step = is_a(Monitor, followed(healthy()).decide())
    assert [one.name for one in step.sentinels] == ["sentinel-0"]


def test_after_a_failover_foreign_followers_get_their_time_to_be_turned() -> None:
    scene = followed(healthy())
    assert is_a(InSync, scene.record(last_failover=LastFailover(at=ago(5))).decide())
    assert is_a(Monitor, scene.record(last_failover=LastFailover(at=ago(60))).decide())


def test_a_foreign_server_that_leads_is_forgotten_before_it_is_made_to_follow() -> None:
    scene = healthy()
    foreign = Peer(ip="10.9.9.9", port=6379, flags=frozenset({"slave"}), leads=True)
    watcher = scene.watchers["sentinel-1"]
    assert watcher.sentinel is not None
    scene = scene.sentinel("sentinel-1", replicas=(*watcher.sentinel.replicas, foreign))
    assert names(is_a(Monitor, scene.decide())) == ["sentinel-1"]


def test_a_ghost_among_the_sentinels_is_forgotten_too() -> None:
    scene = healthy()
    ghost = Peer(ip="10.0.1.99", port=26379, flags=frozenset({"sentinel", "s_down"}))
    watcher = scene.watchers["sentinel-2"]
    assert watcher.sentinel is not None
    scene = scene.sentinel("sentinel-2", sentinels=(*watcher.sentinel.sentinels, ghost))
    assert names(is_a(Monitor, scene.decide())) == ["sentinel-2"]


def test_a_live_sentinel_of_another_cluster_is_forgotten() -> None:
    scene = healthy()
    foreign = Peer(ip="10.0.2.9", port=26379, flags=frozenset({"sentinel"}))
    watcher = scene.watchers["sentinel-0"]
    assert watcher.sentinel is not None
    scene = scene.sentinel("sentinel-0", sentinels=(*watcher.sentinel.sentinels, foreign))
    assert names(is_a(Monitor, scene.decide())) == ["sentinel-0"]


def test_nothing_is_mended_while_a_failover_runs() -> None:
    scene = haunted(healthy(), "sentinel-0").sentinel(
        "sentinel-1", flags=frozenset({"master", "failover_in_progress"})
    )
    waits_for("SentinelFailover", scene.decide())


def test_a_sentinel_that_is_gone_does_not_keep_the_others_from_being_mended() -> None:
    scene = healthy().blind("sentinel-2")
    scene = scene.sentinel("sentinel-0", master=DEAD).sentinel("sentinel-1", master=DEAD)
    assert names(is_a(Monitor, scene.decide())) == ["sentinel-0", "sentinel-1"]


def test_the_quorum_follows_the_number_of_sentinels_there_are() -> None:
    scene = healthy(sentinels=3)
    scene = scene.see(sentinel_set=replace(scene.observed.sentinel_set, replicas=5)).want(sentinels=5)
    assert dict(is_a(TuneSentinel, scene.decide()).settings) == {"quorum": "3"}


def test_a_sentinel_that_does_not_learn_in_time_is_pointed_anew() -> None:
    scene = healthy().sentinel("sentinel-1", replicas=())
    assert not waits_for(
        "SentinelsLearning", scene.record(learning_since={"sentinel-1": ago(5)}).decide()
    ).stalled
    late = scene.record(learning_since={"sentinel-1": ago(31)})
    assert names(is_a(Monitor, late.decide())) == ["sentinel-1"]


def test_a_sentinel_that_takes_a_living_master_for_dead_is_pointed_anew() -> None:
    scene = healthy().sentinel("sentinel-1", flags=frozenset({"master", "s_down"}))
    waits_for("SentinelsLearning", scene.decide())
    assert names(is_a(Monitor, scene.record(learning_since={"sentinel-1": ago(31)}).decide())) == [
        "sentinel-1"
    ]


def test_sentinels_that_could_fail_over_are_not_emptied_while_the_others_cannot() -> None:
    scene = healthy()
    for name in ("sentinel-0", "sentinel-1"):
        watcher = scene.watchers[name]
        assert watcher.sentinel is not None
        scene = scene.sentinel(name, replicas=watcher.sentinel.replicas[:1])
    late = scene.record(learning_since={"sentinel-0": ago(31), "sentinel-1": ago(31)})
    waiting = waits_for("SentinelsLearning", late.decide())
    assert waiting.stalled
    assert "delete it" in waiting.message


def test_sentinels_that_do_not_take_the_key_are_made_again_one_at_a_time() -> None:
    locked = healthy().sentinels(locked=True)
    first = is_a(DeletePod, locked.decide())
    assert (first.component, first.pod) == ("sentinel", "sentinel-0")
    unsure = locked.sentinel("sentinel-1", replicas=(), sentinels=())
    assert is_a(DeletePod, unsure.decide()).pod == "sentinel-1"
    astray = locked.sentinels(master=DEAD)
    assert is_a(DeletePod, astray.decide()).pod == "sentinel-0"


def test_an_address_that_is_not_ours_is_named() -> None:
    assert (
        "10.9.9.9:6379" in is_a(Monitor, healthy().sentinels(master=Address("10.9.9.9", 6379)).decide()).why
    )
    watcher = healthy().watchers["sentinel-0"].sentinel
    assert watcher is not None
    foreign = Peer(ip="10.9.9.8", port=26379)
    scene = healthy().sentinel("sentinel-0", sentinels=(*watcher.sentinels, foreign))
    assert "10.9.9.8" in is_a(Monitor, scene.decide()).why
