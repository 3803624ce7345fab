"""What the scripts of backups find in an image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mooring.operators.mysql.backup.physical import SQUEEZE

#: Stand-ins for what every script has before.
BEFORE = """set -eu
fail() { echo "failed: $*"; exit 3; }
fact() { echo "$1 $2"; }
"""


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        (("gzip", "zstd"), "compression zstd\nwith -q -3 -c\n"),
        (("gzip",), "compression gzip\nwith -1 -c\n"),
        ((), "failed: the image has no zstd and no gzip; correct spec.image\n"),
    ],
)
def test_data_is_compressed_with_what_the_image_has(
    tmp_path: Path, programs: tuple[str, ...], said: str
) -> None:
    for name in programs:
        (tmp_path / name).write_text('#!/bin/sh\necho "with $*"\n')
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh"],
        input=f"{BEFORE}{SQUEEZE}squeeze\n",
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == said
    assert done.returncode == (0 if programs else 3)
