"""Stops an HTTP server and closes its connections, without waiting for the clients."""

from __future__ import annotations

import asyncio

from aiohttp import web

__all__ = ["end"]


async def end(runner: web.BaseRunner) -> None:
    """Stop listening, let requests end as the runner's timeout says, then end every connection at once.

    A TLS connection that is merely closed waits up to 30 seconds for its client to end it as well, and outlives the
    server meanwhile.
    """
    connections = runner.server.connections if runner.server is not None else []
    open_ones = [one.transport for one in connections if one.transport is not None]
    await runner.cleanup()
    for transport in open_ones:
        transport.abort()
    await asyncio.sleep(0)
