"""Typed access to an API server.

There is no ``update``: a struct holds only the fields we know, so writing it back whole would delete
what a newer server or another client has set. Writes are create, server-side apply, patch and delete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from mooring.kube.errors import ApiError, DecodeError, api_error
from mooring.kube.object import Key, Object, ObjectMetadata, Resource, decode, encode, key_of
from mooring.kube.objects.meta import DeleteOptions, ListMeta, ObjectMeta, Preconditions
from mooring.kube.patches import ApplyPatch, Patch
from mooring.kube.transport import Response, Transport

__all__ = ["Client", "Page", "Undecodable", "WatchEvent"]

T = TypeVar("T", bound=Object)

JSON = "application/json"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that does not fit its type: one bad object, not a stopped controller."""

    key: Key
    resource_version: str
    error: DecodeError


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Objects of a list, with the version of the collection they were read at."""

    items: list[T]
    resource_version: str
    continue_: str = ""
    undecodable: list[Undecodable] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event of a watch.

    ``type`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR. ``object`` is ``None`` for the last two and
    when the object could not be decoded (then ``undecodable`` says which). ``error`` belongs to ERROR.
    ``initial_events_end`` marks the bookmark that ends a watch-list's initial state.
    """

    type: str
    resource_version: str = ""
    object: T | None = None
    undecodable: Undecodable | None = None
    error: ApiError | None = None
    initial_events_end: bool = False


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    kind: str = ""


class _RawList(msgspec.Struct):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_meta = msgspec.json.Decoder(_Meta).decode
_decode_raw_list = msgspec.json.Decoder(_RawList).decode
_decode_event = msgspec.json.Decoder(_RawEvent).decode


@cache
def _list_decoder(kind: type[T]) -> msgspec.json.Decoder[Any]:
    """A decoder of whole lists, in one pass; used as long as every object is sound."""
    shape = msgspec.defstruct(
        f"{kind.__name__}List",
        [("metadata", ListMeta, msgspec.field(default_factory=ListMeta)), ("items", list[kind] | None, None)],  # type: ignore[valid-type]
    )
    return msgspec.json.Decoder(shape)


class Client:
    """Reads and writes objects of any kind whose type is known.

    Every method raises :class:`~mooring.kube.errors.ApiError` when the server refuses,
    :class:`~mooring.kube.errors.TransportError` when there was no answer and
    :class:`~mooring.kube.errors.DecodeError` when the answer does not fit the type.
    """

    def __init__(self, transport: Transport, *, field_manager: str = "mooring") -> None:
        self.transport = transport
        self.field_manager = field_manager

    def as_manager(self, field_manager: str) -> Client:
        """The same connection under another field manager."""
        return Client(self.transport, field_manager=field_manager)

    async def close(self) -> None:
        """Close the transport."""
        await self.transport.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> Response:
        """One raw request; an error status raises."""
        headers = {"Accept": accept} if accept != JSON else {}
        if body is not None:
            headers["Content-Type"] = content_type
        answer = await self.transport.request(
            method, path, query=query, body=body, headers=headers, timeout=timeout
        )
        if answer.status >= 400:
            raise api_error(answer.status, answer.body, answer.headers)
        return answer

    async def get(self, kind: type[T], name: str, *, namespace: str = "") -> T:
        """Read one object."""
        path = _path(kind.resource, namespace, name)
        return decode((await self.request("GET", path, accept=_accept(kind))).body, kind)

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_: str = "",
        resource_version: str | None = None,
        resource_version_match: str | None = None,
    ) -> Page[T]:
        """Read one page (``limit`` 0: all) of a collection; ``namespace`` "" means all namespaces."""
        query = _selectors(label_selector, field_selector)
        if limit:
            query["limit"] = str(limit)
        if continue_:
            query["continue"] = continue_
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        if resource_version_match:
            query["resourceVersionMatch"] = resource_version_match
        path = _collection(kind.resource, namespace)
        answer = await self.request("GET", path, query=query, accept=_accept(kind, suffix="List"))
        return _page(answer.body, kind)

    @asynccontextmanager
    async def watch(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: int = 0,
        send_initial_events: bool = False,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """Open a watch from a version; with ``send_initial_events`` it begins with all objects."""
        query = {**_selectors(label_selector, field_selector), "watch": "1", "allowWatchBookmarks": "true"}
        if resource_version:
            query["resourceVersion"] = resource_version
        if timeout_seconds:
            query["timeoutSeconds"] = str(timeout_seconds)
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        path = _collection(kind.resource, namespace)
        headers = {"Accept": _accept(kind)}
        async with self.transport.stream("GET", path, query=query, headers=headers) as answer:
            if answer.status >= 400:
                raise api_error(answer.status, await answer.read(), answer.headers)
            yield (_event(line, kind) async for line in answer)

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        """Create an object; raises :class:`AlreadyExists` when its name is taken."""
        if isinstance(obj, ObjectMetadata):
            raise TypeError(f"{obj.resource.kind} {key_of(obj)}: cannot be created from its metadata alone")
        path = _collection(obj.resource, obj.metadata.namespace or "")
        answer = await self.request("POST", path, query=self._write_query(dry_run=dry_run), body=encode(obj))
        return decode(answer.body, type(obj))

    async def apply(
        self,
        obj: T,
        *,
        field_manager: str | None = None,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: own exactly the fields that ``obj`` sets, giving up any other we owned.

        Without ``force`` a field owned by another manager with another value raises :class:`Conflict`.
        """
        query = self._write_query(field_manager=field_manager, dry_run=dry_run)
        query["force"] = "true" if force else "false"
        key = key_of(obj)
        path = _path(obj.resource, key.namespace, key.name, subresource)
        answer = await self.request(
            "PATCH", path, query=query, body=encode(obj), content_type=ApplyPatch.content_type
        )
        return decode(answer.body, type(obj))

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Send a patch; a ``resourceVersion`` in a merge patch makes a stale one a :class:`Conflict`."""
        path = _path(kind.resource, namespace, name, subresource)
        query = self._write_query(field_manager=field_manager, dry_run=dry_run)
        answer = await self.request(
            "PATCH", path, query=query, body=patch.encode(), content_type=patch.content_type
        )
        return decode(answer.body, kind)

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = "Background",
        grace_period: int | None = None,
        dry_run: bool = False,
    ) -> T | None:
        """Delete an object of that ``uid`` and ``resource_version`` only, if given (else :class:`Conflict`).

        Returns the object when it lives on for a while (finalizers, a grace period), else ``None``.
        """
        preconditions = Preconditions(uid=uid, resource_version=resource_version)
        options = DeleteOptions(
            api_version="v1",
            kind="DeleteOptions",
            preconditions=preconditions if uid or resource_version else None,
            propagation_policy=propagation,
            grace_period_seconds=grace_period,
            dry_run=["All"] if dry_run else None,
        )
        path = _path(kind.resource, namespace, name)
        answer = await self.request("DELETE", path, body=msgspec.json.encode(options))
        if _decode_meta(answer.body).kind == "Status":
            return None
        return decode(answer.body, kind)

    async def evict(self, name: str, *, namespace: str, uid: str | None = None) -> None:
        """Evict a pod; raises :class:`TooManyRequests` while a PodDisruptionBudget forbids it."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        await self.request("POST", path, body=msgspec.json.encode(body))

    def _write_query(self, *, field_manager: str | None = None, dry_run: bool = False) -> dict[str, str]:
        query = {"fieldManager": field_manager or self.field_manager, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return query


def _accept(kind: type[Object], *, suffix: str = "") -> str:
    """What to ask for: the whole object, or its metadata from a server that can send it alone."""
    if not issubclass(kind, ObjectMetadata):
        return JSON
    return f"{JSON};as=PartialObjectMetadata{suffix};g=meta.k8s.io;v=v1,{JSON}"


def _path(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    if not _is_segment(name):
        raise ValueError(f"{resource.kind}: a name is needed, not {name!r}")
    if resource.namespaced and not _is_segment(namespace):
        raise ValueError(f"{resource.kind} {name!r}: a namespace is needed, not {namespace!r}")
    return resource.path(namespace=namespace, name=name, subresource=subresource)


def _collection(resource: Resource, namespace: str) -> str:
    if namespace and not _is_segment(namespace):
        raise ValueError(f"{resource.plural}: {namespace!r} is not a namespace")
    return resource.path(namespace=namespace)


def _is_segment(text: str) -> bool:
    """Whether the text stays one segment of a URL path: a name may come from a user's spec."""
    return bool(text) and text not in {".", ".."} and not set(text) & set("/%?#")


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    query = {}
    if label_selector:
        query["labelSelector"] = label_selector
    if field_selector:
        query["fieldSelector"] = field_selector
    return query


def _page(body: bytes, kind: type[T]) -> Page[T]:
    try:
        whole = _list_decoder(kind).decode(body)
        meta: ListMeta = whole.metadata
        return Page(whole.items or [], meta.resource_version or "", meta.continue_ or "")
    except msgspec.ValidationError:
        pass  # at least one object is unsound: find out which, keep the others
    except msgspec.DecodeError as error:
        raise DecodeError(f"{kind.resource.kind}List: {error}") from error
    raw = _decode_raw_list(body)
    page: Page[T] = Page([], raw.metadata.resource_version or "", raw.metadata.continue_ or "")
    for entry in raw.items or ():
        try:
            page.items.append(decode(bytes(entry), kind))
        except DecodeError as error:
            page.undecodable.append(_undecodable(bytes(entry), error))
    return page


def _undecodable(raw: bytes, error: DecodeError) -> Undecodable:
    try:
        meta = _decode_meta(raw).metadata
    except msgspec.MsgspecError:
        meta = ObjectMeta()
    return Undecodable(Key(meta.namespace or "", meta.name or ""), meta.resource_version or "", error)


def _event(line: bytes, kind: type[T]) -> WatchEvent[T]:
    try:
        raw = _decode_event(line)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"watch of {kind.resource.plural}: {error}") from error
    body = bytes(raw.object)
    if raw.type == "ERROR":
        status = msgspec.json.decode(body)
        return WatchEvent("ERROR", error=api_error(int(status.get("code") or 500), status))
    if raw.type == "BOOKMARK":
        meta = _decode_meta(body).metadata
        ended = (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
        return WatchEvent("BOOKMARK", meta.resource_version or "", initial_events_end=ended)
    try:
        obj = decode(body, kind)
    except DecodeError as error:
        bad = _undecodable(body, error)
        return WatchEvent(raw.type, bad.resource_version, undecodable=bad)
    return WatchEvent(raw.type, obj.metadata.resource_version or "", obj)
