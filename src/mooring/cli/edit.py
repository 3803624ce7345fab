"""``mooring edit ENTRY NAME``: change fields of a service, or its manifest in an editor.

Only what was changed is sent, and only if nobody else changed the same object meanwhile: as in the console.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mooring.catalog import Entry
from mooring.cli.create import add_value_options
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
from mooring.console.edit import Edit, form
from mooring.console.problems import refusal
from mooring.kube import ApiError

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("edit", help="change a service: fields, or its manifest in $EDITOR")
    parser.add_argument("entry", metavar="ENTRY")
    parser.add_argument("name", metavar="NAME")
    add_value_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Change it, or show what would change."""
    return on_cluster(options, lambda cluster: _edit(cluster, options))


async def _edit(cluster: Cluster, options: argparse.Namespace) -> int:
    entry = cluster.entry(options.entry)
    begun = form(entry, await cluster.read(entry, options.name))
    values = typed(entry.parameters, options.set, options.set_file)
    for name, value in values.items():
        if isinstance(value, dict) and value:
            # Keys that were not named stay.
            values[name] = {**begun["values"].get(name, {}), **value}
    body: dict[str, Any] = {"base": begun["base"], "values": values}
    if not values:
        body["yaml"] = _edited(begun["yaml"])
    try:
        edit = Edit(entry, body)
        done, _ = await _sent(cluster, entry, edit, options)
    except Problem as problem:
        kept = [f"what you wrote is in {_kept(body['yaml'])}"] if "yaml" in body else []
        raise refused(problem, more=[*_theirs(problem), *kept]) from problem
    if not done.changes:
        print("nothing was changed")
        return 0
    print(done.diff or "the API server stores no change")
    if not options.dry_run:
        print(f"changed: {entry.name} {options.name} in {cluster.namespace}")
    return 0


async def _sent(cluster: Cluster, entry: Entry, edit: Edit, options: argparse.Namespace) -> Any:
    try:
        return await edit.send(
            cluster.client,
            cluster.path(entry, options.name),
            dry_run=options.dry_run,
            manager=FIELD_MANAGER,
        )
    except ApiError as error:
        raise refusal(entry, error, edit.secrets) from error


def _theirs(problem: Problem) -> list[str]:
    """What somebody else changed meanwhile."""
    return [f"{row['path']}: now {row['new']}" for row in problem.more.get("theirs", ())]


def _edited(text: str) -> str:
    """The text as the user left it in their editor; raises `Refused` when there is none, or it failed."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not editor:
        raise Refused("give --set NAME=VALUE, or name an editor in $EDITOR")
    with tempfile.TemporaryDirectory(prefix="mooring-edit-") as place:
        file = Path(place) / "service.yaml"
        file.write_text(text)
        status = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        if status:
            raise Refused(f"{editor} ended with status {status}; nothing was changed")
        return file.read_text()


def _kept(text: str) -> Path:
    """A file with what the user wrote: it may have taken them a while."""
    descriptor, name = tempfile.mkstemp(prefix="mooring-edit-", suffix=".yaml")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return Path(name)
