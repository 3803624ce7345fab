"""The rules of endpoints: the old kind, and the slices that took its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import duplicate, invalid, not_supported, required, too_many
from mooring.local.api.validation.addresses import endpoint_ip_errors, ip_errors, parsed_ip
from mooring.local.api.validation.metadata import label_errors
from mooring.local.api.validation.rules import (
    PROTOCOLS,
    Errors,
    JsonObject,
    Rules,
    Table,
    chosen,
    fixed,
    items,
    port_number,
)

__all__ = ["RULES"]

# --- endpoints ----------------------------------------------------------------------------------------


def _endpoints(obj: JsonObject) -> Errors:
    for path, subset in items(obj, "subsets", ""):
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(path, "must specify `addresses` or `notReadyAddresses`")
        for key in ("addresses", "notReadyAddresses"):
            for place, address in items(subset, key, path):
                yield from _address(address, place)
        ports = subset.get("ports") or ()
        for place, port in items(subset, "ports", path):
            yield from _port(port, place, named=len(ports) > 1)


def _address(address: JsonObject, path: str) -> Errors:
    ip = address.get("ip") or ""
    yield from ip_errors(ip, f"{path}.ip")
    yield from _texts(address.get("hostname"), f"{path}.hostname", names.dns1123_label)
    if (node := address.get("nodeName")) is not None:
        for text in names.dns1123_subdomain(node):
            yield invalid(f"{path}.nodeName", node, text)
    yield from endpoint_ip_errors(ip, f"{path}.ip")


def _texts(value: str | None, path: str, check: Callable[[str], tuple[str, ...]]) -> Errors:
    for text in check(value) if value else ():
        yield invalid(path, value, text)


def _port(port: JsonObject, path: str, *, named: bool) -> Errors:
    if named and not port.get("name"):
        yield required(f"{path}.name")
    yield from _texts(port.get("name"), f"{path}.name", names.dns1123_label)
    yield from port_number(port.get("port") or 0, f"{path}.port")
    yield from chosen(port, "protocol", PROTOCOLS, path)
    if (protocol := port.get("appProtocol")) is not None:
        for text in names.qualified_name(protocol):
            yield invalid(f"{path}.appProtocol", protocol, text)


def _endpoints_update(obj: JsonObject, old: JsonObject) -> Errors:
    if not same(obj.get("subsets"), old.get("subsets")):
        yield from _endpoints(obj)


# --- slices -------------------------------------------------------------------------------------------

_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_MOST_ENDPOINTS: Final = 1000
_MOST_ADDRESSES: Final = 100
_MOST_PORTS: Final = 20000
_MOST_LABELS: Final = 16
_MOST_HINTS: Final = 8


def _slice(obj: JsonObject) -> Errors:
    yield from _slice_head(obj)
    yield from _slice_endpoints(obj)


def _slice_head(obj: JsonObject) -> Errors:
    yield from chosen(obj, "addressType", _TYPES, "")
    yield from _many(obj.get("ports"), "ports", _MOST_PORTS)
    known: set[str] = set()
    for path, port in items(obj, "ports", ""):
        name = port.get("name") or ""
        yield from _texts(name, f"{path}.name", names.dns1123_label)
        if name in known:
            yield duplicate(f"{path}.name", name)
        known.add(name)
        protocol = port.get("protocol")
        if protocol is None:
            yield required(f"{path}.protocol")
        elif protocol not in PROTOCOLS:
            yield not_supported(f"{path}.protocol", protocol, PROTOCOLS)
        if (used := port.get("appProtocol")) is not None:
            for text in names.qualified_name(used):
                yield invalid(f"{path}.appProtocol", used, text)


def _many(found: object, path: str, most: int) -> Errors:
    if isinstance(found, (list, dict)) and len(found) > most:
        yield too_many(path, len(found), most)


def _slice_endpoints(obj: JsonObject) -> Errors:
    yield from _many(obj.get("endpoints"), "endpoints", _MOST_ENDPOINTS)
    kind = obj.get("addressType") or ""
    for path, endpoint in items(obj, "endpoints", ""):
        if not endpoint.get("addresses"):
            yield required(f"{path}.addresses", "must contain at least 1 address")
        yield from _many(endpoint.get("addresses"), f"{path}.addresses", _MOST_ADDRESSES)
        for place, address in items(endpoint, "addresses", path):
            yield from _slice_address(address, kind, place, f"{path}.addresses")
        if (node := endpoint.get("nodeName")) is not None:
            for text in names.dns1123_subdomain(node):
                yield invalid(f"{path}.nodeName", node, text)
        topology = endpoint.get("deprecatedTopology")
        yield from _many(topology, f"{path}.deprecatedTopology", _MOST_LABELS)
        yield from label_errors(topology, f"{path}.deprecatedTopology")
        if (host := endpoint.get("hostname")) is not None:
            for text in names.dns1123_label(host):
                yield invalid(f"{path}.hostname", host, text)
        hints = endpoint.get("hints") or {}
        yield from _hints(hints, "forZones", f"{path}.hints", names.label_value)
        yield from _hints(hints, "forNodes", f"{path}.hints", names.dns1123_subdomain)


def _slice_address(address: str, kind: str, path: str, several: str) -> Errors:
    if kind == "FQDN":
        yield from _full_name(address, path)
    elif kind in ("IPv4", "IPv6"):
        wrong = list(ip_errors(address, path, canonical=kind == "IPv6"))
        yield from wrong
        if not wrong:
            parsed = parsed_ip(address)
            if parsed is None or f"IPv{parsed.version}" != kind:
                yield invalid(several, address, f"must be an {kind} address")
            yield from endpoint_ip_errors(address, path)


def _full_name(name: str, path: str) -> Errors:
    if not name:
        yield required(path)
        return
    name = name.removesuffix(".")
    if texts := names.dns1123_subdomain(name):
        yield invalid(path, name, ",".join(texts))
    elif "." not in name:
        yield invalid(path, name, "should be a domain with at least two segments separated by dots")
    else:
        wrong: Iterable[tuple[str, tuple[str, ...]]] = (
            (label, texts) for label in name.split(".") if (texts := names.dns1123_label(label))
        )
        for label, texts in list(wrong)[:1]:
            yield invalid(path, label, ",".join(texts))


def _hints(hints: JsonObject, key: str, path: str, check: Callable[[str], tuple[str, ...]]) -> Errors:
    yield from _many(hints.get(key), f"{path}.{key}", _MOST_HINTS)
    known: set[str] = set()
    for place, hint in items(hints, key, path):
        name = hint.get("name") or ""
        if name in known:
            yield duplicate(f"{place}.name", name)
        known.add(name)
        for text in check(name):
            yield invalid(f"{place}.name", name, text)


def _slice_update(obj: JsonObject, old: JsonObject) -> Errors:
    yield from _slice_head(obj)
    if not same(obj.get("endpoints"), old.get("endpoints")):
        yield from _slice_endpoints(obj)
    yield from fixed("addressType")(obj, old)


RULES: Final[Table] = {
    ("", "Endpoints"): Rules(_endpoints, _endpoints_update),
    ("discovery.k8s.io", "EndpointSlice"): Rules(_slice, _slice_update),
}
