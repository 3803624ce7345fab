"""What `mooring demo --what matrixone` shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hack.kubernetes.binaries import cache_root
from tests.cli.program import ourselves

pytestmark = [pytest.mark.mo_service, pytest.mark.nightly, pytest.mark.timeout(600)]


async def test_the_demo_scales_a_cluster_out_kills_a_compute_node_and_claims_a_warm_one(
    directory: Path,
) -> None:
    program = ourselves(directory)
    program.env["MOORING_CACHE"] = str(cache_root())  # it has the server
    done = await program.run("demo", "--what", "matrixone", seconds=500)

    assert done.status == 0, done.text
    assert "SQL through the proxy at " in done.out
    assert "scale-out: 0 tries failed, " in done.out
    kill = next(line for line in done.out.splitlines() if "kill -9: " in line)
    assert "; lost 0 of " in kill
    claim = next(line for line in done.out.splitlines() if "CNClaim acme: " in line)
    assert "-warm-cn-" in claim
    said = re.search(r" serves the account acme (\d+\.\d+) s after the apply$", claim)
    assert said is not None, claim
    # Some tenths of a second alone; on a busy machine the demo's own process waits for a processor, too.
    assert float(said[1]) < 3.0
