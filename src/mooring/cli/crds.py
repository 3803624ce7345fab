"""``mooring crds``: the CustomResourceDefinitions, shown, applied or written to ``crds/``."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from mooring.kube import Client, Config, HttpTransport
from mooring.kube.object import Object
from mooring.operators.registry import OPERATORS, choose
from mooring.runtime.crd import check_crds, render_crds, to_yaml, write_crds
from mooring.runtime.crd_install import install_crds

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "crds", help="show the custom resource definitions, or apply them to a cluster"
    )
    parser.add_argument("action", nargs="?", choices=["show", "apply"], default="show")
    parser.add_argument("--operators", default="*", metavar="LIST|*", help="whose definitions (default: all)")
    parser.add_argument(
        "--catalog",
        action="store_true",
        help="also those of the console's catalog: ServiceTemplate and ClusterServiceTemplate",
    )
    parser.add_argument("--kubeconfig", type=Path, help="the cluster to apply them to")
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument("--write", action="store_true", help="write them to crds/ of this tree")
    parser.add_argument("--check", action="store_true", help="fail when crds/ of this tree is out of date")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show, apply, write or check the definitions."""
    kinds = list(dict.fromkeys(kind for operator in OPERATORS.values() for kind in operator.kinds))
    catalog = _catalog() if options.write or options.check or options.catalog else []
    directory = Path(os.environ.get("MOORING_ROOT", ".")) / "crds"
    if options.write:
        for path in write_crds([*kinds, *catalog], directory):
            print(path)
        return 0
    if options.check:
        if drift := check_crds([*kinds, *catalog], directory):
            print(f"{drift}\ncrds/ is out of date: run make generated", file=sys.stderr)
            return 1
        return 0
    chosen = list(dict.fromkeys(kind for operator in choose(options.operators) for kind in operator.kinds))
    chosen += catalog
    if options.action == "show":
        print("---\n".join(map(to_yaml, render_crds(chosen))))
        return 0

    async def apply() -> None:
        client = Client(HttpTransport(Config.load(options.kubeconfig, options.context)))
        try:
            await install_crds(client, chosen)
            for kind in chosen:
                print(
                    f"applied and served: {kind.resource.plural}.{kind.resource.group} {kind.resource.version}"
                )
        finally:
            await client.close()

    asyncio.run(apply())
    return 0


def _catalog() -> list[type[Object]]:
    """The kinds of the console's catalog, whose package needs the extra `console`."""
    from mooring.catalog import KINDS

    return list(KINDS)
