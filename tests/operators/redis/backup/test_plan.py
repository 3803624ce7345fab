"""What is read of a cluster, and what a restore does next; without servers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mooring.actor import Wait
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.types import RestoreStatus
from mooring.operators.redis.backup.rdb import head_of
from mooring.operators.redis.backup.reader import Candidate, NotRead, shards_of
from mooring.operators.redis.sentinel.backup import choose
from mooring.operators.redis.sentinel.restore import Restore, Seen, Settle, decide
from mooring.operators.redis.sentinel.types import NodeStatus, RedisCluster, RedisClusterStatus

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PODS = [Candidate(pod=f"c-{at}", ip=f"10.0.0.{at}") for at in range(4)]


def node(at: int, flags: str, master: str, *slots: str) -> str:
    head = f"id{at} 10.0.0.{at}:6379@16379 {flags} {master} 0 0 1 connected"
    return " ".join([head, *slots])


def test_each_shard_is_read_from_its_replica_first_and_from_its_master_last() -> None:
    text = "\n".join(
        [
            node(0, "myself,master", "-", "8192-16383"),
            node(1, "master", "-", "0-8000", "8001-8191"),
            node(2, "slave", "id0"),
            node(3, "slave,fail", "id1"),
        ]
    )
    shards = shards_of(text, PODS)
    assert [one.slots for one in shards] == ["0-8000,8001-8191", "8192-16383"]
    assert [[pod.pod for pod in one.candidates] for one in shards] == [["c-1"], ["c-2", "c-0"]]


@pytest.mark.parametrize(
    ("slots", "why"),
    [(("0-16382",), "not every slot has an owner"), (("0-16383", "[5->-id2]"), "slots are moving")],
)
def test_a_cluster_that_is_not_whole_gives_no_backup(slots: tuple[str, ...], why: str) -> None:
    with pytest.raises(NotRead, match=why):
        shards_of(node(0, "master", "-", *slots), PODS)


def test_a_master_and_a_replica_that_is_not_in_sync_are_never_read_of_a_cluster_with_sentinels() -> None:
    nodes = [
        NodeStatus(name="c-0", role="master", state="Online", ip="10.0.0.1"),
        NodeStatus(name="c-1", role="replica", state="Online", ip="10.0.0.2"),
        NodeStatus(name="c-2", role="replica", state="Synchronising", ip="10.0.0.3"),
    ]
    cluster = RedisCluster(status=RedisClusterStatus(nodes=nodes, replicas=["c-1", "c-2"]))
    source = choose(cluster).source
    assert source is not None
    assert [one.pod for one in source.pods] == ["c-1"]
    alone = RedisCluster(status=RedisClusterStatus(nodes=nodes[:1], replicas=[]))
    assert "no replica is in sync" in choose(alone).why


def test_a_head_that_is_cut_or_of_something_else_is_no_rdb_file() -> None:
    assert head_of(b"") is None
    assert head_of(b"+FULLRESYNC") is None
    cut = head_of(b"REDIS0010\xfa\x09redis-ver\x05")
    assert cut is not None
    assert (cut.format, cut.first) == (10, None)
    whole = head_of(b"REDIS0009\xfa\x09redis-ver\x055.0.6\xfe\x03\xfb\x41\x00\x02")
    assert whole is not None
    assert (whole.aux, whole.first) == ({"redis-ver": "5.0.6"}, (3, 256))


def restore(phase: str | None = None, *, tries: int = 1, ago: float = 0.0) -> RestoreStatus:
    at = NOW - timedelta(seconds=ago)
    return RestoreStatus(phase=phase, prefix="c/backups/i", tries=tries, started_at=at, finished_at=None)


def run(state: str, *, again: bool = False) -> Outcome:
    return Outcome(job="j", purpose="restore", state=state, message="cut", again=again, ended=NOW)


def test_a_restore_is_begun_once_and_its_job_is_made_again_only_while_it_may_be_on_its_way() -> None:
    first = decide(Seen(status=RestoreStatus(), run=None, now=NOW))
    assert isinstance(first, Restore)
    assert first.attempt == 1
    again = decide(Seen(status=restore("Running"), run=None, now=NOW))
    assert isinstance(again, Restore)
    assert again.attempt == 1
    lost = decide(Seen(status=restore("Running", ago=60), run=None, now=NOW))
    assert isinstance(lost, Settle)
    assert (lost.status.phase, lost.status.tries) == ("Pending", 1)


def test_a_restore_that_failed_for_good_is_never_taken_for_data() -> None:
    failed = decide(Seen(status=restore("Running"), run=run("Failed"), now=NOW))
    assert isinstance(failed, Settle)
    assert failed.status.phase == "Failed"
    waits = decide(Seen(status=failed.status, run=None, now=NOW))
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.stalled) == ("RestoreFailed", True)
    third = decide(Seen(status=restore("Running", tries=3), run=run("Failed", again=True), now=NOW))
    assert isinstance(third, Settle)
    assert third.status.phase == "Failed"


def test_a_failure_that_may_pass_is_tried_again_after_a_pause() -> None:
    failed = decide(Seen(status=restore("Running"), run=run("Failed", again=True), now=NOW))
    assert isinstance(failed, Settle)
    assert failed.status.phase == "Pending"
    early = decide(Seen(status=failed.status, run=None, now=NOW + timedelta(seconds=5)))
    assert isinstance(early, Wait)
    later = decide(Seen(status=failed.status, run=None, now=NOW + timedelta(seconds=11)))
    assert isinstance(later, Restore)
    assert later.attempt == 2
