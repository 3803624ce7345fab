"""Sends the same requests to two API servers and makes their answers comparable.

What must differ (UIDs, times, versions, addresses) becomes a token that still shows what is equal to
what: the first resource version of a scenario is `rv1`, and an answer that leaves it as it was says `rv1`
again.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Answer", "Server", "Step", "normalised", "run"]

Json = Any

#: Seconds until a step with `until` gives up.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Step:
    """One request. `{ns}`, `{rv:N}`, `{uid:N}`, `{token:N}` ... refer to the namespace and earlier answers.

    `ignore` names top-level or dotted fields left out of the comparison; `quiet` compares the status only;
    `until` sends it again until that status comes back.
    """

    method: str
    path: str
    body: Json = None
    type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    ignore: Sequence[str] = ()
    quiet: bool = False
    until: int = 0


@dataclass(frozen=True)
class Answer:
    """What came back: Status code, content type, warnings, and the body (a list of lines for a watch)."""

    status: int
    content_type: str
    warnings: tuple[str, ...]
    body: Json


class Server:
    """One API server, reached with raw paths.

    `bare` is the context of steps that bring an Authorization header of their own: a client certificate in
    `context` would speak louder.
    """

    def __init__(
        self, url: str, context: ssl.SSLContext, token: str = "", *, bare: ssl.SSLContext | None = None
    ) -> None:
        self._host = urlsplit(url).netloc
        self._context, self._bare = context, bare or context
        self._token = token
        self._local = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []

    def send(self, step: Step, path: str, body: Json, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request on this thread's connection; nothing of the path is tidied up."""
        bare = "Authorization" in step.headers
        sent = {"User-Agent": "conformance/1.0", "Accept": "application/json"}
        sent |= step.headers if headers is None else headers
        if self._token and "Authorization" not in sent:
            sent["Authorization"] = f"Bearer {self._token}"
        data = body if isinstance(body, (bytes, type(None))) else _encoded(body)
        if data is not None and step.type:
            sent.setdefault("Content-Type", step.type)
        for kept in (True, False):
            connection = self._connection(bare=bare, kept=kept)
            try:
                connection.request(step.method, path, body=data, headers=sent)
                return _answer(connection.getresponse(), stream="watch=" in path)
            except (http.client.RemoteDisconnected, ConnectionError):
                # A connection that was kept may have been closed meanwhile; a new one tells what is wrong.
                if not kept:
                    raise
        raise AssertionError

    def _connection(self, *, bare: bool, kept: bool) -> http.client.HTTPSConnection:
        connections: dict[bool, http.client.HTTPSConnection] = self._local.__dict__.setdefault(
            "connections", {}
        )
        known = connections.get(bare)
        if kept and known is not None:
            return known
        if known is not None:
            known.close()
        context = self._bare if bare else self._context
        connections[bare] = http.client.HTTPSConnection(self._host, context=context, timeout=30)
        self._opened.append(connections[bare])
        return connections[bare]

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._opened:
            connection.close()


def _encoded(body: Json) -> bytes:
    return (body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))).encode()


def _answer(response: http.client.HTTPResponse, *, stream: bool) -> Answer:
    content = response.read()
    kind = (response.getheader("Content-Type") or "").partition(";")[0]
    warnings = tuple(response.headers.get_all("Warning") or ())
    return Answer(response.status, kind, warnings, _parsed(content, stream))


def _parsed(content: bytes, stream: bool) -> Json:
    text = content.decode(errors="replace")
    try:
        if stream and text.strip():
            return [json.loads(line) for line in text.splitlines() if line]
        return json.loads(text)
    except json.JSONDecodeError:
        return text


_REFERENCE = re.compile(r"\{(rv|uid|continue|ip|token):(\d+|last)\}")
#: Where the value of a reference stands in an answer.
_REFERRED = {
    "rv": ("metadata", "resourceVersion"),
    "uid": ("metadata", "uid"),
    "continue": ("metadata", "continue"),
    "ip": ("spec", "clusterIP"),
    "token": ("status", "token"),
}


def _referred(kind: str, number: str, answers: Sequence[Answer]) -> str:
    """Return what a reference stands for; `last` is the newest answer that holds such a value."""
    part, key = _REFERRED[kind]
    for answer in reversed(answers) if number == "last" else [answers[int(number)]]:
        # The version of a list is that of the whole store, where others write, too.
        single = isinstance(answer.body, dict) and not {"items", "rows"} & answer.body.keys()
        holder = answer.body.get(part) if isinstance(answer.body, dict) and (single or kind != "rv") else None
        if isinstance(holder, dict) and holder.get(key):
            return str(holder[key])
    return "0"


def run(server: Server, steps: Sequence[Step], namespace: str) -> list[Json]:
    """Run a scenario and return its normalised answers."""
    answers: list[Answer] = []

    def fill(text: str) -> str:
        text = text.replace("{ns}", namespace)
        return _REFERENCE.sub(lambda match: _referred(match[1], match[2], answers), text)

    def filled(value: Json) -> Json:
        if isinstance(value, str):
            return fill(value)
        if isinstance(value, dict):
            return {fill(k): filled(v) for k, v in value.items()}
        return [filled(v) for v in value] if isinstance(value, list) else value

    for step in steps:
        answer = _sent(server, step, fill(step.path), filled(step.body), filled(dict(step.headers)))
        answers.append(answer)
    names = _Names(namespace)
    return [normalised(answer, step, names) for answer, step in zip(answers, steps, strict=True)]


def _sent(server: Server, step: Step, path: str, body: Json, headers: Mapping[str, str]) -> Answer:
    deadline = time.monotonic() + _PATIENCE
    while True:
        answer = server.send(step, path, body, headers)
        if step.until in (0, answer.status) or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


class _Names:
    """Gives each value that differs between servers a name, by the order of first appearance."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._known: dict[tuple[str, str], str] = {}

    def of(self, kind: str, value: str) -> str:
        known = self._known.setdefault((kind, value), "")
        if not known:
            known = f"<{kind}{sum(1 for k, _ in self._known if k == kind)}>"
            self._known[kind, value] = known
        return known


#: Lists whose order is not the same from one answer of a real server to the next.
_UNORDERED = ("managedFields", "conditions", "causes", "resourceRules", "nonResourceRules")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"\d+s")


def normalised(answer: Answer, step: Step, names: _Names) -> Json:
    """Return an answer without what differs between two servers."""
    if step.quiet:
        return {"status": answer.status}
    body = answer.body
    for path in step.ignore:
        _drop(body, path.split("."))
    return {
        "status": answer.status,
        "type": answer.content_type,
        "warnings": sorted(answer.warnings),
        "body": _value([e for e in body if not _progress(e)] if isinstance(body, list) else body, names, ""),
    }


def _progress(event: Json) -> bool:
    """Tell whether a line of a watch only reports progress, which a server may do at any time or never."""
    if not isinstance(event, dict) or event.get("type") != "BOOKMARK":
        return False
    return "k8s.io/initial-events-end" not in (event["object"]["metadata"].get("annotations") or {})


def _drop(value: Json, steps: list[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _drop(item, steps)
    elif isinstance(value, dict):
        if len(steps) == 1:
            value.pop(steps[0], None)
        elif steps[0] in value:
            _drop(value[steps[0]], steps[1:])


def _value(value: Json, names: _Names, key: str) -> Json:
    if isinstance(value, dict):
        if "columnDefinitions" in value:
            return _table(value, names)
        if "items" in value and isinstance(value.get("metadata"), dict):
            meta = {k: v for k, v in value["metadata"].items() if k != "resourceVersion"}
            value = {**value, "metadata": meta}
        if value.get("kind") == "Namespace" and "finalizers" in (meta := value.get("metadata") or {}):
            # A real server makes this list anew of a map when one is deleted, in any order.
            value = {**value, "metadata": {**meta, "finalizers": sorted(meta["finalizers"])}}
        return {_text(k, names): _value(v, names, k) for k, v in value.items()}
    if isinstance(value, list):
        items = [_value(item, names, key) for item in value]
        if key in _UNORDERED:
            return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
        return items
    if key == "clusterIPs" and isinstance(value, str) and value != "None":
        return names.of("ip", value)
    if key in ("nodePort", "healthCheckNodePort") and isinstance(value, int):
        return names.of("port", str(value))
    if isinstance(value, str):
        if key == "resourceVersion" and value:
            return names.of("rv", value)
        if key == "continue":
            return names.of("continue", "") if value else ""
        if key == "clusterIP" and value not in ("None", ""):
            return names.of("ip", value)
        return "<age>" if key == "cells" and _AGE.fullmatch(value) else _text(value, names)
    return value


def _table(table: Json, names: _Names) -> Json:
    """Return a table without the prose of its columns and without its list's version."""
    columns = table.get("columnDefinitions") or []
    shown = {
        "kind": table.get("kind"),
        "columns": [{k: v for k, v in column.items() if k != "description"} for column in columns],
        "metadata": {
            key: _value(value, names, key)
            for key, value in (table.get("metadata") or {}).items()
            if key != "resourceVersion"
        },
    }
    return {**shown, "rows": _value(table.get("rows"), names, "rows")}


#: What shows Go's own structures: a diff of two, or a whole one; and a patched object in an order of its own.
_DUMPS = (
    (re.compile(r"\n@@ -.*\n", re.DOTALL), ""),
    (re.compile(r'(Invalid value: )"?[{\[].*[}\]]"?(?=: )', re.DOTALL), r"\1<structure>"),
    (re.compile(r"ResourceVersion in (the precondition|record) \(\d+\)"), r"ResourceVersion in \1"),
    (re.compile(r"ResourceVersion in object meta: \d+"), "ResourceVersion in object meta"),
    (re.compile(r"resourceVersion:\d+"), "resourceVersion:<rv>"),
    # Several causes come in any order; they are compared one by one.
    (re.compile(r"(?<=is invalid: )\[.*\]\Z", re.DOTALL), "<causes>"),
    # Service addresses are drawn from another range on each server.
    (re.compile(r"\b10\.(?:96|171)\.\d+\.\d+\b"), "<ip>"),
    # So are the ports of nodes, which a Service's row shows beside its own.
    (re.compile(r"(?<=\d:)3[0-2]\d{3}(?=/(?:TCP|UDP|SCTP)\b)"), "<port>"),
)


#: At an undeclared field a real server looks no further, and it looks at fields in any order.
_UNDECLARED = re.compile(
    r"(failed to create typed patch object .*\): )(?:errors:\n.*?)?(\S+: field not declared in schema).*",
    re.DOTALL,
)


def _text(text: str, names: _Names) -> str:
    for dump, shown in _DUMPS:
        text = dump.sub(shown, text)
    head, errors, rest = text.partition("errors:\n")
    text = head + errors + "\n".join(sorted(rest.split("\n")))
    if (undeclared := _UNDECLARED.search(text)) is not None:
        text = undeclared[1] + undeclared[2]
    text = _UUID.sub(lambda m: names.of("uid", m[0]), text)
    text = _TIME.sub("<time>", text)
    text = _TOKEN_VOLUME.sub("kube-api-access-<random>", text)
    return text.replace(names.namespace, "<ns>")
