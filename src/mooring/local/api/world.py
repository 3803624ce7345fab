"""What strategies for particular kinds may look at beside the object itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Network

from mooring.local.api.storage import Store

__all__ = ["World"]


@dataclass(frozen=True, slots=True)
class World:
    """The stored objects, the time, and the ranges that Services draw their addresses and ports from."""

    store: Store
    now: Callable[[], datetime]
    service_range: IPv4Network = field(default_factory=lambda: IPv4Network("10.96.0.0/16"))
    node_ports: range = range(30000, 32768)
