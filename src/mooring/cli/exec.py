"""``mooring exec``: a program of the environment that the launcher made, such as its Python."""

from __future__ import annotations

import argparse
import os

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("exec", help="run a program of Mooring's Python environment")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="for example: python -m bench.faults")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Become the program."""
    if not options.command:
        raise ValueError("exec: name a program")
    os.execvp(options.command[0], options.command)
