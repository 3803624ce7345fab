"""Services that change their type: what they gain, keep, lose, and what readers do not see."""

from __future__ import annotations

from typing import Any

import pytest
from tests.local.api.conftest import Client, lines

Json = Any

SERVICES = "/api/v1/namespaces/default/services"
ONE = SERVICES + "/s"
NODE_PORTS = range(30000, 32768)


async def _made(api: Client, *, ports: Json = None, **spec: Json) -> Json:
    body = {"metadata": {"name": "s"}, "spec": {"ports": ports or [{"port": 80}], **spec}}
    return (await api.create(SERVICES, body))["spec"]


async def _changed(api: Client, **spec: Json) -> Json:
    return (await api.merge(ONE, {"spec": spec}))["spec"]


async def test_a_service_that_becomes_an_external_name_gives_its_address_back(api: Client) -> None:
    address = (await _made(api))["clusterIP"]
    spec = await _changed(api, type="ExternalName", externalName="x.example.com")
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & spec.keys()
    other = {"metadata": {"name": "t"}, "spec": {"ports": [{"port": 80}], "clusterIP": address}}
    assert (await api.create(SERVICES, other))["spec"]["clusterIP"] == address


async def test_readers_do_not_see_the_traffic_policy_that_an_external_name_keeps(api: Client) -> None:
    await _made(api)
    seen = await api.get(SERVICES)
    spec = await _changed(api, type="ExternalName", externalName="x.example.com")
    assert "internalTrafficPolicy" not in spec
    assert "internalTrafficPolicy" not in (await api.get(ONE))["spec"]
    listed = (await api.get(SERVICES, fieldSelector="metadata.name=s"))["items"]
    assert "internalTrafficPolicy" not in listed[0]["spec"]
    version = seen["metadata"]["resourceVersion"]
    async with lines(api.stream(SERVICES, watch="1", resourceVersion=version)) as events:
        assert "internalTrafficPolicy" not in (await anext(aiter(events)))["object"]["spec"]
    # Its status and a deletion that waits show it as it is stored, and nobody comes to own it by a PUT.
    assert (await api.get(ONE + "/status"))["spec"]["internalTrafficPolicy"] == "Cluster"
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    back = await api.ok("PUT", ONE, body, fieldManager="late")
    late = [entry for entry in back["metadata"]["managedFields"] if entry["manager"] == "late"]
    assert all("f:internalTrafficPolicy" not in entry["fieldsV1"].get("f:spec", {}) for entry in late)


async def test_node_ports_go_with_the_type_and_come_back_new(api: Client) -> None:
    drawn = (await _made(api, type="NodePort"))["ports"][0]["nodePort"]
    assert drawn in NODE_PORTS
    assert (await _changed(api, sessionAffinity="ClientIP"))["ports"][0]["nodePort"] == drawn
    assert "nodePort" not in (await _changed(api, type="ClusterIP"))["ports"][0]
    assert (await _changed(api, type="LoadBalancer"))["ports"][0]["nodePort"] in NODE_PORTS


async def test_ports_keep_their_number_by_name(api: Client) -> None:
    ports = [{"port": 80, "name": "web"}, {"port": 90, "name": "more"}]
    made = await _made(api, type="NodePort", ports=ports)
    body = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 81, "name": "web"}]}}
    replaced = await api.ok("PUT", ONE, body)
    assert replaced["spec"]["ports"][0]["nodePort"] == made["ports"][0]["nodePort"]


async def test_one_port_of_two_protocols_is_one_port_on_the_nodes(api: Client) -> None:
    ports = [{"port": 53, "name": "u", "protocol": "UDP"}, {"port": 53, "name": "t"}]
    made = await _made(api, type="NodePort", ports=ports)
    assert made["ports"][0]["nodePort"] == made["ports"][1]["nodePort"]


async def test_a_node_port_twice_in_one_update_is_refused(api: Client) -> None:
    await _made(api)
    ports = [{"port": 80, "name": "a", "nodePort": 31111}, {"port": 81, "name": "b", "nodePort": 31111}]
    change = {"spec": {"type": "NodePort", "ports": ports}}
    status = await api.refused(500, "PATCH", ONE, change, content_type="application/merge-patch+json")
    assert status["message"] == "duplicate nodePort: {TCP 31111}"


async def test_a_health_check_port_stands_and_falls_with_local_traffic(api: Client) -> None:
    made = await _made(api, type="LoadBalancer", externalTrafficPolicy="Local")
    assert made["healthCheckNodePort"] in NODE_PORTS
    taken = {"metadata": {"name": "t"}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}}
    taken["spec"]["ports"][0]["nodePort"] = made["healthCheckNodePort"]  # type: ignore[index]
    assert "already allocated" in (await api.refused(422, "POST", SERVICES, taken))["message"]
    assert "healthCheckNodePort" not in await _changed(api, externalTrafficPolicy="Cluster")


@pytest.mark.parametrize("kind", ["ClusterIP", "ExternalName"])
async def test_what_only_a_load_balancer_has_goes_unless_it_is_changed_too(api: Client, kind: str) -> None:
    await _made(api, type="LoadBalancer", externalTrafficPolicy="Local")
    await api.merge(ONE + "/status", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})
    changed = await api.merge(ONE, {"spec": {"type": kind, "externalName": "x.example.com"}})
    gone = {"externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"}
    assert not gone & changed["spec"].keys()
    assert changed["status"]["loadBalancer"] == {}


async def test_a_service_of_two_families_cannot_come_to_select_pods(api: Client) -> None:
    made = await _made(api, clusterIP="None")
    assert made["ipFamilies"] == ["IPv4", "IPv6"]
    change = {"spec": {"selector": {"a": "b"}}}
    status = await api.refused(422, "PATCH", ONE, change, content_type="application/merge-patch+json")
    assert {cause["field"] for cause in status["details"]["causes"]} == {
        "spec.ipFamilies[1]",
        "spec.ipFamilyPolicy",
    }


async def test_an_external_name_has_no_address_not_even_none(api: Client) -> None:
    body = {
        "metadata": {"name": "s"},
        "spec": {"type": "ExternalName", "externalName": "x.y", "clusterIP": "None"},
    }
    status = await api.refused(422, "POST", SERVICES, body)
    assert "spec.clusterIPs: Forbidden" in status["message"]


async def test_one_new_address_speaks_for_the_list_and_is_refused(api: Client) -> None:
    await _made(api)
    change = {"spec": {"clusterIP": "None"}}
    status = await api.refused(422, "PATCH", ONE, change, content_type="application/merge-patch+json")
    assert "may not change once set" in status["message"]
