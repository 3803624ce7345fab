"""The addresses of a control plane: chosen once for a data directory, and nobody else's from then on.

Objects in the directory hold addresses, so a directory keeps its ranges. Which directory has which is written down
for the whole machine until it restarts: a plane that is down for a moment finds its addresses free again.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import msgspec

from mooring.local.claims import claim
from mooring.local.directory import DataDirectory, write_private

__all__ = ["Ranges"]

PODS, SERVICES = IPv4Network("10.99.0.0/16"), IPv4Network("10.96.0.0/16")
#: How many pairs of ranges there are to choose from, each four further on.
CHOICES = 15
FILE = "network.json"
REGISTRY = Path("/run/mooring/ranges")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The addresses a plane uses; two planes on one machine need different ones."""

    pods: IPv4Network = PODS
    services: IPv4Network = SERVICES

    @property
    def dns(self) -> ipaddress.IPv4Address:
        """The address of the cluster's DNS."""
        return self.services[10]

    @property
    def api(self) -> ipaddress.IPv4Address:
        """The address of the Service ``default/kubernetes``."""
        return self.services[1]

    @classmethod
    def of(cls, directory: DataDirectory) -> tuple[Ranges, socket.socket | None]:
        """The ranges of a data directory: those it has used before, else the first that are free here.

        With them a claim, to be held while the plane runs: of two that choose at once, the second goes on to
        the next. ``None`` when another process has it; then the network says so when it starts.
        """
        ranges = _known(directory.path)
        held = ranges._claim() if ranges else None
        if ranges is None:
            ranges, held = _choose(directory.path)
            write_private(
                directory.path / FILE,
                msgspec.json.encode({"pods": str(ranges.pods), "services": str(ranges.services)}),
            )
        _register(ranges, directory.path)
        return ranges, held

    @staticmethod
    def known(directory: DataDirectory) -> Ranges | None:
        """The ranges that a data directory has used before, if any; nothing is claimed."""
        return _known(directory.path)

    def _claim(self) -> socket.socket | None:
        return claim(f"pods-{self.pods}")


def _choose(path: Path) -> tuple[Ranges, socket.socket]:
    """The first ranges that nothing here uses; those of another directory, now down, only when all others are gone."""
    choices = [
        Ranges(pods=IPv4Network(f"10.{99 + n}.0.0/16"), services=IPv4Network(f"10.{96 + n}.0.0/16"))
        for n in range(0, 4 * CHOICES, 4)
    ]
    taken = _routed()
    for ranges in sorted(choices, key=lambda one: _kept(one, path)):
        overlaps = any(ranges.pods.overlaps(other) or ranges.services.overlaps(other) for other in taken)
        if not overlaps and not _assigned(ranges.pods[1]) and (held := ranges._claim()) is not None:
            return ranges, held
    raise OSError("no free address range from 10.96.0.0 up: every one is routed already")


def _known(path: Path) -> Ranges | None:
    """What a data directory has used before."""
    try:
        known = msgspec.json.decode((path / FILE).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return None
    return Ranges(pods=IPv4Network(known["pods"]), services=IPv4Network(known["services"]))


def _kept(ranges: Ranges, path: Path) -> bool:
    """Whether another data directory, which is still there, has them."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        other = Path((REGISTRY / str(ranges.pods.network_address)).read_text())
        return other != path and _known(other) == ranges
    return False


def _register(ranges: Ranges, path: Path) -> None:
    """Write it down for the machine; a plain user's planes cannot, and each has a network of its own anyway."""
    with contextlib.suppress(OSError):
        REGISTRY.mkdir(parents=True, exist_ok=True)
        write_private(REGISTRY / str(ranges.pods.network_address), str(path).encode())


def _assigned(address: ipaddress.IPv4Address) -> bool:
    """Whether this machine has the address already."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _routed() -> list[IPv4Network]:
    """The networks of this machine's main routing table, the default route left out."""
    found = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[i]), "little") for i in (1, 7))
        if mask:
            found.append(IPv4Network((address, bin(mask).count("1")), strict=False))
    return found
