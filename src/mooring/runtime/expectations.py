"""Creates whose outcome nobody knows, of objects whose names the server makes up.

A create of a given name may be repeated: the second is answered AlreadyExists. With ``generateName`` it would
make a second object. So when the answer to such a create is lost, the key whose pass sent it is held back
until a list, read live and later than that, has shown the caches whatever came of it. (The answers that do
arrive need none of this: they are in the caches before the call returns.)

The same doubt is about what a former leader has created right before this process took over: for a while after
that, the first create of such a name reads the live list, and if that shows something new, the pass is over.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mooring.cache.informer import InformerSet
from mooring.kube.client import Client
from mooring.kube.errors import KubeError
from mooring.kube.object import Key, Object
from mooring.runtime.context import current_pass

__all__ = ["Expectations"]

#: Seconds after a lost answer within which the server may still be carrying the request out.
SETTLE_SECONDS: Final = 1.0
#: Seconds after taking over within which the caches may not show yet what the former leader did.
NEW_SECONDS: Final = 10.0
PAGE_SIZE: Final = 500

Worker = tuple[str, Key]


class Expectations:
    """What each key's passes may have created without knowing it."""

    def __init__(self, client: Client, informers: InformerSet) -> None:
        self._client = client
        self._informers = informers
        self._doubts: dict[Worker, dict[tuple[type[Object], str], float]] = {}
        self._new_until = float("-inf")
        self._checks: dict[tuple[type[Object], str], asyncio.Task[bool]] = {}

    def took_over(self) -> None:
        """This process acts from now on for objects that another one may have worked on until now."""
        self._new_until = self._informers.clock.monotonic() + NEW_SECONDS
        self._checks.clear()

    async def surprised(self, kind: type[Object], namespace: str) -> bool:
        """Whether the server shows, shortly after taking over, an object of the kind that the caches did not.

        Asked before a create of a generated name; each kind and namespace is read once. Raises `KubeError` when
        the server cannot be asked.
        """
        where = (kind, namespace)
        if self._informers.clock.monotonic() >= self._new_until or not self._informers.every(kind):
            return False
        check = self._checks.get(where)
        if check is None:
            check = self._checks[where] = asyncio.create_task(self._read_live(kind, namespace))
        elif check.done():
            return False
        try:
            return await asyncio.shield(check)
        except KubeError:
            self._checks.pop(where, None)
            raise

    def doubt(self, obj: Object) -> None:
        """The answer to a create of this object was lost; outside of a pass there is nobody to hold back."""
        current = current_pass()
        if current is not None and current.key is not None:
            doubts = self._doubts.setdefault((current.controller, current.key), {})
            where = (type(obj), obj.metadata.namespace or "")
            doubts[where] = self._informers.clock.monotonic() + SETTLE_SECONDS

    async def settle(self, controller: str, key: Key) -> float:
        """Bring the caches up to date for a key; the seconds it has to wait before that can be done.

        Raises `KubeError` when the server cannot be asked; the doubt stays.
        """
        doubts = self._doubts.get((controller, key))
        if doubts is None:
            return 0.0
        wait = max(doubts.values()) - self._informers.clock.monotonic()
        if wait > 0:
            return wait
        for kind, namespace in list(doubts):
            await self._read_live(kind, namespace)
        del self._doubts[controller, key]
        return 0.0

    async def _read_live(self, kind: type[Object], namespace: str) -> bool:
        """Have the caches know everything that is there; whether one of them knew an object less."""
        token, found = "", False
        while True:
            page = await self._client.list(kind, namespace=namespace, limit=PAGE_SIZE, continue_=token)
            for obj in page.items:
                for informer in self._informers.every(kind):
                    known = len(informer)
                    informer.wrote(obj)
                    found = found or len(informer) > known
            token = page.continue_
            if not token:
                return found
