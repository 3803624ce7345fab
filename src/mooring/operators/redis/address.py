"""Where a Redis server or sentinel listens."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CLEAR_PORTS", "SENTINEL_PORTS", "SENTINEL_TLS_PORT", "TLS_PORT", "Address"]

TLS_PORT: Final = 6380
"""Where a data server takes TLS; the plain port stays 6379, so that both can be open while clients move."""
SENTINEL_TLS_PORT: Final = 26380
"""Where a sentinel takes TLS."""
SENTINEL_PORTS: Final = (26379, SENTINEL_TLS_PORT)
"""Of a sentinel, without TLS and with it."""
CLEAR_PORTS: Final = frozenset({6379, 26379})
"""Where servers and sentinels take connections without TLS."""


class Address(NamedTuple):
    """An IP address and a port; as text an IPv6 address is in brackets."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"
