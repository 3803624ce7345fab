"""``mooring agent mysql``: ``archive``, the program of the pod that archives, with the page that says how far it is, and
``fetch``, which leaves the relay logs that continue a backup.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import shutil
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog
from aiohttp import web

from mooring.cache.clock import Clock, SystemClock
from mooring.objectstore import ObjectStoreError, Target, leave, mounted_secrets, open_store
from mooring.operators.backup.agent import Result, failure, read_manifest
from mooring.operators.backup.layout import backups_prefix
from mooring.operators.backup.manifest import ManifestError
from mooring.operators.mysql.archive.apply import WAY
from mooring.operators.mysql.archive.archiver import Archiver, Report, stream_id
from mooring.operators.mysql.archive.events import moment
from mooring.operators.mysql.archive.prune import prune
from mooring.operators.mysql.archive.relay import write_relay
from mooring.operators.mysql.archive.sources import Sources
from mooring.operators.mysql.archive.store import Archive
from mooring.operators.mysql.archive.target import Goal, Refused, resolve
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.operators.mysql.dial import Dial, Login
from mooring.operators.mysql.gtid import Position, parse
from mooring.operators.mysql.names import ARCHIVE_PORT, REPLICATION
from mooring.operators.workload.certificates import AUTHORITY, EARLIER, trust
from mooring.runtime import configure_logging

__all__ = ["HEALTH", "STATUS", "fetch", "main", "serving"]

STATUS: Final = "/status"
"""The `Report` as JSON."""
HEALTH: Final = "/healthz"
_PATIENCE: Final = 60.0
"""Seconds that a restore waits for its goal to be archived."""
_LOOK_AGAIN: Final = 3.0
_PRUNE_EVERY: Final = 600.0
"""Seconds between two looks for segments that no backup needs."""

log = structlog.get_logger("mooring.mysql.archive")


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
    fetch = commands.add_parser("fetch", help="the relay logs from a backup to a point in time")
    _common(fetch)
    fetch.add_argument("--backup", required=True, metavar="PREFIX", help="where the backup is in the target")
    fetch.add_argument("--gtid", default="", help="the last transaction")
    fetch.add_argument("--time", type=datetime.fromisoformat, help="or the last moment")
    fetch.add_argument("--allow-gap", action="store_true")
    fetch.add_argument("--into", type=Path, required=True, metavar="DIR")
    fetch.add_argument("--report", type=Path, required=True, metavar="FILE", help="where the result goes")
    options = parser.parse_args(arguments)
    configure_logging(json=True)
    if options.command == "fetch":
        result = asyncio.run(_fetch(options))
        options.report.write_bytes(result.encoded())
        leave(0 if result.ok else 1)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_archive(options))
    leave(0)


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
                if not options.prune:
                    await archiver.run()
                    return
                pruning = asyncio.create_task(_prune_on(archiver, options.root))
                try:
                    await archiver.run()
                finally:
                    pruning.cancel()
                    await asyncio.gather(pruning, return_exceptions=True)
    finally:
        dial.close()


async def _prune_on(archiver: Archiver, root: str) -> None:
    """Prune now and then; what fails is tried again at the next time."""
    cluster = root.rpartition("/")[0]
    while True:
        await asyncio.sleep(_PRUNE_EVERY)
        try:
            newest = await prune(archiver.archive, backups_prefix(cluster))
        except (ObjectStoreError, ManifestError, ValueError) as error:
            log.warning("nothing was pruned", error=str(error))
            continue
        if newest is not None:
            archiver.pruned(newest)


async def _fetch(options: argparse.Namespace) -> Result:
    """What becomes of it; a point that cannot be reached is not tried again."""
    target = msgspec.json.decode(options.target.read_bytes(), type=Target)
    goal = Goal(
        gtid=options.gtid,
        time=int(options.time.timestamp() * 1_000_000) if options.time is not None else 0,
        allow_gap=options.allow_gap,
    )
    try:
        async with open_store(
            target, secrets=mounted_secrets(options.secrets), mounted=options.mounted
        ) as store:
            manifest = await read_manifest(store, options.backup)
            base = parse("mysql" if manifest.flavor == "mysql" else "mariadb", manifest.position)
            return await fetch(Archive(store, options.root), base, goal, options.into, patience=_PATIENCE)
    except Refused as refused:
        return Result(ok=False, reason=refused.reason, message=refused.message, remedy=refused.remedy)
    except (ObjectStoreError, ManifestError) as error:
        return failure(error)
    except OSError as error:
        text = f"the relay logs cannot be written: {error.strerror or error}"
        return Result(
            ok=False, reason="VolumeFailed", message=text, remedy="give spec.storage.size more room"
        )


async def fetch(
    archive: Archive,
    base: Position,
    goal: Goal,
    into: Path,
    *,
    patience: float = 0.0,
    clock: Clock | None = None,
) -> Result:
    """Write the relay logs from a base to a goal, and the file `WAY`; raises `Refused` and `ObjectStoreError`.

    A goal that is later than the archive may be on its way there: for ``patience`` seconds it is looked for again.
    """
    clock = clock or SystemClock()
    deadline = clock.monotonic() + patience
    while True:
        try:
            way = await resolve(archive, base, goal)
            break
        except Refused as refused:
            if refused.reason not in ("NotArchived", "AfterArchive") or clock.monotonic() >= deadline:
                raise
        await clock.sleep(_LOOK_AGAIN)
    await asyncio.to_thread(_emptied, into)
    written = await write_relay(archive, way, into)
    lines = (f"stop={way.stop}", f"position={way.position.newest()}", f"committed={moment(way.committed)}")
    text = "".join(f"{line}\n" for line in lines)
    await asyncio.to_thread((into / WAY).write_text, text)
    facts = {"transaction": way.stop, "committed": moment(way.committed)}
    return Result(ok=True, size=written.bytes, facts=facts)


def _emptied(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


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
