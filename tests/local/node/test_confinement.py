"""What a container may have loaded and changed before its own program runs: nothing of the machine's."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from mooring.local.node.spawner import Child, Spawn, Spawner

from .lab import privileged, until
from .test_agent import FOREVER, world

pytestmark = [pytest.mark.embedded, privileged]


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


async def test_a_containers_environment_tells_no_program_outside_of_it_what_to_load(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    # The loader of every program that has these writes to such a file, before the program begins.
    environment = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(trace), "MINE": "1"}
    env = [{"name": name, "value": value} for name, value in environment.items()]
    async with world(tmp_path / "node") as there:
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
    async with world(tmp_path) as there:
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

    async with world(tmp_path) as there:
        capabilities = {"drop": ["ALL"], "add": ["CHOWN"]}
        await there.pod("web", {"command": FOREVER, "securityContext": {"capabilities": capabilities}})
        await there.ready("web")
        monkeypatch.setattr(Spawner, "spawn", noted)
        assert (await there.exec("web", "true"))[0] == 0
    assert {one for what in started for one in what.capabilities} == {"CHOWN", "SETPCAP"}


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
        ({"workingDir": "/x/../../oldroot/tmp/x"}, "workingDir"),
        ({"terminationMessagePath": "/../oldroot/tmp/x"}, "terminationMessagePath"),
    ],
)
async def test_paths_that_lead_out_of_a_container_are_refused(
    tmp_path: Path, container: dict[str, Any], told: str
) -> None:
    async with world(tmp_path) as there:
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
    async with world(tmp_path) as there:
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
    async with world(tmp_path / "node") as there:
        volumes = [{"name": name, "emptyDir": {}} for name in ("scratch", "other")]
        await there.pod("web", {"command": FOREVER, **given}, initContainers=[prepare], volumes=volumes)

        def refused() -> bool:
            (status,) = there.status("web")["containerStatuses"]
            return status["state"].get("waiting", {}).get("reason") in (
                "CreateContainerConfigError",
                "RunContainerError",
            )

        await until(refused)
    assert os.listdir(target) == []
