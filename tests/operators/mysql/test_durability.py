"""Who acknowledges, how many have to, and the order in which that is recorded and put in force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.operators.mysql.builders import NOW, Scene, ago, at, healthy
from tests.operators.mysql.declared import cluster, inputs

from mooring.operators.mysql.durability import acks_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import (
    DeletePod,
    Fence,
    Follow,
    LabelRoles,
    Record,
    Resize,
    SetDurability,
    Switch,
    Wait,
    WriteTemplate,
)
from mooring.operators.mysql.replication import LEFT_BROKEN
from mooring.operators.mysql.status import report
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import Instance, MySQLClusterStatus
from mooring.operators.workload.rollout import SetState


def labelled(scene: Scene) -> Scene:
    """After the labels were put right."""
    while isinstance(verdict := scene.decide(), LabelRoles):
        for name, role in verdict.roles.items():
            scene = scene.pod(name, role=role)
    return scene


@pytest.mark.parametrize(
    ("size", "mysql", "mariadb"), [(1, 0, 0), (2, 1, 1), (3, 1, 1), (4, 2, 1), (5, 2, 1), (9, 4, 1)]
)
def test_acknowledgements_by_size(size: int, mysql: int, mariadb: int) -> None:
    assert (acks_of("mysql", size), acks_of("mariadb", size)) == (mysql, mariadb)


def test_a_member_of_the_ack_set_that_ended_is_dropped_once_the_other_has_everything() -> None:
    scene = labelled(healthy().dead("demo-2"))

    dropped = scene.decide()
    assert isinstance(dropped, Record)
    assert dropped.status.ack_set == ["demo-1"]
    behind = scene.has("demo-0", "0-10-105").has("demo-1", "0-10-100")
    assert isinstance(behind.decide(), Wait)


def test_a_member_that_hangs_is_not_dropped_since_it_may_acknowledge_still() -> None:
    scene = labelled(healthy().silent("demo-2"))

    verdict = scene.decide()

    assert isinstance(verdict, Wait)


def test_a_replica_is_recorded_before_it_acknowledges() -> None:
    scene = labelled(healthy().record(ack_set=["demo-1"]).semi("demo-2", replica=False))

    verdict = scene.decide()

    assert isinstance(verdict, Follow)
    assert verdict.acking == {"demo-2"}
    assert verdict.first is not None
    assert verdict.first.ack_set == ["demo-1", "demo-2"]
    assert not (verdict.first.members or {})["demo-2"].synced


def test_of_five_mariadb_servers_two_acknowledge_and_a_dead_one_is_replaced() -> None:
    scene = labelled(healthy(size=5).dead("demo-2"))

    joined = scene.decide()

    assert isinstance(joined, Follow)
    assert joined.first is not None
    assert joined.first.ack_set == ["demo-1", "demo-2", "demo-3"]
    caught_up = scene.wrote(joined).semi("demo-3", replica=True).settled()
    assert caught_up.status.ack_set == ["demo-1", "demo-3"]


def test_strict_durability_is_recorded_as_weaker_before_it_is() -> None:
    scene = healthy(mode="Async")

    weakened = scene.decide()
    assert isinstance(weakened, Record)
    assert (weakened.status.durability, weakened.status.acks) == ("Async", 0)
    assert weakened.status.ack_set
    assert isinstance(scene.wrote(weakened).decide(), SetDurability)


@pytest.mark.parametrize("mode", ["Async", "Available"])
def test_what_weaker_durability_costs_is_shown_together_with_it(mode: str) -> None:
    scene = healthy(mode=mode).dead("demo-1").dead("demo-2").record(blocked_since=ago(11))
    weakened = labelled(scene).decide()
    assert isinstance(weakened, Record)

    shown = report(inputs(cluster({"size": 3})), labelled(scene).snapshot, weakened).status

    assert isinstance(shown, MySQLClusterStatus)
    assert (shown.durability, shown.acks) == ("Async", 0)
    assert shown.at_risk == "writes that no replica has received yet, if demo-0 fails"


def test_available_goes_on_alone_after_its_time_and_is_strict_again_once_replicas_prove_themselves() -> None:
    scene = labelled(healthy(mode="Available").dead("demo-1").dead("demo-2"))

    noted = scene.decide()
    assert isinstance(noted, Record)
    assert noted.status.blocked_since == NOW
    assert isinstance(scene.wrote(noted).decide(), Wait)
    weakened = scene.record(blocked_since=ago(11)).decide()
    assert isinstance(weakened, Record)
    assert weakened.status.durability == "Async"
    assert weakened.status.blocked_since is None
    strict = healthy(mode="Strict").dead("demo-1").dead("demo-2")
    assert isinstance(labelled(strict).decide(), Wait)

    back = healthy(mode="Available").record(durability="Async", acks=0).semi("demo-0", source=False)
    enforced = back.decide()
    assert isinstance(enforced, SetDurability)
    assert enforced.semi_sync
    recorded = back.semi("demo-0", source=True).decide()
    assert isinstance(recorded, Record)
    assert recorded.status.durability == "Strict"
    assert not any(one.synced for one in (recorded.status.members or {}).values())


@pytest.mark.parametrize("wrong", [{"source": False}, {"timeout": 10.0}, {"after_sync": False}])
def test_what_a_restart_or_a_hand_changed_about_acknowledgements_is_put_right(wrong: dict[str, Any]) -> None:
    verdict = healthy().semi("demo-0", **wrong).decide()

    assert isinstance(verdict, SetDurability)
    assert verdict.semi_sync


# --- size -------------------------------------------------------------------------------------------------


def test_growing_needs_nothing_and_shrinking_never_takes_who_acknowledges() -> None:
    grown = healthy(size=3).want(size=5).decide()
    assert isinstance(grown, Resize)
    assert grown.replicas == 5

    scene = healthy(size=5).record(ack_set=["demo-3", "demo-4"]).want(size=3)
    for name in ("demo-1", "demo-2"):
        scene = scene.semi(name, replica=False)
    for name in ("demo-3", "demo-4"):
        scene = scene.semi(name, replica=True)
    verdict = scene.decide()
    assert isinstance(verdict, Follow)
    assert verdict.acking == {"demo-1", "demo-2"}


def test_a_primary_that_is_to_be_scaled_in_hands_over_first() -> None:
    scene = healthy(size=3).record(primary="demo-2", ack_set=["demo-0", "demo-1"]).want(size=2)
    scene = scene.server("demo-2", read_only=False, replication=None).semi("demo-2", source=True, acks=1)
    for name in ("demo-0", "demo-1"):
        other = healthy().members["demo-1"].server
        assert other is not None
        link = other.replication
        scene = scene.server(name, read_only=True, replication=link, semi_sync=other.semi_sync)
        scene = scene.link(name, host="demo-2.demo.default.svc")
    scene = scene.known("demo-0", synced=True).known("demo-2", synced=False)
    scene = scene.pod("demo-2", role="primary").pod("demo-0", role="replica")

    verdict = scene.decide()

    assert isinstance(verdict, Switch)
    assert verdict.primary.name == "demo-2"


# --- the roll-out -----------------------------------------------------------------------------------------


def rolled(scene: Scene) -> Scene:
    """A declared template that was written: the pods are of the one before."""
    state = changed_state(scene, update_revision="two", inputs="new", asked="new")
    return scene.see(set=state)


def changed_state(scene: Scene, **changes: Any) -> SetState:
    return replace(scene.observed.set, **changes)


def test_a_roll_out_is_recorded_then_written_then_done_replica_by_replica_and_the_primary_last() -> None:
    scene = healthy().see(set=changed_state(healthy(), current=False, asked="new"))
    recorded = scene.decide()
    assert isinstance(recorded, Record)
    assert isinstance(scene.wrote(recorded).decide(), WriteTemplate)

    scene = rolled(scene.wrote(recorded)).see(set=changed_state(rolled(scene), current=True))
    first = scene.decide()
    assert isinstance(first, DeletePod)
    assert first.pod == "demo-2"
    behind = scene.pod("demo-2", revision="two").known("demo-2", synced=False).has("demo-2", "0-10-90")
    assert isinstance(labelled(behind).decide(), Wait)
    last = scene.pod("demo-2", revision="two").pod("demo-1", revision="two").decide()
    assert isinstance(last, Switch)
    assert last.primary.name == "demo-0"


def test_a_new_pod_that_does_not_come_up_halts_the_roll_out() -> None:
    scene = healthy().see(set=changed_state(healthy(), current=False, asked="new"))
    scene = rolled(scene.wrote(scene.decide())).see(set=changed_state(rolled(scene), current=True))
    scene = scene.dead("demo-2").pod("demo-2", revision="two", trouble="ImagePullBackOff", created=ago(60))

    verdict = labelled(scene).settled().decide()

    assert scene.status.rolls is not None
    assert not isinstance(verdict, DeletePod)


@pytest.mark.parametrize("image", ["mysql:9.7", "mysql:11.0", "mariadb:10.6"])
def test_an_image_that_cannot_read_the_data_is_not_rolled_out(image: str) -> None:
    scene = healthy(size=3).want(image=image)
    scene = scene.see(set=changed_state(scene, current=False, asked="new"))

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "VersionRefused"
    assert image in verdict.message


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_whoever_is_not_in_the_ack_set_is_made_to_acknowledge_nothing(flavor: Flavor) -> None:
    scene = healthy(size=5, flavor=flavor).record(ack_set=["demo-1", "demo-2"]).semi("demo-3", replica=True)
    scene = scene.semi("demo-4", replica=False)

    verdict = scene.decide()

    assert isinstance(verdict, SetDurability)
    assert [one.name for one in verdict.silent] == ["demo-3"]
    assert verdict.semi_sync


def test_available_goes_on_alone_where_the_pod_of_the_replica_is_gone() -> None:
    scene = healthy(size=2, mode="Available").gone("demo-1")

    noted = scene.decide()
    assert isinstance(noted, Record)
    assert noted.status.blocked_since == NOW
    weakened = scene.record(blocked_since=ago(11)).decide()
    assert isinstance(weakened, Record)
    assert weakened.status.durability == "Async"
    back = healthy(size=2, mode="Available").record(blocked_since=ago(9)).decide()
    assert isinstance(back, Record)
    assert (back.status.durability, back.status.blocked_since) == ("Strict", None)


def test_acknowledging_replicas_are_seeded_again_one_at_a_time() -> None:
    scene = healthy().server("demo-0", purged=Position()).link("demo-1", sql_running=False, sql_errno=1032)

    lagging = scene.has("demo-0", "0-10-110").decide()
    assert not isinstance(lagging, DeletePod | Record | Follow)
    both = scene.link("demo-2", sql_running=False, sql_errno=1032)
    noted = both.decide()
    assert isinstance(noted, Record)
    both = both.wrote(noted)
    removed = both.decide()
    assert isinstance(removed, DeletePod)
    assert removed.pod == "demo-1"
    beside = both.recreated("demo-1").pod("demo-1", role="").settled()
    assert not (beside.status.members or {})["demo-2"].reseed
    assert not isinstance(beside.decide(), DeletePod)


def test_a_broken_replica_is_seeded_again_where_the_other_one_does_not_return() -> None:
    scene = healthy().server("demo-0", purged=Position()).gone("demo-1")
    scene = scene.link("demo-2", sql_running=False, sql_errno=1032)
    broken = [Instance(name="demo-2", state="Broken", role="replica", since=ago(LEFT_BROKEN - 1))]

    assert not isinstance(scene.record(instances=broken).settled().decide(), DeletePod | Follow)
    late = scene.record(instances=[changed(broken[0], since=ago(LEFT_BROKEN + 1))])
    noted = late.decide()
    assert isinstance(noted, Record)
    assert (noted.status.members or {})["demo-2"].reseed
    removed = late.wrote(noted).settled().decide()
    assert isinstance(removed, DeletePod)
    assert removed.pod == "demo-2"


def test_a_replica_with_a_stopped_receiver_alone_is_kept_however_long_it_is_alone() -> None:
    """It can apply what it has, and lead."""
    scene = healthy().server("demo-0", purged=at("0-10-150")).gone("demo-1")
    shown = [Instance(name="demo-2", state="Broken", role="replica", since=ago(9999))]
    scene = scene.link("demo-2", io_running=False, io_errno=1236).record(instances=shown)

    assert not (scene.settled().status.members or {})["demo-2"].reseed


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_nobody_counts_as_in_sync_while_a_server_beside_the_pods_acknowledges(flavor: Flavor) -> None:
    """The process of a pod that was deleted by force: a write that it alone acknowledged is on no other."""
    scene = healthy(flavor=flavor).known("demo-1", synced=False)
    synced = scene.semi("demo-0", clients=2).settled()
    assert (synced.status.members or {})["demo-1"].synced

    strange = scene.semi("demo-0", clients=3).settled()

    assert not (strange.status.members or {})["demo-1"].synced
    waiting = labelled(strange).decide()
    assert isinstance(waiting, Wait)
    assert "beside the pods" in waiting.message
    assert not isinstance(strange.dead("demo-0").lost("demo-1", "demo-2").decide(), Fence)
    # A replica that hangs may acknowledge as well: it is no stranger.
    hung = scene.silent("demo-2").semi("demo-0", clients=2).settled()
    assert (hung.status.members or {})["demo-1"].synced


def test_a_cluster_is_not_in_sync_while_a_replica_is_too_far_behind_to_be_read_from() -> None:
    waiting = healthy().link("demo-2", lag=20.0).pod("demo-2", role="").decide()

    assert isinstance(waiting, Wait)
    assert waiting.reason == "ReplicaCatchingUp"
    assert "demo-2" in waiting.message
