"""A template tried before it is anywhere: what is wrong with it by line, its form, and the manifest that it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from mooring.catalog import (
    CatalogError,
    Entry,
    check_values,
    defaults,
    lint,
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
Json = dict[str, Any]


async def tried(
    client: Client, text: str, values: Mapping[str, Any] | None, *, name: str, namespace: str
) -> Json:
    """Everything about a template; raises `Problem` for one that is too long."""
    if len(text) > TEXT_LIMIT:
        raise Problem(413, "TemplateTooLong", f"A template has at most {TEXT_LIMIT} characters.")
    try:
        read_yaml(text)  # a tree: no alias makes a small text large
        entry = parse_entry(text, source="template")
    except Problem as problem:
        return _told(text, [problem.errors[0]["message"]["en"]])
    except CatalogError as error:
        lines = [problem.partition(": ")[2] for problem in error.problems]
        return _told(text, lines)
    problems = lint(entry)
    compared = True
    if not problems:
        found = await _definition(client, entry)
        compared = found is not None
        problems = lint_schema(entry, found) if found is not None else []
    given = dict(values) if values is not None else defaults(entry)
    wrong = check_values(entry, given) if not problems else []
    shown = msgspec.to_builtins(entry)["spec"]
    manifest = ""
    if not problems and not wrong:
        manifest = to_yaml(render(entry, name=name, namespace=namespace, values=given))
    return {
        **_told(text, problems),
        "compared": compared,
        "form": shown,
        "defaults": defaults(entry),
        "errors": [msgspec.to_builtins(each) for each in wrong],
        "yaml": manifest,
        "requests": requests_of(entry, given) if not wrong else {},
    }


def _told(text: str, problems: Sequence[str]) -> Json:
    places = _places(text)
    rows = [_row(places, problem) for problem in problems[:MOST]]
    rows.sort(key=lambda row: row["line"] or 0)
    empty = {"form": None, "defaults": {}, "errors": [], "yaml": "", "requests": {}, "compared": False}
    return {"problems": rows, **empty}


def _row(places: Mapping[tuple[str, ...], int], problem: str) -> Json:
    if (found := re.match(r"line (\d+): ", problem)) is not None:
        return {"line": int(found[1]), "path": "", "message": problem[found.end() :]}
    path, _, message = problem.partition(": ")
    if (found := re.search(r" - at `\$([^`]*)`", problem)) is not None:
        path, message = found[1].lstrip("."), problem[: found.start()]
    elif not re.fullmatch(r"[\w.\[\]/ -]+", path):
        path, message = "", problem
    steps = tuple(_STEP.findall(path))
    # An entry's problem is at the deepest part of its path that is written down.
    line = next((places[steps[:end]] for end in range(len(steps), 0, -1) if steps[:end] in places), None)
    return {"line": line, "path": path, "message": message}


def _places(text: str) -> dict[tuple[str, ...], int]:
    """The line of each path; elements of lists are known by number and, if they have one, by name."""
    found: dict[tuple[str, ...], int] = {}

    def walk(node: yaml.Node, path: tuple[str, ...]) -> None:
        found.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = str(key.value)
                # A key such as requests.cpu is several steps of a path.
                steps = (*path, *_STEP.findall(name))
                found[steps] = key.start_mark.line + 1
                walk(value, steps)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                walk(value, (*path, str(number)))
                named = _name_of(value)
                if named:
                    walk(value, (*path, named))

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return {}
    if node is not None:
        walk(node, ())
    return found


def _name_of(node: yaml.Node) -> str:
    if not isinstance(node, yaml.MappingNode):
        return ""
    return next((str(value.value) for key, value in node.value if key.value == "name"), "")


async def _definition(client: Client, entry: Entry) -> Json | None:
    target = entry.spec.target
    try:
        answer = await client.request("GET", f"{_DEFINITIONS}/{target.plural}.{target.group}")
    except (Forbidden, NotFound):
        return None
    found: Json = msgspec.json.decode(answer.body)
    return found
