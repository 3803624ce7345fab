"""Who a request is from, where a proxy in front of the console signs users in and names them in headers.

Anybody can send headers: they count only with the proof that the configuration asks for, and are ignored otherwise.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from mooring.console.session import Person
from mooring.console.settings import Proxy

__all__ = ["TrustedProxy"]


class TrustedProxy:
    """The one proxy whose word counts."""

    def __init__(self, settings: Proxy) -> None:
        """Raises `OSError`, and `ValueError` for an empty secret."""
        self._settings = settings
        self._sources = [ipaddress.ip_network(source) for source in settings.sources]
        self._secrets: list[bytes] = []
        if settings.secret_file:
            # Several lines: the old and the new one while the secret is changed.
            self._secrets = [_digest(line) for line in Path(settings.secret_file).read_text().split()]
            if not self._secrets:
                raise ValueError(f"{settings.secret_file}: has no secret")

    def person(self, request: web.Request) -> Person | None:
        """The user that the proxy names; None without a name, or where the request does not come from the proxy."""
        settings = self._settings
        users = request.headers.getall(settings.user_header, [])
        if len(users) != 1 or not users[0].strip() or not self._proven(request):
            return None
        groups = {
            group.strip()
            for header in request.headers.getall(settings.groups_header, [])
            for group in header.split(",")
            if group.strip()
        }
        return Person(
            user=settings.username_prefix + users[0].strip(),
            groups=tuple(sorted(settings.groups_prefix + group for group in groups)),
        )

    def _proven(self, request: web.Request) -> bool:
        proofs = []
        if self._sources:
            proofs.append(self._is_source(_address(request)))
        if self._secrets:
            given = request.headers.getall(self._settings.secret_header, [])
            known = [
                hmac.compare_digest(_digest(given[0]), secret) for secret in self._secrets if len(given) == 1
            ]
            proofs.append(any(known))
        if self._settings.names:
            proofs.append(not set(self._settings.names).isdisjoint(_certified(request)))
        return bool(proofs) and all(proofs)

    def _is_source(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._sources)


def _address(request: web.Request) -> str:
    """The other end of the connection, never what a header says of it."""
    transport = request.transport
    peer: Any = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else ""


def _certified(request: web.Request) -> Iterator[str]:
    """The common name and the DNS names of the client certificate, which the TLS layer has verified."""
    transport = request.transport
    certificate: Any = transport.get_extra_info("peercert") if transport is not None else None
    if certificate:
        for part in certificate.get("subject", ()):
            yield from (value for key, value in part if key == "commonName")
        yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
