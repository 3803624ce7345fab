"""The command line of an operator that is a program of its own: ``python -m my_operator run | crd | why NAME``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec

from mooring.cli.why import explained
from mooring.kube import Client, Config, HttpTransport
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.operator import Operator
from mooring.runtime import configure_logging
from mooring.runtime.crd import render_crds, to_yaml

__all__ = ["main"]

_NAMESPACE = "mooring-system"


def main(operator: Operator, arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the API server is that of ``$KUBECONFIG``, ``~/.kube/config`` or the pod's account.

    ``run`` applies the definitions, unless told otherwise, and runs the operator, with its options; ``crd`` prints the
    definitions; ``why`` prints what an object of its first kind waits for.
    """
    parser = argparse.ArgumentParser(prog=operator.name)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="apply the definitions and run the operator")
    run.add_argument("--no-crds", action="store_true", help="the definitions are there already: apply none")
    run.add_argument(
        "--lease-namespace",
        default=_NAMESPACE,
        metavar="NAMESPACE",
        help=f"where the Lease is by which one of several processes leads ({_NAMESPACE})",
    )
    for option in operator.options:
        run.add_argument(*option.flags, type=option.parse, default=option.default, help=option.doc)
    commands.add_parser("crd", help="print the definitions")
    why = commands.add_parser("why", help="what an object waits for")
    why.add_argument("name")
    why.add_argument("--namespace", "-n", default="default")
    options = parser.parse_args(arguments)
    if options.command == "crd":
        print("---\n".join(map(to_yaml, render_crds(operator.kinds))), end="")
    elif options.command == "why":
        asyncio.run(_why(operator, options.namespace, options.name))
    else:
        settings = {one.keyword: getattr(options, one.attribute) for one in operator.options}
        chosen = replace(operator, register=partial(operator.register, **settings))
        asyncio.run(_run(chosen, define=not options.no_crds, namespace=options.lease_namespace))


async def _run(operator: Operator, *, define: bool, namespace: str) -> None:
    configure_logging()
    client = Client(HttpTransport(Config.load()))
    try:
        if define:
            await apply_crds(client, [operator])
        await operate(client, Operate(operators=[operator], namespace=namespace))
    finally:
        await client.close()


async def _why(operator: Operator, namespace: str, name: str) -> None:
    client = Client(HttpTransport(Config.load()))
    try:
        path = operator.kinds[0].resource.path(namespace=namespace, name=name)
        raw = msgspec.json.decode((await client.request("GET", path)).body)
        details = await operator.explain(client, raw) if operator.explain is not None else ()
        print("\n".join(explained(raw, (), details)))
    finally:
        await client.close()
