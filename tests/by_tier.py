"""Which files have tests of a tier, as the tier that read all of them noted: the later ones need not read the rest.

Reading all files takes a worker a minute. Where nothing was noted of a file it is read.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

__all__ = ["note_files", "without_tests"]

#: Where `mooring test` wants it noted.
FILES = "MOORING_TEST_FILES"


def note_files(items: Iterable[pytest.Item]) -> None:
    """Note the markers of every test by file, unless that was done."""
    if not (place := os.environ.get(FILES)) or Path(place).exists():
        return
    files: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for item in items:
        files[str(item.path)].add(tuple(sorted({one.name for one in item.iter_markers()})))
    begun = Path(f"{place}.{os.getpid()}")
    begun.write_text(json.dumps({path: sorted(markers) for path, markers in files.items()}))
    begun.rename(place)


def without_tests(path: Path, marked: str) -> bool:
    """Whether a file was read before and has no test with such markers (an expression, as after ``-m``)."""
    place = os.environ.get(FILES)
    if not marked or not place or not Path(place).exists():
        return False
    noted = _noted(place).get(str(path))
    return noted is not None and not any(_fits(marked, frozenset(markers)) for markers in noted)


@cache
def _noted(place: str) -> Mapping[str, list[list[str]]]:
    noted: Mapping[str, list[list[str]]] = json.loads(Path(place).read_text())
    return noted


@cache
def _fits(marked: str, markers: frozenset[str]) -> bool:
    def there(name: str, /, **_: str | int | bool | None) -> bool:
        return name in markers

    return Expression.compile(marked).evaluate(there)
