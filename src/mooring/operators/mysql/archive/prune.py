"""Segments that no backup needs any more: those that every backup of the cluster in the same store has as a whole.

A restore begins with a backup, so nothing that could be restored gets lost by it. What cannot be told stays: without any
backup, or with one whose manifest cannot be read, nothing is deleted. A backup that is being made has no manifest yet, and may
have read a replica that was behind: what was committed within `MARGIN` before the oldest one began stays as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import structlog

from mooring.operators.backup.agent import read_manifest
from mooring.operators.backup.layout import MANIFEST
from mooring.operators.backup.manifest import Manifest
from mooring.operators.mysql.archive.store import Archive, Chain, Segment, reaches
from mooring.operators.mysql.gtid import Position, parse
from mooring.operators.mysql.topology import Flavor

__all__ = ["MARGIN", "prune", "unneeded"]

log = structlog.get_logger("mooring.mysql.archive")

MARGIN: Final = 3600.0
"""Seconds."""


async def prune(archive: Archive, backups: str, *, margin: float = MARGIN) -> Chain | None:
    """Delete what none of the backups below that prefix needs; the newest chain, ``None`` where nothing was deleted.

    Raises `ObjectStoreError`, `ManifestError` and ValueError; nothing is deleted then.
    """
    manifests = await _manifests(archive, backups)
    chains = await archive.chains()
    if not manifests or not chains:
        return None
    flavor = chains[-1].flavor
    bases = [parse(flavor, one.position) for one in manifests]
    before = int((min(one.began for one in manifests).timestamp() - margin) * 1_000_000)
    changed: Chain | None = None
    for at, chain in enumerate(chains):
        follower = chains[at + 1] if at + 1 < len(chains) else None
        if follower is not None and all(reaches(base, follower.start) for base in bases):
            newest = await _newest(archive, chain)
            if newest is None or newest.last_commit < before:
                await archive.drop(chain)
                changed = chains[-1]
                log.info("a chain of the archive is deleted", chain=chain.number)
            continue
        found = await _last_unneeded(archive, chain, bases, before, flavor)
        if found is not None:
            made = await archive.prune(chain, found)
            changed = made if follower is None else chains[-1]
            log.info("segments of the archive are deleted", chain=chain.number, until=found.until)
    return changed


def unneeded(segment: Segment, bases: Sequence[Position], *, before: int, flavor: Flavor) -> bool:
    """Whether every base has a segment as a whole, and it was committed before that moment, in microseconds since 1970."""
    until = parse(flavor, segment.until)
    return segment.last_commit < before and all(reaches(base, until) for base in bases)


async def _last_unneeded(
    archive: Archive, chain: Chain, bases: Sequence[Position], before: int, flavor: Flavor
) -> Segment | None:
    """The last of the first ones that nobody needs; never the chain's newest."""
    found: Segment | None = None
    last: Segment | None = None
    async with aclosing(archive.segments(chain)) as segments:
        async for segment in segments:
            found = last
            if not unneeded(segment, bases, before=before, flavor=flavor):
                break
            last = segment
    return found


async def _newest(archive: Archive, chain: Chain) -> Segment | None:
    newest: Segment | None = None
    async with aclosing(archive.segments(chain)) as segments:
        async for segment in segments:
            newest = segment
    return newest


async def _manifests(archive: Archive, backups: str) -> list[Manifest]:
    names = [one.name async for one in archive.store.list(backups)]
    return [
        await read_manifest(archive.store, name.rpartition("/")[0])
        for name in names
        if name.rpartition("/")[2] == MANIFEST
    ]
