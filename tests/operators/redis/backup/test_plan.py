"""What is read of a cluster; without servers."""

from __future__ import annotations

import pytest

from mooring.operators.redis.backup.rdb import head_of
from mooring.operators.redis.backup.reader import Candidate, NotRead, shards_of
from mooring.operators.redis.sentinel.backup import choose
from mooring.operators.redis.sentinel.types import NodeStatus, RedisCluster, RedisClusterStatus

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
    # What the pods take counts, not what is declared by now.
    assert ([one.port for one in source.pods], choose(cluster).authority) == ([6379], "")
    encrypted = choose(cluster, encrypted=["c-1"])
    assert encrypted.source is not None
    assert ([one.port for one in encrypted.source.pods], encrypted.authority) == ([6380], "redis-tls-")
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
