"""Who leads, and what is done about servers that do not follow; one moment at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.operators.mysql.builders import NOW, Scene, ago, at, healthy, new
from tests.operators.mysql.test_deletions import rolled

from mooring.operators.mysql import gate, roll
from mooring.operators.mysql.events import notes_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import (
    DeletePod,
    Demote,
    Fence,
    Follow,
    InSync,
    LabelRoles,
    Open,
    Promote,
    Record,
    Switch,
    Unask,
    Wait,
)
from mooring.operators.mysql.records import bounded
from mooring.operators.mysql.status import phase_of, readiness
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import Promotion, TailCut

FLAVORS: tuple[Flavor, ...] = ("mariadb", "mysql")


def fenced_failover(scene: Scene) -> Scene:
    """After the failover was recorded and every receiver stopped."""
    verdict = scene.decide()
    assert isinstance(verdict, Fence), verdict
    assert verdict.first is not None
    return scene.wrote(verdict).fenced(*(one.name for one in verdict.targets))


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_a_whole_cluster_is_left_alone(flavor: Flavor, size: int) -> None:
    assert healthy(size=size, flavor=flavor).decide() == InSync()


# --- founding ---------------------------------------------------------------------------------------------


def test_the_lowest_ordinal_of_a_new_cluster_leads_once_that_is_recorded() -> None:
    verdict = new().decide()

    assert isinstance(verdict, Open)
    assert verdict.first is not None
    assert (verdict.first.primary, verdict.first.term) == ("demo-0", 1)
    orders = {name: gate.parse(text) for name, text in verdict.orders.items()}
    assert [one.role for one in orders.values() if one] == ["primary", "replica", "replica"]


def test_every_start_has_a_server_id_of_its_own_that_is_recorded_before_it_is_given() -> None:
    verdict = new().decide()

    assert isinstance(verdict, Open)
    assert verdict.first is not None
    given = [order.server_id for text in verdict.orders.values() if (order := gate.parse(text))]
    assert len(set(given)) == 3
    assert verdict.first.last_server_id == max(given)
    assert {one.server_id for one in (verdict.first.members or {}).values()} == set(given)


def test_a_restarted_container_gets_a_greater_server_id_than_any_before() -> None:
    scene = healthy().record(last_server_id=10**9).restarted("demo-2")

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    order = gate.parse(verdict.orders["demo-2"])
    assert order is not None
    assert order.server_id == 10**9 + 1
    assert order.start == 2


def test_an_order_that_was_recorded_and_not_written_is_written_with_the_same_id() -> None:
    scene = healthy().restarted("demo-2")
    first = scene.decide()
    again = scene.wrote(first).decide()

    assert isinstance(first, Open)
    assert isinstance(again, Open)
    assert again.orders == first.orders
    assert again.first is None


def test_an_empty_server_does_not_lead_while_another_may_hold_data() -> None:
    scene = new().see(old_claims=frozenset({"demo-2"})).pod("demo-2", running=False, trouble="Pending")

    opened = scene.decide()
    assert isinstance(opened, Open)  # read-only, to look what is there
    assert opened.first is not None
    assert not opened.first.primary
    started = scene.wrote(opened)
    for name in ("demo-0", "demo-1"):
        started = started.member(name, replace(healthy().members[name], order=opened.orders[name]))
    verdict = started.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "DataUnknown"
    assert "demo-2" in verdict.message


def test_of_servers_with_the_claims_of_an_earlier_cluster_the_one_with_everything_leads() -> None:
    scene = healthy()
    scene = replace(scene, status=new().status).see(old_claims=frozenset(scene.members))
    for name in scene.members:
        scene = scene.server(name, read_only=True, replication=None)
    scene = scene.has("demo-0", "").has("demo-1", "0-10-100").has("demo-2", "0-10-120")

    verdict = scene.decide()

    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-2"
    assert verdict.first is not None
    assert verdict.first.primary == "demo-2"


# --- the gate ---------------------------------------------------------------------------------------------


def test_a_demoted_server_starts_as_a_replica_and_a_second_primary_is_never_opened() -> None:
    scene = healthy().record(primary="demo-1").restarted("demo-0")
    scene = scene.server("demo-1", read_only=False, replication=None)

    verdict = scene.decide()
    while not isinstance(verdict, Open):
        assert isinstance(verdict, Record | LabelRoles), verdict
        if isinstance(verdict, LabelRoles):
            for name, role in verdict.roles.items():
                scene = scene.pod(name, role=role)
        scene = scene.wrote(verdict)
        verdict = scene.decide()

    order = gate.parse(verdict.orders["demo-0"])
    assert order is not None
    assert order.role == "replica"


def test_after_a_total_outage_the_recorded_primary_starts_as_primary_and_the_others_as_replicas() -> None:
    scene = healthy().record(primary="demo-1")
    for name in scene.members:
        scene = scene.restarted(name)

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    roles = {name: order.role for name, text in verdict.orders.items() if (order := gate.parse(text))}
    assert roles == {"demo-0": "replica", "demo-1": "primary", "demo-2": "replica"}


def test_no_server_starts_on_data_of_a_newer_version() -> None:
    scene = healthy().want(image="mariadb:10.11").known("demo-2", version="11.8.9").restarted("demo-2")
    scene = scene.see(set=replace(scene.observed.set, image="mariadb:10.11"))

    scene = scene.pod("demo-2", role="").settled()

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "VersionRefused"
    assert "11.8.9" in verdict.message


# --- failover ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_dead_primary_is_fenced_off_before_another_leads(flavor: Flavor) -> None:
    scene = healthy(flavor=flavor).dead("demo-0")

    fence = scene.decide()

    assert isinstance(fence, Fence)
    assert {one.name for one in fence.targets} == {"demo-1", "demo-2"}
    assert fence.first is not None
    assert fence.first.operation is not None
    assert fence.first.operation.kind == "FailOver"
    assert fence.first.primary == "demo-0"

    promote = fenced_failover(scene).decide()

    assert isinstance(promote, Promote)
    assert promote.target.name == "demo-1"
    assert promote.first is not None
    assert (promote.first.primary, promote.first.term) == ("demo-1", 2)
    assert promote.acking == {"demo-2"}
    assert promote.semi_sync


def test_the_replica_that_received_most_leads_and_applies_it_first() -> None:  # traps 2 and 3
    scene = fenced_failover(healthy().dead("demo-0"))
    scene = scene.has("demo-1", "0-10-100", "0-10-110").has("demo-2", "0-10-90", "0-10-120")

    verdict = scene.decide()

    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-2"
    assert verdict.expected == at("0-10-120")
    assert verdict.first is not None
    assert verdict.first.operation is not None
    assert verdict.first.operation.position == "0-10-120"


def test_what_a_replica_outside_the_ack_set_received_is_not_given_up() -> None:
    scene = fenced_failover(healthy(size=5).dead("demo-0")).has("demo-3", "0-10-101")

    verdict = scene.decide()

    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-3"
    assert verdict.expected == at("0-10-101")
    stray = (
        scene.has("demo-3", "0-10-100").has("demo-4", "0-10-101").known("demo-4", reseed="errant").decide()
    )
    assert isinstance(stray, Promote)
    assert stray.target.name == "demo-1"


def test_a_replica_whose_applier_stopped_does_not_lead_alone() -> None:  # trap 1
    scene = healthy().dead("demo-0").dead("demo-1").link("demo-2", sql_running=False, io_running=False)

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "PrimaryReturning"


def test_without_enough_replicas_the_primary_starts_again_where_its_data_is() -> None:
    scene = healthy().restarted("demo-0").dead("demo-1")

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    order = gate.parse(verdict.orders["demo-0"])
    assert order is not None
    assert order.role == "primary"


def test_a_lost_cluster_names_exactly_who_must_return() -> None:
    scene = healthy().gone("demo-0").dead("demo-1")

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "Lost"
    assert verdict.stalled
    assert "demo-0 with its data" in verdict.message
    assert "1 of demo-1" in verdict.message


def test_a_primary_whose_claim_is_gone_never_starts_as_primary() -> None:
    scene = healthy().recreated("demo-0", volume="another-claim").dead("demo-1")

    lost = scene.decide()

    assert isinstance(lost, Wait)
    assert lost.reason == "Lost"
    chosen = scene.want(switch_to="demo-2")
    promoted = fenced_failover(chosen).decide()
    assert isinstance(promoted, Promote)
    assert promoted.target.name == "demo-2"


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_replica_that_was_restarted_does_not_vote(flavor: Flavor) -> None:
    """Its relay log may have held what it acknowledged."""
    scene = healthy(size=2, flavor=flavor)
    scene = scene.restarted("demo-0").server("demo-1", server_id=99)

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    order = gate.parse(verdict.orders["demo-0"])
    assert order is not None
    assert order.role == "primary"


def test_the_last_replica_of_two_leads_and_says_that_writes_wait() -> None:  # trap 18
    scene = fenced_failover(healthy(size=2).dead("demo-0"))

    verdict = scene.decide()

    assert isinstance(verdict, Promote)
    assert verdict.first is not None
    assert verdict.first.ack_set == []
    assert verdict.first.acks == 1
    assert verdict.semi_sync


def test_an_empty_cluster_can_fail_over() -> None:  # trap 10
    scene = healthy()
    for name in scene.members:
        scene = scene.has(name, "")
    scene = fenced_failover(scene.dead("demo-0"))

    assert isinstance(scene.decide(), Promote)


def test_a_second_failover_right_after_the_first() -> None:  # trap 9
    scene = fenced_failover(healthy(flavor="mysql").dead("demo-0"))
    first = scene.decide()
    assert isinstance(first, Promote)
    scene = scene.wrote(first).server("demo-1", read_only=False, replication=None)
    scene = scene.semi("demo-1", source=True, acks=1)
    scene = scene.link("demo-2", host="demo-1.demo.default.svc", io_running=True).pod(
        "demo-1", role="primary"
    )
    scene = scene.settled().dead("demo-1")

    verdict = scene.decide()

    assert isinstance(verdict, Fence)
    assert [one.name for one in verdict.targets] == ["demo-2"]


def test_a_new_primary_that_died_before_it_led_is_replaced_by_one_that_has_what_it_had() -> None:
    scene = fenced_failover(healthy().dead("demo-0"))
    scene = scene.wrote(scene.decide()).dead("demo-1")

    verdict = scene.decide()

    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-2"
    assert verdict.first is not None
    assert verdict.first.term == 3


def test_a_new_primary_that_lost_its_relay_log_does_not_lead() -> None:
    scene = fenced_failover(healthy().dead("demo-0")).has("demo-1", "0-10-100", "0-10-120")
    scene = scene.wrote(scene.decide()).has("demo-1", "0-10-100").has("demo-2", "0-10-100")

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "Lost"
    assert "0-10-120" in verdict.message


def test_a_promotion_that_was_interrupted_is_carried_out_again() -> None:  # trap 6
    scene = fenced_failover(healthy().dead("demo-0"))
    first = scene.decide()
    again = scene.wrote(first).decide()

    assert isinstance(first, Promote)
    assert isinstance(again, Promote)
    assert again.target == first.target
    assert again.expected == first.expected


def test_replicas_that_received_different_things_are_not_chosen_between() -> None:
    scene = fenced_failover(healthy(flavor="mysql").dead("demo-0"))
    uuid = "00000000-0000-0000-0000-00000000000"
    scene = scene.has("demo-1", f"{uuid}0:1-100,{uuid}8:1").has("demo-2", f"{uuid}0:1-101")

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "Diverged"
    assert verdict.stalled


def test_the_tail_of_a_dead_mysql_primary_is_cut_where_a_replica_acknowledged_last() -> None:
    scene = fenced_failover(healthy(flavor="mysql").dead("demo-0"))
    scene = scene.link("demo-1", source_file="binlog.000009", source_position=900)
    scene = scene.link("demo-2", source_file="binlog.000010", source_position=120)

    verdict = scene.decide()

    assert isinstance(verdict, Promote)
    assert verdict.first is not None
    known = (verdict.first.members or {})["demo-0"]
    assert known.cut == TailCut(file="binlog.000010", position=120)


def test_the_binary_log_of_a_mariadb_primary_is_never_cut() -> None:
    verdict = fenced_failover(healthy().dead("demo-0")).decide()

    assert isinstance(verdict, Promote)
    assert verdict.first is not None
    assert (verdict.first.members or {})["demo-0"].cut is None


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_failover_that_became_unsafe_ends_where_the_primary_lives(flavor: Flavor) -> None:
    scene = fenced_failover(healthy(flavor=flavor).dead("demo-0"))
    scene = scene.member("demo-0", healthy(flavor=flavor).members["demo-0"])
    scene = scene.known("demo-2", synced=False)

    ended = scene.decide()

    assert isinstance(ended, Record)
    assert ended.status.operation is None
    again = scene.wrote(ended).settled().decide()
    while isinstance(again, LabelRoles):
        for name, role in again.roles.items():
            scene = scene.pod(name, role=role)
        again = scene.wrote(ended).settled().decide()
    assert isinstance(again, Follow)
    assert {one.name for one in again.targets} == {"demo-1", "demo-2"}


def test_a_person_names_another_server_while_the_pod_of_a_lost_node_is_still_there() -> None:
    scene = healthy(switch_to="demo-1").silent("demo-0", seconds=60.0).lost("demo-1", "demo-2")
    scene = scene.known("demo-2", synced=False).pod("demo-0", terminating=True)

    early = scene.see(primary_unreachable=10.0).decide()
    assert isinstance(early, Wait)
    assert early.reason == "PrimaryReturning"
    promote = fenced_failover(scene).decide()
    assert isinstance(promote, Promote)
    assert promote.target.name == "demo-1"
    assert promote.first is not None
    assert promote.first.promotions
    assert promote.first.promotions[0].cause == "Chosen"


def test_a_server_where_nothing_listens_has_ended_although_its_pod_is_said_to_run() -> None:
    scene = healthy().silent("demo-0", error="Refused", seconds=0.6)

    assert isinstance(scene.see(primary_unreachable=60.0).decide(), Wait), "its replicas still hear from it"
    assert isinstance(scene.lost("demo-1").see(primary_unreachable=0.6).decide(), Wait)
    lost = scene.lost("demo-1", "demo-2")
    assert isinstance(lost.see(primary_unreachable=0.4).decide(), Wait)
    verdict = lost.decide()
    assert isinstance(verdict, Fence)
    assert "nothing listens" in verdict.why


def test_without_acknowledgements_a_pod_is_not_deleted_before_the_kubelet_may_have_reported_its_end() -> None:
    scene = healthy(mode="Async").record(durability="Async", acks=0, ack_set=[])
    scene = scene.silent("demo-0", error="Refused", seconds=1.9).lost("demo-1", "demo-2")

    assert isinstance(scene.decide(), Wait)
    assert isinstance(scene.see(primary_unreachable=2.0).decide(), DeletePod)


def test_labels_for_reading_that_are_missing_or_left_over_are_corrected() -> None:
    missing = healthy().pod("demo-1", role="replica", reads=False).decide()
    assert isinstance(missing, LabelRoles)
    assert missing.roles == {"demo-1": "replica"}
    left = healthy().pod("demo-0", role="primary", reads=True).decide()
    assert isinstance(left, LabelRoles)
    assert left.roles == {"demo-0": "primary"}
    assert left.readers == {"demo-0"}


@pytest.mark.parametrize(
    ("former", "first"),
    [
        ("ended", True),
        ("restarted", True),
        ("refuses", True),
        ("is deleted", True),
        ("hangs", False),
        ("answers", False),
    ],
)
def test_a_new_primary_is_labelled_first_where_the_former_one_has_ended(former: str, first: bool) -> None:
    scene = healthy().record(primary="demo-1").server("demo-1", read_only=False, replication=None)
    match former:
        case "ended":
            scene = scene.dead("demo-0")
        case "restarted":
            scene = scene.restarted("demo-0")
        case "refuses":
            scene = scene.silent("demo-0", error="Refused")
        case "hangs":
            scene = scene.silent("demo-0")
        case "is deleted":
            scene = scene.server("demo-0", read_only=True).pod("demo-0", terminating=True)
        case "answers":
            scene = scene.server("demo-0", read_only=True)
    verdict = scene.decide()
    assert isinstance(verdict, LabelRoles), verdict
    assert (verdict.roles["demo-0"], verdict.roles["demo-1"]) == ("", "primary")
    assert verdict.leader_first is first


# --- hang -------------------------------------------------------------------------------------------------


def test_a_hung_primary_is_replaced_after_its_time_if_the_replicas_lost_it_too() -> None:
    scene = healthy().silent("demo-0", seconds=4.1)

    waiting = scene.decide()
    assert isinstance(waiting, Wait)
    assert "still hear from it" in waiting.message
    early = scene.lost("demo-1", "demo-2").see(primary_unreachable=3.9).decide()
    assert isinstance(early, Wait)
    assert early.reason == "PrimaryNotAnswering"
    assert isinstance(scene.lost("demo-1", "demo-2").decide(), Fence)


def test_receivers_of_a_frozen_primary_are_stopped_and_not_waited_for() -> None:  # trap 32
    scene = healthy().silent("demo-0", seconds=60.0)
    assert isinstance(scene.decide(), Wait), (
        "its replicas still hear from it, so nobody knows that it is dead"
    )

    deleted = scene.pod("demo-0", terminating=True)  # a server that waits for its file system cannot be ended
    assert isinstance(deleted.see(primary_unreachable=0.9).decide(), Wait)
    verdict = deleted.decide()

    assert isinstance(verdict, Fence)
    assert {one.name for one in verdict.targets} == {"demo-1", "demo-2"}
    fenced = deleted.fenced("demo-1", "demo-2").wrote(verdict)
    assert isinstance(fenced.decide(), Promote)


@pytest.mark.parametrize("error", ["TooManyConnections", "AccessDenied"])
def test_a_primary_that_refuses_the_operator_is_not_dead(error: str) -> None:  # trap 17
    verdict = healthy().silent("demo-0", error=error, seconds=600).lost("demo-1", "demo-2").decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "PrimaryRefuses"


def test_servers_that_let_nobody_in_say_which_password_is_missing_and_where() -> None:
    scene = healthy()
    for name in scene.members:
        scene = scene.silent(name, error="AccessDenied", seconds=600)

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("PasswordRefused", True)
    assert "demo-0, demo-1, demo-2 take no password of the account mooring" in verdict.message
    assert "kubectl create secret generic demo-credentials --from-file=operator-password=" in verdict.message
    # One that lets the operator in can tell more.
    other = healthy().silent("demo-0", error="AccessDenied", seconds=600).decide()
    assert isinstance(other, Wait)
    assert other.reason == "PrimaryRefuses"


def test_an_old_primary_that_wakes_up_is_stopped_and_not_only_asked() -> None:  # traps 11, 13 and 15
    scene = healthy().record(primary="demo-1").server("demo-1", read_only=False, replication=None)

    quiet = scene.decide()
    assert isinstance(quiet, Demote)
    assert quiet.target.name == "demo-0"
    waiting = scene.semi("demo-0", waiting=3).decide()
    assert isinstance(waiting, DeletePod)
    assert waiting.pod == "demo-0"


def test_async_replication_fails_over_only_once_the_old_primary_is_gone() -> None:
    scene = healthy(mode="Async").record(durability="Async", acks=0, ack_set=[])
    scene = scene.silent("demo-0", seconds=10).lost("demo-1", "demo-2")

    verdict = scene.decide()
    assert isinstance(verdict, DeletePod)
    assert verdict.pod == "demo-0"
    assert isinstance(scene.pod("demo-0", running=False).decide(), Fence)


def test_weakened_durability_forbids_a_failover() -> None:
    scene = healthy(mode="Available").record(durability="Async", acks=0).restarted("demo-0")

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    order = gate.parse(verdict.orders["demo-0"])
    assert order is not None
    assert order.role == "primary"


# --- replicas ---------------------------------------------------------------------------------------------


def test_a_replica_of_another_server_is_stale_however_healthy_it_looks() -> None:  # trap 4
    verdict = healthy().link("demo-2", host="demo-1.demo.default.svc").decide()

    assert isinstance(verdict, Follow)
    assert [one.name for one in verdict.targets] == ["demo-2"]
    assert verdict.first is not None
    assert not (verdict.first.members or {})["demo-2"].synced


def test_stopped_threads_are_started_again() -> None:
    verdict = healthy().link("demo-1", sql_running=False).decide()

    assert isinstance(verdict, Follow)
    assert [one.name for one in verdict.targets] == ["demo-1"]
    assert verdict.acking == {"demo-1"}


def test_the_primarys_own_newest_transactions_make_no_replica_errant() -> None:  # trap 8
    uuid = "00000000-0000-0000-0000-00000000000"
    scene = healthy(flavor="mysql").has("demo-1", f"{uuid}0:1-105")

    assert scene.decide() == InSync()


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_server_with_transactions_of_its_own_is_set_aside_and_seeded_again(flavor: Flavor) -> None:
    extra = "0-77-101" if flavor == "mariadb" else "00000000-0000-0000-0000-000000000007:1"
    text = "0-10-100" if flavor == "mariadb" else "00000000-0000-0000-0000-000000000000:1-100"
    scene = healthy(flavor=flavor).has("demo-2", f"{text},{extra}").server("demo-0", purged=Position())

    noted = scene.decide()
    assert isinstance(noted, Record)
    assert extra in (noted.status.members or {})["demo-2"].reseed
    scene = scene.wrote(noted)
    removed = scene.decide()
    while isinstance(removed, Record | LabelRoles):
        scene = scene.wrote(removed)
        for name, role in removed.roles.items() if isinstance(removed, LabelRoles) else ():
            scene = scene.pod(name, role=role)
        removed = scene.decide()
    assert isinstance(removed, DeletePod)
    assert removed.pod == "demo-2"
    opened = scene.recreated("demo-2").settled().decide()
    assert isinstance(opened, Open)
    assert opened.orders["demo-2"].endswith(" fresh")


def test_a_server_that_was_seeded_three_times_within_an_hour_waits_and_says_until_when() -> None:
    scene = healthy().has("demo-2", "0-10-100,0-77-101").server("demo-0", purged=Position())
    tired = scene.known("demo-2", seeded=[ago(3000), ago(2000), ago(10)]).settled()
    for _ in range(5):
        verdict = tired.decide()
        assert not isinstance(verdict, DeletePod | Open)
        if isinstance(verdict, Wait):
            break
        for name, role in verdict.roles.items() if isinstance(verdict, LabelRoles) else ():
            tired = tired.pod(name, role=role)
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("SeedingPaused", True)
    assert "until 12:10:00 UTC" in verdict.message

    # What it led with was good: only copies since then count.
    led = [Promotion(term=3, pod="demo-0", old="demo-2", at=ago(15))]
    recovered = scene.known("demo-2", seeded=[ago(3000), ago(2000), ago(20)]).record(promotions=led).settled()
    assert isinstance(recovered.pod("demo-2", role="").decide(), DeletePod)

    rested = scene.known("demo-2", seeded=[ago(3601), ago(2000), ago(10)]).settled()
    rested = rested.pod("demo-2", role="")
    assert isinstance(rested.decide(), DeletePod)
    opened = rested.recreated("demo-2").settled().decide()
    assert isinstance(opened, Open)
    assert opened.first is not None
    assert (opened.first.members or {})["demo-2"].seeded == [ago(2000), ago(10), NOW]


def failing(starts: int, name: str = "demo-2") -> Scene:
    """A replica whose server ended at every one of its newest starts; the others acknowledge and have everything."""
    scene = healthy(size=5).server("demo-0", purged=Position()).restarted(name)
    return scene.known(name, failed_starts=starts).record(ack_set=["demo-1", "demo-3"])


def test_starts_after_which_a_server_never_answered_are_counted() -> None:
    scene = failing(2).settled()
    opened = scene.decide()
    assert isinstance(opened, Open)
    assert (scene.wrote(opened).status.members or {})["demo-2"].failed_starts == 3
    answered = healthy().known("demo-2", failed_starts=3).settled()
    assert (answered.status.members or {})["demo-2"].failed_starts == 0


def test_a_replica_whose_server_never_starts_is_built_again() -> None:
    noted = failing(4).decide()
    assert isinstance(noted, Record)
    assert "did not start 4 times" in (noted.status.members or {})["demo-2"].reseed
    opened = failing(4).wrote(noted).settled().decide()
    assert isinstance(opened, Open)
    assert opened.orders["demo-2"].endswith(" fresh")


def test_what_may_be_no_fault_of_its_files_builds_no_replica_again() -> None:
    assert isinstance(failing(3).settled().decide(), Open)  # too few starts
    another = failing(4).pod("demo-2", revision="two").settled()  # another template than the primary's
    assert not (another.status.members or {})["demo-2"].reseed
    alone = failing(4).record(ack_set=["demo-1", "demo-2"]).known("demo-1", synced=False).lost("demo-1")
    assert not (alone.has("demo-1", "0-10-50").settled().status.members or {})["demo-2"].reseed


def test_a_server_with_transactions_of_its_own_is_held_where_that_is_declared() -> None:
    scene = healthy(reclone=False).has("demo-2", "0-10-100,0-77-101").settled()
    for _ in range(3):
        verdict = scene.decide()
        for name, role in verdict.roles.items() if isinstance(verdict, LabelRoles) else ():
            scene = scene.pod(name, role=role)
        scene = scene.settled()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "Diverged"
    assert verdict.stalled


def test_a_replica_that_needs_purged_binary_logs_is_not_pointed_at_the_primary() -> None:  # trap 14
    scene = healthy().server("demo-0", purged=at("0-10-50")).has("demo-2", "0-10-40")
    scene = scene.server("demo-2", replication=None)

    verdict = scene.decide()

    assert isinstance(verdict, Record)
    assert "binary logs" in (verdict.status.members or {})["demo-2"].reseed


def test_a_copy_of_a_primary_that_began_with_a_copy_itself_follows_it() -> None:
    """The copy names the primary's newest id alone, and the primary's logs begin with an id of another server."""
    scene = healthy().server("demo-0", purged=at("0-77-50"), executed=at("0-77-50,0-10-100"))
    scene = scene.has("demo-2", "0-10-90").server("demo-2", replication=None)

    verdict = scene.decide()

    assert isinstance(verdict, Follow), verdict
    assert [one.name for one in verdict.targets] == ["demo-2"]


def test_lagging_replicas_leave_the_service_and_return_once_they_are_well_within_the_limit() -> None:
    behind = healthy().link("demo-2", lag=31.0).decide()
    assert isinstance(behind, LabelRoles)
    assert behind.roles == {"demo-2": ""}
    still = healthy().pod("demo-2", role="").link("demo-2", lag=20.0)
    assert not isinstance(still.decide(), LabelRoles)
    back = healthy().pod("demo-2", role="").link("demo-2", lag=10.0).decide()
    assert isinstance(back, LabelRoles)
    assert back.roles == {"demo-2": "replica"}


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_primary_that_started_without_its_data_does_not_lead(flavor: Flavor) -> None:
    scene = healthy(flavor=flavor).has("demo-0", "").server("demo-0", read_only=True, server_id=77)
    scene = scene.known("demo-0", server_id=77)
    for name in ("demo-1", "demo-2"):
        scene = scene.known(name, synced=False).server(name, replication=None)

    verdict = scene.decide()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "DataLost"
    assert verdict.stalled
    chosen = scene.want(switch_to="demo-1").decide()
    assert isinstance(chosen, Promote)
    assert chosen.target.name == "demo-1"
    alone = scene.gone("demo-1", "demo-2").record(
        promotions=[Promotion(pod="demo-0", position=_TEXT[flavor])]
    )
    lost = alone.decide()
    assert isinstance(lost, Wait)
    assert lost.reason == "DataLost"
    confirmed = alone.want(switch_to="demo-0").decide()
    assert isinstance(confirmed, Promote)
    assert confirmed.target.name == "demo-0"


_TEXT = {"mariadb": "0-10-50", "mysql": "00000000-0000-0000-0000-000000000000:1-50"}


def test_a_replica_leads_at_once_where_the_primary_started_without_its_data_and_replicas_have_all() -> None:
    scene = healthy().has("demo-0", "").server("demo-0", read_only=True, server_id=77)

    promoted = fenced_failover(scene.known("demo-0", server_id=77)).decide()

    assert isinstance(promoted, Promote)
    assert promoted.target.name == "demo-1"


def test_a_primary_that_starts_again_must_have_what_it_led_with() -> None:
    scene = healthy().record(promotions=[Promotion(pod="demo-0", position="0-10-50")])

    verdict = scene.server("demo-0", read_only=True).decide()

    assert isinstance(verdict, Promote)
    assert verdict.expected == at("0-10-50")


def test_what_a_founder_must_have_is_recorded_once_it_has_something() -> None:
    scene = healthy().record(promotions=[Promotion(pod="demo-0", term=1, cause="Founded")])

    verdict = scene.decide()

    assert isinstance(verdict, Record)
    assert verdict.status.promotions
    assert at(verdict.status.promotions[0].position) == at("0-10-100")
    assert scene.wrote(verdict).decide() == InSync()


def test_no_replica_gives_up_its_data_to_a_primary_that_lost_its_own() -> None:
    emptied = healthy().has("demo-0", "").server("demo-0", purged=Position(), server_id=77)
    emptied = emptied.known("demo-0", server_id=77)
    for scene in (emptied, emptied.record(promotions=[Promotion(pod="demo-0", position="0-10-50")])):
        verdict = scene.settled().decide()
        assert isinstance(verdict, Wait)
        assert verdict.reason == "PrimaryDoubtful"
        assert verdict.stalled
    every = healthy().server("demo-0", purged=Position())
    for name in ("demo-1", "demo-2"):
        every = every.has(name, "0-10-100,0-77-101")
    doubtful = every.settled().decide()
    assert isinstance(doubtful, Wait)
    assert doubtful.reason == "PrimaryDoubtful"
    confirmed = every.want(switch_to="demo-0").decide()
    assert isinstance(confirmed, Record)
    assert (confirmed.status.members or {})["demo-1"].reseed


def test_a_long_reason_and_a_long_position_are_bounded() -> None:
    uuid = "00000000-0000-0000-0000-00000000000"
    text = f"{uuid}0:1-100,{uuid}7:" + ":".join(str(number) for number in range(1, 4000, 2))
    scene = healthy(flavor="mysql").has("demo-1", text)

    noted = scene.decide()
    assert isinstance(noted, Record)
    assert len((noted.status.members or {})["demo-1"].reseed) < 500
    promoted = fenced_failover(scene.dead("demo-0")).decide()
    assert isinstance(promoted, Promote)
    assert promoted.first is not None
    assert promoted.first.promotions
    assert len(promoted.first.promotions[0].position) <= 1000
    assert promoted.expected.contains(at(promoted.first.promotions[0].position, "mysql"))
    one = at(bounded(text.partition(",")[2]), "mysql")
    assert not one.is_empty
    assert at(text, "mysql").contains(one)


def test_no_tail_is_cut_where_a_person_chose_and_not_all_that_acknowledged_are_seen() -> None:
    scene = healthy(flavor="mysql", switch_to="demo-1").gone("demo-0").silent("demo-2").fenced("demo-1")

    verdict = scene.see(primary_unreachable=30.0).decide()

    assert isinstance(verdict, Promote)
    assert verdict.first is not None
    assert (verdict.first.members or {})["demo-0"].cut is None


def test_who_leads_is_neither_cut_nor_seeded_again() -> None:
    scene = healthy(switch_to="demo-1").gone("demo-0").silent("demo-2").fenced("demo-1")
    scene = scene.known(
        "demo-1", reseed="errant", cut=TailCut(file="binlog.000002", position=5), synced=False
    )

    verdict = scene.see(primary_unreachable=30.0).decide()

    assert isinstance(verdict, Promote)
    assert verdict.first is not None
    known = (verdict.first.members or {})["demo-1"]
    assert (known.reseed, known.cut) == ("", None)


def test_of_servers_with_old_data_what_one_received_and_did_not_apply_counts() -> None:
    scene = healthy()
    scene = replace(scene, status=new().status).see(old_claims=frozenset(scene.members))
    for name in scene.members:
        scene = scene.server(name, read_only=True, replication=None)
    scene = scene.has("demo-0", "").has("demo-1", "0-10-100", "0-10-110").has("demo-2", "0-10-105")

    verdict = scene.decide()

    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-1"
    assert verdict.expected == at("0-10-110")


# --- switchover -------------------------------------------------------------------------------------------


def test_a_switch_is_recorded_and_bounded_and_only_to_who_has_caught_up() -> None:
    verdict = healthy(switch_to="demo-2").decide()

    assert isinstance(verdict, Switch)
    assert verdict.candidate.name == "demo-2"
    assert verdict.deadline <= 5
    assert verdict.first is not None
    assert verdict.first.operation is not None
    behind = healthy(switch_to="demo-2").link("demo-2", lag=20.0).decide()
    assert isinstance(behind, Wait)
    assert behind.reason == "SwitchBlocked"


def test_the_candidate_of_a_switch_leads_once_it_has_every_write() -> None:
    scene = healthy(switch_to="demo-2").operation("Switch", subject="demo-2", old="demo-0")
    scene = scene.server("demo-0", read_only=True).has("demo-0", "0-10-105")

    held = scene.decide()
    assert isinstance(held, Switch)
    verdict = scene.has("demo-2", "0-10-105").decide()
    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-2"
    assert {one.name for one in verdict.others} == {"demo-0", "demo-1"}
    assert verdict.first is not None
    assert verdict.first.primary == "demo-2"


def test_a_switch_that_takes_too_long_is_given_up_and_the_primary_writes_again() -> None:  # traps 4 and 12
    scene = healthy().operation("Switch", subject="demo-2", old="demo-0", seconds=16)
    scene = scene.server("demo-0", read_only=True)

    given_up = scene.decide()
    assert isinstance(given_up, Record)
    assert given_up.status.operation is None
    again = scene.wrote(given_up).decide()
    assert isinstance(again, Promote)
    assert again.target.name == "demo-0"


def test_the_annotation_goes_once_the_pod_leads_or_cannot() -> None:
    assert isinstance(healthy(switch_to="demo-0").decide(), Unask)
    refused = healthy(switch_to="demo-7").decide()
    assert isinstance(refused, Unask)
    assert "refused" in refused.why


@pytest.mark.parametrize("how", ["deleted", "fenced", "cordoned"])
def test_a_primary_that_has_to_go_hands_over_while_it_lives(how: str) -> None:
    scene = healthy()
    scene = scene.pod("demo-0", terminating=True) if how == "deleted" else scene
    scene = scene.want(fenced=frozenset({"demo-0"})) if how == "fenced" else scene
    scene = scene.see(cordoned=frozenset({"demo-0"})) if how == "cordoned" else scene
    verdict = scene.decide()
    if isinstance(verdict, LabelRoles):
        for name, role in verdict.roles.items():
            scene = scene.pod(name, role=role)
        verdict = scene.decide()

    assert isinstance(verdict, Switch)
    assert verdict.primary.name == "demo-0"


def test_a_newer_replica_does_not_lead_while_another_is_older() -> None:  # trap 25
    scene = healthy(switch_to="demo-2").server("demo-2", version="11.8.9").known("demo-2", version="11.8.9")
    verdict = scene.want(image="mariadb:11.8").decide()
    assert isinstance(verdict, Wait)
    assert "newer" in verdict.message
    dead = fenced_failover(
        healthy().server("demo-1", version="11.8.9").known("demo-1", version="11.8.9").dead("demo-0")
    )
    promoted = dead.decide()
    assert isinstance(promoted, Promote)
    assert promoted.target.name == "demo-2"


# --- maintenance ------------------------------------------------------------------------------------------


def test_a_paused_cluster_is_left_alone_and_says_what_it_would_do() -> None:
    verdict = healthy(paused=True).dead("demo-0").planned()

    assert isinstance(verdict, Wait)
    assert verdict.reason == "Paused"
    assert "Fence" in verdict.message


def test_read_only_holds_writes_and_its_end_lets_them_go_on() -> None:
    assert isinstance(healthy(read_only=True).decide(), Demote)
    assert healthy(read_only=True).server("demo-0", read_only=True).decide() == InSync()
    assert isinstance(healthy().server("demo-0", read_only=True).decide(), Promote)


def test_a_primary_without_room_takes_no_writes_stays_primary_and_goes_on_once_there_is_room() -> None:
    full = healthy().see(shares={"demo-0": 0.97, "demo-1": 0.97})

    verdict = full.decide()
    assert isinstance(verdict, Demote)
    assert verdict.target.name == "demo-0"
    (note,) = notes_of(full.snapshot, verdict)
    assert (note.reason, note.warning) == ("VolumeFull", True)

    held = full.server("demo-0", read_only=True)
    assert held.decide() == InSync()
    assert phase_of(held.snapshot, InSync()) == "ReadOnly"
    said = readiness(held.snapshot)
    assert (said.status, said.reason) == (False, "VolumeFull")
    assert "97 % full" in said.message
    assert "spec.storage.autogrow.maxSize" in said.message
    resting = held.record(phase="ReadOnly").see(shares={"demo-0": 0.96})
    assert resting.decide() == InSync()  # writes do not come and go at the limit
    assert isinstance(resting.see(shares={"demo-0": 0.94}).decide(), Promote)


def test_a_replica_without_room_holds_no_writes() -> None:
    assert healthy().see(shares={"demo-0": 0.96, "demo-1": 1.0}).decide() == InSync()


def test_a_failover_while_no_writes_are_wanted_opens_nobody_and_ends() -> None:
    scene = healthy(read_only=True).server("demo-0", read_only=True).dead("demo-0")
    scene = fenced_failover(scene).has("demo-1", "0-10-100", "0-10-110")

    recorded = scene.decide()
    assert isinstance(recorded, Record)
    assert recorded.status.primary == "demo-1"
    applying = scene.wrote(recorded).settled()
    assert applying.status.operation is not None
    done = applying.has("demo-1", "0-10-110").settled()
    assert done.status.operation is None
    assert not isinstance(done.decide(), Promote)
    opened = done.want(read_only=False).decide()
    assert isinstance(opened, Promote)
    assert opened.target.name == "demo-1"
    assert opened.expected == at("0-10-110")


def test_the_gap_counts_from_the_end_of_the_old_primary() -> None:
    scene = fenced_failover(healthy().dead("demo-0", seconds=1.5))
    scene = scene.wrote(scene.decide()).server("demo-1", read_only=False, replication=None)

    verdict = scene.decide()

    assert isinstance(verdict, Record)
    assert verdict.status.promotions
    assert verdict.status.promotions[0].gap_seconds == 1.5
    assert verdict.status.operation is None


def test_the_end_of_an_earlier_process_does_not_count() -> None:
    hung = healthy().pod("demo-0", died_at=ago(50)).silent("demo-0", seconds=5).lost("demo-1", "demo-2")

    verdict = hung.decide()

    assert isinstance(verdict, Fence)
    assert verdict.first is not None
    assert verdict.first.operation is not None
    assert verdict.first.operation.since == ago(5)


def test_whole_history_has_to_be_known_before_data_is_set_aside() -> None:
    scene = healthy().has("demo-2", "0-10-100,0-77-101").settled()

    assert not isinstance(scene.decide(), DeletePod)


def test_no_gate_opens_before_the_claim_of_the_pod_is_known() -> None:
    scene = healthy().restarted("demo-1").restarted("demo-2").pod("demo-1", volume="uid-demo-1")

    verdict = scene.decide()

    assert isinstance(verdict, Open)
    assert set(verdict.orders) == {"demo-2"}


@pytest.mark.parametrize("name", ["demo-0", "demo-1"])
def test_nobody_is_recorded_to_lead_before_every_claim_is_known(name: str) -> None:
    """A claim that no cache shows yet may be of an earlier cluster, and hold its data."""
    scene = new(size=2)

    waiting = scene.pod(name, volume=f"uid-{name}").decide()

    assert isinstance(waiting, Wait)
    assert waiting.reason == "ClaimsUnknown"
    assert isinstance(scene.decide(), Open)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda scene: scene.pod("demo-2", terminating=True), "demo-2 is on its way out"),
        (lambda scene: scene.recreated("demo-2"), "its server has yet to be told to start"),
        (lambda scene: scene.silent("demo-2"), "it does not answer (Timeout)"),
        (lambda scene: scene.pod("demo-2", running=False).silent("demo-2"), "it is starting"),
        (lambda scene: scene.lost("demo-2"), "it is connecting"),
        (
            lambda scene: scene.link(
                "demo-2", io_running=False, connecting=True, io_error="no route to host"
            ),
            "no route to host",
        ),
        (lambda scene: scene.known("demo-2", synced=False).semi("demo-0", clients=3), "beside the pods"),
        (
            lambda scene: scene.known("demo-2", synced=False).has("demo-2", "0-10-99"),
            "it has yet to receive what demo-0 has written",
        ),
    ],
)
def test_a_roll_out_says_what_it_waits_for(change: Callable[[Scene], Scene], why: str) -> None:
    snapshot = change(rolled()).snapshot
    assert snapshot.leader is not None

    waits = roll.advance(snapshot, *snapshot.leader)

    assert isinstance(waits, Wait)
    assert waits.reason == "RollWaiting"
    assert "demo-2 is" in waits.message
    assert why in waits.message
