"""``mooring new operator``: what it makes passes the checks that it comes with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
RUFF = [sys.executable, "-m", "ruff"]


def new(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["new", "operator", *arguments])
    code = ended.value.code
    assert isinstance(code, int)
    return code


def ran(project: Path, *command: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_no_word_of_the_pattern_is_left_and_every_file_is_there(tmp_path: Path) -> None:
    project = tmp_path / "mill"
    assert new("paper-mill", "--group", "print.acme.io", "--directory", str(project)) == 0

    made = {str(path.relative_to(project)): path for path in project.rglob("*") if path.is_file()}
    assert {"paper_mill_operator/plan.py", "chart/crds/papermills.yaml", ".github/workflows/ci.yml"} <= {
        *made
    }
    pattern = ROOT / "examples" / "widget-operator"
    kept = [path for path in pattern.rglob("*") if path.is_file() and "cache" not in str(path)]
    assert len(made) == len(kept)
    for name, path in made.items():
        text = path.read_text()
        assert "idget" not in name + text, name
        assert "apps.example.org" not in text, name
    assert "kind: PaperMill" in made["papermill.yaml"].read_text()
    assert "group: print.acme.io" in made["chart/crds/papermills.yaml"].read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("a",),
        pytest.param(("zoo", "--kind", "Zoo"), marks=pytest.mark.nightly),
        ("accounts-receivable-book", "--plural", "books", "--group", "x.y"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_names_of_any_length_pass_ruff_and_the_planners_tests(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    project = tmp_path / "project"
    assert new(*arguments, "--directory", str(project)) == 0

    assert ran(project, *RUFF, "check", ".") == ""
    assert ran(project, *RUFF, "format", "--check", ".") == ""
    tests = ["tests/test_plan.py", "tests/test_life.py", "tests/test_chart.py"]
    assert ran(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests) == ""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_whole_of_its_own_checks_and_tests_passes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    assert new("ledger-book", "--directory", str(project)) == 0

    assert ran(project, "make", "check", "test", f"PYTHON={sys.executable}") == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("Paper",), "NAME"),
        (("paper-operator",), "-operator"),
        (("mooring",), "NAME"),
        (("a" * 25,), "24"),
        (("paper", "--kind", "paper"), "--kind"),
        (("paper", "--plural", "Papers"), "--plural"),
        (("paper", "--group", "acme"), "--group"),
        (("paper", "--group", "print.k8s.io"), "--group"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert new(*arguments) == 1

    assert named in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_what_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")

    assert new("paper", "--directory", str(tmp_path / "mine")) == 1

    assert "--directory" in capsys.readouterr().err
    assert (tmp_path / "mine" / "file").read_text() == "kept"


def test_the_pattern_in_the_tree_passes_too() -> None:
    project = ROOT / "examples" / "widget-operator"
    cache = ["--no-cache"]
    assert ran(project, *RUFF, "check", *cache, ".") == ""
    assert ran(project, *RUFF, "format", "--check", *cache, ".") == ""
