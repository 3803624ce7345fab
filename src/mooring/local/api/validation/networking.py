"""The rules of networking: what leads to Services, what is kept from pods, and addresses of Services."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import forbidden, invalid, not_supported, required, too_long
from mooring.local.api.validation.addresses import (
    Network,
    cidr_errors,
    ip_errors,
    parsed_ip,
    parsed_network,
)
from mooring.local.api.validation.metadata import immutable, selector_errors
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Rules,
    Table,
    also,
    fixed,
    items,
    named,
    port_errors,
    port_number,
    spec_of,
)

__all__ = ["RULES", "prefixed_path"]

# --- ingresses ----------------------------------------------------------------------------------------

_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_IN_PATHS: Final = ("//", "/./", "/../", "%2f", "%2F")
_NOT_AT_ENDS: Final = ("/..", "/.")
_CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
_WILDCARD: Final = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_TEXT: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. "
    f"'*.example.com', regex used for validation is '{_WILDCARD}')"
)


def _host_name(host: str) -> tuple[str, ...]:
    if "*" not in host:
        return names.dns1123_subdomain(host)
    return () if re.fullmatch(_WILDCARD, host) else (_WILDCARD_TEXT,)


def _ingress(obj: JsonObject) -> Errors:
    yield from _ingress_spec(obj)
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    given, wanted = annotations.get(_CLASS_ANNOTATION), spec_of(obj).get("ingressClassName")
    if given is not None and wanted is not None and given != wanted:
        text = "must match `ingressClassName` when both are specified"
        yield invalid(f"annotations.{_CLASS_ANNOTATION}", given, text)


def _ingress_spec(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    backend = spec.get("defaultBackend")
    if backend is not None:
        yield from _backend(backend, "spec.defaultBackend")
    elif not spec.get("rules"):
        yield invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    for path, rule in items(spec, "rules", "spec"):
        host = rule.get("host") or ""
        if parsed_ip(host) is not None:
            yield invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
        for text in _host_name(host) if host else ():
            yield invalid(f"{path}.host", host, text)
        if (http := rule.get("http")) is not None:
            if not http.get("paths"):
                yield required(f"{path}.http.paths")
            for place, item in items(http, "paths", f"{path}.http"):
                yield from _path(item, place)
    for path, secured in items(spec, "tls", "spec"):
        for place, host in items(secured, "hosts", path):
            for text in _host_name(host):
                yield invalid(place, host, text)
        secret = secured.get("secretName") or ""
        for text in names.dns1123_subdomain(secret) if secret else ():
            yield invalid(f"{path}.secretName", secret, text)
    if (name := spec.get("ingressClassName")) is not None:
        for text in names.dns1123_subdomain(name):
            yield invalid("spec.ingressClassName", name, text)


def _path(item: JsonObject, path: str) -> Errors:
    kind, where = item.get("pathType"), item.get("path") or ""
    if kind is None:
        yield required(f"{path}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        yield not_supported(f"{path}.pathType", kind, _PATH_TYPES)
    elif not where.startswith("/") and (where or kind != "ImplementationSpecific"):
        yield invalid(f"{path}.path", where, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for part in _NOT_IN_PATHS:
            if part in where:
                yield invalid(f"{path}.path", where, f"must not contain '{part}'")
        for part in _NOT_AT_ENDS:
            if where.endswith(part):
                yield invalid(f"{path}.path", where, f"cannot end with '{part}'")
    yield from _backend(item.get("backend") or {}, f"{path}.backend")


def _backend(backend: JsonObject, path: str) -> Errors:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _object_reference(resource, f"{path}.resource")
    elif service is None:
        yield invalid(path, "", "resource or service backend is required")
    else:
        yield from named(service.get("name") or "", f"{path}.service.name", names.dns1123_label)
        port = service.get("port") or {}
        name, number = port.get("name"), port.get("number")
        if name and number:
            yield invalid(path, "", "cannot set both port name & port number")
        elif name:
            yield from port_errors(name, f"{path}.service.port.name")
        elif number:
            yield from port_number(number, f"{path}.service.port.number")
        else:
            yield required(path, "port name or number is required")


def _object_reference(reference: JsonObject, path: str) -> Errors:
    if (group := reference.get("apiGroup")) is not None:
        for text in names.dns1123_subdomain(group):
            yield invalid(f"{path}.apiGroup", group, text)
    for key in ("kind", "name"):
        yield from named(reference.get(key) or "", f"{path}.{key}", names.http_path_segment)


def _ingress_status(obj: JsonObject, old: JsonObject) -> Errors:
    status, before = obj.get("status") or {}, old.get("status") or {}
    if same(status, before):
        return
    known = {point.get("ip") for _, point in items(before.get("loadBalancer") or {}, "ingress", "")}
    for path, point in items(status.get("loadBalancer") or {}, "ingress", "status.loadBalancer"):
        ip, host = point.get("ip") or "", point.get("hostname") or ""
        if ip and ip not in known:
            yield from ip_errors(ip, f"{path}.ip")
        for text in names.dns1123_subdomain(host) if host else ():
            yield invalid(f"{path}.hostname", host, text)
        if parsed_ip(host) is not None:
            yield invalid(f"{path}.hostname", host, "must be a DNS name, not an IP address")


# --- classes ------------------------------------------------------------------------------------------

_LONGEST_CONTROLLER: Final = 250
_URL_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_SCOPES: Final = ("Cluster", "Namespace")


def _class(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    controller = spec.get("controller") or ""
    if len(controller.encode()) > _LONGEST_CONTROLLER:
        yield too_long("spec.controller", _LONGEST_CONTROLLER)
    yield from prefixed_path(controller, "spec.controller")
    if (parameters := spec.get("parameters")) is not None:
        yield from _object_reference(parameters, "spec.parameters")
        yield from _scope(parameters, "spec.parameters")


def prefixed_path(text: str, path: str) -> Errors:
    """Yield what is wrong with a path in a domain: `example.com/name`."""
    host, _, rest = text.partition("/")
    if not text:
        yield required(path)
    elif not host or not rest:
        yield invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        for why in names.dns1123_subdomain(host):
            yield invalid(path, host, why)
        if re.fullmatch(_URL_PATH, rest) is None:
            yield invalid(path, rest, f"Invalid path (regex used for validation is '{_URL_PATH}')")


def _scope(parameters: JsonObject, path: str) -> Errors:
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        yield required(f"{path}.scope")
    if scope not in _SCOPES:
        yield not_supported(f"{path}.scope", scope or "", _SCOPES)
    elif scope == "Cluster" and namespace is not None:
        yield forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
    elif scope == "Namespace" and namespace is None:
        yield required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif scope == "Namespace" and namespace is not None:
        for text in names.dns1123_label(namespace):
            yield invalid(f"{path}.namespace", namespace, text)


# --- policies -----------------------------------------------------------------------------------------

_DIRECTIONS: Final = ("Ingress", "Egress")
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")


def _network_policy(obj: JsonObject) -> Errors:
    yield from _network_policy_spec(spec_of(obj), frozenset())


def _network_policy_update(obj: JsonObject, old: JsonObject) -> Errors:
    if not same(spec_of(obj), spec_of(old)):
        yield from _network_policy_spec(spec_of(obj), frozenset(_ranges(spec_of(old))))


def _ranges(spec: JsonObject) -> list[str]:
    blocks = [
        peer["ipBlock"]
        for rules, peers in (("ingress", "from"), ("egress", "to"))
        for rule in spec.get(rules) or ()
        for peer in rule.get(peers) or ()
        if peer.get("ipBlock") is not None
    ]
    return [text for block in blocks for text in (block.get("cidr") or "", *(block.get("except") or ()))]


def _network_policy_spec(spec: JsonObject, known: frozenset[str]) -> Errors:
    yield from selector_errors(spec.get("podSelector"), "spec.podSelector")
    for rules, peers in (("ingress", "from"), ("egress", "to")):
        for path, rule in items(spec, rules, "spec"):
            for place, port in items(rule, "ports", path):
                yield from _policy_port(port, place)
            for place, peer in items(rule, peers, path):
                yield from _peer(peer, place, known)
    types = spec.get("policyTypes") or []
    if len(types) > len(_DIRECTIONS):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
    for path, kind in items(spec, "policyTypes", "spec"):
        if kind not in _DIRECTIONS:
            yield not_supported(path, kind, _DIRECTIONS)


def _policy_port(item: JsonObject, path: str) -> Errors:
    protocol, port, last = (item.get(key) for key in ("protocol", "port", "endPort"))
    if protocol is not None and protocol not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
    if port is None:
        if last is not None:
            yield invalid(f"{path}.endPort", last, "may not be specified when `port` is not specified")
    elif isinstance(port, str):
        if last is not None:
            yield invalid(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
        yield from port_errors(port, f"{path}.port")
    else:
        yield from port_number(port, f"{path}.port")
        if last is not None and last < port:
            yield invalid(f"{path}.endPort", port, "must be greater than or equal to `port`")
        if last is not None:
            yield from port_number(last, f"{path}.endPort")


def _peer(peer: JsonObject, path: str, known: frozenset[str]) -> Errors:
    block = peer.get("ipBlock")
    selectors = [key for key in ("podSelector", "namespaceSelector") if peer.get(key) is not None]
    for key in selectors:
        yield from selector_errors(peer[key], f"{path}.{key}")
    if block is not None:
        yield from _block(block, f"{path}.ipBlock", known)
    if block is None and not selectors:
        yield required(path, "must specify a peer")
    elif block is not None and selectors:
        yield forbidden(path, "may not specify both ipBlock and another peer")


def _block(block: JsonObject, path: str, known: frozenset[str]) -> Errors:
    whole = block.get("cidr") or ""
    if not whole:
        yield required(f"{path}.cidr")
    if whole not in known:
        yield from cidr_errors(whole, f"{path}.cidr")
    if (outer := parsed_network(whole)) is None:
        return
    for place, text in items(block, "except", path):
        if text not in known:
            yield from cidr_errors(text, place)
        inner = parsed_network(text)
        if inner is not None and not _inside(inner, outer):
            yield invalid(place, text, "must be a strict subset of `cidr`")


def _inside(inner: Network, outer: Network) -> bool:
    return inner.network_address in outer and inner.prefixlen > outer.prefixlen


# --- addresses of services ----------------------------------------------------------------------------


def _ip_address(obj: JsonObject) -> Errors:
    parent, path = spec_of(obj).get("parentRef"), "spec.parentRef"
    if parent is None:
        yield required(path)
        return
    checks: tuple[tuple[str, bool, Callable[[str], tuple[str, ...]]], ...] = (
        ("group", False, names.dns1123_subdomain),
        ("resource", True, names.http_path_segment),
        ("name", True, names.http_path_segment),
        ("namespace", False, names.http_path_segment),
    )
    for key, needed, check in checks:
        if needed or parent.get(key):
            yield from named(parent.get(key) or "", f"{path}.{key}", check)


def _service_range(obj: JsonObject) -> Errors:
    ranges = spec_of(obj).get("cidrs") or []
    if not ranges:
        yield required("spec.cidrs", "at least one CIDR required")
    if len(ranges) > 2:
        yield invalid("spec.cidrs", spec_of(obj), "may only hold up to 2 values")
    for path, text in items(spec_of(obj), "cidrs", "spec"):
        yield from cidr_errors(text, path, canonical=True)
    families = [network.version for text in ranges if (network := parsed_network(text)) is not None]
    if len(ranges) == len(families) == 2 and families[0] == families[1]:
        text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        yield invalid("spec.cidrs", ranges, text)


def _service_range_update(obj: JsonObject, old: JsonObject) -> Errors:
    ranges, before = (spec_of(one).get("cidrs") or [] for one in (obj, old))
    if len(ranges) == len(before) or (len(before), len(ranges)) == (1, 2):
        for index, was in enumerate(before):
            yield from immutable(ranges[index], was, f"spec.cidrs[{index}]")
    else:
        yield from immutable(ranges, before, "spec.cidrs")
    if (len(before), len(ranges)) == (1, 2):
        yield from _service_range(obj)


_GROUP: Final = "networking.k8s.io"

RULES: Final[Table] = {
    (_GROUP, "Ingress"): Rules(_ingress, also(_ingress_spec).update, _ingress_status),
    (_GROUP, "IngressClass"): also(_class, fixed("spec.controller")),
    (_GROUP, "IPAddress"): also(_ip_address, fixed("spec.parentRef")),
    (_GROUP, "NetworkPolicy"): Rules(_network_policy, _network_policy_update),
    (_GROUP, "ServiceCIDR"): Rules(_service_range, _service_range_update),
}
