"""``mooring ledger``: a writer that remembers what was acknowledged, for any Redis."""

from __future__ import annotations

import argparse

from mooring.testing import ledger

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command; its options are the library's own."""
    parser = commands.add_parser(
        "ledger", help="write to a Redis, then count what it lost of what it acknowledged"
    )
    ledger.add_arguments(parser)
    parser.set_defaults(run=ledger.run_with)
