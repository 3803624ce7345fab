"""The archive in a store: segments of whole transactions in numbered chains, and the index that proves them.

Below the archive's root:

    chains/00000001.json              after which position the chain begins, and why
    00000001/data/000000000042-HEX    events, from the first of a transaction to the last of one
    00000001/entries/000000000042.json   what the segment of that number holds, and which end of its predecessor it continues
    00000001/pages/000000000255.json  the entries up to that number, put together
    00000001/floor.json               the last segment that was deleted, where older ones are pruned: the chain begins after it
    seen.json                         up to when it is known to be complete

Within a chain nothing is missing: a segment continues exactly where the one before ended. Between two chains there is a
hole, or a fork. An entry is written after its segment is whole, and created, not replaced: of two archivers one writes it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from mooring.objectstore import AlreadyExists, Corrupt, NotFound, Store
from mooring.operators.mysql.archive.events import Description, moment
from mooring.operators.mysql.gtid import Position, parse
from mooring.operators.mysql.topology import Flavor

__all__ = [
    "ARCHIVE_FORM",
    "PAGE",
    "Archive",
    "Chain",
    "Floor",
    "Seen",
    "Segment",
    "Superseded",
    "Tail",
    "reaches",
]

T = TypeVar("T")

ARCHIVE_FORM: Final = "mooring/mysql-archive/1"
PAGE: Final = 256
"""Entries that are put together to a page."""


class Superseded(Exception):
    """Another archiver wrote the next entry."""


class Chain(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One uninterrupted history."""

    form: str = msgspec.field(default=ARCHIVE_FORM)
    number: int
    flavor: Flavor
    after: str
    """The position before its first transaction."""
    began: str
    """When it was begun."""
    reason: str = "Founded"
    """Founded, SourcePurged (transactions are missing before it) or Diverged (it leaves its predecessor)."""
    gap: tuple[str, str] | None = None
    """The positions between which transactions are missing."""
    writer: str = ""
    """The archiver that created it."""
    pruned: int = 0
    """Segments up to this number are deleted; `after` and `began` are those of the first one that is left."""

    @property
    def start(self) -> Position:
        """`after`, read."""
        return parse(self.flavor, self.after)


class Segment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry of the index."""

    number: int
    data: str
    """The object with its events, below the chain."""
    size: int
    sha256: str
    after: str
    """The position before it: where the segment before it ended."""
    until: str
    """The position with it."""
    first: str
    last: str
    """Its first and its last transaction."""
    transactions: int
    first_commit: int
    last_commit: int
    """When these were committed, in microseconds since 1970; the latest so far, where clocks differ."""
    source: str
    """The server it was read from."""
    description: bytes
    """The event that says how its events are laid out."""

    def layout(self) -> Description:
        """`description`, read."""
        return Description.of(self.description)


class Floor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last segment that was pruned: its number, its end, and when its last transaction was committed."""

    number: int
    until: str
    committed: int


class Seen(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Up to when the archive is complete: a primary that was asked then had nothing more than ``until``."""

    chain: int
    until: str
    complete: int
    """Microseconds since 1970."""


@dataclass(kw_only=True)
class Tail:
    """The end of the newest chain."""

    chain: Chain
    entries: list[Segment] = field(default_factory=list)
    """Those that are in no page yet."""
    last: Segment | None = None

    @property
    def next(self) -> int:
        """Number of the next segment."""
        return self.last.number + 1 if self.last is not None else self.chain.pruned + 1

    @property
    def position(self) -> Position:
        """Where it ends."""
        return parse(self.chain.flavor, self.last.until) if self.last is not None else self.chain.start


def reaches(position: Position, other: Position) -> bool:
    """Whether a position of a history has all of another position of it.

    MariaDB: by the numbers of each domain, since an archived position names the newest id alone.
    """
    if not (position.last or other.last):
        return position.contains(other)
    return all(
        _number(position.last.get(domain, "")) >= _number(newest) for domain, newest in other.last.items()
    )


def _number(gtid: str) -> int:
    return int(gtid.rpartition("-")[2] or 0)


class Archive:
    """One cluster's archive; ``root`` is its name in the store."""

    def __init__(self, store: Store, root: str) -> None:
        self.store = store
        self.root = root.strip("/")

    # --- reading

    async def chains(self) -> list[Chain]:
        """All chains, the oldest first; raises `ObjectStoreError`."""
        names = [one.name async for one in self.store.list(f"{self.root}/chains")]
        return [self._above(await self._read(name, Chain), await self._floor(name)) for name in sorted(names)]

    async def _floor(self, chain: str) -> Floor | None:
        number = chain.rpartition("/")[2].removesuffix(".json")
        try:
            return await self._read(f"{self.root}/{number}/floor.json", Floor)
        except NotFound:
            return None

    def _above(self, chain: Chain, floor: Floor | None) -> Chain:
        if floor is None:
            return chain
        return msgspec.structs.replace(
            chain, after=floor.until, began=moment(floor.committed), pruned=floor.number
        )

    async def tail(self) -> Tail | None:
        """Where the newest chain ends, ``None`` for an empty archive; raises `ObjectStoreError`."""
        chains = await self.chains()
        if not chains:
            return None
        tail = Tail(chain=chains[-1])
        place = self._place(tail.chain)
        pages = [one.name async for one in self.store.list(f"{place}/pages")]
        if pages:
            last = (await self._read(max(pages), list[Segment]))[-1]
            tail.last = last if last.number > tail.chain.pruned else None
        async for segment in self._entries(place, tail.next):
            if segment.number >= tail.next:
                self._follows(tail.last, segment, tail.chain)
                tail.last = segment
                tail.entries.append(segment)
        return tail

    async def segments(self, chain: Chain) -> AsyncGenerator[Segment, None]:
        """The entries of a chain in order, each proven to continue the one before; raises `ObjectStoreError`."""
        place = self._place(chain)
        last: Segment | None = None
        pages = sorted([one.name async for one in self.store.list(f"{place}/pages")])
        for page in pages:
            for segment in await self._read(page, list[Segment]):
                if segment.number <= chain.pruned:
                    continue
                self._follows(last, segment, chain)
                last = segment
                yield segment
        first = last.number + 1 if last is not None else chain.pruned + 1
        async with aclosing(self._entries(place, first)) as entries:
            async for segment in entries:
                if last is None or segment.number > last.number:
                    self._follows(last, segment, chain)
                    last = segment
                    yield segment

    async def seen(self) -> Seen | None:
        """Up to when it is complete."""
        try:
            return await self._read(f"{self.root}/seen.json", Seen)
        except NotFound:
            return None

    def data(self, chain: Chain, segment: Segment) -> str:
        """The name of a segment's object."""
        return f"{self._place(chain)}/{segment.data}"

    # --- writing

    async def begin(self, chain: Chain) -> None:
        """Create the next chain; raises `Superseded`."""
        name = f"{self.root}/chains/{chain.number:08d}.json"
        chain = msgspec.structs.replace(chain, writer=secrets.token_hex(8))
        await self._create(name, chain)

    def new_data(self, chain: Chain, number: int) -> str:
        """A name for the object of the next segment, below the chain."""
        return f"data/{number:012d}-{secrets.token_hex(4)}"

    async def append(self, tail: Tail, segment: Segment) -> None:
        """Put a segment, whose object is whole, into the index; raises `Superseded`."""
        place = self._place(tail.chain)
        self._follows(tail.last, segment, tail.chain)
        await self._create(f"{place}/entries/{segment.number:012d}.json", segment)
        tail.last = segment
        tail.entries.append(segment)
        if len(tail.entries) >= PAGE:
            await self._page(tail, place)

    async def _page(self, tail: Tail, place: str) -> None:
        page = list(tail.entries)
        try:
            await self.store.create(f"{place}/pages/{page[-1].number:012d}.json", msgspec.json.encode(page))
        except AlreadyExists as error:
            raise Superseded("another archiver wrote the next page") from error
        tail.entries.clear()
        for one in page:
            await self.store.delete(f"{place}/entries/{one.number:012d}.json")

    async def write_seen(self, seen: Seen) -> None:
        """Replace it."""
        await self._replace(f"{self.root}/seen.json", seen)

    # --- deleting

    async def prune(self, chain: Chain, last: Segment) -> Chain:
        """Delete the segments of a chain up to one that is not its newest; the chain as it is then.

        The floor is written first: a prune that is interrupted leaves objects without a reader, which the next one deletes.
        """
        place = self._place(chain)
        floor = Floor(number=last.number, until=last.until, committed=last.last_commit)
        await self._replace(f"{place}/floor.json", floor)
        for kind in ("pages", "entries", "data"):
            names = [one.name async for one in self.store.list(f"{place}/{kind}")]
            for name in names:
                if int(name.rpartition("/")[2][:12]) <= last.number:
                    await self.store.delete(name)
        return self._above(chain, floor)

    async def drop(self, chain: Chain) -> None:
        """Delete a chain that a later one follows; its entry goes last.

        The index goes from its end on: what an interrupted call leaves is a chain without holes, for the next call.
        """
        place = self._place(chain)
        for kind in ("entries", "pages", "data", "floor.json"):
            names = [
                one.name async for one in self.store.list(place) if one.name.startswith(f"{place}/{kind}")
            ]
            for name in sorted(names, reverse=True):
                await self.store.delete(name)
        await self.store.delete(f"{self.root}/chains/{chain.number:08d}.json")

    async def _replace(self, name: str, what: Seen | Floor) -> None:
        async def body() -> AsyncGenerator[bytes, None]:
            yield msgspec.json.encode(what)

        await self.store.upload(name, body())

    # --- names and forms

    def _place(self, chain: Chain) -> str:
        return f"{self.root}/{chain.number:08d}"

    async def _entries(self, place: str, first: int) -> AsyncGenerator[Segment, None]:
        after = f"{place}/entries/{first - 1:012d}.json"
        async with aclosing(self.store.list(f"{place}/entries", after=after)) as entries:
            async for one in entries:
                try:
                    segment = await self._read(one.name, Segment)
                except NotFound:
                    continue  # it went into a page meanwhile
                yield segment

    async def _read(self, name: str, form: type[T]) -> T:
        body = await self.store.read(name)
        try:
            return msgspec.json.decode(body, type=form)
        except msgspec.DecodeError as error:
            raise Corrupt(f"{name} cannot be read: {error}") from None

    async def _create(self, name: str, what: Chain | Segment) -> None:
        try:
            await self.store.create(name, msgspec.json.encode(what))
        except AlreadyExists as error:
            raise Superseded(f"another archiver wrote {name}") from error

    def _follows(self, last: Segment | None, segment: Segment, chain: Chain) -> None:
        number, after = (last.number, last.until) if last is not None else (chain.pruned, chain.after)
        if segment.number != number + 1:
            raise Corrupt(
                f"{self._place(chain)}: the segments {number + 1} to {segment.number - 1} are missing"
            )
        if segment.after != after:
            raise Corrupt(
                f"{self._place(chain)}: segment {segment.number} goes on after {segment.after}, the one before it ends at {after}"
            )
