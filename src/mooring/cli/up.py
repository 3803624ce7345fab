"""``mooring up``: the embedded control plane with the operators, on this machine."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from mooring.cli.detached import CONSOLE, READY, detach, take_over_output
from mooring.cli.main import shown_version
from mooring.cli.packages import NODE, ensure
from mooring.cli.run import add_operator_options, chosen, until_signalled
from mooring.kube import Client, Config
from mooring.kube.objects.admissionregistration import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from mooring.kube.objects.core import PersistentVolume
from mooring.kube.transport import HttpTransport
from mooring.local.api.audit import Policy
from mooring.local.api.server import LocalTransport
from mooring.local.controllers.volumes.matching import home_of
from mooring.local.directory import DataDirectory, check_kubeconfig, default_directory
from mooring.local.node import rootless
from mooring.local.node.cleanup import plane_id
from mooring.local.node.images import load
from mooring.local.node.netlink import Netlink
from mooring.local.node.node import Settings
from mooring.local.plane import Plane, PlaneOptions, listen
from mooring.operators.host import Operate, Webhooks, apply_crds, operate
from mooring.operators.workload.scope import lease_name
from mooring.runtime import configure_logging
from mooring.runtime.crd_install import install_crds

__all__ = [
    "Up",
    "add_parser",
    "console_socket",
    "enter_namespaces",
    "inherited",
    "node_names",
    "serve",
    "twin",
]

log = structlog.get_logger("mooring.cli")

#: Environment of a re-executed command: descriptors of the listening socket and of the directory's lock.
_DESCRIPTORS = "MOORING_DESCRIPTORS"
_CONSOLE_DESCRIPTOR = "MOORING_CONSOLE_DESCRIPTOR"
MOST_NODES = 50
#: Label and address of the webhook configurations that a control plane makes for its own operators.
MANAGED = "app.kubernetes.io/managed-by=mooring"
LOOPBACK = f"https://{Webhooks().host}:"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("up", help="start the embedded control plane and the operators here")
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="default: $MOORING_DATA_DIR, else /var/lib/mooring for root, ~/.local/share/mooring for others",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:7443",
        metavar="ADDR:PORT",
        help="where the API listens (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="write it here (default: in the data directory)"
    )
    parser.add_argument(
        "--nodes",
        default="1",
        metavar="N|NAMES",
        help="nodes to show: how many, or their names; 0: none, pods stay Pending (default: 1)",
    )
    parser.add_argument(
        "--controllers",
        choices=["*", "none"],
        default="*",
        help="the controllers of Kubernetes: all, or with --nodes 0 none, as in an envtest (default: %(default)s)",
    )
    parser.add_argument(
        "--zones",
        default="",
        metavar="NAMES",
        help="zones of the nodes, in turn, as topology.kubernetes.io/zone (default: none)",
    )
    parser.add_argument("--images", type=Path, metavar="FILE", help="more entries for the image catalog")
    parser.add_argument(
        "--audit-policy",
        type=Path,
        metavar="FILE",
        help="log requests to audit.jsonl in the data directory by this policy, as of kube-apiserver (default: no log)",
    )
    parser.add_argument(
        "--console-port",
        type=int,
        default=0,
        metavar="PORT",
        help="port of the console on 127.0.0.1 (default: any free port; -1: no console)",
    )
    parser.add_argument(
        "--detach", action="store_true", help="return when ready and keep running in the background"
    )
    add_operator_options(parser)
    parser.set_defaults(run=run)


Configuration = ValidatingWebhookConfiguration | MutatingWebhookConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A control plane to run: options, its sockets (the first is in the kubeconfig), the operators on it."""

    plane: PlaneOptions
    socks: Sequence[socket.socket]
    operate: Operate
    kubeconfig: Path
    console: socket.socket | None = None


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; with ``--detach`` start that in the background."""
    directory = DataDirectory((options.data_dir or default_directory()).absolute())
    take_over_output(directory.log)
    json = None if options.log_format is None else options.log_format == "json"
    configure_logging(level=options.log_level, json=json)
    operators, namespaces = chosen(options)
    host = socket.gethostname().lower().partition(".")[0]
    names, zones = node_names(host, options.nodes), _names("--zones", options.zones)
    if names and options.controllers == "none":
        raise ValueError("--controllers none: nodes need the controllers; add --nodes 0")
    kubeconfig = (options.kubeconfig or directory.kubeconfig).absolute()
    catalog = load(options.images) if options.images else None
    audit = Policy.load(options.audit_policy) if options.audit_policy else None
    if names:
        ensure(NODE)
    directory.make()
    check_kubeconfig(kubeconfig)
    if options.detach:
        return detach(directory)
    port = options.console_port
    # Bound before a plain user's process enters a network of its own: the browser is in the machine's.
    page = console_socket(port)
    try:
        socks = enter_namespaces(directory, options.listen, console=page, pods=bool(names))
    except BaseException:
        if page is not None:
            page.close()
        raise
    address = socks[0].getsockname()[0]
    up = Up(
        plane=PlaneOptions(
            directory=directory,
            nodes=names,
            controllers=options.controllers != "none",
            zones=zones,
            addresses=(address, "127.0.0.1"),
            catalog=catalog,
            audit=audit,
            settings=Settings(),
        ),
        socks=socks,
        operate=Operate(
            operators=operators,
            scope=options.scope,
            namespaces=namespaces,
            workers=options.workers,
            again=True,
            # The directory's lock says that a former process of this plane is dead: no waiting for its Lease.
            identity=f"{host}_up_{plane_id(directory.path / 'node')}",
            webhooks=None if options.scope == "namespaced" else Webhooks(port=0),
        ),
        kubeconfig=kubeconfig,
        console=page,
    )

    async def announce(plane: Plane) -> None:
        with suppress(OSError):  # a full disk below a redirected standard error is no reason to stop
            print(f"{READY} export KUBECONFIG={up.kubeconfig}", file=sys.stderr, flush=True)

    asyncio.run(until_signalled(serve(up, announce)))
    return 0


def node_names(host: str, given: str) -> tuple[str, ...]:
    """The names of so many nodes, or those given; raises ValueError.

    Of a number the first is always the same, since volumes are tied to their nodes.
    """
    names = _names("--nodes", given) if not given.isdigit() else ()
    count = len(names) if names else int(given or 0)
    if not count <= MOST_NODES or not given:
        raise ValueError(f"--nodes {given}: must be between 0 and {MOST_NODES}, or as many names")
    return names or (host, *(f"{host}-{number}" for number in range(2, count + 1)))[:count]


def _names(option: str, given: str) -> tuple[str, ...]:
    """Names separated by commas, each once; raises ValueError."""
    names = tuple(name.strip() for name in given.split(",")) if given else ()
    for name in names:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", name) or names.count(name) > 1:
            raise ValueError(
                f"{option} {given}: {name!r} must be there once, of at most 63 lower case letters, digits, '-' and '.'"
            )
    return names


def enter_namespaces(
    directory: DataDirectory, address: str, *, console: socket.socket | None = None, pods: bool = True
) -> list[socket.socket]:
    """Lock the directory and bind the socket; a plain user's process then enters its own namespaces, where pods need them.

    Returns in the process that is to serve: as root at once, else after it has become itself again as root
    of a user namespace, with socket and lock inherited, and a twin of the socket in the network there.
    """
    if found := inherited():
        return [found, twin(found)]
    directory.make()
    apart = pods and rootless.needed()
    lock = directory.take(keep=apart)
    try:
        directory.stamp(shown_version())
        sock = listen(address)
    except BaseException:
        os.close(lock)
        raise
    if apart:
        environment = {**os.environ, _DESCRIPTORS: f"{sock.fileno()},{lock}"}
        keep = [sock.fileno(), lock]
        if console is not None:
            environment[_CONSOLE_DESCRIPTOR] = str(console.fileno())
            keep.append(console.fileno())
        rootless.reexec(rootless.command(), keep=keep, env=environment)
    return [sock]


def console_socket(port: int = 0) -> socket.socket | None:
    """A listener for the console, or the one that was handed on; None for a negative port."""
    from mooring.cli.console import listen as listen_console

    return _inherited_console() or (listen_console(port) if port >= 0 else None)


def _inherited_console() -> socket.socket | None:
    """The console's listener, in the process that a plain user's became."""
    text = os.environ.pop(_CONSOLE_DESCRIPTOR, "")
    if not text:
        return None
    os.set_inheritable(int(text), False)
    return socket.socket(fileno=int(text))


def inherited() -> socket.socket | None:
    """The socket handed on by :func:`enter_namespaces`, in the process that it became."""
    text = os.environ.pop(_DESCRIPTORS, "")
    if not text:
        return None
    sock, lock = (int(part) for part in text.split(","))
    os.set_inheritable(sock, False)
    os.set_inheritable(lock, False)
    return socket.socket(fileno=sock)


def twin(sock: socket.socket) -> socket.socket:
    """A listener of the same address in this network: the kubeconfig then works inside it as well.

    The API socket of a plain user's plane belongs to the machine's network, which pods' side cannot reach.
    """
    host, port = sock.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv4Address) and not (address.is_loopback or address.is_unspecified):
        with Netlink() as netlink:
            netlink.add_address(socket.if_nametoindex("lo"), address, 32)
    return listen(f"[{host}]:{port}" if address.version == 6 else f"{host}:{port}")


async def serve(up: Up, ready: Callable[[Plane], Awaitable[None]]) -> None:
    """Start the plane and its operators, call ``ready``, and run until cancelled or a part fails."""
    plane = Plane(up.plane)
    try:
        await plane.start(*up.socks)
        host, port = up.socks[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104
        up.plane.directory.write_kubeconfig(
            up.kubeconfig, server=f"https://{shown}:{port}", authority=plane.certificates.authority
        )
        client = plane.client("mooring")
        if isinstance(client.transport, LocalTransport):
            client.transport.sockets = HttpTransport(Config.load(up.kubeconfig))
        await apply_crds(client, up.operate.operators)
        from mooring.catalog import KINDS

        await install_crds(client, KINDS)
        await forget_webhooks(client, up.operate)
        await warn_of_stranded(client, up.plane.nodes or ())
        operators = asyncio.create_task(operate(client, up.operate), name="operators")
        watched = {operators, asyncio.create_task(plane.wait())}
        try:
            async with _console(up):
                watched.add(asyncio.create_task(_call(ready, plane)))
                while watched:
                    done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
        finally:
            # Operators first: they must not answer the end of the pods with a fail-over.
            for task in watched:
                task.cancel()
            await asyncio.gather(*watched, return_exceptions=True)
            await client.close()
    finally:
        await plane.stop()


async def forget_webhooks(client: Client, how: Operate) -> None:
    """Remove the webhook configurations of former starts with other operators: nothing answers there any more.

    Those of this machine's loopback are a plane's own. A chart could not install one of the same name over them.
    """
    kept = {lease_name(one.name, how.scope) for one in how.operators if how.webhooks is not None}
    kinds: tuple[type[Configuration], ...] = (ValidatingWebhookConfiguration, MutatingWebhookConfiguration)
    for kind in kinds:
        for one in (await client.list(kind, label_selector=MANAGED)).items:
            urls = [hook.client_config and hook.client_config.url for hook in one.webhooks or ()]
            if one.metadata.name not in kept and all((url or "").startswith(LOOPBACK) for url in urls):
                await client.delete(kind, one.metadata.name or "", uid=one.metadata.uid)


async def warn_of_stranded(client: Client, nodes: Sequence[str]) -> None:
    """Say which nodes have data and are not among those of this start: pods that need it stay Pending."""
    held: dict[str, list[str]] = {}
    for volume in (await client.list(PersistentVolume)).items:
        claim = volume.spec.claim_ref if volume.spec else None
        if claim is not None and (home := home_of(volume)) and home not in nodes:
            held.setdefault(home, []).append(f"{claim.namespace}/{claim.name}")
    for home, claims in sorted(held.items()):
        more = f" and {len(claims) - 3} more" if len(claims) > 3 else ""
        named = f"{', '.join(sorted(claims)[:3])}{more}"
        with suppress(OSError):
            print(
                f"mooring: warning: the data of {named} is on node {home}, which is not started: pods that need it "
                f"stay Pending. Add it: --nodes {','.join((home, *nodes))}",
                file=sys.stderr,
                flush=True,
            )


@asynccontextmanager
async def _console(up: Up) -> AsyncIterator[None]:
    """The console beside the plane, with the administrator's kubeconfig; its link is printed."""
    if up.console is None:
        yield
        return
    from mooring.cli.console import serving

    async with serving(Config.from_kubeconfig(up.kubeconfig), up.console) as console:
        with suppress(OSError):
            print(f"{CONSOLE}{console.link}", file=sys.stderr, flush=True)
        yield


async def _call(ready: Callable[[Plane], Awaitable[None]], plane: Plane) -> None:
    await ready(plane)
