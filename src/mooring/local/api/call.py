"""One resolved request: who asks for what, with everything a verb needs to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from mooring.local.api import codec, conversion, failures, services
from mooring.local.api.access.authorization import Authorizer
from mooring.local.api.access.tokens import Authority, TokenError
from mooring.local.api.codec import Format
from mooring.local.api.custom import Conversions, Learned
from mooring.local.api.http import Request, User
from mooring.local.api.kinds import Kind
from mooring.local.api.options import WriteOptions
from mooring.local.api.registry import Registry, Served
from mooring.local.api.request import Target, Verb
from mooring.local.api.storage import Collection, Entry, Store, encode_tail
from mooring.local.api.streams.gateway import NodeGateway
from mooring.local.api.world import World

__all__ = ["Admission", "Call", "Cluster", "Operation", "as_read", "view"]

JsonObject = dict[str, Any]
#: Where a real server keeps kinds that are not kept by their plural; its errors show it.
_KEPT_AT = {
    "services": "services/specs",
    "endpoints": "services/endpoints",
    "nodes": "minions",
    "replicationcontrollers": "controllers",
    "ingresses.networking.k8s.io": "ingress",
}
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


def nobody(token: str, audiences: tuple[str, ...]) -> tuple[User, tuple[str, ...]]:
    """Know no token at all."""
    raise TokenError


class Admission(Protocol):
    """The chain every write goes through; it stands on :class:`Call`, so it is known here by its shape."""

    async def mutate(
        self,
        call: Call,
        obj: JsonObject,
        old: JsonObject | None,
        operation: Operation,
        options: WriteOptions,
    ) -> JsonObject:
        """Return the object as the chain wants it; the very same one when nobody changed it."""
        ...

    async def validate(
        self,
        call: Call,
        obj: JsonObject | None,
        old: JsonObject | None,
        operation: Operation,
        options: WriteOptions | None,
    ) -> None:
        """Ask those who may refuse; raises the first refusal."""
        ...

    async def connect(self, call: Call, options: JsonObject) -> None:
        """Ask those who may refuse a connection to a pod; raises the first refusal."""
        ...


@dataclass(slots=True)
class Cluster:
    """The parts of one API server."""

    store: Store
    registry: Registry
    world: World
    admission: Admission
    authorizer: Authorizer
    tokens: Authority
    conversions: Conversions
    gateway: NodeGateway | None = None
    #: Whether the proxy reaches pods on loopback, where a cluster has none: those of tests are.
    proxies_to_loopback: bool = False
    watchers: int = 0
    #: Set when the server ends; every collection is woken then.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    #: Returns the user of a token and those of some audiences it is for; raises TokenError.
    identify: Callable[[str, tuple[str, ...]], tuple[User, tuple[str, ...]]] = nobody

    def now(self) -> datetime:
        """Return the time."""
        return self.world.now()


def view(entry: Entry, served: Served) -> JsonObject:
    """Return a stored object in a served version, with kind and apiVersion.

    A custom resource is one that `Conversions.show` gave back.
    """
    obj = entry.obj
    if served.converts:
        obj = conversion.from_storage(obj, group=served.group, plural=served.plural)
    return {"kind": served.kind, "apiVersion": served.api_version, **obj}


def as_read(entry: Entry, served: Served) -> Entry:
    """Return an entry as a reader sees it; writes and the status of a Service see it as it is stored."""
    # Most Services are told apart by their bytes alone, without reading them.
    if served.storage != "services" or b'"ExternalName"' not in entry.tail:
        return entry
    obj = services.shown(entry.obj)
    if obj is entry.obj:
        return entry
    return Entry(entry.place, entry.rv, encode_tail(obj), written=entry.written, obj=obj)


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its target looked up."""

    cluster: Cluster
    request: Request
    target: Target
    served: Served
    verb: Verb
    user: User
    #: Views of other versions of a custom resource; None when all of them look alike.
    versions: Learned | None = None

    @property
    def collection(self) -> Collection:
        """The stored objects of the target's resource."""
        return self.cluster.store.collection(self.served.storage)

    @property
    def kind(self) -> Kind:
        """How the target's objects are read and checked."""
        return Kind.of(self.served, self.cluster.registry)

    @property
    def namespace(self) -> str:
        """The target's namespace, "" for cluster-scoped objects and lists over all namespaces."""
        return self.target.namespace

    def form(self, *, listing: bool = False, tables: bool = True) -> Format:
        """Return how the answer is written; raises 406."""
        builtin = self.served.custom is None
        routes = (codec.LIST_ROUTES if listing else codec.OBJECT_TYPES) if builtin else ()
        return codec.negotiate(self.request, builtin=builtin, tables=tables, routes=routes)

    def live(self) -> Entry:
        """Return the newest version of the target; raises 404."""
        entry = self.collection.head((self.target.namespace, self.target.name))
        if entry is None:
            raise self.not_found()
        return entry

    def not_found(self, name: str = "") -> Exception:
        """Return the 404 of the target."""
        return failures.not_found(self.served.group, self.served.plural, name or self.target.name)

    def conflict(self, why: str = failures.MODIFIED) -> Exception:
        """Return the 409 of the target."""
        return failures.conflict(self.served.group, self.served.plural, self.target.name, why)

    def unmet(self, why: str) -> Exception:
        """Return the 409 of a precondition on the stored object, in the words of a real server's storage."""
        served = self.served
        kept = _KEPT_AT.get(served.storage, served.plural)
        kept = f"{served.group}/{kept}" if served.custom is not None else kept
        key = "/".join(filter(None, (kept, self.namespace, self.target.name)))
        return self.conflict(
            f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: {why}"
        )

    def forbidden(self, why: str, name: str = "") -> Exception:
        """Return the 403 of the target."""
        name = name or self.target.name
        return failures.forbidden(self.served.group, self.served.plural, name, why)
