"""``mooring complete -- WORDS``: what the last word may become, for the scripts of ``mooring completion``."""

from __future__ import annotations

import argparse

from mooring.cli.completion import words

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("complete")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a word a line."""
    from mooring.cli.main import COMMANDS  # it imports this module

    given = options.words[1:] if options.words[:1] == ["--"] else options.words
    print("\n".join(words(given, list(COMMANDS))))
    return 0
