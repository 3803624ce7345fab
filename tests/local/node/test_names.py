"""What the cluster's DNS says, without a network."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from typing import Any

from mooring.kube.object import decode
from mooring.kube.objects.core import Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.local.node import dns
from mooring.local.node.dns import Zone, encode_name, parse, reply


def service(name: str, **spec: Any) -> Service:
    spec.setdefault("ports", [{"name": "redis", "port": 6379, "protocol": "TCP"}])
    return decode({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, Service)


def endpoints(name: str, *entries: dict[str, Any]) -> EndpointSlice:
    meta = {"name": f"{name}-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": name}}
    ports = [{"name": "redis", "port": 6379, "protocol": "TCP"}]
    plain = {"metadata": meta, "addressType": "IPv4", "endpoints": list(entries), "ports": ports}
    return decode(plain, EndpointSlice)


def zone(services: list[Service], slices: list[EndpointSlice] | None = None) -> Zone:
    return Zone("cluster.local", lambda: services, lambda: slices or [], lambda: ["shop", "empty"])


def addresses(answer: dns.Answer) -> set[str]:
    return {str(IPv4Address(record.data)) for record in answer.records if record.kind == dns.A}


def test_a_service_has_its_cluster_address() -> None:
    there = zone([service("db", clusterIP="10.96.0.7")])
    assert addresses(there.answer("db.shop.svc.cluster.local", dns.A)) == {"10.96.0.7"}


def test_an_ipv6_question_for_an_existing_name_has_no_data_but_is_no_nxdomain() -> None:
    there = zone([service("db", clusterIP="10.96.0.7")])
    answer = there.answer("db.shop.svc.cluster.local", dns.AAAA)
    assert (answer.code, answer.records) == (dns.NOERROR, ())


def test_a_name_that_does_not_exist_is_nxdomain_and_a_namespace_is_not() -> None:
    there = zone([])
    assert there.answer("nobody.shop.svc.cluster.local", dns.A).code == dns.NXDOMAIN
    assert there.answer("empty.svc.cluster.local", dns.A).code == dns.NOERROR
    assert there.answer("other.svc.cluster.local", dns.A).code == dns.NXDOMAIN


def test_a_headless_service_has_its_ready_endpoints_and_their_host_names() -> None:
    ready = {"addresses": ["10.99.1.4"], "hostname": "db-0", "conditions": {"ready": True}}
    unready = {"addresses": ["10.99.1.5"], "hostname": "db-1", "conditions": {"ready": False}}
    there = zone([service("db", clusterIP="None")], [endpoints("db", ready, unready)])
    assert addresses(there.answer("db.shop.svc.cluster.local", dns.A)) == {"10.99.1.4"}
    assert addresses(there.answer("db-0.db.shop.svc.cluster.local", dns.A)) == {"10.99.1.4"}
    assert there.answer("db-1.db.shop.svc.cluster.local", dns.A).code == dns.NXDOMAIN


def test_unready_endpoints_are_named_when_the_service_publishes_them() -> None:
    unready = {"addresses": ["10.99.1.5"], "hostname": "db-1", "conditions": {"ready": False}}
    headless = service("db", clusterIP="None", publishNotReadyAddresses=True)
    there = zone([headless], [endpoints("db", unready)])
    assert addresses(there.answer("db-1.db.shop.svc.cluster.local", dns.A)) == {"10.99.1.5"}


def test_service_records_name_ports_and_bring_the_addresses_along() -> None:
    ready = {"addresses": ["10.99.1.4"], "hostname": "db-0"}
    there = zone([service("db", clusterIP="None")], [endpoints("db", ready)])
    answer = there.answer("_redis._tcp.db.shop.svc.cluster.local", dns.SRV)
    (record,) = answer.records
    assert struct.unpack(">HHH", record.data[:6]) == (0, 100, 6379)
    assert record.data[6:] == encode_name("db-0.db.shop.svc.cluster.local")
    assert [extra.name for extra in answer.extra] == ["db-0.db.shop.svc.cluster.local"]


def test_reverse_names_of_services_and_pods() -> None:
    ready = {"addresses": ["10.99.1.4"], "hostname": "db-0"}
    services = [service("db", clusterIP="None"), service("web", clusterIP="10.96.0.9")]
    there = zone(services, [endpoints("db", ready)])
    (record,) = there.answer("9.0.96.10.in-addr.arpa", dns.PTR).records
    assert record.data == encode_name("web.shop.svc.cluster.local")
    assert there.holds("4.1.99.10.in-addr.arpa")
    assert not there.holds("1.1.1.1.in-addr.arpa")


def test_an_external_name_is_an_alias() -> None:
    there = zone([service("out", type="ExternalName", externalName="example.org")])
    (record,) = there.answer("out.shop.svc.cluster.local", dns.A).records
    assert (record.kind, record.data) == (dns.CNAME, encode_name("example.org"))


def test_a_pod_address_is_a_name() -> None:
    assert addresses(zone([]).answer("10-99-1-4.shop.pod.cluster.local", dns.A)) == {"10.99.1.4"}
    assert zone([]).answer("10-99-1.shop.pod.cluster.local", dns.A).code == dns.NXDOMAIN


def test_changes_are_seen_once_told() -> None:
    services: list[Service] = []
    there = zone(services)
    assert there.answer("db.shop.svc.cluster.local", dns.A).code == dns.NXDOMAIN
    services.append(service("db", clusterIP="10.96.0.7"))
    there.changed()
    assert there.answer("db.shop.svc.cluster.local", dns.A).code == dns.NOERROR


def query(name: str, kind: int, *, size: int = 0) -> bytes:
    head = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 1 if size else 0)
    packet = head + encode_name(name) + struct.pack(">HH", kind, 1)
    return packet + (struct.pack(">BHHIH", 0, dns.OPT, size, 0, 0) if size else b"")


def test_an_answer_that_does_not_fit_says_so() -> None:
    many = [{"addresses": [f"10.99.2.{n}"], "hostname": f"db-{n}"} for n in range(60)]
    there = zone([service("db", clusterIP="None")], [endpoints("db", *many)])
    question = parse(query("db.shop.svc.cluster.local", dns.A))
    answer = there.answer(question.name, question.kind)
    short = reply(question, answer, soa=there.soa(), limit=question.limit)
    assert struct.unpack(">HHHHHH", short[:12])[1] & 0x200
    whole = reply(question, answer, soa=there.soa(), limit=None)
    assert struct.unpack(">HHHHHH", whole[:12])[3] == 60


def test_a_larger_answer_is_taken_by_who_says_so() -> None:
    assert parse(query("x.y", dns.A)).limit == 512
    assert parse(query("x.y", dns.A, size=4096)).limit == 1232


def test_names_are_compared_without_case() -> None:
    assert parse(query("DB.Shop.SVC.cluster.local", dns.A)).name == "db.shop.svc.cluster.local"
