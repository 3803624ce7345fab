"""What the scripts of backups find in an image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mooring.operators.mysql.backup.physical import SQUEEZE
from mooring.operators.mysql.backup.scripts import PHYSICAL

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


@pytest.mark.parametrize(
    ("info", "logged", "said"),
    [
        # The replica had committed more than it counted as applied.
        ("position '77', GTID of the last change '0-1-41'", "0-1-43", "position 0-1-43\n"),
        # Made of a copy, the replica has not logged one domain; of the others the later position counts, whatever the order.
        (
            "position '77', GTID of the last change '10-3-9,2-1-100,0-1-41'",
            "10-3-10,0-2-42",
            "position 0-2-42,2-1-100,10-3-10\n",
        ),
        ("position '77', GTID of the last change '0-1-41'", "", "position 0-1-41\n"),
        ("position '77'", "", "position \n"),
        (
            "position '77', GTID of the last change '0-1-41'",
            "gone",
            "failed: db-1.db has purged the binary log of the backup's position, 'binlog.000003', 77; keep binary logs longer\n",
        ),
    ],
)
def test_a_copy_of_files_has_the_position_of_its_last_commit(
    tmp_path: Path, info: str, logged: str, said: str
) -> None:
    asked = f"""case "$*" in
*"BINLOG_GTID_POS('binlog.000003', 77)"*) echo '{logged}' ;;
*gtid_binlog_pos*) ;;
*) echo known ;;
esac"""
    copied = f"""for word; do case $word in --extra-lsndir=*) place=${{word#*=}} ;; esac; done
echo "binlog_pos = filename 'binlog.000003', {info}" >"$place/xtrabackup_info"
echo 'completed OK!' >&2"""
    stands_in = {"mariadb": asked, "mariadb-dump": "", "mariadb-backup": copied, "zstd": "cat"}
    for name, script in stands_in.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("data", "auth", "scratch", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "ibdata1").touch()
    (tmp_path / "auth" / "backup-password").write_text("secret")
    done = subprocess.run(
        ["/bin/sh"],
        input=f"{BEFORE}run={tmp_path}/run\n{PHYSICAL}",
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "FLAVOR": "mariadb",
            "HOST": "db-1.db",
            "DATA_DIR": str(tmp_path),
            "MOORING_AUTH": str(tmp_path / "auth"),
            "MOORING_SCRATCH": str(tmp_path / "scratch"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith(said), done
    assert done.returncode == (3 if said.startswith("failed") else 0), done
