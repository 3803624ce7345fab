"""Service addresses: derived from objects, told to the kernel as differences."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from mooring.kube.object import decode
from mooring.kube.objects.core import Pod, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.local.node.services import Backend, Frontend, Sticky, changes, host_ports, wanted

FRONT = Frontend(IPv4Address("10.96.0.7"), "tcp", 6379)
ONE, TWO = Backend(IPv4Address("10.99.1.1"), 6379), Backend(IPv4Address("10.99.1.2"), 6379)


def service(**spec: Any) -> Service:
    return decode({"metadata": {"name": "db", "namespace": "n"}, "spec": spec}, Service)


def piece(*endpoints: dict[str, Any], port: str = "redis") -> EndpointSlice:
    meta = {"name": "db-1", "namespace": "n", "labels": {"kubernetes.io/service-name": "db"}}
    plain = {"metadata": meta, "endpoints": list(endpoints), "ports": [{"name": port, "port": 6379}]}
    return decode(plain, EndpointSlice)


def test_only_ready_endpoints_of_the_named_port_count() -> None:
    ports = [{"name": "redis", "port": 6379}]
    ready = {"addresses": ["10.99.1.1"], "conditions": {"ready": True}}
    silent = {"addresses": ["10.99.1.2"]}
    unready = {"addresses": ["10.99.1.3"], "conditions": {"ready": False}}
    slices = [piece(ready, silent, unready), piece({"addresses": ["10.99.1.9"]}, port="metrics")]
    assert wanted([service(clusterIP="10.96.0.7", ports=ports)], slices) == {FRONT: (ONE, TWO)}


def test_headless_and_external_services_have_no_address() -> None:
    ports = [{"port": 1}]
    external = service(type="ExternalName", externalName="x", ports=ports)
    assert wanted([service(clusterIP="None", ports=ports), external], []) == {}


def test_nothing_changed_is_nothing_to_tell() -> None:
    assert changes("t", {FRONT: (ONE,)}, {FRONT: (ONE,)}) == []


def test_a_service_without_endpoints_is_refused_until_it_has_some() -> None:
    assert changes("t", {}, {FRONT: ()}) == [f"add element ip t refused {{ {FRONT.element} }}"]
    told = changes("t", {FRONT: ()}, {FRONT: (ONE,)})
    assert told[0] == f"delete element ip t refused {{ {FRONT.element} }}"
    assert any(line.startswith("add element ip t services") for line in told)


def test_a_changed_endpoint_replaces_one_rule_and_keeps_the_service() -> None:
    told = changes("t", {FRONT: (ONE,)}, {FRONT: (ONE, TWO)})
    assert told[0] == f"flush chain ip t {FRONT.chain}"
    assert "numgen random mod 2" in told[1]
    assert not any("services" in line for line in told)


def test_a_service_with_affinity_is_told_apart_and_chooses_by_client() -> None:
    ports = [{"name": "redis", "port": 6379}]
    slices = [piece({"addresses": ["10.99.1.1"]}, {"addresses": ["10.99.1.2"]})]
    loose = wanted([service(clusterIP="10.96.0.7", ports=ports)], slices)
    sticky = wanted([service(clusterIP="10.96.0.7", ports=ports, sessionAffinity="ClientIP")], slices)
    assert sticky == {FRONT: Sticky((ONE, TWO))}
    assert "jhash ip saddr mod 2" in changes("t", loose, sticky)[1]
    assert changes("t", sticky, sticky) == []


def test_a_removed_service_leaves_nothing() -> None:
    told = changes("t", {FRONT: (ONE,)}, {})
    assert told[-1].startswith("delete element ip t hairpin")
    assert f"delete chain ip t {FRONT.chain}" in told


def test_a_node_port_is_served_at_every_node() -> None:
    left, right = IPv4Address("10.99.0.1"), IPv4Address("10.99.0.2")
    ports = [{"name": "redis", "port": 6379, "nodePort": 30001}]
    exposed = service(type="NodePort", clusterIP="10.96.0.7", ports=ports)
    table = wanted([exposed], [piece({"addresses": ["10.99.1.1"]})], nodes=[left, right])
    assert table == {
        FRONT: (ONE,),
        Frontend(left, "tcp", 30001): (ONE,),
        Frontend(right, "tcp", 30001): (ONE,),
    }
    inner = service(clusterIP="10.96.0.7", ports=ports)
    assert set(wanted([inner], [], nodes=[left])) == {FRONT}


def exposing(**status: Any) -> Pod:
    ports = [{"containerPort": 6379, "hostPort": 80}, {"containerPort": 1}]
    spec = {"nodeName": "n1", "containers": [{"name": "c", "ports": ports}]}
    return decode({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)


def test_a_host_port_leads_to_its_pod_while_that_lives() -> None:
    node = IPv4Address("10.99.0.1")
    live = exposing(phase="Running", podIP="10.99.1.1")
    assert host_ports([live], {"n1": node}) == {Frontend(node, "tcp", 80): (ONE,)}
    assert host_ports([exposing(phase="Failed", podIP="10.99.1.1"), exposing()], {"n1": node}) == {}
    assert host_ports([live], {"other": node}) == {}


def test_a_host_port_is_open_at_its_host_address_only() -> None:
    node, loopback = IPv4Address("10.99.0.1"), IPv4Address("127.0.0.1")

    def at(address: str) -> list[Frontend]:
        ports = [{"containerPort": 6379, "hostPort": 80, "hostIP": address}]
        spec = {"nodeName": "n1", "containers": [{"name": "c", "ports": ports}]}
        status = {"phase": "Running", "podIP": "10.99.1.1"}
        pod = decode({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)
        return list(host_ports([pod], {"n1": node}))

    assert at("127.0.0.1") == [Frontend(loopback, "tcp", 80)]
    assert at("10.99.0.1") == at("0.0.0.0") == at("") == [Frontend(node, "tcp", 80)]
    assert at("10.99.0.2") == at("::1") == []
