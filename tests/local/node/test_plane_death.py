"""What becomes of pods when their plane is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.local.node.cleanup import clean, leftover_processes, plane_id
from mooring.local.node.imagestore import ImageStore
from mooring.local.node.netlink import Netlink

from .bed import network_config, privileged, until

pytestmark = [pytest.mark.embedded, privileged]

ROOT = Path(__file__).parents[3]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def in_session_of(pids: list[int]) -> list[int]:
    """All processes that share a pid namespace with one of these."""
    spaces = {os.readlink(f"/proc/{pid}/ns/pid") for pid in pids}
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") in spaces:
                    found.append(int(entry))
            except OSError:
                continue
    return found


async def test_kill_9_of_the_plane_ends_every_process_of_its_pods_within_a_second(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.local.node.plane_process", str(tmp_path)]
    plane = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, stdout=subprocess.PIPE)
    config = network_config(plane_id(tmp_path))
    try:
        assert plane.stdout is not None
        outer: list[int] = []
        inner: list[int] = []
        for _ in range(3):
            line = await asyncio.wait_for(plane.stdout.readline(), 20)
            first, *others = map(int, line.split())
            outer.append(first)
            inner += others
        await until(lambda: len(in_session_of(inner)) >= 12)  # init, program and two children, thrice
        every = [*outer, *in_session_of(inner)]

        plane.kill()
        await plane.wait()
        await until(lambda: not [pid for pid in every if alive(pid)], within=1.0)

        assert leftover_processes(tmp_path) == []
        assert str(tmp_path) not in await asyncio.to_thread(Path("/proc/self/mounts").read_text)
        store = ImageStore(tmp_path / "images")
        assert any(
            "removed layer" in gone for gone in await asyncio.to_thread(store.remove, "localhost/small:1")
        )
    finally:
        if plane.returncode is None:
            plane.send_signal(signal.SIGKILL)
        await plane.wait()
        await asyncio.to_thread(clean, tmp_path, config)
    with Netlink() as netlink:
        assert not [link for link in netlink.links() if link.name.startswith(config.anchor)]


async def test_a_sandbox_that_survived_is_found_by_its_files_and_killed(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods/x").touch()
    argv = [
        "bwrap",
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
    ]
    stray = await asyncio.create_subprocess_exec(
        *argv, "--ro-bind", str(tmp_path / "pods/x"), "/x", "--unshare-pid", "/usr/bin/sleep", "1000"
    )
    try:
        await until(lambda: len(leftover_processes(tmp_path)) >= 2)
        gone = await asyncio.to_thread(clean, tmp_path, network_config(plane_id(tmp_path)))
        assert any(entry.startswith("process ") for entry in gone)
        assert await asyncio.wait_for(stray.wait(), 5) != 0
    finally:
        if stray.returncode is None:
            stray.kill()
            await stray.wait()
