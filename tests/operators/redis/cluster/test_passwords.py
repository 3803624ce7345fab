"""A change of the password, step by step, as far as the servers are with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.operators.redis.cluster.builders import NOW, Member, change, snapshot, whole

from mooring.operators.redis.cluster.moves import Promote, Target, Wait
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.snapshot import Recorded, Snapshot, Wanted
from mooring.operators.redis.cluster.topology import Seen
from mooring.operators.redis.dial import Address
from mooring.operators.redis.passwords.moves import (
    AddPassword,
    DropPassword,
    PasswordMove,
    PresentPassword,
    PublishPassword,
    ServerAuth,
    SetPassword,
    StagePassword,
    SwitchPassword,
)
from mooring.operators.redis.passwords.plan import next_password
from mooring.operators.redis.passwords.seen import Auth
from mooring.operators.workload.credentials import PasswordState

SETTLED = PasswordState(grace=120.0)
STAGED = PasswordState(staged=True, grace=120.0)
PUBLISHED = PasswordState(retired=True, published=NOW, grace=120.0)


def server(name: str, accepts: str, presents: str, *, two: bool = True) -> ServerAuth:
    auth = Auth(accepts=frozenset(accepts.split()), presents=frozenset(presents.split()), two=two)
    return ServerAuth(target=Target(name=name, address=Address("10.0.0.1", 6379)), auth=auth)


def step(state: PasswordState, *servers: ServerAuth, seconds: float = 0.0) -> PasswordMove | None:
    return next_password(state, servers, now=NOW + timedelta(seconds=seconds))


def names(move: PasswordMove | None) -> list[str]:
    return [one.name for one in move.targets] if move else []


def test_the_declared_one_is_written_down_before_a_server_hears_of_it() -> None:
    declared = replace(SETTLED, differs=True)
    assert isinstance(step(declared, server("a", "password", "password")), StagePassword)
    assert step(SETTLED, server("a", "password", "password")) is None


def test_all_take_both_before_any_presents_the_new_one_and_then_it_is_published() -> None:
    behind, ready = server("a", "password", "password"), server("b", "password next", "password")
    move = step(STAGED, behind, ready)
    assert isinstance(move, AddPassword)
    assert names(move) == ["a"]
    done = server("c", "password next", "next")
    move = step(STAGED, ready, done)
    assert isinstance(move, PresentPassword)
    assert names(move) == ["b"]
    assert isinstance(step(STAGED, done), PublishPassword)


def test_both_stay_valid_for_a_while_then_the_old_one_is_refused_and_forgotten() -> None:
    both = server("a", "password previous", "password")
    assert step(PUBLISHED, both, seconds=119.0) is None
    move = step(PUBLISHED, both, seconds=121.0)
    assert isinstance(move, SetPassword)
    assert isinstance(step(PUBLISHED, server("a", "password", "password"), seconds=121.0), DropPassword)


def test_a_server_that_came_back_with_the_old_file_is_brought_along() -> None:
    move = step(PUBLISHED, server("a", "previous", "previous"), seconds=30.0)
    assert isinstance(move, AddPassword)


@pytest.mark.parametrize(("state", "two"), [(STAGED, False), (replace(STAGED, open=True), True)])
def test_where_two_cannot_be_valid_it_is_switched_everywhere_at_once(state: PasswordState, two: bool) -> None:
    servers = [server(name, "password", "password", two=two) for name in ("a", "b")]
    move = step(state, *servers)
    assert isinstance(move, SwitchPassword)
    assert names(move) == ["a", "b"]
    assert isinstance(step(state, server("a", "next", "next", two=two)), PublishPassword)


def test_a_change_that_is_changed_again_is_finished_first() -> None:
    third = replace(STAGED, differs=True)
    assert isinstance(step(third, server("a", "password next", "next")), PublishPassword)


# --- as a part of the plan ---------------------------------------------------------------------------------


def seen(members: Sequence[Member], state: PasswordState) -> Snapshot:
    """A cluster whose servers all accept and present the password in force alone."""
    found = snapshot(members)
    auth = Auth(accepts=frozenset({"password"}), presents=frozenset({"password"}), two=True)
    nodes = tuple(replace(one, auth=auth if one.server else None) for one in found.seen.nodes)
    return replace(found, seen=Seen(nodes=nodes), password=state)


def test_a_change_begins_at_rest_and_goes_on_while_something_is_waited_for() -> None:
    differs, away = replace(SETTLED, differs=True), change(whole(), 5, silent=True)
    assert isinstance(next_step(seen(whole(), differs)), StagePassword)
    assert isinstance(next_step(seen(away, differs)), Wait)
    move = next_step(seen(away, STAGED))
    assert isinstance(move, AddPassword)
    assert names(move) == ["demo-0", "demo-1", "demo-2", "demo-3", "demo-4"]


def test_a_change_waits_for_every_other_move_and_for_a_cluster_to_be_formed() -> None:
    dying = change(whole(), 0, pod=(("terminating", True),))
    assert isinstance(next_step(seen(dying, STAGED)), Promote)
    new = replace(seen(whole(), STAGED), recorded=Recorded(formed=False))
    assert not isinstance(next_step(new), PasswordMove)
    paused = replace(seen(whole(), STAGED), wanted=Wanted(paused=True))
    assert not isinstance(next_step(paused), PasswordMove)


def test_servers_that_take_no_known_password_are_named_and_left_alone() -> None:
    members = whole()
    for ordinal in range(6):
        members = change(members, ordinal, silent=True)
    silent = snapshot(members)

    def decided(*locked: int) -> Wait:
        nodes = tuple(replace(one, locked=one.pod.ordinal in locked) for one in silent.seen.nodes)
        state = replace(SETTLED, secret="demo-password")
        verdict = next_step(replace(silent, seen=Seen(nodes=nodes), password=state))
        assert isinstance(verdict, Wait)
        return verdict

    assert decided().reason != "PasswordRefused"
    assert (decided(0, 3).reason, decided(0, 3).stalled) == ("PasswordRefused", True)
    assert decided(0, 3).message.startswith(
        "demo-0, demo-3 take no password that the Secret demo-password has"
    )


def test_one_that_takes_no_known_password_is_not_waited_for_while_others_serve() -> None:
    found = snapshot(change(whole(), 5, silent=True))
    nodes = tuple(replace(one, locked=one.server is None) for one in found.seen.nodes)
    verdict = next_step(replace(found, seen=Seen(nodes=nodes), password=SETTLED))
    assert not (isinstance(verdict, Wait) and verdict.reason == "PasswordRefused")
