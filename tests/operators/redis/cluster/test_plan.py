"""Every rule of founding, healing, scaling and rolling, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.operators.redis.cluster.builders import NOW, Member, change, id_of, snapshot, whole

from mooring.operators.redis.cluster.moves import (
    Attach,
    Claim,
    DeletePod,
    Forget,
    InSync,
    Meet,
    MoveSlots,
    Promote,
    Record,
    Release,
    Resize,
    RestoreTemplate,
    Retire,
    Settle,
    Tell,
    Unfollow,
    Wait,
    WriteTemplate,
)
from mooring.operators.redis.cluster.placement import Place
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.roll import turn_back
from mooring.operators.redis.cluster.slots import ALL, count, parse, shares, span
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.topology import Mark, Peer, Seen
from mooring.operators.redis.cluster.types import AssignStrategy, SlotPlan, SlotRange
from mooring.operators.redis.dial import Address


def empty(*ordinals: int) -> list[Member]:
    return [Member(ordinal=one) for one in ordinals]


# --- at rest -----------------------------------------------------------------------------------------------


def test_a_whole_cluster_is_left_alone() -> None:
    assert next_step(snapshot(whole())) == InSync()


def test_an_odd_node_is_a_further_replica() -> None:
    assert next_step(snapshot([*whole(), Member(ordinal=6, master=0)])) == InSync()


# --- the beginning -----------------------------------------------------------------------------------------


def test_nothing_begins_before_every_node_answers() -> None:
    verdict = next_step(snapshot(change(empty(*range(6)), 5, silent=True), formed=False, alone=range(6)))
    assert isinstance(verdict, Wait)
    assert verdict.reason == "PodsStarting"


def test_strangers_are_introduced_to_one_another() -> None:
    verdict = next_step(snapshot(empty(*range(6)), formed=False, alone=range(6)))
    assert isinstance(verdict, Meet)
    assert len(verdict.pairs) == 30


def test_who_joins_where_slots_have_owners_gets_no_number_that_would_win_them() -> None:
    verdict = next_step(snapshot(change(whole(), 5, master=None, keys=0), formed=False, alone=[5]))
    assert isinstance(verdict, Meet)
    assert not verdict.number


def test_masters_get_equal_parts_and_sit_on_different_machines() -> None:
    places = [Place(name=f"demo-{at}", ordinal=at, node=f"node-{at // 2}") for at in range(6)]
    verdict = next_step(snapshot(empty(*range(6)), formed=False, places=places))
    assert isinstance(verdict, Claim)
    assert [target.name for target, _ in verdict.parts] == ["demo-0", "demo-2", "demo-4"]
    assert [slots for _, slots in verdict.parts] == shares(3)


def test_a_half_made_cluster_is_finished_from_where_it_is() -> None:
    members = change(empty(*range(6)), 1, slots=shares(3)[1])
    verdict = next_step(snapshot(members, formed=False))
    assert isinstance(verdict, Claim)
    assert "demo-1" not in {target.name for target, _ in verdict.parts}
    assert sum(slots for _, slots in verdict.parts) == ALL & ~shares(3)[1]


@pytest.mark.parametrize("slots", [0, span(7, 11)])
def test_a_node_with_foreign_data_is_not_taken_in(slots: int) -> None:
    members = change(empty(*range(6)), 2, keys=5, slots=slots)
    verdict = next_step(snapshot(members, formed=False, alone=[2]))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("ForeignData", True)
    assert "demo-2 (5 keys)" in verdict.message
    for remedy in ("FLUSHALL if the data may go", "--cluster import"):
        assert remedy in verdict.message


@pytest.mark.parametrize("slots", [0, span(7, 11)])
def test_the_others_meet_before_foreign_data_is_waited_for_and_nobody_meets_the_stranger(slots: int) -> None:
    members = change(empty(*range(6)), 2, keys=5, slots=slots)
    verdict = next_step(snapshot(members, formed=False, alone=range(6)))
    assert isinstance(verdict, Meet)
    assert len(verdict.pairs) == 20
    assert "demo-2" not in {target.name for target, _ in verdict.pairs}
    assert members[2].address not in {address for _, address in verdict.pairs}


def test_nobody_is_introduced_where_every_node_has_foreign_data() -> None:
    members = [replace(one, keys=5) for one in empty(*range(6))]
    verdict = next_step(snapshot(members, formed=False, alone=range(6)))
    assert isinstance(verdict, Wait)
    assert verdict.reason == "ForeignData"


def test_slots_that_a_stranger_took_for_its_keys_are_not_served_by_it() -> None:
    members = change(change(whole(), 0, gone=True), 3, gone=True)
    stranger = replace(whole()[0], ordinal=6)
    seen = snapshot([*members, stranger], nodes=7, pods=7, alone=[6]).seen
    assert seen.covered == ALL & ~shares(3)[0]
    assert set(seen.absent_owners) == {id_of(0)}


def test_the_others_become_replicas_away_from_their_master() -> None:
    members = [*whole()[:3], *empty(3, 4, 5)]
    places = [Place(name=f"demo-{at}", ordinal=at, node=f"node-{at % 3}") for at in range(6)]
    verdict = next_step(snapshot(members, formed=False, places=places))
    assert isinstance(verdict, Attach)
    assert len({master for _, master in verdict.pairs}) == 3
    for target, master in verdict.pairs:
        assert int(target.name[-1]) % 3 != int(master, 16) % 3


def test_a_cluster_is_written_down_once_everybody_agrees() -> None:
    verdict = next_step(snapshot(whole(), formed=False))
    assert isinstance(verdict, Record)
    assert verdict.formed


# --- at the gate --------------------------------------------------------------------------------------------


def test_servers_with_all_their_data_begin_at_once_even_if_nobody_answers() -> None:
    members = [replace(one, gate="full") for one in whole()]
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Release)
    assert (len(verdict.as_is), verdict.fresh) == (6, ())


def test_nodes_of_a_cluster_in_the_making_are_told_so_when_they_are_released() -> None:
    members = [Member(ordinal=at, gate="none") for at in range(6)]
    for formed in (False, True):
        verdict = next_step(snapshot(members, formed=formed))
        assert isinstance(verdict, Release)
        assert verdict.founding is not formed


def test_a_master_that_lost_its_data_waits_until_its_replica_has_taken_over() -> None:
    verdict = next_step(snapshot(change(whole(), 0, gate="none")))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how) == ("demo-3", "FORCE")


def test_a_master_that_restarts_with_its_data_leaves_its_slots_to_a_replica_that_was_in_sync() -> None:
    verdict = next_step(snapshot(change(whole(), 0, gate="full")))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how) == ("demo-3", "FORCE")


@pytest.mark.parametrize(
    "heir",
    [
        {"link_up": False, "cut": 6},  # the restart is as quick by now
        {"link_up": False, "cut": -1},  # it never had the data
        {"syncing": True},
        {"loading": True},
        {"version": "3.2.6"},  # its password may not survive a change of sides
    ],
)
def test_a_master_that_restarts_serves_again_where_its_replica_was_not_in_sync(heir: dict[str, Any]) -> None:
    members = change(change(whole(), 0, gate="full"), 3, server=tuple(heir.items()))
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Release)
    assert [one.name for one in verdict.as_is] == ["demo-0"]


def test_a_master_that_restarts_serves_again_while_one_of_its_replicas_is_silent() -> None:
    members = change(change(whole(replicas=2), 0, gate="full"), 6, silent=True)
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Release)
    assert [one.name for one in verdict.as_is] == ["demo-0"]


def test_a_master_that_restarts_serves_again_where_too_few_masters_can_vote() -> None:
    members = change(change(whole(), 0, gate="full"), 1, silent=True)
    assert isinstance(next_step(snapshot(members)), Release)


def test_an_older_snapshot_is_not_preferred_to_a_replica_either() -> None:
    assert isinstance(next_step(snapshot(change(whole(), 0, gate="part"))), Promote)


def test_once_taken_over_it_begins_with_a_new_id() -> None:
    members = change(change(whole(), 0, gate="none", slots=0), 3, master=None, slots=shares(3)[0])
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Release)
    assert [one.name for one in verdict.fresh] == ["demo-0"]


def test_a_replica_that_lost_its_data_begins_as_it_is() -> None:
    verdict = next_step(snapshot(change(whole(), 3, gate="none")))
    assert isinstance(verdict, Release)
    assert [one.name for one in verdict.as_is] == ["demo-3"]


def test_a_silent_replica_may_have_the_data_so_its_empty_master_waits() -> None:
    members = change(change(whole(), 0, gate="none"), 3, silent=True)
    verdict = next_step(snapshot(members))
    assert not isinstance(verdict, Release)


def test_with_no_copy_anywhere_the_empty_master_serves_again() -> None:
    members = change(change(whole(), 0, gate="none"), 3, gate="none")
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Release)
    assert {one.name for one in verdict.as_is} == {"demo-0", "demo-3"}


def test_an_empty_node_at_the_address_of_an_owner_waits_for_the_replica() -> None:
    members = change(whole(), 0, gone=True)
    newcomer = replace(whole()[0], ordinal=6, slots=0, gate="none", pod=(("ip", "10.0.0.1"),))
    verdict = next_step(snapshot([*members, newcomer], nodes=7, pods=6, alone=[6]))
    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-3"


def test_data_that_lost_its_identity_waits_for_the_replica_and_is_then_set_aside() -> None:
    newcomer = replace(whole()[0], ordinal=6, slots=0, gate="full", pod=(("ip", "10.0.0.1"),))
    verdict = next_step(snapshot([*change(whole(), 0, gone=True), newcomer], nodes=7, pods=6, alone=[6]))
    assert isinstance(verdict, Promote)
    verdict = next_step(snapshot([*whole(), Member(ordinal=6, gate="full")], nodes=7, alone=[6]))
    assert isinstance(verdict, Release)
    assert [one.name for one in verdict.fresh] == ["demo-6"]


def test_a_volume_of_a_node_that_was_taken_out_brings_nothing_back() -> None:
    known = snapshot([*whole(), Member(ordinal=6, gate="full")], nodes=7)
    nodes = [
        replace(
            one,
            server=replace(one.server, view=tuple(p for p in one.server.view if p.id != id_of(6))),
        )
        if one.server
        else one
        for one in known.seen.nodes
    ]
    verdict = next_step(replace(known, seen=replace(known.seen, nodes=tuple(nodes))))
    assert isinstance(verdict, Release)
    assert [one.name for one in verdict.fresh] == ["demo-6"]


# --- healing -----------------------------------------------------------------------------------------------


def test_a_node_at_a_new_address_is_met_there_by_everybody() -> None:
    members = change(whole(), 0, pod=(("ip", "10.0.0.99"),))
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Meet)
    assert {address for _, address in verdict.pairs} == {Address("10.0.0.99", 6379)}
    assert len(verdict.pairs) == 5


def test_a_dead_masters_replica_takes_over_by_the_others_votes() -> None:
    verdict = next_step(snapshot(change(whole(), 1, died=True)))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how) == ("demo-4", "FORCE")


def test_a_master_that_is_merely_silent_is_the_clusters_business() -> None:
    assert isinstance(next_step(snapshot(change(whole(), 1, silent=True))), Wait)


OUTVOTED: dict[str, Any] = {"failed": True, "heard": 85.0}
CUT_OFF: dict[str, Any] = {**OUTVOTED, "server": (("covered", False),)}
UNHEARD: dict[str, Any] = {"last_io": 15}


def failing(heir: dict[str, Any] = UNHEARD, **master: Any) -> Snapshot:
    """A master, and what its replica is like."""
    return snapshot(change(change(whole(), 1, **master), 4, server=tuple(heir.items())))


@pytest.mark.parametrize("how", [{**OUTVOTED, "silent": True}, CUT_OFF])
def test_a_master_that_most_others_call_failed_gives_way(how: dict[str, Any]) -> None:
    verdict = next_step(failing(**how))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how, verdict.owner) == ("demo-4", "FORCE", id_of(1))
    assert verdict.failed
    assert verdict.slots == shares(3)[1]


@pytest.mark.parametrize(
    "how",
    [
        {**CUT_OFF, "server": ()},  # it serves
        {**CUT_OFF, "heard": 91.0},  # it is on its way back
        {**CUT_OFF, "failed": False},  # nobody calls it failed
    ],
)
def test_a_master_that_may_be_back_does_not_give_way(how: dict[str, Any]) -> None:
    assert not isinstance(next_step(failing(**how)), Promote)


@pytest.mark.parametrize("heir", [{"syncing": True}, {"loading": True}, {"link_up": False}, {"last_io": 10}])
def test_nobody_takes_over_from_a_failed_master_who_is_not_in_sync_or_hears_it(heir: dict[str, Any]) -> None:
    assert not isinstance(next_step(failing(UNHEARD | heir, **OUTVOTED, silent=True)), Promote)


def standing_in(**former: Any) -> Snapshot:
    """A replica made itself master by its old votes: it took all slots of its master, and nobody else knows."""
    members = change(whole(), 4, master=None, slots=shares(3)[1], epoch=2)
    return seeing(snapshot(change(members, 1, **{"epoch": 2, **former})), [4], 1, slots=0)


@pytest.mark.parametrize("former", [{**OUTVOTED, "silent": True}, CUT_OFF, {"died": True}])
def test_who_took_over_under_a_number_too_low_gets_a_higher_one(former: dict[str, Any]) -> None:
    verdict = next_step(standing_in(**former))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how, verdict.owner) == ("demo-4", "BUMPEPOCH", id_of(1))
    assert verdict.failed == ("died" not in former)


@pytest.mark.parametrize(
    "former", [{}, {**CUT_OFF, "server": ()}, {**CUT_OFF, "heard": 91.0}, {**CUT_OFF, "epoch": 1}]
)
def test_who_claims_slots_of_a_master_that_may_serve_gets_no_higher_number(former: dict[str, Any]) -> None:
    assert not isinstance(next_step(standing_in(**former)), Promote)


def test_a_master_that_missed_a_change_gets_no_higher_number() -> None:
    one, most = shares(3)[1] & -shares(3)[1], shares(3)[1]
    members = change(change(whole(), 1, died=True, slots=one, epoch=2), 4, master=None, slots=most, epoch=2)
    unaware = seeing(snapshot(members), [4], 1, slots=0)
    assert not isinstance(next_step(unaware), Promote)
    assert not isinstance(next_step(seeing(standing_in(died=True), [4], 1, slots=one)), Promote)


def test_the_replica_with_the_most_data_takes_over() -> None:
    members = change(whole(), 0, died=True)
    members = [*members, Member(ordinal=6, master=0, server=(("offset", 50),))]
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-6"


def test_without_a_majority_a_replica_takes_over_by_itself_if_all_are_surely_gone() -> None:
    members = change(change(whole(), 0, died=True), 1, died=True)
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Promote)
    assert verdict.how == "TAKEOVER"


def test_without_a_majority_nothing_is_taken_over_while_a_master_may_be_alive() -> None:
    members = change(change(whole(), 0, died=True), 1, silent=True)
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("NoMajority", True)


def test_a_master_on_its_way_out_hands_over_in_agreement() -> None:
    verdict = next_step(snapshot(change(whole(), 2, pod=(("terminating", True),))))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how) == ("demo-5", "")


def seeing(seen: Snapshot, viewers: Sequence[int], other: int, **how: Any) -> Snapshot:
    """These nodes see one of the others otherwise."""
    nodes = list(seen.seen.nodes)
    for at in viewers:
        server = nodes[at].server
        assert server
        view = tuple(replace(peer, **how) if peer.id == id_of(other) else peer for peer in server.view)
        nodes[at] = replace(nodes[at], server=replace(server, view=view))
    return replace(seen, seen=replace(seen.seen, nodes=tuple(nodes)))


def as_masters(seen: Snapshot, *deaf: int, heir: int) -> Snapshot:
    """These nodes have not heard that one of them follows somebody."""
    return seeing(seen, deaf, heir, master="", flags=frozenset({"master"}))


def test_votes_are_asked_for_once_most_masters_know_that_it_is_a_replica() -> None:
    leaving = snapshot(change(whole(), 0, pod=(("terminating", True),)))
    assert isinstance(next_step(as_masters(leaving, 1, heir=3)), Promote)
    verdict = next_step(as_masters(leaving, 1, 2, heir=3))
    assert isinstance(verdict, Tell)
    assert [(target.name, where.ip) for target, where in verdict.pairs] == [
        ("demo-3", "10.0.0.2"),
        ("demo-3", "10.0.0.3"),
    ]


@pytest.mark.parametrize(("viewer", "other"), [(1, 3), (3, 1)], ids=["voter", "heir"])
def test_a_vote_needs_a_connection_that_nothing_is_about_to_cut(viewer: int, other: int) -> None:
    dead = snapshot(change(whole(), 0, died=True))
    cut = next_step(seeing(dead, [viewer], other, connected=False))
    assert isinstance(cut, Wait)
    assert "connection" in cut.message
    node = dead.seen.nodes[viewer]
    assert node.server is not None
    greeting = Peer(id="f" * 40, address=dead.seen.nodes[other].address, flags=frozenset({"handshake"}))
    met = replace(node, server=replace(node.server, view=(*node.server.view, greeting)))
    nodes = tuple(met if one is node else one for one in dead.seen.nodes)
    assert isinstance(next_step(replace(dead, seen=Seen(nodes=nodes))), Wait)


def test_a_shard_that_waits_for_votes_holds_up_no_other() -> None:
    dead = snapshot(change(change(whole(5), 0, died=True), 1, died=True))
    first, second = (one for one in dead.seen.live if one.master in (id_of(0), id_of(1)))
    cut = seeing(dead, [one.node.pod.ordinal for one in dead.owners], first.node.pod.ordinal, connected=False)
    verdict = next_step(cut)
    assert isinstance(verdict, Promote)
    assert verdict.target.name == second.name


def test_a_lost_connection_is_waited_for_and_not_cut_again_by_a_new_introduction() -> None:
    verdict = next_step(seeing(snapshot(whole()), [4], 2, connected=False))
    assert isinstance(verdict, Wait)
    assert verdict.message == "demo-4 has no connection to demo-2"


def test_the_votes_of_masters_that_are_gone_are_missing() -> None:
    dead = snapshot(change(whole(), 0, died=True))
    assert isinstance(next_step(dead), Promote)
    assert isinstance(next_step(as_masters(dead, 1, heir=3)), Tell)


def test_a_cluster_is_not_whole_while_a_node_takes_a_replica_for_a_master() -> None:
    assert isinstance(next_step(as_masters(snapshot(whole()), 5, heir=3)), Tell)
    assert isinstance(next_step(as_masters(snapshot(whole(), formed=False), 5, heir=3)), Tell)


def test_ids_that_belong_to_no_pod_are_forgotten_by_everybody() -> None:
    members = [*whole(), Member(ordinal=6, gone=True)]
    verdict = next_step(snapshot(members, nodes=6, pods=6))
    assert isinstance(verdict, Forget)
    assert verdict.ids == (id_of(6),)
    assert len(verdict.targets) == 6


def test_the_id_of_a_pod_that_does_not_answer_is_remembered() -> None:
    assert not isinstance(next_step(snapshot(change(whole(), 3, silent=True))), Forget)


def test_a_replica_of_nobody_is_given_to_the_shard_that_needs_it() -> None:
    members = [
        *whole()[:3],
        Member(ordinal=3, master=1),
        Member(ordinal=4, master=1),
        Member(ordinal=5, master=6),
    ]
    members.append(Member(ordinal=6))
    verdict = next_step(snapshot(members, nodes=7))
    assert isinstance(verdict, Attach)
    target, master = verdict.pairs[0]
    assert target.name == "demo-5"
    assert master in (id_of(0), id_of(2))


def test_a_shard_without_a_replica_gets_one_from_a_shard_with_two() -> None:
    members = [
        *whole()[:3],
        Member(ordinal=3, master=0),
        Member(ordinal=4, master=0),
        Member(ordinal=5, master=2),
    ]
    verdict = next_step(snapshot(members))
    assert isinstance(verdict, Attach)
    assert verdict.pairs[0][1] == id_of(1)


def marked(seen: Snapshot, ordinal: int, mark: Mark) -> Snapshot:
    """The same with an open mark at one node."""
    nodes = list(seen.seen.nodes)
    server = nodes[ordinal].server
    assert server
    view = tuple(
        replace(one, marks=(*one.marks, mark)) if "myself" in one.flags else one for one in server.view
    )
    nodes[ordinal] = replace(nodes[ordinal], server=replace(server, view=view))
    return replace(seen, seen=replace(seen.seen, nodes=tuple(nodes)))


def settled(seen: Snapshot) -> Settle:
    verdict = next_step(seen)
    assert isinstance(verdict, Settle)
    return verdict


def test_a_slot_left_half_way_is_settled() -> None:
    step = settled(marked(snapshot(whole()), 0, Mark(slot=7, peer=id_of(1), outgoing=True)))
    assert (step.slots, step.owner.name, step.meant) == (1 << 7, "demo-0", id_of(1))
    assert [one.name for one in step.masters] == ["demo-0", "demo-1", "demo-2"]


def test_a_slot_that_was_going_to_a_node_that_follows_now_is_settled_with_its_master() -> None:
    step = settled(marked(snapshot(whole()), 0, Mark(slot=7, peer=id_of(4), outgoing=True)))
    assert (step.owner.name, step.meant) == ("demo-0", id_of(1))


def test_a_mark_of_a_slot_that_another_owns_by_now_is_settled_with_the_owner() -> None:
    step = settled(marked(snapshot(whole()), 0, Mark(slot=16383, peer=id_of(4), outgoing=True)))
    assert (step.owner.name, step.meant) == ("demo-2", "")


def test_half_way_slots_of_one_owner_that_go_to_one_node_are_settled_together() -> None:
    seen = snapshot(whole())
    for slot, peer in ((7, 1), (8, 1), (9, 2)):
        seen = marked(seen, 0, Mark(slot=slot, peer=id_of(peer), outgoing=True))
    assert settled(seen).slots == 1 << 7 | 1 << 8


def test_while_a_plan_goes_on_only_marks_that_the_owner_knows_nothing_of_are_settled() -> None:
    moves = [SlotRange(slots="0-99", source=id_of(0), target=id_of(1))]
    plan = SlotPlan(kind="Rebalance", replicas=6, moves=moves, total=100)
    begun = snapshot(whole(), plan=plan)
    given = marked(begun, 0, Mark(slot=7, peer=id_of(1), outgoing=True))
    assert not isinstance(next_step(given), Settle)
    both = marked(given, 1, Mark(slot=7, peer=id_of(0), outgoing=False))
    assert not isinstance(next_step(both), Settle)
    assert settled(marked(begun, 1, Mark(slot=16383, peer=id_of(2), outgoing=False))).owner.name == "demo-2"
    assert settled(marked(begun, 1, Mark(slot=16383, peer=id_of(0), outgoing=False))).owner.name == "demo-2"


def test_a_slot_is_not_settled_before_who_may_have_its_keys_is_back() -> None:
    mark = Mark(slot=7, peer=id_of(3), outgoing=True)
    assert not isinstance(next_step(marked(snapshot(change(whole(), 3, silent=True)), 0, mark)), Settle)
    other = marked(snapshot(change(whole(), 3, silent=True)), 1, Mark(slot=7, peer=id_of(2), outgoing=False))
    assert not isinstance(next_step(marked(other, 0, mark)), Settle)
    gone = Mark(slot=7, peer=id_of(9), outgoing=True)
    assert settled(marked(snapshot(whole()), 0, gone)).meant == ""


# --- out ---------------------------------------------------------------------------------------------------


def test_more_pods_are_asked_for_first() -> None:
    verdict = next_step(snapshot(whole(), nodes=8))
    assert isinstance(verdict, Resize)
    assert verdict.replicas == 8


def test_one_newcomer_is_kept_free_and_the_other_becomes_its_replica() -> None:
    verdict = next_step(snapshot([*whole(), *empty(6, 7)], nodes=8))
    assert isinstance(verdict, Attach)
    assert [(target.name, master) for target, master in verdict.pairs] == [("demo-7", id_of(6))]


def test_even_parts_are_planned_and_written_down_before_anything_moves() -> None:
    verdict = next_step(snapshot([*whole(), Member(ordinal=6), Member(ordinal=7, master=6)], nodes=8))
    assert isinstance(verdict, Record)
    assert verdict.plan
    assert (verdict.plan.kind, verdict.plan.total, verdict.plan.replicas) == ("Rebalance", 4096, 8)


def test_named_sources_give_what_they_are_asked_for() -> None:
    entry = AssignStrategy(slots=100, from_replicas=id_of(1))
    members = [*whole(), Member(ordinal=6), Member(ordinal=7, master=6)]
    verdict = next_step(snapshot(members, nodes=8, named=True, strategies=(entry,)))
    assert isinstance(verdict, Record)
    assert verdict.plan
    (move,) = list(verdict.plan.moves or [])
    assert (move.source, move.target, count(parse(move.slots))) == (id_of(1), id_of(6), 100)


def plan_of(*moves: SlotRange, replicas: int = 8) -> SlotPlan:
    return SlotPlan(kind="Rebalance", replicas=replicas, moves=list(moves), total=100)


def growing() -> list[Member]:
    return [*whole(), Member(ordinal=6), Member(ordinal=7, master=6)]


def test_a_plan_goes_on_with_what_is_not_moved_yet() -> None:
    members = change(change(growing(), 6, slots=span(0, 9)), 0, slots=shares(3)[0] & ~span(0, 9))
    plan = plan_of(SlotRange(slots="0-99", source=id_of(0), target=id_of(6)))
    verdict = next_step(snapshot(members, nodes=8, plan=plan, rate=1e6))
    assert isinstance(verdict, MoveSlots)
    assert verdict.transfer.slots == span(10, 99)
    assert verdict.rate == 1e6


def test_a_source_that_failed_over_gives_the_rest_by_its_heir() -> None:
    members = change(change(growing(), 0, slots=0, master=3), 3, slots=shares(3)[0], master=None)
    plan = plan_of(SlotRange(slots="0-99", source=id_of(0), target=id_of(6)))
    verdict = next_step(snapshot(members, nodes=8, plan=plan))
    assert isinstance(verdict, MoveSlots)
    assert verdict.source.name == "demo-3"


def test_a_target_that_failed_over_gets_the_rest_by_its_heir() -> None:
    members = change(growing(), 0, slots=shares(3)[0] & ~span(0, 9))
    members = change(change(members, 6, master=7), 7, master=None, slots=span(0, 9))
    plan = plan_of(SlotRange(slots="0-99", source=id_of(0), target=id_of(6)))
    verdict = next_step(snapshot(members, nodes=8, plan=plan))
    assert isinstance(verdict, MoveSlots)
    assert verdict.target.name == "demo-7"


def test_what_is_left_for_a_target_that_failed_over_goes_to_its_heir_too() -> None:
    members = change(growing(), 0, slots=shares(3)[0] & ~span(0, 9))
    members = change(change(members, 6, master=7), 7, master=None, slots=span(0, 9))
    plan = plan_of(
        SlotRange(slots="0-9", source=id_of(0), target=id_of(6)),
        SlotRange(slots="6000-6009", source=id_of(1), target=id_of(6)),
    )
    for gone in (False, True):
        verdict = next_step(snapshot(change(members, 6, silent=gone), nodes=8, plan=plan))
        assert isinstance(verdict, MoveSlots), gone
        assert (verdict.source.name, verdict.target.name) == ("demo-1", "demo-7")


def test_a_finished_plan_is_dropped() -> None:
    members = change(change(growing(), 6, slots=span(0, 99)), 0, slots=shares(3)[0] & ~span(0, 99))
    plan = plan_of(SlotRange(slots="0-99", source=id_of(0), target=id_of(6)))
    verdict = next_step(snapshot(members, nodes=8, plan=plan))
    assert isinstance(verdict, Record)
    assert verdict.drop_plan


def test_nothing_moves_while_a_master_is_gone() -> None:
    plan = plan_of(SlotRange(slots="0-99", source=id_of(0), target=id_of(6)))
    verdict = next_step(snapshot(change(growing(), 1, silent=True), nodes=8, plan=plan))
    assert isinstance(verdict, Wait)


# --- in ----------------------------------------------------------------------------------------------------


def test_the_master_with_the_highest_ordinal_is_drained_first() -> None:
    verdict = next_step(snapshot(whole(4), nodes=6, pods=8))
    assert isinstance(verdict, Record)
    assert verdict.plan
    assert verdict.plan.kind == "Drain"
    assert {move.source for move in verdict.plan.moves or ()} == {id_of(3)}
    assert verdict.plan.total == 4096


def drained() -> list[Member]:
    """Eight nodes of which 3 has nothing any more; 6 and 7 are to go."""
    slots = [shares(3)[0], shares(3)[1], shares(3)[2], 0]
    return [replace(one, slots=slots[one.ordinal] if one.ordinal < 4 else 0, keys=0) for one in whole(4)]


def test_the_drained_one_that_stays_becomes_a_replica_where_one_is_about_to_go() -> None:
    verdict = next_step(snapshot(drained(), nodes=6, pods=8))
    assert isinstance(verdict, Attach)
    target, master = verdict.pairs[0]
    assert (target.name, master) == ("demo-3", id_of(2))


def test_a_master_on_a_pod_that_goes_hands_over_to_one_that_stays() -> None:
    members = change(change(whole(), 2, slots=0, master=6), 5, master=6)
    members = [*members, Member(ordinal=6, slots=shares(3)[2]), Member(ordinal=7, master=0)]
    verdict = next_step(snapshot(members, nodes=6, pods=8))
    assert isinstance(verdict, Promote)
    assert verdict.target.name in ("demo-2", "demo-5")


def test_nobody_is_forgotten_by_a_replica_that_has_not_heard_who_has_its_slots_now() -> None:
    drained = snapshot(change(whole(3, replicas=2), 8, master=None, keys=0), nodes=8)
    assert isinstance(next_step(drained), Retire)
    slots = shares(3)[0]
    behind = seeing(seeing(drained, [4], 8, slots=slots), [4], 0, slots=0)
    verdict = next_step(behind)
    assert isinstance(verdict, Tell)
    assert {target.name for target, _ in verdict.pairs} == {"demo-0"}


def test_who_leaves_is_forgotten_before_the_set_shrinks() -> None:
    members = [*whole(), Member(ordinal=6, master=0), Member(ordinal=7, master=1)]
    verdict = next_step(snapshot(members, nodes=6, pods=8))
    assert isinstance(verdict, Retire)
    assert [one.name for one in verdict.leavers] == ["demo-6", "demo-7"]
    assert len(verdict.rest) == 6


def test_the_set_shrinks_when_nobody_knows_them_any_more() -> None:
    members = [*whole(), Member(ordinal=6), Member(ordinal=7)]
    verdict = next_step(snapshot(members, nodes=6, pods=8, alone=[6, 7]))
    assert isinstance(verdict, Resize)
    assert verdict.replicas == 6


def test_a_node_that_is_down_is_no_reason_to_take_out_others() -> None:
    for silent in (1, 5):
        verdict = next_step(snapshot(change(whole(4), silent, silent=True), nodes=6, pods=8))
        assert isinstance(verdict, Wait), silent


def test_a_scale_in_that_is_taken_back_stops() -> None:
    plan = plan_of(SlotRange(slots="16000-16099", source=id_of(3), target=id_of(0)), replicas=6)
    verdict = next_step(snapshot(whole(4), nodes=8, plan=plan))
    assert isinstance(verdict, Record)
    assert verdict.drop_plan


def test_one_that_was_drained_already_and_follows_is_made_a_master_again() -> None:
    members = [*whole(), Member(ordinal=6, master=0), Member(ordinal=7, master=1)]
    verdict = next_step(snapshot(members, nodes=8))
    assert isinstance(verdict, Unfollow)
    assert verdict.target.name in ("demo-6", "demo-7")


# --- rolling changes ---------------------------------------------------------------------------------------


def of_revision(members: list[Member], *old: int) -> list[Member]:
    return [replace(one, pod=(("revision", "old" if one.ordinal in old else "new"),)) for one in members]


def test_the_template_is_written_when_all_is_well() -> None:
    assert isinstance(next_step(snapshot(whole(), stale_template=True)), WriteTemplate)
    assert isinstance(next_step(snapshot(change(whole(), 4, silent=True), stale_template=True)), Wait)


def test_replicas_are_made_anew_before_masters() -> None:
    verdict = next_step(snapshot(of_revision(whole(), 0, 1, 4), revision="new"))
    assert isinstance(verdict, DeletePod)
    assert verdict.pod == "demo-4"


def test_pods_restart_for_a_file_system_that_waited_too_long_replicas_first() -> None:
    late = [
        replace(one, pod=(("revision", "new"), ("resize_since", NOW - timedelta(minutes=6))))
        for one in whole()
    ]
    verdict = next_step(snapshot(late, revision="new"))
    assert isinstance(verdict, DeletePod)
    assert (verdict.pod, "volume" in verdict.why) == ("demo-5", True)
    masters = [one if one.ordinal < 3 else replace(one, pod=(("revision", "new"),)) for one in late]
    assert isinstance(next_step(snapshot(masters, revision="new")), Promote)
    assert isinstance(next_step(snapshot(of_revision(whole()), revision="new")), InSync)


def test_a_replica_that_writes_its_log_is_not_stopped_yet() -> None:
    members = change(of_revision(whole(), 0, 1, 4), 4, server=(("rewriting", True),))
    verdict = next_step(snapshot(members, revision="new"))
    assert isinstance(verdict, Wait)
    assert verdict.reason == "RollWaiting"


def test_a_pod_that_is_on_its_way_out_is_not_deleted_again() -> None:
    members = change(of_revision(whole(), 0, 4), 4, pod=(("revision", "old"), ("terminating", True)))
    verdict = next_step(snapshot(members, revision="new"))
    assert isinstance(verdict, Wait)
    assert verdict.reason == "PodEnding"


def test_a_master_hands_over_before_its_pod_is_made_anew() -> None:
    verdict = next_step(snapshot(of_revision(whole(), 0, 1), revision="new"))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how) == ("demo-4", "")


def test_a_pod_that_does_not_come_up_stops_the_roll() -> None:
    members = of_revision(whole(), 0, 1, 3)
    assert isinstance(next_step(snapshot(change(members, 4, silent=True), revision="new")), Wait)


def hanging(revision: str) -> list[Member]:
    """A replica was made anew and does not come up; the others run the revision before."""
    pod = (("running", False), ("trouble", "ErrImagePull"), ("revision", revision))
    members = of_revision(whole(), 0, 1, 2, 3, 4)
    return change(members, 5, silent=True, pod=pod)


def test_the_first_pod_that_does_not_come_up_brings_the_last_good_template_back() -> None:
    verdict = next_step(snapshot(hanging("new"), revision="new"))
    assert isinstance(verdict, RestoreTemplate)
    assert verdict.revision == "old"
    assert "demo-5 did not come up (ErrImagePull)" in verdict.why


def test_once_it_is_back_the_pod_that_hangs_is_made_anew_from_it() -> None:
    verdict = next_step(snapshot(hanging("new"), revision="old"))
    assert isinstance(verdict, DeletePod)
    assert verdict.pod == "demo-5"


def test_a_pod_that_hangs_with_the_template_of_all_others_turns_nothing_back() -> None:
    assert isinstance(next_step(snapshot(hanging("old"), revision="old")), Wait)


def test_a_new_node_that_finds_no_place_turns_nothing_back() -> None:
    pod = (("running", False), ("trouble", "ErrImagePull"), ("revision", "new"))
    members = [*of_revision(whole(), 0, 1), Member(ordinal=6, silent=True, pod=pod)]
    ids = {f"demo-{at}": id_of(at) for at in range(6)}
    assert turn_back(snapshot(members, nodes=7, revision="new", ids=ids)) is None


@pytest.mark.parametrize("rolls", [True, False])
def test_pods_wait_for_the_user_where_he_wants_it_so(rolls: bool) -> None:
    verdict = next_step(snapshot(of_revision(whole(), 4), revision="new", rolls=rolls))
    assert isinstance(verdict, DeletePod) is rolls


def test_nothing_is_planned_while_a_node_does_not_serve_yet() -> None:
    members = change(growing(), 6, server=(("covered", False),))
    verdict = next_step(snapshot(members, nodes=8))
    assert isinstance(verdict, Wait)
    assert verdict.reason == "Agreeing"


def test_who_has_not_heard_of_new_slots_is_told_at_once() -> None:
    seen = snapshot(whole(), formed=False)
    one = seen.seen.nodes[5]
    assert one.server
    view = tuple(replace(peer, slots=0) if peer.id == id_of(1) else peer for peer in one.server.view)
    nodes = (*seen.seen.nodes[:5], replace(one, server=replace(one.server, view=view)))
    verdict = next_step(replace(seen, seen=replace(seen.seen, nodes=nodes)))
    assert isinstance(verdict, Tell)
    assert [(target.name, where) for target, where in verdict.pairs] == [("demo-1", one.address)]


def test_masters_without_slots_and_without_an_entry_are_asked_about_and_not_evened_out() -> None:
    verdict = next_step(snapshot(growing(), nodes=8, named=True))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("InvalidArgs", True)


def test_who_becomes_a_master_is_decided_when_all_new_nodes_are_there() -> None:
    members = [*whole(), Member(ordinal=6), Member(ordinal=7, silent=True)]
    assert isinstance(next_step(snapshot(members, nodes=8)), Wait)


def test_nodes_that_do_not_know_one_another_meet_before_they_vote() -> None:
    members = change(change(whole(), 0, gate="none"), 4, pod=(("ip", "10.0.0.99"),))
    assert isinstance(next_step(snapshot(members)), Meet)


def test_an_owner_that_is_gone_is_not_forgotten_before_its_slots_have_a_live_one() -> None:
    members = change(change(whole(), 0, gone=True), 3, gone=True)
    ids = {f"demo-{at}": id_of(at) for at in (1, 2, 4, 5)}
    fresh = [Member(ordinal=6, keys=0), Member(ordinal=7, keys=0)]
    verdict = next_step(snapshot([*members, *fresh], nodes=8, pods=6, ids=ids))
    assert not (isinstance(verdict, Forget) and id_of(0) in verdict.ids)


def with_a_new_pod_of_a_lost_master(*, slots: int) -> Snapshot:
    """demo-0 is empty and new; the node that its pod was before led demo-3, and has the epoch 0."""
    lost = Member(ordinal=6, gone=True, slots=slots, epoch=0)
    members = change(change(whole(), 0, slots=0, keys=0), 3, master=6)
    ids = {f"demo-{at}": id_of(at) for at in range(1, 6)} | {"demo-0": id_of(6)}
    return snapshot([*members, lost], nodes=6, pods=6, ids=ids)


def test_who_knows_an_owner_that_is_gone_by_hearsay_hides_none_of_its_slots() -> None:
    now = with_a_new_pod_of_a_lost_master(slots=shares(3)[0])
    newcomer = now.seen.nodes[0]
    assert newcomer.server is not None
    hearsay = tuple(replace(one, slots=0) if one.id == id_of(6) else one for one in newcomer.server.view)
    first = replace(newcomer, server=replace(newcomer.server, view=hearsay))
    now = replace(now, seen=Seen(nodes=(first, *now.seen.nodes[1:])))

    assert now.seen.absent_owners == {id_of(6): shares(3)[0]}
    verdict = next_step(now)
    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-3"


def test_while_slots_have_no_owner_that_anybody_knows_a_replica_keeps_what_it_has() -> None:
    verdict = next_step(with_a_new_pod_of_a_lost_master(slots=0))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("SlotsWithoutOwner", True)
    assert "0-5460" in verdict.message


# --- what the StatefulSet's controller has not seen yet ----------------------------------------------------


def test_a_template_that_was_just_written_is_waited_for_and_not_taken_for_rolled_out() -> None:
    verdict = next_step(snapshot(whole(), revision="old", pending=True))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("TemplatePending", False)


def test_a_pod_that_hangs_in_a_template_put_back_is_made_anew_once_the_template_is_taken_up() -> None:
    hanging = (("trouble", "ImagePullBackOff"), ("revision", "bad"), ("running", False))
    members = [replace(one, pod=(("revision", "good"),)) for one in whole()]
    members = change(members, 5, silent=True, pod=hanging)
    assert isinstance(next_step(snapshot(members, revision="good", pending=True)), Wait)
    assert isinstance(next_step(snapshot(members, revision="good")), DeletePod)


def test_a_pod_that_is_being_deleted_needs_nobody_whatever_its_trouble_was() -> None:
    ending = (("trouble", "ImagePullBackOff"), ("running", False), ("terminating", True))
    verdict = next_step(snapshot(change(whole(), 5, silent=True, pod=ending)))
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.stalled) == ("PodsStarting", False)


# --- a declaration that is corrected -----------------------------------------------------------------------

BAD: dict[str, Any] = {"running": False, "trouble": "ImagePullBackOff", "revision": "bad"}


def broken(member: Member, **pod: Any) -> Member:
    """Its pod never ran, and will not by the template it was made from."""
    return replace(member, silent=True, pod=tuple((BAD | pod).items()))


def unformed(*good: int, pods: int = 6, **how: Any) -> Snapshot:
    """A new cluster in which only some pods run."""
    members = [Member(ordinal=at) if at in good else broken(Member(ordinal=at)) for at in range(pods)]
    return snapshot(members, formed=False, alone=range(pods), ids={}, **how)


def test_a_corrected_template_of_a_cluster_that_is_not_formed_is_written() -> None:
    assert isinstance(next_step(unformed(0, 1, revision="bad", stale_template=True)), WriteTemplate)
    waits = next_step(unformed(0, 1, revision="bad"))
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.stalled) == ("PodsStarting", True)


def test_pods_that_do_not_run_are_made_anew_from_it_and_no_others() -> None:
    pending = next_step(unformed(0, 1, revision="bad", pending=True))
    assert isinstance(pending, Wait)
    assert pending.reason == "TemplatePending"
    verdict = next_step(unformed(0, 1, revision="new"))
    assert isinstance(verdict, DeletePod)
    assert (verdict.pod, verdict.uid) == ("demo-2", "uid-2")
    starting = [Member(ordinal=at, silent=True, pod=(("revision", "bad"),)) for at in range(6)]
    assert isinstance(next_step(snapshot(starting, formed=False, ids={}, revision="new")), Wait)


@pytest.mark.parametrize(("pods", "nodes"), [(6, 8), (8, 6)])
def test_another_number_of_nodes_is_carried_out_before_the_first_ones_run(pods: int, nodes: int) -> None:
    verdict = next_step(unformed(0, pods=pods, nodes=nodes, revision="bad"))
    assert isinstance(verdict, Resize)
    assert verdict.replicas == nodes


def test_a_pod_with_keys_or_without_a_word_is_not_taken_away() -> None:
    for last in (Member(ordinal=7, keys=3), Member(ordinal=7, silent=True)):
        members = [*(broken(Member(ordinal=at)) for at in range(7)), last]
        verdict = next_step(snapshot(members, nodes=6, formed=False, alone=range(8), ids={}, revision="bad"))
        assert isinstance(verdict, Wait)


def scaled_out(**wanted: Any) -> Snapshot:
    """A formed cluster whose two new pods do not run."""
    old = [replace(one, pod=(("revision", "bad"),)) for one in whole()]
    ids = {f"demo-{at}": id_of(at) for at in range(6)}
    return snapshot([*old, *(broken(Member(ordinal=at)) for at in (6, 7))], ids=ids, alone=(6, 7), **wanted)


def test_new_nodes_that_do_not_run_get_the_corrected_template_and_old_ones_are_not_touched() -> None:
    assert isinstance(next_step(scaled_out(revision="bad", stale_template=True)), WriteTemplate)
    verdict = next_step(scaled_out(revision="new"))
    assert isinstance(verdict, DeletePod)
    assert verdict.pod == "demo-6"


def lost(**pod: Any) -> list[Member]:
    """A replica's pod is gone with its machine, and the new one finds no place."""
    members = [replace(one, pod=(("revision", "bad"),)) for one in whole()]
    return change(members, 5, silent=True, pod=tuple((BAD | {"trouble": "Unschedulable"} | pod).items()))


def test_a_lost_pod_that_finds_no_place_gets_the_corrected_template() -> None:
    old = NOW.replace(year=2025)
    corrected = snapshot(lost(created=old), revision="bad", stale_template=True)
    assert isinstance(next_step(corrected), WriteTemplate)
    assert isinstance(next_step(snapshot(lost(created=old), revision="new")), DeletePod)
    assert isinstance(next_step(snapshot(lost(created=NOW), revision="bad", stale_template=True)), Wait)


@pytest.mark.parametrize(("seconds", "unmade"), [(5, False), (60, True)])
def test_a_pod_that_nobody_makes_for_long_is_named_and_gets_the_corrected_template(
    seconds: int, unmade: bool
) -> None:
    def seen(**wanted: Any) -> Snapshot:
        since = {"demo-5": NOW - timedelta(seconds=seconds)}
        return snapshot(change(whole(), 5, gone=True), pods=6, missing=since, **wanted)

    waits = next_step(seen())
    assert isinstance(waits, Wait)
    assert waits.stalled == unmade
    assert ("demo-5 cannot be made: kubectl describe statefulset demo" in waits.message) == unmade
    assert isinstance(next_step(seen(stale_template=True)), WriteTemplate) == unmade


def test_who_is_made_only_once_another_one_is_ready_is_not_said_to_be_impossible() -> None:
    missing = {f"demo-{at}": NOW - timedelta(seconds=60) for at in (6, 7)}
    scaled = [*whole(), Member(ordinal=6, silent=True), Member(ordinal=7, gone=True)]
    waits = next_step(snapshot(scaled, pods=8, missing=missing))
    assert isinstance(waits, Wait)
    assert not waits.stalled
    assert "cannot be made" not in waits.message


def test_healing_comes_before_a_correction() -> None:
    members = change(lost(created=NOW.replace(year=2025)), 0, died=True)
    assert isinstance(next_step(snapshot(members, revision="bad", stale_template=True)), Promote)


def test_a_template_that_is_corrected_before_it_is_turned_back_is_written_over_and_not_refused() -> None:
    assert isinstance(next_step(snapshot(hanging("new"), revision="new", stale_template=True)), WriteTemplate)


@pytest.mark.parametrize("lasting", [True, False])
def test_the_only_data_of_a_shard_does_not_go_with_a_pod_that_crashes(lasting: bool) -> None:
    crash = BAD | {"trouble": "CrashLoopBackOff", "died_at": NOW, "lasting": lasting}
    members = [replace(one, pod=(("revision", "bad"),)) for one in whole()]
    for at in (0, 3):
        members = change(members, at, silent=True, pod=tuple(crash.items()))
    verdict = next_step(snapshot(members, revision="new"))
    assert isinstance(verdict, DeletePod if lasting else Wait)


@pytest.mark.parametrize(("keys", "goes"), [(0, True), (10, False)])
def test_empty_pods_of_a_template_that_was_too_large_make_room(keys: int, goes: bool) -> None:
    old = [Member(ordinal=at, keys=keys, pod=(("revision", "old"),)) for at in (0, 1)]
    waiting = (("revision", "new"), ("trouble", "Unschedulable"), ("created", NOW - timedelta(minutes=1)))
    new = [Member(ordinal=at, died=True, pod=waiting) for at in range(2, 6)]
    verdict = next_step(snapshot([*old, *new], formed=False, alone=range(6), ids={}, revision="new"))
    assert isinstance(verdict, DeletePod) is goes
    if isinstance(verdict, DeletePod):
        assert verdict.pod == "demo-0"
