"""The benchmark of the runtime measures what it says, at the smallest sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.runtime.report import plot, table

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.kubernetes
@pytest.mark.full
@pytest.mark.nightly
@pytest.mark.timeout(900)  # builds the Go peer the first time
def test_a_quick_run_measures_every_scenario_with_every_peer(tmp_path: Path) -> None:
    out = tmp_path / "quick.json"

    done = subprocess.run(
        [sys.executable, "-m", "bench.runtime", "--quick", "--out", str(out)],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-3000:]
    results: dict[str, Any] = json.loads(out.read_text())
    measured = {(cell["scenario"], cell["peer"]) for cell in results["cells"]}
    scenarios = {"empty", "cold", "edits", "many", "handover", "cut", "churned"}
    assert measured == {
        (scenario, peer) for scenario in scenarios for peer in ("mooring", "kopf", "controller-runtime")
    }
    ours = {cell["scenario"]: cell["figures"] for cell in results["cells"] if cell["peer"] == "mooring"}
    assert ours["cold"]["writes"] | {"reads": 0} == {
        "creates": 0,
        "patches": 400,  # one apply and one status for each of 200
        "others": 0,
        "election": 0,
        "already_exists": 0,
        "conflicts": 0,
        "failed": 0,
        "reads": 0,
    }
    assert ours["edits"]["missed"] == ours["cut"]["missed"] == 0
    assert ours["many"]["start_in_sync"]["writes"]["patches"] == 0
    assert "controller-runtime" in table(results)
    assert plot(results).startswith("<svg")


def test_the_published_page_is_made_from_the_committed_figures() -> None:
    results = json.loads((ROOT / "bench" / "runtime" / "results" / "full.json").read_text())
    page = (ROOT / "docs" / "benchmarks.md").read_text()

    remedy = "run: python -m bench.runtime.report"
    assert table(results) in page, remedy
    assert (ROOT / "docs" / "benchmarks.svg").read_text() == plot(results), remedy
