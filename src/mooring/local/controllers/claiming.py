"""Who belongs to a controller: keeping, adopting and releasing by selector and controlling owner.

The decision is pure; `Claimer` carries it out. Before anything is adopted the owner is read live once, so
that an owner which was deleted a moment ago does not take in what its deletion has just let go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Generic, Literal, TypeVar

from mooring.cache.informer import Informer
from mooring.kube.errors import Invalid, NotFound
from mooring.kube.object import Object, controller_of, owner_reference
from mooring.kube.selectors import Selector
from mooring.local.controllers.context import Context
from mooring.local.controllers.patching import adopt, disown
from mooring.runtime.controller import Terminal

__all__ = ["Claimer", "Verdict", "verdict"]

T = TypeVar("T", bound=Object)

Verdict = Literal["mine", "adopt", "release", "ignore"]


def verdict(owner: Object, obj: Object, *, matches: bool) -> Verdict:
    """What an owner should do about an object; ``matches``: its selector wants it."""
    reference = controller_of(obj)
    if reference is not None:
        if reference.uid != owner.metadata.uid:
            return "ignore"
        if matches:
            return "mine"
        return "ignore" if owner.metadata.deletion_timestamp else "release"
    if owner.metadata.deletion_timestamp or not matches or obj.metadata.deletion_timestamp:
        return "ignore"
    return "adopt"


class Claimer(Generic[T]):
    """Finds the objects of one kind that belong to an owner, and makes it so."""

    def __init__(self, context: Context, kind: type[T]) -> None:
        self._client = context.client
        self._kind = kind
        self._informer: Informer[T] = context.family(kind)

    async def claim(
        self, owner: Object, selector: Selector, *, belongs: Callable[[T], bool] = lambda _: True
    ) -> list[T]:
        """The objects that are the owner's, after adopting and releasing."""
        mine: list[T] = []
        checked = False
        for obj in self._candidates(owner):
            matches = selector.matches(obj.metadata.labels) and belongs(obj)
            match verdict(owner, obj, matches=matches):
                case "mine":
                    mine.append(obj)
                case "release":
                    await self._release(owner, obj)
                case "adopt":
                    if not checked:
                        await self._still_wanted(owner)
                        checked = True
                    mine += await self._adopt(owner, obj)
        return mine

    def _candidates(self, owner: Object) -> Iterable[T]:
        orphans = self._informer.by_index("orphan", owner.metadata.namespace or "")
        return [*self._informer.owned_by(owner), *orphans]

    async def _still_wanted(self, owner: Object) -> None:
        namespace, name = owner.metadata.namespace or "", owner.metadata.name or ""
        fresh = await self._client.live.get(type(owner), name, namespace=namespace)
        if fresh.metadata.uid != owner.metadata.uid or fresh.metadata.deletion_timestamp:
            raise Terminal(f"{owner.resource.kind} {namespace}/{name} is gone or going: it adopts nothing")

    async def _adopt(self, owner: Object, obj: T) -> list[T]:
        try:
            return [await self._patch(obj, adopt(obj, owner_reference(owner)))]
        except NotFound:
            return []

    async def _release(self, owner: Object, obj: T) -> None:
        with contextlib.suppress(NotFound, Invalid):  # it is gone, or the reference is
            await self._patch(obj, disown(obj, [owner.metadata.uid or ""]))

    async def _patch(self, obj: T, patch: object) -> T:
        meta = obj.metadata
        return await self._client.patch(
            self._kind,
            meta.name or "",
            patch,  # type: ignore[arg-type]
            namespace=meta.namespace or "",
        )
