"""Requests and answers as the verbs see them, whether they came over TLS or from this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from mooring.local.api import failures

__all__ = ["BODY_LIMIT", "Answer", "Query", "Request", "User"]

#: Bytes of a request body; more is 413.
BODY_LIMIT = 3 << 20


@dataclass(frozen=True, slots=True)
class User:
    """Who sends a request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The user as reviews and admission webhooks show it."""
        shown: dict[str, Any] = {"username": self.name}
        if self.uid:
            shown["uid"] = self.uid
        if self.groups:
            shown["groups"] = list(self.groups)
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in self.extra.items()}
        return shown


class Query:
    """The query of a request; values are read as the real server converts them."""

    __slots__ = ("_values", "raw")

    def __init__(self, values: Mapping[str, list[str]], raw: str = "") -> None:
        self._values = values
        #: What was written after the question mark.
        self.raw = raw

    @classmethod
    def parse(cls, text: str) -> Query:
        """Read what follows the question mark."""
        values: dict[str, list[str]] = {}
        for key, value in parse_qsl(text, keep_blank_values=True):
            values.setdefault(key, []).append(value)
        return cls(values, text)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        """Return the first value."""
        values = self._values.get(name)
        return values[0] if values else default

    def all(self, name: str) -> list[str]:
        """Return every value."""
        return list(self._values.get(name, ()))

    def flag(self, name: str) -> bool:
        """Return whether a switch is set: present and neither `false` nor `0`."""
        values = self._values.get(name) or ["false"]
        return values[0].lower() not in ("false", "0")

    def number(self, name: str) -> int | None:
        """Return an integer, None when absent or empty; raises BadRequest."""
        text = self.text(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


@dataclass(slots=True)
class Request:
    """One request; `warnings` become Warning headers of its answer."""

    method: str
    path: str
    query: Query
    headers: Mapping[str, str]
    read_body: Callable[[], Awaitable[bytes]]
    user: User | None = None
    #: Who sent it, before anybody was impersonated; set when that is known.
    sender: User | None = None
    peer: str = ""
    #: What it is counted under, and whether it is: see the server.
    share: str = ""
    counted: bool = False
    #: The Impersonate-* headers, which may occur several times; names are in lower case.
    acting: tuple[tuple[str, str], ...] = ()
    upgrade: web.BaseRequest | None = None
    #: Whether somebody still waits for the answer.
    connected: Callable[[], bool] | None = None
    #: What is asked for, for the figures: verb, group, version, resource, subresource.
    about: tuple[str, str, str, str, str] = ("", "", "", "", "")
    warnings: list[str] = field(default_factory=list)
    #: What admission tells the audit log.
    annotations: dict[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str:
        """Return a header, "" when absent; names are given in lower case."""
        return self.headers.get(name, "")


Upgrade = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Answer:
    """One answer: a body, the pieces of a large one, a stream of chunks, or the takeover of the connection.

    A stream that `ends_itself` looks after the server's end and the client's by itself.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: MutableMapping[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] = ()
    stream: AsyncGenerator[bytes] | None = None
    ends_itself: bool = False
    upgrade: Upgrade | None = None
