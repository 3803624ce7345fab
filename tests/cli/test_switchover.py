"""mooring switchover: who hands over, and what is refused. The change itself is tested with real servers elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mooring.cli.listing import show, table
from mooring.cli.switchover import _leader
from mooring.operators.mysql.handover import ask, primary
from mooring.operators.redis.handover import evict, masters, sentinel_master
from mooring.operators.registry import OPERATORS

MYSQL = {
    "apiVersion": "mysql.mooring.dev/v1alpha1",
    "metadata": {"name": "demo", "namespace": "team"},
    "status": {"primary": "demo-0", "ackSet": ["demo-0", "demo-2"]},
}


class Noted:
    """What a client would be asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, *, body: bytes, **_: object) -> None:
        self.asked.append((method, path, json.loads(body)))


def test_the_leader_is_chosen_only_where_one_leads() -> None:
    assert _leader(["a"], "") == "a"
    assert _leader(["a", "b"], "b") == "b"
    for leaders, wanted, said in (
        ([], "", "no server leads"),
        (["a", "b"], "", "several lead"),
        (["a"], "c", "does not lead"),
    ):
        with pytest.raises(ValueError, match=said):
            _leader(leaders, wanted)


def test_who_leads_is_read_from_the_status_of_each_kind() -> None:
    assert primary(MYSQL) == ["demo-0"]
    assert primary({"metadata": {}}) == []
    assert sentinel_master({"status": {"master": "m"}}) == ["m"]
    nodes = [
        {"name": "b", "type": "master", "slots": "0-9"},
        {"name": "a", "type": "slave"},
        {"name": "c", "type": "master", "slots": ""},
    ]
    assert masters({"status": {"conditions": nodes}}) == ["b"]


async def test_mysql_is_asked_by_annotation_for_a_replica_that_acknowledges() -> None:
    client: Any = Noted()
    await ask(client, MYSQL, "demo-0", "")
    path = "/apis/mysql.mooring.dev/v1alpha1/namespaces/team/mysqlclusters/demo"
    wanted = {"metadata": {"annotations": {"mysql.mooring.dev/switch-to": "demo-2"}}}
    assert client.asked == [("PATCH", path, wanted)]
    with pytest.raises(ValueError, match="leads already"):
        await ask(client, MYSQL, "demo-0", "demo-0")
    known = [{"name": f"demo-{number}"} for number in range(3)]
    listed = {**MYSQL, "status": {"primary": "demo-0", "instances": known}}
    with pytest.raises(ValueError, match="there is no replica demo-9; give one of: demo-1, demo-2"):
        await ask(client, listed, "demo-0", "demo-9")
    assert len(client.asked) == 1
    alone = {**MYSQL, "status": {"primary": "demo-0", "ackSet": ["demo-0"]}}
    with pytest.raises(ValueError, match="no replica is in sync"):
        await ask(client, alone, "demo-0", "")


async def test_redis_is_asked_by_an_eviction_and_chooses_the_heir_itself() -> None:
    client: Any = Noted()
    raw = {
        "metadata": {"name": "demo", "namespace": "team"},
        "status": {"replicas": ["redis-cluster-demo-1"]},
    }
    await evict(client, raw, "redis-cluster-demo-0", "")
    ((method, path, body),) = client.asked
    assert (method, path) == ("POST", "/api/v1/namespaces/team/pods/redis-cluster-demo-0/eviction")
    assert body["kind"] == "Eviction"
    with pytest.raises(ValueError, match="--to"):
        await evict(client, raw, "redis-cluster-demo-0", "redis-cluster-demo-1")


@pytest.mark.parametrize("status", [{}, {"replicas": []}, {"conditions": [{"reason": "Running"}]}])
async def test_redis_is_not_asked_without_a_replica_in_sync(status: dict[str, Any]) -> None:
    client: Any = Noted()
    with pytest.raises(ValueError, match="no replica is in sync"):
        await evict(
            client, {"metadata": {"name": "demo", "namespace": "team"}, "status": status}, "demo-0", ""
        )
    assert client.asked == []


async def test_a_shard_hands_over_only_to_a_replica_of_its_own() -> None:
    client: Any = Noted()
    nodes = [
        {"name": "demo-0", "type": "master", "nodeId": "a", "masterNodeId": "a", "status": "True"},
        {"name": "demo-1", "type": "master", "nodeId": "b", "masterNodeId": "b", "status": "True"},
        {"name": "demo-2", "type": "slave", "nodeId": "c", "masterNodeId": "a", "status": "True"},
        {"name": "demo-3", "type": "slave", "nodeId": "d", "masterNodeId": "b", "status": "False"},
    ]
    # A Redis Cluster counts its ready pods in ``replicas``.
    raw = {"metadata": {"name": "demo", "namespace": "team"}, "status": {"replicas": 4, "conditions": nodes}}
    await evict(client, raw, "demo-0", "")
    assert len(client.asked) == 1
    with pytest.raises(ValueError, match="no replica is in sync"):
        await evict(client, raw, "demo-1", "")


def test_every_operator_with_a_primary_offers_it() -> None:
    assert {name for name, one in OPERATORS.items() if one.handover} == {
        "redis-sentinel",
        "redis-cluster",
        "mysql",
    }


def test_a_list_is_a_table_or_has_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "plans": ["x", "y"], "more": 1}, {"name": "long", "plans": [], "more": 2}]
    show(rows, {"name": "NAME", "plans": "PLANS"}, output="table", name="rows")
    assert capsys.readouterr().out == "NAME  PLANS\na     x,y\nlong  -\n"
    show(rows, {}, output="json", name="rows")
    assert json.loads(capsys.readouterr().out) == {"rows": rows}
    assert table([["a"]]) == ["a"]
