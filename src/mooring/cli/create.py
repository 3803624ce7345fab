"""``mooring create ENTRY NAME``: an instance of a service, made of the same schema and renderer as the console's."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from mooring.catalog import (
    Collection,
    Entry,
    check_name,
    check_values,
    defaults,
    editable,
    mask,
    render,
    values_of,
)
from mooring.cli.offered import (
    FIELD_MANAGER,
    Cluster,
    Refused,
    add_cluster_options,
    on_cluster,
    refused,
    typed,
)
from mooring.console import Problem
from mooring.console.problems import refusal
from mooring.console.related import instance_of, origin_of, restored
from mooring.kube import ApiError, NotFound
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
    parser.add_argument(
        "--from",
        dest="origin",
        default="",
        metavar="BACKUP",
        help="begin with the data of a backup, as its instance is declared; COLLECTION/NAME where there are several kinds",
    )
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
    origin = await _origin(cluster, entry, options.origin) if options.origin else None
    if origin is not None:
        values |= await _declared(cluster, entry, *origin)
        for plan in entry.spec.plans:
            values |= plan.values if plan.name == options.plan else {}
    values |= typed(entry.parameters, options.set, options.set_file)
    if problems := check_name(options.name) + check_values(entry, values):
        raise Refused("\n".join(f"{problem.field}: {problem.message.en}" for problem in problems))
    manifest = render(entry, name=options.name, namespace=cluster.namespace, values=values)
    if origin is not None:
        manifest = restored(*origin, manifest)
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


async def _origin(cluster: Cluster, entry: Entry, text: str) -> tuple[Collection, dict[str, Any]]:
    """The backup that is meant by ``NAME`` or ``COLLECTION/NAME``; raises `Refused`."""
    known = [one.name for one in entry.spec.collections if one.restore is not None]
    if not known:
        raise Refused(
            f"{entry.name} is not made from a backup here; write spec.restoreFrom in YAML where its kind has it"
        )
    collection, slash, name = text.rpartition("/")
    body = {"collection": collection if slash else known[0], "name": name}
    try:
        return await origin_of(cluster.client, entry, cluster.namespace, body)
    except Problem as problem:
        raise refused(problem) from problem
    except NotFound as error:
        raise Refused(f"there is no {text!r}; see mooring backup {entry.name} NAME --list") from error


async def _declared(cluster: Cluster, entry: Entry, one: Collection, item: dict[str, Any]) -> dict[str, Any]:
    """The fields as the instance of a backup has them, where it is still there; those that both may not share are empty."""
    try:
        live = await cluster.read(entry, instance_of(one, item))
    except Refused:
        live = {}
    values = values_of(entry, editable(live, entry.sensitive)) if live else {}
    return {**values, **dict.fromkeys(one.restore.ask if one.restore is not None else ())}
