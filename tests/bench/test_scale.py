"""The measurement of many clusters runs, and at rest nothing is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.scale import markdown

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.embedded
@pytest.mark.timeout(90)
@pytest.mark.nightly
def test_simulated_clusters_become_healthy_and_rest_without_a_write() -> None:
    words = ["bench/scale.py", "--clusters", "2", "--settle", "4", "--seconds", "5", "--within", "40"]

    done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    figures = json.loads(done.stdout)
    assert (figures["clusters"], figures["unhealthy"], figures["writes_at_rest"]) == (2, [], 0)
    assert figures["writes_until_healthy"] > 50
    assert figures["lease_writes_at_rest"] > 0
    assert figures["rss_mib"]["operator"] > 20
    assert f"| writes in {figures['rest_seconds']:.0f} s at rest | 0 |" in markdown(figures)
