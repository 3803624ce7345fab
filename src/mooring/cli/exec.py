"""``mooring exec``: a program of the environment, for the Makefile."""

from __future__ import annotations

import argparse
import os

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command; it is not shown in the help."""
    parser = commands.add_parser("exec")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Become the program."""
    if not options.command:
        raise ValueError("exec: name a program")
    os.execvp(options.command[0], options.command)
