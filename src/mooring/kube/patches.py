"""The kinds of patch the API knows, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

__all__ = ["ApplyPatch", "JsonPatch", "MergePatch", "Patch", "StrategicMergePatch"]

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class MergePatch:
    """JSON merge patch (RFC 7386): ``None`` deletes a key, a list is replaced whole."""

    content_type: ClassVar[str] = "application/merge-patch+json"
    body: dict[str, Any]

    def encode(self) -> bytes:
        """The request body."""
        return _encoder.encode(self.body)


@dataclass(frozen=True, slots=True)
class StrategicMergePatch(MergePatch):
    """Merge patch that merges lists by their keys; built-in kinds only."""

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class ApplyPatch(MergePatch):
    """Server-side apply: the body is all the manager wants to own."""

    content_type: ClassVar[str] = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """JSON patch (RFC 6902); a failing ``test`` is answered 422, not 409."""

    content_type: ClassVar[str] = "application/json-patch+json"
    body: list[dict[str, Any]]

    def encode(self) -> bytes:
        """The request body."""
        return _encoder.encode(self.body)


Patch = MergePatch | JsonPatch
