"""The keeper: the one process that owns the servers of a run directory.

    python -m hack.kubernetes.keeper DIR --programs DIR [--services RANGE] [--audit LEVEL] [--definitions DIR]
        [--no-controllers] [--bound] [--node DIR --coredns FILE --image FILE ...]

controlplane.py starts it. The kernel kills the servers when the keeper dies, and the keeper ends when
SIGTERM says so or, with --bound, when its standard input closes: that is, when the process that started
it is gone, however it went. Ending is SIGKILL, since the data is thrown away.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.client
import json
import os
import random
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TextIO

import yaml
from hack.kubernetes import node
from hack.kubernetes.network import Network
from hack.kubernetes.pki import Authority, Pair, service_account_key, write_private
from hack.kubernetes.process import Process, spawn_bound
from hack.kubernetes.rundir import ETCD_PEER_SOCKET, ETCD_SOCKET, StartError, State, clear, tail

__all__ = ["READY_DEADLINE", "Keeper"]

READY_DEADLINE = 120.0
"""Seconds for each step of a start: API server ready, default ServiceAccount made. 3 s in all is usual."""

IMAGES_DEADLINE = 600.0
"""Seconds until a node's programs run: before that, containerd takes in all its images."""

SERVICES = IPv4Network("10.171.0.0/16")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL = 0.05
_PORT_ATTEMPTS = 5


@dataclass(frozen=True)
class NodePrograms:
    """What a node is made of: the directory of kubelet, kube-proxy and kube-scheduler; CoreDNS; image archives."""

    kubelet: Path
    coredns: Path
    images: tuple[Path, ...] = ()


class Keeper:
    """Starts the three servers of one run directory and holds them until the end."""

    def __init__(
        self,
        directory: Path,
        *,
        programs: Path,
        audit: str | None,
        bound: bool,
        services: IPv4Network = SERVICES,
        definitions: Path | None = None,
        controllers: bool = True,
        node: NodePrograms | None = None,
    ) -> None:
        self._directory = directory
        self._programs = programs
        self._network = Network.choose() if node else None
        self._address = str(self._network.host) if self._network else "127.0.0.1"
        self._services = self._network.services if self._network else services
        self._node = node
        self._audit = audit
        self._definitions = definitions
        self._bound = bound
        self._controllers = controllers
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._state = State(phase="starting", step="making keys", keeper=Process.of(os.getpid()))

    def run(self) -> None:
        """Start, then hold; every way out ends the servers."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            try:
                self.start()
                self._hold()
            finally:
                self.end()
        except StartError as failed:
            self._say("failed", str(failed))
            if not self._bound:
                sys.exit(1)
        if self._bound:
            self._wait_for_parent()
            clear(self._directory)

    def end(self) -> None:
        """Kill the servers and wait until they are gone."""
        for child in self._children.values():
            child.kill()
            child.wait(timeout=15)

    def start(self) -> None:
        """Start the servers, each when it can; returns when all of them work (StartError)."""
        began = time.monotonic()
        self._say("starting", "making keys")
        keys = _write_pki(self._directory / "pki", self._services, address=self._address)
        layout = self._start_node(self._node, self._network) if self._node and self._network else None
        if self._audit:
            (self._directory / "audit.yaml").write_text(_audit_policy(self._audit))
        self._spawn("etcd", _etcd_arguments())
        api = self._start_apiserver(keys.context)
        self._state.server = f"https://{api.address}:{api.port}"
        for name, client in keys.clients.items():
            path = "kubeconfig" if name == "admin" else f"pki/{name}.kubeconfig"
            config = _kubeconfig(self._state.server, authority=keys.authority, client=client)
            write_private(self._directory / path, config.encode())
        if self._definitions is not None:
            self._define(api, self._definitions)
        if layout is not None:
            (layout.place / "go").touch()
        if self._controllers:
            self._start_controllers(api)
        if layout is not None:
            self._finish_node(api, layout)
        self._state.ready_seconds = round(time.monotonic() - began, 2)
        self._say("ready", "")

    def _start_controllers(self, api: _Api) -> None:
        self._spawn("kube-controller-manager", _controller_manager_arguments(self._services))
        account = functools.partial(api.answers, "/api/v1/namespaces/default/serviceaccounts/default")
        self._wait("ServiceAccount default/default", account, log="kube-controller-manager")

    def _define(self, api: _Api, directory: Path) -> None:
        """Create custom resource definitions before the controller manager starts.

        Its garbage collector looks for new kinds only every 30 s; until then what a custom resource owns stays
        when that is deleted. Those that are there at its start it knows at once.
        """
        for file in sorted(directory.glob("*.yaml")):
            definition = yaml.safe_load(file.read_text())
            api.create(_DEFINITIONS, definition)
            spec = definition["spec"]
            for version in spec["versions"]:
                path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
                self._wait(path, functools.partial(api.answers, path), log="kube-apiserver")

    def _start_apiserver(self, context: ssl.SSLContext) -> _Api:
        """Start the API server on a free port; should another process take the port first, on another."""
        for _ in range(_PORT_ATTEMPTS):
            api = _Api(self._address, _free_port(self._address), context)
            arguments = _apiserver_arguments(api, self._services, audit=bool(self._audit))
            if not self._controllers:  # the one inside the API server, which writes the status of FlowSchemas
                arguments.append("--enable-priority-and-fairness=false")
            self._spawn("kube-apiserver", [*arguments, *(_NODE_ARGUMENTS if self._node else [])])
            ready = functools.partial(api.answers, "/readyz")
            try:
                self._wait("kube-apiserver /readyz", ready, log="kube-apiserver")
            except StartError as failed:
                if "address already in use" not in str(failed):
                    raise
            else:
                return api
        raise StartError(f"{_PORT_ATTEMPTS} ports in a row were taken by others between choice and use")

    def _start_node(self, programs: NodePrograms, network: Network) -> node.Layout:
        """Start the node's namespaces and join them to this machine, so that the API server can listen there."""
        layout = node.write_plan(
            self._directory,
            network,
            programs=programs.kubelet,
            coredns=programs.coredns,
            images=programs.images,
        )
        self._adopt("node", node.command(self._directory))
        network.join(node.first_process(self._children["node"]))
        return layout

    def _finish_node(self, api: _Api, layout: node.Layout) -> None:
        """Let it register, and give the cluster what is not a part of any server."""
        self._spawn("kube-scheduler", _SCHEDULER_ARGUMENTS, programs=Path(layout.programs))
        for path, body in node.objects(layout):
            api.create(path, body)
        programs = (layout.place / "ready").exists
        self._wait("the node's programs", programs, log="node", within=IMAGES_DEADLINE)
        self._wait("a node that is ready", functools.partial(_is_ready, api), log="kubelet")

    def _spawn(self, name: str, arguments: Sequence[str], *, programs: Path | None = None) -> None:
        child = spawn_bound(
            [str((programs or self._programs) / name), *arguments],
            cwd=self._directory,
            log=self._directory / "log" / f"{name}.log",
        )
        self._adopt(name, child)

    def _adopt(self, name: str, child: subprocess.Popen[bytes]) -> None:
        self._children[name] = child
        self._state.processes[name] = Process.of(child.pid)
        self._say("starting", name)

    def _wait(
        self, what: str, check: Callable[[], bool], *, log: str, within: float = READY_DEADLINE
    ) -> None:
        deadline = time.monotonic() + within
        self._say("starting", f"waiting for {what}")
        while not check():
            self._raise_if_any_ended()
            if self._bound and _closed(sys.stdin):
                raise StartError("the process that asked for this control plane is gone")
            if time.monotonic() > deadline:
                raise StartError(f"no {what} within {within:g} s:\n{tail(self._directory, log)}")
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
                raise StartError(f"{name} ended with {child.returncode}:\n{tail(self._directory, name)}")

    def _say(self, phase: str, step: str) -> None:
        self._state.phase, self._state.step = phase, step
        self._state.write(self._directory)


def _etcd_arguments() -> list[str]:
    """Socket files instead of ports; no fsync, since nothing here outlives its keeper."""
    client, peer = f"unix://{ETCD_SOCKET}", f"unix://{ETCD_PEER_SOCKET}"
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


def _apiserver_arguments(api: _Api, services: IPv4Network, *, audit: bool) -> list[str]:
    arguments = [
        f"--etcd-servers=unix://{ETCD_SOCKET}",
        f"--bind-address={api.address}",
        f"--secure-port={api.port}",
        # Without a node, one that exists on no machine (RFC 5737): the endpoints of the Service
        # default/kubernetes are the same everywhere, and none is looked for on the interfaces.
        f"--advertise-address={'192.0.2.1' if api.address == '127.0.0.1' else api.address}",
        "--tls-cert-file=pki/apiserver.crt",
        "--tls-private-key-file=pki/apiserver.key",
        "--client-ca-file=pki/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
        f"--service-cluster-ip-range={services}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
    ]
    if audit:
        arguments += ["--audit-policy-file=audit.yaml", "--audit-log-path=log/audit.jsonl"]
    return arguments


#: What the API server needs to reach the kubelet.
_NODE_ARGUMENTS = (
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-certificate-authority=pki/ca.crt",
    "--kubelet-client-certificate=pki/kubelet-client.crt",
    "--kubelet-client-key=pki/kubelet-client.key",
    "--kubelet-preferred-address-types=InternalIP",
)

_SCHEDULER_ARGUMENTS = (
    "--kubeconfig=pki/scheduler.kubeconfig",
    "--secure-port=0",
    "--leader-elect=false",
)


def _controller_manager_arguments(services: IPv4Network) -> list[str]:
    return [
        "--kubeconfig=pki/controller-manager.kubeconfig",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        # The default of 20 requests a second is most of a start: it makes 30 accounts and tokens first.
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--service-account-private-key-file=pki/service-account.key",
        "--root-ca-file=pki/ca.crt",
        "--cluster-signing-cert-file=pki/ca.crt",
        "--cluster-signing-key-file=pki/ca.key",
        f"--service-cluster-ip-range={services}",
    ]


@dataclass(frozen=True)
class _Keys:
    """What the kubeconfigs need, and a TLS context that trusts the server and is the administrator."""

    authority: bytes
    clients: dict[str, Pair]
    context: ssl.SSLContext


def _write_pki(directory: Path, services: IPv4Network, *, address: str) -> _Keys:
    """Make every key and certificate, and write those that the servers read from files."""
    authority = Authority("mooring-test-ca")
    authority.pair.write(directory, "ca")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    server = authority.server(
        "kube-apiserver",
        names=["localhost", *names, "kubernetes.default.svc.cluster.local"],
        addresses=sorted({"127.0.0.1", address, str(services[1])}),
    )
    server.write(directory, "apiserver")
    private, public = service_account_key()
    write_private(directory / "service-account.key", private)
    (directory / "service-account.pub").write_bytes(public)
    admin = authority.client("admin", groups=["system:masters"])
    admin.write(directory, "admin")
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "admin.crt", directory / "admin.key")
    clients = {
        "admin": admin,
        "controller-manager": authority.client("system:kube-controller-manager", groups=[]),
    }
    if address != "127.0.0.1":
        clients |= _write_node_pki(directory, authority, address=address)
    return _Keys(authority=authority.pair.certificate, clients=clients, context=context)


def _write_node_pki(directory: Path, authority: Authority, *, address: str) -> dict[str, Pair]:
    """Further keys of a cluster with a node: the kubelet's own, and those its programs have as clients."""
    serving = str(IPv4Address(address) + 1)
    authority.server("kubelet", names=[node.NAME], addresses=[serving]).write(directory, "kubelet")
    authority.client("kube-apiserver", groups=["system:masters"]).write(directory, "kubelet-client")
    return {
        "scheduler": authority.client("system:kube-scheduler", groups=[]),
        "kubelet": authority.client(f"system:node:{node.NAME}", groups=["system:nodes"]),
        "kube-proxy": authority.client("system:kube-proxy", groups=[]),
        "coredns": authority.client("system:coredns", groups=[]),
    }


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


@dataclass(frozen=True)
class _Api:
    """Where the API server listens, and how to be its administrator."""

    address: str
    port: int
    context: ssl.SSLContext

    def answers(self, path: str) -> bool:
        """Whether a GET is answered with 200."""
        return self.get(path) is not None

    def get(self, path: str) -> bytes | None:
        """The body of a GET that is answered with 200."""
        connection = http.client.HTTPSConnection(self.address, self.port, timeout=5, context=self.context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read() if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def create(self, path: str, body: object) -> None:
        """Create an object; raises StartError with the server's words when it is refused."""
        connection = http.client.HTTPSConnection(self.address, self.port, timeout=10, context=self.context)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 201:
                raise StartError(f"POST {path}: {answer.status}: {answer.read().decode()[:500]}")
        finally:
            connection.close()


def _is_ready(api: _Api) -> bool:
    """Whether the node says that it is ready."""
    body = api.get(f"/api/v1/nodes/{node.NAME}")
    conditions = json.loads(body)["status"].get("conditions") if body else None
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions or ())


def _free_port(address: str) -> int:
    """A port nobody listens on, below the range from which outgoing connections take theirs."""
    for _ in range(100):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise StartError(f"no free port on {address} between 20000 and 32000")


def _closed(stream: TextIO) -> bool:
    """Whether the other end of this pipe is gone; nothing is ever written to it."""
    return bool(select.select([stream], [], [], 0)[0])


def main() -> None:
    """Run one keeper until it is told to end."""
    parser = argparse.ArgumentParser(prog="keeper")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--services", type=IPv4Network, default=SERVICES)
    parser.add_argument("--audit")
    parser.add_argument("--definitions", type=Path)
    parser.add_argument("--no-controllers", action="store_true")
    parser.add_argument("--node", type=Path, metavar="DIR", help="of kubelet, kube-proxy and kube-scheduler")
    parser.add_argument("--coredns", type=Path)
    parser.add_argument("--image", type=Path, action="append", default=[])
    parser.add_argument("--bound", action="store_true")
    options = parser.parse_args()
    Keeper(
        options.directory,
        programs=options.programs,
        services=options.services,
        audit=options.audit,
        definitions=options.definitions,
        controllers=not options.no_controllers,
        node=NodePrograms(options.node, options.coredns, tuple(options.image)) if options.node else None,
        bound=options.bound,
    ).run()


if __name__ == "__main__":
    main()
