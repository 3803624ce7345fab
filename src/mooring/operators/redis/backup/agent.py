"""``mooring agent redis-sentinel``: what the Jobs of backups and restores run beside ``mooring objects``."""

from __future__ import annotations

import argparse
import asyncio
import base64
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mooring.operators.backup.manifest import facts_text
from mooring.operators.backup.shell import REFUSED
from mooring.operators.redis.backup.load import Into, NotLoaded, load
from mooring.operators.redis.backup.reader import NotRead, Source, read_all
from mooring.operators.workload.certificates import AUTHORITY, trust

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Read snapshots of servers into FIFOs, or load them; status 1 or 3 with the reason in the file ``failure`` where that failed."""
    parser = argparse.ArgumentParser(prog="mooring agent redis-sentinel")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--source", type=Path, metavar="FILE", help="what to read, as JSON")
    what.add_argument("--into", type=Path, metavar="FILE", help="where to load a backup into, as JSON")
    parser.add_argument("--password", type=Path, required=True, metavar="FILE", help="file with the password")
    parser.add_argument(
        "--account",
        type=Path,
        metavar="FILE",
        help="file with the password of mooring-backup, if there is one",
    )
    parser.add_argument(
        "--authority",
        type=Path,
        metavar="FILE",
        help="what servers' certificates are checked by; absent: no TLS",
    )
    parser.add_argument(
        "--run", dest="shared", type=Path, required=True, metavar="DIR", help="where the FIFOs are"
    )
    options = parser.parse_args(arguments)
    password, account = _text(options.password), _text(options.account)
    tls = None
    if options.authority is not None and options.authority.exists():
        tls = trust({AUTHORITY: base64.b64encode(options.authority.read_bytes()).decode()})
    try:
        if options.source is not None:
            source = msgspec.json.decode(options.source.read_bytes(), type=Source)
            facts = asyncio.run(
                read_all(source, password=password, account=account, run=options.shared, tls=tls)
            )
        else:
            into = msgspec.json.decode(options.into.read_bytes(), type=Into)
            facts = asyncio.run(load(into, password=password, run=options.shared, tls=tls))
    except (NotRead, NotLoaded) as error:
        (options.shared / "failure").write_text(f"{error}\n")
        print(error, file=sys.stderr)  # noqa: T201 - the log of the container
        return REFUSED if isinstance(error, NotLoaded) and not error.again else 1
    with (options.shared / "facts").open("a") as out:
        out.write(facts_text(facts))
    return 0


def _text(file: Path | None) -> str:
    return file.read_text().rstrip("\n") if file is not None and file.exists() else ""
