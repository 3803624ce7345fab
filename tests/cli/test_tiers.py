"""What `mooring test` does around the tiers."""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import pytest
from tests.by_operator import marker_of
from tests.conftest import LONGEST, TESTS

from mooring.cli import main, tests
from mooring.local.node import rootless

SLOW = """
import os, pathlib, sys, time
nice = lambda: str(os.getpriority(os.PRIO_PROCESS, 0))
pathlib.Path("begun").write_text(begun := nice())
until = time.monotonic() + (30 if os.geteuid() == 0 else 0.5)
while nice() == begun and time.monotonic() < until:
    time.sleep(0.01)
pathlib.Path("built").write_text(" ".join([*sys.argv[1:], nice()]))
"""


def root_with(tmp_path: Path, program: str) -> Path:
    (tmp_path / "hack").mkdir()
    (tmp_path / "hack" / "build.py").write_text(program)
    return tmp_path


def test_what_later_tiers_need_is_built_beside_the_first_and_there_when_they_begin(tmp_path: Path) -> None:
    root = root_with(tmp_path, SLOW)
    with tests._building(root, ["unit", "embedded", "kubernetes", "full"]) as built:
        while not (root / "begun").exists() or not (first := (root / "begun").read_text()):
            time.sleep(0.01)
        built()
        tiers = (root / "built").read_text().split()
    assert tiers[:2] == ["kubernetes", "full"]
    # The builder gives way to tests, and no longer once they wait for it (root alone may take that back).
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert int(first) > own
    assert tiers[2] == (str(own) if os.geteuid() == 0 else first)


def test_a_tier_that_fails_ends_the_builds(tmp_path: Path) -> None:
    root = root_with(tmp_path, "import time; time.sleep(60)")
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), tests._building(root, ["unit", "full"]):
        raise KeyboardInterrupt
    assert time.monotonic() - began < 10


def test_nothing_is_built_for_tiers_that_need_nothing(tmp_path: Path) -> None:
    with tests._building(tmp_path, ["unit", "embedded"]) as built:
        built()


def status(*words: str) -> object:
    """The exit status of the command."""
    with pytest.raises(SystemExit) as ended:
        main.main(["test", *words])
    return ended.value.code


@pytest.fixture
def plain_user(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A user who is not root, with every package at hand; the arguments of the pytests that would have run."""
    ran: list[list[str]] = []

    def pytest_runs(arguments: list[str], **_: object) -> int:
        ran.append(arguments)
        return 0

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(tests, "ensure", lambda programs: None)
    monkeypatch.setattr(tests, "_pytest", pytest_runs)
    monkeypatch.setattr(tests, "_building", lambda root, tiers: nullcontext(lambda: None))
    monkeypatch.setattr(tests, "_build", lambda root: 0)
    monkeypatch.setattr(tests, "_build_for", lambda tier, root: 0)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # the command adds to it
    monkeypatch.delenv("CI", raising=False)
    return ran


def test_a_tier_that_needs_root_says_so_and_is_left_out_for_a_plain_user(
    plain_user: list[list[str]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert status("--all") == 0
    assert "tier cluster needs root, for a kubelet and containerd: left out" in capfd.readouterr().err
    marked = [arguments[arguments.index("-m") + 1] for arguments in plain_user]
    assert tests.TIERS["full"].marked in marked
    assert tests.TIERS["cluster"].marked not in marked


@pytest.mark.parametrize("words", [["--tier", "cluster"], ["--all"]], ids=["named", "in CI"])
def test_it_fails_where_it_was_asked_for_or_decides(
    words: list[str],
    plain_user: list[list[str]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if words == ["--all"]:
        monkeypatch.setenv("CI", "true")
    assert status(*words) == 1
    assert "tier cluster needs root" in capfd.readouterr().err


def test_a_tier_whose_sandboxes_cannot_be_made_fails_with_the_reason(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setattr(tests, "ensure", lambda programs: None)
    monkeypatch.setattr(rootless, "needed", lambda: True)
    monkeypatch.setattr(rootless, "trouble", lambda: "user namespaces are switched off here")
    assert status("--tier", "embedded") == 1
    assert "mooring: user namespaces are switched off here" in capfd.readouterr().err


def test_the_tests_of_one_operator_are_chosen_by_its_marker(
    plain_user: list[list[str]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def pytest_runs(arguments: list[str], *, noted: dict[str, str], **_: object) -> int:
        plain_user.append(arguments)
        assert noted["MOORING_TEST_OPERATOR"] == "redis-cluster"
        Path(noted["MOORING_TEST_SECONDS"]).write_text('{"redis_cluster": 12.4, "others": 1.0}\n')
        return 0

    monkeypatch.setattr(tests, "_pytest", pytest_runs)
    assert status("--operator", "redis-cluster") == 0
    marked = [arguments[arguments.index("-m") + 1] for arguments in plain_user]
    assert marked == [f"({tests.TIERS[tier].marked}) and redis_cluster" for tier in ("unit", "embedded")]
    lines = [line.split() for line in capfd.readouterr().err.splitlines()]
    assert ["redis_cluster", "12", "12"] in lines
    assert [*["seconds", "of", "tests"], "unit", "embedded"] in lines


def test_an_operator_without_tests_is_an_error(
    plain_user: list[list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert status("--operator", "mysql") == 2
    assert "no test is about an operator mysql" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("path", "marker"),
    [
        ("tests/operators/redis/sentinel/test_plan.py", "redis_sentinel"),
        ("tests/operators/redis/cluster/test_plan.py", "redis_cluster"),
        ("tests/operators/redis/test_dial.py", ""),
        ("tests/embedded/test_redis_roll.py", "redis_sentinel"),
        ("tests/embedded/test_rec_life.py", "redis_cluster"),
        ("tests/embedded/test_memcached.py", "memcached"),
        ("tests/examples/test_memcached_operator.py", "memcached"),
        ("tests/cache/test_store.py", ""),
    ],
)
def test_a_test_bears_the_marker_of_the_operator_that_it_is_about(path: str, marker: str) -> None:
    assert marker_of(Path("/clone") / path) == marker


def test_tiers_that_mostly_wait_run_side_by_side_and_their_output_follows(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tests._groups(["unit", "cluster", "matrixone", "browser"]) == [
        ["unit"],
        ["cluster"],
        ["matrixone", "browser"],
    ]
    both = threading.Barrier(2, timeout=30)  # neither passes unless both run

    def pytest_runs(arguments: list[str], *, output: IO[bytes] | None, **_: object) -> int:
        both.wait()
        if output is not None:
            output.write(b"of the tier beside")
        return 0 if output is None else 1

    monkeypatch.setattr(tests, "_pytest", pytest_runs)
    monkeypatch.setattr(tests, "_build_for", lambda tier, root: 0)
    monkeypatch.setattr(tests, "ensure", lambda programs: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    assert status("--tier", "matrixone", "--tier", "browser") == 1
    assert "of the tier beside" in capfd.readouterr().out


def test_later_tiers_read_no_file_that_has_none_of_their_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOORING_TEST_FILES", str(tmp_path / "files"))
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n  full\n  nightly\n"
    )
    pytester.makeconftest(
        f"""
        import sys
        sys.path.insert(0, {str(TESTS.parent)!r})
        from tests.by_tier import note_files, without_tests

        def pytest_ignore_collect(collection_path, config):
            return without_tests(collection_path, config.option.markexpr) or None

        def pytest_collection_modifyitems(items):
            note_files(items)
        """
    )
    full = "import pytest\n@pytest.mark.full\ndef test_long(): pass\n"
    files = {
        "test_plain": "def test_short(): pass\n",
        "test_full": full,
        "test_by_night": full + "pytestmark = pytest.mark.nightly\n",
        "test_both": full + "def test_short(): pass\n",
    }
    pytester.makepyfile(**files)
    unit, later = "not full and not nightly", "full and not nightly"
    pytester.inline_run("-m", unit).assertoutcome(passed=2)
    # Reading one of these files fails from now on.
    for name in ("test_plain", "test_by_night"):
        pytester.makepyfile(**{name: "raise AssertionError('it is read')"})
    pytester.makepyfile(test_new=full)
    pytester.inline_run("-m", later).assertoutcome(passed=3)
    pytester.inline_run("-m", unit, "--co").assertoutcome(failed=1)


def test_files_that_begin_first_are_there() -> None:
    assert [file for file in LONGEST if not (TESTS / file).is_file()] == []
