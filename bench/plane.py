"""The embedded control plane beside the real one, in one run: start to ready, and idle memory.

    python bench/plane.py [--idle 20] [--runs 3] [--without-kubernetes] [--json]

Started as a user would: `python -m mooring up` on a fresh data directory, then again on the same data; all
operators on, no pods. Byte code is there, as for every start but a clone's first, which is given beside. The real one is etcd + kube-apiserver + kube-controller-manager, as
hack/kubernetes/controlplane.py measures them. Memory is resident, children included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
READY = b"mooring: ready."
DEADLINE = 60.0


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start: seconds until ready, and resident MiB at rest."""

    seconds: float
    rss_mib: float


@contextmanager
def up(directory: Path, *, bytecode: Path) -> Iterator[tuple[int, float]]:
    """`mooring up` until the end of the block: its pid and the seconds it took to be ready."""
    words = ["-m", "mooring", "up", "--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    try:
        while READY not in (directory / "log").read_bytes():
            if process.poll() is not None or time.monotonic() - began > DEADLINE:
                raise RuntimeError(f"not ready: {(directory / 'log').read_text()[-2000:]}")
            time.sleep(0.005)
        yield process.pid, time.monotonic() - began
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def resident(pid: int) -> int:
    """Resident bytes of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                sizes[int(entry.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    found, todo = 0, [pid]
    while todo:
        one = todo.pop()
        found += sizes.get(one, 0)
        todo += children.get(one, [])
    return found


def measure(directory: Path, *, bytecode: Path, idle: float = 0.0) -> Start:
    """Start, leave alone, look, stop."""
    with up(directory, bytecode=bytecode) as (pid, seconds):
        time.sleep(idle)
        return Start(seconds=round(seconds, 2), rss_mib=round(resident(pid) / 2**20, 1))


def embedded(*, idle: float, runs: int) -> dict[str, Any]:
    """Medians of the starts on a fresh directory and on existing data."""
    fresh, again = [], []
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as top:
        bytecode = Path(top) / "bytecode"
        directories = [Path(top) / str(run) for run in range(runs + 1)]
        for directory in directories:
            directory.mkdir()
        first = measure(directories[0], bytecode=bytecode)
        for directory in directories[1:]:
            fresh.append(measure(directory, bytecode=bytecode, idle=idle))
            again.append(measure(directory, bytecode=bytecode, idle=idle))
    return {
        "start_seconds": statistics.median(one.seconds for one in fresh),
        "start_again_seconds": statistics.median(one.seconds for one in again),
        "first_start_of_a_clone_seconds": first.seconds,
        "rss_total_mib": statistics.median(one.rss_mib for one in fresh),
        "rss_again_total_mib": statistics.median(one.rss_mib for one in again),
        "starts": [one.seconds for one in fresh],
    }


def kubernetes(*, idle: float, runs: int) -> dict[str, Any]:
    """Medians of the real control plane."""
    found = []
    for _ in range(runs):
        words = [sys.executable, "hack/kubernetes/controlplane.py", "measure", "--idle", str(idle)]
        done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        found.append(json.loads(done.stdout))
    return {
        "start_seconds": statistics.median(one["start_seconds"] for one in found),
        "rss_total_mib": statistics.median(one["rss_total_mib"] for one in found),
        "rss_mib": found[-1]["rss_mib"],
        "starts": [one["start_seconds"] for one in found],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="plane.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--idle", type=float, default=20.0, help="seconds before memory is read (20)")
    parser.add_argument("--runs", type=int, default=3, help="starts of each; the median counts (3)")
    parser.add_argument("--without-kubernetes", action="store_true", help="the embedded one alone")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    options = _parser().parse_args(arguments)
    figures: dict[str, Any] = {"embedded": embedded(idle=options.idle, runs=options.runs)}
    if not options.without_kubernetes:
        real = kubernetes(idle=options.idle, runs=options.runs)
        ours = figures["embedded"]
        figures["kubernetes"] = real
        figures["ratios"] = {
            "start": round(ours["start_seconds"] / real["start_seconds"], 3),
            "start_again": round(ours["start_again_seconds"] / real["start_seconds"], 3),
            "rss": round(ours["rss_total_mib"] / real["rss_total_mib"], 3),
        }
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
