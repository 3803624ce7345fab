"""The keys of an RDB file, one after the other, without reading their values.

A value of the file between its type and the next entry is what DUMP answers, but for ten bytes at the end: so a value is
skipped over by its type and handed on as it is. What is not understood ends the reading: nothing is guessed. Formats: up to
12 (Redis 7.4 to 8.2) and those of Valkey, 80 included; values of modules are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Entries", "Entry", "Function", "NotUnderstood"]


class _Code:
    """What stands in place of a type where no key follows."""

    SLOT_INFO: Final = 0xF4
    FUNCTION: Final = 0xF5
    MODULE_AUX: Final = 0xF7
    IDLE: Final = 0xF8
    FREQUENCY: Final = 0xF9
    AUX: Final = 0xFA
    RESIZE_DB: Final = 0xFB
    EXPIRES_MS: Final = 0xFC
    EXPIRES: Final = 0xFD
    SELECT_DB: Final = 0xFE
    EOF: Final = 0xFF


_CHECKSUM: Final = 8
_HEAD: Final = 9
_OF_VALKEY: Final = 22


class NotUnderstood(Exception):
    """What the file holds cannot be read; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key."""

    database: int
    key: bytes
    value: bytes
    """Its type and its value, as DUMP answers them before the version and the checksum."""
    expires: int
    """Milliseconds since 1970; 0: never."""


@dataclass(frozen=True, slots=True)
class Function:
    """A library of functions (Redis 7)."""

    code: bytes


class _Short(Exception):
    """More bytes are needed."""


class Entries:
    """Reads a file piece by piece; holds up to twice the largest value."""

    def __init__(self) -> None:
        self.format = 0
        """The RDB version; 0 until the head was read."""
        self.ended = False
        """The file was read to its end."""
        self._valkey = False
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = _HEAD
        self._database = 0

    def feed(self, data: bytes) -> Iterator[Entry | Function]:
        """What became whole with these bytes. Raises `NotUnderstood`."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return
        buffer, at = b"".join(self._pieces), 0
        if not self.format:
            at = self._head(buffer)
        try:
            while at < len(buffer):
                if self.ended:
                    raise NotUnderstood("the file goes on after its end; use another backup")
                found, at = self._next(buffer, at)
                if found is not None:
                    yield found
        except (_Short, IndexError):
            pass
        rest = buffer[at:]
        self._pieces, self._size = [rest], len(rest)
        # A long value is not looked through again for every piece of it.
        self._wanted = 2 * len(rest) if at == 0 else 0

    def finish(self) -> Iterator[Entry | Function]:
        """What is left. Raises `NotUnderstood` where the file is not whole."""
        self._wanted = 0
        if not self.format:
            self._head(b"".join(self._pieces))
        yield from self.feed(b"")
        if not self.ended or self._size:
            raise NotUnderstood("the file ends in the middle; use another backup")

    def _head(self, buffer: bytes) -> int:
        magic = next((one for one in (b"REDIS", b"VALKEY") if buffer.startswith(one)), None)
        if magic is None or not buffer[len(magic) : _HEAD].isdigit():
            raise NotUnderstood("this is no RDB file; use another backup")
        self.format, self._valkey = int(buffer[len(magic) : _HEAD]), magic == b"VALKEY"
        return _HEAD

    def _next(self, buffer: bytes, at: int) -> tuple[Entry | Function | None, int]:
        """The entry at a place, ``None`` for what is no key, and where the next one is."""
        expires = 0
        while True:
            code = buffer[at]
            at += 1
            if code < _Code.SLOT_INFO:
                return self._entry(buffer, at, code, expires)
            match code:
                case _Code.EXPIRES_MS:
                    expires = int.from_bytes(_taken(buffer, at, 8), "little")
                    at += 8
                case _Code.EXPIRES:
                    expires = int.from_bytes(_taken(buffer, at, 4), "little") * 1000
                    at += 4
                case _Code.IDLE:
                    _, at = _length(buffer, at)
                case _Code.FREQUENCY:
                    _taken(buffer, at, 1)
                    at += 1
                case _:
                    return self._other(buffer, at, code)

    def _other(self, buffer: bytes, at: int, code: int) -> tuple[Function | None, int]:
        match code:
            case _Code.SELECT_DB:
                number, at = _length(buffer, at)
                self._database = number
            case _Code.RESIZE_DB:
                at = _skip_lengths(buffer, at, 2)
            case _Code.AUX:
                at = _skip_strings(buffer, at, 2)
                _taken(buffer, at, 0)
            case _Code.FUNCTION:
                code_of, at = _string(buffer, at)
                return Function(code_of), at
            case _Code.SLOT_INFO:
                at = _skip_lengths(buffer, at, 3)
            case _Code.EOF:
                if self.format >= 5:
                    _taken(buffer, at, _CHECKSUM)
                    at += _CHECKSUM
                self.ended = True
            case _Code.MODULE_AUX:
                raise NotUnderstood(
                    "it holds data of a server's module, which cannot be restored; take the module's keys out before the backup"
                )
            case _:
                raise NotUnderstood("it holds functions of a version before 7.0; use a release of Redis 7")
        return None, at

    def _entry(self, buffer: bytes, at: int, kind: int, expires: int) -> tuple[Entry, int]:
        skip = _VALUES.get(kind)
        # Redis had another value of this type before 7.4 was released.
        if skip is None or (kind == _OF_VALKEY and not self._valkey):
            what = (
                "a value of a server's module"
                if kind in (6, 7)
                else f"a value of a kind that is not known ({kind})"
            )
            raise NotUnderstood(
                f"it holds {what}, which cannot be restored; take such keys out before the backup"
            )
        key, start = _string(buffer, at)
        end = skip(buffer, start)
        if end > len(buffer):
            raise _Short
        return Entry(self._database, key, bytes((kind,)) + buffer[start:end], expires), end


def _taken(buffer: bytes, at: int, size: int) -> bytes:
    if at + size > len(buffer):
        raise _Short
    return buffer[at : at + size]


def _length(buffer: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    first = buffer[at]
    if first < 0x40:
        return first, at + 1
    if first < 0x80:
        return (first & 0x3F) << 8 | buffer[at + 1], at + 2
    if first in (0x80, 0x81):
        size = 4 if first == 0x80 else 8
        return int.from_bytes(_taken(buffer, at + 1, size), "big"), at + 1 + size
    raise NotUnderstood("the file is damaged; use another backup")


def _skip_string(buffer: bytes, at: int) -> int:
    first = buffer[at]
    if first < 0xC0:
        size, at = _length(buffer, at)
        return at + size
    match first & 0x3F:
        case 0:
            return at + 2
        case 1:
            return at + 3
        case 2:
            return at + 5
        case 3:
            size, at = _length(buffer, at + 1)
            _, at = _length(buffer, at)
            return at + size
    raise NotUnderstood("the file is damaged; use another backup")


def _string(buffer: bytes, at: int) -> tuple[bytes, int]:
    """A string as it is meant, and where it ends."""
    first = buffer[at]
    if first < 0xC0:
        size, at = _length(buffer, at)
        return _taken(buffer, at, size), at + size
    end = _skip_string(buffer, at)
    if end > len(buffer):
        raise _Short
    if first & 0x3F < 3:
        return str(int.from_bytes(buffer[at + 1 : end], "little", signed=True)).encode(), end
    size, at = _length(buffer, at + 1)
    whole, at = _length(buffer, at)
    return _unpacked(buffer[at:end], whole), end


def _unpacked(data: bytes, size: int) -> bytes:
    """What LZF packed: runs of literal bytes, and copies of what came before."""
    found, at = bytearray(), 0
    try:
        while at < len(data):
            control = data[at]
            at += 1
            if control < 32:
                found += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            back = (control & 31) << 8 | data[at]
            at += 1
            start = len(found) - back - 1
            if start < 0:
                raise IndexError
            for one in range(start, start + length + 2):  # the copy may overlap what it writes
                found.append(found[one])
    except IndexError:
        found.clear()
    if len(found) != size:
        raise NotUnderstood("a key's name cannot be unpacked; use another backup")
    return bytes(found)


def _skip_strings(buffer: bytes, at: int, count: int) -> int:
    for _ in range(count):
        at = _skip_string(buffer, at)
    return at


def _skip_lengths(buffer: bytes, at: int, count: int) -> int:
    for _ in range(count):
        _, at = _length(buffer, at)
    return at


# --- values, by their type ---------------------------------------------------------------------------------

_Skip = Callable[[bytes, int], int]


def _many(strings: int) -> _Skip:
    """A number of elements, each of so many strings."""

    def skip(buffer: bytes, at: int) -> int:
        count, at = _length(buffer, at)
        return _skip_strings(buffer, at, count * strings)

    return skip


def _sorted_set(buffer: bytes, at: int) -> int:
    """Members with scores as text, before Redis 4."""
    count, at = _length(buffer, at)
    for _ in range(count):
        at = _skip_string(buffer, at)
        size = buffer[at]
        at += 1 if size > 252 else 1 + size
    return at


def _sorted_set_binary(buffer: bytes, at: int) -> int:
    count, at = _length(buffer, at)
    for _ in range(count):
        at = _skip_string(buffer, at) + 8
    return at


def _chunked_list(buffer: bytes, at: int) -> int:
    """Nodes of a list, each with how it is packed."""
    count, at = _length(buffer, at)
    for _ in range(count):
        _, at = _length(buffer, at)
        at = _skip_string(buffer, at)
    return at


def _expiring_hash(buffer: bytes, at: int) -> int:
    """Fields that end one by one (7.4): the first end, then when, name and value of each."""
    count, at = _length(buffer, at + 8)
    for _ in range(count):
        _, at = _length(buffer, at)
        at = _skip_strings(buffer, at, 2)
    return at


def _hash_of_valkey(buffer: bytes, at: int) -> int:
    """Fields that end one by one (Valkey 9): name, value and when, of each."""
    count, at = _length(buffer, at)
    for _ in range(count):
        at = _skip_strings(buffer, at, 2) + 8
    return at


def _stream(edition: int) -> _Skip:
    """A stream: its nodes, its last id, and its groups with what is pending. Editions: 5.0, 7.0, 7.2."""

    def skip(buffer: bytes, at: int) -> int:
        nodes, at = _length(buffer, at)
        at = _skip_strings(buffer, at, nodes * 2)
        at = _skip_lengths(buffer, at, 3 if edition == 1 else 8)
        groups, at = _length(buffer, at)
        for _ in range(groups):
            at = _skip_string(buffer, at)
            at = _skip_lengths(buffer, at, 2 if edition == 1 else 3)
            pending, at = _length(buffer, at)
            for _ in range(pending):
                _, at = _length(buffer, at + 24)
            consumers, at = _length(buffer, at)
            for _ in range(consumers):
                at = _skip_string(buffer, at) + (8 if edition < 3 else 16)
                theirs, at = _length(buffer, at)
                at += 16 * theirs
        return at

    return skip


_VALUES: Final[dict[int, _Skip]] = {
    0: _skip_string,
    **dict.fromkeys((1, 2, 14), _many(1)),
    3: _sorted_set,
    4: _many(2),
    5: _sorted_set_binary,
    **dict.fromkeys((9, 10, 11, 12, 13, 16, 17, 20), _skip_string),
    15: _stream(1),
    18: _chunked_list,
    19: _stream(2),
    21: _stream(3),
    _OF_VALKEY: _hash_of_valkey,
    24: _expiring_hash,
    25: lambda buffer, at: _skip_string(buffer, at + 8),
}
"""How each type of value is skipped; see `rdb.h` of Redis and of Valkey. 6 and 7 are those of modules, 22 is Valkey's."""
