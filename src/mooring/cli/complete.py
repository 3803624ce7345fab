"""``mooring complete -- WORDS``: what the last word may become, for the scripts of ``mooring completion``."""

from __future__ import annotations

import argparse
import sys

from mooring.cli.candidates import candidates

__all__ = ["add_parser", "kubectl"]

_NO_SPACE, _NO_FILES = 2, 4
"""Bits of the directive that ends an answer to kubectl (cobra's ShellCompDirective)."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("complete")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a word a line."""
    given = options.words[1:] if options.words[:1] == ["--"] else options.words
    print("\n".join(candidates(given)))
    return 0


def kubectl() -> None:
    """The program ``kubectl_complete-mooring``, which kubectl asks for words after ``kubectl mooring``."""
    found = candidates(sys.argv[1:])
    open_ended = bool(found) and all(word.endswith(("=", ".", "/")) for word in found)
    print("\n".join([*found, f":{(_NO_FILES if found else 0) | (_NO_SPACE if open_ended else 0)}"]))
