"""The command line: ``mooring COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mooring.cli.packages import MissingPackages
from mooring.kube.errors import KubeError

__all__ = ["main"]

#: Modules of the commands, in the order of the help; each has ``add_parser``.
COMMANDS = ("demo", "up", "down", "run", "enter", "crds", "ledger", "tests", "exec")


def _version() -> str:
    try:
        return version("mooring")
    except PackageNotFoundError:
        root = Path(os.environ.get("MOORING_ROOT", ""))
        for line in (root / "pyproject.toml").read_text().splitlines() if root.name else ():
            if line.startswith("version = "):
                return line.split('"')[1]
        return "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mooring",
        description="Redis, MySQL and MatrixOne that look after themselves: on Kubernetes, or on this machine.",
        epilog="Start with: mooring demo",
    )
    parser.add_argument("--version", action="version", version=f"mooring {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"mooring.cli.{name}").add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exits 0 when it did what it says, 1 with the reason last, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        status = options.run(options)
    except KeyboardInterrupt:
        status = 130
    except (KubeError, MissingPackages, ValueError, OSError, TimeoutError) as error:
        print(f"mooring: {error or type(error).__name__}", file=sys.stderr)
        status = 1
    except BaseExceptionGroup as group:
        for leaf in _leaves(group):
            print(f"mooring: {leaf or type(leaf).__name__}", file=sys.stderr)
        status = 1
    raise SystemExit(status)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
