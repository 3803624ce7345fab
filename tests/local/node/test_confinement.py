"""What a container may have loaded and changed before its own program runs: nothing of the machine's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.object import decode
from mooring.kube.objects.core import ConfigMap
from mooring.local.node.cgroups import detect
from mooring.local.node.cleanup import plane_id
from mooring.local.node.sandbox import can_become
from mooring.local.node.spawner import Child, Spawn, Spawner

from .bed import privileged, until
from .test_agent import FOREVER, bed

pytestmark = [pytest.mark.embedded, privileged]


def environment_of(pid: int) -> list[str]:
    return text_of(f"/proc/{pid}/environ").split("\0")


def text_of(*files: str) -> str:
    """What the first of the files says that is there."""
    return next((Path(file).read_text() for file in files if Path(file).exists()), "")


def owners_below(directory: Path, name: str) -> list[int]:
    return [file.stat().st_uid for file in directory.glob(f"**/{name}/*")]


async def test_a_containers_environment_tells_no_program_outside_of_it_what_to_load(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    # The loader of every program that has these writes to such a file, before the program begins.
    environment = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(trace), "MINE": "1"}
    env = [{"name": name, "value": value} for name, value in environment.items()]
    async with bed(tmp_path / "node") as there:
        await there.pod("web", {"command": FOREVER, "env": env})
        await there.ready("web")
        status, shown = await there.exec("web", "sh", "-c", "echo $LD_DEBUG $LD_DEBUG_OUTPUT $MINE")
        assert status == 0
        assert f"libs {trace} 1" in shown.splitlines()
        assert f"LD_DEBUG_OUTPUT={trace}" in environment_of(there.agent.program_pid("default", "web"))
    assert [name for name in os.listdir(tmp_path) if name.startswith("trace")] == []


@pytest.mark.parametrize(
    "name", [name for name in ("sys/kernel/core_pattern", "irq", "bus", "fs") if Path("/proc", name).exists()]
)
async def test_root_in_a_container_cannot_change_the_machine_by_proc(tmp_path: Path, name: str) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER})
        await there.ready("web")
        path = f"/proc/{name}"
        assert await there.exec("web", "sh", "-c", f"[ -w {path} ] || echo read-only") == (0, "read-only\n")
        assert (await there.exec("web", "sh", "-c", "cat /proc/sys/kernel/hostname"))[0] == 0


async def test_what_is_executed_in_a_container_never_has_more_rights_than_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Spawn] = []
    spawn = Spawner.spawn

    async def noted(self: Spawner, what: Spawn) -> Child:
        started.append(what)
        return await spawn(self, what)

    async with bed(tmp_path) as there:
        capabilities = {"drop": ["ALL"], "add": ["CHOWN"]}
        await there.pod("web", {"command": FOREVER, "securityContext": {"capabilities": capabilities}})
        await there.ready("web")
        monkeypatch.setattr(Spawner, "spawn", noted)
        assert (await there.exec("web", "true"))[0] == 0
    assert {one for what in started for one in what.capabilities} == {"CHOWN"}


async def test_a_program_begins_without_what_was_given_up(tmp_path: Path) -> None:
    spawner = Spawner()
    mount = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    out = tmp_path / "out"
    written = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    copy = os.dup2(written, 70, inheritable=False)
    try:
        child = await spawner.spawn(
            Spawn(
                argv=["/usr/bin/grep", "-E", "Cap(Eff|Bnd)", "/proc/self/status"],
                env={},
                files={1: copy},
                mount=mount,
                capabilities=("CHOWN", "SETPCAP"),
            )
        )
        assert await asyncio.wait_for(child.wait(), 30) == 0
    finally:
        spawner.close()
        for descriptor in (mount, written, copy):
            os.close(descriptor)
    values = [int(line.split()[1], 16) for line in out.read_text().splitlines()]
    assert values == [1 << 0 | 1 << 8] * 2


@pytest.mark.parametrize(
    ("container", "told"),
    [
        ({"volumeMounts": [{"name": "scratch", "mountPath": "/../oldroot/tmp/x"}]}, "mountPath of scratch"),
        ({"volumeMounts": [{"name": "scratch", "mountPath": "a/b"}]}, "must be absolute"),
        ({"volumeMounts": [{"name": "scratch", "mountPath": "/a:b"}]}, "must not contain ':'"),
        ({"volumeMounts": [{"name": "scratch", "mountPath": "//.mooring/"}]}, "nothing can be mounted"),
        ({"workingDir": "/x/../../oldroot/tmp/x"}, "workingDir"),
        ({"terminationMessagePath": "/../oldroot/tmp/x"}, "terminationMessagePath"),
    ],
)
async def test_paths_that_lead_out_of_a_container_are_refused(
    tmp_path: Path, container: dict[str, Any], told: str
) -> None:
    async with bed(tmp_path) as there:
        await there.pod(
            "web", {"command": FOREVER, **container}, volumes=[{"name": "scratch", "emptyDir": {}}]
        )

        def waits() -> str:
            (status,) = there.status("web")["containerStatuses"]
            waiting = status["state"]["waiting"]
            return str(waiting["message"]) if waiting["reason"] == "CreateContainerConfigError" else ""

        assert told in await until(waits)


async def test_a_link_that_a_pod_made_leads_no_mount_out_of_its_volume(tmp_path: Path) -> None:
    prepare = "ln -s somewhere /scratch/..data && ln -s / /scratch/host"
    scratch = {"name": "scratch", "mountPath": "/scratch"}
    async with bed(tmp_path) as there:
        await there.pod(
            "web",
            {"command": FOREVER, "volumeMounts": [{**scratch, "mountPath": "/out", "subPath": "host"}]},
            initContainers=[
                {
                    "name": "first",
                    "image": "busybox:1",
                    "command": ["sh", "-c", prepare],
                    "volumeMounts": [scratch],
                }
            ],
            volumes=[{"name": "scratch", "emptyDir": {}}],
        )

        def waits() -> str:
            (status,) = there.status("web")["containerStatuses"]
            return str(status["state"]["waiting"]["message"] or "")

        assert await until(lambda: "leads out of the volume" in waits())


@pytest.mark.parametrize("field", ["volumeMounts", "workingDir", "terminationMessagePath"])
async def test_a_link_in_a_volume_makes_nothing_on_the_machine_when_a_container_starts(
    tmp_path: Path, field: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    path = "/scratch/link/made"
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    given: dict[str, Any] = {"volumeMounts": mounts, field: path}
    if field == "volumeMounts":
        given = {"volumeMounts": [*mounts, {"name": "other", "mountPath": path}]}
    prepare = {"name": "first", "image": "busybox:1", "volumeMounts": mounts}
    prepare["command"] = ["ln", "-s", f"/oldroot{target}", "/scratch/link"]
    async with bed(tmp_path / "node") as there:
        volumes: list[Any] = [{"name": name, "emptyDir": {}} for name in ("scratch", "other")]
        await there.pod("web", {"command": FOREVER, **given}, initContainers=[prepare], volumes=volumes)

        def refused() -> bool:
            (status,) = there.status("web")["containerStatuses"]
            return status["state"].get("waiting", {}).get("reason") in (
                "CreateContainerConfigError",
                "RunContainerError",
            )

        await until(refused)
    assert os.listdir(target) == []


WITHOUT_RIGHTS = {"runAsUser": 1000, "runAsGroup": 1000, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.skipif(not can_become(1000), reason="a plain user's plane has one user")
async def test_a_program_without_rights_has_none_when_the_container_says_what_to_load(tmp_path: Path) -> None:
    # Every program whose loader obeys the environment leaves a file of its own user.
    env = [{"name": "LD_DEBUG", "value": "libs"}, {"name": "LD_DEBUG_OUTPUT", "value": "/traces/t"}]
    mounts = [{"name": "traces", "mountPath": "/traces"}]
    container = {"command": FOREVER, "env": env, "volumeMounts": mounts, "securityContext": WITHOUT_RIGHTS}
    async with bed(tmp_path) as there:
        await there.pod("web", container, volumes=[{"name": "traces", "emptyDir": {}}])
        await there.ready("web")
        shown = await there.exec("web", "sh", "-c", "id -u; grep -E 'CapEff|CapBnd|Groups' /proc/self/status")
        assert shown[1].split() == ["1000", "Groups:", "CapEff:", "0" * 16, "CapBnd:", "0" * 16]
        owners = owners_below(tmp_path, "volumes/traces")
    assert len(owners) >= 2
    assert set(owners) == {1000}


@pytest.mark.skipif(not can_become(1000), reason="a plain user's plane has one user")
async def test_a_volume_cannot_name_code_for_the_program_that_gives_up_rights(tmp_path: Path) -> None:
    mounts = [{"name": "c", "mountPath": "/etc/ld.so.preload", "subPath": "k"}]
    container = {"command": FOREVER, "volumeMounts": mounts, "securityContext": WITHOUT_RIGHTS}
    async with bed(tmp_path) as there:
        meta = {"name": "c", "namespace": "default"}
        await there.client.create(decode({"metadata": meta, "data": {"k": "/evil.so"}}, ConfigMap))
        await there.pod("web", container, volumes=[{"name": "c", "configMap": {"name": "c"}}])
        await there.ready("web")
        assert await there.exec("web", "cat", "/etc/ld.so.preload") == (0, "")
        assert await there.log("web") == ""


async def test_what_is_executed_counts_to_the_containers_limits(tmp_path: Path) -> None:
    groups = detect(plane_id(tmp_path))
    if not groups.version:
        pytest.skip(groups.says)
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER, "resources": {"limits": {"memory": "64Mi"}}})
        await there.ready("web")
        _, executed = await there.exec("web", "cat", "/proc/self/cgroup")
        pid = there.agent.program_pid("default", "web")
        own = text_of(f"/proc/{pid}/cgroup")
        assert executed == own
        assert "/mooring-" in own
        group = next(line for line in own.splitlines() if "/mooring-" in line).rpartition(":")[2]
        if limited := text_of(f"/sys/fs/cgroup/pids{group}/pids.max", f"/sys/fs/cgroup{group}/pids.max"):
            assert limited == "4096\n"


def test_the_kernels_keyrings_are_closed_to_a_thread_and_its_programs() -> None:
    call = "libc.syscall(ctypes.c_long({'x86_64': 250}.get(platform.machine(), 219)), 0, -4, 0)"
    program = (
        "import ctypes, os, platform; from mooring.local.node.seccomp import forbid_keyrings\n"
        f"libc = ctypes.CDLL(None, use_errno=True)\nassert {call} != -1\nforbid_keyrings()\n"
        f"assert {call} == -1 and ctypes.get_errno() == 1\n"
        "print(os.popen('grep Seccomp: /proc/self/status').read().split()[1])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "2\n", done.stderr


async def test_containers_have_no_keyrings_and_no_private_keys_of_the_machine(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER})
        await there.ready("web")
        pid = there.agent.program_pid("default", "web")
        assert "\nSeccomp:\t2\n" in text_of(f"/proc/{pid}/status")
        assert "Seccomp:\t2\n" in (await there.exec("web", "cat", "/proc/self/status"))[1]
        assert set((await there.exec("web", "ls", "/etc/ssl"))[1].split()) <= {"certs", "openssl.cnf"}
