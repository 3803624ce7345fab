"""``mooring ledger``: a writer that remembers what was acknowledged, for any Redis, MariaDB or MySQL."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import signal
import ssl
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TextIO

from mooring.operators.operator import Ledger
from mooring.operators.registry import OPERATORS

__all__ = ["add_parser", "run"]


_LEDGERS: Final = tuple(ledger for one in OPERATORS.values() for ledger in one.ledgers)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "ledger", help="write to a Redis, MariaDB or MySQL, then count the acknowledged writes that it lost"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    for one in _LEDGERS:
        action = "append" if one.repeated else "store"
        where.add_argument(one.flag, metavar="HOST[:PORT]", action=action, help=one.doc)
    parser.add_argument(
        "--user",
        default="",
        help="account of --mysql (default root), or ACL user of Redis (default: none is named)",
    )
    parser.add_argument(
        "--table",
        type=_table,
        metavar="DB.TABLE",
        help="of --mysql, made where it is missing (default: one of its own)",
    )
    parser.add_argument("--writers", type=_writers, default=4, help="connections of --mysql (default 4)")
    parser.add_argument("--master-name", default="mymaster", help="default mymaster")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="leave a master when a sentinel names another; without this only after an error",
    )
    parser.add_argument(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="connect by TLS (default ports 6380, 26380), trusting this authority",
    )
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file that holds the password")
    parser.add_argument(
        "--rate",
        type=_rate,
        default=200.0,
        help="writes per second (default 200); 0: as fast as they are answered",
    )
    parser.add_argument("--wait-every", type=int, default=2, help="confirm every n-th write (default 2)")
    parser.add_argument("--seconds", type=float, help="how long; default until interrupted")
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds to wait for a master (default 30)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def _rate(text: str) -> float:
    """A number of writes per second; raises ArgumentTypeError when there is no such rate."""
    with contextlib.suppress(ValueError):
        if 0 <= (rate := float(text)) < float("inf"):
            return rate
    raise argparse.ArgumentTypeError(f"{text!r}: must be a number of writes per second, 0 or more")


def _writers(text: str) -> int:
    """A number of connections; raises ArgumentTypeError when it is none."""
    if text.isascii() and text.isdigit() and 0 < int(text) <= 1000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: must be a number of connections, 1 to 1000")


def _table(text: str) -> str:
    """A table with its database; raises ArgumentTypeError when it is none."""
    if re.fullmatch(r"[A-Za-z0-9_$-]{1,64}\.[A-Za-z0-9_$-]{1,64}", text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r}: must be DATABASE.TABLE, of letters, digits, _, $ and -")


def run(options: argparse.Namespace, *, out: TextIO | None = None) -> int:
    """Exit status 1 when a confirmed write is lost, 2 when nothing could be checked."""
    return asyncio.run(_run(options, out or sys.stdout))


def _context(authority: Path) -> ssl.SSLContext:
    """Servers are reached by address, which a user's certificate need not name: the authority alone is checked."""
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    return context


def _chosen(options: argparse.Namespace) -> tuple[Ledger, list[str]]:
    """What is written to, and the addresses given for it."""
    for one in _LEDGERS:
        if found := getattr(options, one.flag.removeprefix("--").replace("-", "_")):
            return one, found if one.repeated else [found]
    raise AssertionError("argparse requires one of them")


async def _run(options: argparse.Namespace, out: TextIO) -> int:
    password = options.password_file.read_text().rstrip("\n") if options.password_file else ""
    kind, addresses = _chosen(options)
    if options.table and "table" not in kind.takes:
        whose = ", ".join(one.flag for one in _LEDGERS if "table" in one.takes)
        print(f"mooring: --table: is of {whose}; remove it", file=sys.stderr)
        return 2
    ledger = kind.open(
        addresses,
        user=options.user,
        password=password,
        tls=_context(options.tls_ca) if options.tls_ca else None,
        rate=options.rate,
        wait_every=options.wait_every,
        writers=options.writers,
        master_name=options.master_name,
        follow=options.follow,
        table=options.table or "",
    )
    try:
        await _until_stopped(ledger, options.seconds)
        report = await ledger.check(patience=options.patience)
    except ledger.unanswered as error:
        out.write(f"no {kind.leader} could be asked: {error}\n")
        return 2
    out.write(json.dumps(asdict(report), indent=2) + "\n" if options.json else report.text() + "\n")
    return 1 if report.lost_confirmed else 0


async def _until_stopped(ledger: Any, seconds: float | None) -> None:
    """Write for that long, or until the program is interrupted."""
    writing = asyncio.create_task(ledger.write(seconds))
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError, RuntimeError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ledger.stop)
    await writing
