"""An API server that answers wrongly for a while: a proxy between an operator and its control plane.

async with faulty_api(bed, chance) as api, operator_process(bed, directory, server=api.url):
    with api.failing():
        ...

While it fails, four of ten requests that are not a watch are answered 500, 429 (with Retry-After), 409 (writes) or not at
all, the last ones before or after they were carried out, and watches end within a second.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import aiohttp
from aiohttp import web

from mooring.testing.bed import Bed

__all__ = ["FaultyAPI", "faulty_api"]

_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"})
_REFUSALS = {
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version"),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "an error on the server"),
}


class FaultyAPI:
    """Passes requests on; while it is `failing`, not all of them."""

    def __init__(self, upstream: str, trust: ssl.SSLContext, chance: random.Random) -> None:
        self.url = ""
        self.failed = 0
        self._upstream, self._trust, self._chance = upstream, trust, chance
        self._failing = False

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Fail to the end of the block."""
        self._failing = True
        try:
            yield
        finally:
            self._failing = False

    async def answer(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        """One request."""
        watch = request.query.get("watch") in ("1", "true")
        fault = self._draw(request.method) if self._failing and not watch else ""
        if fault:
            self.failed += 1
        if fault == "unheard":
            return self._cut(request)
        if fault.isdecimal():
            return _refusal(int(fault))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        async with session.request(
            request.method,
            self._upstream + str(request.rel_url),
            headers=headers,
            data=await request.read(),
            ssl=self._trust,
            auto_decompress=False,
        ) as found:
            if fault == "unanswered":
                await found.read()
                return self._cut(request)
            kept = {name: value for name, value in found.headers.items() if name.lower() not in _HOP}
            response = web.StreamResponse(status=found.status, headers=kept)
            await response.prepare(request)
            with suppress(ConnectionError):  # the operator hung up
                await self._pass_on(found, response, watch=watch)
            return response

    async def _pass_on(
        self, found: aiohttp.ClientResponse, response: web.StreamResponse, *, watch: bool
    ) -> None:
        chunks = found.content.iter_any().__aiter__()
        while True:
            coming = asyncio.ensure_future(anext(chunks, b""))
            while not (await asyncio.wait([coming], timeout=1.0))[0]:
                if watch and self._failing:
                    coming.cancel()
                    return
            chunk = coming.result()
            if not chunk:
                return
            await response.write(chunk)

    def _draw(self, method: str) -> str:
        if self._chance.random() < 0.6:
            return ""
        write = ("409", "unanswered") if method in ("POST", "PUT", "PATCH", "DELETE") else ()
        faults: list[str] = ["500", "429", "unheard", *write]
        return self._chance.choice(faults)

    @staticmethod
    def _cut(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)


def _refusal(status: int) -> web.Response:
    reason, message = _REFUSALS[status]
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.json_response({**body, "reason": reason, "message": message}, status=status, headers=headers)


@asynccontextmanager
async def faulty_api(bed: Bed, chance: random.Random) -> AsyncIterator[FaultyAPI]:
    """A proxy to a bed's API server on a port of this machine, to the end of the block."""
    plane = bed.plane
    trust = ssl.create_default_context(cafile=str(plane.certificates.authority))
    api = FaultyAPI(f"https://{plane.ranges.pods[1]}:6443", trust, chance)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            return await api.answer(session, request)

        application = web.Application(client_max_size=16 << 20)
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=plane.certificates.server_context())
            await site.start()
            port = runner.addresses[0][1]
            api.url = f"https://127.0.0.1:{port}"
            yield api
        finally:
            await runner.cleanup()
