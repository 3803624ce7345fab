"""The functions a Kubernetes API server adds to CEL: quantities, URLs, addresses, regular expressions, lists.

Values of their own types (Quantity, URL, IP, CIDR) are maps with one marked key here, so that they
compare equal when they are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from decimal import Decimal
from itertools import islice, pairwise
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cel_expr_python import cel

from mooring.local.api import patterns
from mooring.local.api.wire import canonical_quantity, quantity_value

__all__ = ["kubernetes_functions"]

_T: Final = cel.Type
_ANY, _TEXT, _BOOL, _INT, _DOUBLE = _T.DYN, _T.STRING, _T.BOOL, _T.INT, _T.DOUBLE
_LIST: Final = _T.List(_T.DYN)
Value = dict[str, Any]


def _declare(
    name: str, result: Any, parameters: list[Any], function: Callable[..., Any], *, member: bool = False
) -> tuple[str, Any]:
    kinds = "_".join(str(parameter.name()) for parameter in parameters)
    return name, cel.Overload(f"k8s_{name}_{kinds}", result, parameters, member, function)


def _parses(function: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            function(text)
        except ValueError:
            return False
        return True

    return check


# --- quantities ---------------------------------------------------------------------------------------


def _quantity(text: str) -> Value:
    return {"$quantity": canonical_quantity(text)}


def _number(value: Any) -> Decimal:
    if isinstance(value, (int, float)):
        return Decimal(value)
    return quantity_value(value["$quantity"])


def _of(number: Decimal, like: Value) -> Value:
    suffix = "Ki" if like["$quantity"].endswith("i") else ""
    return _quantity(f"{number / 1024:f}{suffix}" if suffix else f"{number:f}")


def _is_integer(value: Value) -> bool:
    number = _number(value)
    return number == number.to_integral_value() and -(2**63) <= number < 2**63


def _as_integer(value: Value) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(_number(value))


def _sign(number: Decimal) -> int:
    return (number > 0) - (number < 0)


_QUANTITIES = [
    _declare("isQuantity", _BOOL, [_TEXT], _parses(canonical_quantity)),
    _declare("quantity", _ANY, [_TEXT], _quantity),
    _declare("sign", _INT, [_ANY], lambda q: _sign(_number(q)), member=True),
    _declare("isInteger", _BOOL, [_ANY], _is_integer, member=True),
    _declare("asInteger", _INT, [_ANY], _as_integer, member=True),
    _declare("asApproximateFloat", _DOUBLE, [_ANY], lambda q: float(_number(q)), member=True),
    _declare("add", _ANY, [_ANY, _ANY], lambda a, b: _of(_number(a) + _number(b), a), member=True),
    _declare("sub", _ANY, [_ANY, _ANY], lambda a, b: _of(_number(a) - _number(b), a), member=True),
    _declare("isLessThan", _BOOL, [_ANY, _ANY], lambda a, b: _number(a) < _number(b), member=True),
    _declare("isGreaterThan", _BOOL, [_ANY, _ANY], lambda a, b: _number(a) > _number(b), member=True),
    _declare("compareTo", _INT, [_ANY, _ANY], lambda a, b: _sign(_number(a) - _number(b)), member=True),
]

# --- URLs and addresses -------------------------------------------------------------------------------


def _url(text: str) -> Value:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")) or any(c.isspace() for c in text):
        raise ValueError(
            f"URL parse error during conversion from string: parse {text!r}: invalid URI for request"
        )
    return {"$url": text}


def _host(value: Value) -> str:
    return urlsplit(value["$url"]).netloc.rpartition("@")[2]


def _ip(text: str) -> Value:
    return {"$ip": str(ipaddress.ip_address(text))}


def _is_ip(text: str) -> bool:
    return "%" not in text and _parses(ipaddress.ip_address)(text)


def _cidr(text: str) -> Value:
    if "/" not in text:
        raise ValueError(f"network address parse error during conversion from string: {text}")
    return {"$cidr": str(ipaddress.ip_interface(text).with_prefixlen)}


def _address(value: Any) -> Any:
    return ipaddress.ip_address(value if isinstance(value, str) else value["$ip"])


def _interface(value: Any) -> Any:
    return ipaddress.ip_interface(value if isinstance(value, str) else value["$cidr"])


def _contains_cidr(outer: Value, inner: Any) -> bool:
    a, b = _interface(outer).network, _interface(inner).network
    return bool(a.version == b.version and b.subnet_of(a))


_ADDRESSES = [
    _declare("isURL", _BOOL, [_TEXT], _parses(_url)),
    _declare("url", _ANY, [_TEXT], _url),
    _declare("getScheme", _TEXT, [_ANY], lambda u: urlsplit(u["$url"]).scheme, member=True),
    _declare("getHost", _TEXT, [_ANY], _host, member=True),
    _declare("getHostname", _TEXT, [_ANY], lambda u: urlsplit(u["$url"]).hostname or "", member=True),
    _declare("getPort", _TEXT, [_ANY], lambda u: str(urlsplit(u["$url"]).port or ""), member=True),
    _declare("getEscapedPath", _TEXT, [_ANY], lambda u: urlsplit(u["$url"]).path, member=True),
    _declare("getQuery", _ANY, [_ANY], lambda u: parse_qs(urlsplit(u["$url"]).query, True), member=True),
    _declare("isIP", _BOOL, [_TEXT], _is_ip),
    _declare("ip", _ANY, [_TEXT], _ip),
    _declare("family", _INT, [_ANY], lambda ip: _address(ip).version, member=True),
    _declare("isUnspecified", _BOOL, [_ANY], lambda ip: _address(ip).is_unspecified, member=True),
    _declare("isLoopback", _BOOL, [_ANY], lambda ip: _address(ip).is_loopback, member=True),
    _declare("isLinkLocalMulticast", _BOOL, [_ANY], lambda ip: _address(ip).is_multicast, member=True),
    _declare("isLinkLocalUnicast", _BOOL, [_ANY], lambda ip: _address(ip).is_link_local, member=True),
    _declare("isGlobalUnicast", _BOOL, [_ANY], lambda ip: not _special(_address(ip)), member=True),
    _declare("isCIDR", _BOOL, [_TEXT], _parses(_cidr)),
    _declare("cidr", _ANY, [_TEXT], _cidr),
    _declare(
        "containsIP", _BOOL, [_ANY, _ANY], lambda c, i: _address(i) in _interface(c).network, member=True
    ),
    _declare("containsCIDR", _BOOL, [_ANY, _ANY], _contains_cidr, member=True),
    _declare("prefixLength", _INT, [_ANY], lambda c: _interface(c).network.prefixlen, member=True),
    _declare("masked", _ANY, [_ANY], lambda c: {"$cidr": str(_interface(c).network)}, member=True),
]


def _special(address: Any) -> bool:
    return bool(
        address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    )


# --- texts and lists ----------------------------------------------------------------------------------


def _find(text: str, pattern: str) -> str:
    return patterns.find(pattern, text)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return list(islice(patterns.find_all(pattern, text), limit if limit >= 0 else None))


def _contains_all(outer: list[Any], inner: list[Any]) -> bool:
    return all(item in outer for item in inner)


def _sum(items: list[Any]) -> Any:
    return sum(items[1:], items[0]) if items else 0


def _extreme(pick: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def function(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return pick(items)

    return function


def _is_sorted(items: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _index(items: list[Any], item: Any) -> int:
    return items.index(item) if item in items else -1


def _last_index(items: list[Any], item: Any) -> int:
    return next((i for i in range(len(items) - 1, -1, -1) if items[i] == item), -1)


_TEXTS = [
    _declare("find", _TEXT, [_TEXT, _TEXT], _find, member=True),
    _declare("findAll", _T.List(_TEXT), [_TEXT, _TEXT], _find_all, member=True),
    _declare("findAll", _T.List(_TEXT), [_TEXT, _TEXT, _INT], _find_all, member=True),
    _declare("isSorted", _BOOL, [_LIST], _is_sorted, member=True),
    _declare("sum", _ANY, [_LIST], _sum, member=True),
    _declare("min", _ANY, [_LIST], _extreme(min, "min"), member=True),
    _declare("max", _ANY, [_LIST], _extreme(max, "max"), member=True),
    _declare("indexOf", _INT, [_LIST, _ANY], _index, member=True),
    _declare("lastIndexOf", _INT, [_LIST, _ANY], _last_index, member=True),
    _declare("jsonpatch.escapeKey", _TEXT, [_TEXT], lambda key: key.replace("~", "~0").replace("/", "~1")),
    _declare("sets.contains", _BOOL, [_LIST, _LIST], _contains_all),
    _declare(
        "sets.equivalent", _BOOL, [_LIST, _LIST], lambda a, b: _contains_all(a, b) and _contains_all(b, a)
    ),
    _declare("sets.intersects", _BOOL, [_LIST, _LIST], lambda a, b: any(item in b for item in a)),
]


def kubernetes_functions() -> Any:
    """Return the library, to be given to a CEL environment."""
    overloads: dict[str, list[Any]] = {}
    for name, overload in (*_QUANTITIES, *_ADDRESSES, *_TEXTS):
        overloads.setdefault(name, []).append(overload)
    declarations = [cel.FunctionDecl(name, found) for name, found in overloads.items()]
    return cel.CelExtension("kubernetes", declarations)
