"""Entries from the package and from directories, linted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from mooring.catalog.entry import CatalogError, Entry, parse_entry
from mooring.catalog.lint import lint

__all__ = ["load_catalog", "load_directory", "packaged"]

#: Entries of one directory.
MOST_ENTRIES = 500


def load_catalog(directories: Iterable[Path] = ()) -> Mapping[str, Entry]:
    """The package's entries and those of the directories by name; of one name the last counts.

    Raises `CatalogError` with every problem of every file.
    """
    entries = {entry.name: entry for entry in packaged()}
    for directory in directories:
        entries |= {entry.name: entry for entry in load_directory(directory)}
    return entries


def packaged() -> list[Entry]:
    """The entries that come with Mooring, read once per process: they are frozen."""
    return list(_packaged())


@cache
def _packaged() -> tuple[Entry, ...]:
    files = resources.files("mooring.catalog") / "entries"
    texts = {file.name: file.read_text() for file in files.iterdir() if file.name.endswith(".yaml")}
    return tuple(_read(texts))


def load_directory(directory: Path) -> list[Entry]:
    """The entries of the ``*.yaml`` files of a directory; raises `CatalogError`."""
    if not directory.is_dir():
        raise CatalogError([f"{directory}: no such directory"])
    files = sorted(directory.glob("*.yaml"))
    if len(files) > MOST_ENTRIES:
        raise CatalogError([f"{directory}: more than {MOST_ENTRIES} entries"])
    try:
        return _read({str(file): file.read_text() for file in files})
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError([f"{directory}: {error}"]) from error


def _read(texts: Mapping[str, str]) -> list[Entry]:
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for source, text in sorted(texts.items()):
        try:
            entry = parse_entry(text, source=source)
        except CatalogError as error:
            problems += error.problems
            continue
        problems += [f"{source}: {problem}" for problem in lint(entry)]
        if entry.name in entries:
            problems.append(f"{source}: metadata.name: {entry.name!r} is there twice")
        entries[entry.name] = entry
    if problems:
        raise CatalogError(problems)
    return list(entries.values())
