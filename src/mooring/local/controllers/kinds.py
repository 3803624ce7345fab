"""Every kind the API serves, custom ones included, for those who treat all objects alike.

`MetadataKind`s are types that decode an object's metadata and nothing else, so that watching everything
costs little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import msgspec
import structlog

from mooring.cache.store import Transition
from mooring.kube.client import Client
from mooring.kube.errors import ApiError, KubeError, NotFound
from mooring.kube.object import Object, Resource
from mooring.kube.objects.apiextensions import CustomResourceDefinition
from mooring.local.controllers.context import Context

__all__ = ["Kinds", "Served", "discover", "metadata_kind"]

log = structlog.get_logger("mooring.local.kinds")


@dataclass(frozen=True, slots=True)
class Served:
    """A resource of the API and what can be done with it."""

    resource: Resource
    verbs: frozenset[str]

    def can(self, *verbs: str) -> bool:
        """Whether all the verbs are served."""
        return self.verbs.issuperset(verbs)


@cache
def metadata_kind(resource: Resource) -> type[Object]:
    """A type for the objects of a resource that holds their metadata only."""
    made = msgspec.defstruct(
        f"{resource.kind}Metadata",
        [],
        bases=(Object,),
        namespace={"resource": resource},
        frozen=True,
        kw_only=True,
        gc=False,
    )
    return cast("type[Object]", made)


async def discover(client: Client) -> list[Served]:
    """Every resource, in the version its group prefers or else in another that has it; subresources are left out."""
    versions = ["/api/v1"]
    groups = await _read(client, "/apis")
    for group in groups.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("groupVersion")
        others = [one["groupVersion"] for one in group.get("versions") or ()]
        versions += [f"/apis/{one}" for one in dict.fromkeys([preferred, *others]) if one]
    lists = await asyncio.gather(*(_resources(client, path) for path in versions))
    found: dict[tuple[str, str], Served] = {}
    for served in (one for each in lists for one in each):
        found.setdefault((served.resource.group, served.resource.plural), served)
    return list(found.values())


async def _resources(client: Client, path: str) -> list[Served]:
    try:
        found = await _read(client, path)
    except NotFound:
        return []  # the group went while we asked
    group, _, version = path.removeprefix("/apis/").rpartition("/")
    group = "" if path == "/api/v1" else group
    return [
        Served(
            Resource(group, version, entry["kind"], entry["name"], bool(entry.get("namespaced"))),
            frozenset(entry.get("verbs") or ()),
        )
        for entry in found.get("resources") or ()
        if "/" not in entry["name"]
    ]


async def _read(client: Client, path: str) -> dict[str, Any]:
    answer = await client.request("GET", path)
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found


Listener = Callable[[Iterable[Served]], object]


@dataclass
class Kinds:
    """The current list of kinds; read once, and again whenever a CustomResourceDefinition changes."""

    context: Context
    served: tuple[Served, ...] = ()
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _listeners: list[Listener] = field(default_factory=list)
    _stale: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.context.informers.of(CustomResourceDefinition).add_handler(self._on_definition)
        self._stale.set()

    def _on_definition(self, change: Transition[CustomResourceDefinition]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or (old.spec, old.status) != (new.spec, new.status):
            self._stale.set()

    def listen(self, listener: Listener) -> None:
        """Be told of the list, now if it is known and whenever it has changed."""
        self._listeners.append(listener)
        if self.ready.is_set():
            listener(self.served)

    def find(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind, whatever version it is asked in."""
        group = api_version.rpartition("/")[0]
        for each in self.served:
            if (each.resource.group, each.resource.kind) == (group, kind):
                return each.resource
        return None

    async def run(self) -> None:
        """Keep the list current; runs until cancelled."""
        clock, delay = self.context.clock, 0.1
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                found = tuple(await discover(self.context.client.live))
            except (ApiError, KubeError) as error:
                log.warning("the API's kinds could not be read", error=str(error), retry_in=delay)
                self._stale.set()
                await clock.sleep(delay)
                delay = min(30.0, delay * 2)
                continue
            delay = 0.1
            if found != self.served or not self.ready.is_set():
                self.served = found
                self.ready.set()
                for listener in self._listeners:
                    listener(found)
