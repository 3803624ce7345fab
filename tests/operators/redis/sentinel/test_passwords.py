"""The life of the password, as decisions: who takes what, in which order, resumed at any point."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from tests.operators.redis.sentinel.builders import Scene, ago, healthy
from tests.operators.redis.sentinel.test_plan import is_a, waits_for

from mooring.operators.redis.passwords.moves import (
    AddPassword,
    PresentPassword,
    PublishPassword,
    SetPassword,
    StagePassword,
    SwitchPassword,
)
from mooring.operators.redis.passwords.seen import Auth, auth_of, unusable
from mooring.operators.redis.sentinel.moves import (
    InSync,
    Record,
    Wait,
)
from mooring.operators.redis.sentinel.types import PasswordChange
from mooring.operators.workload.credentials import Kept, PasswordState

STAGED = PasswordState(staged=True)
BOTH = ("password", "next")


def taking(scene: Scene, *accepts: str, presents: str, two: bool = True, only: str = "") -> Scene:
    """All servers (or one) take these and present that."""
    auth = Auth(accepts=frozenset(accepts), presents=frozenset({presents}), two=two)
    for name in [only] if only else scene.members:
        scene = scene.server(name, auth=auth)
    return scene


def settled(scene: Scene | None = None) -> Scene:
    return taking(scene or healthy(), "password", presents="password")


def names(move: AddPassword | PresentPassword | SetPassword | SwitchPassword) -> list[str]:
    return [target.name for target in move.targets]


# --- two at once (6.0) -----------------------------------------------------------------------------------


def test_a_declared_password_is_written_down_before_any_server_hears_of_it() -> None:
    is_a(StagePassword, settled().see(password=PasswordState(differs=True)).decide())
    is_a(InSync, settled().decide())


def test_every_server_takes_both_before_any_presents_the_new_one() -> None:
    scene = settled().see(password=STAGED)
    move = is_a(AddPassword, scene.decide())
    assert (names(move), set(move.passwords)) == (["redis-0", "redis-1", "redis-2"], set(BOTH))
    one_left = taking(
        taking(scene, *BOTH, presents="password"), "password", presents="password", only="redis-1"
    )
    assert names(is_a(AddPassword, one_left.decide())) == ["redis-1"]


def test_replicas_present_the_new_one_once_all_take_it() -> None:
    scene = taking(healthy(), *BOTH, presents="password").see(password=STAGED)
    move = is_a(PresentPassword, scene.decide())
    assert (move.password, len(move.targets)) == ("next", 3)


def test_the_time_of_two_is_recorded_and_then_the_new_one_is_published() -> None:
    scene = taking(healthy(), *BOTH, presents="next").see(password=STAGED)
    recorded = is_a(Record, scene.decide()).password
    assert recorded is not None
    assert recorded.phase == "BothValid"
    move = is_a(PublishPassword, scene.record(password=recorded).decide())
    assert len(move.sentinels) == 3


def test_a_sentinel_that_does_not_take_the_key_of_the_cluster_holds_up_no_change() -> None:
    scene = taking(healthy().sentinel("sentinel-1", locked=True), *BOTH, presents="next").see(password=STAGED)
    recorded = is_a(Record, scene.decide()).password
    assert recorded is not None
    move = is_a(PublishPassword, scene.record(password=recorded).decide())
    assert [one.name for one in move.sentinels] == ["sentinel-0", "sentinel-2"]


def published(seconds: float) -> Scene:
    scene = taking(healthy(), "password", "previous", presents="password")
    return scene.record(password=PasswordChange(phase="BothValid", since=ago(seconds)))


def test_both_stay_valid_for_a_while_and_a_condition_says_until_when() -> None:
    waiting = waits_for("PasswordChanging", published(10).decide())
    assert 49 < waiting.after <= 50
    assert "12:00:50 UTC" in waiting.message


def test_a_server_that_restarts_in_that_time_takes_both_again() -> None:
    late = taking(published(10), "previous", presents="previous", only="redis-2")
    assert names(is_a(AddPassword, late.decide())) == ["redis-2"]
    late = taking(published(10), "password", "previous", presents="previous", only="redis-2")
    assert names(is_a(PresentPassword, late.decide())) == ["redis-2"]


def test_then_the_old_one_is_dropped_everywhere() -> None:
    over = published(61)
    assert is_a(Record, over.decide()).password == PasswordChange()
    move = is_a(SetPassword, over.record(password=None).decide())
    assert len(move.targets) == len(move.sentinels) == 3


@pytest.mark.parametrize(("accepts", "presents"), [(("previous",), "previous"), (("password",), "previous")])
def test_a_server_that_comes_back_late_with_the_old_one_is_brought_up_to_date(
    accepts: tuple[str, ...], presents: str
) -> None:
    scene = taking(settled(), *accepts, presents=presents, only="redis-2")
    assert names(is_a(SetPassword, scene.decide())) == ["redis-2"]


def test_a_paused_cluster_announces_no_switch() -> None:
    scene = taking(healthy(paused=True), "password", presents="password", two=False).see(password=STAGED)
    assert is_a(Wait, scene.planned()).reason == "Paused"


def test_the_next_change_begins_after_the_last_has_ended() -> None:
    waits_for("PasswordChanging", published(10).see(password=PasswordState(differs=True)).decide())


# --- a switch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("two", "state"),
    [(False, STAGED), (True, PasswordState(staged=True, open=True))],
    ids=["before-6.0", "from-or-to-none"],
)
def test_where_two_cannot_be_valid_the_switch_is_announced_and_made_at_once(
    two: bool, state: PasswordState
) -> None:
    scene = taking(healthy(), "password", presents="password", two=two).see(password=state)
    recorded = is_a(Record, scene.decide()).password
    assert recorded is not None
    assert recorded.phase == "Announced"
    announced = scene.record(password=recorded)
    assert "new connections need the declared one" in waits_for("PasswordSwitch", announced.decide()).message
    due = scene.record(password=PasswordChange(phase="Announced", since=ago(10)))
    assert len(is_a(SwitchPassword, due.decide()).targets) == 3
    half = taking(due, "next", presents="next", two=two, only="redis-0")
    assert names(is_a(SwitchPassword, half.decide())) == ["redis-1", "redis-2"]
    done = taking(due, "next", presents="next", two=two)
    is_a(PublishPassword, done.decide())
    over = taking(due, "password", presents="password", two=two).see(password=PasswordState())
    assert is_a(Record, over.decide()).password == PasswordChange()


# --- what servers say ------------------------------------------------------------------------------------


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_a_server_takes_is_read_from_its_users_where_there_are_some() -> None:
    kept = Kept(password="new", previous="old")
    user = {"flags": ["on", "allkeys"], "passwords": [hashed("old"), hashed("somebody's")]}
    seen = auth_of(kept, requirepass="new", masterauth="new", user=user)
    assert (set(seen.accepts), set(seen.presents), seen.two) == ({"previous"}, {"password"}, True)
    nobody = auth_of(Kept(), requirepass="", masterauth="", user={"flags": ["on", "nopass"], "passwords": []})
    assert nobody.accepts == nobody.presents == {"password"}


def test_before_users_it_is_the_one_that_is_required() -> None:
    seen = auth_of(Kept(password="old", next="new"), requirepass="new", masterauth="old", user=None)
    assert (set(seen.accepts), set(seen.presents), seen.two) == ({"next"}, {"password"}, False)


def test_neither_the_passwords_nor_a_hash_of_one_are_shown() -> None:
    kept = Kept(password="first-word", next="second-word", previous="third-word")
    user = {"flags": ["on"], "passwords": [hashed("first-word")]}
    seen = auth_of(kept, requirepass="first-word", masterauth="first-word", user=user)
    shown = repr(kept) + repr(seen)
    for text in kept.keys:
        assert text not in shown
        assert hashed(text)[:12] not in shown


def test_a_server_is_tried_with_the_one_in_force_first() -> None:
    assert Kept(password="b", next="c", previous="a").keys == ("b", "c", "a")
    assert Kept(password="", next="c").keys == ("c",)


def test_a_password_redis_cannot_take_is_said_so() -> None:
    assert unusable('a "b" \\ c ö') == ""
    assert "control character" in unusable("two\nlines")
    assert "511" in unusable("x" * 512)


def test_what_an_old_server_presents_in_quotes_is_known_again() -> None:
    kept = Kept(password='two "words"')
    seen = auth_of(kept, requirepass=kept.password, masterauth='"two \\"words\\""', user=None)
    assert seen.presents == {"password"}


def test_servers_that_take_no_known_password_are_named_and_left_alone() -> None:
    scene = healthy().silent("redis-0", "redis-1", "redis-2", seconds=100.0)
    waits_for("MasterUnreachable", scene.decide())
    for name in ("redis-0", "redis-2"):
        scene = scene.member(name, replace(scene.members[name], locked=True))
    scene = scene.see(password=PasswordState(secret="redis-password-demo"))
    verdict = waits_for("PasswordRefused", scene.decide())
    assert verdict.stalled
    assert verdict.message.startswith(
        "redis-0, redis-2 take no password that the Secret redis-password-demo has"
    )


def test_one_that_takes_no_known_password_is_not_waited_for_while_others_serve() -> None:
    scene = settled().silent("redis-1")
    scene = scene.member("redis-1", replace(scene.members["redis-1"], locked=True))
    assert not (isinstance(verdict := scene.decide(), Wait) and verdict.reason == "PasswordRefused")
