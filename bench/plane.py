"""The embedded control plane beside the real one, in one run: start, idle memory, requests, watches, a long list.

    python -m bench.plane [--idle 20] [--runs 3] [--seconds 5] [--without-kubernetes] [--write]

Started as a user would: `python -m mooring up` on a fresh data directory, then again on the same data; all
operators on, no pods. Byte code is there, as for every start but a clone's first, which is given beside. The real
one is etcd + kube-apiserver + kube-controller-manager, as hack/kubernetes/controlplane.py measures them. Memory is
resident, children included. The load comes from hack/clientgo, which shares the machine with the server.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.kubernetes.binaries import build_module
from hack.kubernetes.controlplane import ControlPlane

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- table: python -m bench.plane --write -->", "<!-- end of the plane's table -->"
READY = b"mooring: ready."
DEADLINE = 60.0


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start: seconds until ready, and resident MiB at rest."""

    seconds: float
    rss_mib: float


@contextmanager
def up(directory: Path, *options: str, bytecode: Path) -> Iterator[tuple[int, float]]:
    """`mooring up` until the end of the block: its pid and the seconds it took to be ready."""
    words = [
        "-m",
        "mooring",
        "up",
        "--data-dir",
        str(directory / "data"),
        "--listen",
        "127.0.0.1:0",
        *options,
    ]
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


def loaded(kubeconfig: Path, *, seconds: float) -> dict[str, Any]:
    """What hack/clientgo measured of a server; see there."""
    program = build_module(ROOT / "hack" / "clientgo", "clientgo")
    words = [str(program), "load", "-kubeconfig", str(kubeconfig), "-seconds", f"{seconds}s"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def embedded_load(*, seconds: float) -> dict[str, Any]:
    """The load on a `mooring up` without operators, whose data is on disk."""
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as top:
        bytecode = Path(top) / "bytecode"
        with up(Path(top), "--operators", "none", bytecode=bytecode) as (pid, _):
            figures = loaded(Path(top) / "data" / "kubeconfig", seconds=seconds)
            return {**figures, "rss_mib": round(resident(pid) / 2**20, 1)}


def kubernetes_load(*, seconds: float) -> dict[str, Any]:
    """The load on the real control plane."""
    with ControlPlane() as plane:
        return loaded(plane.kubeconfig, seconds=seconds)


VERBS = ("create", "get", "update", "patch", "apply")


def table(figures: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    ours, real = figures["embedded"], figures["kubernetes"]
    rows: list[tuple[str, float, float]] = [
        ("start to ready, s", ours["start_seconds"], real["start_seconds"]),
        ("resident memory at rest, MiB", ours["rss_total_mib"], real["rss_total_mib"]),
    ]
    mine, theirs = ours["load"], real["load"]
    rows += [(f"{verb}, requests/s", mine[verb]["per_second"], theirs[verb]["per_second"]) for verb in VERBS]
    rows += [(f"{verb}, 99th percentile, ms", mine[verb]["p99_ms"], theirs[verb]["p99_ms"]) for verb in VERBS]
    fan, other = mine["fan_out"], theirs["fan_out"]
    rows.append(
        (f"events/s to {fan['watchers']} watchers", fan["events_per_second"], other["events_per_second"])
    )
    last = "until_the_last_watcher_ms"
    rows.append(("change to the last of them, median, ms", fan[last], other[last]))
    listed = {
        "ms": "decoded by client-go",
        "as_json_undecoded_ms": "as JSON, not decoded",
        "in_pages_of_500_ms": "in pages of 500",
        "selector_of_none_ms": "with a selector that matches none",
    }
    for key, what in listed.items():
        name = f"list of {mine['list']['objects']:,} objects of 2 kB {what}, ms"
        rows.append((name, mine["list"][key], theirs["list"][key]))
    head = ["| | embedded | etcd, kube-apiserver, kube-controller-manager | ratio |", "|---|---:|---:|---:|"]
    body = [f"| {what} | {_figure(a)} | {_figure(b)} | {a / b:.2f} |" for what, a, b in rows]
    return "\n".join([*head, *body, ""])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def write(text: str) -> None:
    """Put the table where the page has it."""
    page = PAGE.read_text()
    before, begin, rest = page.partition(BEGIN)
    if not begin or END not in rest:
        raise ValueError(f"{PAGE} has no lines {BEGIN} and {END}")
    PAGE.write_text(f"{before}{begin}\n{text}{END}{rest.partition(END)[2]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="plane.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--idle", type=float, default=20.0, help="seconds before memory is read (20)")
    parser.add_argument("--runs", type=int, default=3, help="starts of each; the median counts (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each kind of request; 0: no load (5)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--without-kubernetes", action="store_true", help="the embedded one alone")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; prints JSON."""
    options = _parser().parse_args(arguments)
    figures: dict[str, Any] = {"embedded": embedded(idle=options.idle, runs=options.runs)}
    if options.seconds:
        figures["embedded"]["load"] = embedded_load(seconds=options.seconds)
    if not options.without_kubernetes:
        real = kubernetes(idle=options.idle, runs=options.runs)
        ours = figures["embedded"]
        figures["kubernetes"] = real
        if options.seconds:
            real["load"] = kubernetes_load(seconds=options.seconds)
        figures["ratios"] = {
            "start": round(ours["start_seconds"] / real["start_seconds"], 3),
            "start_again": round(ours["start_again_seconds"] / real["start_seconds"], 3),
            "rss": round(ours["rss_total_mib"] / real["rss_total_mib"], 3),
        }
    print(json.dumps(figures, indent=2))
    if options.write:
        write(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
