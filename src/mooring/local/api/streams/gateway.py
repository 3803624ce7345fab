"""What the API server asks of the node agent: logs, exec, ports. Implemented by the agent, structurally."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

__all__ = ["NodeGateway"]


class NodeGateway(Protocol):
    """Reaches into running pods. LookupError(message) means 404, ValueError(message) 400."""

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool,
        previous: bool,
        tail_lines: int | None,
        since: datetime | None,
        limit_bytes: int | None,
        timestamps: bool,
    ) -> AsyncIterator[bytes]:
        """Return a container's log in chunks of whole lines; `limit_bytes` cuts it."""
        ...

    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: AsyncIterator[bytes] | None,
        stdout: Callable[[bytes], Awaitable[None]],
        stderr: Callable[[bytes], Awaitable[None]] | None,
        tty: bool,
        resize: AsyncIterator[tuple[int, int]] | None,
    ) -> int:
        """Run a command in a container and return its exit status; `resize` gives (columns, rows)."""
        ...

    async def attach(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        stdin: AsyncIterator[bytes] | None,
        stdout: Callable[[bytes], Awaitable[None]],
        stderr: Callable[[bytes], Awaitable[None]] | None,
        resize: AsyncIterator[tuple[int, int]] | None,
    ) -> int:
        """Connect to the streams of a container's own program until they end; return 0."""
        ...

    async def port_forward(
        self, namespace: str, pod: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port inside a pod's network."""
        ...
