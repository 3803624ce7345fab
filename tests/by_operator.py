"""Which operator a test is about, by where it lies: a marker of the operator's name, and seconds by operator.

Of an operator ``mysql-group``: what is below ``tests/operators/mysql/group/`` and files ``test_mysql_group*.py`` anywhere.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from mooring.operators.registry import OPERATORS

__all__ = ["EXAMPLES", "left_out", "marker_of", "names", "note_seconds"]

#: Operators in examples/ that have tests of all tiers.
EXAMPLES = ("memcached",)
#: Further beginnings of files, from the names that the kinds are known by.
PREFIXES = {"redis-sentinel": ("test_redis_",), "redis-cluster": ("test_rec_", "test_cluster_")}
#: Where `mooring test` wants the seconds of a tier.
SECONDS = "MOORING_TEST_SECONDS"
#: The operator that `mooring test` was asked for: no other file is read, which takes most of the time.
ONLY = "MOORING_TEST_OPERATOR"


def names() -> tuple[str, ...]:
    """The names of all operators with tests."""
    return (*OPERATORS, *EXAMPLES)


def marker_of(path: Path) -> str:
    """The marker of a test file, "" where it is about no operator alone."""
    posix = path.as_posix()
    for name in names():
        begins = (f"test_{name.replace('-', '_')}", *PREFIXES.get(name, ()))
        below = f"tests/operators/{name.replace('-', '/')}/" in posix
        if below or (path.name.startswith(begins) and "/tests/operators/" not in posix):
            return name.replace("-", "_")
    return ""


def left_out(path: Path) -> bool:
    """Whether a file has no test of the operator that was asked for."""
    asked = os.environ.get(ONLY, "").replace("-", "_")
    return bool(asked) and path.name.startswith("test_") and path.is_file() and marker_of(path) != asked


def note_seconds(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """Seconds by operator, also added to the file that `mooring test` named."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        marker = next((name for name in names() if name.replace("-", "_") in report.keywords), "others")
        seconds[marker] += report.duration
    if place := os.environ.get(SECONDS):
        with Path(place).open("a") as file:
            file.write(json.dumps(seconds) + "\n")
    return seconds
