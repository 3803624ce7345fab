"""What the commands on services share: the entries that are offered, the cluster, and values as they are typed."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.catalog import (
    CLUSTER_TEMPLATES,
    TEMPLATES,
    CatalogError,
    Entry,
    Parameter,
    StoredClusterTemplate,
    StoredTemplate,
    entry_of,
    load_catalog,
)
from mooring.console import Problem
from mooring.kube import Client, Config, Forbidden, HttpTransport, NotFound

__all__ = [
    "FIELD_MANAGER",
    "Cluster",
    "Refused",
    "add_catalog_option",
    "add_cluster_options",
    "offered",
    "on_cluster",
    "refused",
    "typed",
]

FIELD_MANAGER: Final = "mooring-cli"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class Refused(ValueError):
    """What was asked for is wrong; the message has a line for each thing to mend."""


class Cluster:
    """The API server, the namespace that is meant, and the entries for it."""

    def __init__(self, client: Client, namespace: str, entries: Mapping[str, Entry]) -> None:
        self.client = client
        self.namespace = namespace
        self.entries = entries

    def entry(self, name: str) -> Entry:
        """An entry by its name, without its namespace where it is of this one; raises `Refused`."""
        found = self.entries.get(f"{self.namespace}:{name}", self.entries.get(name))
        if found is None:
            raise Refused(f"the catalog has no entry {name!r}; it has {', '.join(self.entries)}")
        if found.namespace not in ("", self.namespace):
            raise Refused(f"the entry {name!r} is offered in the namespace {found.namespace} alone")
        return found

    def path(self, entry: Entry, name: str = "") -> str:
        """The path of an instance, or of all in the namespace."""
        return entry.spec.target.resource.path(namespace=self.namespace, name=name)

    async def read(self, entry: Entry, name: str) -> dict[str, Any]:
        """An instance; raises `Refused` when there is none."""
        try:
            answer = await self.client.request("GET", self.path(entry, name))
        except NotFound as error:
            raise Refused(f"there is no {entry.spec.target.kind} {name!r} in {self.namespace}") from error
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found


def add_catalog_option(parser: argparse.ArgumentParser) -> None:
    """Declare where further entries are."""
    parser.add_argument(
        "--catalog-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="more entries (*.yaml), which replace others of the same name (repeatable)",
    )


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Declare which cluster and namespace is meant."""
    add_catalog_option(parser)
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument("--namespace", "-n", default="", help="default: the context's namespace")


def on_cluster(options: argparse.Namespace, act: Callable[[Cluster], Awaitable[int]]) -> int:
    """Do something with a cluster, with the entries of the package, of directories and of the cluster itself."""
    config = Config.load(options.kubeconfig, options.context)
    namespace = options.namespace or config.namespace

    async def run() -> int:
        client = Client(HttpTransport(config), field_manager=FIELD_MANAGER)
        try:
            entries = await offered(client, namespace, load_catalog(options.catalog_dir))
            return await act(Cluster(client, namespace, entries))
        finally:
            await client.close()

    return asyncio.run(run())


async def offered(client: Client, namespace: str, known: Mapping[str, Entry]) -> dict[str, Entry]:
    """The packaged entries and those of the cluster; unusable ones are reported on standard error."""
    entries = dict(known)
    for resource, kind in ((CLUSTER_TEMPLATES, StoredClusterTemplate), (TEMPLATES, StoredTemplate)):
        try:
            found = await client.list(kind, namespace=namespace if resource.namespaced else "")
        except (NotFound, Forbidden):
            continue  # not served here, or not for this user
        for stored in found.items:
            try:
                entry = entry_of(stored)
            except CatalogError as error:
                print(f"mooring: {resource.kind} {stored.metadata.name}: {error}", file=sys.stderr)
                continue
            if entry.name not in known or entry.spec.override:
                entries[entry.name] = entry
    return entries


def typed(
    parameters: Mapping[str, Parameter], settings: Iterable[str], files: Iterable[str] = ()
) -> dict[str, Any]:
    """Values of ``NAME=VALUE`` (``MAP.KEY=VALUE`` for one of a map), and of files; raises `Refused` with all that is wrong."""
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        parameter, key = _field(parameters, name)
        if not equals:
            wrong.append(f"{setting}: write NAME=VALUE")
        elif parameter is None:
            wrong.append(f"{name}: there is no such field; there are {', '.join(parameters)}")
        elif parameter.sensitive:
            # What is an argument can be read by everybody on the machine, and stays in the shell's history.
            wrong.append(f"{name}: is a secret; give it by --set-file {name}=FILE (- for standard input)")
        elif key:
            values.setdefault(name.partition(".")[0], {})[key] = text
        else:
            try:
                values[name] = _value(parameter, text)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
    for setting in files:
        name, _, file = setting.partition("=")
        parameter, key = _field(parameters, name)
        if parameter is None or key or parameter.type != "string":
            wrong.append(f"{name}: there is no such field of text")
        else:
            text = sys.stdin.read() if file == "-" else Path(file).read_text()
            values[name] = text.removesuffix("\n")
    if wrong:
        raise Refused("\n".join(wrong))
    return values


def _field(parameters: Mapping[str, Parameter], name: str) -> tuple[Parameter | None, str]:
    if name in parameters:
        return parameters[name], ""
    top, _, key = name.partition(".")
    parameter = parameters.get(top)
    return (parameter, key) if parameter is not None and parameter.type == "object" and key else (None, "")


def _value(parameter: Parameter, text: str) -> Any:
    match parameter.type:
        case "integer":
            if not _INTEGER.fullmatch(text):
                raise ValueError(f"{text!r} is no whole number")
            return int(text)
        case "number":
            return float(text)
        case "boolean":
            if text not in ("true", "false"):
                raise ValueError(f"{text!r} is neither true nor false")
            return text == "true"
        case "object":
            if text:
                raise ValueError("set its keys: NAME.KEY=VALUE")
            return {}
    return text


def refused(problem: Problem, *, more: Sequence[str] = ()) -> Refused:
    """A problem of the console's as the command line tells it."""
    lines = [
        f"{error.get('field') or error.get('path') or 'object'}: {error['message']['en']}"
        for error in problem.errors
    ]
    return Refused("\n".join([problem.detail, *lines, *more]))
