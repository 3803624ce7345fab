"""Where a Service leads: the EndpointSlices and the Endpoints it should have. Pure.

Names are made from the Service and a number, not at random: a repeated create finds its own work.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from mooring.kube.object import owner_reference
from mooring.kube.objects.core import (
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    ObjectReference,
    Pod,
    Service,
    ServicePort,
)
from mooring.kube.objects.discovery import Endpoint, EndpointConditions, EndpointSlice
from mooring.kube.objects.discovery import EndpointPort as SlicePort
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.controllers.pods import is_ready, is_terminal, is_terminating, stable_suffix

__all__ = ["SlicePlan", "endpoints_of", "selects", "slices_of", "wanted"]

HEADLESS = "service.kubernetes.io/headless"
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
LEGACY_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
LEGACY_MANAGER = "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"

SLICE_SIZE = 100
ENDPOINTS_SIZE = 1000

#: Gives the zone of a node, ``None`` when there is no such node.
Zones = Callable[[str], str | None]
PortSet = tuple[tuple[str, int, str, str | None], ...]


def wanted(service: Service) -> bool:
    """Whether the endpoints of a Service are made from pods at all."""
    spec = service.spec
    return spec is not None and bool(spec.selector) and spec.type != "ExternalName"


def selects(service: Service, labels: Mapping[str, str] | None) -> bool:
    """Whether a Service's selector means pods of these labels."""
    present = labels or {}
    selector = (service.spec.selector or {}) if service.spec else {}
    return bool(selector) and all(present.get(key) == value for key, value in selector.items())


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """What to write; ``update`` pairs the slice as it is with what it should be."""

    create: tuple[EndpointSlice, ...] = ()
    update: tuple[tuple[EndpointSlice, EndpointSlice], ...] = ()
    delete: tuple[EndpointSlice, ...] = ()


def slices_of(
    service: Service, pods: Iterable[Pod], present: Iterable[EndpointSlice], *, zones: Zones
) -> SlicePlan:
    """What makes the slices of a Service right, moving as few endpoints as possible."""
    reachable = [pod for pod in pods if _addressable(pod, service, zones)]
    mine = sorted(present, key=lambda s: s.metadata.name or "")
    families = _families(service)
    create: list[EndpointSlice] = []
    update: list[tuple[EndpointSlice, EndpointSlice]] = []
    delete = [s for s in mine if s.address_type not in families]
    used = {s.metadata.name or "" for s in mine}
    for family in families:
        made = _family(service, reachable, [s for s in mine if s.address_type == family], family, zones, used)
        create += made.create
        update += made.update
        delete += made.delete
    return SlicePlan(tuple(create), tuple(update), tuple(delete))


def _family(
    service: Service,
    pods: Sequence[Pod],
    present: Sequence[EndpointSlice],
    family: str,
    zones: Zones,
    used: set[str],
) -> SlicePlan:
    groups: dict[PortSet, list[Endpoint]] = {}
    for pod in pods:
        addresses = _addresses(pod, service, family)
        if addresses:
            endpoint = _endpoint(pod, service, addresses, zones)
            groups.setdefault(_ports(service, pod), []).append(endpoint)
    wanted_slices: list[tuple[EndpointSlice | None, list[Endpoint], PortSet]] = []
    for ports, endpoints in sorted(groups.items(), key=lambda group: str(group[0])):
        same = [s for s in present if _slice_ports(s) == ports]
        wanted_slices += [(s, e, ports) for s, e in _distribute(endpoints, same)]
    if not wanted_slices:
        # A Service is never without a slice: an empty one says that somebody looked.
        kept = next((s for s in present if not _slice_ports(s)), None)
        wanted_slices = [(kept, [], ())]
    create: list[EndpointSlice] = []
    update: list[tuple[EndpointSlice, EndpointSlice]] = []
    for old, endpoints, ports in wanted_slices:
        if old is None:
            create.append(_slice(service, family, endpoints, ports, name=_name(service, used)))
            continue
        new = _slice(service, family, endpoints, ports, name=old.metadata.name or "")
        if _differs(old, new):
            update.append((old, new))
    kept_names = {old.metadata.name for old, _, _ in wanted_slices if old is not None}
    delete = [s for s in present if s.metadata.name not in kept_names]
    while create and delete:  # become one update, as in Kubernetes: nobody sees both, or neither
        old, new = delete.pop(), create.pop(0)
        update.append((old, replace(new, metadata=replace(new.metadata, name=old.metadata.name))))
    return SlicePlan(tuple(create), tuple(update), tuple(delete))


def _distribute(
    endpoints: list[Endpoint], present: Sequence[EndpointSlice]
) -> list[tuple[EndpointSlice | None, list[Endpoint]]]:
    """Endpoints over slices: each stays where it is, new ones fill up, more slices only when all are full."""
    left = {_identity(endpoint): endpoint for endpoint in endpoints}
    result: list[tuple[EndpointSlice | None, list[Endpoint]]] = []
    for each in present:
        stay = [left.pop(i) for e in each.endpoints or () if (i := _identity(e)) in left]
        result.append((each, stay[:SLICE_SIZE]))
    rest = sorted(left.values(), key=_identity)
    for _, members in result:
        room = SLICE_SIZE - len(members)
        members += rest[:room]
        rest = rest[room:]
    while rest:
        result.append((None, rest[:SLICE_SIZE]))
        rest = rest[SLICE_SIZE:]
    return [(each, sorted(members, key=_identity)) for each, members in result if members]


def _identity(endpoint: Endpoint) -> tuple[str, str]:
    target = endpoint.target_ref
    return (target.name or "" if target else "", ",".join(endpoint.addresses or ()))


def _name(service: Service, used: set[str]) -> str:
    number = 0
    while True:
        name = f"{(service.metadata.name or '')[:57]}-{stable_suffix(service.metadata.uid, number)}"
        if name not in used:
            used.add(name)
            return name
        number += 1


def _slice(
    service: Service, family: str, endpoints: list[Endpoint], ports: PortSet, *, name: str
) -> EndpointSlice:
    labels = {k: v for k, v in (service.metadata.labels or {}).items() if k not in (SERVICE_NAME, MANAGED_BY)}
    labels.pop(HEADLESS, None)
    if _headless(service):
        labels[HEADLESS] = ""
    labels |= {SERVICE_NAME: service.metadata.name or "", MANAGED_BY: MANAGER}
    return EndpointSlice(
        metadata=ObjectMeta(
            name=name,
            generate_name=f"{service.metadata.name}-",
            namespace=service.metadata.namespace,
            labels=labels,
            owner_references=[owner_reference(service)],
        ),
        address_type=family,
        endpoints=endpoints,
        ports=[
            SlicePort(name=n, port=number, protocol=protocol, app_protocol=app)
            for n, number, protocol, app in ports
        ],
    )


def _differs(old: EndpointSlice, new: EndpointSlice) -> bool:
    return old.metadata.labels != new.metadata.labels or _content(old) != _content(new)


def _content(each: EndpointSlice) -> list[Endpoint]:
    return [replace(e, hints=None) for e in each.endpoints or ()]


def _endpoint(pod: Pod, service: Service, addresses: list[str], zones: Zones) -> Endpoint:
    serving = is_ready(pod)
    terminating = is_terminating(pod)
    publish = bool(service.spec and service.spec.publish_not_ready_addresses)
    node = (pod.spec.node_name or None) if pod.spec else None
    return Endpoint(
        addresses=addresses,
        conditions=EndpointConditions(
            ready=publish or (serving and not terminating), serving=serving, terminating=terminating
        ),
        hostname=_hostname(pod, service),
        node_name=node,
        target_ref=_target(pod),
        zone=(zones(node) or None) if node else None,
    )


def _target(pod: Pod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _hostname(pod: Pod, service: Service) -> str | None:
    spec = pod.spec
    if spec is None or not spec.hostname or spec.subdomain != service.metadata.name:
        return None
    return spec.hostname


def _addressable(pod: Pod, service: Service, zones: Zones) -> bool:
    if is_terminal(pod) or pod.status is None or not (pod.status.pod_ip or pod.status.pod_ips):
        return False
    if service.spec is not None and service.spec.publish_not_ready_addresses:
        return True
    node = (pod.spec.node_name or "") if pod.spec else ""
    return zones(node) is not None


def _headless(service: Service) -> bool:
    return bool(service.spec) and (service.spec.cluster_ip in (None, "", "None") if service.spec else False)


def _families(service: Service) -> list[str]:
    spec = service.spec
    if spec is not None and spec.ip_families:
        return [str(family) for family in spec.ip_families]
    address = (spec.cluster_ip or "") if spec else ""
    return ["IPv6" if ":" in address else "IPv4"]


def _addresses(pod: Pod, service: Service, family: str) -> list[str]:
    status = pod.status
    if status is None:
        return []
    known = [each.ip for each in status.pod_ips or () if each.ip] or (
        [status.pod_ip] if status.pod_ip else []
    )
    return [ip for ip in known if (":" in ip) == (family == "IPv6")]


def _ports(service: Service, pod: Pod) -> PortSet:
    found = []
    for port in (service.spec.ports or ()) if service.spec else ():
        number = target_port(port, pod)
        if number is not None:
            found.append((port.name or "", number, port.protocol or "TCP", port.app_protocol))
    return tuple(sorted(found, key=str))


def _slice_ports(each: EndpointSlice) -> PortSet:
    return tuple(
        sorted(
            ((p.name or "", p.port or 0, p.protocol or "TCP", p.app_protocol) for p in each.ports or ()),
            key=str,
        )
    )


def target_port(port: ServicePort, pod: Pod) -> int | None:
    """The port of a pod that a Service port leads to; ``None`` when no container has one of that name."""
    target = port.target_port
    if isinstance(target, int) and target:
        return int(target)
    if not target:
        return port.port
    if str(target).isdigit():
        return int(target)
    spec = pod.spec
    if spec is None:
        return None
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    for container in [*(spec.containers or ()), *sidecars]:
        for each in container.ports or ():
            if each.name == target and (each.protocol or "TCP") == (port.protocol or "TCP"):
                return int(each.container_port or 0) or None
    return None


def endpoints_of(service: Service, pods: Iterable[Pod]) -> Endpoints:
    """The Endpoints object of a Service."""
    publish = bool(service.spec and service.spec.publish_not_ready_addresses)
    groups: dict[PortSet, tuple[list[EndpointAddress], list[EndpointAddress]]] = {}
    count = 0
    for pod in sorted(pods, key=_order):
        if is_terminal(pod) or (is_terminating(pod) and not publish):
            continue
        addresses = _addresses(pod, service, _families(service)[0])
        ports = _ports(service, pod)
        if not addresses or (not ports and service.spec and service.spec.ports) or count >= ENDPOINTS_SIZE:
            continue
        count += 1
        ready, unready = groups.setdefault(ports, ([], []))
        (ready if publish or is_ready(pod) else unready).append(_address(pod, service, addresses[0]))
    subsets = [
        EndpointSubset(
            addresses=ready or None,
            not_ready_addresses=unready or None,
            ports=[
                EndpointPort(name=n or None, port=number, protocol=protocol, app_protocol=app)
                for n, number, protocol, app in ports
            ]
            or None,
        )
        for ports, (ready, unready) in sorted(groups.items(), key=lambda group: str(group[0]))
    ]
    labels = {k: v for k, v in (service.metadata.labels or {}).items() if k != HEADLESS}
    if _headless(service):
        labels[HEADLESS] = ""
    labels[LEGACY_MANAGED_BY] = LEGACY_MANAGER
    annotations = {OVER_CAPACITY: "truncated"} if count >= ENDPOINTS_SIZE else None
    meta = ObjectMeta(
        name=service.metadata.name,
        namespace=service.metadata.namespace,
        labels=labels,
        annotations=annotations,
    )
    return Endpoints(metadata=meta, subsets=subsets)


def _order(pod: Pod) -> tuple[int, str]:
    ip = (pod.status.pod_ip or "") if pod.status else ""
    try:
        return int(ipaddress.ip_address(ip)), pod.metadata.name or ""
    except ValueError:
        return 0, pod.metadata.name or ""


def _address(pod: Pod, service: Service, ip: str) -> EndpointAddress:
    node = pod.spec.node_name if pod.spec else None
    return EndpointAddress(
        ip=ip, hostname=_hostname(pod, service), node_name=node or None, target_ref=_target(pod)
    )
