"""``mooring console``: the console for any cluster that a kubeconfig leads to."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from mooring.catalog import load_catalog
from mooring.cli.main import shown_version
from mooring.cli.plan_upgrade import Plan, upgrade_plans
from mooring.cli.run import until_signalled
from mooring.console import (
    Console,
    ConsoleOptions,
    Prometheus,
    Settings,
    Upgrades,
    Upstream,
    load_settings,
    prometheus_problem,
)
from mooring.kube import Client, Config, Object
from mooring.operators.workload.upgrade import Planned
from mooring.runtime import configure_logging

__all__ = ["add_parser", "listen", "serving"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("console", help="create and watch services in a browser")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="serve it to others as this file says, instead of on 127.0.0.1 with a link",
    )
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
        "--prometheus",
        metavar="URL",
        help="a Prometheus whose figures are shown; else those of metrics.k8s.io and of the status",
    )
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    configure_logging(level=options.log_level)
    config = Config.load(options.kubeconfig, options.context)
    if options.config is not None:
        return _served(config, load_settings(options.config))
    if options.prometheus and (wrong := prometheus_problem(options.prometheus)):
        raise ValueError(f"--prometheus {wrong}")
    prometheus = Prometheus(url=options.prometheus) if options.prometheus else None
    named = [part.strip() for part in options.namespaces.split(",") if part.strip()]
    with listen(options.port) as sock:

        async def serve() -> None:
            async with serving(
                config,
                sock,
                namespaces=named or [config.namespace],
                directories=options.catalog_dir,
                prometheus=prometheus,
            ) as console:
                print(f"console: {console.link}", flush=True)
                print("mooring: the link signs in once; Ctrl-C ends the console", file=sys.stderr, flush=True)
                await asyncio.Event().wait()

        asyncio.run(until_signalled(serve()))
    return 0


def _served(config: Config, settings: Settings) -> int:
    """Serve as the configuration says, until SIGTERM or SIGINT."""
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=128) as sock:

        async def serve() -> None:
            directories = [Path(directory) for directory in settings.catalog_directories]
            async with serving(
                config, sock, namespaces=settings.namespaces, directories=directories, settings=settings
            ):
                print(f"console: {settings.origin}", flush=True)
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
    config: Config,
    sock: socket.socket,
    *,
    namespaces: Sequence[str] = (),
    directories: Sequence[Path] = (),
    settings: Settings | None = None,
    prometheus: Prometheus | None = None,
) -> AsyncIterator[Console]:
    """A console of a cluster, while it is entered."""
    options = ConsoleOptions(
        entries=load_catalog(directories),
        namespaces=namespaces,
        settings=settings,
        prometheus=prometheus,
        upgrades=_upgrades(),
        version=shown_version(),
    )
    console = Console(Upstream.of(config), options)
    try:
        await console.start(sock)
        yield console
    finally:
        await console.stop()


def _upgrades() -> Upgrades:
    """What each operator says of an upgrade, by kind."""
    return {
        (kind.resource.group, kind.resource.plural): partial(_planned, plan, kind)
        for kind, plan in upgrade_plans()
    }


async def _planned(
    plan: Plan,
    kind: type[Object],
    client: Client,
    namespace: str,
    name: str,
) -> Sequence[Planned]:
    return await plan(client, await client.get(kind, name, namespace=namespace))
