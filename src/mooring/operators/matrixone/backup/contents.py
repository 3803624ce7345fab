"""What the server wrote: every object read, its SHA-256 taken, and compared with the server's own lists.

In a bucket the server stores objects as they are. In a directory it stores files, all but ``mo_meta``, in blocks of 2048
bytes, the first four of which are the CRC-32C of the others; its lists speak of the contents. The SHA-256 that is recorded
is of what is stored.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from mooring.objectstore import Corrupt, Store
from mooring.operators.backup.layout import MANIFEST
from mooring.operators.backup.manifest import StoredPart
from mooring.operators.matrixone.backup.places import HAKEEPER_FILE

__all__ = ["Contents", "inspect", "unpacked"]

META: Final = "mo_meta"
LIST: Final = "tae/tae_list"
SUM: Final = "tae/tae_sum"
_NEEDED: Final = (META, HAKEEPER_FILE, LIST, SUM)
_BLOCK: Final = 2048
_CRC: Final = 4
_AT_ONCE: Final = 4
_LARGEST: Final = 256 << 20
"""Bytes of a list that is kept in memory: about two million objects."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A whole backup."""

    parts: Sequence[StoredPart]
    borrowed: Sequence[str] = ()
    """Objects of the data that this backup does not store, since its base has them."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """``position``: the server's timestamp that the data is of; ``version``: the server's."""


@dataclass(frozen=True, kw_only=True)
class _Read:
    part: StoredPart
    sha256: str
    """Of the contents."""
    kept: bytes = b""


async def inspect(store: Store, place: str, *, blocks: bool) -> Contents:
    """Read all objects of a backup at ``place``; ``blocks``: they are files of a directory.

    Raises `Corrupt` for what is not whole, with its name.
    """
    sizes = {one.name.removeprefix(f"{place}/"): one.size async for one in store.list(place)}
    sizes.pop(MANIFEST, None)
    if missing := [name for name in _NEEDED if name not in sizes]:
        raise _corrupt(place, f"{missing[0]} is missing")
    limit = asyncio.Semaphore(_AT_ONCE)

    async def read(name: str) -> _Read:
        async with limit:
            keep = name in _NEEDED or name.endswith(".sha256")
            return await _read(store, place, name, blocks=blocks and not name.startswith(META), keep=keep)

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(read(name)) for name in sorted(sizes)}
    found = {name: task.result() for name, task in tasks.items()}
    for name in _NEEDED:
        beside = found.get(f"{name}.sha256")
        if beside is None or beside.kept.hex() != found[name].sha256:
            raise _corrupt(place, f"{name} is not what its .sha256 says")
    _compare(place, found)
    borrowed = [f"tae/{row[0]}" for row in _rows(found[LIST].kept) if len(row) > 3 and row[3] != "true"]
    return Contents(
        parts=[one.part for one in found.values()],
        borrowed=[one for one in borrowed if one not in found],
        facts=_facts(found),
    )


def _compare(place: str, found: Mapping[str, _Read]) -> None:
    """Every object of the server's list is there, with the contents that the list says."""
    for row in _rows(found[LIST].kept):
        if len(row) < 4 or row[3] != "true":
            continue
        name = f"tae/{row[0]}"
        if name not in found:
            raise _corrupt(place, f"{name} is in the server's list and not in the store")
        if row[2] and found[name].sha256 != row[2]:
            raise _corrupt(place, f"{name} is not what the server's list says")


def _facts(found: Mapping[str, _Read]) -> dict[str, str]:
    facts = {}
    if (rows := _rows(found[SUM].kept)) and len(rows[0]) > 2:
        facts["position"] = rows[0][2]
    for row in _rows(found[META].kept):
        if row[0] == "buildinfo":
            said = dict(one.partition(":")[::2] for one in row[1].split("|"))
            facts["version"] = said.get("Version", "").strip().removeprefix("v")
    return facts


def _rows(data: bytes) -> list[list[str]]:
    return [row for row in csv.reader(data.decode(errors="replace").splitlines()) if row]


async def _read(store: Store, place: str, name: str, *, blocks: bool, keep: bool) -> _Read:
    stored, contents = hashlib.sha256(), hashlib.sha256()
    rest, kept, size = b"", bytearray(), 0
    async with aclosing(store.download(f"{place}/{name}" if place else name)) as pieces:
        async for piece in pieces:
            size += len(piece)
            stored.update(piece)
            plain = bytes(piece)
            if blocks:
                whole = len(rest) + len(plain) - (len(rest) + len(plain)) % _BLOCK
                data = rest + plain
                plain, rest = unpacked(data[:whole]), data[whole:]
            contents.update(plain)
            if keep:
                kept += plain
                if len(kept) > _LARGEST:
                    raise _corrupt(place, f"{name} is too large for a list")
    if rest:
        contents.update(last := unpacked(rest))
        kept += last if keep else b""
    part = StoredPart(name=name, size=size, sha256=stored.hexdigest(), stored=size)
    return _Read(part=part, sha256=contents.hexdigest(), kept=bytes(kept))


def unpacked(blocks: bytes) -> bytes:
    """The contents of whole blocks of a file, the last of which may be short."""
    return b"".join(blocks[at + _CRC : at + _BLOCK] for at in range(0, len(blocks), _BLOCK))


def _corrupt(place: str, what: str) -> Corrupt:
    return Corrupt(
        f"the backup {place.rpartition('/')[2] or 'there'} is not whole: {what}", remedy="use another backup"
    )
