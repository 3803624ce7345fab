"""Kubernetes' own conformance specs, run against the embedded control plane or the real one.

    python hack/kubernetes/specs.py [--pods] [--on embedded|real] [--kubeconfig FILE] [--only REGEX] [--fast] [-j N]
    python hack/kubernetes/specs.py --missing

`specs.txt` lists those that need no node, `podspecs.txt` those that need pods (`--pods`: on the embedded plane
with nodes, and images made for it), each with the seconds it takes. Those that are quick go into one process together,
since a process of the 7,500 specs takes more than a second to start; a slow one has a process of its own.
A spec that a process left without a verdict (it hung, and the process was ended) is run again alone. Those that
disturb others, [Serial] by name, run one at a time after all others. `--missing` prints those that no list has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

_ROOT = Path(__file__).resolve().parents[2]
if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(_ROOT))

from hack.images import pods  # noqa: E402
from hack.images.debian import DebianError  # noqa: E402
from hack.kubernetes.binaries import KUBECTL, SPECS, BuildError, build  # noqa: E402
from hack.kubernetes.controlplane import ControlPlane  # noqa: E402
from hack.kubernetes.embedded import EmbeddedPlane, plane_with_nodes  # noqa: E402
from hack.kubernetes.rundir import StartError  # noqa: E402

__all__ = ["FAST_SECONDS", "LIST", "PODS_LIST", "Programs", "Spec", "Verdict", "load", "main", "run_all"]

LIST = Path(__file__).with_name("specs.txt")
PODS_LIST = Path(__file__).with_name("podspecs.txt")
#: A spec that takes at most this many seconds is one of the fast part.
FAST_SECONDS = 4.0
#: Expected seconds of the specs that share a process, and how many they may be.
_CHUNK_SECONDS = 25.0
_CHUNK_SPECS = 8
#: Seconds a process may take beyond four times what its specs are expected to take.
_GRACE_SECONDS = 60.0

# Without --num-nodes=1 the suite looks for a node that can be scheduled on before it runs anything.
_OPTIONS = (
    "--provider=skeleton",
    "--num-nodes=1",
    "--allowed-not-ready-nodes=-1",
    "--minStartupPods=0",
    "--node-schedulable-timeout=1s",
    "--system-pods-startup-timeout=1s",
    "--dump-logs-on-failure=false",
    "--disable-log-dump",
    "--ginkgo.grace-period=3s",
    "--ginkgo.no-color",
)


@dataclass(frozen=True)
class Spec:
    """One spec by its full name, and the `seconds` it takes."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """What became of a spec; `why` is empty when it passed."""

    spec: Spec
    seconds: float
    why: str = ""


@dataclass(frozen=True)
class Programs:
    """The two programs that running specs takes."""

    e2e: Path
    kubectl: Path

    @classmethod
    def built(cls) -> Programs:
        """Build them on first use (minutes)."""
        return cls(build(SPECS) / "e2e.test", build(KUBECTL) / "kubectl")

    def images(self) -> set[str]:
        """The names of all images that specs ask for."""
        done = subprocess.run([self.e2e, "--list-images"], check=True, capture_output=True, text=True)
        return set(done.stdout.split())

    def conformance(self) -> set[str]:
        """The full names of all [Conformance] specs."""
        command = [str(self.e2e), "--list-conformance-tests"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return {one["codename"] for one in yaml.load(done.stdout, yaml.CSafeLoader)}


def load(path: Path = LIST) -> list[Spec]:
    """The committed list: a line holds the seconds and the name of a spec."""
    lines = (line.split(maxsplit=1) for line in path.read_text().splitlines() if not line.startswith("#"))
    return [Spec(name.strip(), float(seconds)) for seconds, name in lines]


def run_all(
    specs: Iterable[Spec],
    kubeconfig: Path,
    *,
    programs: Programs,
    jobs: int = 4,
    told: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """Run specs, `jobs` processes at a time, and return their verdicts; `told` hears of each."""

    def run(chunk: Sequence[Spec]) -> list[Verdict]:
        verdicts = _run(chunk, kubeconfig, programs)
        for verdict in verdicts:
            told(verdict)
        return verdicts

    given = list(specs)
    alone = [spec for spec in given if "[Serial]" in spec.name]
    together = [spec for spec in given if spec not in alone]
    return [*_in_turn(run, _chunks(together), jobs), *_in_turn(run, _chunks(alone), 1)]


def _in_turn(
    run: Callable[[Sequence[Spec]], list[Verdict]], waiting: Iterable[list[Spec]], jobs: int
) -> list[Verdict]:
    """Run chunks, `jobs` at a time, and then alone each spec that got no verdict."""
    found: list[Verdict] = []
    again = list(waiting)
    with ThreadPoolExecutor(jobs) as pool:
        while again:
            chunks, again = again, []
            for chunk, verdicts in zip(chunks, pool.map(run, chunks), strict=True):
                found += verdicts
                missing = [spec for spec in chunk if all(v.spec != spec for v in verdicts)]
                again += [[spec] for spec in missing]
    return found


def _chunks(specs: Iterable[Spec]) -> Iterator[list[Spec]]:
    """Share specs out to processes, the slowest first."""
    chunk: list[Spec] = []
    for spec in sorted(specs, key=lambda spec: -spec.seconds):
        if chunk and (
            len(chunk) == _CHUNK_SPECS or sum(s.seconds for s in chunk) + spec.seconds > _CHUNK_SECONDS
        ):
            yield chunk
            chunk = []
        chunk.append(spec)
    if chunk:
        yield chunk


def _run(chunk: Sequence[Spec], kubeconfig: Path, programs: Programs) -> list[Verdict]:
    """Run some specs in one process; those it gives no verdict on are missing, unless it ran but one."""
    limit = _GRACE_SECONDS + 4 * sum(spec.seconds for spec in chunk)
    with tempfile.TemporaryDirectory(prefix="mooring-specs-") as directory:
        report = Path(directory) / "report.json"
        command = [
            str(programs.e2e),
            f"--kubeconfig={kubeconfig}",
            f"--kubectl-path={programs.kubectl}",
            *_OPTIONS,
            f"--ginkgo.focus=suite (?:{'|'.join(re.escape(spec.name) for spec in chunk)})$",
            f"--ginkgo.timeout={limit:.0f}s",
            f"--ginkgo.json-report={report}",
        ]
        environment = {**os.environ, "HOME": directory, "KUBECONFIG": str(kubeconfig)}
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=limit + 30,
                check=False,
            )
        verdicts = list(_verdicts(chunk, report))
    if len(chunk) == 1 and not verdicts:
        return [Verdict(chunk[0], limit, f"no verdict within {limit:.0f} s")]
    # Of several the first that hung took the time of the others: each of them is run again alone.
    return [v for v in verdicts if len(chunk) == 1 or not v.why.startswith(_UNFAIR)]


_UNFAIR = ("timedout", "interrupted", "aborted")


def _verdicts(chunk: Sequence[Spec], report: Path) -> Iterator[Verdict]:
    if not report.exists():
        return
    wanted = {spec.name: spec for spec in chunk}
    for suite in json.loads(report.read_bytes()):
        for one in suite.get("SpecReports") or ():
            name = " ".join([*(one.get("ContainerHierarchyTexts") or ()), one.get("LeafNodeText") or ""])
            spec = wanted.get(name)
            if "BeforeSuite" in one["LeafNodeType"] and one["State"] == "failed":
                raise StartError(f"no spec can run: {_reason(one.get('Failure') or {})}")
            if spec is None or (one["State"] in ("skipped", "pending") and not one.get("RunTime")):
                continue
            why = "" if one["State"] == "passed" else f"{one['State']}: {_reason(one.get('Failure') or {})}"
            yield Verdict(spec, one["RunTime"] / 1e9, why)


def _reason(failure: dict[str, object]) -> str:
    message = " ".join(str(failure.get("Message") or "").split())
    place = failure.get("Location")
    where = ""
    if isinstance(place, dict):
        where = f" ({str(place.get('FileName')).rpartition('/')[2]}:{place.get('LineNumber')})"
    return message[:600] + where


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specs.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--on", choices=["embedded", "real"], default="embedded", help="which control plane")
    parser.add_argument(
        "--pods", action="store_true", help="the specs that need pods, on the embedded plane with nodes"
    )
    parser.add_argument("--kubeconfig", type=Path, help="of a control plane that runs already")
    parser.add_argument("--only", default="", help="specs whose name matches this expression")
    parser.add_argument("--fast", action="store_true", help=f"those of at most {FAST_SECONDS:g} s")
    parser.add_argument("-j", "--jobs", type=int, default=4, help="processes at a time (4)")
    parser.add_argument(
        "--missing", action="store_true", help="print the specs that no list has, and run none"
    )
    parser.add_argument("--record", action="store_true", help="write the seconds measured into the list")
    return parser


@contextlib.contextmanager
def _control_plane(options: argparse.Namespace) -> Iterator[Path]:
    if options.kubeconfig is not None:
        yield options.kubeconfig.absolute()
    elif options.pods:
        with plane_with_nodes(pods.build_all()) as nodes:
            yield nodes
    elif options.on == "real":
        with ControlPlane() as plane:
            yield plane.kubeconfig
    else:
        with EmbeddedPlane() as embedded:
            yield embedded.kubeconfig


def _tell(verdict: Verdict) -> None:
    mark = "FAIL" if verdict.why else "ok  "
    print(f"{mark} {verdict.seconds:6.1f} s  {verdict.spec.name}", flush=True)
    if verdict.why:
        print(f"     {verdict.why}", flush=True)


def _record(verdicts: Iterable[Verdict], path: Path) -> None:
    measured = {v.spec.name: v.seconds for v in verdicts if not v.why}
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    lines = [f"{measured.get(spec.name, spec.seconds):5.1f} {spec.name}" for spec in load(path)]
    path.write_text("\n".join([*head, *lines]) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; status 1 when a spec failed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.pods and options.on == "real":
        parser.error("--pods runs on the embedded plane: the real one's node has no images for them")
    if options.missing:
        listed_here = {spec.name for path in (LIST, PODS_LIST) for spec in load(path)}
        print(*sorted(Programs.built().conformance() - listed_here), sep="\n")
        return 0
    listed, only = PODS_LIST if options.pods else LIST, re.compile(options.only)
    specs = [
        spec
        for spec in load(listed)
        if only.search(spec.name) and (not options.fast or spec.seconds <= FAST_SECONDS)
    ]
    if not specs:
        print(f"specs: no spec matches {options.only!r}", file=sys.stderr)
        return 1
    try:
        programs, started = Programs.built(), time.monotonic()
        with _control_plane(options) as kubeconfig:
            verdicts = run_all(specs, kubeconfig, programs=programs, jobs=options.jobs, told=_tell)
    except (BuildError, DebianError, StartError) as failed:
        print(f"specs: {failed}", file=sys.stderr)
        return 1
    if options.record:
        _record(verdicts, listed)
    losers = [verdict for verdict in verdicts if verdict.why]
    print(f"\n{len(verdicts) - len(losers)} of {len(specs)} pass, in {time.monotonic() - started:.0f} s")
    for verdict in losers:
        print(f"FAIL {verdict.spec.name}\n     {verdict.why}")
    return 1 if losers else 0


if __name__ == "__main__":
    sys.exit(main())
