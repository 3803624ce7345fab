"""What a proxy does before it stops: it serves on until no new client finds it, and those that it has may leave."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
from tests.operators.matrixone.builders import typed

from mooring.kube.object import to_dict
from mooring.operators.matrixone.scripts import leave_script
from mooring.operators.matrixone.specs import LogService, ProxySpecs

SHELLS: Final = tuple(filter(None, (shutil.which(one) for one in ("dash", "bash"))))


@asynccontextmanager
async def leaving(
    port: int, *, stays: int, shell: str = "/bin/sh"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The script at work, with a tenth of a second in which others may still find the proxy."""
    script = leave_script(port=port, unknown_after=0.1, stays=stays)
    running = await asyncio.create_subprocess_exec(shell, "-c", script)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            running.kill()
        await running.wait()


async def waits(running: asyncio.subprocess.Process) -> None:
    """Wait until it has looked, and sleeps until the next look; or ended."""
    async with asyncio.timeout(60):
        while running.returncode is None and not sleeps(running.pid):
            await asyncio.sleep(0.02)


def sleeps(pid: int) -> bool:
    """A child of the process sleeps for a second."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(Path(f"/proc/{one}/cmdline").read_bytes() == b"sleep\0001\0" for one in children)
    return False


@asynccontextmanager
async def connected(family: int = socket.AF_INET) -> AsyncIterator[tuple[int, asyncio.StreamWriter]]:
    """A server's port, and a client that has a connection to it."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    served: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: served.append(writer), host, 0, family=family)
    port = server.sockets[0].getsockname()[1]
    _, client = await asyncio.open_connection(host, port)
    try:
        yield port, client
    finally:
        for one in (client, *served):
            one.close()
        server.close()


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_proxy_without_clients_ends_once_no_new_one_finds_it(shell: str) -> None:
    """Connections to other ports, such as those to compute nodes, are not its clients."""
    async with connected() as (port, _), leaving(port ^ 1, stays=600, shell=shell) as running:
        assert await asyncio.wait_for(running.wait(), 60) == 0


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_a_proxy_waits_for_its_clients_to_leave(family: int, shell: str) -> None:
    async with connected(family) as (port, client), leaving(port, stays=30, shell=shell) as running:
        await waits(running)
        assert running.returncode is None
        client.close()
        assert await asyncio.wait_for(running.wait(), 20) == 0


async def test_a_proxy_waits_for_a_client_that_stays_no_longer_than_it_may() -> None:
    async with connected() as (port, _), leaving(port, stays=1) as running:
        assert await asyncio.wait_for(running.wait(), 20) == 0


def pod_with(overlay: Mapping[str, Any]) -> Any:
    """The pod of a proxy, as JSON."""
    owner = typed("ProxySet", spec__overlay=dict(overlay))
    return to_dict(ProxySpecs(owner, LogService.of(typed("LogSet"))).deployment())["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("overlay", "grace"),
    [(MappingProxyType({}), 60), (MappingProxyType({"terminationGracePeriodSeconds": 90}), 90)],
)
def test_there_is_time_to_leave_and_to_stop(overlay: Mapping[str, Any], grace: int) -> None:
    pod = pod_with(overlay)
    assert pod["terminationGracePeriodSeconds"] == grace
    script = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][2]
    seconds = [int(line.partition("sleep ")[2]) for line in script.splitlines() if line.startswith("sleep ")]
    stays = [int(line.partition("=")[2]) for line in script.splitlines() if line.startswith("left=")]
    assert seconds == [5]
    assert sum(seconds + stays) < grace - 20
    assert ':1771" 01"' in script, "the port of the proxies, 6001"


def test_a_hook_of_an_overlay_counts_instead() -> None:
    hook = {"preStop": {"exec": {"command": ["true"]}}}
    assert pod_with({"lifecycle": hook})["containers"][0]["lifecycle"] == hook
