"""``mooring agent matrixone``: what the Jobs of backups and restores run."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mooring.objectstore import leave
from mooring.operators.matrixone.backup.agent import outcome
from mooring.operators.matrixone.backup.request import Request

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Do what the variable REQUEST says, and print the result as one JSON object; status 1 where it failed."""
    parser = argparse.ArgumentParser(prog="mooring agent matrixone")
    parser.add_argument("--secrets", type=Path, default=Path("/mooring/secrets"), metavar="DIR")
    parser.add_argument("--report", type=Path, metavar="FILE", help="where the result goes as well")
    options = parser.parse_args(arguments)
    request = msgspec.json.decode(os.environ["REQUEST"], type=Request)
    result = asyncio.run(outcome(request, options.secrets))
    text = result.encoded()
    if options.report is not None:
        options.report.write_bytes(text)
    print(text.decode())  # noqa: T201 - the log of the container
    leave(0 if result.ok else 1)
