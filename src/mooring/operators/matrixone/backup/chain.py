"""Incremental backups: each lists all objects of the data and stores those that are new since its base.

A base lies beside the backup that builds on it. The manifest names it and has the SHA-256 of its manifest, so a base that
was replaced is noticed. What a backup does not store itself is in the nearest backup below it that has the name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mooring.objectstore import NotFound, Store
from mooring.operators.backup.layout import MANIFEST, is_backup_id
from mooring.operators.backup.manifest import Manifest, ManifestError, StoredPart, decode_manifest

__all__ = ["BASE", "FULL_BECAUSE", "Broken", "Held", "Link", "based_on", "chain_of", "held_below", "stands"]

BASE: Final = "base"
"""Fact of a manifest: ID of the backup that this one builds on."""
BASE_SUM: Final = "baseSha256"
"""Fact of a manifest: SHA-256 of the base's manifest."""
FULL_BECAUSE: Final = "fullBecause"
"""Fact of a manifest: why a backup that was to be incremental is a full one."""
_NO_POSITION: Final = ("", "0-0")


class Broken(Exception):
    """The chain is not whole, or no backup can build on it; the text names what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """One backup of a chain."""

    place: str
    manifest: Manifest
    sha256: str
    """Of the manifest."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """An object, and the backup that stores it."""

    place: str
    part: StoredPart


async def chain_of(store: Store, place: str) -> list[Link]:
    """The backup at ``place`` and those that it builds on, newest first; raises `Broken`."""
    links: list[Link] = []
    while True:
        identity = place.rpartition("/")[2]
        try:
            data = await store.read(f"{place}/{MANIFEST}" if place else MANIFEST)
            link = Link(place=place, manifest=decode_manifest(data), sha256=hashlib.sha256(data).hexdigest())
        except NotFound:
            raise Broken(f"the backup {identity} is not there") from None
        except ManifestError as error:
            raise Broken(f"the backup {identity}: {error}") from None
        if links and links[-1].manifest.facts.get(BASE_SUM) != link.sha256:
            raise Broken(f"the backup {identity} is another one than {links[-1].manifest.id} was built on")
        links.append(link)
        base = link.manifest.facts.get(BASE, "")
        if not base:
            return links
        parent, slash, _ = place.rpartition("/")
        place = f"{parent}{slash}{base}"
        if not is_backup_id(base) or any(one.place == place for one in links):
            raise Broken(f"the base {base[:100]!r} of the backup {identity} cannot be one")


def based_on(link: Link) -> dict[str, str]:
    """The facts of a backup that builds on this one."""
    return {BASE: link.manifest.id, BASE_SUM: link.sha256}


async def stands(store: Store, links: Sequence[Link]) -> str:
    """The position that the next backup begins at; raises `Broken` where an object of the chain is gone."""
    for link in links:
        there: dict[str, int] = {}
        async with aclosing(store.list(link.place)) as objects:
            async for one in objects:
                there[one.name.removeprefix(f"{link.place}/")] = one.size
        for part in link.manifest.parts:
            if there.get(part.place) != part.stored:
                raise Broken(f"{part.name} of the backup {link.manifest.id} is gone or has another size")
    position = links[0].manifest.position
    if position in _NO_POSITION:
        raise Broken(f"the backup {links[0].manifest.id} has no position")
    return position


def held_below(links: Iterable[Link], names: Iterable[str]) -> Mapping[str, Held]:
    """Where each object is that a backup does not store itself; ``links`` are those below it. Raises `Broken`."""
    known: dict[str, Held] = {}
    searched = []
    for link in links:
        searched.append(link.manifest.id)
        for part in link.manifest.parts:
            known.setdefault(part.name, Held(place=link.place, part=part))
    found = {}
    for name in names:
        if name not in known:
            raise Broken(
                f"{name} is in none of the backups below it ({', '.join(searched) or 'there are none'})"
            )
        found[name] = known[name]
    return found
