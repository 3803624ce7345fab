"""Where a Service leads, for every state a pod can be in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.local.controllers.builders import make, merged, pod, terminating

from mooring.kube.objects.core import Pod, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.local.controllers.endpoints.plan import SlicePlan, endpoints_of, slices_of, wanted


def service(**spec: Any) -> Service:
    body = {"selector": {"app": "r"}, "clusterIP": "None", "ports": [{"name": "redis", "port": 6379}], **spec}
    return make(Service, "redis", {"spec": body}, labels={"tier": "db"})


def member(number: int, *, ready: bool = True, ip: str = "", **spec: Any) -> Pod:
    body = {
        "spec": {
            "hostname": f"redis-{number}",
            "subdomain": "redis",
            "nodeName": "n",
            "containers": [],
            **spec,
        },
        "status": {
            "phase": "Running",
            "podIP": ip or f"10.99.0.{number + 1}",
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return pod(f"redis-{number}", body, labels={"app": "r"})


def zones(node: str) -> str | None:
    return {"n": "", "z": "zone-1"}.get(node)


def plan(of: Service, pods: list[Pod], present: list[EndpointSlice] | None = None) -> SlicePlan:
    return slices_of(of, pods, present or [], zones=zones)


def only(made: SlicePlan) -> EndpointSlice:
    assert not made.update
    assert not made.delete
    assert len(made.create) == 1
    return made.create[0]


def ready_addresses(each: EndpointSlice) -> list[str]:
    return [a for e in each.endpoints or () if e.conditions and e.conditions.ready for a in e.addresses or ()]


def test_an_endpoint_names_its_pod_its_node_and_its_host() -> None:
    each = only(plan(service(), [member(0, nodeName="z")]))
    assert each.metadata.labels == {
        "tier": "db",
        "kubernetes.io/service-name": "redis",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "service.kubernetes.io/headless": "",
    }
    endpoint = msgspec.to_builtins((each.endpoints or [])[0])
    uid = endpoint["targetRef"].pop("uid")
    assert uid
    assert endpoint == {
        "addresses": ["10.99.0.1"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "hostname": "redis-0",
        "nodeName": "z",
        "zone": "zone-1",
        "targetRef": {"kind": "Pod", "namespace": "default", "name": "redis-0"},
    }
    assert msgspec.to_builtins(each.ports) == [{"name": "redis", "port": 6379, "protocol": "TCP"}]


CONDITIONS: list[tuple[str, bool, bool, bool, dict[str, bool]]] = [
    ("ready", True, False, False, {"ready": True, "serving": True, "terminating": False}),
    ("not ready", False, False, False, {"ready": False, "serving": False, "terminating": False}),
    ("going", True, True, False, {"ready": False, "serving": True, "terminating": True}),
    ("published", False, False, True, {"ready": True, "serving": False, "terminating": False}),
    ("published and going", True, True, True, {"ready": True, "serving": True, "terminating": True}),
]


@pytest.mark.parametrize(
    ("case", "ready", "going", "publish", "shown"), CONDITIONS, ids=[c[0] for c in CONDITIONS]
)
def test_conditions(case: str, ready: bool, going: bool, publish: bool, shown: dict[str, bool]) -> None:
    one = member(0, ready=ready)
    each = only(plan(service(publishNotReadyAddresses=publish), [terminating(one) if going else one]))
    assert msgspec.to_builtins((each.endpoints or [])[0])["conditions"] == shown


def test_pods_without_address_ended_or_on_no_node_are_left_out() -> None:
    no_ip = merged(member(0), {"status": {"podIP": None}})
    ended = merged(member(1), {"status": {"phase": "Failed"}})
    nowhere = member(2, nodeName="gone")
    assert only(plan(service(), [no_ip, ended, nowhere])).endpoints == []
    published = only(plan(service(publishNotReadyAddresses=True), [no_ip, ended, nowhere]))
    assert ready_addresses(published) == ["10.99.0.3"]


def test_a_named_target_port_is_looked_up_in_each_pod() -> None:
    named = service(ports=[{"name": "redis", "port": 6379, "targetPort": "r"}])
    old = member(0, containers=[{"name": "c", "ports": [{"name": "r", "containerPort": 6379}]}])
    new = member(1, containers=[{"name": "c", "ports": [{"name": "r", "containerPort": 7000}]}])
    without = member(2)
    made = plan(named, [old, new, without])
    ports = {p.port: ready_addresses(each) for each in made.create for p in each.ports or ()}
    assert ports == {6379: ["10.99.0.1"], 7000: ["10.99.0.2"]}
    assert len({each.metadata.name for each in made.create}) == 3


def test_the_same_pods_again_write_nothing_and_a_change_writes_one_slice() -> None:
    svc, pods = service(), [member(n) for n in range(3)]
    each = only(plan(svc, pods))
    assert plan(svc, pods, [each]) == SlicePlan()
    made = plan(svc, [pods[0], merged(pods[1], {"metadata": {"annotations": {"a": "b"}}}), pods[2]], [each])
    assert made == SlicePlan()
    made = plan(svc, [*pods[:2], member(2, ready=False)], [each])
    assert [old.metadata.name for old, _ in made.update] == [each.metadata.name]
    assert not made.create


def test_without_pods_one_empty_slice_stays_and_becomes_the_first_of_theirs() -> None:
    svc, one = service(), member(0)
    empty = only(plan(svc, []))
    assert (empty.endpoints, empty.ports) == ([], [])
    assert plan(svc, [], [empty]) == SlicePlan()
    filled = only(plan(svc, [one]))
    name = empty.metadata.name
    for old, pods, new in ((empty, [one], filled), (filled, [], empty)):
        made = plan(svc, pods, [old])
        assert not made.create
        assert not made.delete
        ((before, after),) = made.update
        assert (before, after.metadata.name) == (old, name)
        assert (after.endpoints, after.ports) == (new.endpoints, new.ports)


def test_more_than_a_hundred_endpoints_need_more_slices_and_stay_where_they_are() -> None:
    svc = service()
    pods = [member(n, ip=f"10.99.{n // 200}.{n % 200 + 1}") for n in range(150)]
    made = plan(svc, pods)
    assert sorted(len(each.endpoints or ()) for each in made.create) == [50, 100]
    present = list(made.create)
    made = plan(svc, pods[1:], present)
    assert len(made.update) == 1
    assert not made.create
    assert not made.delete


def test_addresses_of_the_services_family_only() -> None:
    both = merged(member(0), {"status": {"podIPs": [{"ip": "10.99.0.1"}, {"ip": "fd00::1"}]}})
    made = plan(service(ipFamilies=["IPv6", "IPv4"]), [both])
    assert {each.address_type: ready_addresses(each) for each in made.create} == {
        "IPv4": ["10.99.0.1"],
        "IPv6": ["fd00::1"],
    }


def test_services_without_selector_or_with_a_name_elsewhere_are_not_ours() -> None:
    assert wanted(service())
    assert not wanted(service(selector=None))
    assert not wanted(service(type="ExternalName"))


def test_endpoints_split_ready_from_not_ready_and_leave_out_what_is_going() -> None:
    pods = [member(0), member(1, ready=False), terminating(member(2))]
    made = endpoints_of(service(clusterIP="10.96.0.7"), pods)
    assert made.metadata.labels == {"tier": "db", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    (subset,) = made.subsets or []
    assert [a.ip for a in subset.addresses or ()] == ["10.99.0.1"]
    assert [a.hostname for a in subset.not_ready_addresses or ()] == ["redis-1"]
    published = endpoints_of(service(publishNotReadyAddresses=True), pods)
    assert [len(s.addresses or ()) for s in published.subsets or ()] == [3]


def test_a_headless_service_without_ports_still_has_addresses() -> None:
    svc = service(ports=None)
    assert ready_addresses(only(plan(svc, [member(0)]))) == ["10.99.0.1"]
    assert [len(s.addresses or ()) for s in endpoints_of(svc, [member(0)]).subsets or ()] == [1]
