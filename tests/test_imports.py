"""No module imports one that imports it, not for its types either: each has one idea, and can be read alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"


def modules() -> dict[str, Path]:
    """Every module by its name."""
    named = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imported(tree: ast.Module, known: Mapping[str, Path]) -> Iterator[str]:
    """What a module imports as it is loaded, and for its types; not what a function imports when it is called."""
    blocks = [tree.body, *(one.body for one in tree.body if isinstance(one, ast.If))]
    for statement in (one for block in blocks for one in block):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                yield inner if inner in known else statement.module


def test_modules_import_in_no_circle() -> None:
    known = modules()
    imports = {
        name: {one for one in imported(ast.parse(path.read_text()), known) if one in known and one != name}
        for name, path in known.items()
    }
    assert len(imports) > 500
    assert "mooring.kube" in imports["mooring.cli.why"]
    circle = ""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle = " <- ".join(error.args[1])
    assert not circle
