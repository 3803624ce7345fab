"""The audit log: who asked for what and what came of it, as a policy wants it, one JSON Event a line.

The policy is a file of kind Policy (audit.k8s.io/v1): the first rule that a request meets gives the level
(None, Metadata, Request, RequestResponse); a request that meets none is not logged. Events are written
by a thread of their own, so a slow disk holds no request up; what is still unwritten when the process is
killed is lost, as on a real server in its batch mode.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.local.api import codec
from mooring.local.api.access.rbac import Attributes
from mooring.local.api.http import Answer, Request, User

__all__ = ["AuditLog", "Policy", "PolicyError", "Record"]

_log = logging.getLogger(__name__)

JsonObject = dict[str, Any]

LEVELS: Final = ("None", "Metadata", "Request", "RequestResponse")
STAGES: Final = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
#: Bytes after which a log is put aside as FILE.1 (the one before is overwritten).
MOST_BYTES: Final = 100 << 20
_STATUS: Final = b'{"kind":"Status"'


class PolicyError(ValueError):
    """An audit policy that cannot be used; the text names what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which requests are logged, and how much of them."""

    rules: tuple[Mapping[str, Any], ...]
    omit: frozenset[str] = frozenset()

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Read a policy from a YAML file; raises PolicyError."""
        try:
            document = codec.decode(path.read_bytes(), "application/yaml")
        except (OSError, ValueError) as error:
            raise PolicyError(f"audit policy {path}: {error}") from None
        return cls.read(document, where=str(path))

    @classmethod
    def read(cls, document: Any, *, where: str = "audit policy") -> Policy:
        """Check a policy; raises PolicyError."""
        if not isinstance(document, dict) or document.get("kind") != "Policy":
            raise PolicyError(f"{where}: must be an object of kind Policy (apiVersion audit.k8s.io/v1)")
        if document.get("apiVersion") != "audit.k8s.io/v1":
            raise PolicyError(f"{where}: apiVersion must be audit.k8s.io/v1")
        rules = document.get("rules") or []
        for index, rule in enumerate(rules):
            level = rule.get("level") if isinstance(rule, dict) else None
            if level not in LEVELS:
                raise PolicyError(f"{where}: rules[{index}].level must be one of {', '.join(LEVELS)}")
            _check_stages(rule.get("omitStages"), f"{where}: rules[{index}].omitStages")
        _check_stages(document.get("omitStages"), f"{where}: omitStages")
        return cls(tuple(rules), frozenset(document.get("omitStages") or ()))

    def decide(self, wanted: Attributes) -> tuple[str, frozenset[str]]:
        """Return the level of a request, and the stages that are not logged."""
        for rule in self.rules:
            if _meets(rule, wanted):
                return str(rule["level"]), self.omit | frozenset(rule.get("omitStages") or ())
        return "None", frozenset(STAGES)


def _check_stages(stages: Any, where: str) -> None:
    wrong = [stage for stage in stages or () if stage not in STAGES]
    if wrong:
        raise PolicyError(f"{where}: {wrong[0]} is no stage: {', '.join(STAGES)}")


def _meets(rule: Mapping[str, Any], wanted: Attributes) -> bool:
    if (users := rule.get("users")) and wanted.user.name not in users:
        return False
    if (groups := rule.get("userGroups")) and not set(groups) & set(wanted.user.groups):
        return False
    if (verbs := rule.get("verbs")) and wanted.verb not in verbs:
        return False
    namespaces, resources, urls = (rule.get(key) for key in ("namespaces", "resources", "nonResourceURLs"))
    if wanted.path is None:
        if not (namespaces or resources):
            return not urls
        if namespaces and wanted.namespace not in namespaces:
            return False
        return not resources or any(_names_resource(one, wanted) for one in resources)
    if urls:
        return any(_covers(url, wanted.path) for url in urls)
    return not (namespaces or resources)


def _names_resource(one: Mapping[str, Any], wanted: Attributes) -> bool:
    if (one.get("group") or "") != wanted.group:
        return False
    listed = one.get("resources") or ()
    names = one.get("resourceNames") or ()
    if listed and not any(_same_resource(pattern, wanted) for pattern in listed):
        return False
    return not names or wanted.name in names


def _same_resource(pattern: str, wanted: Attributes) -> bool:
    if pattern in ("*", wanted.full_resource):
        return True
    resource, _, subresource = pattern.partition("/")
    if resource == "*":
        return subresource == wanted.subresource
    return subresource == "*" and bool(wanted.subresource) and resource == wanted.resource


def _covers(url: str, path: str) -> bool:
    return path.startswith(url[:-1]) if url.endswith("*") else path == url


@dataclass(slots=True)
class Record:
    """One request on its way: what its Events say, and the body it was sent with."""

    event: JsonObject
    level: str
    omitted: frozenset[str]
    body: bytes = b""
    annotations: JsonObject = field(default_factory=dict)


class AuditLog:
    """Writes Events to a file."""

    def __init__(self, path: Path, policy: Policy, *, now: Callable[[], datetime]) -> None:
        self._path, self._policy, self._now = path, policy, now
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")
        self._lines: list[bytes] = []
        self._writing: asyncio.Future[None] | None = None
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def begin(self, request: Request, wanted: Attributes) -> Record | None:
        """Log that a request came; None when it is not to be logged."""
        level, omitted = self._policy.decide(wanted)
        if level == "None":
            return None
        query = request.query.raw
        event: JsonObject = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": level,
            "auditID": request.header("audit-id") or str(uuid.uuid4()),
            "requestURI": request.path + (f"?{query}" if query else ""),
            "verb": wanted.verb,
            "user": wanted.user.to_json(),
            "sourceIPs": [request.peer or "127.0.0.1"],
            "userAgent": request.header("user-agent"),
            "requestReceivedTimestamp": _moment(self._now()),
        }
        if wanted.path is None:
            event["objectRef"] = _reference(wanted, request)
        record = Record({key: value for key, value in event.items() if value}, level, omitted)
        request.read_body = _remembered(request.read_body, record)
        self._write(record, "RequestReceived", {})
        return record

    def started(self, record: Record, answer: Answer, acted: User | None) -> None:
        """Log that a stream begins."""
        self._write(record, "ResponseStarted", self._outcome(record, answer, acted))

    def complete(self, record: Record, answer: Answer, acted: User | None) -> None:
        """Log what a request was answered."""
        more = self._outcome(record, answer, acted)
        sent = _decoded(record.body) if record.body else None
        _complete_reference(record.event, sent)
        if record.level in LEVELS[2:] and sent is not None:
            more["requestObject"] = sent
        if record.level == "RequestResponse" and "objectRef" in record.event:
            answer.pieces = list(answer.pieces)  # they are read once more, to be sent
            shown = _decoded(answer.body or b"".join(answer.pieces))
            more |= {"responseObject": shown} if shown is not None else {}
        self._write(record, "ResponseComplete", more)

    def _outcome(self, record: Record, answer: Answer, acted: User | None) -> JsonObject:
        status: JsonObject = {"metadata": {}}
        found = _decoded(answer.body) if answer.status >= 400 or answer.body[:16] == _STATUS else None
        if isinstance(found, dict) and found.get("kind") == "Status":
            status |= {key: found[key] for key in ("status", "message", "reason", "details") if key in found}
        status["code"] = answer.status
        more: JsonObject = {"responseStatus": status}
        if acted is not None:
            more["impersonatedUser"] = acted.to_json()
        if record.annotations:
            more["annotations"] = dict(record.annotations)
        return more

    def _write(self, record: Record, stage: str, more: JsonObject) -> None:
        if stage in record.omitted:
            return
        event = {**record.event, **more, "stage": stage, "stageTimestamp": _moment(self._now())}
        self._lines.append(msgspec.json.encode(event) + b"\n")
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._lines:
            lines, self._lines = self._lines, []
            try:
                await loop.run_in_executor(self._thread, self._append, b"".join(lines))
            except OSError as error:
                _log.error("audit log %s: %d events are lost: %s", self._path, len(lines), error)
        self._writing = None

    def _append(self, data: bytes) -> None:
        if os.fstat(self._file).st_size + len(data) > MOST_BYTES:
            os.close(self._file)
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    async def close(self) -> None:
        """Write what is left and close the file."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        self._thread.shutdown(wait=True)
        os.close(self._file)


def _remembered(read: Callable[[], Awaitable[bytes]], record: Record) -> Callable[[], Awaitable[bytes]]:
    async def reading() -> bytes:
        record.body = await read()
        return record.body

    return reading


def _reference(wanted: Attributes, request: Request) -> JsonObject:
    version = request.path.split("/")[2 if not wanted.group else 3] if wanted.resource else ""
    shown = {
        "resource": wanted.resource,
        "namespace": wanted.namespace,
        "name": wanted.name,
        "apiGroup": wanted.group,
        "apiVersion": version,
        "subresource": wanted.subresource,
    }
    return {key: value for key, value in shown.items() if value}


def _complete_reference(event: JsonObject, sent: Any) -> None:
    """Add to what an Event is about what only the body said: the name of a new object, say."""
    meta = sent.get("metadata") if isinstance(sent, dict) else None
    about = event.get("objectRef")
    if about is None or not isinstance(meta, dict):
        return
    for key in ("namespace", "name", "uid", "resourceVersion"):
        if meta.get(key) and not about.get(key):
            about[key] = meta[key]


def _decoded(body: bytes) -> Any:
    """Return JSON as it is and YAML decoded; None for anything else."""
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError:
        pass
    try:
        found = codec.decode(body, "application/yaml")
    except ValueError:
        return None
    return found if isinstance(found, (dict, list)) else None


def _moment(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
