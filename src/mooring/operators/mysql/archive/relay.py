"""A piece of the archive as the relay logs of a restored server, which applies them as if it had received them.

The files stand in the server's data directory. Nothing but the applier is started: the server stays read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from mooring.operators.mysql.archive.events import MAGIC, Description, header_of, previous_gtids
from mooring.operators.mysql.archive.store import Archive
from mooring.operators.mysql.archive.stream import encoded
from mooring.operators.mysql.archive.target import Way, transactions
from mooring.operators.mysql.archive.transactions import History
from mooring.operators.mysql.gtid import Position

__all__ = ["FIRST", "INDEX", "Written", "write_relay"]

FIRST: Final = "relay.000001"
"""The first file."""
INDEX: Final = "relay.index"
_LARGEST: Final = 1 << 30
"""Bytes after which a further file begins: a server applies what is smaller than 4 GiB only."""


@dataclass(kw_only=True)
class Written:
    """What was written."""

    files: int = 0
    transactions: int = 0
    bytes: int = 0


async def write_relay(
    archive: Archive, way: Way, directory: Path, *, progress: Callable[[int], None] = lambda _: None
) -> Written:
    """Write the relay logs that lead to the goal, and their index; none where the base is the goal.

    ``progress`` is told the bytes so far. Raises `Refused`, `ObjectStoreError` and OSError.
    """
    written = Written()
    layout: Description | None = None
    file: BinaryIO | None = None
    history: History | None = None
    end = 0
    try:
        async with aclosing(transactions(archive, way)) as steps:
            async for segment, kept in steps:
                head = header_of(kept.event)
                if kept.begins is not None and (
                    file is None
                    or layout is None
                    or layout.event != segment.description
                    or file.tell() > _LARGEST
                    # MySQL cuts off at its start what stands in a relay log after bytes of an earlier place.
                    or head.end - head.size < end
                ):
                    if file is not None:
                        file.close()
                    layout = segment.layout()
                    history = history or History(layout.flavor, way.base)
                    written.files += 1
                    file = (directory / f"relay.{written.files:06d}").open("wb")
                    file.write(_head(layout, history.position))
                assert file is not None
                file.write(kept.event)
                end = head.end
                written.bytes += len(kept.event)
                if kept.ends is not None:
                    written.transactions += 1
                    assert history is not None
                    history.add(kept.ends)
                    progress(written.bytes)
    finally:
        if file is not None:
            file.close()
    if written.files:
        names = (f"./relay.{number:06d}\n" for number in range(1, written.files + 1))
        (directory / INDEX).write_text("".join(names))
    return written


def _head(layout: Description, position: Position) -> bytes:
    head = MAGIC + layout.event
    if layout.flavor == "mysql":
        head += previous_gtids(encoded(position), layout, at=len(head))
    return head
