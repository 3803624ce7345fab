"""What the last word of a command line may become: from the commands' own options, and names from the cluster.

Nothing is reported: a cluster that does not answer within `PATIENCE` seconds gives no names.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mooring.kube.object import Resource

if TYPE_CHECKING:
    from mooring.catalog import Entry
    from mooring.kube.object import Object

__all__ = ["PATIENCE", "candidates", "joined"]

PATIENCE: Final = 2.0
"""Seconds that a cluster may take to give its names: the shell waits."""
_MOST: Final = "500"
"""Names that are asked for at most."""
_PODS: Final = Resource(group="", version="v1", kind="Pod", plural="pods")
_NAMESPACES: Final = Resource(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False)


def candidates(given: Sequence[str]) -> list[str]:
    """What the last of these words, those after ``mooring``, may become; nothing where only a file fits."""
    from mooring.cli.main import COMMANDS

    *before, last = joined(given) or [""]
    if not before:
        found: Iterable[str] = COMMANDS
    elif before[0] not in COMMANDS:
        return []
    else:
        line = _read(before[0], before[1:])
        found = _fitting(line, last) if line is not None else ()
    return [word for word in dict.fromkeys(found) if word.startswith(last)]


def joined(given: Sequence[str]) -> list[str]:
    """The words as they were typed: bash takes "=" for a word of its own."""
    words: list[str] = []
    for index, word in enumerate(given):
        if words and (word == "=" or given[index - 1] == "="):
            words[-1] += word
        else:
            words.append(word)
    return words


@dataclass(kw_only=True)
class _Line:
    """The words before the last one, as the command's parser reads them."""

    command: str
    parser: argparse.ArgumentParser
    verb: str = ""
    #: The option that the last word is the value of.
    pending: argparse.Action | None = None
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)


def _read(command: str, words: Sequence[str]) -> _Line | None:
    """A line as far as it is typed; ``None`` where the parser knows no such word."""
    from mooring.cli.main import _parser

    top = _verbs(_parser(command))
    assert top is not None
    line = _Line(command=command, parser=top.choices[command])
    for word in words:
        if line.pending is not None:
            line.options[line.pending.dest], line.pending = word, None
        elif word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            action = line.parser._option_string_actions.get(name)
            if action is None or action.nargs == 0:
                continue
            if equals:
                line.options[action.dest] = value
            else:
                line.pending = action
        elif (verbs := _verbs(line.parser)) is not None:
            if word not in verbs.choices:
                return None
            line.verb, line.parser = word, verbs.choices[word]
        else:
            line.arguments.append(word)
    return line


def _verbs(parser: argparse.ArgumentParser) -> Any:
    """What a parser knows besides options, each with a parser of its own; ``None`` where there is none."""
    return next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)


def _fitting(line: _Line, last: str) -> Iterable[str]:
    if line.pending is not None:
        return _values(line, line.pending, last)
    name, equals, value = last.partition("=")
    action = line.parser._option_string_actions.get(name)
    if equals and action is not None:
        return [f"{name}={one}" for one in _values(line, action, value)]
    if last.startswith("-"):
        return _options(line)
    if (verbs := _verbs(line.parser)) is not None:
        return list(verbs.choices)
    wanted = [one for one in line.parser._actions if not one.option_strings]
    at = len(line.arguments)
    if wanted and at >= len(wanted) and wanted[-1].nargs in ("*", "+"):
        at = len(wanted) - 1
    # Once every argument is there, an option may follow.
    return _values(line, wanted[at], last) if at < len(wanted) else _options(line)


def _options(line: _Line) -> list[str]:
    shown = [one for one in line.parser._actions if one.help is not argparse.SUPPRESS and one.dest != "help"]
    return [
        next(name for name in one.option_strings if name.startswith("--"))
        for one in shown
        if one.option_strings
    ]


def _values(line: _Line, action: argparse.Action, last: str) -> Iterable[str]:
    """The values of an option or argument."""
    if action.choices is not None:
        return [str(one) for one in action.choices]
    cluster = _Cluster(line.options)
    if action.metavar == "KIND/NAME":
        return _objects(line, cluster, last)
    if action.metavar == "POD":
        return cluster.names(_PODS)
    match action.dest:
        case "namespace" | "namespaces":
            return cluster.names(_NAMESPACES)
        case "context":
            return cluster.contexts()
        case "operators":
            from mooring.operators.registry import OPERATORS  # only now: the shell waits

            return [*OPERATORS, "none"]
        case "source" if line.command == "import":
            return []
        case "entry" if line.command == "backup" and "/" in last:
            return _objects(line, cluster, last)
        case "entry":
            return list(_entries(line))
        case "name" if line.arguments and (entry := _entries(line).get(line.arguments[0])) is not None:
            return cluster.names(entry.spec.target.resource)
    return _of_service(line, action, last)


def _objects(line: _Line, cluster: _Cluster, last: str) -> list[str]:
    """``KIND/`` and, of the kinds that it may mean, ``KIND/NAME``."""
    from mooring.cli.switchover import handing
    from mooring.cli.why import full_name, kinds_of
    from mooring.operators.registry import OPERATORS

    known: list[type[Object]] = list(handing()) if line.command == "switchover" else []
    known = known or list(dict.fromkeys(kind for one in OPERATORS.values() for kind in one.kinds))
    word, slash, _ = last.partition("/")
    if not slash:
        plain = [kind.resource.kind.lower() for kind in known]
        words = zip(known, plain, strict=True)
        return [f"{one if plain.count(one) == 1 else full_name(kind)}/" for kind, one in words]
    try:
        kinds, _ = kinds_of(f"{word}/-", among=known)
    except ValueError:
        return []
    return [f"{word}/{name}" for name in cluster.names(*(kind.resource for kind in kinds))]


def _entries(line: _Line) -> dict[str, Entry]:
    from mooring.catalog import load_catalog  # only now: the shell waits

    given = line.options.get("catalog_dir")
    return dict(load_catalog([Path(given)] if given else []))


def _of_service(line: _Line, action: argparse.Action, last: str) -> list[str]:
    """Plans, fields and collections of the entry that the line names."""
    if action.dest not in ("origin", "plan", "collection", "set", "set_file") or not line.arguments:
        return []
    entry = _entries(line).get(line.arguments[0])
    if entry is None:
        return []
    parameters = entry.parameters
    made = {one.name: one.create.parameters.properties for one in entry.spec.collections if one.create}
    if line.command == "backup":
        parameters = made.get(line.options.get("collection") or next(iter(made), ""), {})
    match action.dest:
        case "origin":
            return [f"{one.name}/" for one in entry.spec.collections if one.restore]
        case "plan":
            return [plan.name for plan in entry.spec.plans]
        case "collection":
            return list(made)
        case "set_file":
            return [f"{name}=" for name, one in parameters.items() if one.type == "string"]
    name, equals, _ = last.partition("=")
    parameter = parameters.get(name)
    if equals and parameter is not None:
        known = ["true", "false"] if parameter.type == "boolean" else parameter.enum
        return [f"{name}={choice}" for choice in known]
    ends = {"object": "."}
    return [f"{name}{ends.get(one.type, '=')}" for name, one in parameters.items() if not one.sensitive]


class _Cluster:
    """The names that the API server gives, as ``--kubeconfig``, ``--context`` and ``-n`` on the line say."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def contexts(self) -> list[str]:
        """The contexts of the kubeconfig."""
        from mooring.kube import Config

        try:
            return Config.contexts(self._kubeconfig())
        except Exception:  # an unreadable file is the business of the command itself
            return []

    def names(self, *resources: Resource) -> list[str]:
        """The names of the objects there are of them."""
        try:
            return asyncio.run(self._names(resources))
        except Exception:  # whatever is wrong is the business of the command itself
            return []

    async def _names(self, resources: Iterable[Resource]) -> list[str]:
        from mooring.kube import Client, Config, HttpTransport, NotFound

        config = Config.load(self._kubeconfig(), self._options.get("context"))
        namespace = self._options.get("namespace") or config.namespace
        found: list[str] = []
        client = Client(HttpTransport(config))
        try:
            async with asyncio.timeout(PATIENCE):
                for one in resources:
                    path = one.path(namespace=namespace if one.namespaced else "")
                    try:
                        answer = await client.request("GET", path, query={"limit": _MOST})
                    except NotFound:
                        continue  # the kind is not served here
                    items = msgspec.json.decode(answer.body)["items"]
                    found += [str(item["metadata"]["name"]) for item in items]
        finally:
            await client.close()
        return found

    def _kubeconfig(self) -> Path | None:
        given = self._options.get("kubeconfig")
        return Path(given).expanduser() if given else None
