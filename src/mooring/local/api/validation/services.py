"""The rules of Services."""

from __future__ import annotations

import ipaddress
from typing import Final

from mooring.local.api import names
from mooring.local.api.fields import (
    GoStruct,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from mooring.local.api.validation.metadata import label_errors
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
    port_errors,
    port_number,
    spec_of,
)

__all__ = ["RULES", "cluster_ip_errors"]


def _service(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    kind, headless = spec.get("type", ""), spec.get("clusterIP") == "None"
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    if headless and kind in ("LoadBalancer", "NodePort"):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name(spec)
    seen: set[str] = set()
    for index, port in enumerate(ports):
        yield from _service_port(port, f"spec.ports[{index}]", seen, named=len(ports) > 1)
    yield from _external_ips(spec)
    yield from label_errors(spec.get("selector"), "spec.selector")
    affinity = spec.get("sessionAffinity", "")
    if affinity not in ("ClientIP", "None"):
        yield not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if kind != "ExternalName":
        yield from cluster_ip_errors(spec)
    allowed = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    if kind not in allowed:
        yield not_supported("spec.type", kind, allowed)
    yield from _port_pairs(ports, kind)
    yield from _traffic(spec, kind)


def _traffic(spec: JsonObject, kind: str) -> Errors:
    """Yield what is wrong with the fields that steer traffic, each of which only some types have."""
    if kind != "LoadBalancer":
        for key in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(key) is not None:
                yield forbidden(f"spec.{key}", "may only be used when `type` is 'LoadBalancer'")
    elif name := spec.get("loadBalancerClass"):
        for text in names.qualified_name(name):
            yield invalid("spec.loadBalancerClass", name, text)
    external, policies = spec.get("externalTrafficPolicy") or "", ("Cluster", "Local")
    reached = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if external and not reached:
        yield invalid(
            "spec.externalTrafficPolicy", external, "may only be set for externally-accessible services"
        )
    elif external and external not in policies:
        yield not_supported("spec.externalTrafficPolicy", external, policies)
    yield from _health_check(
        spec.get("healthCheckNodePort") or 0, kind == "LoadBalancer" and external == "Local"
    )
    if (internal := spec.get("internalTrafficPolicy")) is not None and internal not in policies:
        yield not_supported("spec.internalTrafficPolicy", internal, policies)


def _health_check(number: int, needed: bool) -> Errors:
    if number and not needed:
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", number, text)
    elif needed and not number:
        yield required("spec.healthCheckNodePort")
    elif needed:
        yield from port_number(number, "spec.healthCheckNodePort")


def _external_ips(spec: JsonObject) -> Errors:
    for index, address in enumerate(spec.get("externalIPs") or ()):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield invalid(
                f"spec.externalIPs[{index}]",
                address,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            )


def _external_name(spec: JsonObject) -> Errors:
    for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(key):
            yield forbidden(f"spec.{key}", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    for text in names.dns1123_subdomain(name) if name else ():
        yield invalid("spec.externalName", name, text)


def _service_port(port: JsonObject, path: str, seen: set[str], *, named: bool) -> Errors:
    name = port.get("name") or ""
    if named and not name:
        yield required(f"{path}.name")
    elif name:
        for text in names.dns1123_label(name):
            yield invalid(f"{path}.name", name, text)
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
    number = port.get("port", 0)
    yield from port_number(number, f"{path}.port")
    if port.get("protocol") not in ("SCTP", "TCP", "UDP"):
        yield not_supported(f"{path}.protocol", port.get("protocol", ""), ("SCTP", "TCP", "UDP"))
    yield from port_errors(port.get("targetPort"), f"{path}.targetPort")


def cluster_ip_errors(spec: JsonObject) -> Errors:
    """Yield what is wrong with the addresses themselves."""
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        if address == "None":
            if index:
                yield invalid(f"spec.clusterIPs[{index}]", address, "'None' must be the first and only value")
            continue
        try:
            ipaddress.ip_address(address)
        except ValueError:
            text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            yield invalid(f"spec.clusterIPs[{index}]", address, text)
    first = (spec.get("clusterIPs") or [None])[0]
    if first is not None and spec.get("clusterIP") != first:
        yield invalid("spec.clusterIPs[0]", first, "first value must match `clusterIP`")


def _port_pairs(ports: list[JsonObject], kind: str) -> Errors:
    node_ports, pairs = set(), set()
    for index, port in enumerate(ports):
        place = f"spec.ports[{index}]"
        node_port, protocol = port.get("nodePort"), port.get("protocol")
        if node_port and kind == "ClusterIP":
            yield forbidden(f"{place}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if node_port and (node_port, protocol) in node_ports:
            yield duplicate(f"{place}.nodePort", node_port)
        node_ports.add((node_port, protocol))
        if (port.get("port"), protocol) in pairs:
            shown = GoStruct(
                Name="", Protocol=protocol, AppProtocol=None, Port=port.get("port"), TargetPort=0, NodePort=0
            )
            yield duplicate(place, shown)
        pairs.add((port.get("port"), protocol))


def _service_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = spec_of(obj), spec_of(old)
    if "ExternalName" in (spec.get("type"), before.get("type")):
        return
    addresses, earlier = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if earlier and not addresses:
        yield invalid("spec.clusterIPs[0]", addresses or None, "primary clusterIP can not be unset")
    elif earlier and addresses[0] != earlier[0]:
        yield invalid("spec.clusterIPs[0]", addresses, "may not change once set")
    if spec.get("type") == before.get("type") == "LoadBalancer":
        name = spec.get("loadBalancerClass")
        if name != before.get("loadBalancerClass"):
            yield invalid("spec.loadBalancerClass", name, "may not change once set")
        ports = [either.get("healthCheckNodePort") or 0 for either in (spec, before)]
        if all(ports) and ports[0] != ports[1]:
            yield forbidden("spec.healthCheckNodePort", "field is immutable")


RULES: Final[Table] = {
    ("", "Service"): also(_service, _service_update),
}
