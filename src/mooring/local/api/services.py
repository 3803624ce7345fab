"""Services: what is allocated for them, and the fields that stand or fall with their type.

A Service is a union whose discriminator is its `type`. A client that changes the type sends the fields of
the old one along (every patch does), so those are dropped when nobody changed them too; what was
changed stays, and is refused where it has no meaning. Order and conditions are those of kube-apiserver
(`allocateUpdate`, then `dropTypeDependentFields`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Any

from mooring.local.api import failures, fields
from mooring.local.api.constraints import same
from mooring.local.api.errors import invalid_object
from mooring.local.api.validation.services import cluster_ip_errors
from mooring.local.api.world import World

__all__ = ["prepare_create", "prepare_update", "shown"]

JsonObject = dict[str, Any]

_NODE_PORT_TYPES = ("NodePort", "LoadBalancer")
_ADDRESSES = ("clusterIP", "clusterIPs")
_FAMILIES = ("ipFamilies", "ipFamilyPolicy")
_POLICY = "spec.ipFamilyPolicy"


def prepare_create(obj: JsonObject, world: World) -> JsonObject:
    """Return a new Service with its addresses and ports."""
    spec = dict(obj.get("spec") or {})
    if not _has_address(spec):
        _keep_address(spec, {})
        return {**obj, "spec": spec}
    _check_cluster_ips(obj, spec)
    return {**obj, "spec": _with_node_ports(obj, _with_address(obj, spec, world), {}, world)}


def prepare_update(new: JsonObject, old: JsonObject, world: World) -> JsonObject:
    """Return a changed Service with what its type needs, and without what only its old type needed."""
    spec, before = dict(new.get("spec") or {}), shown(old).get("spec") or {}
    if _has_address(spec) and not _has_address(before):
        spec = _with_address(new, spec, world)
    else:
        _keep_address(spec, before)
        if _has_address(spec):
            _init_families(new, spec, before)
    if spec.get("type") in _NODE_PORT_TYPES:
        spec = _with_node_ports(new, spec, before, world)
    elif before.get("type") in _NODE_PORT_TYPES and _node_ports(spec) <= _node_ports(before):
        ports = [{key: value for key, value in port.items() if key != "nodePort"} for port in _ports(spec)]
        spec |= {"ports": ports} if ports else {}
    _drop_foreign(spec, before)
    new = {**new, "spec": spec}
    status = new.get("status") or {}
    if status.get("loadBalancer") and spec.get("type") != "LoadBalancer":
        new = {**new, "status": {**status, "loadBalancer": {}}}
    return new


def shown(obj: JsonObject) -> JsonObject:
    """Return a stored Service as it is read.

    One that became an ExternalName keeps its internalTrafficPolicy, which a reader does not see.
    """
    spec = obj.get("spec") or {}
    if spec.get("type") != "ExternalName" or "internalTrafficPolicy" not in spec:
        return obj
    return {**obj, "spec": {key: value for key, value in spec.items() if key != "internalTrafficPolicy"}}


# --- what follows from the type ---------------------------------------------------------------------


def _has_address(spec: JsonObject) -> bool:
    return spec.get("type") != "ExternalName"


def _is_external(spec: JsonObject) -> bool:
    """Whether anyone outside of the cluster may reach it."""
    return spec.get("type") in _NODE_PORT_TYPES or (
        spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))
    )


def _checks_health(spec: JsonObject) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _draws_node_ports(spec: JsonObject) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (
        kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def _drop_foreign(spec: JsonObject, before: JsonObject) -> None:
    """Drop what the old type had and the new one has no use for, unless this very update sets it."""
    if _has_address(before) and not _has_address(spec):
        _drop_unchanged(spec, before, *_ADDRESSES)
        for name in _FAMILIES:
            _drop_unchanged(spec, before, name)
    if _checks_health(before) and not _checks_health(spec):
        _drop_unchanged(spec, before, "healthCheckNodePort")
    if before.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        _drop_unchanged(spec, before, "allocateLoadBalancerNodePorts")
        _drop_unchanged(spec, before, "loadBalancerClass")
    if _is_external(before) and not _is_external(spec):
        _drop_unchanged(spec, before, "externalTrafficPolicy")


def _drop_unchanged(spec: JsonObject, before: JsonObject, *names: str) -> None:
    """Drop fields that belong together when all of them are as they were."""
    if all(same(spec.get(name), before.get(name)) for name in names):
        for name in names:
            spec.pop(name, None)


# --- addresses --------------------------------------------------------------------------------------


def _check_cluster_ips(obj: JsonObject, spec: JsonObject) -> None:
    """Let clusterIP and clusterIPs speak for each other, as a server that knows both does."""
    several = spec.get("clusterIPs") or []
    if several and not spec.get("clusterIP"):
        spec["clusterIP"] = several[0]
    elif spec.get("clusterIP") and several and several[0] != spec["clusterIP"]:
        raise _refused(obj, "spec.clusterIPs", several, "first value must match `clusterIP`")


def _with_address(obj: JsonObject, spec: JsonObject, world: World) -> JsonObject:
    """Return the spec of a Service that had no address, with one and its families."""
    _init_families(obj, spec, {})
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(world)
    elif spec["clusterIP"] != "None":
        _reserve_address(obj, spec["clusterIP"], world)
    spec["clusterIPs"] = [spec["clusterIP"]]
    return spec


def _keep_address(spec: JsonObject, before: JsonObject) -> None:
    """Keep addresses that an update leaves out; one address alone speaks for the list."""
    if _has_address(spec):
        for name in _ADDRESSES:
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
    one, several = spec.get("clusterIP"), spec.get("clusterIPs")
    if same(one, before.get("clusterIP")):
        if not several and before.get("clusterIPs"):
            spec["clusterIPs"] = before["clusterIPs"]
    elif same(several, before.get("clusterIPs")):
        spec.pop("clusterIPs", None)
        spec |= {"clusterIPs": [one]} if one else {}


def _init_families(obj: JsonObject, spec: JsonObject, before: JsonObject) -> None:
    """Fill in the families of addresses and their policy; refuse families that there are none of.

    Only what has neither an address nor pods may name them. `before` is the spec it had, {} when it had no address.
    What is wrong with the addresses themselves is told alone.
    """
    spec["clusterIPs"] = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    anywhere = spec.get("clusterIP") == "None" and not spec.get("selector")
    policy = spec.get("ipFamilyPolicy") or before.get("ipFamilyPolicy")
    policy = spec["ipFamilyPolicy"] = policy or ("RequireDualStack" if anywhere else "SingleStack")
    errors = list(cluster_ip_errors(spec))
    families, had = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    if not errors and policy == "SingleStack":
        families = families[:1] if families == had else families
        if len(families) > 1:
            why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
            errors.append(fields.invalid(_POLICY, policy, why))
    elif not errors and families and len(families) < len(had):
        why = "must be 'SingleStack' to release the secondary IP family"
        errors.append(fields.invalid(_POLICY, policy, why))
    _raise(obj, errors)
    families = families or ["IPv4"]
    if anywhere:
        other = "IPv6" if families[0] == "IPv4" else "IPv4"
        families = [*families, other] if len(families) < 2 and policy != "SingleStack" else families
        spec["ipFamilies"] = families
        return
    if policy == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        errors.append(fields.invalid(_POLICY, policy, why))
    for index, family in enumerate(families):
        if family != "IPv4":
            why = "not configured on this cluster"
            errors.append(fields.invalid(f"spec.ipFamilies[{index}]", family, why))
    _raise(obj, errors)
    spec["ipFamilies"] = families


def _raise(obj: JsonObject, errors: list[fields.FieldError]) -> None:
    if errors:
        raise invalid_object(errors, group="", kind="Service", name=obj["metadata"].get("name", ""))


def _services(world: World) -> Iterable[JsonObject]:
    return (entry.obj for entry in world.store.collection("services").newest())


def _taken_addresses(world: World) -> set[str]:
    return {ip for obj in _services(world) for ip in obj["spec"].get("clusterIPs") or ()}


def _free_address(world: World) -> str:
    network = world.service_range
    # The lower part of the range is kept for addresses that people choose, as kube-apiserver does.
    kept = min(max(16, network.num_addresses // 16), 256)
    taken = _taken_addresses(world)
    for first in (kept, 1):
        candidates = range(first, network.num_addresses - 1)
        for number in random.sample(candidates, k=min(len(candidates), 64)):
            if (address := str(network[number])) not in taken:
                return address
        for number in candidates:
            if (address := str(network[number])) not in taken:
                return address
    raise invalid_object(
        [fields.internal("spec.clusterIPs", "failed to allocate a serviceIP: range is full")],
        group="",
        kind="Service",
        name="",
    )


def _reserve_address(obj: JsonObject, address: str, world: World) -> None:
    try:
        inside = IPv4Address(address) in world.service_range
    except ValueError:
        return  # validation names it
    why = ""
    if not inside:
        why = (
            f"the provided IP ({address}) is not in the valid range. "
            f"The range of valid IPs is {world.service_range}"
        )
    elif address in _taken_addresses(world):
        why = "provided IP is already allocated"
    if why:
        raise _refused(obj, "spec.clusterIPs", [address], f"failed to allocate IP {address}: {why}")


# --- ports of nodes ---------------------------------------------------------------------------------


def _ports(spec: JsonObject) -> list[JsonObject]:
    return spec.get("ports") or []


def _node_ports(spec: JsonObject) -> set[int]:
    return {port["nodePort"] for port in _ports(spec) if port.get("nodePort")}


def _with_node_ports(obj: JsonObject, spec: JsonObject, before: JsonObject, world: World) -> JsonObject:
    """Return the spec with a port on every node for each of its ports, and one to check health by.

    `before` is the spec it had, {} for a new Service: what it had it keeps, and need not be free.
    """
    if spec.get("type") not in _NODE_PORT_TYPES:
        return spec
    numbers = _Numbers(obj, before, world)
    ports = list(_kept_node_ports(spec, before))
    drawn: dict[int, int] = {}
    used: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        number = port.get("nodePort") or 0
        if number:
            numbers.reserve(number, f"spec.ports[{index}].nodePort")
        elif _draws_node_ports(spec):
            # In a new Service one port over two protocols is one port on the nodes, too.
            number = drawn.get(port["port"], 0) if not before else 0
            number = number or (0 if before else _asked(ports, port["port"])) or numbers.draw()
            ports[index] = {**port, "nodePort": number}
        drawn.setdefault(port.get("port", 0), number)
        use = (port.get("protocol", "TCP"), number)
        if before and number and use in used:
            raise failures.without_reason(f"duplicate nodePort: {{{use[0]} {number}}}")
        used.add(use)
    spec = {**spec, "ports": ports} if ports else spec
    if not _checks_health(spec):
        return spec
    number = spec.get("healthCheckNodePort") or 0
    if not number and _checks_health(before):
        number = before.get("healthCheckNodePort") or 0
    if number:
        numbers.reserve(number, "spec.healthCheckNodePort")
    return {**spec, "healthCheckNodePort": number or numbers.draw()}


def _kept_node_ports(spec: JsonObject, before: JsonObject) -> Iterator[JsonObject]:
    """Yield the ports, with the numbers that ports of their names had where they bring none."""
    known = {}
    if _draws_node_ports(before) and _draws_node_ports(spec):
        used = _node_ports(before) & _node_ports(spec)
        known = {port.get("name", ""): port.get("nodePort") or 0 for port in _ports(before)}
        known = {name: number for name, number in known.items() if number and number not in used}
    for port in _ports(spec):
        number = port.get("nodePort") or known.get(port.get("name", ""), 0)
        yield {**port, "nodePort": number} if number else port


def _asked(ports: list[JsonObject], number: int) -> int:
    """Return the port on the nodes that another entry for the same port asks for, 0 when none does."""
    return next((p["nodePort"] for p in ports if p.get("port") == number and p.get("nodePort")), 0)


class _Numbers:
    """The ports of the nodes: which are taken, by others and by this Service itself."""

    def __init__(self, obj: JsonObject, before: JsonObject, world: World) -> None:
        self._obj, self._range = obj, world.node_ports
        uid = obj["metadata"].get("uid")
        self._own = {*_node_ports(before), before.get("healthCheckNodePort")}
        self._taken: set[int] = set()
        for other in _services(world):
            if other["metadata"].get("uid") != uid:
                self._taken |= _node_ports(other["spec"])
                self._taken.add(other["spec"].get("healthCheckNodePort") or 0)

    def reserve(self, number: int, path: str) -> None:
        """Take a number that was asked for; raises 422 when it cannot be had."""
        if number in self._own:
            return
        why = ""
        if number not in self._range:
            low, high = self._range[0], self._range[-1]
            why = f"provided port is not in the valid range. The range of valid ports is {low}-{high}"
        elif number in self._taken:
            why = "provided port is already allocated"
        if why:
            raise _refused(self._obj, path, number, why)
        self._own.add(number)

    def draw(self) -> int:
        """Return a free number; 0 when none is left."""
        free = [number for number in self._range if number not in self._taken and number not in self._own]
        number = random.choice(free) if free else 0
        self._own.add(number)
        return number


def _refused(obj: JsonObject, path: str, value: Any, why: str) -> Exception:
    error = fields.invalid(path, value, why)
    return invalid_object([error], group="", kind="Service", name=obj["metadata"].get("name", ""))
