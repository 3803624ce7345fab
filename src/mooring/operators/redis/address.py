"""Where a Redis server or sentinel listens."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Address"]


class Address(NamedTuple):
    """An IP address and a port; as text an IPv6 address is in brackets."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"
