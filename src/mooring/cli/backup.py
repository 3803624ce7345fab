"""``mooring backup ENTRY NAME``: a backup of a service, or a schedule; made of the same forms as the console's."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from mooring.catalog import Collection, Entry
from mooring.cli.create import add_value_options
from mooring.cli.listing import add_output_option, show, table
from mooring.cli.offered import (
    FIELD_MANAGER,
    Cluster,
    Refused,
    add_cluster_options,
    on_cluster,
    refused,
    typed,
)
from mooring.cli.why import kinds_of
from mooring.console import Problem
from mooring.console.problems import refusal
from mooring.console.related import collections_of, manifest_of
from mooring.kube import ApiError
from mooring.runtime.crd import to_yaml

__all__ = ["add_parser"]

_UNSEEN = {"denied": "you may not list them", "unserved": "the cluster does not serve this kind"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "backup",
        help="back up a service, schedule backups, or list them",
        description="Makes a backup of a service: mooring backup mc/shop, or mooring backup mysql shop. The next one goes where the "
        "newest one is. Say where the first one goes, such as --set claim=NAME.",
    )
    parser.add_argument("entry", metavar="ENTRY", help="of the catalog; or KIND/NAME, without NAME")
    parser.add_argument("name", metavar="NAME", nargs="?", default="")
    parser.add_argument("--list", action="store_true", help="the backups and schedules there are")
    add_output_option(parser)
    parser.add_argument(
        "--in",
        dest="collection",
        default="",
        metavar="COLLECTION",
        help="what is made: backups, schedules ... (default: a backup)",
    )
    parser.add_argument(
        "--as", dest="called", default="", metavar="OBJECT", help="its name (default: NAME-TIME)"
    )
    add_value_options(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only show the manifest, and what the API server says of it"
    )
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make a backup, or list them."""
    return on_cluster(options, lambda cluster: _backup(cluster, options))


async def _backup(cluster: Cluster, options: argparse.Namespace) -> int:
    entry, name = _meant(cluster, options.entry, options.name)
    one = None if options.list else _chosen(entry, options.collection)
    shown = await collections_of(cluster.client, entry, namespace=cluster.namespace, name=name)
    if one is None or one.create is None:
        if options.output == "table":
            _print(entry, shown)
        else:
            show(_rows(shown), {}, output=options.output, name="backups")
        return 0
    await cluster.read(entry, name)
    # What is not given is as it was for the newest one, such as where it goes.
    begun: dict[str, Any] = next(each["values"] for each in shown if each["name"] == one.name)
    values = begun | typed(one.create.parameters.properties, options.set, options.set_file)
    called = options.called or f"{name[:46]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    body = {"name": called, "values": values}
    try:
        manifest = manifest_of(one, namespace=cluster.namespace, instance=name, body=body)
    except Problem as problem:
        raise refused(problem) from problem
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    if options.dry_run:
        query["dryRun"] = "All"
    path = one.target.resource.path(namespace=cluster.namespace)
    try:
        await cluster.client.request("POST", path, query=query, body=msgspec.json.encode(manifest))
    except ApiError as error:
        raise refused(refusal(entry, error, [])) from error
    if options.dry_run:
        print(to_yaml(manifest), end="")
        print("mooring: the API server would take it", file=sys.stderr)
    else:
        print(f"created: {one.target.kind} {called} in {cluster.namespace}")
    return 0


def _meant(cluster: Cluster, entry: str, name: str) -> tuple[Entry, str]:
    """The entry and the name, of ``ENTRY NAME`` or of ``KIND/NAME``; raises `Refused`."""
    if "/" not in entry:
        if not name:
            raise Refused("give ENTRY NAME, or KIND/NAME")
        return cluster.entry(entry), name
    if name:
        raise Refused(f"{entry} has a name already: {name} is one too many")
    kinds, name = kinds_of(entry)
    for kind in kinds:
        for one in cluster.entries.values():
            if one.spec.target.resource == kind.resource:
                return one, name
    raise Refused(
        f"the catalog has no entry for {entry.partition('/')[0]}; it has {', '.join(cluster.entries)}"
    )


def _rows(shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every object of every collection, for programs."""
    found = []
    for each in shown:
        names = [column["title"]["en"] for column in each["columns"]]
        for row in each.get("rows") or ():
            cells = dict(zip(names, row["cells"], strict=True))
            head = {"collection": each["name"], "name": row["name"], "outcome": row["outcome"]}
            found.append({**head, "created": row["created"], **cells})
    return found


def _chosen(entry: Entry, name: str) -> Collection:
    """The collection that is meant; raises `Refused`."""
    made = {one.name: one for one in entry.spec.collections if one.create is not None}
    if not made:
        raise Refused(f"{entry.name} has no backups that can be made here")
    if name and name not in made:
        raise Refused(f"{entry.name} has no {name!r}; it has {', '.join(made)}")
    return made[name] if name else next(iter(made.values()))


def _print(entry: Entry, shown: list[dict[str, Any]]) -> None:
    for number, each in enumerate(shown):
        print(("\n" if number else "") + each["title"]["en"])
        if why := _UNSEEN.get(each["state"]):
            print(f"  {why}")
            continue
        head = ["NAME", "OUTCOME", *(column["title"]["en"].upper() for column in each["columns"]), "CREATED"]
        rows = [[row["name"], row["outcome"], *row["cells"], row["created"]] for row in each["rows"]]
        for line in table([head, *rows]) if rows else ():
            print(f"  {line}")
        if not rows:
            print("  none yet")
        if each["truncated"]:
            print("  there are more, which are not shown")
