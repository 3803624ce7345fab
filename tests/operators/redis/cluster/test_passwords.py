"""A change of the password, step by step, as far as the servers are with it."""

from __future__ import annotations

import pytest

from mooring.operators.redis.cluster import passwords
from mooring.operators.redis.cluster.passwords import Keyed, PasswordMove, next_password
from mooring.operators.redis.dial import Address
from mooring.operators.redis.passwords import Auth
from mooring.operators.workload.credentials import Kept

SETTLED = Kept(password="old")
STAGED = Kept(password="old", next="new")
PUBLISHED = Kept(password="new", previous="old")


def server(name: str, accepts: str, presents: str, *, two: bool = True) -> Keyed:
    auth = Auth(accepts=frozenset(accepts.split()), presents=frozenset(presents.split()), two=two)
    return Keyed(name=name, address=Address("10.0.0.1", 6379), auth=auth)


def step(kept: Kept, *servers: Keyed, declared: str = "new", seconds: float = 0.0) -> PasswordMove | None:
    return next_password(kept, declared=declared, servers=servers, seconds=seconds, grace=120.0)


def names(move: PasswordMove | None) -> list[str]:
    return [one.name for one in move.targets] if move else []


def test_the_declared_one_is_written_down_before_a_server_hears_of_it() -> None:
    assert isinstance(step(SETTLED, server("a", "password", "password")), passwords.Stage)
    assert step(SETTLED, server("a", "password", "password"), declared="old") is None


def test_all_take_both_before_any_presents_the_new_one_and_then_it_is_published() -> None:
    behind, ready = server("a", "password", "password"), server("b", "password next", "password")
    move = step(STAGED, behind, ready)
    assert isinstance(move, passwords.Add)
    assert names(move) == ["a"]
    done = server("c", "password next", "next")
    move = step(STAGED, ready, done)
    assert isinstance(move, passwords.Present)
    assert names(move) == ["b"]
    assert isinstance(step(STAGED, done), passwords.Publish)


def test_both_stay_valid_for_a_while_then_the_old_one_is_refused_and_forgotten() -> None:
    both = server("a", "password previous", "password")
    assert step(PUBLISHED, both, seconds=119.0) is None
    move = step(PUBLISHED, both, seconds=121.0)
    assert isinstance(move, passwords.Only)
    assert isinstance(step(PUBLISHED, server("a", "password", "password"), seconds=121.0), passwords.Drop)


def test_a_server_that_came_back_with_the_old_file_is_brought_along() -> None:
    move = step(PUBLISHED, server("a", "previous", "previous"), seconds=30.0)
    assert isinstance(move, passwords.Add)


@pytest.mark.parametrize(
    ("kept", "two"),
    [(STAGED, False), (Kept(password="", next="new"), True), (Kept(password="old", next=""), True)],
)
def test_where_two_cannot_be_valid_it_is_switched_everywhere_at_once(kept: Kept, two: bool) -> None:
    servers = [server(name, "password", "password", two=two) for name in ("a", "b")]
    move = step(kept, *servers)
    assert isinstance(move, passwords.Switch)
    assert names(move) == ["a", "b"]
    assert isinstance(step(kept, server("a", "next", "next", two=two)), passwords.Publish)


def test_a_change_that_is_changed_again_is_finished_first() -> None:
    assert isinstance(step(STAGED, server("a", "password next", "next"), declared="third"), passwords.Publish)


def test_no_password_is_shown() -> None:
    assert "new" not in repr(STAGED)
    assert "old" not in repr(step(STAGED, server("a", "password", "password")))
