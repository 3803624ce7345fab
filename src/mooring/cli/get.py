"""``mooring get``: the services of a namespace, of one entry, or one of them."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from mooring.catalog import Entry, editable, mask, values_of
from mooring.cli.listing import as_json, table
from mooring.cli.offered import Cluster, add_cluster_options, on_cluster
from mooring.console import distinct
from mooring.console.rows import row, status_of
from mooring.kube import Forbidden, NotFound
from mooring.runtime.crd import to_yaml

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("get", help="the services there are, or one of them")
    parser.add_argument("entry", metavar="ENTRY", nargs="?", help="default: all entries")
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument(
        "--output",
        "-o",
        choices=["table", "values", "yaml", "json"],
        default="",
        help="default: table; of one service values, the fields as mooring create takes them",
    )
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print them."""
    return on_cluster(options, lambda cluster: _get(cluster, options))


async def _get(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.name:
        entry = cluster.entry(options.entry)
        live = await cluster.read(entry, options.name)
        shown: Any = mask(live, entry.sensitive)
        match options.output:
            case "yaml":
                print(to_yaml(shown), end="")
            case "json":
                print(as_json(shown))
            case _:
                values = values_of(entry, editable(live, entry.sensitive))
                print("\n".join(f"{name}={_text(value)}" for name, value in _flat(values)))
        return 0
    entries = [cluster.entry(options.entry)] if options.entry else distinct(list(cluster.entries.values()))
    found = await asyncio.gather(*(_rows(cluster, entry) for entry in entries))
    rows = [one for some in found for one in some]
    if options.output in ("yaml", "json"):
        print(as_json(rows) if options.output == "json" else to_yaml({"instances": rows}))
        return 0
    lines = [["ENTRY", "NAME", "PHASE", "MESSAGE"]]
    lines += [[one["entry"], one["name"], one["phase"], one["message"].partition("\n")[0]] for one in rows]
    print("\n".join(table(lines)))
    return 0


async def _rows(cluster: Cluster, entry: Entry) -> list[dict[str, Any]]:
    try:
        found = await cluster.client.list(status_of(entry.spec.target.resource), namespace=cluster.namespace)
    except NotFound:
        return []  # the kind is not served here
    except Forbidden as error:
        raise PermissionError(f"{entry.name}: {error}") from error
    return [row(entry, one) for one in sorted(found.items, key=lambda one: one.metadata.name or "")]


def _flat(values: dict[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            flat += [(f"{name}.{key}", below) for key, below in value.items()]
        else:
            flat.append((name, value))
    return flat


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
