"""``mooring matrixone-run``: what the Jobs of MatrixOne's backups and restores run; not for people."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import msgspec

from mooring.operators.matrixone.backup.agent import outcome
from mooring.operators.matrixone.backup.request import Request

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "matrixone-run", help="a run of a backup or restore; the variable REQUEST says which"
    )
    parser.add_argument("--secrets", type=Path, default=Path("/mooring/secrets"), metavar="DIR")
    parser.add_argument("--report", type=Path, metavar="FILE", help="where the result goes as well")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it, and print the result as one JSON object; status 1 where it failed."""
    request = msgspec.json.decode(os.environ["REQUEST"], type=Request)
    result = asyncio.run(outcome(request, options.secrets))
    text = result.encoded()
    if options.report is not None:
        options.report.write_bytes(text)
    print(text.decode())
    return 0 if result.ok else 1
