"""``mooring test``: the tiers of the test suite, each with what it needs installed first."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mooring.cli.packages import COMPILER, NODE, ensure
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

#: Workers of a tier and what they share out. Most tests wait for timers, so two cores carry several; where
#: tests of a file share a control plane, files are what is shared out.
WORKERS: dict[str, tuple[int, str]] = {
    "unit": (2, "loadfile"),
    "embedded": (3, "loadfile"),
    "kubernetes": (3, "loadgroup"),
    "full": (2, "loadfile"),
}

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
    ensure(NODE | COMPILER if "full" in tiers else NODE)
    for tier in tiers:
        started = time.monotonic()
        print(f"mooring: tier {tier}", file=sys.stderr, flush=True)
        arguments = ["-q", "-m", TIERS[tier], *_side_by_side(tier), *options.pytest]
        status = _pytest(arguments, root=root, tier=tier)
        print(f"mooring: tier {tier}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if status == 5 and len(tiers) > 1:  # no test in this tier matched the given arguments
            continue
        if status:
            return status
    return 0


def _side_by_side(tier: str) -> list[str]:
    count, what = WORKERS[tier]
    return ["-n", str(count), "--dist", what, "--no-loadscope-reorder"]


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
