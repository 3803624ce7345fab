"""``make flakes``: what it reads from reports, how it counts, and that what it starts ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hack.flakes import ROOT, Run, Tally, beside, failed, main, repeat

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.cli.test_why" name="test_fine" time="0.1"/>
<testcase classname="tests.cli.test_why" name="test_wrong[a-b]"><failure message="assert 0">...</failure></testcase>
<testcase classname="tests.cli.test_why" name="test_left_out"><skipped message="no"/></testcase>
<testcase classname="tests.other" name="test_broken"><error message="fixture">...</error></testcase>
</testsuite></testsuites>
"""


def test_failures_and_errors_are_read_from_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)

    assert failed(report, 1) == ["tests.other::test_broken", "tests/cli/test_why.py::test_wrong[a-b]"]


@pytest.mark.parametrize(("status", "said"), [(0, 0), (5, 0), (1, 1), (2, 1), (-9, 1)])
def test_a_run_without_a_report_is_a_failure_unless_there_was_nothing_to_run(
    tmp_path: Path, status: int, said: int
) -> None:
    assert len(failed(tmp_path / "none.xml", status)) == said


def test_a_run_that_fails_without_a_failed_test_is_one(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text("<testsuites/>")

    assert failed(tmp_path / "report.xml", 3) == ["(no test: pytest ended with status 3)"]


def test_what_failed_most_often_is_listed_first_with_its_circumstances() -> None:
    found = {1: ["a::one"], 2: ["b::two"], 3: ["b::two", "a::one"], 4: ["b::two"]}
    runs = [Run(1, "alone", "unit"), Run(2, "busy", "unit"), Run(3, "busy", "unit"), Run(4, "pinned", "unit")]
    tally = Tally()

    repeat(runs, lambda run: found[run.number], tally)

    assert [line.split() for line in tally.table().splitlines()] == [
        ["failed", "circumstances", "test"],
        ["3", *["busy", "2", "of", "2,", "pinned", "1", "of", "1"], "b::two"],
        ["2", *["alone", "1", "of", "1,", "busy", "1", "of", "2"], "a::one"],
    ]


def test_an_interrupt_keeps_what_was_counted() -> None:
    def one(run: Run) -> list[str]:
        if run.number == 2:
            raise KeyboardInterrupt
        return []

    tally = Tally()
    repeat([Run(number, "alone", "unit") for number in (1, 2, 3)], one, tally)

    assert tally.table() == "no test failed in 1 runs"


@pytest.mark.parametrize(("kind", "count"), [("alone", 0), ("busy", 2), ("disk", 1)])
def test_loads_run_until_they_are_left(tmp_path: Path, kind: str, count: int) -> None:
    with beside(kind, 2, tmp_path) as loads:
        assert [load.poll() for load in loads] == [None] * count

    assert all(load.returncode == -signal.SIGTERM for load in loads)


def test_loads_end_with_the_process_that_started_them_even_if_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from hack.flakes import beside\n"
        "with beside('busy', 1, Path(sys.argv[1])) as loads:\n"
        "    print(loads[0].pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    ) as starter:
        assert starter.stdout is not None
        ending = os.pidfd_open(int(starter.stdout.readline()))
        try:
            starter.kill()
            assert select.select([ending], [], [], 20)[0], "the load has ended"
        finally:
            os.close(ending)


@pytest.mark.parametrize("options", ["--kinds nonsense", "--tiers nonsense", "--kinds ,"])
def test_what_there_is_not_is_wrong_usage(options: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options.split())

    assert ended.value.code == 2
