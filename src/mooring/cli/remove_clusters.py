"""``mooring remove-clusters``: what the chart runs before it goes, where it was told to take its clusters along."""

from __future__ import annotations

import argparse
import asyncio
import functools
from pathlib import Path

from mooring.kube import Client, Config, HttpTransport
from mooring.operators.registry import choose
from mooring.operators.workload.removal import remove_clusters
from mooring.operators.workload.scope import SCOPES

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "remove-clusters",
        help="delete the clusters of a scope; their volumes stay",
        description="Delete every cluster that an operator of this scope manages and wait until its pods are gone. "
        "The operator has to be running. Claims stay, also those of clusters that are declared to delete them.",
    )
    parser.add_argument(
        "--operators",
        required=True,
        metavar="LIST|*",
        help="whose clusters: names joined by commas, or * for all",
    )
    parser.add_argument("--scope", choices=SCOPES, required=True, help="as of the operator")
    parser.add_argument("--namespaces", default="", metavar="A,B", help="of scope namespaced")
    parser.add_argument(
        "--within", type=float, default=600.0, metavar="S", help="deadline in seconds, of all together (600)"
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Delete, and say what is waited for."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    namespaces = tuple(filter(None, (part.strip() for part in options.namespaces.split(","))))
    client = Client(HttpTransport(Config.load(options.kubeconfig, options.context)))
    try:
        removed = await remove_clusters(
            client,
            operators={one.name: one.removal for one in choose(options.operators) if one.removal is not None},
            scope=options.scope,
            namespaces=namespaces,
            within=options.within,
            say=functools.partial(print, flush=True),
        )
    finally:
        await client.close()
    print(f"{removed} clusters removed; their volumes stay.")
    return 0
