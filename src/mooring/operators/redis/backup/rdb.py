"""What the first bytes of an RDB file say: its format, its writer, and how many keys the first database has."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["HEAD", "Head", "head_of"]

HEAD = 4096
"""Bytes that are enough for the head: auxiliary fields come first, and are short."""
_MAGICS = {b"REDIS": "redis", b"VALKEY": "valkey"}
_AUX, _SELECT_DB, _RESIZE_DB, _FUNCTION = 0xFA, 0xFE, 0xFB, 0xF5


@dataclass(frozen=True, kw_only=True)
class Head:
    """The head of an RDB file.

    ``first`` is the first database with keys and how many it has, exactly as they were saved; ``None`` where the file
    has none, or something that is not understood stands before it (functions of Redis 7).
    """

    format: int
    aux: dict[str, str] = field(default_factory=dict)
    first: tuple[int, int] | None = None
    functions: bool = False
    """It begins with functions of Redis 7."""


def head_of(data: bytes) -> Head | None:
    """The head from the first `HEAD` bytes; ``None`` for what is no RDB file."""
    magic = next((one for one in _MAGICS if data.startswith(one)), None)
    if magic is None or not data[len(magic) : 9].isdigit():
        return None
    aux: dict[str, str] = {}
    reader = _Reader(data, 9)
    first, code = None, 0
    try:
        while (code := reader.byte()) == _AUX:
            name = reader.text()
            aux[name] = reader.text()
        if code == _SELECT_DB:
            number = reader.length()
            if reader.byte() == _RESIZE_DB:
                first = number, reader.length()
    except _Ends:
        pass
    return Head(format=int(data[len(magic) : 9]), aux=aux, first=first, functions=code == _FUNCTION)


class _Ends(Exception):
    """The bytes end, or are not understood."""


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise _Ends
        self._at += size
        return found

    def length(self) -> int:
        first = self.byte()
        match first >> 6:
            case 0:
                return first & 0x3F
            case 1:
                return (first & 0x3F) << 8 | self.byte()
            case 2:
                return int.from_bytes(self._take(4 if first == 0x80 else 8), "big")
        raise _Ends

    def text(self) -> str:
        first = self._data[self._at] if self._at < len(self._data) else 0
        if first >> 6 == 3:
            self._at += 1
            size = {0: 1, 1: 2, 2: 4}.get(first & 0x3F)
            if size is None:
                raise _Ends
            return str(int.from_bytes(self._take(size), "little", signed=True))
        return self._take(self.length()).decode(errors="replace")
