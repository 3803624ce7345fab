"""The manual page."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hack.manpage import PAGE, page

from mooring.cli.main import COMMANDS, DEVELOPERS


def test_it_is_up_to_date_and_has_every_command() -> None:
    made = page()
    assert PAGE.read_text() == made, "run: make generated"
    for name in COMMANDS.keys() - DEVELOPERS:
        assert f'.SS "mooring {name}"' in made


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_reads_it_without_a_warning() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-rHY=0", str(PAGE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r".\x08", "", done.stdout)  # bold letters are struck twice
    assert "EXIT STATUS" in shown
