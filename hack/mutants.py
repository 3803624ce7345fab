"""Do the tests notice when a mechanism is taken away? ``make mutants`` answers for a committed list.

Every entry of ``mutants/*.yaml`` names a ``mechanism``, a text ``old`` that occurs exactly once in ``file``,
the text ``new`` to put in its place, and the one ``test`` (a pytest node id) that must notice. In a copy of
the tree the text is replaced and exactly that test is run: it has to fail, and by an assertion, since a
program that no longer starts proves nothing about the mechanism. The same test has to pass unmutated.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import yaml

__all__ = ["Mutant", "MutantError", "Tree", "Verdict", "load", "main", "try_all"]

ROOT: Final = Path(__file__).resolve().parents[1]
#: Seconds for one test; a mutant that makes it hang is not caught by an assertion.
TIMEOUT: Final = 180.0
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".cache", ".hypothesis", "__pycache__", ".*_cache", "node_modules"
)
#: How pytest's report of an assertion begins.
_ASSERTIONS: Final = ("AssertionError", "assert ", "Failed: DID NOT RAISE", "DID NOT RAISE")


class MutantError(Exception):
    """An entry that cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Mutant:
    """One mechanism, how to break it, and the test that must notice."""

    mechanism: str
    file: str
    old: str
    new: str
    test: str
    source: str = ""

    @property
    def name(self) -> str:
        """The list it stands in and its mechanism, for ``--only`` and the report."""
        return f"{self.source}: {self.mechanism}"


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant; ``trouble`` is empty when it was caught."""

    mutant: Mutant
    trouble: str = ""


def load(directory: Path) -> list[Mutant]:
    """All entries of ``*.yaml`` in a directory; raises `MutantError` naming the entry that is malformed."""
    found: list[Mutant] = []
    wanted = {field.name for field in fields(Mutant)} - {"source"}
    for path in sorted(directory.glob("*.yaml")):
        for number, entry in enumerate(yaml.safe_load(path.read_text()) or (), 1):
            if not isinstance(entry, dict) or set(entry) != wanted:
                raise MutantError(f"{path.name}, entry {number}: needs exactly {', '.join(sorted(wanted))}")
            if not all(isinstance(value, str) for value in entry.values()) or entry["old"] == entry["new"]:
                raise MutantError(f"{path.name}, entry {number}: texts, and old differs from new")
            found.append(Mutant(**entry, source=path.stem))
    names = [mutant.name for mutant in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise MutantError(f"given twice: {', '.join(sorted(twice))}")
    return found


class Tree:
    """A copy of the source tree in which one thing at a time is broken."""

    def __init__(self, root: Path, *, timeout: float = TIMEOUT) -> None:
        self._root = root
        self._timeout = timeout
        self._edits = 0

    @contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """The tree with the mutant in it; raises `MutantError` when its text is not there exactly once."""
        path = self._root / mutant.file
        if not path.is_file():
            raise MutantError(f"{mutant.file} does not exist")
        text, times = path.read_text(), path.stat()
        if (count := text.count(mutant.old)) != 1:
            raise MutantError(f"the old text occurs {count} times in {mutant.file}")
        self._edits += 1
        path.write_text(text.replace(mutant.old, mutant.new))
        # Compiled files are told apart by size and whole seconds alone: no two versions may share both.
        os.utime(path, (times.st_atime, times.st_mtime + self._edits))
        try:
            yield
        finally:
            path.write_text(text)
            os.utime(path, (times.st_atime, times.st_mtime))

    def run(self, *tests: str) -> str:
        """Run tests: ``passed``, ``caught`` (an assertion failed), or what happened instead."""
        report = self._root / "mutants-report.xml"
        report.unlink(missing_ok=True)
        timeout = self._timeout + 20.0 * (len(tests) - 1)
        command = [sys.executable, "-m", "pytest", *tests, "-q", "-x", f"--junitxml={report}"]
        environment = {**os.environ, "PYTHONPATH": f"{self._root / 'src'}:{self._root}"}
        try:
            done = subprocess.run(
                command, cwd=self._root, env=environment, capture_output=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return f"no end within {timeout:.0f} s"
        if not report.exists():
            return f"pytest ended with status {done.returncode}: {_last_line(done.stdout + done.stderr)}"
        return _outcome(report)


def _outcome(report: Path) -> str:
    cases = list(ElementTree.parse(report).iter("testcase"))
    failures = [_message(element) for case in cases for element in case.iter("failure")]
    errors = [_message(element) for case in cases for element in case.iter("error")]
    if any(text.startswith(_ASSERTIONS) for text in failures):
        return "caught"
    if failures or errors:
        return "; ".join([*errors, *failures])
    if not cases or any(case.find("skipped") is not None for case in cases):
        return "no test was run"
    return "passed"


def _message(element: ElementTree.Element) -> str:
    lines = (element.get("message") or "").splitlines()
    return lines[0] if lines else "failed without a message"


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _copy(source: str, target: str) -> None:
    """Copy a file; one that has gone since the directory was read is left out."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _judge(tree: Tree, mutant: Mutant) -> Verdict:
    try:
        with tree.broken(mutant):
            outcome = tree.run(mutant.test)
    except MutantError as error:
        return Verdict(mutant, str(error))
    if outcome == "caught":
        return Verdict(mutant)
    return Verdict(mutant, f"survived {mutant.test}" if outcome == "passed" else f"no assertion: {outcome}")


def try_all(
    mutants: Sequence[Mutant], *, root: Path = ROOT, jobs: int = 1, timeout: float = TIMEOUT
) -> Iterator[Verdict]:
    """Try every mutant in copies of ``root``, ``jobs`` at a time, and give the verdicts in order."""
    with (
        tempfile.TemporaryDirectory(prefix="mooring-mutants-") as directory,
        ThreadPoolExecutor(jobs) as pool,
    ):
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(jobs):
            copy = Path(directory) / str(number)
            shutil.copytree(root, copy, ignore=_LEFT_OUT, symlinks=True, copy_function=_copy)
            trees.put(Tree(copy, timeout=timeout))

        def plain(*tests: str) -> str:
            tree = trees.get()
            try:
                return tree.run(*tests)
            finally:
                trees.put(tree)

        def broken(mutant: Mutant) -> Verdict:
            tree = trees.get()
            try:
                return _judge(tree, mutant)
            finally:
                trees.put(tree)

        tests = list(dict.fromkeys(mutant.test for mutant in mutants))
        # All at once costs one start of Python; only when that fails it matters which one it was.
        sound = dict.fromkeys(tests, "passed")
        if tests and plain(*tests) != "passed":
            sound = dict(zip(tests, pool.map(plain, tests), strict=True))
        tried = pool.map(broken, [mutant for mutant in mutants if sound[mutant.test] == "passed"])
        for mutant in mutants:
            if sound[mutant.test] == "passed":
                yield next(tried)
            else:
                yield Verdict(mutant, f"{mutant.test} does not pass unmutated: {sound[mutant.test]}")


def _report(verdicts: Iterable[Verdict]) -> bool:
    total = caught = 0
    for verdict in verdicts:
        total += 1
        caught += not verdict.trouble
        line = f"{'MISSED' if verdict.trouble else 'caught'}  {verdict.mutant.name}"
        print(line + (f"\n        {verdict.trouble}" if verdict.trouble else ""), flush=True)
    print(f"{caught} of {total}")
    return total > 0 and caught == total


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 when every mutant was caught."""
    parser = argparse.ArgumentParser(description="break every listed mechanism and see that its test notices")
    parser.add_argument("--only", metavar="GLOB", default="*", help="'cache*', '*tombstone*': names to try")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="mutants at a time (1)")
    options = parser.parse_args(arguments)
    try:
        mutants = [m for m in load(ROOT / "mutants") if fnmatch.fnmatch(m.name, options.only)]
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if _report(try_all(mutants, jobs=options.jobs)) else 1


if __name__ == "__main__":
    sys.exit(main())
