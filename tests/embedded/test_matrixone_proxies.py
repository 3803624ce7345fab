"""A roll of two proxies as they are declared: the process in their pods is a small one that answers, and ends when it is told to.

What counts here is the node's and the Service's: who sends what to a pod that is to end, and until when.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.operators.matrixone.builders import typed

from mooring.kube import MergePatch
from mooring.kube.objects.apps import Deployment
from mooring.kube.objects.core import Service
from mooring.local.node.images import Catalog, Image, Program, built_in
from mooring.local.node.node import Settings
from mooring.operators.matrixone.names import SQL
from mooring.operators.matrixone.specs import LogService, ProxySpecs
from mooring.testing.bed import Bed

pytestmark = [pytest.mark.nightly, pytest.mark.embedded, pytest.mark.timeout(400)]

SERVER = f"""
import asyncio, os, signal

async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(os.environ["POD_NAME"].encode() + b"\\n")
    writer.close()

async def main():
    # As a proxy: a tenth of a second after it was told to end, its sessions are gone.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    server = await asyncio.start_server(serve, "0.0.0.0", {SQL})
    await server.serve_forever()

asyncio.run(main())
"""
SETTINGS = Settings(crash_backoff_initial=0.5, crash_backoff_cap=2.0, stop_grace_cap=60.0)


def catalog(place: Path) -> Catalog:
    """An image that has the server where MatrixOne's has its own."""
    place.mkdir()
    (place / "server.py").write_text(SERVER)
    python = os.path.realpath(sys.executable)
    image = Image(
        name="proxy",
        match=("small-proxy*",),
        programs={"python": Program(path=python)},
        files={"/mo-service": f"#!/bin/sh\nexec {python} {place}/server.py\n"},
        paths=(str(place), str(Path(sys.base_prefix).resolve())),
    )
    return Catalog([image, *built_in()])


@dataclass
class Clients:
    """Some keep a session and try a statement once more, over another one; others connect for each statement, and do not."""

    host: str
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    answers: Counter[str] = field(default_factory=Counter)
    """Statements by the pod that answered."""
    breaks: int = 0
    lost: list[str] = field(default_factory=list)
    """Statements that failed a second time."""
    refused: list[str] = field(default_factory=list)
    """Of clients that connect for each."""

    async def stay(self) -> None:
        """A client with a session of its own."""
        session: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while not self.stop.is_set():
            for tried in (1, 2):
                try:
                    session = session or await self.connect()
                    await self.ask(*session)
                    break
                except OSError as error:
                    if session is not None:
                        session[1].close()
                    session = None
                    self.breaks += 1
                    if tried == 2:
                        self.lost.append(repr(error))
            await asyncio.sleep(0.02)
        if session is not None:
            session[1].close()

    async def come_and_go(self) -> None:
        """A client with a session for each statement."""
        while not self.stop.is_set():
            try:
                reader, writer = await self.connect()
                try:
                    await self.ask(reader, writer)
                finally:
                    writer.close()
            except OSError as error:
                self.refused.append(repr(error))
            await asyncio.sleep(0.01)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(20):
            return await asyncio.open_connection(self.host, SQL)

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A statement; a session that ended is an `OSError`."""
        writer.write(b"select 1\n")
        async with asyncio.timeout(20):
            answer = await reader.readline()
        if not answer:
            raise ConnectionResetError("the session ended")
        self.answers[answer.decode().strip()] += 1


@asynccontextmanager
async def clients(host: str) -> AsyncIterator[Clients]:
    made = Clients(host)
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(made.stay())
            group.create_task(made.come_and_go())
        try:
            yield made
        finally:
            made.stop.set()


async def test_a_roll_of_two_proxies_fails_nobody_who_connects_again(tmp_path: Path) -> None:
    async with Bed(
        tmp_path / "plane", operators=[], settings=SETTINGS, catalog=catalog(tmp_path / "image")
    ) as bed:
        owner = typed("ProxySet", spec__replicas=2, spec__image="small-proxy:1")
        for one in ProxySpecs(owner, LogService(address="mo-log:32001")).objects():
            await bed.client.create(one)

        async def proxies() -> set[str]:
            found = await bed.pods(selector="matrixorigin.io/component=ProxySet")
            return {one.metadata.name or "" for one in found}

        async def rolled() -> bool:
            status = (await bed.get(Deployment, "mo-proxy")).status
            now = await proxies()
            return status is not None and status.ready_replicas == 2 and len(now) == 2 and not now & before

        before: set[str] = set()
        await bed.until(rolled, "both proxies serve", within=120, every=0.1)
        before = await proxies()
        service = await bed.get(Service, "mo-proxy")
        assert service.spec is not None
        async with clients(service.spec.cluster_ip or "") as found:

            async def both() -> bool:
                return len(found.answers) == 2

            await bed.until(both, "both answer", within=30, every=0.1)
            body = {"spec": {"template": {"metadata": {"annotations": {"rolled": "yes"}}}}}
            await bed.client.patch(Deployment, "mo-proxy", MergePatch(body), namespace="default")
            await bed.until(rolled, "both proxies are replaced", within=180, every=0.1)
        sys.stderr.write(f"\n{found.answers.total()} statements, {found.breaks} sessions ended\n")
        assert found.lost == []
        assert found.refused == []
        assert 6 <= found.breaks <= 12, (
            "each session ends with its proxy, and those that came to another old one once more"
        )
        assert len(found.answers) == 4
