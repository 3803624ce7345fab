"""``mooring delete ENTRY NAME``: what goes, what stays, and then the service."""

from __future__ import annotations

import argparse
import sys

import msgspec

from mooring.cli.offered import Cluster, Refused, add_cluster_options, on_cluster
from mooring.kube import NotFound

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("delete", help="delete a service, after saying what goes and what stays")
    parser.add_argument("entry", metavar="ENTRY")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask for the name")
    parser.add_argument("--dry-run", action="store_true", help="only say what goes and what stays")
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Delete it once its name was typed."""
    return on_cluster(options, lambda cluster: _delete(cluster, options))


async def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    entry = cluster.entry(options.entry)
    live = await cluster.read(entry, options.name)
    for title, texts in (("Goes", entry.spec.retention.goes), ("Stays", entry.spec.retention.stays)):
        for text in texts:
            print(f"{title}: {text.en}")
    if options.dry_run:
        return 0
    if not options.yes:
        if not sys.stdin.isatty():
            raise Refused("there is no terminal to ask on: --yes deletes without asking")
        print(f"Type {options.name} to delete it: ", end="", flush=True)
        if sys.stdin.readline().strip() != options.name:
            raise Refused("nothing was deleted")
    # By its UID: a new one of the name is another.
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": live["metadata"]["uid"]},
    }
    try:
        await cluster.client.request(
            "DELETE", cluster.path(entry, options.name), body=msgspec.json.encode(body)
        )
    except NotFound as error:
        raise Refused("it is gone already") from error
    print(f"deleted: {entry.name} {options.name} in {cluster.namespace}")
    return 0
