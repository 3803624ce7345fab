"""Which tests fail now and then? ``make flakes`` runs the tiers again and again, in circumstances that tests meet elsewhere.

    make flakes ROUNDS=10 LOAD=4
    make flakes ROUNDS=20 KINDS=busy,pinned TIERS=unit ARGS='tests/cli/test_why.py'
    make flakes ROUNDS=1 KINDS=busy TIERS=kubernetes,full,cluster,matrixone,browser

Each round runs each tier once in each of these circumstances:

- ``alone``: beside nothing else;
- ``busy``: beside ``LOAD`` loops that take all the processor time they get;
- ``pinned``: on one core;
- ``disk``: beside a program that writes and syncs on the disk of the temporary directories all the time;
- ``plane``: beside another control plane with its operators.

The output of each run is kept in .cache/flakes. At the end every test that failed is listed with how often, by
circumstance; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mooring.cli.tests import TIERS as ALL_TIERS

__all__ = ["KINDS", "Run", "Tally", "beside", "failed", "main", "repeat"]

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / ".cache" / "flakes"
KINDS: Final = ("alone", "busy", "pinned", "disk", "plane")
TIERS: Final = ("unit", "embedded")
#: Seconds for one run of a tier; a run that hangs for longer is ended, and counts as failed.
RUN_SECONDS: Final = 3600.0
#: pytest: all passed, none matched the arguments.
FINE: Final = (0, 5)

#: Loads end with this process, however it ends: then their standard input does.
_UNTIL_LEFT: Final = """
import os, sys, threading
def wait():
    sys.stdin.buffer.read()
    os._exit(0)
threading.Thread(target=wait, daemon=True).start()
"""
_LOOP: Final = f"{_UNTIL_LEFT}\nwhile True: pass"
_WRITE: Final = f"""{_UNTIL_LEFT}
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(64):
            file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
"""


@dataclass(frozen=True, order=True)
class Run:
    """One run of a tier."""

    number: int
    kind: str
    tier: str

    def __str__(self) -> str:
        return f"{self.number:02}-{self.kind}-{self.tier}"


@dataclass
class Tally:
    """How often each test failed, of how many runs of a circumstance (each tier counts as one)."""

    runs: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, run: Run, names: Iterable[str]) -> None:
        """Count one run."""
        self.runs[run.kind] += 1
        for name in names:
            self.failures.setdefault(name, Counter())[run.kind] += 1

    def table(self) -> str:
        """The tests that failed, most often first; one line says so where none did."""
        if not self.failures:
            return f"no test failed in {self.runs.total()} runs"
        often = sorted(self.failures.items(), key=lambda one: (-one[1].total(), one[0]))
        lines = [("failed", "circumstances", "test")]
        for name, kinds in often:
            by = ", ".join(f"{kind} {count} of {self.runs[kind]}" for kind, count in sorted(kinds.items()))
            lines.append((str(kinds.total()), by, name))
        widths = [max(len(line[column]) for line in lines) for column in range(2)]
        return "\n".join(f"{a:>{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in lines)


def failed(report: Path, status: int) -> list[str]:
    """The tests that failed by pytest's JUnit report; where there is none, that the run itself failed."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return [] if status in FINE else [f"(no report: pytest ended with status {status})"]
    names = {
        _name(case) for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    if not names and status not in FINE:
        return [f"(no test: pytest ended with status {status})"]
    return sorted(names)


def _name(case: ElementTree.Element) -> str:
    module, name = case.get("classname", ""), case.get("name", "")
    path = f"{module.replace('.', '/')}.py"
    return f"{path if (ROOT / path).exists() else module}::{name}"


# --- circumstances


@contextmanager
def beside(kind: str, load: int, place: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """What runs beside the tests in a circumstance; it has ended when this is left."""
    match kind:
        case "busy":
            commands = [[sys.executable, "-c", _LOOP]] * load
        case "disk":
            commands = [[sys.executable, "-c", _WRITE, str(place / "written")]]
        case "plane":
            commands = [_mooring("up", "--data-dir", str(place / "plane"), "--listen", "127.0.0.1:0")]
        case _:
            commands = []
    with ExitStack() as stack:
        if kind == "plane":
            stack.callback(_quietly, _mooring("down", "--data-dir", str(place / "plane")))
        started = []
        for command in commands:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
            )
            stack.callback(_end, process)
            started.append(process)
        yield started


def _mooring(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mooring", *arguments]


def _quietly(command: Sequence[str]) -> None:
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a load, by SIGTERM so that a control plane can clean up."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


# --- rounds


def repeat(runs: Iterable[Run], one: Callable[[Run], Sequence[str]], tally: Tally) -> None:
    """Do the runs in turn and count them; an interrupt ends that with what there is."""
    for run in runs:
        began = time.monotonic()
        try:
            names = one(run)
        except KeyboardInterrupt:
            print("flakes: interrupted", file=sys.stderr)
            return
        tally.add(run, names)
        said = f"{len(names)} failed" if names else "fine"
        print(f"flakes: {run}: {said}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _pytest(run: Run, *, load: int, arguments: Sequence[str], kept: Path) -> list[str]:
    """Run a tier once; its output and report stay in ``kept``."""
    report = kept / f"{run}.xml"
    pinned = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if run.kind == "pinned" else []
    command = [*pinned, *_mooring("test", "--tier", run.tier, "--"), f"--junitxml={report}", *arguments]
    with (
        tempfile.TemporaryDirectory(prefix="mooring-flakes-", ignore_cleanup_errors=True) as place,
        beside(run.kind, load, Path(place)),
        (kept / f"{run}.log").open("wb") as out,
    ):
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        try:
            status = process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return failed(report, status)


def _chosen(text: str, known: Sequence[str], option: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = sorted(set(words) - set(known))
    if unknown or not words:
        raise argparse.ArgumentTypeError(
            f"{option}: {', '.join(unknown) or 'none'}; known: {', '.join(known)}"
        )
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a test failed in any run."""
    parser = argparse.ArgumentParser(prog="flakes.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="default: 10")
    parser.add_argument("--load", type=int, default=4, help="busy loops (default: 4)")
    parser.add_argument(
        "--kinds",
        type=lambda text: _chosen(text, KINDS, "--kinds"),
        default=list(KINDS),
        help=f"circumstances (default: {','.join(KINDS)})",
    )
    parser.add_argument(
        "--tiers",
        type=lambda text: _chosen(text, tuple(ALL_TIERS), "--tiers"),
        default=list(TIERS),
        help=f"any of mooring test's (default: {','.join(TIERS)})",
    )
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args(arguments)
    kept = KEPT / time.strftime("%Y%m%d-%H%M%S")
    kept.mkdir(parents=True)
    print(f"flakes: output in {kept}", file=sys.stderr)
    numbers = range(1, options.rounds + 1)
    runs = [Run(n, kind, tier) for n in numbers for kind in options.kinds for tier in options.tiers]
    tally = Tally()
    repeat(runs, lambda run: _pytest(run, load=options.load, arguments=options.pytest, kept=kept), tally)
    print(tally.table())
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
