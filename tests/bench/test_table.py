"""The table of faults: what it reckons is right, its marks are on the page, and the peers really run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from bench.page import PAGE, put
from bench.table import KEYS, ROWS, Outcome, misses, publish, table
from bench.tally import Outcome as Fault
from bench.tally import markdown, report

ROOT = Path(__file__).resolve().parents[2]
FINE = Outcome(row="crash", peer="mooring", round=1, gap=1.0, exact=4.0, acknowledged=900)


def figures(*outcomes: Outcome, writes: int = 0, on: str = "embedded") -> dict[str, Any]:
    return {
        "on": on,
        "measured": "2026-01-01",
        "machine": "2 cores",
        "load_before": 0.1,
        "load_after": 0.5,
        "rounds": 1,
        "lanes": 1,
        "steady": {"seconds": 120, "writes": writes, "leases": 9},
        "outcomes": [asdict(one) for one in outcomes],
    }


def test_what_keeps_its_target_is_no_miss() -> None:
    assert misses(figures(FINE, replace(FINE, peer="plain", exact=None, lost_keys=KEYS))) == []


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (replace(FINE, gap=1.6), "gap 1.60 s"),
        (replace(FINE, lost=1), "lost 1"),
        (replace(FINE, lost_keys=3), "lost"),
        (replace(FINE, row="hang", lost=5, lost_confirmed=5), "5 confirmed"),
        (replace(FINE, exact=None), "never exact"),
        (replace(FINE, row="sentinels", exact=6.1), "exact after 6.1 s"),
        (replace(FINE, row="partition-2", lost=9, lost_seconds=3.1), "3.1 s of writes"),
    ],
)
def test_a_missed_target_is_named(outcome: Outcome, words: str) -> None:
    (missed,) = misses(figures(FINE, outcome))
    assert words in missed


def test_a_crash_counts_from_the_report_where_a_kubelet_has_to_look_first() -> None:
    late = replace(FINE, gap=2.4)
    assert misses(figures(late))
    assert misses(figures(late, on="node")) == []
    assert misses(figures(replace(FINE, gap=2.6), on="node"))
    assert misses(figures(replace(FINE, row="delete", gap=1.6), on="node"))


def test_a_write_at_rest_is_a_miss() -> None:
    assert misses(figures(FINE, writes=2)) == ["2 writes at rest"]


def test_the_table_shows_medians_losses_and_what_never_came_back() -> None:
    text = table(
        figures(
            FINE,
            replace(FINE, round=2, gap=1.4, exact=5.0),
            replace(FINE, peer="plain", exact=None, lost=900, lost_confirmed=400, lost_keys=KEYS),
        )
    )
    (line,) = [one for one in text.splitlines() if one.startswith("| crash")]
    ours, plain = line.split("|")[3:5]
    assert ours.strip() == "gap 1.00, max 1.40 s; exact 4.0, max 5.0 s; lost 0 of 1800"
    assert "**never exact: 1 of 1**" in plain
    assert "**everything wiped: 1 of 1**, lost 900 of 900, confirmed 400" in plain
    assert len([one for one in text.splitlines() if one.startswith("| ")]) == len(ROWS) + 2


def test_the_tables_of_faults_say_what_was_lost_and_how_long_nobody_served() -> None:
    faults = [
        Fault(number=1, lane=0, cause="master-killed", victim="a", gap=1.2, acknowledged=500, confirmed=250),
        Fault(number=2, lane=0, cause="partition", victim="a", lost_acknowledged=7, lost_seconds=2.0),
    ]
    about = {"measured": "x", "machine": "y", "load": 1, "minutes": 30.0, "seed": 1, "lanes": 3}
    text = markdown({**about, **report(faults)})
    assert "2 faults in 30 minutes" in text
    assert "| master-killed | 1 | 500 | 0 | 250 | 0 | 0.0 | 1.20 / 1.20 / 1.20 |" in text
    assert "| partition | 1 | 0 | 7 | 0 | 0 | 2.0 |" in text


@pytest.mark.parametrize(
    "command",
    [
        "python bench/table.py",
        "python bench/table.py --node",
        "python bench/faults.py",
        "python bench/scale.py",
        "python -m bench.slots --publish",
        "python -m bench.cluster_crash --publish",
        "python -m bench.cluster_faults",
    ],
)
def test_a_table_goes_between_its_marks_and_nothing_else_changes(tmp_path: Path, command: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())

    put(command, "| new |", page=page)

    before, after = PAGE.read_text(), page.read_text()
    begin, end = f"<!-- table: {command} -->\n", f"<!-- end: {command} -->"
    assert f"{begin}| new |\n{end}" in after
    assert after.split(begin)[0] == before.split(begin)[0]
    assert after.split(end)[1] == before.split(end)[1]


@pytest.mark.parametrize(
    ("on", "command", "name"),
    [
        ("embedded", "python bench/table.py", "table.json"),
        ("node", "python bench/table.py --node", "table-node.json"),
    ],
)
def test_what_was_measured_on_one_plane_leaves_the_other_s_figures_alone(
    tmp_path: Path, on: str, command: str, name: str
) -> None:
    # Given both planes' tables and raw figures
    page, results = tmp_path / "page.md", tmp_path / "results"
    page.write_text(PAGE.read_text())
    results.mkdir()
    for one in ("table.json", "table-node.json"):
        (results / one).write_text("old")

    # When those of one are published
    publish(figures(FINE, on=on), results=results, page=page)

    # Then between its marks stands its table, and nothing else changed
    begin, end = f"<!-- table: {command} -->\n", f"<!-- end: {command} -->"
    before, after = PAGE.read_text(), page.read_text()
    assert f"{begin}{table(figures(FINE, on=on))}\n{end}" in after
    assert after.split(begin)[0] == before.split(begin)[0]
    assert after.split(end)[1] == before.split(end)[1]
    kept = {path.name: path.read_text() for path in results.iterdir()}
    assert json.loads(kept.pop(name))["outcomes"] == [asdict(FINE)]
    assert list(kept.values()) == ["old"]


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(LookupError, match="no marks"):
        put("python bench/table.py", "| new |", page=page)
    assert page.read_text() == "nothing here\n"


@pytest.mark.embedded
@pytest.mark.timeout(180)
@pytest.mark.nightly
def test_both_peers_are_made_struck_and_counted(tmp_path: Path) -> None:
    words = ["bench/table.py", "--rounds", "1", "--lanes", "2", "--steady", "0", "--out", str(tmp_path / "o")]
    done = subprocess.run(
        [sys.executable, *words, "--row", "create", "--row", "crash"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr[-3000:]
    outcomes = [Outcome(**one) for one in json.loads((tmp_path / "o").read_text())["outcomes"]]
    assert {(one.row, one.peer) for one in outcomes} == {
        (row, peer) for row in ("create", "crash") for peer in ("mooring", "plain")
    }
    crashes = [one for one in outcomes if one.row == "crash"]
    assert all(one.acknowledged > 100 and one.lost_keys == 0 for one in crashes), crashes
    assert all(one.exact is not None for one in outcomes if one.peer == "mooring")
    assert "| crash of the master" in done.stdout
