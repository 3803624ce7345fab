"""What a target must be able to do; the store builds encryption, checks and deadlines on top."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

__all__ = ["ABORT_SECONDS", "MOST_PARTS", "Backend", "Limits", "ObjectInfo"]

#: How long a cancelled upload may take to remove what it has sent, in seconds.
ABORT_SECONDS: Final = 5.0
#: Parts of one upload that S3 and GCS take.
MOST_PARTS: Final = 10_000
_MIB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of time, in seconds, and of memory, in bytes."""

    #: To connect, DNS and TLS included.
    connect: float = 5.0
    #: For a call that moves no stream: head, create, delete, copy, one page of a list. A call that took longer may take
    #: ``connect`` more to find out why.
    call: float = 30.0
    #: Without any progress on a stream's connection; a part must be sent within it.
    stall: float = 60.0
    #: For the retries of one request, from its first attempt on; calls end with ``call`` at the latest.
    retry: float = 120.0
    #: Bytes of one part of an upload, 5 MiB at least. An upload holds up to ``concurrency + 1`` parts in memory.
    part_size: int = 8 * _MIB
    #: Parts sent at the same time.
    concurrency: int = 4

    def __post_init__(self) -> None:
        if self.part_size < 5 * _MIB or self.concurrency < 1:
            raise ValueError(
                "part_size must be 5 MiB or more (S3 refuses smaller parts), concurrency 1 or more"
            )
        if min(self.connect, self.call, self.stall, self.retry) <= 0:
            raise ValueError("connect, call, stall and retry are seconds above 0")


@dataclass(frozen=True, kw_only=True)
class ObjectInfo:
    """An object as the store lists it."""

    name: str
    #: Bytes in the store; of an encrypted object more than its plaintext.
    size: int
    modified: datetime
    etag: str = ""


class Backend(Protocol):
    """One bucket or directory. Names include the target's prefix; errors are of this package."""

    async def put(self, name: str, chunks: AsyncGenerator[bytes, None], *, part_size: int) -> None:
        """Write an object as a whole or not at all; an exception of ``chunks`` is raised as it is."""
        ...

    async def create(self, name: str, data: bytes) -> None:
        """Write an object, in one attempt; raises `AlreadyExists`."""
        ...

    def get(self, name: str, *, offset: int, length: int | None) -> AsyncGenerator[bytes, None]:
        """The bytes from ``offset`` on, at most ``length``; none where the object ends before."""
        ...

    async def head(self, name: str) -> ObjectInfo:
        """The object's size and time; raises `NotFound`."""
        ...

    def list(self, prefix: str, *, after: str) -> AsyncGenerator[list[ObjectInfo], None]:
        """Pages of the objects below a prefix of whole segments, ordered by name, after that name."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object; one that does not exist is no error."""
        ...

    async def copy(self, source: str, to: str) -> None:
        """Copy an object, up to 5 GiB, over what is there."""
        ...

    async def clean_uploads(self, prefix: str, *, before: datetime) -> int:
        """Remove what unfinished uploads left that began before that moment; returns how many."""
        ...

    async def close(self) -> None:
        """Let go of threads and connections."""
        ...
