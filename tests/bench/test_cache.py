"""The measurement of the cache works on a few Pods."""

from __future__ import annotations

import json

import pytest

from bench import cache


def test_a_few_pods_are_listed_watched_and_weighed(capsys: pytest.CaptureFixture[str]) -> None:
    cache.main(["--pods", "60", "--rate", "100", "--seconds", "3"])

    figures = json.loads(capsys.readouterr().out)
    assert figures["pods"] == 60
    assert 7_300 <= figures["pod_bytes"] <= 7_700
    assert figures["changes_per_second"] > 10
    assert figures["pause_ms"]["longest"] >= figures["pause_ms"]["p50"] >= 0
