"""What a cache can refuse.

CacheError
├── NotCached       no informer holds the kind, or it is not synced yet
├── OutsideFilter   the informer sees only a part of the kind, and this is not in it
└── BadObject       the object exists but does not fit its type
"""

from __future__ import annotations

__all__ = ["BadObject", "CacheError", "NotCached", "OutsideFilter"]


class CacheError(Exception):
    """Base of everything raised by :mod:`mooring.cache`."""


class NotCached(CacheError):
    """Nothing caches this kind; start an informer for it, or read it live."""


class OutsideFilter(CacheError):
    """The informer cannot know: its namespace or selector leaves the object out. Not the same as absent."""


class BadObject(CacheError):
    """The object is there, but its current version does not fit the type; acting on it would be guessing."""
