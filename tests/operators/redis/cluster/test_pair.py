"""A master and its replica: who leads, and who never does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.operators.redis.cluster.builders import NOW

from mooring.operators.redis.cluster.moves import (
    DeletePod,
    Follow,
    HandOver,
    InSync,
    Record,
    RestoreTemplate,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.snapshot import Recorded, Snapshot, Wanted
from mooring.operators.redis.cluster.topology import Node, Seen, Server
from mooring.operators.redis.dial import Address
from mooring.operators.redis.info import keys_of, parse_info
from mooring.operators.redis.sentinel.topology import GATE
from mooring.operators.workload.pods import Pod


def node(ordinal: int, *, leads: bool = False, follows: int | None = None, keys: int = 0, **pod: Any) -> Node:
    """One of the two; without a word of its own it has just started and follows nobody."""
    made = Pod(name=f"demo-{ordinal}", ordinal=ordinal, ip=f"10.0.0.{ordinal + 1}")
    if pod:
        return Node(pod=replace(made, **pod), error="no answer")
    master = GATE if follows is None else Address(f"10.0.0.{follows + 1}", 6379)
    server = Server(
        clustered=False,
        role="master" if leads else "slave",
        keys=keys,
        master=None if leads else master,
        link_up=leads or follows is not None,
    )
    return Node(pod=made, server=server)


def snapshot(
    *nodes: Node,
    leader: str = "demo-0",
    formed: bool = True,
    missing: Mapping[str, datetime] | None = None,
    **wanted: Any,
) -> Snapshot:
    return Snapshot(
        wanted=Wanted(nodes=2, pods=2, **wanted),
        seen=Seen(nodes=nodes),
        recorded=Recorded(formed=formed, leader=leader, missing=missing or {}),
        places={},
        now=NOW,
    )


DEAD: dict[str, Any] = {"running": False, "died_at": NOW.replace(year=2025)}


def test_a_pair_in_sync_is_left_alone() -> None:
    assert next_step(snapshot(node(0, leads=True, keys=5), node(1, follows=0, keys=5))) == InSync()


def test_who_leads_is_written_down_before_it_is_told() -> None:
    first = next_step(snapshot(node(0), node(1), leader="", formed=False))
    assert isinstance(first, Record)
    assert first.leader == "demo-0"
    second = next_step(snapshot(node(0), node(1), formed=False))
    assert isinstance(second, Follow)
    assert (second.target.name, second.leader) == ("demo-0", None)


def test_a_replica_that_nobody_makes_for_long_is_named() -> None:
    alone = node(0, leads=True)
    leader = replace(alone, pod=replace(alone.pod, ready=True))
    for seconds, said in ((20, False), (40, True)):
        waits = next_step(snapshot(leader, missing={"demo-1": NOW - timedelta(seconds=seconds)}))
        assert isinstance(waits, Wait)
        assert waits.stalled == said
        assert ("demo-1 cannot be made" in waits.message) == said


def test_the_other_one_follows() -> None:
    verdict = next_step(snapshot(node(0, leads=True), node(1)))
    assert isinstance(verdict, Follow)
    assert (verdict.target.name, verdict.leader) == ("demo-1", Address("10.0.0.1", 6379))


def test_after_a_restart_of_both_the_one_that_led_leads_again() -> None:
    verdict = next_step(snapshot(node(0, keys=5), node(1, keys=5), leader="demo-1"))
    assert isinstance(verdict, Follow)
    assert (verdict.target.name, verdict.leader) == ("demo-1", None)


def test_a_leader_that_came_back_empty_yields_to_the_one_with_data() -> None:
    verdict = next_step(snapshot(node(0), node(1, keys=5)))
    assert isinstance(verdict, Record)
    assert verdict.leader == "demo-1"


def test_a_leader_that_came_back_empty_waits_for_the_one_that_may_have_the_data() -> None:
    verdict = next_step(snapshot(node(0), node(1, running=True)))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("DataUnreachable", True)


def test_the_replica_of_a_dead_leader_takes_over() -> None:
    verdict = next_step(snapshot(node(0, **DEAD), node(1, follows=0, keys=5)))
    assert isinstance(verdict, Record)
    assert verdict.leader == "demo-1"


def test_a_silent_leader_may_be_alive_and_is_waited_for() -> None:
    assert isinstance(next_step(snapshot(node(0, running=True), node(1, follows=0, keys=5))), Wait)


def test_a_replica_that_has_restarted_too_does_not_overtake_the_leader() -> None:
    assert isinstance(next_step(snapshot(node(0, **DEAD), node(1, keys=5))), Wait)


def test_the_one_that_was_not_written_down_gives_way() -> None:
    verdict = next_step(snapshot(node(0, leads=True, keys=5), node(1, leads=True, keys=5), leader="demo-1"))
    assert isinstance(verdict, Follow)
    assert verdict.target.name == "demo-0"


def test_two_holders_of_unrelated_data_are_left_to_the_user() -> None:
    verdict = next_step(snapshot(node(0, keys=1), node(1, keys=1), leader="", formed=False))
    assert isinstance(verdict, Wait)
    assert verdict.reason == "UnrelatedData"


# --- rolling changes ---------------------------------------------------------------------------------------


def of_revision(one: Node, revision: str, **pod: Any) -> Node:
    return replace(one, pod=replace(one.pod, revision=revision, **pod))


def test_the_replica_is_made_anew_first_and_the_leader_hands_over_before() -> None:
    leader, replica = node(0, leads=True, keys=5), node(1, follows=0, keys=5)
    assert isinstance(next_step(snapshot(leader, replica, stale_template=True)), WriteTemplate)

    both = of_revision(leader, "old"), of_revision(replica, "old")
    first = next_step(snapshot(*both, revision="new"))
    assert isinstance(first, DeletePod)
    assert first.pod == "demo-1"

    second = next_step(snapshot(both[0], of_revision(replica, "new"), revision="new"))
    assert isinstance(second, HandOver)
    assert (second.leader.name, second.heir.name) == ("demo-0", "demo-1")

    assert (
        next_step(snapshot(of_revision(leader, "new"), of_revision(replica, "new"), revision="new"))
        == InSync()
    )


def test_a_replica_that_writes_its_log_is_not_stopped_yet() -> None:
    leader, replica = of_revision(node(0, leads=True), "old"), of_revision(node(1, follows=0), "old")
    assert replica.server is not None
    writing = replace(replica, server=replace(replica.server, rewriting=True))
    verdict = next_step(snapshot(leader, writing, revision="new"))
    assert isinstance(verdict, Wait)
    assert verdict.reason == "RollWaiting"
    assert "demo-1 writes its append-only file" in verdict.message


def test_a_leader_whose_pod_is_being_deleted_hands_over() -> None:
    leader = of_revision(node(0, leads=True), "a", terminating=True)
    verdict = next_step(snapshot(leader, of_revision(node(1, follows=0), "a"), revision="a"))
    assert isinstance(verdict, HandOver)


def test_a_pair_turns_back_when_its_new_pod_does_not_come_up() -> None:
    bad = of_revision(node(1, running=False), "new", trouble="ErrImagePull")
    verdict = next_step(snapshot(of_revision(node(0, leads=True), "old"), bad, revision="new"))
    assert isinstance(verdict, RestoreTemplate)
    assert verdict.revision == "old"


def test_the_keys_of_every_database_count() -> None:
    said = "# Keyspace\r\ndb1:keys=3,expires=0,avg_ttl=0\r\ndb15:keys=20,expires=3,avg_ttl=9,subexpiry=1\r\n"
    assert keys_of(parse_info(said)) == 23


NEVER_RAN: dict[str, Any] = {"running": False, "trouble": "ImagePullBackOff", "revision": "bad"}


def test_a_corrected_template_of_a_new_pair_is_written_and_its_pods_are_made_anew() -> None:
    both = node(0, **NEVER_RAN), node(1, **NEVER_RAN)
    corrected = snapshot(*both, leader="", formed=False, revision="bad", stale_template=True)
    assert isinstance(next_step(corrected), WriteTemplate)
    verdict = next_step(snapshot(*both, leader="", formed=False, revision="new"))
    assert isinstance(verdict, DeletePod)
    assert verdict.pod == "demo-0"


def test_a_replica_that_does_not_run_gets_the_corrected_template() -> None:
    both = node(0, leads=True, keys=5), node(1, **NEVER_RAN)
    assert isinstance(next_step(snapshot(*both, revision="bad", stale_template=True)), WriteTemplate)
    verdict = next_step(snapshot(*both, revision="new"))
    assert isinstance(verdict, DeletePod)
    assert verdict.pod == "demo-1"


def test_the_only_data_of_a_pair_does_not_go_with_a_pod_that_crashes() -> None:
    crash = NEVER_RAN | {"trouble": "CrashLoopBackOff", "died_at": NOW}
    assert isinstance(next_step(snapshot(node(0, **crash), node(1, **crash), revision="new")), Wait)
    kept = node(0, **crash, lasting=True), node(1, **crash, lasting=True)
    assert isinstance(next_step(snapshot(*kept, revision="new")), DeletePod)
