"""CPU and memory limits, where the machine has writable control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.local.node.cgroups import Cgroup, Cgroups, detect
from mooring.local.node.cleanup import plane_id

from .bed import Bed, pod, privileged, until


def test_version_2_is_written_as_the_kernel_wants_it(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    groups = detect("abc", tmp_path)
    assert groups.version == 2
    made = groups.make("c", {"memory": "64Mi", "cpu": "250m"})
    assert made is not None
    path = tmp_path / "mooring-abc/c"
    assert (path / "memory.max").read_text() == str(64 << 20)
    assert (path / "cpu.max").read_text() == "25000 100000"
    (path / "memory.events").write_text("oom 1\noom_kill 2\n")
    assert made.was_out_of_memory()


def test_version_1_has_a_directory_per_controller(tmp_path: Path) -> None:
    for controller in ("memory", "cpu"):
        (tmp_path / controller).mkdir()
    groups = detect("abc", tmp_path)
    assert groups.version == 1
    assert groups.make("c", {"memory": "64Mi"}) == Cgroup((tmp_path / "memory/mooring-abc/c",))


def test_without_control_groups_there_are_no_limits_and_the_node_says_so(tmp_path: Path) -> None:
    groups = detect("abc", tmp_path)
    assert groups.make("c", {"memory": "64Mi"}) is None
    assert "not enforced" in groups.says


def test_what_has_no_limits_has_no_group(tmp_path: Path) -> None:
    assert Cgroups(1, "abc", tmp_path).make("c", {}) is None


@pytest.mark.embedded
@privileged
async def test_a_container_over_its_memory_limit_is_reported_as_such(tmp_path: Path) -> None:
    groups = detect(plane_id(tmp_path))
    if not groups.version:
        pytest.skip(groups.says)
    async with Bed(tmp_path, cgroups=groups) as bed:
        eat = ["sh", "-c", "x=a; while :; do x=$x$x; done"]
        limits = {"limits": {"memory": "16Mi"}}
        bed.run(pod(containers=[{"command": eat, "resources": limits}], restartPolicy="Never"))
        await until(lambda: bed.status()["phase"] == "Failed", within=20)
        assert bed.container()["state"]["terminated"]["reason"] == "OOMKilled"
        assert bed.container()["state"]["terminated"]["exitCode"] == 137
        told = [message for _, reason, message in bed.events.seen if reason == "OOMKilling"]
        assert told == ["container main was killed: it needed more memory than its limit, 16Mi"]
        assert groups.pids() == []
    groups.remove_all()
