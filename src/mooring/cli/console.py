"""``mooring console``: the console for any cluster that a kubeconfig leads to."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from mooring.catalog import load_catalog
from mooring.catalog.templates import definitions
from mooring.cli.run import until_signalled
from mooring.console import Console, ConsoleOptions, Upstream
from mooring.kube import Config
from mooring.runtime import configure_logging

__all__ = ["add_parser", "listen", "serving"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("console", help="create and watch services in a browser")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1 (default: any free one)")
    parser.add_argument(
        "--namespaces",
        default="",
        metavar="A,B",
        help="where to look if the kubeconfig's user may not look everywhere (default: the context's namespace)",
    )
    parser.add_argument(
        "--catalog-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="more catalog entries (*.yaml), which replace others of the same name (repeatable)",
    )
    parser.add_argument(
        "--print-crds",
        action="store_true",
        help="print the definitions of ServiceTemplate and ClusterServiceTemplate, and end",
    )
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; with ``--print-crds`` print definitions."""
    if options.print_crds:
        print(yaml.safe_dump_all(definitions(), sort_keys=False), end="")
        return 0
    configure_logging(level=options.log_level)
    config = Config.load(options.kubeconfig, options.context)
    named = [part.strip() for part in options.namespaces.split(",") if part.strip()]
    with listen(options.port) as sock:

        async def serve() -> None:
            async with serving(
                config, sock, namespaces=named or [config.namespace], directories=options.catalog_dir
            ) as console:
                print(f"console: {console.link}", flush=True)
                print("mooring: the link signs in once; Ctrl-C ends the console", file=sys.stderr, flush=True)
                await asyncio.Event().wait()

        asyncio.run(until_signalled(serve()))
    return 0


def listen(port: int) -> socket.socket:
    """A listener on 127.0.0.1; raises :class:`OSError` naming the remedy."""
    if not 0 <= port < 65536:
        raise ValueError(f"--port {port}: must be between 0 and 65535")
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise OSError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another port") from error
    return sock


@asynccontextmanager
async def serving(
    config: Config, sock: socket.socket, *, namespaces: Sequence[str] = (), directories: Sequence[Path] = ()
) -> AsyncIterator[Console]:
    """A console of a cluster, while it is entered."""
    options = ConsoleOptions(entries=load_catalog(directories), namespaces=namespaces)
    console = Console(Upstream.of(config), options)
    try:
        await console.start(sock)
        yield console
    finally:
        await console.stop()
