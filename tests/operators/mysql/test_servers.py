"""How long a server is listened to that did not answer in time."""

from __future__ import annotations

from mooring.kube.object import Key
from mooring.operators.mysql.servers import IMPATIENT, Silent

DEMO = Key("default", "demo")


def test_a_server_that_is_only_slow_is_given_its_whole_time_again() -> None:
    now = 0.0
    silent = Silent(monotonic=lambda: now)
    silent.note(DEMO, ["demo-1"])
    assert silent.of(DEMO) == {"demo-1"}

    for _ in range(20):  # passes with less time, all in vain
        silent.note(DEMO, ["demo-1"], hurried=silent.of(DEMO))
        now += IMPATIENT / 20

    assert silent.of(DEMO) == frozenset()
    silent.note(DEMO, ["demo-1"])
    assert silent.of(DEMO) == {"demo-1"}  # that was in vain too


def test_a_server_that_answered_and_one_of_another_cluster_are_not_hurried() -> None:
    silent = Silent(monotonic=lambda: 0.0)
    silent.note(DEMO, ["demo-1"])

    assert silent.of(Key("other", "demo")) == frozenset()
    silent.note(DEMO, [])
    assert silent.of(DEMO) == frozenset()
