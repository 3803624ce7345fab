"""The campaign's command: it runs what is asked for, keeps what fails and runs it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.campaign import WORKLOADS, main

from mooring.testing.faults import Fault, Plan

#: Plans that failed once. Moments are counted, so what a workload does before its fault has to stay as it is.
KEPT = sorted(Path(__file__).with_name("plans").glob("*.json"))
FIRST = "PATCH /apis/apps/v1/namespaces/default/deployments/shop"


def test_the_sentinel_operator_survives_a_crash_in_the_middle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = "crash-after at PATCH /apis/apps/v1/namespaces/default/statefulsets/redis-cluster-demo"

    status = main(["sentinel-create", "--only", only, "--keep", str(tmp_path)])

    said = capsys.readouterr().out
    assert status == 0, said
    assert "sentinel-create: 1 plans" in said
    assert "0 failed" in said


def test_a_kept_plan_is_run_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(Plan(workload="deployment-roll", faults=(Fault(kind="lost-answer", at=FIRST),)).dump())

    assert main(["--plan", str(file)]) == 0
    assert "nothing went wrong" in capsys.readouterr().out


def test_an_unknown_workload_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    said = capsys.readouterr().err
    assert "nonsense" in said
    assert all(name in said for name in WORKLOADS)


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_what_failed_once_fails_no_more(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", str(file)]) == 0
    assert "nothing went wrong" in capsys.readouterr().out
