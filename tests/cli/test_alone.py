"""The command line of an operator that is a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from memcached_operator import OPERATOR
from mooring.cli.alone import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "memcached-operator"


def test_the_definitions_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(OPERATOR, ["crd"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["kind"], printed["metadata"]["name"]) == (
        "CustomResourceDefinition",
        "memcacheds.examples.mooring.dev",
    )


def test_the_example_is_a_program() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{EXAMPLE}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "memcached_operator", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "why" in done.stdout


def test_wrong_usage_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(OPERATOR, [])
    assert ended.value.code == 2
    assert "usage: memcached" in capsys.readouterr().err
