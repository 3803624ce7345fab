"""A decision that is saved is decided again alike, and holds no password."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.operators.redis.cluster.builders import NOW, Member, change, snapshot, whole
from tests.operators.redis.cluster.test_status import moving

from mooring.operators.redis.cluster.explain import lines
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.saved import dump, load, replay
from mooring.operators.redis.cluster.snapshot import Blocked, Snapshot
from mooring.operators.redis.cluster.types import Retry
from mooring.operators.redis.passwords.seen import Auth
from mooring.operators.workload.credentials import PasswordState
from mooring.operators.workload.saved import NotDecided


def rich() -> Snapshot:
    """With something of everything."""
    members = change(change(whole(), 4, gate="part"), 5, died=True)
    seen = snapshot(members, plan=moving(), missing={"demo-7": NOW})
    auth = Auth(accepts=frozenset({"password"}), two=True)
    nodes = tuple(replace(one, auth=auth if one.server else None) for one in seen.seen.nodes)
    retry = Retry(step="MoveSlots", since=NOW, last=NOW, next=NOW + timedelta(seconds=4), failures=2)
    recorded = replace(seen.recorded, retry=retry, slots={"a": (1 << 16384) - 1})
    return replace(
        seen,
        seen=replace(seen.seen, nodes=nodes),
        recorded=recorded,
        password=PasswordState(staged=True, published=NOW),
        blocked=Blocked(reason="InvalidArgs", message="correct it"),
    )


@pytest.mark.parametrize(
    "seen",
    [
        rich(),
        snapshot(whole(), nodes=8),
        snapshot([Member(ordinal=at) for at in range(6)], formed=False),
        snapshot(change(whole(), 0, silent=True)),
    ],
)
def test_a_snapshot_is_read_as_it_was_written_and_decided_alike(seen: Snapshot) -> None:
    verdict = next_step(seen)  # also works out what is kept beside the fields
    assert load(dump(seen)) == seen
    assert replay(dump(seen)).verdict == verdict


def test_a_replay_says_what_was_seen_of_every_node() -> None:
    said = replay(dump(rich())).seen
    assert said[0] == f"At {NOW.isoformat()}"
    assert "demo-0: master, 10 keys, slots 0-" in said[1]
    assert any("demo-4: waits at its gate, data: part" in one for one in said)
    assert any("demo-5: no answer" in one for one in said)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"form":"mooring/redis-sentinel/1"}', b'{"form":"mooring/redis-cluster/1"}']
)
def test_what_is_no_saved_decision_of_this_operator_is_named(text: bytes) -> None:
    with pytest.raises(NotDecided):
        load(text)


def test_why_says_what_fails_and_what_was_lost() -> None:
    status = {
        "retry": {"step": "Promote", "since": "12:00", "message": "no answer"},
        "lastDataLoss": {"time": "12:01", "message": "all keys"},
    }
    assert list(lines(status)) == ["Promote fails since 12:00: no answer", "Data was lost at 12:01: all keys"]
