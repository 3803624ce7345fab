"""Server-side apply and the managedFields of every other write, as structured-merge-diff keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mooring.local.api.schema import Schema

__all__ = ["Writer", "apply", "restore_times", "track"]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: field manager, API version of the request, time (RFC 3339), subresource ("" or "status")."""

    manager: str
    api_version: str
    time: str
    subresource: str = ""


def apply(
    live: JsonObject | None,
    config: JsonObject,
    schema: Schema,
    writer: Writer,
    *,
    force: bool = False,
    reset: Sequence[str] = (),
) -> JsonObject:
    """Return the live object (None: it does not exist) with an applied configuration merged in.

    managedFields are updated; `reset` names paths the request cannot change ("status", "spec",
    "metadata.ownerReferences"), which no manager comes to own. The very `live` comes back when nothing
    changed. Raises Conflict (409, causes FieldManagerConflict) unless `force`, BadRequest for a bad config.
    The caller then defaults, validates and stores; see `restore_times`.
    """
    raise NotImplementedError


def track(
    live: JsonObject | None, new: JsonObject, schema: Schema, writer: Writer, *, reset: Sequence[str] = ()
) -> JsonObject:
    """Return `new` with managedFields as after a create (live None), update or patch by the writer.

    `new` is defaulted. The result's managedFields derive from the live object's, or from those the
    client sent when they are valid (an empty list resets them).
    """
    raise NotImplementedError


def restore_times(new: JsonObject, live: JsonObject) -> JsonObject:
    """Return `live` itself when `new` differs from it in nothing but times of managedFields, else `new`."""
    raise NotImplementedError
