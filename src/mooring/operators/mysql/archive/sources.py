"""Which server the archive is read from: one whose transactions cannot be lost any more.

A replica that acknowledges has what it was sent by a primary that waits for it. A primary's own log also has what nobody
acknowledged, unless it waits for nobody. A server that lacks something of the archive is behind, or the cluster has
given up what the archive holds.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mooring.operators.mysql.dial import Dial, DialError, Login
from mooring.operators.mysql.dialect import number, on, text_of
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.names import PORT
from mooring.operators.mysql.topology import Flavor

__all__ = ["Candidate", "NoSource", "Sources", "choose", "primary_of"]

_RESOLVE_WITHIN: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What a server said of itself."""

    address: str
    server_id: int
    version: str
    read_only: bool
    acknowledges: bool
    """As a replica."""
    waits: bool
    """As a primary, for acknowledgements."""
    executed: Position

    @property
    def safe(self) -> bool:
        """What its log has, the cluster keeps."""
        return self.acknowledges if self.read_only else not self.waits


class NoSource(Exception):
    """No server can be read from; ``reason`` is Unreachable, Behind, NoneSafe or Diverged."""

    def __init__(
        self, reason: Literal["Unreachable", "Behind", "NoneSafe", "Diverged"], message: str
    ) -> None:
        super().__init__(message)
        self.reason: str = reason


class Sources:
    """The servers behind a name, or at given addresses."""

    def __init__(
        self,
        dial: Dial,
        login: Callable[[], Login],
        *,
        flavor: Flavor,
        host: str = "",
        addresses: Sequence[str] = (),
    ) -> None:
        """``login`` is asked at every connection: passwords change."""
        self.dial = dial
        self.login = login
        self.flavor: Flavor = flavor
        self._host = host
        self._addresses = list(addresses)

    async def look(self) -> list[Candidate]:
        """Every server that answers."""
        addresses = self._addresses or await self._resolved()
        found = await asyncio.gather(*(self._ask(address) for address in addresses))
        return [one for one in found if one is not None]

    async def _resolved(self) -> list[str]:
        try:
            async with asyncio.timeout(_RESOLVE_WITHIN):
                infos = await asyncio.get_running_loop().getaddrinfo(
                    self._host, PORT, type=socket.SOCK_STREAM
                )
        except (OSError, TimeoutError):
            return []
        return sorted({str(info[4][0]) for info in infos})

    async def _ask(self, address: str) -> Candidate | None:
        dialect = dialect_of(self.flavor)
        try:
            async with self.dial.kept(address, self.login()) as link:
                role, position = await link.results(f"{dialect.role()}; {dialect.position()}")
        except (DialError, OSError):
            return None
        row = role[0]
        return Candidate(
            address=address,
            server_id=number(row, "server_id"),
            version=text_of(row, "version"),
            read_only=on(row, "read_only"),
            acknowledges=on(row, "replica"),
            waits=on(row, "source"),
            executed=dialect.position_of(position[0]),
        )


def primary_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The one that takes writes; ``None`` where none or several do."""
    writing = [one for one in candidates if not one.read_only]
    return writing[0] if len(writing) == 1 else None


def choose(
    candidates: Sequence[Candidate], position: Position, *, avoid: frozenset[str] = frozenset()
) -> Candidate:
    """The one to read from that has all of the archive's position; raises `NoSource`.

    Replicas first, then the one that has most. ``avoid``: addresses that were tried and cannot send what follows.
    """
    if not candidates:
        raise NoSource("Unreachable", "no server of the cluster answers")
    safe = [one for one in candidates if one.safe]
    if not safe:
        raise NoSource(
            "NoneSafe", "no replica acknowledges writes: what the primary's log has may still be lost"
        )
    having = [one for one in safe if one.executed.contains(position)]
    usable = [one for one in having if one.address not in avoid]
    if usable:
        group = [one for one in usable if one.read_only] or usable
        most = group[0]
        for one in group[1:]:
            if one.executed.ahead_of(most.executed) > 0:
                most = one
        return most
    if having:
        raise NoSource("Behind", "every server that has the archive's position was tried")
    primary = primary_of(candidates)
    if primary is not None and not primary.executed.contains(position):
        lost = (position - primary.executed).text()
        raise NoSource("Diverged", f"the primary does not have {lost}, which the archive holds")
    raise NoSource("Behind", "the servers that answer do not have yet what the archive holds")
