"""Who sets a size: a HorizontalPodAutoscaler and ``kubectl scale`` leave a mark in an object's managedFields.

These stay out of the caches, so the object is read once for each generation; every change of a size makes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mooring.kube.client import Client
from mooring.kube.object import Key, Object

__all__ = ["SizeOwners", "scaled_by"]


def scaled_by(entries: Iterable[Mapping[str, Any]], field: str) -> str:
    """The manager that set ``spec.FIELD`` through the scale subresource last, by managedFields; "" for none."""
    for entry in entries:
        owned = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if entry.get("subresource") == "scale" and f"f:{field}" in owned:
            return str(entry.get("manager") or "unknown")
    return ""


class SizeOwners:
    """What was read of each object, by its generation; it may be forgotten at any time."""

    def __init__(self, client: Client, field: str) -> None:
        self._client, self._field = client, field
        self._known: dict[Key, tuple[str, int, str]] = {}

    async def of(self, obj: Object) -> str:
        """The manager that sets the size of an object by its scale subresource; raises as a read does."""
        meta = obj.metadata
        key = Key(meta.namespace or "", meta.name or "")
        uid, generation = meta.uid or "", meta.generation or 0
        known = self._known.get(key)
        if known is None or known[:2] != (uid, generation):
            path = obj.resource.path(namespace=key.namespace, name=key.name)
            found = msgspec.json.decode((await self._client.request("GET", path)).body)["metadata"]
            owner = scaled_by(found.get("managedFields") or (), self._field)
            known = self._known[key] = (
                str(found.get("uid") or ""),
                int(found.get("generation") or 0),
                owner,
            )
        return known[2]

    def forget(self, key: Key) -> None:
        """The object is gone, or another process manages it."""
        self._known.pop(key, None)

    def forget_below(self, key: Key) -> None:
        """The same for the objects that are called ``NAME-...`` after this one."""
        for one in [one for one in self._known if one.namespace == key.namespace]:
            if one.name.startswith(f"{key.name}-"):
                del self._known[one]
