"""``mooring test``: the tiers of the test suite, each with what it needs installed first."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mooring.cli.packages import NODE, ensure
from mooring.local.node import rootless

__all__ = ["add_parser"]

#: Tiers whose tests need the rights to make networks and sandboxes.
NAMESPACED = ("embedded", "full")

#: Tier -> the tests in it, fastest first.
TIERS: dict[str, str] = {
    "unit": "not embedded and not full and not kubernetes and not soak",
    "embedded": "embedded and not full and not kubernetes and not soak",
    "kubernetes": "kubernetes and not full and not soak",
    "full": "full and not soak",
}

#: Test files of a tier that run at once. Most tests wait for timers of databases, two cores carry several.
WORKERS = {"unit": 2, "embedded": 3, "kubernetes": 2, "full": 1}

_REEXEC = "import sys; from mooring.local.node.rootless import reexec; reexec(sys.argv[1:])"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("test", help="run the test suite (unit and embedded tiers)")
    parser.add_argument("--all", action="store_true", help="every tier, the real control plane included")
    parser.add_argument("--tier", action="append", choices=list(TIERS), help="only this tier (repeatable)")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the chosen tiers one after the other; the first failing one ends it."""
    root = Path(os.environ.get("MOORING_ROOT", Path(__file__).resolve().parents[3]))
    tiers = options.tier or (list(TIERS) if options.all else ["unit", "embedded"])
    ensure(NODE)
    for tier in tiers:
        started = time.monotonic()
        print(f"mooring: tier {tier}", file=sys.stderr, flush=True)
        workers = ["-n", str(WORKERS[tier]), "--dist", "loadfile", "--no-loadscope-reorder"] if WORKERS[tier] > 1 else []
        status = _pytest(["-q", "-m", TIERS[tier], *workers, *options.pytest], root=root, tier=tier)
        print(f"mooring: tier {tier}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if status == 5 and len(tiers) > 1:  # no test in this tier matched the given arguments
            continue
        if status:
            return status
    return 0


def _pytest(arguments: list[str], *, root: Path, tier: str) -> int:
    """Run pytest; a plain user's tests with real pods inside namespaces of their own, as his planes do."""
    command = [sys.executable, "-m", "pytest", *arguments]
    if tier in NAMESPACED and rootless.needed():
        if (why := rootless.trouble()) is not None:
            raise rootless.RootlessError(why)
        command = [sys.executable, "-c", _REEXEC, *command]
        # In there pytest takes itself for root, whose own directory below /tmp is not this user's to use.
        with tempfile.TemporaryDirectory(prefix="mooring-test-", ignore_cleanup_errors=True) as place:
            environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": place}
            return subprocess.run(command, cwd=root, env=environment).returncode
    return subprocess.run(command, cwd=root).returncode
