"""The checksum of a dumped value: CRC-64 as Redis computes it (polynomial 0xad93d23594c935a9, reflected, begins with 0).

No library of Python's has this polynomial. A byte at a time costs about a tenth of a microsecond, so long values are first
folded to 812 bytes of the same checksum: whole-number shifts run at the speed of memory.
"""

from __future__ import annotations

from typing import Final

__all__ = ["crc64"]

_POLYNOMIAL: Final = 0x95AC9329AC4BC9B5
"""0xad93d23594c935a9 with its bits reversed."""
_BITS: Final = 6496
"""The width of a fold. Of the widths below 8192, this one has the fewest terms in x**width modulo the polynomial: 22."""
_BYTES: Final = _BITS // 8
_WORTH: Final = 2 * _BYTES
"""Shorter values are not folded."""


def _table() -> tuple[int, ...]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


def _terms() -> tuple[int, ...]:
    """The terms of x**_BITS modulo the polynomial; bit 63 stands for x**0."""
    power = 1 << 63
    for _ in range(_BITS):
        power = power >> 1 ^ (_POLYNOMIAL if power & 1 else 0)
    return tuple(bit for bit in range(64) if power >> bit & 1)


_TABLE: Final = _table()
_TERMS: Final = _terms()


def crc64(data: bytes) -> int:
    """The checksum of some bytes."""
    if len(data) >= _WORTH:
        data = _folded(data)
    crc, table = 0, _TABLE
    for one in data:
        crc = table[(crc ^ one) & 0xFF] ^ crc >> 8
    return crc


def _folded(data: bytes) -> bytes:
    """Fewer bytes with the same checksum: what stands before a block is multiplied into it, modulo the polynomial."""
    first = len(data) % _BYTES or _BYTES
    state = int.from_bytes(data[:first], "little") << 8 * (_BYTES - first)
    for at in range(first, len(data), _BYTES):
        product = _times(state)
        # The product is 63 bits longer than a block: these are multiplied once more.
        over = _times(product & (1 << 63) - 1) << _BITS - 126
        state = product >> 63 ^ over ^ int.from_bytes(data[at : at + _BYTES], "little")
    return state.to_bytes(_BYTES, "little")


def _times(value: int) -> int:
    product = 0
    for term in _TERMS:
        product ^= value << term
    return product
