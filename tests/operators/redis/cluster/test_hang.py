"""A master that hangs is replaced, and one that is merely slow or out of the operator's sight is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.operators.redis.cluster.builders import Member, change, id_of, snapshot, whole

from mooring.operators.redis.cluster.failover import DECIDED, HUNG, suspects
from mooring.operators.redis.cluster.moves import Promote, Tell, Wait
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.slots import shares
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.topology import Peer

UNHEARD: dict[str, Any] = {"last_io": 6}


def asking(seen: Snapshot, viewers: tuple[int, ...], *masters: int) -> Snapshot:
    """These nodes wait for an answer of those masters to an introduction."""
    nodes = list(seen.seen.nodes)
    for at in viewers:
        server = nodes[at].server
        assert server
        new = tuple(
            Peer(id="f" * 39 + str(one), address=nodes[one].address, flags=frozenset({"handshake"}))
            for one in masters
        )
        nodes[at] = replace(nodes[at], server=replace(server, view=server.view + new))
    return replace(seen, seen=replace(seen.seen, nodes=tuple(nodes)))


def hanging(
    *masters: int,
    missed: int = HUNG,
    still: bool = True,
    viewers: tuple[int, ...] = (0, 2),
    members: list[Member] | None = None,
    heir: dict[str, Any] = UNHEARD,
) -> Snapshot:
    """Masters that do not answer, each with its replica three numbers later."""
    members = whole() if members is None else members
    for one in masters:
        members = change(members, one, silent=True)
        members = change(members, one + 3, server=tuple((UNHEARD | heir).items()))
    names = [f"demo-{one}" for one in masters]
    seen = asking(snapshot(members), viewers, *masters)
    return replace(seen, missed=dict.fromkeys(names, missed), still=frozenset(names if still else ()))


def test_a_master_whose_process_stands_still_gives_way() -> None:
    verdict = next_step(hanging(1))
    assert isinstance(verdict, Promote)
    assert (verdict.target.name, verdict.how, verdict.owner) == ("demo-4", "FORCE", id_of(1))
    assert verdict.hung
    assert verdict.slots == shares(3)[1]


def test_a_master_that_works_on_something_does_not_give_way() -> None:
    assert isinstance(next_step(hanging(1, still=False)), Wait)


def test_a_pause_of_some_seconds_is_no_hang() -> None:
    assert isinstance(next_step(hanging(1, missed=HUNG - 1)), Wait)


@pytest.mark.parametrize("viewers", [(), (0,)])
def test_a_master_that_most_others_may_hear_does_not_give_way(viewers: tuple[int, ...]) -> None:
    assert isinstance(next_step(hanging(1, viewers=viewers)), Wait)


def test_the_other_masters_are_told_to_ask_at_once() -> None:
    verdict = next_step(hanging(1, missed=1, viewers=(0,)))
    assert isinstance(verdict, Tell)
    assert [(one.name, address.ip) for one, address in verdict.pairs] == [("demo-2", "10.0.0.2")]


def test_where_only_the_operator_is_cut_off_the_others_keep_their_connections() -> None:
    assert isinstance(next_step(hanging(1, missed=3, viewers=(), still=False)), Wait)


def test_a_master_that_was_never_asked_is_the_clusters_business() -> None:
    assert isinstance(next_step(hanging(1, missed=0, viewers=())), Wait)


def test_two_of_three_masters_that_hang_leave_no_majority_to_say_so() -> None:
    assert not isinstance(next_step(hanging(1, 2, viewers=(0,))), Promote)


def test_two_of_five_masters_that_hang_are_both_replaced() -> None:
    members = [*whole(5, replicas=0), *(Member(ordinal=5 + at, master=at, keys=10) for at in range(5))]
    for one in (1, 2):
        members = change(members, one, silent=True)
        members = change(members, one + 5, server=tuple(UNHEARD.items()))
    seen = asking(snapshot(members), (0, 3, 4), 1, 2)
    names = ("demo-1", "demo-2")
    seen = replace(seen, missed=dict.fromkeys(names, HUNG), still=frozenset(names))
    verdict = next_step(seen)
    assert isinstance(verdict, Promote)
    assert verdict.target.name in ("demo-6", "demo-7")


@pytest.mark.parametrize("heir", [{"link_up": False}, {"syncing": True}, {"loading": True}, {"last_io": 1}])
def test_no_replica_takes_over_that_is_not_in_sync_or_hears_its_master(heir: dict[str, Any]) -> None:
    assert not isinstance(next_step(hanging(1, heir=heir)), Promote)


def test_the_replica_with_the_most_writes_takes_over() -> None:
    more = Member(ordinal=6, master=1, keys=10, server=(("last_io", 6), ("offset", 50)))
    verdict = next_step(hanging(1, members=[*whole(), more]))
    assert isinstance(verdict, Promote)
    assert verdict.target.name == "demo-6"


def test_a_master_that_serves_no_slots_any_more_is_left_alone() -> None:
    members = change(change(whole(), 1, slots=0), 4, master=None, slots=shares(3)[1], epoch=9)
    seen = replace(asking(snapshot(change(members, 1, silent=True)), (0, 2), 1), still=frozenset({"demo-1"}))
    assert not isinstance(next_step(replace(seen, missed={"demo-1": HUNG})), Promote)


@pytest.mark.parametrize(("missed", "looked"), [(HUNG - 1, 0), (HUNG, 1), (DECIDED, 1), (DECIDED + 1, 0)])
def test_a_process_is_looked_at_while_the_operator_may_decide(missed: int, looked: int) -> None:
    assert len(suspects(hanging(1, missed=missed))) == looked


def test_a_server_at_its_gate_or_on_its_way_out_is_no_suspect() -> None:
    assert suspects(hanging(1, members=change(whole(), 1, gate="full"))) == []
    assert suspects(hanging(1, members=change(whole(), 1, pod=(("terminating", True),)))) == []
