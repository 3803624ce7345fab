"""``mooring redis-snapshot``: read snapshots of Redis servers into FIFOs; what the Jobs of backups run."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec

from mooring.operators.backup.manifest import facts_text
from mooring.operators.redis.backup.reader import NotRead, Source, read_all

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("redis-snapshot")
    parser.add_argument("--source", type=Path, required=True, metavar="FILE", help="what to read, as JSON")
    parser.add_argument("--password", type=Path, required=True, metavar="FILE", help="file with the password")
    parser.add_argument(
        "--run", dest="shared", type=Path, required=True, metavar="DIR", help="where the FIFOs are"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read everything; status 1 with the reason in the file ``failure`` where that failed."""
    source = msgspec.json.decode(options.source.read_bytes(), type=Source)
    password = options.password.read_text().rstrip("\n") if options.password.exists() else ""
    try:
        facts = asyncio.run(read_all(source, password=password, run=options.shared))
    except NotRead as error:
        (options.shared / "failure").write_text(f"{error}\n")
        print(error, file=sys.stderr)
        return 1
    with (options.shared / "facts").open("a") as out:
        out.write(facts_text(facts))
    return 0
