"""Finalizers, set and taken away without touching those of others.

A merge patch would write the whole list, and bring back what another controller has just removed. So: a JSON
patch by index, at exactly the version that was looked at.
"""

from __future__ import annotations

from typing import Any, TypeVar

from mooring.kube.errors import Conflict, Invalid
from mooring.kube.object import Object, key_of
from mooring.kube.patches import JsonPatch
from mooring.runtime.client import CachedClient

__all__ = ["add_finalizer", "remove_finalizer"]

T = TypeVar("T", bound=Object)


async def add_finalizer(client: CachedClient, obj: T, finalizer: str) -> T:
    """Set a finalizer, before the first effect that has to be undone; the object as it is then.

    Raises `Conflict` when the object has changed since it was read: look again.
    """
    held = obj.metadata.finalizers
    if finalizer in (held or ()):
        return obj
    value: Any = [finalizer] if held is None else finalizer
    path = "/metadata/finalizers" if held is None else "/metadata/finalizers/-"
    return await _patch(client, obj, {"op": "add", "path": path, "value": value})


async def remove_finalizer(client: CachedClient, obj: T, finalizer: str) -> T:
    """Take a finalizer away, when nothing is left to be undone; the object as it is then.

    Raises `Conflict` when the object has changed since it was read: look again.
    """
    held = obj.metadata.finalizers or []
    if finalizer not in held:
        return obj
    return await _patch(
        client, obj, {"op": "remove", "path": f"/metadata/finalizers/{held.index(finalizer)}"}
    )


async def _patch(client: CachedClient, obj: T, operation: dict[str, Any]) -> T:
    key = key_of(obj)
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": obj.metadata.resource_version}
    try:
        return await client.patch(
            type(obj), key.name, JsonPatch([version, operation]), namespace=key.namespace
        )
    except Invalid as error:
        # How the API server answers a test that fails: the object has changed meanwhile.
        raise Conflict(error.message, status=409, reason="Conflict") from error
