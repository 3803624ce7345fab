"""Events put together to whole transactions, and proof that none was left out.

A `Line` is fed with what a source sends, event by event, and gives back the events to keep. It knows where it stands in the
source's file and in the history: a byte that is missing inside a transaction, or missing bytes together with a missing
number, are a `Hole`.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.operators.mysql.archive.events import (
    Description,
    Gtid,
    Header,
    Kind,
    Malformed,
    checksummed,
    ends_transaction,
    gtid_of,
    header_of,
    is_begin,
    rotation,
)
from mooring.operators.mysql.gtid import Intervals, Position
from mooring.operators.mysql.topology import Flavor

__all__ = ["History", "Hole", "Kept", "Line"]


class Hole(Exception):
    """Something is missing between two events; the text has the bounds."""


class History:
    """A position that grows by single transactions, cheaply."""

    def __init__(self, flavor: Flavor, position: Position | None = None) -> None:
        self.flavor: Flavor = flavor
        position = position or Position()
        self._origins: dict[str, list[tuple[int, int]]] = {
            origin: list(intervals) for origin, intervals in position.origins.items()
        }
        self._last = dict(position.last)

    @property
    def position(self) -> Position:
        """As it stands."""
        origins: Mapping[str, Intervals] = {name: tuple(parts) for name, parts in self._origins.items()}
        return Position(origins=origins, last=dict(self._last))

    def has(self, gtid: Gtid) -> bool:
        """Whether it contains a transaction. On MariaDB an earlier one counts too, from any server.

        Raises `Hole` where another one bears the number of the newest.
        """
        if self.flavor == "mariadb":
            newest = self._last.get(gtid.origin.partition("-")[0], "")
            number = int(newest.rpartition("-")[2] or 0)
            if gtid.number == number and newest != gtid.text:
                raise Hole(f"{gtid.text} stands where {newest} was: two histories")
            return gtid.number <= number
        parts = self._origins.get(gtid.origin, ())
        at = bisect.bisect_right(parts, (gtid.number, 1 << 63)) - 1
        return at >= 0 and parts[at][0] <= gtid.number <= parts[at][1]

    def before(self, gtid: Gtid) -> int:
        """The number that its predecessor in the history has; 0 where there is none."""
        if self.flavor == "mariadb":
            return self._newest(gtid)
        return max(
            (high for low, high in self._origins.get(gtid.origin, ()) if low <= gtid.number), default=0
        )

    def add(self, gtid: Gtid) -> None:
        """It was received as a whole."""
        number = gtid.number
        parts = self._origins.setdefault(gtid.origin, [])
        if self.flavor == "mariadb":
            parts[:] = [(1, number)]
            self._last[gtid.origin.partition("-")[0]] = f"{gtid.origin}-{number}"
        elif parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            bisect.insort(parts, (number, number))
            merged = [parts[0]]
            for low, high in parts[1:]:
                if low <= merged[-1][1] + 1:
                    merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
                else:
                    merged.append((low, high))
            parts[:] = merged

    def _newest(self, gtid: Gtid) -> int:
        newest = self._last.get(gtid.origin.partition("-")[0], "")
        return int(newest.rpartition("-")[2]) if newest else 0


@dataclass(frozen=True, slots=True)
class Kept:
    """An event that belongs into the archive."""

    event: bytes
    begins: Gtid | None = None
    """The transaction whose first event it is."""
    ends: Gtid | None = None
    """The transaction whose last event it is."""
    committed: int = 0
    """With the last event: when it was committed, in microseconds since 1970."""


@dataclass(kw_only=True)
class Line:
    """What one connection to one source sends, or one stored log holds."""

    history: History
    """What there is already: a known transaction is passed over."""
    executed: Position = field(default_factory=Position)
    """MySQL: what the source had when the connection began; numbers it never gave are no hole."""
    description: Description | None = None
    file: str = ""
    proven: bool = False
    """That no transaction is left out is known otherwise: from the index of the archive."""
    _at: int = 0
    _leapt: bool = True
    _open: Gtid | None = None
    _alone: bool = False
    _begun: bool = False
    _known: bool = False
    _bytes: int = 0
    _time: int = 0

    @property
    def within(self) -> bool:
        """A transaction has begun and not ended."""
        return self._open is not None

    def feed(self, event: bytes) -> Kept | None:
        """The next event; raises `Malformed` and `Hole`."""
        head = header_of(event)
        if self.description is not None and self.description.checksums and not checksummed(event):
            raise Malformed(f"{self._where()}: the checksum of an event of type {head.kind} is wrong")
        match head.kind:
            case Kind.HEARTBEAT | Kind.HEARTBEAT_V2:
                return None
            case Kind.ROTATE:
                self._ended()
                self.file, self._at = rotation(event, self.description), 0
                return None
            case Kind.FORMAT_DESCRIPTION:
                self._ended()
                self.description = Description.of(event)
                self._at = 0 if head.artificial else head.end
                self._leapt = self._leapt or head.artificial
                return None
        if self.description is None:
            raise Malformed("a log without its description")
        if self._open is not None and head.unplaced:
            self._at = (self._at + head.size) & 0xFFFFFFFF
            return self._goes_on(event, head, self.description)
        if head.artificial:
            return None
        self._follows(head)
        match head.kind:
            case Kind.MARIADB_GTID | Kind.GTID | Kind.GTID_TAGGED | Kind.ANONYMOUS_GTID:
                return self._begins(event, head, self.description)
        if self._open is not None:
            return self._goes_on(event, head, self.description)
        if head.kind in (
            Kind.PREVIOUS_GTIDS,
            Kind.MARIADB_GTID_LIST,
            Kind.MARIADB_CHECKPOINT,
            Kind.MARIADB_START_ENCRYPTION,
            Kind.STOP,
        ):
            return None
        raise Hole(f"{self._where()}: an event of type {head.kind} stands outside of any transaction")

    def _begins(self, event: bytes, head: Header, description: Description) -> Kept | None:
        self._ended()
        gtid = gtid_of(event, head, description)
        self._known = self.history.has(gtid)
        if not self._known:
            self._next(gtid)
            self._leapt = False
        self._open, self._alone, self._begun = gtid, gtid.alone, False
        self._bytes, self._time = head.size, gtid.committed or head.timestamp * 1_000_000
        return None if self._known else Kept(event, begins=gtid)

    def _goes_on(self, event: bytes, head: Header, description: Description) -> Kept | None:
        gtid = self._open
        assert gtid is not None
        self._bytes += head.size
        if not self._begun and description.flavor == "mysql" and head.kind not in _BEFORE_BEGIN:
            self._alone, self._begun = not is_begin(event, head, description), True
        if not gtid.committed:
            self._time = max(self._time, head.timestamp * 1_000_000)
        if gtid.size:
            # It says how long it is: the end needs no look at what is inside.
            if self._bytes > gtid.size:
                raise Hole(f"{self._where()}: {gtid.text} has more bytes than it says")
            ends = self._bytes == gtid.size
        else:
            ends = ends_transaction(event, head, description, alone=self._alone)
        if not ends:
            return None if self._known else Kept(event)
        self._open = None
        if self._known:
            return None
        self.history.add(gtid)
        return Kept(event, ends=gtid, committed=self._time)

    def _ended(self) -> None:
        if self._open is not None:
            raise Hole(f"{self._where()}: {self._open.text} does not end before the next begins")

    def _follows(self, head: Header) -> None:
        """The event begins where the last one ended."""
        begins = (head.end - head.size) & 0xFFFFFFFF
        if self._at and begins != self._at:
            if self._open is not None:
                raise Hole(
                    f"{self._where()}: bytes {self._at} to {begins} are missing inside of {self._open.text}"
                )
            self._leapt = True
        self._at = head.end

    def _next(self, gtid: Gtid) -> None:
        before = self.history.before(gtid)
        if self.proven or not self._leapt or gtid.number == before + 1:
            return
        if self.history.flavor == "mysql":
            missing = Position(origins={gtid.origin: ((before + 1, gtid.number - 1),)})
            never = (missing - self.executed).origins == missing.origins
            if never:
                return
        separator = "-" if self.history.flavor == "mariadb" else ":"
        domain = gtid.origin.partition("-")[0] if separator == "-" else gtid.origin
        raise Hole(
            f"{self._where()}: the transactions {before + 1} to {gtid.number - 1} before {gtid.text} of {domain} are missing"
        )

    def _where(self) -> str:
        return f"{self.file or 'the log'} at byte {self._at}"


_BEFORE_BEGIN = frozenset({Kind.INTVAR, Kind.RAND, Kind.USER_VAR})
