"""Service addresses: which endpoints a virtual address stands for, told to nftables.

:func:`wanted` derives the whole table from Services and EndpointSlices; :class:`ServiceTable` makes the
difference to what the kernel has, in one transaction. Endpoints are chosen at random per connection, or
by the client's address where the Service asks for affinity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import NamedTuple

from mooring.kube.objects.core import Pod, Service, ServicePort
from mooring.kube.objects.discovery import Endpoint, EndpointSlice
from mooring.local.node import nft

__all__ = ["SERVICE_NAME_LABEL", "Backend", "Frontend", "ServiceTable", "Sticky", "host_ports", "wanted"]

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


class Frontend(NamedTuple):
    """A Service's address, protocol (``tcp`` or ``udp``) and port."""

    address: IPv4Address
    protocol: str
    port: int

    @property
    def element(self) -> str:
        """As nftables writes it."""
        return f"{self.address} . {self.protocol} . {self.port}"

    @property
    def chain(self) -> str:
        """The chain that chooses its endpoint."""
        return f"s_{int(self.address):08x}_{self.protocol}_{self.port}"


class Backend(NamedTuple):
    """A ready endpoint."""

    address: IPv4Address
    port: int


class Sticky(tuple[Backend, ...]):
    """Endpoints of which each client keeps to one (``sessionAffinity: ClientIP``)."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sticky) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


Table = Mapping[Frontend, tuple[Backend, ...]]


def wanted(
    services: Iterable[Service], slices: Iterable[EndpointSlice], *, nodes: Sequence[IPv4Address] = ()
) -> dict[Frontend, tuple[Backend, ...]]:
    """The frontends of all Services that have a cluster IP, with their ready endpoints, sorted.

    Node ports are such frontends too, at each of the nodes' addresses.
    """
    by_service: dict[tuple[str, str], list[EndpointSlice]] = {}
    for piece in slices:
        name = (piece.metadata.labels or {}).get(SERVICE_NAME_LABEL)
        if name and piece.address_type in (None, "IPv4"):
            by_service.setdefault((piece.metadata.namespace or "", name), []).append(piece)
    table: dict[Frontend, tuple[Backend, ...]] = {}
    for service in services:
        own = by_service.get((service.metadata.namespace or "", service.metadata.name or ""), [])
        for address in _cluster_addresses(service):
            for port in (service.spec.ports if service.spec else None) or ():
                protocol = (port.protocol or "TCP").lower()
                if protocol in ("tcp", "udp") and port.port:
                    table[Frontend(address, protocol, port.port)] = _chosen(service, port, own)
        for port in _with_node_port(service):
            for node in nodes:
                protocol = (port.protocol or "TCP").lower()
                if protocol in ("tcp", "udp"):
                    table[Frontend(node, protocol, port.node_port or 0)] = _chosen(service, port, own)
    return table


def _chosen(service: Service, port: ServicePort, own: Iterable[EndpointSlice]) -> tuple[Backend, ...]:
    found = _backends(port, own)
    sticks = service.spec is not None and service.spec.session_affinity == "ClientIP"
    return Sticky(found) if sticks else found


def _with_node_port(service: Service) -> list[ServicePort]:
    spec = service.spec
    if spec is None or spec.type not in ("NodePort", "LoadBalancer"):
        return []
    return [port for port in spec.ports or () if port.node_port]


def host_ports(pods: Iterable[Pod], nodes: Mapping[str, IPv4Address]) -> dict[Frontend, tuple[Backend, ...]]:
    """The frontends of containers' ``hostPort``, at the address of the pod's node (``nodes`` by name).

    One with a ``hostIP`` of the loopback is at that address: all nodes of the plane share it.
    """
    table: dict[Frontend, tuple[Backend, ...]] = {}
    for pod in pods:
        spec, status = pod.spec, pod.status
        node = nodes.get((spec.node_name if spec else None) or "")
        if spec is None or status is None or node is None or spec.host_network:
            continue
        if not status.pod_ip or status.phase in ("Succeeded", "Failed"):
            continue
        for container in (*(spec.containers or ()), *(spec.init_containers or ())):
            for port in container.ports or ():
                protocol = (port.protocol or "TCP").lower()
                at = _host_address(port.host_ip, node)
                if at and port.host_port and port.container_port and protocol in ("tcp", "udp"):
                    front = Frontend(at, protocol, port.host_port)
                    table[front] = (Backend(IPv4Address(status.pod_ip), port.container_port),)
    return table


def _host_address(wanted: str | None, node: IPv4Address) -> IPv4Address | None:
    """Where a host port is open; ``None``: at an address that the node does not have."""
    try:
        address = IPv4Address(wanted or "0.0.0.0")  # noqa: S104
    except AddressValueError:
        return None
    if address.is_unspecified:
        return node
    return address if address.is_loopback or address == node else None


def is_ready(endpoint: Endpoint) -> bool:
    """An endpoint that says nothing counts as ready, as the API has it."""
    return endpoint.conditions is None or endpoint.conditions.ready is not False


def _cluster_addresses(service: Service) -> list[IPv4Address]:
    spec = service.spec
    if spec is None or spec.type == "ExternalName":
        return []
    found: list[IPv4Address] = []
    for text in spec.cluster_ips or ([spec.cluster_ip] if spec.cluster_ip else []):
        try:
            found.append(IPv4Address(text))
        except AddressValueError:
            continue
    return found


def _backends(port: ServicePort, slices: Iterable[EndpointSlice]) -> tuple[Backend, ...]:
    found: set[Backend] = set()
    for piece in slices:
        for candidate in piece.ports or ():
            if (candidate.name or "") != (port.name or "") or not candidate.port:
                continue
            for endpoint in filter(is_ready, piece.endpoints or ()):
                found.update(Backend(IPv4Address(text), candidate.port) for text in endpoint.addresses or ())
    return tuple(sorted(found))


@dataclass(slots=True)
class ServiceTable:
    """What the kernel was told; :meth:`sync` tells it the rest."""

    table: str
    _told: dict[Frontend, tuple[Backend, ...]] = field(init=False, default_factory=dict)
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _closed: bool = field(init=False, default=False)

    async def sync(self, want: Table) -> bool:
        """Apply the difference in one transaction; false if there was none, or after :meth:`close`."""
        async with self._lock:
            batch = [] if self._closed else changes(self.table, self._told, want)
            if not batch:
                return False
            await nft.apply("\n".join(batch) + "\n")
            self._told = dict(want)
            return True

    async def close(self) -> None:
        """Wait for what is under way; from now on the kernel's table may go."""
        async with self._lock:
            self._closed = True


def changes(table: str, told: Table, want: Table) -> list[str]:
    """The commands that lead from one table to the other."""
    batch: list[str] = []
    for frontend in sorted(told.keys() - want.keys()):
        batch += _remove(table, frontend, told[frontend])
    for frontend in sorted(want):
        old, new = told.get(frontend), want[frontend]
        if old != new:
            batch += _replace(table, frontend, old, new)
    before = {backend.address for backends in told.values() for backend in backends}
    after = {backend.address for backends in want.values() for backend in backends}
    batch += _hairpin(table, "delete", before - after) + _hairpin(table, "add", after - before)
    return batch


def _replace(
    table: str, frontend: Frontend, old: tuple[Backend, ...] | None, new: tuple[Backend, ...]
) -> list[str]:
    if not new:
        gone = _remove(table, frontend, old) if old is not None else []
        return [*gone, f"add element ip {table} refused {{ {frontend.element} }}"]
    chain = frontend.chain
    choices = ", ".join(f"{n} : {address} . {port}" for n, (address, port) in enumerate(new))
    choice = "jhash ip saddr" if isinstance(new, Sticky) else "numgen random"
    rule = (
        f"add rule ip {table} {chain} ip protocol {frontend.protocol} "
        f"dnat ip to {choice} mod {len(new)} map {{ {choices} }}"
    )
    if old:
        return [f"flush chain ip {table} {chain}", rule]
    gone = _remove(table, frontend, old) if old is not None else []
    element = f"add element ip {table} services {{ {frontend.element} : goto {chain} }}"
    return [*gone, f"add chain ip {table} {chain}", rule, element]


def _remove(table: str, frontend: Frontend, old: tuple[Backend, ...]) -> list[str]:
    if not old:
        return [f"delete element ip {table} refused {{ {frontend.element} }}"]
    return [
        f"delete element ip {table} services {{ {frontend.element} }}",
        f"flush chain ip {table} {frontend.chain}",
        f"delete chain ip {table} {frontend.chain}",
    ]


def _hairpin(table: str, verb: str, addresses: set[IPv4Address]) -> list[str]:
    if not addresses:
        return []
    elements = ", ".join(f"{address} . {address}" for address in sorted(addresses))
    return [f"{verb} element ip {table} hairpin {{ {elements} }}"]
