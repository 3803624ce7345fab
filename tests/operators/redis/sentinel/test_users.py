"""Users of a cluster with sentinels, among everything else there is to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs
from tests.operators.redis.sentinel.builders import Scene, ago, healthy
from tests.operators.redis.sentinel.test_plan import is_a
from tests.operators.redis.users.scene import Scene as Users
from tests.operators.redis.users.scene import Server, declared

from mooring.operators.redis.passwords.moves import PublishPassword
from mooring.operators.redis.passwords.seen import Auth, told_auth
from mooring.operators.redis.sentinel.moves import (
    Follow,
    InSync,
    PresentAccount,
    Record,
    RemoveUsers,
    SetUsers,
    TellSentinels,
    Wait,
)
from mooring.operators.redis.sentinel.types import PasswordChange
from mooring.operators.redis.users.plan import state_of
from mooring.operators.workload.credentials import Kept, PasswordState
from mooring.operators.workload.rollout import SetState

NAMES = ("redis-0", "redis-1", "redis-2")


def with_users(users: Users, scene: Scene | None = None) -> Scene:
    """The servers have these users."""
    scene = scene or healthy()
    for one in users.answering:
        scene = scene.server(one.name, users=one.users)
    return scene.see(users=state_of(users.access, ready=users.ready, grace=60.0))


def users(*, settled: bool = True) -> Users:
    made = Users(users=[declared()], servers={name: Server() for name in NAMES})
    if settled:
        made.settle()
    return made


def test_users_that_are_as_declared_leave_nothing_to_do() -> None:
    is_a(InSync, with_users(users()).decide())


def test_users_are_set_on_every_server_after_its_master_is_right() -> None:
    scene = with_users(users(settled=False))
    move = is_a(SetUsers, scene.decide())
    assert [one.name for one in move.targets] == list(NAMES)
    astray = scene.server("redis-2", master=None, role="slave", link_up=False)
    is_a(Follow, astray.decide())


def test_only_servers_that_lack_something_are_touched() -> None:
    made = users()
    made.servers["redis-1"].users.pop("app")
    move = is_a(SetUsers, with_users(made).decide())
    assert [one.name for one in move.targets] == ["redis-1"]


def test_sentinels_that_take_the_key_of_the_cluster_present_their_account() -> None:
    made = users()
    made.held = structs.replace(made.held, told=False)
    scene = with_users(made, healthy().sentinel("sentinel-1", locked=True))
    move = is_a(TellSentinels, scene.decide())
    assert [one.name for one in move.targets] == ["sentinel-0", "sentinel-2"]


def test_sentinels_of_before_6_0_are_rolled_before_they_are_told() -> None:
    made = users()
    made.held = structs.replace(made.held, told=False)
    old = with_users(made, healthy().sentinel("sentinel-1", version="5.0.6"))
    is_a(InSync, old.decide())
    behind = old.see(sentinel_set=SetState(replicas=3, current=False, asked="later"))
    assert is_a(Record, behind.decide()).rolls is not None


def test_servers_present_the_account_of_replicas_again() -> None:
    made = users()
    made.servers["redis-2"].presents = False
    move = is_a(PresentAccount, with_users(made).decide())
    assert [one.name for one in move.targets] == ["redis-2"]


def test_a_user_that_is_no_longer_declared_goes_from_every_server() -> None:
    made = users()
    made.users = []
    move = is_a(RemoveUsers, with_users(made).decide())
    assert (move.names, len(move.targets)) == (("app",), 3)


def test_an_old_password_is_waited_for_with_its_end() -> None:
    made = users()
    made.texts = {"one": "second"}
    made.settle()
    wait = is_a(Wait, with_users(made).decide())
    assert (wait.reason, wait.after) == ("PasswordChanging", 60.0)
    assert "12:01:00 UTC" in wait.message


def test_users_wait_while_paused() -> None:
    scene = with_users(users(settled=False)).want(paused=True)
    assert is_a(Wait, scene.planned()).reason == "Paused"


def test_a_default_user_that_is_off_takes_no_part_in_a_change_of_the_password() -> None:
    kept = Kept(password="old", next="new")
    answers = (["requirepass", "other"], ["masterauth", "x"])
    off = ["flags", ["off"], "passwords", []]
    assert told_auth(kept, *answers, off, ["masteruser", ""]) is None
    on = ["flags", ["on"], "passwords", []]
    account = told_auth(kept, *answers, on, ["masteruser", "mooring-replica"])
    assert account == Auth(accepts=frozenset(), presents=frozenset({"password", "next"}), two=True)
    scene = with_users(users()).see(password=PasswordState(staged=True))
    for name in NAMES:
        scene = scene.server(name, auth=None)
    began = is_a(Record, scene.decide()).password
    is_a(PublishPassword, scene.record(password=began).decide())


@pytest.mark.parametrize("told", [True, False])
def test_sentinels_that_present_an_account_are_given_no_password(told: bool) -> None:
    auth = Auth(accepts=frozenset({"password", "next"}), presents=frozenset({"next"}), two=True)
    scene = with_users(users()).see(password=PasswordState(staged=True))
    scene = scene.see(users=replace(scene.snapshot.observed.users, told=told))
    for name in NAMES:
        scene = scene.server(name, auth=auth)
    began = PasswordChange(phase="BothValid", since=ago(1))
    move = is_a(PublishPassword, scene.record(password=began).decide())
    assert len(move.sentinels) == (0 if told else 3)
