"""The EndpointSlices of Endpoints that somebody wrote by hand: one for each set of ports and family. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from mooring.kube.object import owner_reference
from mooring.kube.objects.core import EndpointAddress, Endpoints, EndpointSubset, Service
from mooring.kube.objects.discovery import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.controllers.endpoints.plan import MANAGED_BY, SERVICE_NAME, SlicePlan
from mooring.local.controllers.pods import stable_suffix

__all__ = ["MIRROR", "mirrored", "mirrors_of"]

MIRROR = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
#: Annotations that speak of the Endpoints themselves.
_OWN = (
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
)
#: Addresses of a subset that are shown at most.
SUBSET_SIZE = 1000

_Ports = tuple[tuple[str, int, str, str | None], ...]


def mirrored(endpoints: Endpoints, service: Service | None) -> bool:
    """Whether slices are made of Endpoints: their Service is there, and no selector makes them."""
    meta = endpoints.metadata
    return (
        service is not None
        and service.spec is not None
        and not service.spec.selector
        and meta.deletion_timestamp is None
        and (meta.labels or {}).get(SKIP) != "true"
        and LEADER not in (meta.annotations or {})
    )


def mirrors_of(endpoints: Endpoints | None, present: Iterable[EndpointSlice]) -> SlicePlan:
    """What makes the mirrors right; of no Endpoints there are none."""
    groups = _groups(endpoints.subsets or ()) if endpoints is not None else {}
    free = {
        _group_of(each): each for each in sorted(present, key=lambda s: s.metadata.name or "", reverse=True)
    }
    surplus = [each for each in present if each not in free.values()]
    create: list[EndpointSlice] = []
    update: list[tuple[EndpointSlice, EndpointSlice]] = []
    for group, found in sorted(groups.items(), key=str):
        assert endpoints is not None
        old = free.pop(group, None)
        new = _slice(endpoints, group, found, name=(old.metadata.name or "") if old is not None else "")
        if old is None:
            create.append(new)
        elif _differs(old, new):
            update.append((old, new))
    return SlicePlan(tuple(create), tuple(update), (*surplus, *free.values()))


def _groups(subsets: Iterable[EndpointSubset]) -> dict[tuple[str, _Ports], list[Endpoint]]:
    groups: dict[tuple[str, _Ports], list[Endpoint]] = {}
    for subset in subsets:
        ports = tuple(
            sorted(
                (
                    (p.name or "", p.port or 0, p.protocol or "TCP", p.app_protocol)
                    for p in subset.ports or ()
                ),
                key=str,
            )
        )
        listed = [(address, True) for address in subset.addresses or ()]
        listed += [(address, False) for address in subset.not_ready_addresses or ()]
        for address, ready in listed[:SUBSET_SIZE]:
            if (family := _family(address.ip or "")) is not None:
                groups.setdefault((family, ports), []).append(_endpoint(address, ready=ready))
    return groups


def _family(address: str) -> str | None:
    try:
        return f"IPv{ipaddress.ip_address(address).version}"
    except ValueError:
        return None


def _endpoint(address: EndpointAddress, *, ready: bool) -> Endpoint:
    return Endpoint(
        addresses=[address.ip or ""],
        conditions=EndpointConditions(ready=ready),
        hostname=address.hostname or None,
        node_name=address.node_name or None,
        target_ref=address.target_ref,
    )


def _group_of(each: EndpointSlice) -> tuple[str, _Ports]:
    ports = ((p.name or "", p.port or 0, p.protocol or "TCP", p.app_protocol) for p in each.ports or ())
    return each.address_type or "", tuple(sorted(ports, key=str))


def _slice(
    endpoints: Endpoints, group: tuple[str, _Ports], found: list[Endpoint], *, name: str
) -> EndpointSlice:
    meta, (family, ports) = endpoints.metadata, group
    annotations = {k: v for k, v in (meta.annotations or {}).items() if k not in _OWN}
    return EndpointSlice(
        metadata=ObjectMeta(
            name=name or f"{(meta.name or '')[:57]}-{stable_suffix(meta.uid, group)}",
            generate_name=f"{meta.name}-",
            namespace=meta.namespace,
            labels={**(meta.labels or {}), SERVICE_NAME: meta.name or "", MANAGED_BY: MIRROR},
            annotations=annotations,
            owner_references=[owner_reference(endpoints)],
        ),
        address_type=family,
        endpoints=found,
        ports=[EndpointPort(name=n, port=p, protocol=t, app_protocol=a) for n, p, t, a in ports],
    )


def _differs(old: EndpointSlice, new: EndpointSlice) -> bool:
    return (
        old.metadata.labels != new.metadata.labels
        or (old.metadata.annotations or {}) != (new.metadata.annotations or {})
        or old.endpoints != new.endpoints
    )
