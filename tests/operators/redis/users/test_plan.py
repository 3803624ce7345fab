"""Users as decisions: what comes first, what waits, what goes back, and what stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.operators.redis.users.scene import ACCOUNTS, OFF, Line, Scene, Server, declared, hashes

from mooring.operators.redis.users.accounts import BACKUP, DEFAULT, REPLICA
from mooring.operators.redis.users.held import Held, first
from mooring.operators.redis.users.moves import (
    PresentAccount,
    RemoveUsers,
    SetUsers,
    TellSentinels,
    UsersMove,
)
from mooring.operators.redis.users.plan import state_of, tried
from mooring.operators.redis.users.status import other_users, refusals, results
from mooring.operators.redis.users.types import DefaultUserSpec, UserSecret


def kinds(moves: list[UsersMove]) -> list[type[UsersMove]]:
    return [type(one) for one in moves]


def set_users(move: UsersMove | None) -> list[str]:
    assert isinstance(move, SetUsers), move
    return [one.name for one in move.users]


def settled(**how: object) -> Scene:
    scene = Scene(users=[declared()], **how)  # type: ignore[arg-type]
    scene.settle()
    return scene


def test_accounts_and_users_come_first_and_the_default_user_is_closed_last() -> None:
    scene = Scene(users=[declared()], default=OFF)
    moves = scene.settle()
    assert kinds(moves) == [SetUsers, PresentAccount, TellSentinels, SetUsers]
    assert set_users(moves[0]) == [*ACCOUNTS, "app"]
    assert set_users(moves[-1]) == [DEFAULT]
    assert [one.users[DEFAULT].on for one in scene.servers.values()] == [False, False]
    assert scene.decide() is None


def test_nothing_is_done_where_nothing_is_declared_and_nothing_ever_was() -> None:
    scene = Scene()
    assert scene.access.managed  # accounts were made once
    assert kinds(scene.settle()) == [SetUsers, PresentAccount, TellSentinels]
    assert scene.servers["a"].users[DEFAULT].on


@pytest.mark.parametrize("why", ["a pod would start open", "a password is being changed", "one is older"])
def test_the_default_user_stays_until_it_can_be_closed(why: str) -> None:
    scene = Scene(users=[declared()], default=OFF)
    scene.ready = why != "a pod would start open"
    scene.calm = why != "a password is being changed"
    if why == "one is older":
        scene.servers["c"] = Server(version="5.0.6")
    scene.settle()
    assert scene.servers["a"].users[DEFAULT].on
    assert "app" in scene.servers["a"].users
    scene.ready = scene.calm = True
    scene.servers.pop("c", None)
    assert DEFAULT in set_users(scene.settle()[-1])


def test_servers_of_before_6_0_are_left_alone() -> None:
    scene = Scene(users=[declared()], servers={"a": Server(version="5.0.6")})
    assert scene.decide() is None
    state = state_of(scene.access, ready=True, grace=60.0)
    result = (results(None, state, scene.answering, now=scene.now) or {})["app"]
    assert (result.state, result.message) == (
        "Pending",
        "spec.users[0]: a runs Redis 5.0.6; users need 6.0 or later",
    )


def turned_off(line: Line) -> None:
    line.on = False


def more_rights(line: Line) -> None:
    line.rules = ("~*", "&*", "+@all")


def one_more_password(line: Line) -> None:
    line.hashes = (*line.hashes, *hashes("by-hand"))


def no_password(line: Line) -> None:
    line.hashes = ()


def opened(line: Line) -> None:
    line.nopass = True


BY_HAND = (turned_off, more_rights, one_more_password, no_password, opened)


@pytest.mark.parametrize("change", [None, *BY_HAND])
@pytest.mark.parametrize("name", ["app", BACKUP])
def test_what_was_changed_by_hand_goes_back_on_that_server_alone(
    name: str, change: Callable[[Line], None] | None
) -> None:
    scene = settled()
    right = scene.servers["a"].users[name]
    if change is None:
        del scene.servers["b"].users[name]
    else:
        line = replace(right)
        change(line)
        scene.servers["b"].users[name] = line
    move = scene.decide()
    assert set_users(move) == [name]
    assert move is not None
    assert move.targets == ("b",)
    scene.settle()
    assert scene.servers["b"].users[name] == right


def test_a_server_that_presents_another_account_presents_the_right_one_again() -> None:
    scene = settled()
    scene.servers["b"].presents = False
    move = scene.decide()
    assert isinstance(move, PresentAccount)
    assert move.targets == ("b",)


def test_a_new_password_is_added_first_and_the_old_one_ends_after_the_grace() -> None:
    scene = settled()
    scene.texts = {"one": "second"}
    assert kinds(scene.settle()) == [SetUsers]
    assert scene.takes("app") == [hashes("first", "second")] * 2
    scene.later(59)
    assert scene.decide() is None
    scene.later(1)
    move = scene.settle()
    assert kinds(move) == [SetUsers]
    assert scene.takes("app") == [hashes("second")] * 2
    assert scene.decide() is None


def test_a_password_that_changes_twice_keeps_all_that_were_valid_until_the_grace_of_the_last_is_over() -> (
    None
):
    scene = settled()
    for text in ("second", "third"):
        scene.texts = {"one": text}
        scene.settle()
        scene.later(40)
    assert scene.takes("app") == [hashes("first", "second", "third")] * 2
    scene.later(20)
    scene.settle()
    assert scene.takes("app") == [hashes("third")] * 2


def test_a_server_that_comes_back_with_an_old_password_loses_it_at_once() -> None:
    scene = settled()
    scene.texts = {"one": "second"}
    scene.settle()
    scene.later(60)
    scene.settle()
    scene.servers["b"].users["app"].hashes = tuple(hashes("first"))
    scene.settle()
    assert scene.takes("app") == [hashes("second")] * 2


def test_each_of_several_passwords_is_valid() -> None:
    refs = [UserSecret(name="given", key="one"), UserSecret(name="given", key="two")]
    scene = Scene(users=[declared(password_secrets=refs)], texts={"one": "a", "two": "b"})
    scene.settle()
    assert scene.takes("app") == [hashes("a", "b")] * 2


def test_a_user_whose_secret_is_missing_keeps_what_it_has_and_is_reported() -> None:
    scene = settled()
    scene.texts = {}
    assert scene.decide() is None
    del scene.servers["b"].users["app"]
    scene.settle()
    assert scene.takes("app") == [hashes("first")] * 2
    state = state_of(scene.access, ready=True, grace=60.0)
    result = (results(None, state, scene.answering, now=scene.now) or {})["app"]
    assert result.state == "SecretMissing"
    assert result.message == (
        "spec.users[0].passwordSecrets[0]: Secret given with a key one does not exist; create it"
    )


def test_a_new_user_whose_secret_is_missing_holds_up_no_other() -> None:
    scene = Scene(users=[declared("late", key="nowhere"), declared()])
    scene.settle()
    assert "app" in scene.servers["a"].users
    assert "late" not in scene.servers["a"].users


def test_rules_that_servers_refuse_leave_the_user_as_it_was_until_they_change() -> None:
    scene = settled()
    scene.users = [declared("app", "+@nosuch"), declared("other")]
    move = scene.decide()
    assert set_users(move) == ["app", "other"]
    assert move is not None
    done = scene.carry_out(move, refusing=lambda name: "ERR no such category" if name == "app" else "")
    said = refusals(None, move, done, servers=scene.answering, now=scene.now) or {}
    assert (said["app"].state, said["app"].message) == (
        "Refused",
        "spec.users[0].rules: no such category; correct it",
    )
    scene.refused = {"app": said["app"].refused or ""}
    assert scene.decide() is None
    as_before = scene.servers["a"].users["app"]
    assert as_before.rules == ("~*", "+@read")
    scene.servers["b"].users["app"] = replace(as_before, rules=("+@all",))
    scene.settle()
    assert scene.servers["b"].users["app"] == as_before
    state = state_of(scene.access, ready=True, grace=60.0)
    assert (results(said, state, scene.answering, now=scene.now) or {})["app"] == said["app"]
    scene.users = [declared("app", "+get"), declared("other")]
    assert set_users(scene.decide()) == ["app"]


def test_a_user_that_one_server_took_and_another_refused_goes_when_it_is_no_longer_declared() -> None:
    scene = settled()
    scene.users = [declared(), declared("later", "%R~a")]
    move = scene.decide()
    assert move is not None
    done = scene.carry_out(move, refusing=lambda name: "ERR Syntax error" if name == "later" else "")
    said = refusals(None, move, done, servers=scene.answering, now=scene.now) or {}
    scene.refused = {"later": said["later"].refused or ""}
    scene.servers["a"].users["later"] = Line(hashes=tuple(hashes("first")), rules=("%R~a",))
    assert scene.decide() is None
    scene.users = [declared()]
    assert kinds(scene.settle()) == [RemoveUsers]
    assert "later" not in scene.servers["a"].users


def test_a_refusal_is_tried_again_by_servers_of_another_version() -> None:
    scene = Scene(users=[declared("app", "%R~a")])
    user = scene.access.wanted[-1]
    scene.refused = {"app": tried(user, ["7.0.15"])}
    scene.settle()
    assert "app" not in scene.servers["a"].users
    for one in scene.servers.values():
        one.version = "7.2.4"
    assert "app" in set_users(scene.decide())


def test_who_is_no_longer_declared_goes_everywhere_and_again_where_it_comes_back() -> None:
    scene = settled()
    scene.users = []
    moves = scene.settle()
    assert kinds(moves) == [RemoveUsers]
    assert "app" not in scene.servers["a"].users
    scene.servers["b"].users["app"] = Line(rules=("+@all",))
    assert kinds(scene.settle()) == [RemoveUsers]
    scene.users = [declared()]
    assert kinds(scene.settle()) == [SetUsers]
    assert scene.held.removed == ()


def test_users_that_nobody_declared_are_left_alone_and_named() -> None:
    scene = settled()
    scene.servers["b"].users["stranger"] = Line(rules=("+@all",))
    assert scene.decide() is None
    state = state_of(scene.access, ready=True, grace=60.0)
    assert other_users(state, scene.answering) == ["stranger"]


def test_a_restricted_default_user_is_held_and_opened_again_when_that_is_taken_back() -> None:
    scene = settled(default=DefaultUserSpec(mode="Restricted", rules=["~a", "+get"]))
    scene.servers["b"].users[DEFAULT].rules = ("~*", "+@all")
    assert set_users(scene.decide()) == [DEFAULT]
    scene.settle()
    assert scene.servers["b"].users[DEFAULT].rules == ("~a", "+get")
    scene.default = None
    assert kinds(scene.settle()) == [SetUsers]
    assert scene.servers["a"].users[DEFAULT].rules == ("~*", "&*", "+@all")
    scene.servers["a"].users[DEFAULT].rules = ("+get",)
    assert scene.decide() is None


def test_the_rules_of_another_version_are_set_and_read_again_once() -> None:
    scene = settled()
    scene.servers["b"].version = "7.2.4"
    move = scene.decide()
    assert move is not None
    assert move.targets == ("b",)
    assert kinds(scene.settle()) == [SetUsers]
    assert set(scene.held.users["app"].shown) == {"7.0.15", "7.2.4"}


def test_a_new_cluster_begins_closed_where_the_default_user_is_not_as_ever() -> None:
    scene = Scene(users=[declared()], default=OFF)
    held = first(scene.access.wanted)
    assert not held.users[DEFAULT].enabled
    assert (held.presents, held.told) == (True, True)
    assert first(Scene(users=[declared()]).access.wanted) == Held(presents=True, told=True)


def test_replicas_present_their_account_only_once_every_server_knows_it() -> None:
    scene = Scene(users=[declared()])
    scene.servers["b"].users[REPLICA] = Line(rules=("+ping",))
    assert REPLICA in set_users(scene.decide())
