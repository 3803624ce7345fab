"""A sample of the campaign's plans on real servers."""

from __future__ import annotations

import random

import pytest
from bench.campaign_real import KINDS, REAL, drawn, main


def test_a_draw_is_of_different_moments_and_the_same_for_a_seed() -> None:
    some = drawn(["sentinel-configure"], 3, random.Random(1))

    assert some == drawn(["sentinel-configure"], 3, random.Random(1))
    faults = [one.faults[0] for one in some]
    assert len({one.at for one in faults}) == 3
    assert {one.kind for one in faults} <= set(KINDS)


def test_an_unknown_workload_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sentinel-delete"]) == 2
    said = capsys.readouterr().err
    assert "sentinel-delete" in said
    assert all(name in said for name in REAL)


@pytest.mark.embedded
@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.nightly
def test_a_sample_of_plans_strikes_real_servers(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["sentinel-roll", "cluster-grow", "--plans", "1", "--seed", "7"])

    said = capsys.readouterr().out
    assert status == 0, said
    assert "2 plans on real servers, 0 failed" in said
