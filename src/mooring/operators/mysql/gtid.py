"""Positions in the replication history, and how two of them compare: one type for both flavours.

A `Position` is a set of transactions. MySQL names them ``uuid[:tag]:1-5``, and a position is any set of these. MariaDB names
them ``domain-server-seq``: within a domain the numbers ascend over all its servers (``gtid_strict_mode``), and a position
tells the last number of each server. Both are kept as intervals of numbers by origin, an origin being ``uuid``,
``uuid:tag`` or ``domain-server``; on MariaDB the interval of an origin is "all its transactions up to this number".

What MariaDB receives is told by the last id alone (``Gtid_IO_Pos``), without those of other servers before it. Since one id
has one history, two positions that share an id also share all that comes before it in its domain; the difference of two
positions takes that into account. A server that began with a copy knows of the ids before it no more either.

All of it is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mooring.operators.mysql.flavors import Flavor

__all__ = ["Intervals", "Position", "parse", "parse_mariadb", "parse_mysql"]

Intervals = tuple[tuple[int, int], ...]
"""Inclusive, sorted, disjoint, not adjacent."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_MARIADB: Final = re.compile(r"(\d+)-(\d+)-(\d+)(?:\.\.(\d+))?")


@dataclass(frozen=True, kw_only=True)
class Position:
    """A set of transactions."""

    origins: Mapping[str, Intervals] = field(default_factory=dict)
    """Intervals of sequence numbers by origin."""
    last: Mapping[str, str] = field(default_factory=dict)
    """MariaDB only: the newest id of each domain, ``domain -> domain-server-seq``, which orders a domain's origins."""

    @property
    def is_empty(self) -> bool:
        """It has no transaction."""
        return not self.origins

    def contains(self, other: Position) -> bool:
        """Every transaction of ``other`` is in this one."""
        return (other - self).is_empty

    def reaches(self, other: Position) -> bool:
        """Every transaction of ``other`` is in this one, where both are known to be of one history.

        A server of MariaDB that began with a copy names none of the ids before it: there the newest numbers tell.
        """
        if not self.last:
            return self.contains(other)
        return all(
            domain in self.last and _number(self.last[domain]) >= _number(newest)
            for domain, newest in other.last.items()
        )

    def comparable(self, other: Position) -> bool:
        """One of the two has all of the other."""
        return self.contains(other) or other.contains(self)

    def __or__(self, other: Position) -> Position:
        """The transactions of both."""
        origins = dict(self.origins)
        for origin, intervals in other.origins.items():
            origins[origin] = _union((*origins.get(origin, ()), *intervals))
        last = dict(self.last)
        for domain, newest in other.last.items():
            if domain not in last or _number(newest) > _number(last[domain]):
                last[domain] = newest
        return Position(origins=origins, last=last)

    def __sub__(self, other: Position) -> Position:
        """The transactions that ``other`` lacks."""
        left: dict[str, Intervals] = {}
        shared = self._shared_with(other)
        for origin, intervals in self.origins.items():
            rest = _difference(intervals, other.origins.get(origin, ()))
            if rest and (bound := shared.get(_domain(origin), 0)):
                rest = _difference(rest, ((1, bound),))
            if rest:
                left[origin] = rest
        return Position(origins=left, last=_newest(left) if self.last else {})

    def ahead_of(self, other: Position) -> int:
        """How many transactions this one has that ``other`` lacks."""
        rest = self - other
        if not self.last:
            return sum(high - low + 1 for intervals in rest.origins.values() for low, high in intervals)
        # The numbers of a domain are shared by its servers.
        count = 0
        for domain, newest in rest.last.items():
            known = other.last.get(domain)
            least = min(
                low for origin in rest.origins if _domain(origin) == domain for low, _ in rest.origins[origin]
            )
            first = max(least, _number(known) + 1 if known and _number(known) < _number(newest) else 0)
            count += _number(newest) - first + 1
        return count

    def without(self, origin: str) -> Position:
        """The transactions of all other origins; of a UUID's tags too."""
        kept = {
            name: at
            for name, at in self.origins.items()
            if name != origin and not name.startswith(f"{origin}:")
        }
        return Position(origins=kept, last=_newest(kept) if self.last else {})

    def only(self, origin: str) -> Position:
        """The transactions of one origin, with those of a UUID's tags."""
        kept = {
            name: at for name, at in self.origins.items() if name == origin or name.startswith(f"{origin}:")
        }
        return Position(origins=kept, last=_newest(kept) if self.last else {})

    def text(self) -> str:
        """As the server writes it, sorted; `parse` reads it back. "" for the empty one."""
        if self.last:
            return ",".join(self._mariadb())
        sets: dict[str, list[str]] = {}
        for origin in sorted(self.origins):
            uuid, _, tag = origin.partition(":")
            numbers = ":".join(
                f"{low}-{high}" if high > low else f"{low}" for low, high in self.origins[origin]
            )
            sets.setdefault(uuid, []).append(f"{tag}:{numbers}" if tag else numbers)
        return ",".join(f"{uuid}:{':'.join(parts)}" for uuid, parts in sets.items())

    def newest(self) -> str:
        """MariaDB: the last id of every domain, as ``gtid_slave_pos`` takes it; MySQL: `text`."""
        return (
            ",".join(self.last[domain] for domain in sorted(self.last, key=int)) if self.last else self.text()
        )

    def __str__(self) -> str:
        return self.text()

    def _mariadb(self) -> Iterable[str]:
        def order(origin: str) -> tuple[int, bool, int]:
            domain, _, server = origin.partition("-")
            return int(domain), self.last.get(domain, "").startswith(f"{origin}-"), int(server)

        for origin in sorted(self.origins, key=order):
            for low, high in self.origins[origin]:
                yield f"{origin}-{high}" if low == 1 else f"{origin}-{low}..{high}"

    def _shared_with(self, other: Position) -> dict[str, int]:
        """MariaDB: the number up to which the history is surely the same in both, by domain."""
        bounds: dict[str, int] = {}
        for name in self.origins.keys() & other.origins.keys() if self.last else ():
            common = (
                min(high, end)
                for low, high in self.origins[name]
                for start, end in other.origins[name]
                if start <= high and low <= end
            )
            bounds[_domain(name)] = max(bounds.get(_domain(name), 0), *common, 0)
        return bounds


def parse(flavor: Flavor, text: str) -> Position:
    """Read what a server of a flavour says, or `Position.text`; raises ValueError for anything else."""
    return parse_mariadb(text) if flavor == "mariadb" else parse_mysql(text)


def parse_mysql(text: str) -> Position:
    """``uuid:1-5:7,uuid:tag:1-3``, with line breaks as servers insert them; raises ValueError."""
    found: dict[str, list[tuple[int, int]]] = {}
    for part in _parts(text):
        uuid, *rest = part.lower().split(":")
        if _UUID.fullmatch(uuid) is None or not rest:
            raise ValueError(f"not a GTID set: {part[:80]!r}")
        origin = uuid
        for one in rest:
            low, dash, high = one.partition("-")
            if low.isdigit() and (high.isdigit() if dash else True):
                found.setdefault(origin, []).append((int(low), int(high or low)))
            elif _TAG.fullmatch(one):
                origin = f"{uuid}:{one}"
            else:
                raise ValueError(f"not a GTID set: {part[:80]!r}")
    return Position(origins=_made(found))


def parse_mariadb(text: str) -> Position:
    """``0-1-100,0-2-105``, the newest id of a domain last; raises ValueError."""
    found: dict[str, list[tuple[int, int]]] = {}
    last: dict[str, str] = {}
    for part in _parts(text):
        match = _MARIADB.fullmatch(part)
        if match is None:
            raise ValueError(f"not a GTID position: {part[:80]!r}")
        domain, server, low, high = match.groups()
        number = int(high or low)
        if number:
            found.setdefault(f"{domain}-{server}", []).append((int(low) if high else 1, number))
            newest = last.get(domain)
            if newest is None or number >= _number(newest):
                last[domain] = f"{domain}-{server}-{number}"
    return Position(origins=_made(found), last=last)


def _parts(text: str) -> list[str]:
    return [part for part in (one.strip() for one in text.split(",")) if part]


def _made(found: Mapping[str, Iterable[tuple[int, int]]]) -> dict[str, Intervals]:
    return {origin: made for origin, parts in found.items() if (made := _union(parts))}


def _union(parts: Iterable[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if high < low:
            continue
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _difference(left: Intervals, right: Intervals) -> Intervals:
    rest: list[tuple[int, int]] = []
    for low, high in left:
        for start, end in right:
            if end < low:
                continue
            if start > high:
                break
            if start > low:
                rest.append((low, start - 1))
            low = end + 1
            if low > high:
                break
        if low <= high:
            rest.append((low, high))
    return tuple(rest)


def _domain(origin: str) -> str:
    return origin.partition("-")[0]


def _number(identity: str) -> int:
    return int(identity.rpartition("-")[2])


def _newest(origins: Mapping[str, Intervals]) -> dict[str, str]:
    last: dict[str, str] = {}
    for origin, intervals in origins.items():
        domain, number = _domain(origin), intervals[-1][1]
        if domain not in last or number > _number(last[domain]):
            last[domain] = f"{origin}-{number}"
    return last
