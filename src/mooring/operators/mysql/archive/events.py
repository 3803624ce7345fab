"""Events of a binary log: their headers, and of their bodies what ids, ends and commit times of transactions need.

The layout is the one that both flavours share: 19 bytes of header, the body, and a checksum where the log has them. All of it
is pure; an event is ``bytes`` as the server sent it.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from mooring.operators.mysql.topology import Flavor

__all__ = [
    "HEADER",
    "MAGIC",
    "Description",
    "Gtid",
    "Header",
    "Kind",
    "Malformed",
    "checksummed",
    "ends_transaction",
    "gtid_of",
    "header_of",
    "is_begin",
    "moment",
    "only_gtid_list",
    "previous_gtids",
    "rotation",
    "stamp",
]

MAGIC: Final = b"\xfebin"
"""The first bytes of every log file."""
HEADER: Final = 19
_HEADER: Final = struct.Struct("<IBIIIH")
_CHECKSUM: Final = 4
_ARTIFICIAL: Final = 0x20
_IN_USE: Final = 0x1
_CREATED: Final = HEADER + 2 + 50


class Malformed(Exception):
    """Bytes that are no event as it was expected, or whose checksum is wrong."""


class Kind(IntEnum):
    """Types of events that are told apart; others are passed on as they are."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    HEARTBEAT = 27
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    XA_PREPARE = 38
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE = 160
    MARIADB_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The head of an event."""

    timestamp: int
    """Seconds since 1970: when its statement began."""
    kind: int
    server_id: int
    size: int
    end: int
    """The byte of the source's file at which it ends, modulo 2^32; 0 where it stands in no file."""
    flags: int

    @property
    def artificial(self) -> bool:
        """It was made for the stream and stands in no file."""
        return self.end == 0 or bool(self.flags & _ARTIFICIAL)

    @property
    def unplaced(self) -> bool:
        """It does not say where it ends: inside of a transaction MariaDB 11.7 and later leave that to the last event."""
        return self.end == 0 and not self.flags & _ARTIFICIAL


def header_of(event: bytes) -> Header:
    """The head of an event; raises `Malformed`."""
    if len(event) < HEADER:
        raise Malformed(f"an event of {len(event)} bytes")
    timestamp, kind, server_id, size, end, flags = _HEADER.unpack_from(event)
    if size != len(event):
        raise Malformed(f"an event of {len(event)} bytes says it has {size}")
    return Header(timestamp=timestamp, kind=kind, server_id=server_id, size=size, end=end, flags=flags)


def checksummed(event: bytes) -> bool:
    """Whether the last four bytes of an event are the checksum of those before."""
    return zlib.crc32(event[:-_CHECKSUM]) == int.from_bytes(event[-_CHECKSUM:], "little")


@dataclass(frozen=True, kw_only=True)
class Description:
    """The event that every log file begins with: how the events after it are laid out."""

    event: bytes
    """As it stands in a file that is closed."""
    version: str
    """Of the server that wrote it."""
    checksums: bool

    @classmethod
    def of(cls, event: bytes) -> Description:
        """Read it; raises `Malformed`."""
        if len(event) < HEADER + 57 + 5 or header_of(event).kind != Kind.FORMAT_DESCRIPTION:
            raise Malformed("a log file begins with something else than its description")
        version = event[HEADER + 2 : HEADER + 52].rstrip(b"\0").decode("ascii", "replace")
        checksums = event[-5]
        if checksums not in (0, 1):
            raise Malformed(f"checksums of the kind {checksums} are not known")
        return cls(event=_closed(event), version=version, checksums=checksums == 1)

    @property
    def flavor(self) -> Flavor:
        """Which server wrote it."""
        return "mariadb" if "mariadb" in self.version.lower() else "mysql"

    def body(self, event: bytes) -> bytes:
        """The body of an event under this description, without its checksum."""
        return event[HEADER : len(event) - (_CHECKSUM if self.checksums else 0)]


def _closed(event: bytes) -> bytes:
    """As it stands in a file of its own that is closed: equal for all files of one version of one server.

    Without the time of its server's start: a server that applies it would take that for a restart amid the log.
    """
    changed = bytearray(event)
    changed[0:4] = bytes(4)
    changed[5:9] = (1).to_bytes(4, "little")
    changed[13:17] = (len(MAGIC) + len(event)).to_bytes(4, "little")
    flags = int.from_bytes(changed[17:19], "little") & ~_IN_USE & ~_ARTIFICIAL
    changed[17:19] = flags.to_bytes(2, "little")
    changed[_CREATED : _CREATED + 4] = bytes(4)
    # It always has room for a checksum, whether or not the others have one.
    changed[-_CHECKSUM:] = zlib.crc32(changed[:-_CHECKSUM]).to_bytes(4, "little")
    return bytes(changed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gtid:
    """The first event of a transaction."""

    origin: str
    """As in `gtid.Position`: ``uuid``, ``uuid:tag`` or ``domain-server``."""
    number: int
    alone: bool = False
    """MariaDB: one statement that commits by itself follows."""
    committed: int = 0
    """MySQL: when it was committed where it was first, in microseconds since 1970."""
    size: int = 0
    """MySQL: bytes of the whole transaction; 0 where it does not say."""

    @property
    def text(self) -> str:
        """As people write it."""
        return f"{self.origin}{'-' if '-' in self.origin and len(self.origin) < 32 else ':'}{self.number}"


def gtid_of(event: bytes, head: Header, description: Description) -> Gtid:
    """Read the first event of a transaction; raises `Malformed`, also for one that bears no id."""
    body = description.body(event)
    try:
        match head.kind:
            case Kind.MARIADB_GTID:
                number, domain, flags = struct.unpack_from("<QIB", body)
                return Gtid(origin=f"{domain}-{head.server_id}", number=number, alone=bool(flags & 1))
            case Kind.GTID:
                return _mysql_gtid(body)
            case Kind.GTID_TAGGED:
                return _tagged_gtid(body)
    except (struct.error, IndexError, ValueError) as error:
        raise Malformed(f"the id of a transaction cannot be read: {error}") from None
    raise Malformed("a transaction without an id: GTIDs were off when it was written")


def _mysql_gtid(body: bytes) -> Gtid:
    origin = str(uuid.UUID(bytes=body[1:17]))
    (number,) = struct.unpack_from("<q", body, 17)
    # Flags, id, number, type of the clock, and two numbers of the clock; then the times.
    at = 1 + 16 + 8 + 1 + 8 + 8
    if len(body) < at + 7:
        return Gtid(origin=origin, number=number)
    here = int.from_bytes(body[at : at + 7], "little")
    at += 7
    committed = here & ~(1 << 55)
    if here & (1 << 55):
        committed = int.from_bytes(body[at : at + 7], "little")
        at += 7
    size, _ = _length(body, at) if at < len(body) else (0, at)
    return Gtid(origin=origin, number=number, committed=committed, size=size)


def _tagged_gtid(body: bytes) -> Gtid:
    """MySQL 8.3 and later, ids with a tag: numbered fields, each number of variable length."""
    _version, at = _varied(body, 0)
    end, at = _varied(body, at)
    _last, at = _varied(body, at)
    values: dict[int, int] = {}
    origin, tag = "", ""
    while at < min(end, len(body)):
        field, at = _varied(body, at)
        match field:
            case 1:
                raw = bytearray()
                for _ in range(16):
                    one, at = _varied(body, at)
                    raw.append(one)
                origin = str(uuid.UUID(bytes=bytes(raw)))
            case 3:
                size, at = _varied(body, at)
                tag, at = body[at : at + size].decode("ascii"), at + size
            case 2 | 4 | 5:
                values[field], at = _signed(body, at)
            case _:
                values[field], at = _varied(body, at)
    if not origin or 2 not in values:
        raise ValueError("a tagged id without its fields")
    return Gtid(
        origin=f"{origin}:{tag}" if tag else origin,
        number=values[2],
        committed=values.get(7) or values.get(6, 0),
        size=values.get(8, 0),
    )


def _varied(body: bytes, at: int) -> tuple[int, int]:
    """A number of variable length: as many trailing ones in the first byte as bytes follow it."""
    first = body[at]
    more = 0
    while more < 8 and first & (1 << more):
        more += 1
    if more == 8:
        return int.from_bytes(body[at + 1 : at + 9], "little"), at + 9
    value = int.from_bytes(body[at : at + 1 + more], "little") >> (more + 1)
    return value, at + 1 + more


def _signed(body: bytes, at: int) -> tuple[int, int]:
    value, at = _varied(body, at)
    return (-(value >> 1) - 1 if value & 1 else value >> 1), at


def _length(body: bytes, at: int) -> tuple[int, int]:
    """A number as the protocol packs lengths."""
    first = body[at]
    if first < 0xFB:
        return first, at + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(body[at + 1 : at + 1 + width], "little"), at + 1 + width


_CONTEXT: Final = frozenset({Kind.INTVAR, Kind.RAND, Kind.USER_VAR, Kind.MARIADB_ANNOTATE})
"""What stands before a statement and belongs to it."""


def ends_transaction(event: bytes, head: Header, description: Description, *, alone: bool) -> bool:
    """Whether a transaction that this event is not the first of ends with it.

    ``alone``: it consists of one statement that commits by itself.
    """
    match head.kind:
        case Kind.XID | Kind.XA_PREPARE | Kind.TRANSACTION_PAYLOAD:
            return True
        case Kind.QUERY | Kind.MARIADB_QUERY_COMPRESSED:
            if alone:
                return True
            return _statement(event, head, description) in (b"COMMIT", b"ROLLBACK")
    return alone and head.kind not in _CONTEXT


def is_begin(event: bytes, head: Header, description: Description) -> bool:
    """Whether a MySQL transaction that begins with this event goes on until it is committed."""
    if head.kind != Kind.QUERY:
        return head.kind not in _CONTEXT
    statement = _statement(event, head, description)
    return statement == b"BEGIN" or statement.startswith(b"XA START")


def _statement(event: bytes, head: Header, description: Description) -> bytes:
    """The statement of a query event; "" for one that is compressed and so is none of the short ones."""
    if head.kind != Kind.QUERY:
        return b""
    body = description.body(event)
    # Thread, seconds, length of the database's name, error, length of the variables.
    if len(body) < 13:
        raise Malformed("a statement without its head")
    _, _, database, _, variables = struct.unpack_from("<IIBHH", body)
    return body[13 + variables + database + 1 :]


def rotation(event: bytes, description: Description | None) -> str:
    """The file that a rotate event names; before the first description whether it has a checksum is found out."""
    body = event[HEADER:]
    if description.checksums if description is not None else checksummed(event):
        body = body[:-_CHECKSUM]
    return body[8:].decode("utf-8", "replace")


def only_gtid_list(event: bytes, description: Description) -> str:
    """MariaDB: the position before the first transaction of a file, as `gtid.parse_mariadb` reads it."""
    body = description.body(event)
    (count,) = struct.unpack_from("<I", body)
    ids = (struct.unpack_from("<IIQ", body, 4 + 16 * one) for one in range(count & 0x0FFFFFFF))
    return ",".join(f"{domain}-{server}-{number}" for domain, server, number in ids)


def previous_gtids(encoded: bytes, description: Description, *, at: int) -> bytes:
    """MySQL: the event that a log file says with what came before it, placed at a byte of its file."""
    size = HEADER + len(encoded) + (_CHECKSUM if description.checksums else 0)
    event = _HEADER.pack(0, Kind.PREVIOUS_GTIDS, 1, size, at + size, 0) + encoded
    return event + zlib.crc32(event).to_bytes(4, "little") if description.checksums else event


def moment(stamp: int) -> str:
    """Microseconds since 1970 as RFC 3339 in UTC; whole seconds without a fraction, "" for 0."""
    if not stamp:
        return ""
    text = datetime.fromtimestamp(stamp // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    rest = stamp % 1_000_000
    return f"{text}.{rest:06d}Z" if rest else f"{text}Z"


def stamp(text: str) -> int:
    """The other way; raises ValueError for text that is no time, or that names no zone."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone; add Z for UTC")
    delta = at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds
