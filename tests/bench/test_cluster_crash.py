"""The table of a Redis Cluster's lost masters: what it reckons is right, and the peers really run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from bench.cluster_crash import COMMAND, ROWS, flaws, publish, table
from bench.page import PAGE
from bench.table import KEYS, Outcome

ROOT = Path(__file__).resolve().parents[2]
FINE = Outcome(row="crash", peer="mooring", round=1, gap=1.0, exact=4.0, acknowledged=900)


def figures(*outcomes: Outcome) -> dict[str, Any]:
    return {
        "measured": "2026-01-01",
        "machine": "2 cores",
        "load_before": 0.1,
        "load_after": 0.5,
        "rounds": 1,
        "lanes": 1,
        "outcomes": [asdict(one) for one in outcomes],
    }


def test_what_the_peer_loses_is_a_finding_and_no_flaw() -> None:
    peer = replace(FINE, peer="plain", exact=None, lost=9, lost_confirmed=9, lost_keys=KEYS)
    assert flaws(figures(FINE, replace(FINE, lost=2), peer)) == []


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (replace(FINE, lost=5, lost_confirmed=5), "5 confirmed writes lost"),
        (replace(FINE, lost_keys=3), "3 older keys lost"),
        (replace(FINE, row="hang", exact=None, flaw="2 masters"), "never exact: 2 masters"),
    ],
)
def test_what_ours_may_not_do_is_named(outcome: Outcome, words: str) -> None:
    (said,) = flaws(figures(FINE, outcome))
    assert said == f"{ROWS[outcome.row].title}, round 1: {words}"


def test_the_table_has_a_row_for_every_fault_with_medians_and_losses() -> None:
    text = table(
        figures(
            FINE,
            replace(FINE, round=2, gap=1.4, exact=5.0),
            replace(
                FINE, peer="plain", exact=None, lost=9, lost_confirmed=4, lost_seconds=0.5, lost_keys=333
            ),
        )
    )
    assert text.startswith(
        "Measured on 2026-01-01: 2 cores, rounds: 1, 1 clusters at a time; one-minute load 0.1 before"
    )
    (line,) = [one for one in text.splitlines() if one.startswith(f"| {ROWS['crash'].title}")]
    ours, plain = line.split("|")[2:4]
    assert ours.strip() == "gap 1.00, max 1.40 s; exact 4.0, max 5.0 s; lost 0 of 1800"
    assert "**never exact: 1 of 1**" in plain
    assert "**333 of 1000 older keys lost**, lost 9 of 900, confirmed 4, at most 0.5 s of writes" in plain
    assert len([one for one in text.splitlines() if one.startswith("| ")]) == len(ROWS) + 1


def test_it_is_published_between_its_marks_and_the_raw_figures_are_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())

    publish(figures(FINE), results=tmp_path, page=page)

    marked = f"<!-- table: {COMMAND} -->\n{table(figures(FINE))}\n<!-- end: {COMMAND} -->"
    assert marked in page.read_text()
    assert json.loads((tmp_path / "cluster-crash.json").read_text()) == figures(FINE)


@pytest.mark.embedded
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_both_peers_are_made_struck_and_counted(tmp_path: Path) -> None:
    words = ["-m", "bench.cluster_crash", "--rounds", "1", "--out", str(tmp_path / "o")]
    done = subprocess.run(
        [sys.executable, *words, "--row", "crash", "--row", "delete"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = [Outcome(**one) for one in json.loads((tmp_path / "o").read_text())["outcomes"]]
    assert {(one.row, one.peer) for one in outcomes} == {
        (row, peer) for row in ("crash", "delete") for peer in ("mooring", "plain")
    }
    assert all(one.acknowledged > 100 and one.gap > 0.1 for one in outcomes), outcomes
    assert f"| {ROWS['crash'].title} | gap " in done.stdout
