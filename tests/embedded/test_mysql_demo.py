"""What `mooring demo --what mysql` shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hack.kubernetes.binaries import cache_root
from tests.cli.program import ourselves

pytestmark = [pytest.mark.embedded, pytest.mark.nightly, pytest.mark.timeout(300)]


async def test_the_demo_kills_hangs_and_switches_the_primary_and_loses_no_row(directory: Path) -> None:
    program = ourselves(directory)
    program.env["MOORING_CACHE"] = str(cache_root())  # it has the packages
    done = await program.run("demo", "--what", "mysql", seconds=250)

    assert done.status == 0, done.text
    told = re.findall(
        r"(kill -9|SIGSTOP|switch): no row for ([\d.]+) s; lost (\d+) of (\d+) acknowledged", done.out
    )
    assert [what for what, *_ in told] == ["kill -9", "SIGSTOP", "switch"], done.text
    assert [lost for _, _, lost, _ in told] == ["0", "0", "0"]
    assert all(int(acknowledged) > 100 for *_, acknowledged in told)
