"""``mooring ledger``: a writer that remembers what was acknowledged, for any Redis."""

from __future__ import annotations

import argparse

from mooring.testing import ledger

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command; its options are the library's own."""
    parser = commands.add_parser(
        "ledger", help="write to a Redis, then count what it lost of what it acknowledged", add_help=False
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=lambda options: ledger.run(options.arguments))
