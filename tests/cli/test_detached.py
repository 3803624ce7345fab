"""A control plane in the background whose log has no space: it goes on, and a start that fails says why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.program import Program

from mooring.kube import ApiError, Client, Config, HttpTransport
from mooring.kube.objects.core import ConfigMap, Namespace
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.directory import DataDirectory

#: A process that writes lines to its log, and shows what the pipe to the process that waits received.
WRITER = """
import os, sys
from pathlib import Path
from mooring.cli.detached import LogFile
reader, writer = os.pipe()
log = Path(sys.argv[1])
sys.stderr = LogFile(log, starter=writer, most=2000)
for number in range(int(sys.argv[2])):
    print(f"line {number}", file=sys.stderr)
print("mooring: ready. Go on", file=sys.stderr)
print("mooring: later", file=sys.stderr)
sys.stdin.buffer.read()
os.write(int(sys.argv[3]), os.read(reader, 1000))
"""


def write(log: Path, *, lines: int) -> str:
    """Run it on a log; what it said to the process that waits."""
    reader, writer = os.pipe()
    with log.open("ab") as out:
        command = [sys.executable, "-c", WRITER, str(log), str(lines), str(writer)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as said:
        assert done.returncode == 0
        return said.read()


def test_the_log_is_bounded_and_the_last_lines_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "mooring.log"

    said = write(log, lines=1000)

    assert said == "mooring: ready. Go on\n"
    before = tmp_path / "mooring.log.1"
    assert log.stat().st_size <= 2000
    assert before.stat().st_size <= 2000
    assert log.read_text().endswith("line 999\nmooring: ready. Go on\nmooring: later\n")
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def disk(home: Path) -> Iterator[Path]:
    """A disk of 32 MiB."""
    path = home / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", path], capture_output=True)
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    yield path
    subprocess.run(["umount", path], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.embedded
@pytest.mark.nightly
async def test_a_full_disk_neither_ends_a_control_plane_nor_hides_why_it_does_not_start(
    program: Program, disk: Path
) -> None:
    up = ("up", "--detach", "--operators", "none", "--listen", "127.0.0.1:0", "--data-dir", disk / "data")
    directory = DataDirectory(disk / "data")
    (await program.run(*up)).fine()
    try:
        owner = directory.owner()
        client = Client(HttpTransport(Config.load(directory.kubeconfig)))
        try:
            fill(disk)
            # Each is refused, and the log cannot take a line about it.
            for number in range(20):
                meta = ObjectMeta(name=f"map-{number}", namespace="default")
                with pytest.raises(ApiError, match="disk is full"):
                    await client.create(ConfigMap(metadata=meta, data={"a": "b" * 100_000}))
            assert (await client.get(Namespace, "default")).metadata.name == "default"
            assert directory.owner() == owner
        finally:
            await client.close()
    finally:
        (disk / "filler").unlink(missing_ok=True)
        (await program.run("down", "--data-dir", disk / "data")).fine()
    fill(disk)

    again = await program.run(*up)

    if again.status == 0:
        (await program.run("down", "--data-dir", disk / "data")).fine()
    else:
        assert "full" in again.err or "No space left" in again.err
        assert "no reason given" not in again.err
