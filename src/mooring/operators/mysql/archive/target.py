"""Where a restore is to end: a GTID, a time or the archive's end, and the segments that lead there from a base.

A time means the last transaction before the first one that was committed later, in the order of the binary log. MariaDB
writes whole seconds: what was committed within the second of the target is in. What is between two chains is a hole, and a
restore over it is refused unless it is allowed by name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mooring.objectstore import Corrupt, NotFound
from mooring.operators.mysql.archive.events import HEADER, Gtid, moment
from mooring.operators.mysql.archive.store import Archive, Chain, Segment, reaches
from mooring.operators.mysql.archive.transactions import History, Kept, Line
from mooring.operators.mysql.gtid import Position, parse
from mooring.operators.mysql.topology import Flavor

__all__ = ["Goal", "Refused", "Way", "Waypoint", "goal_gtid", "holds", "resolve", "transactions"]

_MARIADB: Final = re.compile(r"(\d+-\d+)-(\d+)")
_MYSQL: Final = re.compile(
    r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?::[a-zA-Z_]\w{0,31})?):(\d+)"
)
_LARGEST_EVENT: Final = (1 << 30) + (1 << 20)


class Refused(Exception):
    """A restore that is not made; ``reason`` is a word for a condition."""

    def __init__(self, reason: str, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.reason = reason
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Where to end; neither: where the archive ends."""

    gtid: str = ""
    time: int = 0
    """Microseconds since 1970."""
    allow_gap: bool = False


@dataclass(frozen=True, kw_only=True)
class Waypoint:
    """A segment on the way."""

    chain: Chain
    segment: Segment


@dataclass(frozen=True, kw_only=True)
class Way:
    """What leads from a base to the goal."""

    base: Position
    stop: str
    """The last transaction; "" where the base itself is the goal."""
    committed: int
    """When that was committed, in microseconds since 1970."""
    position: Position
    """Where the restored server stands then."""
    last: tuple[int, int] | None
    """Chain and number of the segment that holds it."""
    holes: tuple[tuple[str, str], ...] = ()
    """The positions between which transactions are missing on the way, allowed by name."""
    allow_gap: bool = False


def goal_gtid(flavor: Flavor, text: str) -> Gtid:
    """A single transaction as people write it; raises `Refused`."""
    match = (_MARIADB if flavor == "mariadb" else _MYSQL).fullmatch(text.strip())
    if match is None:
        form = "0-1-1000 (domain-server-number)" if flavor == "mariadb" else "UUID:1000 (no range)"
        raise Refused(
            "TargetInvalid", f"{text[:80]!r} is no single GTID of {flavor}", f"write one such as {form}"
        )
    return Gtid(origin=match[1].lower(), number=int(match[2]))


async def resolve(archive: Archive, base: Position, goal: Goal) -> Way:
    """The way from a base to a goal; raises `Refused` and `ObjectStoreError`."""
    chains = await archive.chains()
    if not chains:
        raise Refused(
            "ArchiveEmpty", "there is no archive at this target", "correct the target and its prefix"
        )
    flavor = chains[-1].flavor
    gtid = goal_gtid(flavor, goal.gtid) if goal.gtid else None
    if gtid is not None and holds(flavor, base, gtid):
        raise _before_base(base, goal.gtid)
    holes: list[tuple[str, str]] = []
    found: Way | None = None
    end = Way(base=base, stop="", committed=0, position=base, last=None, allow_gap=goal.allow_gap)
    latest, over = 0, False
    walk = _path(archive, chains, base, allow_gap=goal.allow_gap, holes=holes)
    async with aclosing(walk) as path:
        async for point in path:
            segment = point.segment
            until = parse(flavor, segment.until)
            inside = gtid is not None and holds(flavor, until, gtid)
            if goal.time and segment.first_commit > goal.time and not _within(base, segment, flavor):
                over = True
                break
            if inside or (goal.time and segment.last_commit > goal.time):
                found = await _in_segment(archive, point, base, end, goal, gtid, latest)
                over = found is not None
                break
            latest = max(latest, segment.last_commit)
            if not reaches(base, until):
                end = Way(
                    base=base, stop=segment.last, committed=segment.last_commit, position=until,
                    last=(point.chain.number, segment.number), allow_gap=goal.allow_gap,
                )  # fmt: skip
    way = found or end
    if gtid is not None and found is None:
        raise Refused(
            "NotArchived",
            f"{goal.gtid} is not in the archive, which ends at {end.position.newest()}",
            "choose a transaction that is, or wait until it is archived",
        )
    if goal.time and not over:
        seen = await archive.seen()
        complete = max(seen.complete if seen is not None else 0, end.committed)
        if goal.time > complete:
            raise Refused(
                "AfterArchive",
                f"{moment(goal.time)} is later than what the archive is known to have: {moment(complete) or 'nothing'}",
                "choose a time up to that one",
            )
    return Way(
        base=way.base, stop=way.stop, committed=way.committed, position=way.position, last=way.last, holes=tuple(holes),
        allow_gap=goal.allow_gap,
    )  # fmt: skip


async def transactions(archive: Archive, way: Way) -> AsyncGenerator[tuple[Segment, Kept], None]:
    """The events from the base to the stop, whole transactions in order; raises `Refused` and `ObjectStoreError`."""
    if way.last is None:
        return
    chains = await archive.chains()
    history = History(chains[-1].flavor, way.base)
    walk = _path(archive, chains, way.base, allow_gap=way.allow_gap, holes=[])
    async with aclosing(walk) as path:
        async for point in path:
            line = Line(history=history, description=point.segment.layout(), proven=True)
            async with aclosing(_events(archive, point)) as events:
                async for event in events:
                    kept = line.feed(event)
                    if kept is not None:
                        yield point.segment, kept
                        if kept.ends is not None and kept.ends.text == way.stop:
                            return
            if (point.chain.number, point.segment.number) == way.last:
                break
    raise Corrupt(f"the archive no longer holds {way.stop}")


async def _in_segment(
    archive: Archive, point: Waypoint, base: Position, end: Way, goal: Goal, gtid: Gtid | None, latest: int
) -> Way | None:
    """The exact transaction within the segment that holds it."""
    flavor, segment = point.chain.flavor, point.segment
    history = History(flavor, parse(flavor, segment.after))
    line = Line(history=history, description=segment.layout(), proven=True)
    way = end
    async with aclosing(_events(archive, point)) as events:
        async for event in events:
            kept = line.feed(event)
            if kept is None or kept.ends is None:
                continue
            latest = max(latest, kept.committed)
            if goal.time and latest > goal.time:
                if holds(flavor, base, kept.ends):
                    raise _before_base(base, moment(goal.time))
                return way
            if not holds(flavor, base, kept.ends):
                way = Way(
                    base=base, stop=kept.ends.text, committed=latest, position=history.position,
                    last=(point.chain.number, segment.number), allow_gap=goal.allow_gap,
                )  # fmt: skip
            if gtid is not None and kept.ends.number == gtid.number and _same(kept.ends, gtid, flavor):
                if kept.ends.text != gtid.text:
                    raise Refused(
                        "NotArchived",
                        f"the archive has {kept.ends.text} in the place of {gtid.text}",
                        "choose a transaction that the cluster kept",
                    )
                return way
    return None


async def _path(
    archive: Archive, chains: list[Chain], base: Position, *, allow_gap: bool, holes: list[tuple[str, str]]
) -> AsyncGenerator[Waypoint, None]:
    """The segments from the newest chain that the base can be continued by, to the archive's end.

    Those that the base has as a whole come too: they tell whether it is later than a time.
    """
    first = max((at for at, chain in enumerate(chains) if reaches(base, chain.start)), default=None)
    position = base
    if first is None:
        first = 0
        _hole(holes, position, chains[0], "base", allow_gap)
    for at in range(first, len(chains)):
        chain = chains[at]
        follower = chains[at + 1] if at + 1 < len(chains) else None
        if at > first and not reaches(position, chain.start):
            _hole(holes, position, chain, f"chain {chains[at - 1].number}", allow_gap)
        async with aclosing(archive.segments(chain)) as segments:
            async for segment in segments:
                until = parse(chain.flavor, segment.until)
                forked = follower is not None and follower.reason == "Diverged"
                if forked and follower is not None and not reaches(follower.start, until):
                    break
                if not reaches(position, until):
                    position = until
                yield Waypoint(chain=chain, segment=segment)


def _hole(holes: list[tuple[str, str]], position: Position, chain: Chain, what: str, allow_gap: bool) -> None:
    bounds = (position.newest(), chain.start.newest())
    if not allow_gap:
        raise Refused(
            "Gap",
            f"transactions are missing between {bounds[0] or 'the beginning'} (end of the {what}) and {bounds[1]} "
            f"(chain {chain.number}, begun {chain.began})",
            "restore from a base backup that was taken later, choose an earlier target, or set allowGap: true to go on without them",
        )
    holes.append(bounds)


async def _events(archive: Archive, point: Waypoint) -> AsyncGenerator[bytes, None]:
    """The events of a segment; what is not as the index says raises `Corrupt`, at the end at the latest."""
    segment = point.segment
    name = archive.data(point.chain, segment)
    digest, size = hashlib.sha256(), 0
    buffer = bytearray()
    try:
        async with aclosing(archive.store.download(name)) as pieces:
            async for piece in pieces:
                digest.update(piece)
                size += len(piece)
                buffer += piece
                at = 0
                while len(buffer) - at >= HEADER:
                    length = int.from_bytes(buffer[at + 9 : at + 13], "little")
                    if not HEADER <= length <= _LARGEST_EVENT:
                        raise Corrupt(f"{name} holds what is no event")
                    if len(buffer) - at < length:
                        break
                    yield bytes(buffer[at : at + length])
                    at += length
                del buffer[:at]
    except NotFound:
        raise Corrupt(f"{name}, which the index names, does not exist") from None
    if buffer or size != segment.size or digest.hexdigest() != segment.sha256:
        raise Corrupt(f"{name} is not what was written: {size} bytes for {segment.size}")


def holds(flavor: Flavor, position: Position, gtid: Gtid) -> bool:
    """Whether a position has that transaction."""
    if flavor == "mariadb":
        newest = position.last.get(gtid.origin.partition("-")[0], "")
        return gtid.number <= int(newest.rpartition("-")[2] or 0)
    return any(low <= gtid.number <= high for low, high in position.origins.get(gtid.origin, ()))


def _same(one: Gtid, other: Gtid, flavor: Flavor) -> bool:
    """Of one MySQL origin, or of one MariaDB domain."""
    if flavor == "mariadb":
        return one.origin.partition("-")[0] == other.origin.partition("-")[0]
    return one.origin == other.origin


def _within(base: Position, segment: Segment, flavor: Flavor) -> bool:
    return not reaches(parse(flavor, segment.after), base)


def _before_base(base: Position, what: str) -> Refused:
    text = f"the base backup, with all up to {base.newest()}, is later than {what}"
    return Refused("BeforeBase", text, "restore from an older backup")
