"""``mooring up``: the embedded control plane with the operators, on this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from mooring.cli.packages import NODE, ensure
from mooring.cli.run import add_operator_options, until_signalled
from mooring.local.directory import DataDirectory, default_directory
from mooring.local.node import rootless
from mooring.local.node.images import load
from mooring.local.node.node import Settings
from mooring.local.plane import Plane, PlaneOptions, listen
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.registry import choose
from mooring.runtime import configure_logging

__all__ = ["Up", "add_parser", "enter_namespaces", "inherited", "serve"]

log = structlog.get_logger("mooring.cli")

#: Environment of a re-executed command: descriptors of the listening socket and of the directory's lock.
_DESCRIPTORS = "MOORING_DESCRIPTORS"
DETACH_SECONDS = 60.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("up", help="start the embedded control plane and the operators here")
    parser.add_argument(
        "--data-dir", type=Path, help="default: /var/lib/mooring for root, ~/.local/share/mooring for others"
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
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes to show (default: 1)")
    parser.add_argument("--images", type=Path, metavar="FILE", help="more entries for the image catalog")
    parser.add_argument("--detach", action="store_true", help="return when ready, go on in the background")
    add_operator_options(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A control plane to run: options, its socket, the operators on it."""

    plane: PlaneOptions
    sock: socket.socket
    operate: Operate
    kubeconfig: Path


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; with ``--detach`` start that in the background."""
    operators = choose(options.operators)
    if not 1 <= options.nodes <= 50:
        raise ValueError(f"--nodes {options.nodes}: must be between 1 and 50")
    directory = DataDirectory((options.data_dir or default_directory()).absolute())
    if options.detach:
        return _detach(directory)
    ensure(NODE)
    json = None if options.log_format is None else options.log_format == "json"
    configure_logging(level=options.log_level, json=json)
    sock = enter_namespaces(directory, options.listen)
    host = socket.gethostname().lower().partition(".")[0]
    names = (host,) if options.nodes == 1 else tuple(f"{host}-{n}" for n in range(1, options.nodes + 1))
    address = sock.getsockname()[0]
    up = Up(
        plane=PlaneOptions(
            directory=directory,
            nodes=names,
            addresses=(address, "127.0.0.1"),
            catalog=load(options.images) if options.images else None,
            settings=Settings(),
        ),
        sock=sock,
        operate=Operate(
            operators=operators,
            scope=options.scope,
            namespaces=tuple(filter(None, options.namespaces.split(","))),
            workers=options.workers,
            again=True,
        ),
        kubeconfig=(options.kubeconfig or directory.kubeconfig).absolute(),
    )

    async def announce(plane: Plane) -> None:
        print(f"mooring: ready. export KUBECONFIG={up.kubeconfig}", file=sys.stderr, flush=True)

    asyncio.run(until_signalled(serve(up, announce)))
    return 0


def enter_namespaces(directory: DataDirectory, address: str) -> socket.socket:
    """Lock the directory and bind the socket; a plain user's process then enters its own namespaces.

    Returns in the process that is to serve: as root at once, else after it has become itself again as root
    of a user namespace, with socket and lock inherited.
    """
    if found := inherited():
        return found
    directory.make()
    lock = directory.take(keep=rootless.needed())
    sock = listen(address)
    if rootless.needed():
        environment = {**os.environ, _DESCRIPTORS: f"{sock.fileno()},{lock}"}
        rootless.reexec(rootless.command(), keep=(sock.fileno(), lock), env=environment)
    return sock


def inherited() -> socket.socket | None:
    """The socket handed on by :func:`enter_namespaces`, in the process that it became."""
    text = os.environ.pop(_DESCRIPTORS, "")
    if not text:
        return None
    sock, lock = (int(part) for part in text.split(","))
    os.set_inheritable(sock, False)
    os.set_inheritable(lock, False)
    return socket.socket(fileno=sock)


async def serve(up: Up, ready: Callable[[Plane], Awaitable[None]]) -> None:
    """Start the plane and its operators, call ``ready``, and run until cancelled or a part fails."""
    plane = Plane(up.plane)
    try:
        await plane.start(up.sock)
        host, port = up.sock.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104
        up.plane.directory.write_kubeconfig(
            up.kubeconfig, server=f"https://{shown}:{port}", authority=plane.certificates.authority
        )
        client = plane.client("mooring")
        await apply_crds(client, up.operate.operators)
        operators = asyncio.create_task(operate(client, up.operate), name="operators")
        watched = {operators, asyncio.create_task(plane.wait()), asyncio.create_task(_call(ready, plane))}
        try:
            while watched:
                done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            # Operators first: they must not answer the end of the pods with a fail-over.
            for task in watched:
                task.cancel()
            await asyncio.gather(*watched, return_exceptions=True)
    finally:
        await plane.stop()


async def _call(ready: Callable[[Plane], Awaitable[None]], plane: Plane) -> None:
    await ready(plane)


def _detach(directory: DataDirectory) -> int:
    """Start the same command in the background and wait until it serves."""
    ensure(NODE)
    directory.make()
    if (owner := directory.owner()) is not None:
        raise OSError(f"already running as process {owner} on {directory.path}")
    directory.kubeconfig.unlink(missing_ok=True)
    arguments = [word for word in sys.orig_argv[1:] if word != "--detach"]
    with directory.log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + DETACH_SECONDS
    mark = b"mooring: ready."
    start = directory.log.stat().st_size
    while time.monotonic() < deadline:
        with directory.log.open("rb") as log_file:
            log_file.seek(max(0, start - 4096))
            text = log_file.read()
        if mark in text and process.poll() is None:
            line = next(line for line in text.splitlines() if mark in line)
            print(line.decode(), file=sys.stderr)
            return 0
        if process.poll() is not None:
            tail = text.decode(errors="replace").strip().splitlines()[-3:]
            raise OSError("\n".join(["the control plane did not start:", *tail, f"(log: {directory.log})"]))
        time.sleep(0.05)
    raise OSError(f"the control plane was not ready within {DETACH_SECONDS:.0f} s (log: {directory.log})")
