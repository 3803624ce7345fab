"""The manifest: what a backup is, written last. A backup without a manifest is not a backup. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

__all__ = [
    "FORM",
    "Manifest",
    "ManifestError",
    "Origin",
    "StoredPart",
    "decode_manifest",
    "encode_manifest",
    "facts_of",
    "facts_text",
]

FORM: Final = "mooring/backup/1"
_LONGEST_KEY: Final = 200
_LONGEST_VALUE: Final = 64 << 10


class ManifestError(ValueError):
    """A manifest that cannot be used; the text says why and what to do."""


class Origin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster a backup is of."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    kind: str = ""
    """``redisclusters.redis.kun`` where an operator has several kinds; else the kind alone."""


class StoredPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One object of the data."""

    name: str
    """What the script calls it."""
    object: str = ""
    """The object that holds it, relative to the backup; "" where that is ``name``."""
    size: int
    """Bytes as the data container wrote them."""
    sha256: str
    """Of these bytes, in hex."""
    stored: int = 0
    """Bytes in the store; more than ``size`` where it encrypts."""

    @property
    def place(self) -> str:
        """The object that holds it, relative to the backup."""
        return self.object or self.name


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """What a backup is. Holds no credentials.

    ``facts`` is what the script found out (see `facts_of`), all texts. Names that operators share: ``position`` (GTID set,
    replication offset), ``uncompressed`` (bytes), ``version`` (of the server that was copied), ``source`` (its pod).
    Names of other facts are the operator's own; ``table.NAME`` is rows and checksum of a table.
    """

    form: str = FORM
    id: str
    operator: str
    flavor: str = ""
    method: str = ""
    """How it was made, such as ``logical``: which restore it needs."""
    cluster: Origin = msgspec.field(default_factory=Origin)
    began: datetime
    finished: datetime
    parts: list[StoredPart]
    facts: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all parts, as they were written."""
        return sum(part.size for part in self.parts)

    @property
    def position(self) -> str:
        """Up to where it has the cluster's writes; "" where that has no name."""
        return self.facts.get("position", "")


def encode_manifest(manifest: Manifest) -> bytes:
    """As it is stored: indented JSON, so that people can read it."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode_manifest(data: bytes) -> Manifest:
    """Raises `ManifestError` for what is none, or one of a later version."""
    try:
        form = msgspec.json.decode(data, type=_Form).form
    except msgspec.MsgspecError as error:
        raise ManifestError("this is no manifest of a backup; name one that Mooring wrote") from error
    if form != FORM:
        raise ManifestError(
            f"the manifest has the form {form[:50]!r}, this version reads {FORM}; use a later version"
        )
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"the manifest cannot be read: {error}; use another backup") from error


class _Form(msgspec.Struct):
    form: str


def facts_of(lines: Iterable[str]) -> dict[str, str]:
    """The facts from lines ``NAME=VALUE``; the last of a name counts, what has another form is left out."""
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.rstrip("\n").partition("=")
        if equals and name and len(name) <= _LONGEST_KEY and len(value) <= _LONGEST_VALUE:
            found[name] = value
    return found


def facts_text(facts: Mapping[str, str]) -> str:
    """The reverse of `facts_of`, for a script to read."""
    return "".join(f"{name}={value}\n" for name, value in facts.items() if "\n" not in value)
