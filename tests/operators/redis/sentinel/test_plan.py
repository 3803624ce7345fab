"""Who leads, who follows, and when nothing may be done: the planner without any I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest
from tests.operators.redis.sentinel.builders import NOW, Scene, ago, at_gate, healthy

from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.failover import ALL_DATA
from mooring.operators.redis.sentinel.moves import (
    Demote,
    FailOver,
    Follow,
    InSync,
    Move,
    Promote,
    Quarantine,
    Record,
    SetPriority,
    Switch,
    Verdict,
    Wait,
)

M = TypeVar("M")


def is_a(kind: type[M], verdict: Verdict) -> M:
    assert isinstance(verdict, kind), verdict
    return verdict


def waits_for(reason: str, verdict: Verdict) -> Wait:
    found = is_a(Wait, verdict)
    assert found.reason == reason, found
    return found


def empty(scene: Scene) -> Scene:
    """A cluster that never ran: every server gated and empty, nothing recorded."""
    for name in scene.members:
        scene = scene.member(name, replace(scene.members[name], server=at_gate(replid=f"fresh-{name}")))
    return scene.record(lineage=None).sentinels(master=None, replicas=(), sentinels=(), settings={})


def test_nothing_is_done_to_a_healthy_cluster() -> None:
    assert is_a(InSync, healthy().decide())


# --- the first master ------------------------------------------------------------------------------------


def test_the_lowest_pod_of_an_empty_cluster_is_recorded_before_it_is_promoted() -> None:
    verdict = is_a(Record, empty(healthy()).decide())
    assert verdict.lineage is not None
    assert verdict.lineage.master.pod == "redis-0"
    assert verdict.operation is not None
    assert verdict.operation.kind == "Promote"


def test_a_recorded_promotion_is_carried_out() -> None:
    scene = empty(healthy())
    first = is_a(Record, scene.decide())
    verdict = scene.record(lineage=first.lineage, operation=first.operation).decide()
    assert is_a(Promote, verdict).target.name == "redis-0"


def test_a_recorded_promotion_of_a_server_that_restarted_is_given_up() -> None:
    scene = empty(healthy())
    first = is_a(Record, scene.decide())
    verdict = scene.record(lineage=first.lineage, operation=first.operation).restarted("redis-0").decide()
    assert is_a(Record, verdict).finish


def test_a_new_cluster_waits_a_moment_for_all_its_pods() -> None:
    scene = empty(healthy()).silent("redis-0")
    for name in scene.members:
        scene = scene.pod(name, created=ago(2))
    waits_for("PodsStarting", scene.decide())


def test_a_pending_pod_does_not_block_a_new_cluster_for_long() -> None:
    scene = empty(healthy()).silent("redis-0")
    verdict = is_a(Record, scene.decide())
    assert verdict.lineage is not None
    assert verdict.lineage.master.pod == "redis-1"


@pytest.mark.parametrize("missing", [False, True], ids=["silent", "no pod yet"])
def test_a_claim_of_an_earlier_cluster_that_does_not_answer_is_not_taken_for_empty(missing: bool) -> None:
    scene = empty(healthy()).silent("redis-2").pod("redis-2", fresh=False)
    if missing:
        scene = scene.gone("redis-2").see(old_claims=frozenset({"redis-2"}))
    waits_for("WaitingForData", scene.decide())


def test_the_only_server_with_data_leads_whatever_its_number() -> None:
    scene = empty(healthy()).server("redis-2", keys=5)
    verdict = is_a(Record, scene.decide())
    assert verdict.lineage is not None
    assert verdict.lineage.master.pod == "redis-2"


def test_unrelated_histories_are_refused_with_a_way_out() -> None:
    scene = empty(healthy()).server("redis-1", keys=5).server("redis-2", keys=7)
    verdict = waits_for("UnrelatedData", scene.decide())
    assert verdict.stalled
    assert "mooring.dev/elect-master" in verdict.message
    chosen = is_a(Record, scene.want(elect="redis-1").decide())
    assert chosen.lineage is not None
    assert chosen.lineage.master.pod == "redis-1"


def test_a_server_that_loads_its_data_is_waited_for() -> None:
    waits_for("Loading", empty(healthy()).server("redis-1", loading=True).decide())


def test_a_running_master_that_nobody_recorded_is_taken_over() -> None:
    verdict = is_a(Record, healthy().record(lineage=None).decide())
    assert verdict.operation is None
    assert verdict.lineage is not None
    assert verdict.lineage.master.pod == "redis-0"


def test_an_unrecorded_empty_master_over_servers_with_data_is_not_taken_over() -> None:
    waits_for("UnrelatedData", healthy().record(lineage=None).server("redis-0", keys=0).decide())


def test_a_cluster_that_comes_back_without_its_volumes_is_said_to_have_lost_all_data() -> None:
    names = ("redis-0", "redis-1", "redis-2")

    def came_back(scene: Scene, *, volumes: bool) -> str:
        for name in names:
            scene = scene.replaced(name, volume="" if volumes else f"new-{name}")
        recorded = is_a(Record, scene.decide()).last_failover
        assert recorded is not None
        return recorded.loss_bound

    assert came_back(healthy(), volumes=False) == ALL_DATA
    assert came_back(healthy(persistence=False), volumes=True) == ALL_DATA
    # The volumes are there: an empty cluster has nothing to lose.
    assert came_back(healthy(), volumes=True) == "only writes not yet flushed to its append-only file"


# --- the master's death ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "break_it",
    [
        lambda scene: scene.dead("redis-0"),
        lambda scene: scene.restarted("redis-0"),
        lambda scene: scene.restarted("redis-0", keys=10),
        lambda scene: scene.replaced("redis-0"),
        lambda scene: scene.gone("redis-0"),
    ],
    ids=["container ended", "restarted empty", "restarted with data", "pod replaced", "pod gone"],
)
def test_a_known_death_is_recorded_and_the_sentinels_are_asked_at_once(break_it: object) -> None:
    scene: Scene = break_it(healthy())  # type: ignore[operator]
    verdict = is_a(Record, scene.decide())
    assert verdict.operation is not None
    assert (verdict.operation.kind, verdict.operation.subject) == ("FailOver", "redis-0")
    asked = is_a(FailOver, scene.record(operation=verdict.operation).decide())
    assert asked.best.name == "redis-1"
    assert len(asked.sentinels) == 3
    assert not asked.equalise


def test_heirs_that_differ_are_brought_level_behind_the_one_with_most() -> None:
    scene = healthy().dead("redis-0").server("redis-2", offset=1005).operation("FailOver", "redis-0")
    asked = is_a(FailOver, scene.decide())
    assert asked.best.name == "redis-2"
    assert asked.equalise


def test_an_empty_heir_never_wins_over_one_with_data() -> None:
    scene = healthy().dead("redis-0").server("redis-1", keys=0, offset=9999).operation("FailOver", "redis-0")
    assert [heir.name for heir in is_a(FailOver, scene.decide()).heirs] == ["redis-2"]


def test_a_replica_that_was_never_in_sync_is_no_heir() -> None:
    scene = healthy().dead("redis-0")
    lineage = scene.recorded.lineage
    assert lineage is not None
    only = lineage.with_members([scene.members["redis-0"].pod, scene.members["redis-2"].pod])
    scene = scene.record(lineage=only).server("redis-1", offset=9999)
    assert [heir.name for heir in is_a(FailOver, scene.operation("FailOver", "redis-0").decide()).heirs] == [
        "redis-2"
    ]


def test_without_a_useful_sentinel_the_best_heir_is_recorded_and_promoted_by_us() -> None:
    scene = healthy().dead("redis-0").blind("sentinel-0", "sentinel-1", "sentinel-2")
    verdict = is_a(Record, scene.operation("FailOver", "redis-0").decide())
    assert verdict.lineage is not None
    assert verdict.lineage.master.pod == "redis-1"
    assert verdict.lineage.epoch == 2
    assert verdict.operation is not None
    assert verdict.operation.kind == "Promote"
    assert verdict.last_failover is not None
    assert verdict.last_failover.cause == "MasterDied"


def test_sentinels_that_know_no_replica_are_not_useful_whatever_ckquorum_says() -> None:
    scene = healthy().dead("redis-0").sentinels(replicas=(), quorum_ok=True)
    verdict = is_a(Record, scene.operation("FailOver", "redis-0").decide())
    assert verdict.operation is not None
    assert verdict.operation.kind == "Promote"


def test_sentinels_that_do_not_get_it_done_are_overtaken_after_three_seconds() -> None:
    scene = healthy().dead("redis-0")
    assert is_a(FailOver, scene.operation("FailOver", "redis-0", seconds=2.9).decide())
    verdict = is_a(Record, scene.operation("FailOver", "redis-0", seconds=3.1).decide())
    assert verdict.operation is not None
    assert verdict.operation.kind == "Promote"


def test_a_failover_of_the_sentinels_is_not_disturbed() -> None:
    scene = healthy().dead("redis-0").operation("FailOver", "redis-0")
    scene = scene.sentinel("sentinel-1", flags=frozenset({"master", "failover_in_progress"}))
    waits_for("SentinelFailover", scene.decide())


def test_the_new_master_is_recorded_with_what_happened() -> None:
    scene = healthy().dead("redis-0").operation("FailOver", "redis-0")
    scene = scene.server("redis-1", role="master", master=None, replid="next", replid2="line")
    verdict = is_a(Record, scene.decide())
    assert verdict.lineage is not None
    assert (verdict.lineage.master.pod, verdict.lineage.epoch, verdict.lineage.replid) == (
        "redis-1",
        2,
        "next",
    )
    assert verdict.finish
    assert verdict.last_failover is not None
    assert verdict.last_failover.gap_seconds == pytest.approx(0.2)


def test_with_its_log_and_no_needed_replica_the_dead_master_is_awaited_a_second() -> None:
    scene = healthy(min_replicas=0).dead("redis-0", seconds=0.3)
    waits_for("AwaitingMaster", scene.decide())
    back = is_a(Record, healthy(min_replicas=0).restarted("redis-0", keys=10).decide())
    assert back.lineage is not None
    assert back.lineage.master.pod == "redis-0"
    late = is_a(Record, healthy(min_replicas=0).dead("redis-0", seconds=1.2).decide())
    assert late.operation is not None
    assert late.operation.kind == "FailOver"


def test_without_persistence_the_dead_master_is_never_awaited() -> None:
    verdict = is_a(Record, healthy(min_replicas=0, persistence=False).dead("redis-0", seconds=0.1).decide())
    assert verdict.operation is not None
    assert verdict.operation.kind == "FailOver"


# --- silence is not death --------------------------------------------------------------------------------


def test_a_master_that_does_not_answer_is_left_to_the_sentinels() -> None:
    waits_for("MasterUnreachable", healthy().silent("redis-0", seconds=20).decide())


def test_when_the_sentinels_failed_for_long_the_operator_decides() -> None:
    scene = healthy().silent("redis-0", seconds=36)
    for name in ("redis-1", "redis-2"):
        scene = scene.server(name, link_up=False)
    verdict = is_a(Record, scene.decide())
    assert verdict.lineage is not None
    assert verdict.lineage.master.pod == "redis-1"


def test_a_master_that_its_replicas_still_hear_is_never_replaced() -> None:
    waits_for("MasterUnreachable", healthy().silent("redis-0", seconds=600).decide())


def test_an_operator_cut_off_from_the_majority_of_sentinels_decides_nothing() -> None:
    scene = healthy().silent("redis-0", seconds=600).blind("sentinel-0", "sentinel-1")
    for name in ("redis-1", "redis-2"):
        scene = scene.server(name, link_up=False)
    waits_for("MasterUnreachable", scene.decide())


def test_an_operator_that_sees_nobody_decides_nothing() -> None:
    scene = healthy().silent("redis-0", "redis-1", "redis-2", seconds=600)
    assert isinstance(scene.decide(), Wait)


# --- everybody restarted ---------------------------------------------------------------------------------


def all_restarted(scene: Scene, *, keys: int = 10) -> Scene:
    for name in scene.members:
        scene = scene.restarted(name, keys=keys)
    return scene


def new_master(verdict: Verdict) -> str:
    lineage = is_a(Record, verdict).lineage
    assert lineage is not None
    return lineage.master.pod


def test_after_a_restart_of_all_the_recorded_master_leads_again() -> None:
    lineage = healthy().recorded.lineage
    assert lineage is not None
    assert new_master(all_restarted(healthy()).decide()) == "redis-0"
    other = replace(healthy().members["redis-2"].pod)
    scene = all_restarted(healthy().record(lineage=lineage.succeed(other, replid="line", sentinel_epoch=0)))
    assert new_master(scene.decide()) == "redis-2"


def test_a_failover_of_the_sentinels_after_the_record_overrides_it() -> None:
    scene = all_restarted(healthy()).sentinels(master=Address("10.0.0.2", 6379), epoch=3)
    assert new_master(scene.decide()) == "redis-1"


def test_a_single_sentinel_overrides_nothing() -> None:
    scene = all_restarted(healthy()).sentinel("sentinel-0", master=Address("10.0.0.2", 6379), epoch=3)
    assert new_master(scene.decide()) == "redis-0"


def test_a_recorded_master_that_loads_is_waited_for() -> None:
    waits_for("Loading", all_restarted(healthy()).server("redis-0", loading=True, keys=0).decide())


def test_a_recorded_master_that_is_missing_is_waited_for_a_minute_and_then_another_stands() -> None:
    soon = all_restarted(healthy()).silent("redis-0", seconds=20)
    waits_for("AwaitingRecorded", soon.decide())
    late = all_restarted(healthy()).silent("redis-0", seconds=61)
    assert new_master(late.decide()) == "redis-1"


def test_a_missing_pod_whose_claim_is_there_may_still_hold_the_data() -> None:
    scene = all_restarted(healthy()).gone("redis-0").record(unreachable_since={"redis-0": ago(20)})
    waits_for("AwaitingRecorded", scene.decide())
    lost = scene.see(volumes={})
    assert new_master(lost.decide()) == "redis-1"


def test_a_recorded_master_that_came_back_empty_yields_to_one_with_data() -> None:
    scene = all_restarted(healthy()).server("redis-0", keys=0)
    assert new_master(scene.decide()) in {"redis-1", "redis-2"}


def test_a_server_with_data_on_a_volume_nobody_recorded_does_not_stand() -> None:
    scene = all_restarted(healthy()).replaced("redis-1", keys=99, volume="claim-foreign")
    assert new_master(scene.decide()) == "redis-0"


def test_the_only_possible_holder_of_the_data_is_never_given_up_by_itself() -> None:
    scene = all_restarted(healthy(), keys=0).silent("redis-2", seconds=3600)
    verdict = waits_for("DataUnreachable", scene.decide())
    assert verdict.stalled


def test_when_all_came_back_empty_the_recorded_master_starts_over() -> None:
    verdict = is_a(Record, all_restarted(healthy(persistence=False), keys=0).decide())
    assert new_master(verdict) == "redis-0"
    assert verdict.last_failover is not None
    assert "empty" in verdict.last_failover.choice


def test_all_pods_with_new_addresses_are_led_by_the_recorded_volume() -> None:
    scene = healthy()
    for name in scene.members:
        scene = scene.replaced(name, keys=10)
    assert new_master(scene.decide()) == "redis-0"


# --- two masters -----------------------------------------------------------------------------------------


def healed(scene: Scene) -> Scene:
    """redis-1 was made master by the sentinels; redis-0 wakes and still calls itself master."""
    scene = scene.server("redis-1", role="master", master=None, replid="next", replid2="line")
    scene = scene.server("redis-2", master=Address("10.0.0.2", 6379), replid="next", replid2="line")
    return scene.sentinels(master=Address("10.0.0.2", 6379), epoch=1)


def test_the_sentinels_choice_is_recorded_before_anything_else() -> None:
    verdict = is_a(Record, healed(healthy()).decide())
    assert new_master(verdict) == "redis-1"
    assert verdict.last_failover is not None
    assert verdict.last_failover.cause == "SentinelDecided"


def test_the_old_master_is_demoted_at_once() -> None:
    scene = healed(healthy())
    recorded = is_a(Record, scene.decide())
    verdict = is_a(Demote, scene.record(lineage=recorded.lineage).decide())
    assert (verdict.target.name, verdict.master.name) == ("redis-0", "redis-1")


def test_where_the_histories_of_two_masters_part_is_told_to_what_measures_the_loss() -> None:
    scene = healed(healthy()).server("redis-1", second_offset=1001)
    recorded = is_a(Record, scene.decide())
    scene = scene.record(lineage=recorded.lineage, last_failover=recorded.last_failover)
    assert is_a(Demote, scene.decide()).forked == 1000
    assert is_a(Demote, scene.server("redis-0", replid="other").decide()).forked == 0
    assert is_a(Demote, scene.record(last_failover=None).decide()).forked == 0


def test_one_the_sentinels_are_promoting_is_not_demoted_before_they_agree() -> None:
    scene = healthy().server("redis-1", role="master", master=None, replid="next", replid2="line")
    under_way = scene.sentinel("sentinel-0", flags=frozenset({"master", "o_down", "failover_in_progress"}))
    waits_for("SentinelFailover", under_way.decide())
    told = scene.sentinel("sentinel-0", master=Address("10.0.0.2", 6379), epoch=1)
    waits_for("SentinelFailover", told.decide())


def test_the_epoch_of_a_failover_under_way_is_not_taken_for_that_of_the_old_master() -> None:
    under_way = healthy().sentinel(
        "sentinel-0", epoch=1, flags=frozenset({"master", "o_down", "failover_in_progress"})
    )
    assert not isinstance(under_way.decide(), Record)


def test_one_whose_promotion_the_sentinels_gave_up_is_demoted() -> None:
    scene = healthy().server("redis-1", role="master", master=None, replid="next", replid2="line")
    assert is_a(Demote, scene.decide()).target.name == "redis-1"


def test_a_master_with_foreign_data_is_set_aside_and_its_data_kept() -> None:
    scene = healthy().server("redis-2", role="master", master=None, replid="foreign", keys=99)
    lineage = scene.recorded.lineage
    assert lineage is not None
    others = [scene.members[name].pod for name in ("redis-0", "redis-1")]
    scene = scene.record(lineage=lineage.with_members(others))
    noted = is_a(Record, scene.decide())
    assert noted.quarantined == frozenset({"claim-redis-2"})
    scene = scene.record(quarantined=noted.quarantined)
    assert is_a(Quarantine, scene.decide()).save
    aside = scene.server("redis-2", role="slave", master=Address("192.0.2.1", 6379), priority=0)
    assert not isinstance(aside.decide(), Follow)
    stuck = waits_for("ForeignDataSetAside", aside.settled().decide())
    assert stuck.stalled
    assert "mooring.dev/discard-data" in stuck.message
    assert is_a(Follow, aside.want(discard=frozenset({"redis-2"})).decide())


def test_an_old_master_that_slept_through_several_failovers_is_still_one_of_ours() -> None:
    scene = healed(healthy())
    lineage = is_a(Record, scene.decide()).lineage
    assert lineage is not None
    again = lineage.succeed(scene.members["redis-1"].pod, replid="third", sentinel_epoch=1)
    again = again.with_members([scene.members[name].pod for name in ("redis-1", "redis-2")])
    scene = scene.server("redis-1", replid="third", replid2="next").record(lineage=again)
    assert is_a(Demote, scene.decide()).target.name == "redis-0"


def test_an_empty_master_that_came_back_without_the_gate_is_fenced_before_it_wipes_anybody() -> None:
    scene = healthy().server("redis-0", replid="new", keys=0)
    assert is_a(Quarantine, scene.decide()).target.name == "redis-0"


def test_the_operators_own_newer_choice_is_not_undone_by_sentinels_that_lag() -> None:
    scene = healthy()
    lineage = scene.recorded.lineage
    assert lineage is not None
    chosen = lineage.succeed(scene.members["redis-1"].pod, replid="line", sentinel_epoch=0)
    scene = scene.record(lineage=chosen).server(
        "redis-1", role="master", master=None, replid="next", replid2="line"
    )
    verdict = is_a(Record, scene.decide())
    assert new_master(verdict) == "redis-1"
    assert is_a(Demote, scene.record(lineage=verdict.lineage).decide()).target.name == "redis-0"


# --- followers and gates ---------------------------------------------------------------------------------


def test_a_restarted_replica_follows_and_is_released_only_after_it_was_recorded_in_sync() -> None:
    scene = healthy().restarted("redis-2", keys=10)
    assert [target.name for target in is_a(Follow, scene.decide()).targets] == ["redis-2"]
    following = scene.server("redis-2", master=Address("10.0.0.1", 6379), syncing=True, replid="line")
    dropped = is_a(Record, following.decide())
    assert dropped.lineage is not None
    assert dropped.lineage.standing("redis-2") is None
    assert not isinstance(following.record(lineage=dropped.lineage).decide(), SetPriority)
    synced = following.record(lineage=dropped.lineage).server("redis-2", syncing=False, link_up=True)
    noted = is_a(Record, synced.decide())
    assert noted.lineage is not None
    assert noted.lineage.standing("redis-2") is not None
    lifted = is_a(SetPriority, synced.record(lineage=noted.lineage).decide())
    assert ([target.name for target in lifted.targets], lifted.priority) == (["redis-2"], 1)


def test_a_replica_that_synchronises_anew_may_not_be_elected_meanwhile() -> None:
    scene = healthy().server("redis-2", syncing=True, link_up=False)
    first = is_a(Record, scene.decide())
    closed = is_a(SetPriority, scene.record(lineage=first.lineage).decide())
    assert ([target.name for target in closed.targets], closed.priority) == (["redis-2"], 0)


def test_a_short_silence_of_a_replica_changes_nothing() -> None:
    scene = healthy().silent("redis-2", seconds=3)
    assert not isinstance(scene.decide(), Move)


def test_a_replica_that_was_away_for_long_no_longer_counts_as_in_sync() -> None:
    verdict = is_a(Record, healthy().silent("redis-2", seconds=16).decide())
    assert verdict.lineage is not None
    assert [one.pod for one in verdict.lineage.members] == ["redis-0", "redis-1"]


def test_a_replica_of_a_replica_is_led_back_to_the_master() -> None:
    scene = healthy().server("redis-2", master=Address("10.0.0.2", 6379))
    follow = is_a(Follow, scene.decide())
    assert follow.master.name == "redis-0"
    assert follow.unsynced == ()


# --- handing over ----------------------------------------------------------------------------------------


def test_a_master_whose_pod_is_being_deleted_hands_over_before_it_stops() -> None:
    scene = healthy().pod("redis-0", terminating=True)
    noted = is_a(Record, scene.decide())
    assert noted.operation is not None
    assert noted.operation.kind == "Switch"
    switch = is_a(Switch, scene.record(operation=noted.operation).decide())
    assert switch.pause
    assert {heir.name for heir in switch.heirs} == {"redis-1", "redis-2"}


def test_below_six_two_writes_are_held_by_the_replica_count() -> None:
    scene = healthy().pod("redis-0", terminating=True)
    for name in scene.members:
        scene = scene.server(name, version="5.0.6")
    switch = is_a(Switch, scene.operation("Switch", "redis-0").decide())
    assert not switch.pause


def test_a_switch_that_does_not_get_through_is_given_up_after_half_a_minute() -> None:
    scene = healthy().operation("Switch", "redis-0", seconds=31)
    assert is_a(Record, scene.decide()).finish


def test_a_planned_change_is_recorded_as_one_that_loses_nothing() -> None:
    scene = healed(healthy()).server("redis-0", role="slave", master=Address("10.0.0.2", 6379))
    verdict = is_a(Record, scene.operation("Switch", "redis-0").decide())
    assert verdict.last_failover is not None
    assert (verdict.last_failover.cause, verdict.last_failover.at) == ("Planned", NOW)
    assert verdict.last_failover.loss_bound.startswith("none")
