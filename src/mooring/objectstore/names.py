"""Names of objects: what every target can store, checked before anything is sent.

A name is a relative path of segments separated by single slashes. The rules are the intersection of what S3, GCS,
Azure and a directory store byte for byte, so that a backup can be copied from any target to any other.
"""

from __future__ import annotations

import re
from typing import Final

from mooring.objectstore.errors import NameInvalid

__all__ = ["RESERVED", "check_name", "check_prefix", "joined"]

#: Names whose segments begin with this are the store's own (staging files, probes); they are never listed.
RESERVED: Final = ".mooring-"
#: S3 takes 1024 bytes; the rest is for the target's own prefix.
_LONGEST: Final = 700
#: A directory entry takes 255 bytes; the rest is for the suffix of a staging file.
_LONGEST_SEGMENT: Final = 200
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._:=+@,-]+")


def check_name(name: str) -> str:
    """Return the name, or raise `NameInvalid`: a part of it could leave the prefix or not be stored."""
    segments = name.split("/")
    for segment in segments:
        if not _SEGMENT.fullmatch(segment) or segment in (".", "..") or len(segment) > _LONGEST_SEGMENT:
            raise NameInvalid(f"{name[:100]!r} cannot be an object's name because of {segment[:50]!r}")
        if segment.startswith(RESERVED):
            raise NameInvalid(f"{name[:100]!r} begins a segment with {RESERVED}, which is reserved")
    if len(name) > _LONGEST:
        raise NameInvalid(f"the name {name[:50]!r}... has {len(name)} bytes; the limit is {_LONGEST}")
    return name


def check_prefix(prefix: str) -> str:
    """Return the prefix without slashes at its ends; it consists of whole segments. Empty: everything."""
    bare = prefix.strip("/")
    return check_name(bare) if bare else ""


def joined(*parts: str) -> str:
    """The parts that are not empty, joined by slashes."""
    return "/".join(part for part in parts if part)
