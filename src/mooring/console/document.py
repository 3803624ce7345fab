"""Objects as YAML for people to read and to write."""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable
from typing import Any, Final

import yaml

from mooring.console.problems import Problem

__all__ = ["read_yaml", "to_yaml", "unified"]

#: Levels of a document: the API server's own limit on a custom resource is lower in practice.
DEEPEST: Final = 100
CONTEXT: Final = 3


def to_yaml(document: Any) -> str:
    """YAML for people to read."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False)


def unified(old: Any, new: Any) -> str:
    """The unified diff of two objects as YAML, "" if they are equal."""
    lines = difflib.unified_diff(to_yaml(old).splitlines(), to_yaml(new).splitlines(), lineterm="", n=CONTEXT)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def read_yaml(text: str) -> dict[str, Any]:
    """An object that a person wrote; raises `Problem` with the line of what is wrong.

    Aliases, duplicate keys, keys that are no text, and numbers that JSON does not have are refused.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise _not_yaml(f"{where}{error.problem or error.context or 'not YAML'}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_yaml("not YAML") from error
    if not isinstance(document, dict):
        raise _not_yaml("line 1: the document must be an object")
    return document


def _not_yaml(why: str) -> Problem:
    message = {"en": why, "zh": why}
    return Problem(
        422, "NotYaml", f"The YAML cannot be read: {why}", errors=[{"field": "yaml", "message": message}]
    )


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a document is a tree, and a date is a text."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=event.start_mark)
        if self.depth >= DEEPEST:
            raise yaml.MarkedYAMLError(
                problem=f"more than {DEEPEST} levels",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise yaml.MarkedYAMLError(
                    problem=f"the key {str(name)[:60]!r} is no text: quote it", problem_mark=key.start_mark
                )
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {name[:60]!r} is there twice", problem_mark=key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        value = super().construct_yaml_float(node)
        if not math.isfinite(value):
            raise yaml.MarkedYAMLError(problem="not a finite number", problem_mark=node.start_mark)
        return value

    def construct_text(self, node: yaml.ScalarNode) -> str:
        return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_text)
