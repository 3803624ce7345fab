"""The mutants tool: what it calls caught was noticed by an assertion of exactly the test named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hack.mutants import ROOT, Mutant, MutantError, load, try_all

SOURCE = """\
def limit(value: int) -> int:
    return min(value, 10)


def greet() -> str:
    return "hello"
"""
TEST = """\
import pytest
from thing import greet, limit

def test_large_values_are_cut():
    assert limit(50) == 10

def test_greeting_raises_nothing():
    greet()

def test_refusal():
    with pytest.raises(ValueError):
        int(greet())

def test_left_out():
    pytest.skip("not today")

def test_broken_itself():
    assert limit(1) == 2
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Its tests use no plugin, and without them pytest starts twice as fast.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "thing.py").write_text(SOURCE)
    (tmp_path / "test_thing.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def mutant(old: str, new: str, test: str, *, file: str = "src/thing.py") -> Mutant:
    return Mutant("m", file, old, new, f"test_thing.py::{test}", source="list")


def trouble(tree: Path, *mutants: Mutant, jobs: int = 1) -> list[str]:
    return [verdict.trouble for verdict in try_all(mutants, root=tree, jobs=jobs, timeout=60)]


def test_a_mutant_is_caught_by_the_assertion_of_its_test(tree: Path) -> None:
    # Two of equal length within one second: the second must not run the first one's compiled code.
    caught = mutant("min(value, 10)", "max(value, 10)", "test_large_values_are_cut")
    equivalent = mutant("min(value, 10)", "min(10, value)", "test_large_values_are_cut")
    refusal = mutant('"hello"', '"12"', "test_refusal")
    found = trouble(tree, caught, equivalent, refusal)
    assert found == ["", "survived test_thing.py::test_large_values_are_cut", ""]
    assert (tree / "src" / "thing.py").read_text() == SOURCE, "the tree itself is never touched"


def test_several_at_a_time_are_reported_in_order(tree: Path) -> None:
    caught = mutant("min(value, 10)", "value", "test_large_values_are_cut")
    survivor = mutant('"hello"', '"bye"', "test_large_values_are_cut")
    found = trouble(tree, caught, survivor, caught, survivor, jobs=2)
    assert [bool(text) for text in found] == [False, True, False, True]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (mutant("min(value, 10)", "min(", "test_large_values_are_cut"), "no assertion"),
        (mutant('return "hello"', "raise OSError", "test_greeting_raises_nothing"), "no assertion: OSError"),
        (mutant("min(value, 11)", "value", "test_large_values_are_cut"), "occurs 0 times"),
        (mutant("return", "yield", "test_large_values_are_cut"), "occurs 2 times"),
        (mutant("x", "y", "test_large_values_are_cut", file="src/none.py"), "does not exist"),
        (mutant('"hello"', '"bye"', "test_broken_itself"), "does not pass unmutated"),
        (mutant('"hello"', '"bye"', "test_left_out"), "does not pass unmutated: no test was run"),
        (mutant('"hello"', '"bye"', "test_no_such"), "does not pass unmutated"),
    ],
)
def test_what_proves_nothing_is_not_called_caught(tree: Path, change: Mutant, why: str) -> None:
    (found,) = trouble(tree, change)
    assert why in found


def test_lists_are_read_and_broken_entries_named(tmp_path: Path) -> None:
    good = "- {mechanism: a, file: f, old: x, new: y, test: t}\n"
    (tmp_path / "one.yaml").write_text(good)
    assert load(tmp_path) == [Mutant("a", "f", "x", "y", "t", source="one")]
    for text, why in (
        ("- {mechanism: a, file: f}\n", "two.yaml, entry 1: needs exactly"),
        ("- {mechanism: a, file: f, old: x, new: x, test: t}\n", "old differs from new"),
        (good + good, "given twice: two: a"),
    ):
        (tmp_path / "two.yaml").write_text(text)
        with pytest.raises(MutantError, match=why):
            load(tmp_path)


def test_every_entry_of_the_list_fits_the_code() -> None:
    wrong = []
    for mutant in load(ROOT / "mutants"):
        path, _, name = mutant.test.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        if (ROOT / mutant.file).read_text().count(mutant.old) != 1:
            wrong.append(f"{mutant.name}: its text is not once in {mutant.file}")
        if f"def {function}(" not in (ROOT / path).read_text():
            wrong.append(f"{mutant.name}: no {mutant.test}")
    assert wrong == []
