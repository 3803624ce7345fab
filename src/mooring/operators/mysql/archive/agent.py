"""``mooring agent mysql archive``: the program of the pod that archives, and the page that says how far it is."""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from mooring.objectstore import Target, mounted_secrets, open_store
from mooring.operators.mysql.archive.archiver import Archiver, Report, stream_id
from mooring.operators.mysql.archive.sources import Sources
from mooring.operators.mysql.archive.store import Archive
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.operators.mysql.dial import Dial, Login
from mooring.operators.mysql.names import ARCHIVE_PORT, REPLICATION
from mooring.operators.workload.certificates import AUTHORITY, EARLIER, trust
from mooring.runtime import configure_logging

__all__ = ["HEALTH", "STATUS", "main", "serving"]

STATUS: Final = "/status"
"""The `Report` as JSON."""
HEALTH: Final = "/healthz"


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM; what fails is reported by the page and tried again."""
    parser = argparse.ArgumentParser(prog="mooring agent mysql")
    commands = parser.add_subparsers(dest="command", required=True)
    archive = commands.add_parser("archive", help="keep the archive of one cluster")
    _common(archive)
    archive.add_argument("--host", required=True, help="a name that resolves to every server")
    archive.add_argument("--flavor", choices=("mariadb", "mysql"), required=True)
    archive.add_argument("--uid", required=True, help="of the cluster")
    archive.add_argument("--interval", type=float, default=10.0, metavar="SECONDS")
    archive.add_argument("--port", type=int, default=ARCHIVE_PORT)
    archive.add_argument("--prune", action="store_true", help="delete what no backup of the target needs")
    for flag, default in (("--auth", "/mooring/auth"), ("--tls", "")):
        archive.add_argument(flag, type=Path, default=Path(default) if default else None, metavar="DIR")
    options = parser.parse_args(arguments)
    configure_logging(json=True)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_archive(options))
    # Threads of obstore that are still busy would abort the interpreter's end.
    os._exit(0)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=Path, required=True, metavar="FILE", help="the target, as JSON")
    parser.add_argument("--root", required=True, help="where the archive is in the target")
    parser.add_argument("--secrets", type=Path, default=Path("/mooring/secrets"), metavar="DIR")
    parser.add_argument("--mounted", type=Path, default=Path("/mooring/target"), metavar="DIR")


async def _archive(options: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    target = msgspec.json.decode(options.target.read_bytes(), type=Target)
    dial = Dial()
    sources = Sources(dial, _login(options.auth, options.tls), flavor=options.flavor, host=options.host)
    try:
        async with open_store(
            target, secrets=mounted_secrets(options.secrets), mounted=options.mounted
        ) as store:
            archiver = Archiver(
                Archive(store, options.root),
                sources,
                flavor=options.flavor,
                server_id=stream_id(options.uid),
                seconds=options.interval,
                note=max(30.0, options.interval),
            )
            async with serving(lambda: archiver.report, port=options.port):
                await archiver.run()
    finally:
        dial.close()


def _login(auth: Path, tls: Path | None) -> Callable[[], Login]:
    """The account, read at every connection: passwords and authorities change."""

    def read() -> Login:
        label = ACCOUNTS[REPLICATION]
        with contextlib.suppress(OSError):
            text = (auth / label).read_text().rstrip("\n")
            return Login(user=REPLICATION, passwords=((label, text),), tls=_trusted(tls))
        return Login(user=REPLICATION)

    return read


def _trusted(directory: Path | None) -> ssl.SSLContext | None:
    if directory is None:
        return None
    found = {}
    for name in (AUTHORITY, EARLIER):
        with contextlib.suppress(OSError):
            found[name] = base64.b64encode((directory / name).read_bytes()).decode()
    return trust(found)


@contextlib.asynccontextmanager
async def serving(
    report: Callable[[], Report],
    *,
    host: str = "0.0.0.0",  # noqa: S104 - of the pod; the operator asks from outside
    port: int,
) -> AsyncIterator[int]:
    """Answer `STATUS` and `HEALTH` during the block; gives the port. Nothing can be changed by it."""

    async def status(_: web.Request) -> web.Response:
        return web.json_response(body=msgspec.json.encode(report()))

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    pages = web.Application()
    pages.add_routes([web.get(STATUS, status), web.get(HEALTH, health)])
    runner = web.AppRunner(pages, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
