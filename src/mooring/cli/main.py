"""The command line: ``mooring COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mooring.cli.failure import INTERRUPTED, report
from mooring.cli.packages import SBIN

__all__ = ["main"]

#: The exit status as a shell gives it for SIGPIPE.
BROKEN_PIPE = 141

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
    """Run one command.

    The exit status is 0 when it did what it says, 1 with the reason last, 2 for wrong usage, 130 when it was
    interrupted.
    """
    options = _parser().parse_args(arguments)
    # A plain user's PATH may lack the directories of ip, nft and the like.
    os.environ["PATH"] = f"{os.environ.get('PATH', '/usr/bin:/bin')}:{SBIN}"
    raise SystemExit(_run(options))


def _run(options: argparse.Namespace) -> int:
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough, as in `mooring crds | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (Exception, BaseExceptionGroup) as error:
        report(error)
        return 1
    return status
