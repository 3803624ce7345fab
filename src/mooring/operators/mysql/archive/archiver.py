"""The process that keeps the archive: reads from one server, writes segments, goes on where the store ends.

It holds at most one transaction of `PENDING` bytes, what the stream buffers, and one upload. Whatever fails, the next
attempt begins with what the store holds: a segment is in the index as a whole, or was never there.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from mooring.cache.clock import Clock, SystemClock
from mooring.objectstore import ObjectStoreError
from mooring.operators.mysql.archive.events import Description, Malformed, moment
from mooring.operators.mysql.archive.sources import Candidate, NoSource, Sources, choose, primary_of
from mooring.operators.mysql.archive.store import Archive, Chain, Seen, Segment, Superseded, Tail, reaches
from mooring.operators.mysql.archive.stream import Stream, begins_after, follow, is_purged
from mooring.operators.mysql.archive.transactions import History, Hole, Kept, Line
from mooring.operators.mysql.dial import DialError
from mooring.operators.mysql.gtid import Position, parse
from mooring.operators.mysql.topology import Flavor

__all__ = ["Archiver", "Report", "stream_id"]

log = structlog.get_logger("mooring.mysql.archive")

PENDING: Final = 4 << 20
"""Bytes of a transaction that wait for its end; a longer one is sent on as it comes."""
_LOOK_EVERY: Final = 2.0
_STALE_AFTER: Final = 15.0
_LONGEST_PAUSE: Final = 15.0
_SETTLED: Final = 30.0
"""Seconds after which an attempt counts as work though nothing is stored yet: of a transaction that takes that long."""

_REMEDIES: Final = {
    "Unreachable": "the cluster is down, or the password of mooring_replication is not in force",
    "Behind": "wait for a replica to catch up",
    "NoneSafe": "bring the replicas back: status.instances says what is in their way",
    "Hole": "the history of the servers has a gap; take a base backup and give the archive a new prefix",
    "Malformed": "binary logs without GTIDs or with unknown checksums cannot be archived; look at spec.config",
    "Superseded": "another archiver writes to the same place; give every cluster a prefix of its own",
}


def stream_id(cluster_uid: str) -> int:
    """A server_id for a cluster's archiver that no server has: those are counted in seconds since 2024."""
    return 0xF000_0000 | (zlib.crc32(cluster_uid.encode()) & 0x0FFF_FFFF)


@dataclass(kw_only=True)
class Report:
    """What the archiver says of itself."""

    state: str = "Starting"
    """Starting, Archiving or Stalled."""
    reason: str = ""
    message: str = ""
    remedy: str = ""
    since: str = ""
    """Since when it is in this state."""
    source: str = ""
    chain: int = 0
    chain_reason: str = ""
    segments: int = 0
    first: str = ""
    """When the newest chain begins: a base backup from then on can be rolled forward."""
    first_position: str = ""
    last: str = ""
    """When the newest archived transaction was committed."""
    complete: str = ""
    """The moment up to which nothing is missing."""
    position: str = ""
    lag_seconds: float | None = None
    gap: tuple[str, str] | None = None
    """The positions between which transactions are missing before this chain."""
    bytes: int = 0
    transactions: int = 0
    """Since this process began."""


@dataclass
class _Failed(Exception):
    """An attempt ended; the next one waits."""

    reason: str
    message: str
    remedy: str = ""


@dataclass(kw_only=True)
class _Run:
    """One connection to one source."""

    stream: Stream
    line: Line
    source: Candidate
    ended: Exception | None = None
    """Why no more comes."""
    kept: deque[Kept] = field(default_factory=deque)
    """Taken and not written yet."""
    leave: str = ""
    """Why another source is better."""
    began: float = 0.0
    """On the monotonic clock."""


@dataclass(kw_only=True)
class _Piece:
    """What a segment gathered up to the last whole transaction."""

    first: str = ""
    last: str = ""
    transactions: int = 0
    first_commit: int = 0
    last_commit: int = 0
    size: int = 0


class Archiver:
    """Keeps one cluster's archive."""

    def __init__(
        self,
        archive: Archive,
        sources: Sources,
        *,
        flavor: Flavor,
        server_id: int,
        clock: Clock | None = None,
        seconds: float = 5.0,
        size: int = 16 << 20,
        patience: float = 60.0,
        note: float = 30.0,
    ) -> None:
        """A segment is closed after ``seconds`` or ``size`` bytes.

        A new chain begins where for ``patience`` seconds no server could send what follows. Up to when the archive is
        complete is written down every ``note`` seconds.
        """
        self.archive = archive
        self.sources = sources
        self.flavor: Flavor = flavor
        self.server_id = server_id
        self.clock = clock or SystemClock()
        self.seconds = seconds
        self.size = size
        self.patience = patience
        self.note = note
        self.report = Report(since=self._now())
        self._tail: Tail | None = None
        self._looks: deque[tuple[float, int, Position]] = deque(maxlen=1000)
        self._complete: tuple[float, int] | None = None
        self._seen_at = 0.0
        self._latest = 0
        self._avoid: set[str] = set()
        self._purged: set[str] = set()
        self._stuck_since: float | None = None
        self._candidates: list[Candidate] = []

    async def run(self) -> None:
        """Until cancelled; failures are reported and tried again."""
        pause = 0.5
        looking = asyncio.create_task(self._look_on())
        try:
            while True:
                before = self.report.transactions
                try:
                    await self.attempt()
                except _Failed as failed:
                    self._stalled(failed.reason, failed.message, failed.remedy)
                except NoSource as none:
                    self._avoid.clear()
                    self._stalled(none.reason, str(none))
                except Superseded as other:
                    self._stalled("Superseded", str(other))
                except ObjectStoreError as error:
                    self._stalled(error.reason, error.message, error.remedy)
                except DialError as error:
                    self._stalled(error.word, str(error))
                pause = 0.5 if self.report.transactions > before else min(_LONGEST_PAUSE, pause * 2)
                await self.clock.sleep(pause)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def attempt(self) -> None:
        """One connection to one source, from where the store ends; raises what ended it."""
        self._tail = None  # what was not stored is not there
        tail = await self.archive.tail()
        await self._remember()
        candidates = await self._look()
        position = tail.position if tail is not None else Position()
        try:
            source = choose(candidates, position, avoid=frozenset(self._avoid | self._purged))
        except NoSource as none:
            if tail is None or not (none.reason == "Diverged" or self._purged):
                raise
            now = self.clock.monotonic()
            self._stuck_since = self._stuck_since or now
            if now - self._stuck_since < self.patience:
                self._purged.clear()
                raise
            self._stuck_since = None
            await self._begin_anew(tail, candidates, none)
            return
        if tail is None:
            tail = await self._begin(source)
        self._tail = tail
        self._latest = tail.last.last_commit if tail.last is not None else 0
        self._show(tail)
        line = Line(history=History(self.flavor, tail.position), executed=source.executed)
        try:
            async with follow(
                self.sources.dial, source.address, self.sources.login(), flavor=self.flavor, after=tail.position,
                server_id=self.server_id,
            ) as stream:  # fmt: skip
                began = self.clock.monotonic()
                await self._archive(tail, _Run(stream=stream, line=line, source=source, began=began))
        except DialError as error:
            if is_purged(error):
                self._purged.add(source.address)
                raise _Failed(
                    "SourcePurged", str(error), "another server is tried; else a new chain begins"
                ) from error
            raise

    async def _archive(self, tail: Tail, run: _Run) -> None:
        self._working(run)
        watching = asyncio.create_task(self._watch(run))
        try:
            while run.ended is None and not run.leave:
                if not run.kept and not await self._take(run):
                    await self._note()
                    if self._complete is not None and self._complete[0] >= run.began:
                        self._works()
                    continue
                await self._segment(tail, run)
                self._purged.clear()
                self._avoid.clear()
                self._stuck_since = None
                await self._note()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        match run.ended:
            case Hole() | Malformed() as wrong:
                self._avoid.add(run.source.address)
                raise _Failed(type(wrong).__name__, str(wrong), _REMEDIES[type(wrong).__name__])
            case DialError() as error:
                raise error
        if run.leave:
            log.info("another source is read", source=run.source.address, why=run.leave)

    async def _take(self, run: _Run) -> bool:
        """Wait for an event; whether it is to be kept. `_Run.ended` says why none will come."""
        try:
            event = await run.stream.next()
            kept = run.line.feed(event)
        except (DialError, Hole, Malformed) as error:
            run.ended = error
            return False
        if self.clock.monotonic() - run.began >= _SETTLED:
            self._works()
        if kept is not None:
            run.kept.append(kept)
        return kept is not None

    async def _segment(self, tail: Tail, run: _Run) -> None:
        """Write one segment, at least one transaction."""
        layout = run.line.description
        assert layout is not None
        piece = _Piece()
        name = self.archive.new_data(tail.chain, tail.next)
        before = tail.position
        history = History(self.flavor, before)
        store = self.archive.store
        uploaded = await store.upload(
            f"{self.archive.root}/{tail.chain.number:08d}/{name}", self._events(run, layout, piece, history)
        )
        run.stream.hold()
        if not piece.transactions:
            await store.delete(f"{self.archive.root}/{tail.chain.number:08d}/{name}")
            return
        segment = Segment(
            number=tail.next,
            data=name,
            size=uploaded.size,
            sha256=uploaded.sha256,
            after=tail.last.until if tail.last is not None else tail.chain.after,
            until=history.position.newest(),
            first=piece.first,
            last=piece.last,
            transactions=piece.transactions,
            first_commit=piece.first_commit,
            last_commit=piece.last_commit,
            source=run.source.address,
            description=layout.event,
        )
        await self.archive.append(tail, segment)
        self._latest = piece.last_commit
        self.report.bytes += segment.size
        self.report.transactions += segment.transactions
        self._works()
        self._show(tail)

    async def _events(
        self, run: _Run, layout: Description, piece: _Piece, history: History
    ) -> AsyncGenerator[bytes, None]:
        """The events of whole transactions, until the segment is to be closed."""
        began = self.clock.monotonic()
        pending: list[bytes] = []
        waiting, sent, size = 0, False, 0
        while True:
            if not pending and not sent and piece.transactions:
                full = size >= self.size or self.clock.monotonic() - began >= self.seconds
                if full or run.ended is not None or run.leave:
                    return
            if not run.kept:
                await self._take(run)
                if run.ended is not None and not run.kept:
                    if sent:  # a part of it is on its way: the segment is given up as a whole
                        raise _Failed("SourceLost", str(run.ended), "the transaction is read again")
                    return  # what is pending is read again
                continue
            kept = run.kept[0]
            if kept.begins is not None and run.line.description != layout and piece.transactions:
                return
            run.kept.popleft()
            pending.append(kept.event)
            waiting += len(kept.event)
            if kept.ends is not None:
                piece.first = piece.first or kept.ends.text
                piece.last = kept.ends.text
                piece.transactions += 1
                # Clocks of two primaries differ: the time of an archive never goes back.
                self._latest = max(self._latest, kept.committed)
                piece.first_commit = piece.first_commit or self._latest
                piece.last_commit = self._latest
                history.add(kept.ends)
                sent = False
            elif waiting < PENDING:
                continue
            else:
                sent = True
            yield b"".join(pending)
            size += waiting
            pending, waiting = [], 0

    # --- where a chain begins

    async def _begin(self, source: Candidate) -> Tail:
        after = await self._first_of(source)
        chain = Chain(number=1, flavor=self.flavor, after=after.newest(), began=self._now())
        await self.archive.begin(chain)
        log.info("the archive begins", after=chain.after, source=source.address)
        return Tail(chain=chain)

    async def _begin_anew(self, tail: Tail, candidates: list[Candidate], why: NoSource) -> None:
        """What follows the archive is nowhere any more, or the cluster gave up its end: a new chain."""
        usable = [one for one in candidates if one.safe] or candidates
        until = tail.position.newest()
        if why.reason == "Diverged":
            primary = primary_of(candidates)
            known = [
                one for one in reversed(tail.entries) if primary and primary.executed.contains(_at(tail, one))
            ]
            after = _at(tail, known[0]) if known else await self._first_of(primary or usable[0])
            reason, gap = "Diverged", None
        else:
            source = max(usable, key=lambda one: (one.read_only, -one.executed.ahead_of(Position())))
            after = await self._first_of(source)
            reason, gap = "SourcePurged", (until, after.newest())
            if reaches(tail.position, after):
                gap = None
        chain = Chain(
            number=tail.chain.number + 1, flavor=self.flavor, after=after.newest(), began=self._now(), reason=reason,
            gap=gap,
        )  # fmt: skip
        await self.archive.begin(chain)
        self._purged.clear()
        log.warning("a new chain of the archive begins", reason=reason, after=chain.after, before=until)

    async def _first_of(self, source: Candidate) -> Position:
        return await begins_after(
            self.sources.dial,
            source.address,
            self.sources.login(),
            flavor=self.flavor,
            server_id=self.server_id,
        )

    # --- what is complete, and whether the source is still the best

    async def _watch(self, run: _Run) -> None:
        """Leave a source that may lose what it has, or that stands still while another goes on."""
        stale = 0.0
        while not run.leave:
            await self.clock.sleep(_LOOK_EVERY)
            candidates = self._candidates
            here = next((one for one in candidates if one.address == run.source.address), None)
            better = [one for one in candidates if one.safe and one.address != run.source.address]
            if here is None or not better:
                continue
            if not here.safe:
                run.leave = "what its log has may be lost: it does not acknowledge writes, or it waits for acknowledgements"
            ahead = any(one.executed.ahead_of(here.executed) > 0 and one.read_only for one in better)
            stale = stale + _LOOK_EVERY if ahead and here.executed == run.source.executed else 0.0
            if stale >= _STALE_AFTER:
                run.leave = "it stands still, and another has more"
            if here.executed != run.source.executed:
                run.source = here

    async def _look_on(self) -> None:
        """Ask the primary again and again what it has: once the archive has that, it is complete up to then."""
        while True:
            await self._look()
            self._advance()
            await self.clock.sleep(_LOOK_EVERY)

    async def _look(self) -> list[Candidate]:
        now = self.clock.now()
        self._candidates = await self.sources.look()
        primary = primary_of(self._candidates)
        if primary is not None:
            self._looks.append((self.clock.monotonic(), _micros(now), primary.executed))
        return self._candidates

    async def _remember(self) -> None:
        """Up to when it was complete when an earlier process ended: it is as far behind as that is ago."""
        if self._complete is not None or (seen := await self.archive.seen()) is None:
            return
        ago = max(0.0, (_micros(self.clock.now()) - seen.complete) / 1e6)
        if self._complete is None:
            self._complete = (self.clock.monotonic() - ago, seen.complete)

    def _advance(self) -> None:
        tail = self._tail
        if tail is not None:
            position = tail.position
            while self._looks and reaches(position, self._looks[0][2]):
                at, stamp, _ = self._looks.popleft()
                self._complete = (at, stamp)
        if self._complete is not None:
            self.report.complete = moment(self._complete[1])
            self.report.lag_seconds = round(self.clock.monotonic() - self._complete[0], 1)

    async def _note(self) -> None:
        """Write down now and then up to when the archive is complete."""
        self._advance()
        tail, now = self._tail, self.clock.monotonic()
        if tail is None or self._complete is None or now - self._seen_at < self.note:
            return
        until = tail.last.until if tail.last is not None else tail.chain.after
        await self.archive.write_seen(Seen(chain=tail.chain.number, until=until, complete=self._complete[1]))
        self._seen_at = now

    # --- the report

    def pruned(self, chain: Chain) -> None:
        """The chain begins later: what is older was deleted."""
        tail = self._tail
        if tail is not None and tail.chain.number == chain.number:
            tail.chain = chain
            self._show(tail)

    def _show(self, tail: Tail) -> None:
        report = self.report
        report.chain, report.segments = tail.chain.number, tail.next - 1
        report.first, report.first_position = tail.chain.began, tail.chain.after
        report.chain_reason, report.gap = tail.chain.reason, tail.chain.gap
        report.position = tail.position.newest()
        report.last = moment(self._latest)
        self._advance()

    def _working(self, run: _Run) -> None:
        """An attempt began. After one that failed, only what is stored or known to be complete ends the trouble."""
        self.report.source = run.source.address
        if self.report.state != "Stalled":
            self._works()

    def _works(self) -> None:
        if self.report.state != "Archiving":
            self.report.state, self.report.since = "Archiving", self._now()
            self.report.reason = self.report.message = self.report.remedy = ""
            log.info("archiving", source=self.report.source, position=self.report.position)

    def _stalled(self, reason: str, message: str, remedy: str = "") -> None:
        self._advance()
        remedy = remedy or _REMEDIES.get(reason, "the log of the archiver says more")
        if (self.report.state, self.report.reason) != ("Stalled", reason):
            if self.report.state != "Stalled":
                self.report.since = self._now()
            log.warning("the archive stands still", reason=reason, message=message, remedy=remedy)
        self.report.state, self.report.reason = "Stalled", reason
        self.report.message, self.report.remedy = message, remedy

    def _now(self) -> str:
        return self.clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _at(tail: Tail, segment: Segment) -> Position:
    return parse(tail.chain.flavor, segment.after)


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
