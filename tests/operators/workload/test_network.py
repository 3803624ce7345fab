"""NetworkPolicies of both Redis operators: who may connect to which port, and that none is made by default."""

from __future__ import annotations

from typing import Any

from mooring.kube.object import Object, decode, to_dict
from mooring.kube.objects import networking
from mooring.operators.redis.cluster import specs as cluster
from mooring.operators.redis.cluster.types import RedisCluster as HcCluster
from mooring.operators.redis.sentinel import specs as sentinel
from mooring.operators.redis.sentinel.types import RedisCluster

APP = {"podSelector": {"matchLabels": {"app": "shop"}}}
MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
OPERATOR = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "mooring-system"}}}


def of(objects: list[Object]) -> dict[str, Any]:
    """The policies among these objects, as they are sent."""
    return {
        one.metadata.name or "": to_dict(one)["spec"]
        for one in objects
        if isinstance(one, networking.NetworkPolicy)
    }


def with_sentinels(**spec: Any) -> dict[str, Any]:
    declared = decode({"metadata": {"name": "shop", "namespace": "web"}, "spec": spec}, RedisCluster)
    return of(sentinel.Specs(declared, sentinel.Found(operator="mooring-system")).objects())


def of_nodes(**spec: Any) -> dict[str, Any]:
    declared = decode({"metadata": {"name": "shop", "namespace": "web"}, "spec": spec}, HcCluster)
    return of(cluster.Specs(declared, cluster.Found(operator="mooring-system")).objects())


def rules(spec: dict[str, Any]) -> dict[int, list[Any]]:
    """Who may connect, by port; [None] stands for everybody."""
    found: dict[int, list[Any]] = {}
    for rule in spec["ingress"]:
        for port in rule["ports"]:
            found.setdefault(port["port"], []).extend(rule.get("from", [None]))
    return found


def test_none_is_made_unless_it_is_asked_for() -> None:
    for made in (with_sentinels(), with_sentinels(networkPolicy={"enabled": False, "clients": [APP]})):
        assert made == {}
    for made in (of_nodes(replicas=6), of_nodes(replicas=6, networkPolicy={})):
        assert made == {}


def test_servers_and_sentinels_are_open_to_clients_members_backups_and_the_operator() -> None:
    made = with_sentinels(networkPolicy={"enabled": True, "clients": [APP]})
    assert sorted(made) == ["redis-cluster-shop", "redis-sentinel-shop"]
    labels = made["redis-cluster-shop"]["podSelector"]["matchLabels"]
    members = {
        "podSelector": {"matchLabels": {k: v for k, v in labels.items() if not k.endswith("/component")}}
    }
    backups = {"podSelector": {"matchLabels": {"mooring.dev/run-by": "redis-sentinel-backup"}}}
    known = [APP, members, OPERATOR]
    assert rules(made["redis-cluster-shop"]) == {6379: [*known, backups], 6380: [*known, backups]}
    assert rules(made["redis-sentinel-shop"]) == {26379: known, 26380: known}
    for one, component in (("redis-cluster-shop", "redis"), ("redis-sentinel-shop", "sentinel")):
        assert made[one]["policyTypes"] == ["Ingress"]
        assert made[one]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == component


def test_the_bus_is_open_to_the_nodes_alone() -> None:
    made = rules(of_nodes(replicas=6, networkPolicy={"enabled": True, "clients": [APP]})["shop"])
    assert [len(made[port]) for port in (16379, 16380)] == [1, 1]
    members = made[16379][0]
    runs = [
        {"podSelector": {"matchLabels": {"mooring.dev/run-by": f"redis-cluster-{one}"}}}
        for one in ("backup", "restore")
    ]
    assert made[6379] == made[6380] == [APP, members, OPERATOR, *runs]
    assert members["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "shop"
    assert APP not in made[16379]


def test_without_clients_the_namespace_may_connect_and_an_empty_list_is_nobody() -> None:
    everybody = rules(with_sentinels(networkPolicy={"enabled": True})["redis-sentinel-shop"])
    assert everybody[26379][0] == {"podSelector": {}}
    nobody = rules(with_sentinels(networkPolicy={"enabled": True, "clients": []})["redis-sentinel-shop"])
    assert len(nobody[26379]) == 2


def test_metrics_are_open_to_everybody_or_to_those_that_are_named() -> None:
    exporter = {"enabled": True, "image": "exporter:1"}
    for access, peers in (({}, [None]), ({"scrapers": [MONITORING]}, [MONITORING])):
        made = with_sentinels(exporter=exporter, networkPolicy={"enabled": True, **access})
        assert rules(made["redis-cluster-shop"])[9121] == peers
        nodes = of_nodes(pod=[{"monitorImage": "exporter:1"}], networkPolicy={"enabled": True, **access})
        assert rules(nodes["shop"])[9121] == peers
    closed = with_sentinels(exporter=exporter, networkPolicy={"enabled": True, "scrapers": []})
    assert 9121 not in rules(closed["redis-cluster-shop"])
    assert 9121 not in rules(with_sentinels(networkPolicy={"enabled": True})["redis-cluster-shop"])
