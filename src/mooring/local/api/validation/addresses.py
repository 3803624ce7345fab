"""Addresses and ranges, as the rules of kinds judge them.

Kubernetes reads an address with leading zeros, which Python and newer Go do not, in order to say what is
wrong with it.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from mooring.local.api.fields import invalid
from mooring.local.api.validation.rules import Errors

__all__ = [
    "Network",
    "cidr_errors",
    "endpoint_ip_errors",
    "ip_errors",
    "ip_name",
    "parsed_ip",
    "parsed_network",
]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def _without_zeros(text: str) -> str:
    """Return an IPv4 address without leading zeros, and any other text as it is."""
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
        return text
    return ".".join(str(int(part)) for part in parts)


@lru_cache(maxsize=8192)
def parsed_ip(text: str) -> Address | None:
    """Return an address, None when the text is none."""
    try:
        return None if "%" in text else ipaddress.ip_address(_without_zeros(text))
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def parsed_network(text: str) -> Network | None:
    """Return the range that a text with an address and the length of a prefix names, None when it is none."""
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()) or "%" in address:
        return None
    try:
        return ipaddress.ip_network(f"{_without_zeros(address)}/{int(length)}", strict=False)
    except ValueError:
        return None


def _mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def ip_errors(text: str, path: str, *, canonical: bool = False) -> Errors:
    """Yield what is wrong with an address; `canonical` asks for its one canonical form, too."""
    address = parsed_ip(text)
    if address is None:
        yield invalid(path, text, _NO_ADDRESS)
    elif _without_zeros(text) != text:
        yield invalid(path, text, "must not have leading 0s")
    elif _mapped(address):
        yield invalid(path, text, "must not be an IPv4-mapped IPv6 address")
    elif canonical and str(address) != text:
        yield invalid(path, text, f'must be in canonical form ("{address}")')


def ip_name(text: str) -> tuple[str, ...]:
    """Judge a name that is an address in its canonical form."""
    return tuple(error.detail for error in ip_errors(text, "", canonical=True))


def cidr_errors(text: str, path: str, *, canonical: bool = False) -> Errors:
    """Yield what is wrong with a range of addresses; `canonical` asks for its one canonical form, too."""
    network = parsed_network(text)
    if network is None:
        yield invalid(path, text, _NO_NETWORK)
        return
    first, _, length = text.partition("/")
    if _without_zeros(first) != first or str(int(length)) != length:
        yield invalid(path, text, "must not have leading 0s in IP or prefix length")
    elif _mapped(ipaddress.ip_address(first)):
        yield invalid(path, text, "must not have an IPv4-mapped IPv6 address")
    elif ipaddress.ip_address(first) != network.network_address:
        yield invalid(path, text, "must not have bits set beyond the prefix length")
    elif canonical and str(network) != text:
        yield invalid(path, text, f'must be in canonical form ("{network}")')


def endpoint_ip_errors(text: str, path: str) -> Errors:
    """Yield why an endpoint cannot have an address: only ordinary ones lead from one node to another."""
    address = parsed_ip(text)
    if address is None:
        yield invalid(path, text, "must be a valid IP address")
        return
    if address.is_unspecified:
        yield invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        yield invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        yield invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if address in _LINK_MULTICAST[address.version]:
        yield invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


_LINK_MULTICAST: dict[int, Network] = {
    4: ipaddress.ip_network("224.0.0.0/24"),
    6: ipaddress.ip_network("ff02::/16"),
}
