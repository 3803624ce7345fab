"""A real Kubernetes: etcd, kube-apiserver and kube-controller-manager on loopback; on request a node, too.

    python hack/kubernetes/controlplane.py up|down|status|build|measure|kubectl [--dir DIR] [--audit] [--node]

Tests use it as `with ControlPlane() as plane:`; without a node there is no kubelet and no scheduler. etcd
listens on a socket file inside the run directory, which only its owner can enter, and the API server on a free port
of 127.0.0.1, so any number of control planes run side by side. Who ends what: see keeper.py.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[2]
if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(_ROOT))

from hack.images.debian import DebianError  # noqa: E402
from hack.images.recipes import IMAGES  # noqa: E402
from hack.images.recipes import build as build_image  # noqa: E402
from hack.kubernetes.binaries import (  # noqa: E402
    KUBECTL,
    NODE,
    NODE_MODULE,
    SERVERS,
    BuildError,
    build,
    build_module,
    cache_root,
)
from hack.kubernetes.node import PACKAGES  # noqa: E402
from hack.kubernetes.rundir import StartError, State, clear, stop, tail  # noqa: E402

from mooring.cli.packages import MissingPackages, ensure  # noqa: E402

__all__ = ["ControlPlane", "StartError", "main"]

_AUDIT_LEVELS = ("Metadata", "Request", "RequestResponse")
_POLL = 0.05


class ControlPlane:
    """A control plane that lives no longer than this process; a context manager.

    `directory` is a fresh temporary one by default, and is removed at the end. `audit` is the level
    of the audit log at `audit_log`: "Metadata", "Request" or "RequestResponse"; none by default.
    `definitions` is a directory of custom resource definitions, one a file, that are there from the start.
    `services` is the range of Service addresses (10.171.0.0/16); two on one machine need different ones only
    where nodes make these addresses work. Without `controllers` there are etcd and the API server alone, so
    that nothing writes but their clients. With `images`, even none, there is a node (root is needed): the API
    server, pods and Services have addresses of the node's own network, and `services` is not looked at.
    """

    def __init__(
        self,
        *,
        directory: Path | None = None,
        audit: str | None = None,
        definitions: Path | None = None,
        services: str = "",
        controllers: bool = True,
        images: Sequence[Path] | None = None,
    ) -> None:
        self._given = directory
        self._audit = audit
        self._definitions = definitions
        self._services = services
        self._controllers = controllers
        self._images = images
        self._keeper: subprocess.Popen[bytes] | None = None
        self._state: State | None = None
        self.directory = directory or Path()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig (mode 0600, certificates inside)."""
        return self.directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON event a line, when `audit` was asked for."""
        return self.directory / "log" / "audit.jsonl"

    @property
    def state(self) -> State:
        """Address, start time and processes."""
        if self._state is None:
            raise StartError("this control plane is not running: use it as a context manager")
        return self._state

    def __enter__(self) -> ControlPlane:
        self.directory = self._given or Path(tempfile.mkdtemp(prefix="mooring-kubernetes-"))
        try:
            self._keeper = _start_keeper(
                self.directory,
                audit=self._audit,
                definitions=self._definitions,
                services=self._services,
                controllers=self._controllers,
                images=self._images,
                bound=True,
            )
            self._state = _wait_until_ready(self.directory, self._keeper)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        keeper, self._keeper, self._state = self._keeper, None, None
        if keeper is not None and keeper.stdin is not None:
            keeper.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # stop() ends what is left
                keeper.wait(timeout=30)
            stop(self.directory)
        if self._given is None:
            shutil.rmtree(self.directory, ignore_errors=True)


def _start_keeper(
    directory: Path,
    *,
    audit: str | None,
    bound: bool,
    definitions: Path | None = None,
    services: str = "",
    controllers: bool = True,
    images: Sequence[Path] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the keeper of a run directory; `bound`: it ends when this process does."""
    programs = build(SERVERS)
    of_node = [] if images is None else _node_arguments(images)
    _claim(directory)
    command = [sys.executable, "-m", "hack.kubernetes.keeper", str(directory.resolve())]
    command += ["--programs", str(programs)] + (["--audit", audit] if audit else [])
    command += ["--services", services] if services else []
    command += [] if controllers else ["--no-controllers"]
    command += ["--definitions", str(definitions.resolve())] if definitions else []
    command += of_node
    with (directory / "log" / "keeper.log").open("wb") as log:
        return subprocess.Popen(
            [*command, *(["--bound"] if bound else [])],
            stdin=subprocess.PIPE if bound else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=_ROOT,
            start_new_session=True,
        )


def _node_arguments(images: Sequence[Path]) -> list[str]:
    """What the keeper needs to start a node; installs and builds what is not there (minutes, once)."""
    if os.geteuid() != 0:
        raise StartError("a node needs root; without one, leave NODE=1 out")
    ensure(PACKAGES)
    programs = build(NODE, module=NODE_MODULE)
    coredns = build_module(_ROOT / "hack" / "kubernetes" / "dns", "coredns")
    archives = [build_image("pause"), *images]
    return [f"--node={programs}", f"--coredns={coredns}", *(f"--image={path}" for path in archives)]


def _claim(directory: Path) -> None:
    """Make the run directory ready for a start: private, and holding nothing of anyone's."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = State.read(directory)
    if state is not None and state.keeper.alive():
        raise StartError(f"a control plane already runs in {directory}")
    if state is not None:
        stop(directory)
        directory.mkdir(mode=0o700, exist_ok=True)
    if any(directory.iterdir()):
        raise StartError(f"{directory} is not empty and not a run directory: choose another --dir")
    directory.chmod(0o700)
    for name in ("pki", "log"):
        (directory / name).mkdir(exist_ok=True)


def _wait_until_ready(directory: Path, keeper: subprocess.Popen[bytes]) -> State:
    """Wait for the keeper's word; its own deadlines bound this."""
    while True:
        state = State.read(directory)
        if state is not None and state.phase == "ready":
            return state
        if state is not None and state.phase == "failed":
            raise StartError(state.step)
        if keeper.poll() is not None:
            last_words = tail(directory, "keeper")
            if state is None:  # then stop() would not know the directory for one of ours
                clear(directory)
            raise StartError(f"the keeper ended with status {keeper.returncode}:\n{last_words}")
        time.sleep(_POLL)


def _up(directory: Path, audit: str | None, *, node: bool) -> int:
    """Start one that goes on after this command; a second `up` waits for the first and finds it."""
    build(SERVERS)
    images = [build_image(name) for name in IMAGES if name != "pause"] if node else None
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(directory):
        state = State.read(directory)
        running = state is not None and state.phase == "ready" and state.keeper.alive()
        if state is None or not running:
            state = _start_detached(directory, audit, images)
    verdict = "already running" if running else f"ready after {state.ready_seconds} s"
    print(f"{verdict}: {state.server}\nexport KUBECONFIG={directory / 'kubeconfig'}")
    return 0


def _start_detached(directory: Path, audit: str | None, images: Sequence[Path] | None) -> State:
    keeper = _start_keeper(directory, audit=audit, images=images, bound=False)
    try:
        return _wait_until_ready(directory, keeper)
    except KeyboardInterrupt:
        stop(directory)
        raise
    except StartError as failed:
        raise StartError(f"{failed}\nlogs: {directory / 'log'}") from None


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory: on the directory itself, which `down` removes."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _status(directory: Path) -> int:
    """Print the state as JSON; status 0 when it is ready and all its processes live."""
    state = State.read(directory)
    if state is None:
        print(json.dumps({"phase": "absent", "dir": str(directory)}))
        return 1
    alive = {name: process.alive() for name, process in state.processes.items()}
    phase = state.phase if state.keeper.alive() or state.phase == "failed" else "dead"
    about = {"phase": phase, "step": state.step, "server": state.server, "dir": str(directory)}
    pids = {name: process.pid for name, process in state.processes.items() if alive[name]}
    print(json.dumps({**about, "ready_seconds": state.ready_seconds, "pids": pids}, indent=2))
    return 0 if phase == "ready" and all(alive.values()) else 1


def _measure(idle: float) -> int:
    """Start one, leave it alone for `idle` seconds, print start-to-ready seconds and resident memory."""
    build(SERVERS)
    with ControlPlane() as plane:
        time.sleep(idle)
        memory = {name: round(process.memory() / 2**20, 1) for name, process in plane.state.processes.items()}
        figures = {
            "start_seconds": plane.state.ready_seconds,
            "idle_seconds": idle,
            "rss_mib": memory,
            "rss_total_mib": round(sum(memory.values()), 1),
        }
    print(json.dumps(figures, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="controlplane.py", description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["up", "down", "status", "build", "measure", "kubectl"])
    parser.add_argument("--dir", type=Path, default=cache_root() / "kubernetes" / "run", help="run directory")
    parser.add_argument(
        "--audit", nargs="?", const="Metadata", choices=_AUDIT_LEVELS, help="write log/audit.jsonl (Metadata)"
    )
    parser.add_argument("--node", action="store_true", help="up: with a node that runs pods (root)")
    parser.add_argument("--idle", type=float, default=30.0, help="measure: seconds before memory is read")
    return parser


def _run(options: argparse.Namespace) -> int:
    directory = options.dir.absolute()
    if options.command == "up":
        return _up(directory, options.audit, node=options.node)
    if options.command == "down":
        print("ended and removed" if stop(directory) else f"nothing runs in {directory}")
        return 0
    if options.command == "status":
        return _status(directory)
    if options.command == "measure":
        return _measure(options.idle)
    programs = build(KUBECTL) / "kubectl" if options.command == "kubectl" else build(SERVERS)
    print(programs)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a failure is one message and status 1."""
    try:
        return _run(_parser().parse_args(arguments))
    except (BuildError, DebianError, MissingPackages, StartError) as failed:
        print(f"kubernetes: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
