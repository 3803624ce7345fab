"""The history of a server is never reset: no statement of a dialect does it, nor any other text but a restore's."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import mooring.operators.mysql
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.steps import _Source
from mooring.operators.mysql.topology import Flavor

RESETS: Final = re.compile(r"\bRESET\s+(MASTER|BINARY\s+LOGS)|gtid_purged\s*=", re.IGNORECASE)
"""MariaDB's statement and MySQL's two, and the variable that replaces the history of an emptied server."""
RESTORES: Final = {"archive/forward.py", "backup/scripts.py"}
"""Scripts of Jobs that fill an empty directory before a server of the cluster opens it."""
GIVEN: Final[dict[str, Any]] = {
    "source": _Source(host="demo-0", port=3306, user="replication", password="secret", tls=True),
    "here": {"binlog": "", "slave": "0-1-5", "executed": "", "purged": ""},
    "row": {"priv": "{}"},
    "held": ["max_connections"],
    "file": "relay.000002",
    "position": 4,
    "on": True,
    "acks": 2,
    "user": "app",
    "host": "%",
    "text": "secret",
    "session": 7,
}
"""Arguments of the methods that make statements, by name."""


def statements(flavor: Flavor) -> dict[str, str]:
    """Everything that a dialect can have a server do, by method."""
    dialect, made = dialect_of(flavor), dict[str, str]()
    for name, method in inspect.getmembers(dialect, inspect.ismethod):
        signature = inspect.signature(method)
        if name.startswith("_") or signature.return_annotation not in ("str", "Sequence[str]"):
            continue
        required = [
            one.name for one in signature.parameters.values() if one.default is inspect.Parameter.empty
        ]
        found: str | Sequence[str] = method(**{one: GIVEN[one] for one in required})
        made[name] = found if isinstance(found, str) else "; ".join(found)
    return made


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_no_statement_of_a_dialect_resets_a_history(flavor: Flavor) -> None:  # trap 5
    made = statements(flavor)

    assert {
        "follow",
        "start",
        "stop",
        "forget_source",
        "apply_from",
        "source_semi_sync",
        "kill",
    } <= made.keys()
    assert made["forget_source"] == "RESET REPLICA ALL"
    assert {name: text for name, text in made.items() if RESETS.search(text)} == {}


def test_only_a_restore_into_an_empty_directory_resets_a_history() -> None:  # trap 5
    root = Path(mooring.operators.mysql.__file__).parent
    found = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if any(map(RESETS.search, texts(path)))
    }

    assert found == RESTORES


def texts(path: Path) -> list[str]:
    """The literals of a module, without what only describes it."""
    tree = ast.parse(path.read_text())
    described = {
        id(one.value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    }
    return [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in described
    ]
