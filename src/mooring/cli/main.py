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

__all__ = ["main", "shown_version"]

#: The exit status as a shell gives it for SIGPIPE.
BROKEN_PIPE = 141

#: The commands in the order of the help: the module with ``add_parser``, and what the command does. Only the
#: module of the command that is run is imported: `mooring enter` should not wait for an API server's code.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "start here: a database cluster that survives faults"),
    "up": ("up", "start the embedded control plane and the operators here"),
    "down": ("down", "stop the embedded control plane; data is kept"),
    "console": ("console", "create and watch services in a browser, on any cluster"),
    "catalog": ("catalog", "the services that can be created: list, show ENTRY, lint FILE"),
    "create": ("create", "create a service of the catalog"),
    "get": ("get", "the services there are, or one of them"),
    "backup": ("backup", "back up a service, schedule backups, or list them"),
    "switchover": ("switchover", "let another server lead: a planned change of the master or primary"),
    "edit": ("edit", "change a service: fields, or its manifest in $EDITOR"),
    "delete": ("delete", "delete a service, after saying what goes and what stays"),
    "run": ("run", "run the operators alone, against any Kubernetes cluster"),
    "enter": ("enter", "run a command (default: a shell) where pods and Services can be reached"),
    "image": ("image", "load container images from files, list and remove them"),
    "crds": ("crds", "show the custom resource definitions, or apply them to a cluster"),
    "plan-upgrade": ("plan_upgrade", "what this version would roll with the next change of each cluster"),
    "remove-clusters": ("remove_clusters", "delete the clusters of a scope; their volumes stay"),
    "why": ("why", "what an operator waits for, since when, and what would unblock it"),
    "replay": ("replay", "decide again from what mooring why --save wrote down"),
    "ledger": (
        "ledger",
        "write to a Redis, MariaDB or MySQL, then count the acknowledged writes that it lost",
    ),
    "import": ("import_", "make a database that runs elsewhere a backup, which a new cluster begins with"),
    "objects": ("objects", "put, get, check, delete or list backups of a store"),
    "new": ("new", "begin a project: an operator of your own"),
    "exec": ("exec", "run a program of Mooring's Python environment"),
    "completion": ("completion", "complete commands, options, kinds and names in bash, zsh or fish"),
    "test": ("tests", "run the test suite (unit and embedded tiers)"),
}
#: Commands that the help does not show.
HIDDEN = {
    "agent": "agent",
    "check-metrics": "check_metrics",
    "complete": "complete",
}


#: Commands of a checkout, which the manual page leaves out.
DEVELOPERS = frozenset({"test", "exec"})
#: The exit statuses of every command, for the help, the manual page and the site.
EXITS: tuple[tuple[str, str], ...] = (
    ("0", "Done."),
    ("1", "Failed, or what was asked for is not so; the reason is the last line on standard error."),
    ("2", "Wrong usage; mooring ledger: no server could be asked."),
    ("130", "Interrupted (Ctrl-C)."),
    ("141", "The program that reads the output has ended."),
    ("other", "That of the program which mooring enter, exec and test run."),
)


def shown_version() -> str:
    """The version of this tree or package."""
    try:
        return version("mooring")
    except PackageNotFoundError:
        root = Path(os.environ.get("MOORING_ROOT", ""))
        for line in (root / "pyproject.toml").read_text().splitlines() if root.name else ():
            if line.startswith("version = "):
                return line.split('"')[1]
        return "unknown"


def _parser(chosen: str) -> argparse.ArgumentParser:
    """The parser, complete for the chosen command alone."""
    parser = argparse.ArgumentParser(
        prog="kubectl mooring" if Path(sys.argv[0]).name == "kubectl-mooring" else "mooring",
        description="Operators for Redis, MySQL and MatrixOne on Kubernetes, and a Kubernetes control plane for this machine.",
        epilog="Start with: mooring demo",
    )
    parser.add_argument("--version", action="version", version=f"mooring {shown_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    modules = {name: module for name, (module, _) in COMMANDS.items()} | HIDDEN
    for name, (_, what) in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=what)
    if module := modules.get(chosen):
        import_module(f"mooring.cli.{module}").add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command.

    The exit status is 0 when it did what it says, 1 with the reason last, 2 for wrong usage, 130 when it was
    interrupted.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    raise SystemExit(_run(given))


def _run(given: Sequence[str]) -> int:
    try:
        options = _parser(next((word for word in given if not word.startswith("-")), "")).parse_args(given)
        # A plain user's PATH may lack the directories of ip, nft and the like.
        os.environ["PATH"] = f"{os.environ.get('PATH', '/usr/bin:/bin')}:{SBIN}"
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
