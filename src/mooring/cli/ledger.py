"""``mooring ledger``: a writer that remembers what was acknowledged, for any Redis, MariaDB or MySQL."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import ssl
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from mooring.operators.mysql.dial import DialError as MySQLDialError
from mooring.operators.mysql.dial import Login
from mooring.operators.redis.address import SENTINEL_TLS_PORT, TLS_PORT
from mooring.operators.redis.dial import DialError
from mooring.testing.ledger import Ledger, parse_address
from mooring.testing.ledger_cluster import ClusterLedger
from mooring.testing.ledger_mysql import MySQLLedger

__all__ = ["add_parser", "run"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "ledger", help="write to a Redis, MariaDB or MySQL, then count the acknowledged writes that it lost"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--redis", metavar="HOST[:PORT]", help="one server (default port 6379)")
    where.add_argument(
        "--sentinel",
        metavar="HOST[:PORT]",
        action="append",
        help="a sentinel that names the master (default port 26379); may be repeated",
    )
    where.add_argument(
        "--cluster",
        metavar="HOST[:PORT]",
        action="append",
        help="a node of a Redis Cluster (default port 6379); may be repeated",
    )
    where.add_argument("--mysql", metavar="HOST[:PORT]", help="a MariaDB or MySQL server (default port 3306)")
    parser.add_argument(
        "--user",
        default="",
        help="account of --mysql (default root), or ACL user of Redis (default: none is named)",
    )
    parser.add_argument(
        "--table", default="", metavar="DB.TABLE", help="of --mysql, made where it is missing"
    )
    parser.add_argument("--writers", type=int, default=4, help="connections of --mysql (default 4)")
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


def run(options: argparse.Namespace, *, out: TextIO | None = None) -> int:
    """Exit status 1 when a confirmed write is lost, 2 when nothing could be checked."""
    return asyncio.run(_run(options, out or sys.stdout))


def _context(authority: Path) -> ssl.SSLContext:
    """Servers are reached by address, which a user's certificate need not name: the authority alone is checked."""
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    return context


def _ledger(options: argparse.Namespace, password: str) -> Ledger:
    tls = _context(options.tls_ca) if options.tls_ca else None
    redis, sentinel = (6379, 26379) if tls is None else (TLS_PORT, SENTINEL_TLS_PORT)
    login = [(options.user, password)] if options.user else password
    how = {"password": login, "rate": options.rate, "wait_every": options.wait_every, "tls": tls}
    if options.cluster:
        return ClusterLedger([parse_address(text, port=redis) for text in options.cluster], **how)
    return Ledger(
        address=parse_address(options.redis, port=redis) if options.redis else None,
        sentinels=[parse_address(text, port=sentinel) for text in options.sentinel or ()],
        master_name=options.master_name,
        follow=options.follow,
        **how,
    )


def _mysql_ledger(options: argparse.Namespace, password: str) -> MySQLLedger:
    address = parse_address(options.mysql, port=3306)

    async def where() -> str:
        return address.ip

    return MySQLLedger(
        where,
        Login(user=options.user or "root", passwords=(("password", password),)),
        clients=options.writers,
        rate=options.rate / options.writers,
        port=address.port,
    )


async def _run(options: argparse.Namespace, out: TextIO) -> int:
    password = options.password_file.read_text().rstrip("\n") if options.password_file else ""
    ledger = _mysql_ledger(options, password) if options.mysql else _ledger(options, password)
    try:
        await _until_stopped(ledger, options.seconds)
        report = await ledger.check(patience=options.patience)
    except (DialError, MySQLDialError) as error:
        out.write(f"no {'primary' if options.mysql else 'master'} could be asked: {error}\n")
        return 2
    out.write(json.dumps(asdict(report), indent=2) + "\n" if options.json else report.text() + "\n")
    return 1 if report.lost_confirmed else 0


async def _until_stopped(ledger: Ledger | MySQLLedger, seconds: float | None) -> None:
    """Write for that long, or until the program is interrupted."""
    writing = asyncio.create_task(ledger.write(seconds))
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError, RuntimeError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ledger.stop)
    await writing
