"""A template tried before it is anywhere: what is wrong with it by line, its form, and the manifest that it makes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from mooring.catalog import (
    CatalogError,
    Entry,
    Target,
    check_values,
    defaults,
    lint,
    lint_collection,
    lint_schema,
    parse_entry,
    render,
    requests_of,
)
from mooring.console.document import read_yaml, to_yaml
from mooring.console.problems import Problem
from mooring.kube import Client, Forbidden, NotFound

__all__ = ["TEXT_LIMIT", "tried"]

#: Characters of a template, problems that are told.
TEXT_LIMIT, MOST = 32 * 1024, 100
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_STEP = re.compile(r"[^.\[\]]+")
_UNKNOWN, _MISSING = re.compile(r"unknown field `([^`]*)`"), re.compile(r"missing required field `([^`]*)`")
_ANY: Final = "*"
Json = dict[str, Any]


async def tried(
    client: Client, text: str, values: Mapping[str, Any] | None, *, name: str, namespace: str
) -> Json:
    """Everything about a template; raises `Problem` for one that is too long.

    What takes time is done in a thread, and its length bounds it: a thread cannot be stopped.
    """
    if len(text) > TEXT_LIMIT:
        raise Problem(413, "TemplateTooLong", f"A template has at most {TEXT_LIMIT} characters.")
    read = await asyncio.to_thread(_read, text)
    if isinstance(read, dict):
        return read
    definitions: dict[Target, Json | None] = {}
    if not read.problems:
        for target in (read.entry.spec.target, *(one.target for one in read.entry.spec.collections)):
            if target not in definitions:
                definitions[target] = await _definition(client, target)
    return await asyncio.to_thread(_shown, read, definitions, values, name=name, namespace=namespace)


class _Read(NamedTuple):
    """An entry, where its text says what, and what lint finds in it."""

    entry: Entry
    places: Place
    problems: list[str]


def _read(text: str) -> _Read | Json:
    """The entry of a text, or the answer for a text without one."""
    try:
        read_yaml(text)  # a tree: no alias makes a small text large
    except Problem as problem:
        return _told(None, [problem.errors[0]["message"]["en"]])
    places = _places(text)
    try:
        entry = parse_entry(text, source="template")
        return _Read(entry, places, lint(entry))
    except CatalogError as error:
        return _told(places, [problem.partition(": ")[2] for problem in error.problems])
    except (OverflowError, RecursionError) as error:
        return _told(places, [f"a value is too large or too deep: {type(error).__name__}"])


def _shown(
    read: _Read,
    definitions: Mapping[Target, Json | None],
    values: Mapping[str, Any] | None,
    *,
    name: str,
    namespace: str,
) -> Json:
    entry, places, problems = read
    found = definitions.get(entry.spec.target)
    if found is not None:
        problems = problems + lint_schema(entry, found)
    for one in entry.spec.collections:
        if (other := definitions.get(one.target)) is not None:
            problems = problems + lint_collection(one, other)
    compared = bool(read.problems) or found is not None
    try:
        given = dict(values) if values is not None else defaults(entry)
        wrong = check_values(entry, given) if not problems else []
        manifest = ""
        if not problems and not wrong:
            manifest = to_yaml(render(entry, name=name, namespace=namespace, values=given))
        return {
            **_told(places, problems),
            "compared": compared,
            "form": msgspec.to_builtins(entry)["spec"],
            "defaults": defaults(entry),
            "errors": [msgspec.to_builtins(each) for each in wrong],
            "yaml": manifest,
            "requests": requests_of(entry, given) if not problems and not wrong else {},
        }
    except (OverflowError, RecursionError) as error:
        return _told(places, [f"a value is too large or too deep: {type(error).__name__}"])


def _told(places: Place | None, problems: Sequence[str]) -> Json:
    rows = [_row(places, problem) for problem in problems[:MOST]]
    rows.sort(key=lambda row: row["line"] or 0)
    empty: Json = {"form": None, "defaults": {}, "errors": [], "yaml": "", "requests": {}, "compared": False}
    return {"problems": rows, **empty}


def _row(places: Place | None, problem: str) -> Json:
    if (found := re.match(r"line (\d+): ", problem)) is not None:
        return {"line": int(found[1]), "path": "", "message": problem[found.end() :]}
    path, _, message = problem.partition(": ")
    if (found := re.search(r" - at `\$([^`]*)`", problem)) is not None:
        path, message = found[1].lstrip("."), problem[: found.start()]
    elif not re.fullmatch(r"[\w.\[\]/ -]+", path):
        path, message = "", problem
    steps = tuple(_STEP.findall(path.replace("[...]", f".{_ANY}")))
    if places is None:
        return {"line": None, "path": path, "message": message}
    # The problem is at the deepest part of its path that is written down.
    return {"line": _place(places, steps, message).line, "path": path, "message": message}


def _place(places: Place, steps: Sequence[str], message: str) -> Place:
    """The deepest place of a path; where a step may be any key, the one that the message fits."""
    level, found = [places], places
    for step in steps:
        if step == _ANY:
            # An element of a list is there by number and by name, and is looked at once.
            below = list({id(each): each for place in level for each in place.below.values()}.values())
        else:
            below = [place.below[step] for place in level if step in place.below]
        if not below:
            break
        level, found = below, next((each for each in below if each.fits(message)), below[0])
    return found


@dataclass(slots=True, eq=False)
class Place:
    """What is written at a path: its line, its text, and the places below it.

    Elements of lists are known by number and, if they have one, by name.
    """

    line: int
    text: str = ""
    below: dict[str, Place] = field(default_factory=dict)

    def fits(self, message: str) -> bool:
        """Whether a message can be about this place."""
        unknown, missing = _UNKNOWN.search(message), _MISSING.search(message)
        return bool(
            (self.text and repr(self.text) in message)
            or (unknown and unknown[1] in self.below)
            or (missing and missing[1] not in self.below)
        )


def _places(text: str) -> Place:
    """The places of a text. Each value is looked at once, whatever ways lead to it."""

    def walk(node: yaml.Node, place: Place) -> None:
        if isinstance(node, yaml.ScalarNode):
            place.text = str(node.value)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = place
                # A key such as requests.cpu is several steps of a path.
                for step in _STEP.findall(str(key.value)):
                    below = below.below.setdefault(step, Place(key.start_mark.line + 1))
                walk(value, below)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                below = place.below[str(number)] = Place(value.start_mark.line + 1)
                walk(value, below)
            for number, value in enumerate(node.value):
                if named := _name_of(value):
                    place.below.setdefault(named, place.below[str(number)])

    top = Place(1)
    if (node := yaml.compose(text, Loader=yaml.SafeLoader)) is not None:
        walk(node, top)
    return top


def _name_of(node: yaml.Node) -> str:
    if not isinstance(node, yaml.MappingNode):
        return ""
    return next((str(value.value) for key, value in node.value if key.value == "name"), "")


async def _definition(client: Client, target: Target) -> Json | None:
    try:
        answer = await client.request("GET", f"{_DEFINITIONS}/{target.plural}.{target.group}")
    except (Forbidden, NotFound):
        return None
    found: Json = msgspec.json.decode(answer.body)
    return found
