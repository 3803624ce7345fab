"""Fields of a declaration that its type does not know: kept by the server, since the groups were taken over."""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.actor import Context
from mooring.kube.errors import KubeError
from mooring.kube.object import Key
from mooring.runtime import Manager, unknown_fields

__all__ = ["UnknownFields"]


class UnknownFields:
    """What is not known of each object's spec, looked up once per generation.

    A cached object no longer has such fields, so the object is read from the server; a look that fails is made
    again with the next pass, and nothing else depends on it.
    """

    def __init__(self, manager: Manager, spec: type[msgspec.Struct]) -> None:
        self._manager = manager
        self._spec = spec
        self._found: dict[Key, tuple[str, int, list[str]]] = {}

    def of(self, key: Key) -> list[str]:
        """Each with the nearest known one and the remedy."""
        return self._found.get(key, ("", 0, []))[2]

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._found.pop(key, None)

    async def read(self, ctx: Context[Any]) -> None:
        """Look, unless this generation was looked at."""
        seen = (ctx.obj.metadata.uid or "", ctx.obj.metadata.generation or 0)
        if self._found.get(ctx.key, ("", 0))[:2] == seen:
            return
        path = ctx.obj.resource.path(namespace=ctx.key.namespace, name=ctx.key.name)
        try:
            answer = await self._manager.client.live.request("GET", path)
        except KubeError:
            return
        raw = msgspec.json.decode(answer.body)
        if (raw.get("metadata") or {}).get("uid") != ctx.obj.metadata.uid:
            return
        found = unknown_fields(self._spec, raw.get("spec") or {}, path="spec")
        self._found[ctx.key] = (*seen, [f"{one}; correct or remove it" for one in found])
