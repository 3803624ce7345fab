"""A tiny API server behind the `Transport` protocol: enough truth for caches and controllers, faults on demand.

Not a model of Kubernetes (the embedded API server and the real one are that): objects are JSON, versions
count up, lists page, watches replay history and can be compacted, held, cut or poisoned; deletion honours
finalizers; every request is recorded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from mooring.kube import Key, TransportError
from mooring.kube.transport import Response, StreamResponse

__all__ = ["FakeApi", "Request", "status"]

Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    body: Json
    accept: str = ""


def status(code: int, reason: str, message: str = "", **details: Any) -> Response:
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
    }
    if details:
        body["details"] = details
    headers = {"Retry-After": str(details["retryAfterSeconds"])} if "retryAfterSeconds" in details else {}
    return Response(code, headers, json.dumps(body).encode())


@dataclass
class _Collection:
    objects: dict[Key, Json] = field(default_factory=dict)
    history: list[tuple[int, str, Json]] = field(default_factory=list)


class _Stream:
    def __init__(self, code: int = 200, body: bytes = b"") -> None:
        self.status = code
        self.headers: Mapping[str, str] = {}
        self.lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._body = body
        self.plural = ""
        self.namespace = ""
        self.selector = ""

    async def read(self) -> bytes:
        return self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            line = await self.lines.get()
            if line is None:
                return
            if isinstance(line, Exception):
                raise line
            yield line


Fault = Callable[[Request], Response | Exception | None]


class FakeApi:
    """Implements `mooring.kube.Transport`."""

    def __init__(self) -> None:
        self.version = 100
        self.requests: list[Request] = []
        self.streams: list[_Stream] = []
        self.faults: list[Fault] = []
        self.after: list[Fault] = []
        self.held = False
        self.deaf = False
        self.stream_lists = True
        self._backlog: list[tuple[_Stream, bytes]] = []
        self._compacted: dict[str, int] = {}
        self._collections: dict[str, _Collection] = {}
        self._uids = self._names = 0

    # --- the world outside

    def collection(self, plural: str) -> _Collection:
        return self._collections.setdefault(plural, _Collection())

    def get(self, plural: str, name: str, namespace: str = "default") -> Json:
        return self.collection(plural).objects[Key(namespace, name)]

    def put(self, plural: str, name: str, namespace: str = "default", **content: Any) -> Json:
        """Create or replace an object as some other client would."""
        old = self.collection(plural).objects.get(Key(namespace, name))
        meta: Json = {"name": name, **content.pop("metadata", {})}
        if namespace:
            meta["namespace"] = namespace
        if old is None:
            self._uids += 1
            meta["uid"] = f"uid-{self._uids}"
            meta["generation"] = 1
        else:
            meta["uid"] = old["metadata"]["uid"]
            changed = old.get("spec") != content.get("spec")
            meta["generation"] = old["metadata"].get("generation", 1) + changed
        return self._store(plural, {"metadata": meta, **content}, "MODIFIED" if old else "ADDED")

    def remove(self, plural: str, name: str, namespace: str = "default") -> None:
        obj = dict(self.collection(plural).objects.pop(Key(namespace, name)))
        self._record(
            plural, "DELETED", {**obj, "metadata": {**obj["metadata"], "resourceVersion": self._next()}}
        )

    def compact(self, plural: str) -> None:
        """Forget history: a watch from before now is 410."""
        self._compacted[plural] = self.version
        self.collection(plural).history.clear()

    @contextmanager
    def losing_events(self) -> Iterator[None]:
        """What happens in this block reaches no open stream."""
        self.deaf = True
        yield
        self.deaf = False

    def hold(self) -> None:
        """Deliver no events until `release`."""
        self.held = True

    def release(self) -> None:
        self.held = False
        backlog, self._backlog = self._backlog, []
        for stream, line in backlog:
            stream.lines.put_nowait(line)

    def cut(self, error: Exception | None = None) -> None:
        """End every stream, in order or with an error."""
        streams, self.streams = self.streams, []
        for stream in streams:
            stream.lines.put_nowait(error)

    def send(self, event: Json) -> None:
        """Put a raw event on every stream."""
        for stream in self.streams:
            stream.lines.put_nowait(json.dumps(event).encode())

    def bookmark(self) -> None:
        version = str(self.version)
        self.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}})

    def fail(self, method: str, answer: Response | Exception, *, times: int = 1, path: str = "") -> None:
        """Answer the next requests of that method (WATCH for streams) with a fault; nothing is carried out."""
        left = [times]

        def fault(request: Request) -> Response | Exception | None:
            if request.method != method or path not in request.path or not left[0]:
                return None
            left[0] -= 1
            return answer

        self.faults.append(fault)

    def lose_answer(self, method: str, *, times: int = 1) -> None:
        """Carry out the next requests of that method, but answer with a broken connection."""
        left = [times]

        def fault(request: Request) -> Exception | None:
            if request.method != method or not left[0]:
                return None
            left[0] -= 1
            return TransportError("connection reset by peer")

        self.after.append(fault)

    def writes(self, plural: str = "") -> list[Request]:
        return [r for r in self.requests if r.method not in ("GET", "WATCH") and f"/{plural}" in r.path]

    def count(self, method: str, plural: str) -> int:
        return sum(r.method == method and f"/{plural}" in r.path for r in self.requests)

    # --- storage

    def _next(self) -> str:
        self.version += 1
        return str(self.version)

    def _store(self, plural: str, obj: Json, kind: str) -> Json:
        obj["metadata"]["resourceVersion"] = self._next()
        key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        self.collection(plural).objects[key] = obj
        self._record(plural, kind, obj)
        return obj

    def _record(self, plural: str, kind: str, obj: Json) -> None:
        obj = json.loads(json.dumps(obj))
        self.collection(plural).history.append((int(obj["metadata"]["resourceVersion"]), kind, obj))
        for stream in self.streams:
            if stream.plural == plural and stream.namespace in ("", obj["metadata"].get("namespace")):
                self._deliver(stream, {"type": kind, "object": obj})

    def _deliver(self, stream: _Stream, event: Json) -> None:
        if self.deaf or not _named(event["object"], stream.selector):
            return
        line = json.dumps(event).encode()
        if self.held:
            self._backlog.append((stream, line))
        else:
            stream.lines.put_nowait(line)

    # --- Transport

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        request = Request(method, path, dict(query or {}), json.loads(body) if body else {}, _accept(headers))
        self.requests.append(request)
        await asyncio.sleep(0)
        for fault in self.faults:
            if (answer := fault(request)) is not None:
                return _raise_or(answer)
        answer = self._handle(request)
        for fault in self.after:
            if (other := fault(request)) is not None:
                return _raise_or(other)
        return answer

    def _handle(self, request: Request) -> Response:
        plural, namespace, name, _ = _parse(request.path)
        if request.method == "GET" and not name:
            return self._list(plural, namespace, request.query)
        if request.method == "POST":
            return self._create(plural, namespace, request.body)
        key = Key(namespace, name)
        old = self.collection(plural).objects.get(key)
        if old is None and not (request.method == "PATCH" and "force" in request.query):
            return status(404, "NotFound", f"{plural} {name!r} not found")
        if request.method == "GET":
            return _ok(old)
        if request.method == "DELETE":
            return self._delete(plural, key, request.body)
        if old is None:
            return self._create(plural, namespace, request.body)
        return self._patch(plural, old, request.body)

    def _list(self, plural: str, namespace: str, query: Mapping[str, str]) -> Response:
        keys = sorted(k for k in self.collection(plural).objects if namespace in ("", k.namespace))
        objects = [self.collection(plural).objects[k] for k in keys]
        objects = [obj for obj in objects if _named(obj, query.get("fieldSelector", ""))]
        version, start = str(self.version), 0
        if token := query.get("continue"):
            version, _, offset = token.partition(":")
            start = int(offset)
        limit = int(query.get("limit", 0)) or len(objects)
        meta = {"resourceVersion": version}
        if start + limit < len(objects):
            meta["continue"] = f"{version}:{start + limit}"
        return _ok({"metadata": meta, "items": objects[start : start + limit]})

    def _create(self, plural: str, namespace: str, body: Json) -> Response:
        self._names += 1
        name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self._names}"
        body = {**body, "metadata": {**body["metadata"], "name": name}}
        if Key(namespace, name) in self.collection(plural).objects:
            return status(409, "AlreadyExists", f"{plural} {name!r} already exists")
        return _ok(self.put(plural, name, namespace, **{k: v for k, v in body.items() if k not in ("kind",)}))

    def _patch(self, plural: str, old: Json, body: Json) -> Response:
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != old["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        new = _merge(old, body)
        if new == old:
            return _ok(old)
        new["metadata"]["generation"] = old["metadata"].get("generation", 1) + (
            old.get("spec") != new.get("spec")
        )
        waits = plural == "pods" and not old["metadata"].get(
            "finalizers"
        )  # for its node, whatever is written
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers") and not waits:
            self.remove(plural, new["metadata"]["name"], new["metadata"].get("namespace", ""))
            return _ok(new)
        return _ok(self._store(plural, new, "MODIFIED"))

    def _delete(self, plural: str, key: Key, body: Json) -> Response:
        obj = self.collection(plural).objects[key]
        meta = obj["metadata"]
        for name, value in (body.get("preconditions") or {}).items():
            if meta.get(name) != value:
                return status(409, "Conflict", f"precondition failed: {name}")
        if meta.get("finalizers"):
            doomed = {**obj, "metadata": {**meta, "deletionTimestamp": "2030-01-01T00:00:00Z"}}
            return _ok(self._store(plural, doomed, "MODIFIED"))
        self.remove(plural, key.name, key.namespace)
        return _ok({"kind": "Status", "status": "Success", "details": {"uid": meta["uid"]}})

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[StreamResponse]:
        query = dict(query or {})
        request = Request("WATCH", path, query, {}, _accept(headers))
        self.requests.append(request)
        await asyncio.sleep(0)
        for fault in self.faults:
            if (answer := fault(request)) is not None:
                failed = _raise_or(answer)
                yield _Stream(failed.status, failed.body)
                return
        stream = _Stream()
        stream.plural, stream.namespace, _, _ = _parse(path)
        stream.selector = query.get("fieldSelector", "")
        if "sendInitialEvents" in query and not self.stream_lists:
            refused = status(422, "Invalid", "sendInitialEvents is forbidden")
            yield _Stream(refused.status, refused.body)
            return
        self._replay(stream, query)
        self.streams.append(stream)
        try:
            yield stream
        finally:
            if stream in self.streams:
                self.streams.remove(stream)

    def _replay(self, stream: _Stream, query: Mapping[str, str]) -> None:
        if "sendInitialEvents" in query:
            for obj in self.collection(stream.plural).objects.values():
                self._deliver(stream, {"type": "ADDED", "object": obj})
            end = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": str(self.version)}
            self._deliver(stream, {"type": "BOOKMARK", "object": {"metadata": end}})
            return
        since = int(query.get("resourceVersion") or self.version)
        if since < self._compacted.get(stream.plural, 0):
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            self._deliver(stream, {"type": "ERROR", "object": gone})
            stream.lines.put_nowait(None)
            return
        for version, kind, obj in self.collection(stream.plural).history:
            if version > since and stream.namespace in ("", obj["metadata"].get("namespace")):
                self._deliver(stream, {"type": kind, "object": obj})

    async def close(self) -> None:
        self.cut()


def _accept(headers: Mapping[str, str] | None) -> str:
    return (headers or {}).get("Accept", "")


def _named(obj: Json, selector: str) -> bool:
    name = selector.removeprefix("metadata.name=")
    return name == selector or obj.get("metadata", {}).get("name") in (name, None)


def _parse(path: str) -> tuple[str, str, str, str]:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    return parts[0], namespace, parts[1] if len(parts) > 1 else "", parts[2] if len(parts) > 2 else ""


def _ok(body: Any) -> Response:
    return Response(200, {}, json.dumps(body).encode())


def _raise_or(answer: Response | Exception) -> Response:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _merge(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return new
    out = dict(old) if isinstance(old, dict) else {}
    for key, value in new.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merge(out.get(key), value)
    return out
