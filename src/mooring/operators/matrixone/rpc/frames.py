"""Frames of MatrixOne's RPC: what stands around a message on a TCP connection.

| bytes | content |
|---|---|
| 4 | the size of what follows, big-endian as every number here |
| 1 | flags |
| 8 | xxhash64 of body and payload, with the flag CHECKSUM |
| 4 | the size of the payload, with PAYLOAD |
| 8 + 1 + n | the caller's timeout in nanoseconds, and a trace of n bytes, with HEADER |
| 4 | a sequence number, with STREAM |
| rest | the body and the payload |

A frame without HEADER ends the process that receives it, log store or CN (1.2 to 4.2), so none can be written here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag

import xxhash

__all__ = ["MAX_FRAME", "Flag", "Frame", "FrameError", "pack", "size_of", "unpack"]

MAX_FRAME = 64 << 20
"""Largest frame that is read, in bytes: the state of more than a thousand CNs."""
_NO_TRACE = bytes(24)
_NANOSECONDS = 1_000_000_000


class Flag(IntFlag):
    """What a frame contains."""

    PAYLOAD = 1
    CHECKSUM = 2
    HEADER = 4
    COMPRESSED = 8
    STREAM = 16
    PING = 32
    PONG = 64


class FrameError(ValueError):
    """The bytes are no frame that can be read."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What was received, without its size."""

    flags: Flag
    body: memoryview

    @property
    def internal(self) -> bool:
        """It carries no message: a ping or its answer."""
        return bool(self.flags & (Flag.PING | Flag.PONG))


def pack(body: bytes, *, timeout: float, payload: bool) -> bytes:
    """The frame of a request; ``timeout`` in seconds. ``payload``: the peer's messages may have one (log service)."""
    flags = Flag.CHECKSUM | Flag.HEADER | (Flag.PAYLOAD if payload else Flag(0))
    head = struct.pack(">BQ", flags, xxhash.xxh64_intdigest(body))
    if payload:
        head += struct.pack(">I", 0)
    head += struct.pack(">qB", int(timeout * _NANOSECONDS), len(_NO_TRACE)) + _NO_TRACE
    return struct.pack(">I", len(head) + len(body)) + head + body


def size_of(head: bytes) -> int:
    """The size of the rest of a frame by its first four bytes; raises `FrameError` for one that cannot be."""
    (size,) = struct.unpack(">I", head)
    if not 0 < size <= MAX_FRAME:
        raise FrameError(f"a frame of {size} bytes")
    return int(size)


def unpack(data: bytes) -> Frame:
    """Read a frame, without its size; raises `FrameError` where it is cut off or its checksum is wrong."""
    view, at = memoryview(data), 1
    flags = Flag(view[0])
    try:
        expected = payload = None
        if flags & Flag.CHECKSUM:
            (expected,), at = struct.unpack_from(">Q", view, at), at + 8
        if flags & Flag.PAYLOAD:
            (payload,), at = struct.unpack_from(">I", view, at), at + 4
        if flags & Flag.HEADER:
            at += 9 + view[at + 8]
        if flags & Flag.STREAM:
            at += 4
    except (struct.error, IndexError):
        raise FrameError("a frame is cut off") from None
    rest = view[at:]
    if at > len(view) or (payload or 0) > len(rest):
        raise FrameError("a frame is cut off")
    if flags & Flag.COMPRESSED:
        raise FrameError("a compressed frame; MatrixOne's services send none unless configured to")
    if expected is not None and xxhash.xxh64_intdigest(rest) != expected:
        raise FrameError("the checksum of a frame is wrong")
    return Frame(flags, rest[: len(rest) - (payload or 0)])
