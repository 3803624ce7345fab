"""``mooring test``: the tiers of the test suite, each with what it needs installed first."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mooring.cli.packages import BROWSER, COMPILER, NODE, TESTS, ensure
from mooring.cli.program import checkout
from mooring.local.node import rootless

__all__ = ["add_parser"]


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Tests chosen by their markers, and how to run them.

    Most tests wait for timers, so two cores carry several ``workers``. Tests of a file share a control plane, so
    a worker takes whole files. ``namespaced`` tests need the right to make networks and sandboxes.
    ``rooted`` ones need root, since no plain user can run a kubelet; where tests decide whether a change lands, it is
    an error to leave them out.
    ``real`` ones run on the real control plane instead of the embedded one.
    ``asked`` ones run only when asked for by name.
    What ``builds`` needs programs that take minutes to build, once; ``first``, before its tests start, since from within
    a plain user's namespaces nothing can be downloaded. Of all tiers, one runs ``beside`` another whose tests mostly wait
    for a single cluster; its output follows when both are over.
    """

    marked: str
    workers: int
    namespaced: bool = False
    real: bool = False
    rooted: bool = False
    builds: bool = False
    first: bool = False
    asked: bool = False
    beside: str = ""


#: Fastest first.
TIERS: dict[str, Tier] = {
    "unit": Tier(
        marked="not embedded and not full and not kubernetes and not cluster and not browser and not mo_service and not soak and not nightly",
        workers=3,
    ),
    "embedded": Tier(
        marked="embedded and not full and not kubernetes and not cluster and not mo_service and not soak and not nightly",
        workers=5,
        namespaced=True,
    ),
    "kubernetes": Tier(marked="kubernetes and not full and not soak and not nightly", workers=3, builds=True),
    "full": Tier(
        marked="full and not cluster and not soak and not nightly", workers=2, namespaced=True, builds=True
    ),
    # The chart and its life on a real kubelet and containerd; one node for all of them.
    "cluster": Tier(marked="cluster and not soak and not nightly", workers=1, rooted=True, builds=True),
    # MatrixOne's own processes. Not the marker `matrixone`, which is of that operator's tests in every tier.
    "matrixone": Tier(
        marked="mo_service and not soak and not nightly",
        workers=1,
        namespaced=True,
        builds=True,
        first=True,
    ),
    # The console as people use it. As a plain user the plane needs namespaces, and makes them itself.
    "browser": Tier(marked="browser and not soak and not nightly", workers=1, beside="matrixone"),
    # The embedded tier's tests of clusters, each worker's on a real control plane of its own.
    "clusters": Tier(
        marked="clusters and not full and not soak and not nightly",
        workers=2,
        namespaced=True,
        real=True,
        builds=True,
        asked=True,
    ),
    # Long variants and those of parts that seldom change.
    "nightly": Tier(marked="nightly and not soak", workers=2, namespaced=True, builds=True, asked=True),
}

#: What pytest exits with when no test was chosen.
NONE_MATCHED = 5
#: Niceness of builds beside tests.
_NICE = 15
#: Seconds that a tier waits for them.
_BUILD_SECONDS = 1200
_REEXEC = "import sys; from mooring.local.node.rootless import reexec; reexec(sys.argv[1:])"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("test", help="run the test suite (unit and embedded tiers)")
    parser.add_argument("--all", action="store_true", help="every tier but clusters and nightly")
    parser.add_argument(
        "--tier",
        action="append",
        choices=list(TIERS),
        help="only this tier (repeatable); clusters: the operators' tests again, on a real kube-apiserver",
    )
    parser.add_argument(
        "--operator", metavar="NAME", help="only tests of this operator, such as redis-cluster"
    )
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the chosen tiers one after the other; the first failing one ends it."""
    root = checkout() or Path(__file__).resolve().parents[3]
    if not (root / "tests").is_dir():
        print(
            "mooring: the tests are not part of the package: run ./mooring test in a checkout",
            file=sys.stderr,
        )
        return 2
    tiers = options.tier or (_unasked() if options.all else ["unit", "embedded"])
    ensure(
        NODE
        | TESTS
        | (COMPILER if {"full", "matrixone"} & {*tiers} else {})
        | (BROWSER if "browser" in tiers else {})
    )
    with _building(root, tiers if options.all else []) as built:
        return _run_tiers(tiers, options, root=root, built=built)


def _run_tiers(
    tiers: list[str], options: argparse.Namespace, *, root: Path, built: Callable[[], None]
) -> int:
    with tempfile.TemporaryDirectory(prefix="mooring-test-seconds-") as place:
        status, seconds = 0, {tier: Path(place) / tier for tier in tiers}
        for group in _groups(tiers):
            with ThreadPoolExecutor() as pool:
                others = [
                    pool.submit(_aside, tier, options, root=root, built=built, seconds=seconds[tier])
                    for tier in group[1:]
                ]
                status = _run_tier(group[0], options, root=root, built=built, seconds=seconds[group[0]])
            for other in others:
                later, said = other.result()
                sys.stdout.flush()
                sys.stdout.buffer.write(said)
                sys.stdout.flush()
                status = status or later
            if status:
                break
        ran = {tier: _seconds_in(file) for tier, file in seconds.items()}
    if options.operator and not status and not any(ran.values()):
        print(f"mooring: no test is about an operator {options.operator}", file=sys.stderr)
        return 2
    if sum(map(bool, ran.values())) > 1:
        print("\n".join(_table(ran)), file=sys.stderr, flush=True)
    return status


def _groups(tiers: list[str]) -> list[list[str]]:
    """The tiers in their order, those that run side by side together."""
    groups: list[list[str]] = []
    for tier in tiers:
        together = [group for group in groups if TIERS[tier].beside and TIERS[tier].beside == group[0]]
        if together:
            together[0].append(tier)
        else:
            groups.append([tier])
    return groups


def _aside(
    name: str, options: argparse.Namespace, *, root: Path, built: Callable[[], None], seconds: Path
) -> tuple[int, bytes]:
    """Run one tier beside another: its status, and what it printed."""
    with tempfile.TemporaryFile() as output:
        status = _run_tier(name, options, root=root, built=built, seconds=seconds, output=output)
        output.seek(0)
        return status, output.read()


def _run_tier(
    name: str,
    options: argparse.Namespace,
    *,
    root: Path,
    built: Callable[[], None],
    seconds: Path,
    output: IO[bytes] | None = None,
) -> int:
    """Run one tier, its output to this file; the status is 0 where none of its tests matched the given arguments."""
    tier = TIERS[name]
    if tier.builds:
        built()
    started = time.monotonic()
    print(f"mooring: tier {name}", file=sys.stderr, flush=True)
    if tier.rooted and os.geteuid() != 0:
        print(f"mooring: tier {name} needs root, for a kubelet and containerd: left out", file=sys.stderr)
        return 1 if name in (options.tier or ()) or os.environ.get("CI") else 0
    if tier.real and (status := _build(root)):
        return status
    if tier.first and (status := _build_for(name, root)):
        return status
    marked = tier.marked
    if options.operator:
        marked = f"({marked}) and {options.operator.replace('-', '_')}"
    arguments = ["-q", "-m", marked, *_side_by_side(tier), *options.pytest]
    noted = {
        "MOORING_TEST_SECONDS": str(seconds),
        "MOORING_TEST_OPERATOR": options.operator or "",
        # The first tier notes which files have tests of the others; on the real control plane tests get other markers.
        "MOORING_TEST_FILES": "" if tier.real else str(seconds.with_name("files")),
    }
    status = _pytest(arguments, root=root, tier=tier, noted=noted, output=output)
    print(f"mooring: tier {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return 0 if status == NONE_MATCHED and (options.operator or len(options.tier or ()) != 1) else status


def _seconds_in(file: Path) -> dict[str, float]:
    """Seconds by operator, as the tests of a tier noted them."""
    total: dict[str, float] = defaultdict(float)
    for line in file.read_text().splitlines() if file.exists() else ():
        for name, seconds in json.loads(line).items():
            total[name] += seconds
    return total


def _table(ran: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Seconds of tests by operator and tier; several run at a time."""
    tiers = [tier for tier, seconds in ran.items() if seconds]
    operators = sorted({name for seconds in ran.values() for name in seconds})
    yield f"{'seconds of tests':20}" + "".join(f"{tier:>12}" for tier in tiers)
    for name in operators:
        yield f"{name:20}" + "".join(f"{ran[tier].get(name, 0.0):12.0f}" for tier in tiers)


@contextmanager
def _building(root: Path, tiers: list[str]) -> Iterator[Callable[[], None]]:
    """Build what later tiers need while earlier ones, which mostly wait for timers, leave processors free.

    Gives what to call before the first tier that needs it. Where it fails the tests build for themselves, and say why.
    """
    later = [name for name in tiers if TIERS[name].builds and (os.geteuid() == 0 or not TIERS[name].rooted)]
    if not later:
        yield lambda: None
        return
    command = ["nice", "-n", str(_NICE), sys.executable, str(root / "hack" / "build.py"), *later]
    with subprocess.Popen(command, cwd=root, start_new_session=True) as builder:

        def built() -> None:
            if builder.poll() is None:
                began = time.monotonic()
                with suppress(PermissionError, ProcessLookupError):  # nothing else is wanted now
                    os.setpriority(os.PRIO_PGRP, builder.pid, os.getpriority(os.PRIO_PROCESS, 0))
                try:
                    builder.wait(_BUILD_SECONDS)
                except subprocess.TimeoutExpired:  # whoever needs one builds it alone
                    os.killpg(builder.pid, signal.SIGTERM)
                print(
                    f"mooring: waited {time.monotonic() - began:.0f} s for builds",
                    file=sys.stderr,
                    flush=True,
                )

        try:
            yield built
        finally:
            if builder.poll() is None:
                os.killpg(builder.pid, signal.SIGTERM)


def _unasked() -> list[str]:
    return [name for name, tier in TIERS.items() if not tier.asked]


def _build(root: Path) -> int:
    """Build the servers now: from within a plain user's namespaces nothing can be downloaded."""
    tool = root / "hack" / "kubernetes" / "controlplane.py"
    return subprocess.run([sys.executable, tool, "build"], stdout=subprocess.DEVNULL).returncode


def _build_for(tier: str, root: Path) -> int:
    """Build what a tier needs; at once where it is built already."""
    return subprocess.run([sys.executable, root / "hack" / "build.py", tier]).returncode


def _side_by_side(tier: Tier) -> list[str]:
    return ["-n", str(tier.workers), "--dist", "loadfile", "--no-loadscope-reorder"]


def _pytest(
    arguments: list[str], *, root: Path, tier: Tier, noted: Mapping[str, str], output: IO[bytes] | None
) -> int:
    """Run pytest; a plain user's tests with real pods inside namespaces of their own, as his planes do."""
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = {**os.environ, **noted}
    if tier.real:
        environment["MOORING_TEST_BED"] = "kubernetes"
    if tier.namespaced and rootless.needed():
        if (why := rootless.trouble()) is not None:
            raise rootless.RootlessError(why)
        command = [sys.executable, "-c", _REEXEC, *command]
        # In there pytest takes itself for root, whose own directory below /tmp is not this user's to use.
        with tempfile.TemporaryDirectory(prefix="mooring-test-", ignore_cleanup_errors=True) as place:
            environment["PYTEST_DEBUG_TEMPROOT"] = place
            return _finished(command, root, environment, output)
    return _finished(command, root, environment, output)


def _finished(
    command: list[str], root: Path, environment: Mapping[str, str], output: IO[bytes] | None
) -> int:
    if output is None:
        return subprocess.run(command, cwd=root, env=environment).returncode
    return subprocess.run(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    ).returncode
