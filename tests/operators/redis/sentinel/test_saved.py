"""A decision written down decides the same when it is read again."""

from __future__ import annotations

import pytest
from tests.operators.redis.sentinel.builders import ago, healthy
from tests.operators.redis.sentinel.test_roll import failing

from mooring.cli.replay import replay_of, shown
from mooring.operators.redis.passwords.seen import Auth
from mooring.operators.redis.sentinel.plan import decide
from mooring.operators.redis.sentinel.saved import dump, load
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.types import LastFailover
from mooring.operators.workload.saved import NotDecided

SCENES = {
    "healthy": healthy(),
    "dead master": healthy().dead("redis-0").operation("FailOver", "redis-0"),
    "silent": healthy().silent("redis-2", seconds=3),
    "a roll that fails": failing(),
    "with passwords": healthy()
    .server("redis-1", auth=Auth(accepts=frozenset({"password"}), two=True))
    .record(last_failover=LastFailover(at=ago(5))),
}


@pytest.mark.parametrize("name", SCENES)
def test_what_was_saved_is_decided_alike_when_it_is_read_again(name: str) -> None:
    one = SCENES[name].snapshot
    again = load(dump(one))
    assert again == one
    assert decide(again) == SCENES[name].planned()


def told(one: Snapshot) -> list[str]:
    content = dump(one)
    return list(shown(replay_of(content)(content)))


def test_a_replay_shows_what_was_seen_and_what_follows_from_it() -> None:
    lines = told(healthy().dead("redis-0").operation("FailOver", "redis-0").snapshot)
    assert any(line.startswith("  redis-0: no answer") for line in lines)
    assert any("redis-1: follows 10.0.0.1:6379, link up, 10 keys, offset 1000" in line for line in lines)
    assert any(line.startswith("Next step: FailOver") for line in lines)
    assert told(healthy().snapshot)[-1] == "Nothing to do: everything is as declared"


@pytest.mark.parametrize("text", [b"", b"{}", b'{"form": "other"}'])
def test_another_file_is_refused_with_what_to_do(text: bytes) -> None:
    for read in (load, replay_of):
        with pytest.raises(NotDecided, match="mooring why"):
            read(text)
