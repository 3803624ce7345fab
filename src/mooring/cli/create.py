"""``mooring create ENTRY NAME``: an instance of a service, made of the same schema and renderer as the console's."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from mooring.catalog import check_name, check_values, defaults, mask, render
from mooring.cli.offered import (
    FIELD_MANAGER,
    Cluster,
    Refused,
    add_cluster_options,
    on_cluster,
    refused,
    typed,
)
from mooring.console.problems import refusal
from mooring.kube import ApiError
from mooring.runtime.crd import to_yaml

__all__ = ["add_parser", "add_value_options"]


def add_value_options(parser: argparse.ArgumentParser) -> None:
    """Declare how values are given."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a field (repeatable); NAME.KEY=VALUE for one of a map",
    )
    parser.add_argument(
        "--set-file",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a field of text from a file, - for standard input; the way for secrets",
    )


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("create", help="create a service of the catalog")
    parser.add_argument("entry", metavar="ENTRY", help="see mooring catalog list")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--plan", default="", help="values to start from (default: the entry's own)")
    add_value_options(parser)
    parser.add_argument(
        "--dry-run",
        nargs="?",
        choices=["server", "client"],
        const="server",
        default="",
        help="only show the manifest; server (the default) also asks the API server what it says of it",
    )
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Create it, or show what would be created."""
    return on_cluster(options, lambda cluster: _create(cluster, options))


async def _create(cluster: Cluster, options: argparse.Namespace) -> int:
    entry = cluster.entry(options.entry)
    plans = [plan.name for plan in entry.spec.plans]
    if options.plan and options.plan not in plans:
        raise Refused(f"there is no plan {options.plan!r}; there are {', '.join(plans) or 'none'}")
    values: dict[str, Any] = defaults(entry, options.plan or None)
    values |= typed(entry, options.set, options.set_file)
    if problems := check_name(options.name) + check_values(entry, values):
        raise Refused("\n".join(f"{problem.field}: {problem.message.en}" for problem in problems))
    manifest = render(entry, name=options.name, namespace=cluster.namespace, values=values)
    shown = to_yaml(mask(manifest, entry.sensitive))
    if options.dry_run == "client":
        print(shown, end="")
        return 0
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    if options.dry_run:
        query["dryRun"] = "All"
    try:
        await cluster.client.request(
            "POST", cluster.path(entry), query=query, body=msgspec.json.encode(manifest)
        )
    except ApiError as error:
        secrets = [
            str(values[name]) for name, p in entry.parameters.items() if p.sensitive and values.get(name)
        ]
        raise refused(refusal(entry, error, secrets)) from error
    if options.dry_run:
        print(shown, end="")
        print("mooring: the API server would take it", file=sys.stderr)
    else:
        print(f"created: {entry.name} {options.name} in {cluster.namespace}")
    return 0
