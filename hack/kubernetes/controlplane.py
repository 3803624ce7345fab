"""The real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager.

    python hack/kubernetes/controlplane.py up|down|status|build|measure|kubectl [--dir DIR] [--audit]

Tests use it as `with ControlPlane() as plane:`; there is no kubelet and no scheduler.

A keeper process owns the three servers of one run directory, and everything else follows from that:
the kernel kills the servers when the keeper dies; the keeper ends when it is told to (`down`), and,
under a test, when the pipe from the test process closes, however that process ended. Ending means
SIGKILL: the data is thrown away anyway. etcd listens on a socket file inside the run directory, which
only its owner can enter, and the API server on a free port of 127.0.0.1, so any number of control
planes run side by side.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import http.client
import json
import os
import random
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TextIO

import yaml

if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hack.kubernetes.binaries import KUBECTL, SERVERS, BuildError, build, cache_root
from hack.kubernetes.pki import Authority, Pair, service_account_key, write_private
from hack.kubernetes.process import Process, spawn_bound

__all__ = ["ControlPlane", "StartError", "State", "stop"]

READY_DEADLINE = 120.0
"""Seconds for each step of a start (API server ready, default ServiceAccount made); 8 s in all is usual."""

_AUDIT_LEVELS = ("Metadata", "Request", "RequestResponse")
_SERVICES = "10.96.0.0/16"
_POLL = 0.05
_PORT_ATTEMPTS = 5
_ETCD_SOCKET = "etcd.sock:0"  # etcd insists on something like host:port
_ETCD_PEER_SOCKET = "etcd-peer.sock:0"
_ENTRIES = (
    *("etcd", "pki", "log", "audit.yaml", "kubeconfig", "state.json", "state.json.new"),
    *(_ETCD_SOCKET, _ETCD_PEER_SOCKET),
)


class StartError(RuntimeError):
    """The control plane did not come up; the message holds the last log lines."""


@dataclass
class State:
    """What the keeper says of itself in state.json; `phase` is starting, ready or failed."""

    phase: str
    step: str
    keeper: Process
    server: str = ""
    ready_seconds: float = 0.0
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> State | None:
        """The state of a run directory, or None when there is none."""
        try:
            raw = json.loads((directory / "state.json").read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        raw["keeper"] = Process(**raw["keeper"])
        raw["processes"] = {name: Process(**process) for name, process in raw["processes"].items()}
        return cls(**raw)

    def write(self, directory: Path) -> None:
        staging = directory / "state.json.new"
        staging.write_text(json.dumps(asdict(self), indent=2) + "\n")
        staging.rename(directory / "state.json")


class ControlPlane:
    """A control plane that lives no longer than this process; a context manager.

    `directory` is a fresh temporary one by default, and is removed at the end. `audit` is the level
    of the audit log at `audit_log`: "Metadata", "Request" or "RequestResponse"; none by default.
    """

    def __init__(self, *, directory: Path | None = None, audit: str | None = None) -> None:
        self._given = directory
        self._audit = audit
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
            self._keeper = _start_keeper(self.directory, audit=self._audit, bound=True)
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
        if self._keeper is not None:
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()
            self._keeper.wait(timeout=30)
            self._keeper = None
        self._state = None
        stop(self.directory)


def stop(directory: Path) -> bool:
    """End exactly the processes of a run directory and remove it; False when nothing was there.

    Processes are named by PID and start time: a PID that now belongs to another is left alone.
    Only what a control plane puts into the directory is removed.
    """
    state = State.read(directory)
    if state is not None:
        with contextlib.suppress(TimeoutError):
            state.keeper.end(signal.SIGTERM)
        state.keeper.end()
        for process in state.processes.values():
            process.end()
    _remove(directory)
    return state is not None


def _start_keeper(directory: Path, *, audit: str | None, bound: bool) -> subprocess.Popen[bytes]:
    """Start the keeper of a run directory; `bound`: it ends when this process does."""
    programs = build(SERVERS)
    _claim(directory)
    command = [sys.executable, str(Path(__file__).resolve()), "keep", "--dir", str(directory.resolve())]
    command += ["--programs", str(programs)] + (["--audit", audit] if audit else [])
    with (directory / "log" / "keeper.log").open("wb") as log:
        return subprocess.Popen(
            [*command, *(["--bound"] if bound else [])],
            stdin=subprocess.PIPE if bound else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _claim(directory: Path) -> None:
    """Make the run directory ready for a start: private, and holding nothing of anyone's."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = State.read(directory)
    if state is not None and state.keeper.alive():
        raise StartError(f"a control plane already runs in {directory}")
    if state is not None:
        stop(directory)
        directory.mkdir(mode=0o700, exist_ok=True)
    strangers = {path.name for path in directory.iterdir()} - set(_ENTRIES)
    if strangers:
        raise StartError(f"{directory} holds other things ({sorted(strangers)[0]} ...): choose another --dir")
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
            raise StartError(
                f"the keeper ended with status {keeper.returncode}:\n{_tail(directory, 'keeper')}"
            )
        time.sleep(_POLL)


def _remove(directory: Path) -> None:
    for name in _ENTRIES:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
    with contextlib.suppress(OSError):  # not empty: somebody else's files stay
        directory.rmdir()


# --- the keeper ------------------------------------------------------------------------------------


class _Keeper:
    """Starts the three servers of one run directory and holds them until the end."""

    def __init__(self, directory: Path, *, programs: Path, audit: str | None, bound: bool) -> None:
        self._directory = directory
        self._programs = programs
        self._audit = audit
        self._bound = bound
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._state = State(phase="starting", step="making keys", keeper=Process.of(os.getpid()))

    def run(self) -> None:
        """Start, then hold; every way out ends the servers."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        self._say("starting", "making keys")
        try:
            try:
                self._start()
                self._hold()
            finally:
                for child in self._children.values():
                    child.kill()
                    child.wait(timeout=15)
        except StartError as failed:
            self._say("failed", str(failed))
            if not self._bound:
                raise
        if self._bound:
            self._wait_for_parent()
            _remove(self._directory)

    def _start(self) -> None:
        began = time.monotonic()
        keys = _write_pki(self._directory / "pki")
        if self._audit:
            (self._directory / "audit.yaml").write_text(_audit_policy(self._audit))
        self._spawn("etcd", _etcd_arguments())
        port = self._start_apiserver(keys.context)
        self._state.server = f"https://127.0.0.1:{port}"
        for path, client in (
            ("kubeconfig", keys.admin),
            ("pki/controller-manager.kubeconfig", keys.controller_manager),
        ):
            config = _kubeconfig(self._state.server, authority=keys.authority, client=client)
            write_private(self._directory / path, config.encode())
        self._spawn("kube-controller-manager", _controller_manager_arguments())
        account = functools.partial(
            _answers, port, "/api/v1/namespaces/default/serviceaccounts/default", keys.context
        )
        self._wait("ServiceAccount default/default", account, log="kube-controller-manager")
        self._state.ready_seconds = round(time.monotonic() - began, 2)
        self._say("ready", "")

    def _start_apiserver(self, context: ssl.SSLContext) -> int:
        """Start the API server on a free port; should another process take the port first, on another."""
        for _ in range(_PORT_ATTEMPTS):
            port = _free_port()
            self._spawn("kube-apiserver", _apiserver_arguments(port, audit=bool(self._audit)))
            ready = functools.partial(_answers, port, "/readyz", context)
            try:
                self._wait("kube-apiserver /readyz", ready, log="kube-apiserver")
            except StartError as failed:
                if "address already in use" not in str(failed):
                    raise
            else:
                return port
        raise StartError(f"{_PORT_ATTEMPTS} ports in a row were taken by others between choice and use")

    def _spawn(self, name: str, arguments: list[str]) -> None:
        child = spawn_bound(
            [str(self._programs / name), *arguments],
            cwd=self._directory,
            log=self._directory / "log" / f"{name}.log",
        )
        self._children[name] = child
        self._state.processes[name] = Process.of(child.pid)
        self._say("starting", name)

    def _wait(self, what: str, check: Callable[[], bool], *, log: str) -> None:
        deadline = time.monotonic() + READY_DEADLINE
        self._say("starting", f"waiting for {what}")
        while not check():
            self._raise_if_any_ended()
            if self._bound and _closed(sys.stdin):
                raise StartError("the process that asked for this control plane is gone")
            if time.monotonic() > deadline:
                raise StartError(f"no {what} within {READY_DEADLINE:g} s:\n{_tail(self._directory, log)}")
            time.sleep(_POLL)

    def _hold(self) -> None:
        """Sleep until the parent or a server ends."""
        poll = select.poll()
        pidfds = [os.pidfd_open(child.pid) for child in self._children.values()]
        for fd in pidfds:
            poll.register(fd, select.POLLIN)
        if self._bound:
            poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
        poll.poll()
        if not (self._bound and _closed(sys.stdin)):
            self._raise_if_any_ended()

    def _wait_for_parent(self) -> None:
        poll = select.poll()
        poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
        poll.poll()

    def _raise_if_any_ended(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                raise StartError(f"{name} ended with {child.returncode}:\n{_tail(self._directory, name)}")

    def _say(self, phase: str, step: str) -> None:
        self._state.phase, self._state.step = phase, step
        self._state.write(self._directory)


def _etcd_arguments() -> list[str]:
    """Socket files instead of ports; no fsync, since nothing here outlives its keeper."""
    client, peer = f"unix://{_ETCD_SOCKET}", f"unix://{_ETCD_PEER_SOCKET}"
    return [
        "--data-dir=etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver_arguments(port: int, *, audit: bool) -> list[str]:
    arguments = [
        f"--etcd-servers=unix://{_ETCD_SOCKET}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        # An address that exists on no machine (RFC 5737): the endpoints of the Service
        # default/kubernetes are the same everywhere, and none is looked for on the interfaces.
        "--advertise-address=192.0.2.1",
        "--tls-cert-file=pki/apiserver.crt",
        "--tls-private-key-file=pki/apiserver.key",
        "--client-ca-file=pki/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
        f"--service-cluster-ip-range={_SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
    ]
    if audit:
        arguments += ["--audit-policy-file=audit.yaml", "--audit-log-path=log/audit.jsonl"]
    return arguments


def _controller_manager_arguments() -> list[str]:
    return [
        "--kubeconfig=pki/controller-manager.kubeconfig",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        "--service-account-private-key-file=pki/service-account.key",
        "--root-ca-file=pki/ca.crt",
        "--cluster-signing-cert-file=pki/ca.crt",
        "--cluster-signing-key-file=pki/ca.key",
        f"--service-cluster-ip-range={_SERVICES}",
    ]


@dataclass(frozen=True)
class _Keys:
    """What the kubeconfigs need, and a TLS context that trusts the server and is the administrator."""

    authority: bytes
    admin: Pair
    controller_manager: Pair
    context: ssl.SSLContext


def _write_pki(directory: Path) -> _Keys:
    """Make every key and certificate, and write those that the servers read from files."""
    authority = Authority("mooring-test-ca")
    authority.pair.write(directory, "ca")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    server = authority.server(
        "kube-apiserver",
        names=["localhost", *names, "kubernetes.default.svc.cluster.local"],
        addresses=["127.0.0.1", "10.96.0.1"],
    )
    server.write(directory, "apiserver")
    private, public = service_account_key()
    write_private(directory / "service-account.key", private)
    (directory / "service-account.pub").write_bytes(public)
    admin = authority.client("admin", groups=["system:masters"])
    admin.write(directory, "admin")
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "admin.crt", directory / "admin.key")
    return _Keys(
        authority=authority.pair.certificate,
        admin=admin,
        controller_manager=authority.client("system:kube-controller-manager", groups=[]),
        context=context,
    )


def _kubeconfig(server: str, *, authority: bytes, client: Pair) -> str:
    """A kubeconfig that holds all it refers to, so that it can be copied."""
    cluster = {"server": server, "certificate-authority-data": _base64(authority)}
    user = {"client-certificate-data": _base64(client.certificate), "client-key-data": _base64(client.key)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "mooring-test", "cluster": cluster}],
        "users": [{"name": "client", "user": user}],
        "contexts": [{"name": "mooring-test", "context": {"cluster": "mooring-test", "user": "client"}}],
        "current-context": "mooring-test",
    }
    return yaml.safe_dump(config, sort_keys=False)


def _audit_policy(level: str) -> str:
    """One event for each request, when it is answered (or begins to be, for a watch)."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": level}],
    }
    return yaml.safe_dump(policy, sort_keys=False)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _answers(port: int, path: str, context: ssl.SSLContext) -> bool:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _free_port() -> int:
    """A port nobody listens on, below the range from which outgoing connections take theirs."""
    for _ in range(100):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StartError("no free port on 127.0.0.1 between 20000 and 32000")


def _closed(stream: TextIO) -> bool:
    """Whether the other end of this pipe is gone; nothing is ever written to it."""
    return bool(select.select([stream], [], [], 0)[0])


def _tail(directory: Path, name: str, lines: int = 12) -> str:
    path = directory / "log" / f"{name}.log"
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return f"  ({path} does not exist)"
    return "\n".join(f"  {line[:500]}" for line in text.splitlines()[-lines:])


# --- the command line ------------------------------------------------------------------------------


def _up(directory: Path, audit: str | None) -> int:
    state = State.read(directory)
    if state is not None and state.phase == "ready" and state.keeper.alive():
        print(f"already running: {state.server}\nexport KUBECONFIG={directory / 'kubeconfig'}")
        return 0
    keeper = _start_keeper(directory, audit=audit, bound=False)
    try:
        state = _wait_until_ready(directory, keeper)
    except KeyboardInterrupt:
        stop(directory)
        raise
    except StartError as failed:
        raise StartError(f"{failed}\nlogs: {directory / 'log'}") from None
    print(
        f"ready after {state.ready_seconds} s: {state.server}\nexport KUBECONFIG={directory / 'kubeconfig'}"
    )
    return 0


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
    parser.add_argument("command", choices=["up", "down", "status", "build", "measure", "kubectl", "keep"])
    parser.add_argument("--dir", type=Path, default=cache_root() / "kubernetes" / "run", help="run directory")
    parser.add_argument(
        "--audit", nargs="?", const="Metadata", choices=_AUDIT_LEVELS, help="write log/audit.jsonl (Metadata)"
    )
    parser.add_argument("--idle", type=float, default=30.0, help="measure: seconds before memory is read")
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--bound", action="store_true", help=argparse.SUPPRESS)
    return parser


def _run(options: argparse.Namespace) -> int:
    directory = options.dir.absolute()
    if options.command == "up":
        return _up(directory, options.audit)
    if options.command == "down":
        print("ended and removed" if stop(directory) else f"nothing runs in {directory}")
        return 0
    if options.command == "status":
        return _status(directory)
    if options.command == "measure":
        return _measure(options.idle)
    if options.command == "keep":
        _Keeper(directory, programs=options.programs, audit=options.audit, bound=options.bound).run()
        return 0
    programs = build(KUBECTL) / "kubectl" if options.command == "kubectl" else build(SERVERS)
    print(programs)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a failure is one message and status 1."""
    try:
        return _run(_parser().parse_args(arguments))
    except (BuildError, StartError) as failed:
        print(f"kubernetes: {failed}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
