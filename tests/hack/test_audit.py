"""What the audit of locked dependencies makes of PyPI's answers; nightly it asks PyPI itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hack.audit import ROOT, concerns, locked

FLAW = {
    "id": "PYSEC-1",
    "aliases": ["CVE-1"],
    "fixed_in": ["2.0"],
    "summary": "Reads too much.",
    "withdrawn": None,
}


def test_every_pin_of_the_lock_files_is_read_once() -> None:
    texts = [
        "Redis==8.1.0 \\\n    --hash=sha256:0\n# a==1\n",
        "redis==8.1.0\nyarl==1.2 ; python_version < '3.12'\n",
    ]
    assert locked(texts) == [("redis", "8.1.0"), ("yarl", "1.2")]
    assert len(locked(path.read_text() for path in (ROOT / "requirements").glob("*.txt"))) > 50


def test_a_flaw_is_named_with_its_remedy_unless_it_was_withdrawn() -> None:
    (said,) = concerns("some", "1.0", {"vulnerabilities": [FLAW, {**FLAW, "withdrawn": "2026-01-01"}]})
    assert said == "some 1.0: CVE-1, PYSEC-1; fixed in 2.0: Reads too much."


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_no_locked_release_has_a_known_flaw() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "audit.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 1, done.stdout
    assert " locked releases, 0 known vulnerabilities" in done.stdout
