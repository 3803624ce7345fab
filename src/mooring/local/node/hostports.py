"""Host ports, each held by a socket for as long as it leads to a pod.

The kernel leads what is sent to such a port away before any program sees it. Holding the port keeps that from a
program of the machine that has it already, this plane's API server above all, and from one that comes later, which
is then told that the port is in use.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass, field

from mooring.local.node.services import Frontend

__all__ = ["HostPorts"]

_KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


@dataclass(slots=True)
class HostPorts:
    """The ports that are held."""

    _held: dict[Frontend, socket.socket] = field(init=False, default_factory=dict)

    def hold(self, wanted: Collection[Frontend]) -> set[Frontend]:
        """Hold these and no others; those that a program of the machine has are left out of what is returned."""
        for gone in self._held.keys() - set(wanted):
            self._held.pop(gone).close()
        for frontend in set(wanted) - self._held.keys():
            held = socket.socket(socket.AF_INET, _KINDS[frontend.protocol])
            try:
                held.bind((str(frontend.address), frontend.port))
            except OSError:
                held.close()
            else:
                self._held[frontend] = held
        return set(self._held)

    def close(self) -> None:
        """Let go of all."""
        self.hold(())
