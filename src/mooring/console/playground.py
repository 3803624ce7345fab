"""A template tried before it is anywhere: what is wrong with it by line, its form, and the manifest that it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from mooring.catalog import (
    CatalogError,
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
TEXT_LIMIT, MOST = 128 * 1024, 100
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_STEP = re.compile(r"[^.\[\]]+")
_ANY: Final = "*"
Json = dict[str, Any]
Places = Mapping[tuple[str, ...], tuple[int, str]]


async def tried(
    client: Client, text: str, values: Mapping[str, Any] | None, *, name: str, namespace: str
) -> Json:
    """Everything about a template; raises `Problem` for one that is too long."""
    if len(text) > TEXT_LIMIT:
        raise Problem(413, "TemplateTooLong", f"A template has at most {TEXT_LIMIT} characters.")
    try:
        read_yaml(text)  # a tree: no alias makes a small text large
    except Problem as problem:
        return _told({}, [problem.errors[0]["message"]["en"]])
    places = _places(text)
    try:
        entry = parse_entry(text, source="template")
    except CatalogError as error:
        return _told(places, [problem.partition(": ")[2] for problem in error.problems])
    problems = lint(entry)
    compared = True
    if not problems:
        found = await _definition(client, entry.spec.target)
        compared = found is not None
        problems = lint_schema(entry, found) if found is not None else []
        for one in entry.spec.collections:
            if (found := await _definition(client, one.target)) is not None:
                problems += lint_collection(one, found)
    given = dict(values) if values is not None else defaults(entry)
    wrong = check_values(entry, given) if not problems else []
    shown = msgspec.to_builtins(entry)["spec"]
    manifest = ""
    if not problems and not wrong:
        manifest = to_yaml(render(entry, name=name, namespace=namespace, values=given))
    return {
        **_told(places, problems),
        "compared": compared,
        "form": shown,
        "defaults": defaults(entry),
        "errors": [msgspec.to_builtins(each) for each in wrong],
        "yaml": manifest,
        "requests": requests_of(entry, given) if not wrong else {},
    }


def _told(places: Places, problems: Sequence[str]) -> Json:
    rows = [_row(places, problem) for problem in problems[:MOST]]
    rows.sort(key=lambda row: row["line"] or 0)
    empty: Json = {"form": None, "defaults": {}, "errors": [], "yaml": "", "requests": {}, "compared": False}
    return {"problems": rows, **empty}


def _row(places: Places, problem: str) -> Json:
    if (found := re.match(r"line (\d+): ", problem)) is not None:
        return {"line": int(found[1]), "path": "", "message": problem[found.end() :]}
    path, _, message = problem.partition(": ")
    if (found := re.search(r" - at `\$([^`]*)`", problem)) is not None:
        path, message = found[1].lstrip("."), problem[: found.start()]
    elif not re.fullmatch(r"[\w.\[\]/ -]+", path):
        path, message = "", problem
    steps = tuple(_STEP.findall(path.replace("[...]", f".{_ANY}")))
    for end in range(len(steps), 0, -1):
        # The problem is at the deepest part of its path that is written down.
        if line := _line(places, steps[:end], message):
            return {"line": line, "path": path, "message": message}
    return {"line": 1 if places else None, "path": path, "message": message}


def _line(places: Places, steps: tuple[str, ...], message: str) -> int | None:
    """The line of a path; where a step may be any key, of the one that the message fits."""
    if _ANY not in steps:
        return places[steps][0] if steps in places else None
    fitting = [
        place
        for place in places
        if len(place) == len(steps)
        and all(step in (_ANY, each) for step, each in zip(steps, place, strict=True))
    ]
    unknown = re.search(r"unknown field `([^`]*)`", message)
    missing = re.search(r"missing required field `([^`]*)`", message)
    for place in fitting:
        value = places[place][1]
        if (
            (value and repr(value) in message)
            or (unknown and (*place, unknown[1]) in places)
            or (missing and (*place, missing[1]) not in places)
        ):
            return places[place][0]
    return places[fitting[0]][0] if fitting else None


def _places(text: str) -> Places:
    """The line and the text of each path; elements of lists are known by number and, if they have one, by name."""
    found: dict[tuple[str, ...], tuple[int, str]] = {}

    def walk(node: yaml.Node, path: tuple[str, ...], line: int) -> None:
        found.setdefault(path, (line, str(node.value) if isinstance(node, yaml.ScalarNode) else ""))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                # A key such as requests.cpu is several steps of a path.
                walk(value, (*path, *_STEP.findall(str(key.value))), key.start_mark.line + 1)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                walk(value, (*path, str(number)), value.start_mark.line + 1)
                if named := _name_of(value):
                    walk(value, (*path, named), value.start_mark.line + 1)

    if (node := yaml.compose(text, Loader=yaml.SafeLoader)) is not None:
        walk(node, (), 1)
    return found


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
