"""The API server, asked with the credential of the one who is signed in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from aiohttp import ClientWebSocketResponse
from multidict import CIMultiDict

from mooring.console.session import Person, Session
from mooring.kube import (
    Client,
    Config,
    HttpTransport,
    Response,
    StreamResponse,
    Transport,
    TransportError,
)

__all__ = ["FIELD_MANAGER", "Upstream"]

FIELD_MANAGER: Final = "mooring-console"


#: RFC 6750: what a bearer token is made of.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Upstream:
    """Clients of one API server: one with the console's own credential, one for every session.

    ``own`` and ``bare`` may be given by tests; ``bare`` must send no credential of its own.
    """

    def __init__(self, *, own: Transport, bare: Transport) -> None:
        self._own = own
        self._bare = bare
        self.own = Client(own, field_manager=FIELD_MANAGER)

    @classmethod
    def of(cls, config: Config) -> Upstream:
        """The server of a configuration."""
        # Every credential is taken away: a user's request must never go out with the console's.
        bare = replace(config, token=None, token_file=None, client_cert=None, client_key=None, plugin=None)
        return cls(own=HttpTransport(config), bare=HttpTransport(bare))

    def client(self, session: Session) -> Client:
        """A client that acts as the user of a session."""
        if session.own:
            return self.own
        return self.acting(session.person) if session.impersonated else self.bearer(session.token)

    def acting(self, person: Person) -> Client:
        """A client that impersonates a user; raises `ValueError` for names that Kubernetes keeps to itself."""
        headers = [("Impersonate-User", person.user)]
        headers += [("Impersonate-Group", group) for group in (*person.groups, "system:authenticated")]
        for name in (person.user, *person.groups):
            if not name or name.startswith("system:"):
                # A group of a directory must not become system:masters, nor a user one of the nodes.
                raise ValueError(
                    "no user and no group is impersonated whose name is empty or begins with system:"
                )
            if not name.isprintable():
                raise ValueError("no name is impersonated that has control characters")
        return Client(_Acting(self._own, headers), field_manager=FIELD_MANAGER)

    def bearer(self, token: str) -> Client:
        """A client with a bearer token; raises `ValueError` for what is none."""
        if not _TOKEN.fullmatch(token):
            raise ValueError("a bearer token has letters, digits and -._~+/= alone")
        return Client(
            _Acting(self._bare, [("Authorization", f"Bearer {token}")]), field_manager=FIELD_MANAGER
        )

    def websocket(
        self, session: Session, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[ClientWebSocketResponse]:
        """A WebSocket as the user of a session; raises `TransportError` where the API server is no HTTP server."""
        transport: Transport = self.client(session).transport
        headers: CIMultiDict[str] = CIMultiDict()
        if isinstance(transport, _Acting):
            headers = transport.headers(None)
            transport = transport.inner
        if not isinstance(transport, HttpTransport):
            raise TransportError("this API server has no WebSockets")
        return transport.websocket(path, query=query, headers=headers, protocols=protocols)

    async def close(self) -> None:
        """Close all connections."""
        await self._own.close()
        await self._bare.close()


class _Acting:
    """Requests with headers that say who acts; connections are shared, credentials are not.

    What a browser sent is never among the headers of a request, so nobody chooses whom they act as.
    """

    def __init__(self, transport: Transport, acting: Sequence[tuple[str, str]]) -> None:
        self.inner = transport
        self._acting = acting

    def headers(self, headers: Mapping[str, str] | None) -> CIMultiDict[str]:
        """These headers, and those that say who acts."""
        # Every group is a header of its own: a list in one header would be one group of a strange name.
        sent = CIMultiDict(headers or {})
        for name, value in self._acting:
            sent.add(name, value)
        return sent

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
        """See `Transport.request`."""
        return await self.inner.request(
            method, path, query=query, body=body, headers=self.headers(headers), timeout=timeout
        )

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """See `Transport.stream`."""
        return self.inner.stream(method, path, query=query, headers=self.headers(headers), timeout=timeout)

    async def close(self) -> None:
        """Nothing: the connections belong to all."""
