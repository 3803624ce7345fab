"""The commands of docs/operations.md on a cluster made for them: what each shows, how long it takes, who hands over.

    python -m hack.operations [--on real|embedded]

Runs every command of the page's section on Helm as it stands there, one after the other, prints it with its output and
seconds, and ends with status 1 where a line that the page shows is missing. Then two operators hand over: to SIGTERM,
to SIGKILL, and to one that is frozen and wakes. `real` (the default) is kubelet and containerd, and needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hack.build import helm
from hack.images.debian import DebianError
from hack.images.recipes import build as build_image
from hack.kubernetes.binaries import KUBECTL, BuildError, build
from hack.kubernetes.controlplane import ControlPlane, StartError
from hack.released import frozen, holder, struck, writes_of

from mooring.cli.packages import NODE, MissingPackages, ensure
from mooring.runtime import configure_logging
from mooring.testing.bed import Bed, ClusterBed, NotInTime

__all__ = ["Command", "Ran", "at_hand", "commands", "differs", "embedded", "run"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operations.md"
SECTION = "## The operator as a Helm release"
#: Images of the real cluster's node.
IMAGES = ("mooring", "mooring-next", "redis", "exporter", "mariadb")
#: Names of the embedded bed's nodes; the real cluster has one.
NODES = ("node-1", "node-2", "node-3")
#: What differs from run to run, and what is put in its place before comparing.
_VARIES = (
    (re.compile(r"-[0-9a-f]{8,10}-[a-z0-9]{5}(_[0-9a-f]+)?\b"), "-POD"),
    (re.compile(r"\b(\d+m)?\d+m?s\b|\b\d+m\b"), "AGE"),
)
_TWO = "helm install mooring charts/mooring -n mooring-system --set replicaCount=2 --wait"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of the page, and the lines that are shown below it."""

    line: str
    shown: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a command printed, how it ended and after how many seconds."""

    output: str
    status: int
    seconds: float


def commands(page: Path = PAGE, section: str = SECTION) -> Iterator[Command]:
    """Every command of a page's section, in order."""
    text = page.read_text().split(section)[1].split("\n## ")[0]
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *shown = part.splitlines()
            yield Command(line=line, shown=tuple(shown))


async def run(command: Command, place: Path, environment: dict[str, str]) -> Ran:
    """Run a command as a shell does."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command.line),
        cwd=place,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    return Ran(output=output, status=process.returncode or 0, seconds=time.monotonic() - began)


def differs(command: Command, ran: Ran) -> str:
    """What the page shows and the command did not; empty where it did what it should."""
    fails = any(line.startswith("Error") for line in command.shown)
    if (ran.status != 0) is not fails:
        return f"{command.line}: status {ran.status}\n{ran.output}"
    missing = [line for line in command.shown if not _shows(line, ran.output)]
    return f"{command.line}: not shown: {missing}\n{ran.output}" if missing else ""


def _shows(line: str, output: str) -> bool:
    """Whether a line of the page is among those of the output; `...` stands for anything."""
    wanted = r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*") for word in _normal(line).split())
    return any(re.match(rf"\s*{wanted}", one) for one in map(_normal, output.splitlines()))


def _normal(line: str) -> str:
    for pattern, shown in _VARIES:
        line = pattern.sub(shown, line)
    return line


def at_hand(place: Path, kubeconfig: Path) -> dict[str, str]:
    """A directory with what the commands name, and an environment with the programs they call."""
    shutil.copytree(ROOT / "charts", place / "charts")
    shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    programs = place / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(helm(3))
    (programs / "kubectl").symlink_to(build(KUBECTL) / "kubectl")
    (place / "mooring").write_text(f'#!/bin/sh\nexec {sys.executable} -m mooring "$@"\n')
    (place / "mooring").chmod(0o755)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(place),
        "KUBECONFIG": str(kubeconfig),
    }


@asynccontextmanager
async def embedded(directory: Path, kubeconfig: Path) -> AsyncIterator[Bed]:
    """The embedded plane with three nodes, without operators of its own; pods reach it as the kubeconfig does."""
    async with Bed(directory, nodes=NODES, operators=()) as bed:
        bed.plane.directory.write_kubeconfig(
            kubeconfig,
            server=f"https://{bed.plane.ranges.pods[1]}:6443",
            authority=bed.plane.certificates.authority,
        )
        yield bed


@asynccontextmanager
async def _started(on: str, place: Path) -> AsyncIterator[tuple[Bed | ClusterBed, ControlPlane | None, Path]]:
    """The bed that was asked for, the real control plane if it is one, and the administrator's kubeconfig."""
    if on == "embedded":
        async with embedded(place / "plane", place / "kubeconfig") as bed:
            yield bed, None, place / "kubeconfig"
        return
    images = [await asyncio.to_thread(build_image, name) for name in IMAGES]
    with ControlPlane(images=images, audit="Metadata") as plane:
        async with ClusterBed(place / "plane", plane.kubeconfig) as cluster:
            yield cluster, plane, plane.kubeconfig


async def _transcript(on: str) -> int:
    """Run the page and print it; the number of commands that did not do what it shows."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mooring-operations-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        async with _started(on, place) as (bed, plane, kubeconfig):
            (place / "home").mkdir()
            environment = await asyncio.to_thread(at_hand, place / "home", kubeconfig)
            for command in (*commands(), Command(line=_TWO, shown=("STATUS: deployed",))):
                ran = await run(command, place / "home", environment)
                print(f"$ {command.line}\n{ran.output.rstrip()}\n  [{ran.seconds:.1f} s]\n", flush=True)
                wrong += filter(None, [differs(command, ran)])
            await _hand_over(bed, plane)
    for one in wrong:
        print(f"operations: unlike the page: {one}", file=sys.stderr)
    return len(wrong)


async def _hand_over(bed: Bed | ClusterBed, plane: ControlPlane | None) -> None:
    """How long it takes until the other one leads, and what one that slept through its Lease still does."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        seconds = await struck(bed, number)
        print(f"{number.name} to the one that leads: the other leads after {seconds:.2f} s", flush=True)
    async with frozen(bed) as stopped:
        print(f"SIGSTOP to the one that leads: the other leads after {stopped.seconds:.2f} s", flush=True)
        since = plane.audit_log.stat().st_size if plane else 0
        held = await holder(bed)
    print(f"SIGCONT to that one: it has ended; the Lease was {held}'s and is {await holder(bed)}'s")
    if plane is not None:
        written = writes_of(plane.audit_log, since, stopped.pod)
        print(f"  what it has changed since, by the API server's audit log: {', '.join(written) or 'none'}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a failure is one message and status 1."""
    parser = argparse.ArgumentParser(prog="operations.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--on", choices=("real", "embedded"), default="real", help="which cluster (real)")
    options = parser.parse_args(arguments)
    try:
        ensure(NODE)
        configure_logging(level="warning", json=True)  # the embedded plane is in this process
        return 1 if asyncio.run(_transcript(options.on)) else 0
    except (BuildError, DebianError, MissingPackages, NotInTime, StartError) as failed:
        print(f"operations: {failed}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
