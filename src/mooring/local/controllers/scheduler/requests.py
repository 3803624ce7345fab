"""What a pod asks of a node: resources and host ports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from mooring.kube.objects.core import Container, Pod
from mooring.kube.quantity import parse_quantity

__all__ = ["HostPort", "host_ports", "ports_conflict", "requests_of"]

Amounts = dict[str, Decimal]


class HostPort(NamedTuple):
    """A port of the node that a container wants."""

    ip: str
    protocol: str
    port: int


def requests_of(pod: Pod) -> Amounts:
    """The amount of each resource the scheduler sets aside for a pod.

    The larger of what runs together (containers and sidecars) and of each init container beside the
    sidecars started before it; pod-level requests replace it; the overhead comes on top.
    """
    spec = pod.spec
    if spec is None:
        return {}
    total: Amounts = {}
    for container in spec.containers or ():
        _add(total, _amounts(container))
    peak, sidecars = _init_peak(spec.init_containers or ())
    _add(total, sidecars)
    for name, amount in peak.items():
        total[name] = max(amount, total.get(name, Decimal(0)))
    if spec.resources is not None:
        total.update(_parsed(spec.resources.requests))
    _add(total, _parsed(spec.overhead))
    return {name: amount for name, amount in total.items() if amount}


def _init_peak(containers: Iterable[Container]) -> tuple[Amounts, Amounts]:
    peak: Amounts = {}
    sidecars: Amounts = {}
    for container in containers:
        wanted = _amounts(container)
        if container.restart_policy == "Always":
            _add(sidecars, wanted)
            wanted = dict(sidecars)
        else:
            _add(wanted, sidecars)
        for name, amount in wanted.items():
            peak[name] = max(amount, peak.get(name, Decimal(0)))
    return peak, sidecars


def _amounts(container: Container) -> Amounts:
    return _parsed(container.resources.requests if container.resources else None)


def _parsed(amounts: Mapping[str, int | float | str] | None) -> Amounts:
    return {name: parse_quantity(value) for name, value in (amounts or {}).items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + amount


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The node's ports that the pod's containers want."""
    spec = pod.spec
    if spec is None:
        return ()
    containers = [*(spec.containers or ()), *(c for c in spec.init_containers or () if c.restart_policy)]
    return tuple(
        HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104
        for container in containers
        for port in container.ports or ()
        if port.host_port
    )


def ports_conflict(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Whether any wanted port is taken; the address 0.0.0.0 takes all."""
    taken = list(used)
    everywhere = "0.0.0.0"  # noqa: S104
    return any(
        a.port == b.port and a.protocol == b.protocol and (a.ip == b.ip or everywhere in (a.ip, b.ip))
        for a in wanted
        for b in taken
    )
