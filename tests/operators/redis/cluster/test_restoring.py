"""When a new cluster gets the keys of a backup; without servers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.operators.redis.cluster.builders import NOW, change, snapshot, whole

from mooring.actor import InSync, Wait
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.restore_rules import Restore, Seen, Settle
from mooring.operators.backup.types import RestoreStatus
from mooring.operators.redis.cluster.moves import Promote, Resize
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.restore import unfit
from mooring.operators.redis.cluster.restoring import recorded
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.status import phase_of
from mooring.operators.redis.cluster.types import RedisClusterSpec, RedisClusterStatus
from mooring.operators.redis.users.types import DefaultUserSpec


def restoring(
    members: Any = None, *, run: str = "", held: Wait | None = None, again: bool = False, **status: Any
) -> Snapshot:
    """A cluster that begins with a backup; ``run`` is the state of its Job."""
    empty = [replace(one, keys=0) for one in whole()] if members is None else members
    known = RestoreStatus(**{"phase": "Pending", "prefix": "c/backups/i", **status})
    job = (
        Outcome(job="j", purpose="restore", state=run, message="cut", again=again, ended=NOW) if run else None
    )
    seen = Seen(status=known, run=job, now=NOW)
    return replace(snapshot(empty), restore=seen, restore_held=held)


def test_the_first_try_begins_once_every_slot_of_an_empty_cluster_has_an_owner() -> None:
    move = next_step(restoring())
    assert isinstance(move, Restore)
    status = recorded(RedisClusterStatus(), restoring(), move, job="j-1").restore
    assert status is not None
    assert (status.phase, status.tries, status.job, status.started_at) == ("Running", 1, "j-1", NOW)
    unfounded = replace(restoring(), recorded=replace(restoring().recorded, formed=False))
    assert not isinstance(next_step(unfounded), Restore)
    one_down = restoring(change([replace(one, keys=0) for one in whole()], 1, silent=True))
    assert not isinstance(next_step(one_down), Restore)


def test_nothing_is_restored_onto_keys_but_those_of_an_earlier_try() -> None:
    waits = next_step(restoring(whole()))
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.stalled) == ("DataInTheWay", True)
    again = next_step(restoring(whole(), tries=1, finished_at=NOW - timedelta(minutes=1)))
    assert isinstance(again, Restore)
    assert again.attempt == 2


def test_a_pair_and_a_default_user_that_is_closed_cannot_begin_with_a_backup() -> None:
    assert "6 replicas or more" in unfit(RedisClusterSpec(replicas=2))
    closed = unfit(RedisClusterSpec(replicas=6, default_user=DefaultUserSpec(mode="Off")))
    assert closed.startswith("spec.defaultUser: ")
    assert "set Off again" in closed
    for mode in (None, "Unchanged"):
        assert unfit(RedisClusterSpec(replicas=6, default_user=DefaultUserSpec(mode=mode))) == ""


def test_a_backup_that_is_not_there_holds_back_a_try_and_not_the_judgement_of_one() -> None:
    held = Wait("BackupNotFound", "there is no RedisBackup nightly", stalled=True)
    assert next_step(restoring(held=held)) is held
    done = next_step(restoring(held=held, phase="Running", tries=1, run="Succeeded"))
    assert isinstance(done, Settle)
    assert done.status.phase == "Succeeded"


def test_while_keys_come_shards_are_healed_and_the_cluster_keeps_its_size() -> None:
    under_way = restoring(phase="Running", tries=1, run="Running")
    assert isinstance(next_step(under_way), Wait)
    larger = replace(under_way, wanted=replace(under_way.wanted, nodes=8))
    assert not isinstance(next_step(larger), Resize)
    assert isinstance(next_step(replace(larger, restore=None)), Resize)
    dead = restoring(change(whole(), 0, died=True), phase="Running", tries=1, run="Running")
    assert isinstance(next_step(dead), Promote)


@pytest.mark.parametrize(
    ("how", "phase", "reason"),
    [
        ({"phase": "Running", "tries": 1, "run": "Running"}, "Restoring", "Restoring"),
        ({"phase": "Failed", "message": "keys in database 3"}, "Failed", "RestoreFailed"),
    ],
)
def test_the_phase_says_that_keys_are_missing(how: dict[str, Any], phase: str, reason: str) -> None:
    looked = restoring(**how)
    status = phase_of(RedisClusterStatus(phase="Creating"), looked, next_step(looked))
    assert (status.phase, status.reason_type) == (phase, reason)


def test_a_cluster_with_its_keys_is_at_rest() -> None:
    assert isinstance(next_step(snapshot(whole())), InSync)
