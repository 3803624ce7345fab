"""What the API server asks of pods: logs, exec, ports (the NodeGateway protocol, structurally)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

from mooring.kube.object import Key
from mooring.local.node import namespaces as ns
from mooring.local.node.exec import interact
from mooring.local.node.logs import read
from mooring.local.node.pod import PodWorker

__all__ = ["Gateway"]


class Gateway:
    """Reaches into the pods of this process; LookupError means not found, ValueError bad request."""

    def __init__(self, find: Callable[[Key], PodWorker | None]) -> None:
        self._find = find

    async def logs(
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
        """A container's log in pieces; following ends with the container."""
        worker = self._worker(namespace, pod)
        runner = worker.container(container)
        try:
            path = runner.log_path(previous=previous)
        except LookupError as error:
            if previous:
                raise ValueError(str(error)) from None
            waiting = runner.status.state.waiting if runner.status.state else None
            reason = waiting.reason if waiting else "unknown"
            text = f'container "{runner.name}" in pod "{pod}" is waiting to start: {reason}'
            raise ValueError(text) from None
        run = runner.run_number

        def writing() -> bool:
            return runner.running and runner.run_number == run

        async for piece in read(
            path,
            follow=writing if follow and not previous else None,
            tail_lines=tail_lines,
            since=since,
            limit_bytes=limit_bytes,
            timestamps=timestamps,
        ):
            yield piece

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
        """Run a command in a container; its exit status."""
        if not command:
            raise ValueError("you must specify at least one command for the container")
        entrance = self._worker(namespace, pod).container(container).entrance
        return await interact(
            entrance, command, stdin=stdin, stdout=stdout, stderr=stderr, tty=tty, resize=resize
        )

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
        """Connect to the streams of a container's own program until they end; 0."""
        stdio = self._worker(namespace, pod).container(container).stdio
        await stdio.attach(stdin=stdin, stdout=stdout, stderr=stderr, resize=resize)
        return 0

    async def port_forward(
        self, namespace: str, pod: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of the pod: on its loopback as the kubelet does, else on its address."""
        worker = self._worker(namespace, pod)
        if not worker.address:
            raise LookupError(f"pod {pod} does not run")
        networks, loop = worker.view.namespaces, asyncio.get_running_loop()
        refused: OSError | None = None
        for host in ("127.0.0.1", worker.address):
            inside = await asyncio.wrap_future(ns.in_fresh_thread(lambda: _socket_in(networks[:1])))
            try:
                await loop.sock_connect(inside, (host, port))
            except OSError as error:
                inside.close()
                refused = error
            else:
                return await asyncio.open_connection(sock=inside)
        raise LookupError(f"cannot connect to port {port} of pod {pod}: {refused}")

    def _worker(self, namespace: str, pod: str) -> PodWorker:
        worker = self._find(Key(namespace, pod))
        if worker is None:
            raise LookupError(f'pod "{pod}" does not run on this node')
        return worker


def _socket_in(networks: Sequence[int]) -> socket.socket:
    """A socket that belongs to the pod's network, whoever uses it afterwards (call in a fresh thread)."""
    for descriptor in networks:
        ns.enter(descriptor, ns.CLONE_NEWNET)
    inside = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    inside.setblocking(False)
    return inside
