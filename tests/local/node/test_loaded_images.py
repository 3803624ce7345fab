"""Pods whose containers run images that were loaded: real roots, users, commands, events."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.object import to_dict
from mooring.local.node import rootfs
from mooring.local.node.imagestore import ImageStore, StoreError
from mooring.local.node.loading import load
from mooring.local.node.logs import read
from mooring.local.node.pod import PodWorker
from mooring.local.node.sandbox import can_become

from .bed import Bed, pod, privileged, until
from .imaging import Blueprint, directory, docker_archive, file, layer, link, programs

pytestmark = [pytest.mark.embedded, privileged]

IMAGE = "localhost/small:1"
USERS = "root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/home/app:/bin/sh\n"
GROUPS = "root:x:0:\napp:x:1235:\nextra:x:77:app,other\n"
APPLETS = (
    "sh",
    "cat",
    "id",
    "ls",
    "sleep",
    "touch",
    "env",
    "pwd",
    "true",
    "rm",
    "test",
    "echo",
    "nc",
    "grep",
)
FOREVER = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]


@cache
def base() -> bytes:
    return programs(applets=APPLETS)


FILES = layer(
    directory("etc"),
    file("etc/passwd", USERS),
    file("etc/group", GROUPS),
    directory("data", uid=1234, gid=1235),
    file("data/seed", "seeded", uid=1234, gid=1235),
    directory("run"),
    directory("var"),
    link("var/run", "/run"),
    file("only-in-the-image", "here"),
)


@asynccontextmanager
async def bed(tmp_path: Path, **config: Any) -> AsyncIterator[Bed]:
    await asyncio.to_thread(tmp_path.mkdir, exist_ok=True)
    store = ImageStore(tmp_path / "images")
    image = Blueprint([base(), FILES], names=[IMAGE], config={"Env": ["PATH=/bin", "KIND=small"], **config})
    await asyncio.to_thread(load, store, docker_archive(tmp_path / "image.tar", image))
    async with Bed(tmp_path / "node", images=store) as made:
        yield made


def run(there: Bed, *command: str, **more: Any) -> PodWorker:
    spec = {key: more.pop(key) for key in list(more) if key in ("volumes", "restartPolicy", "podContext")}
    if context := spec.pop("podContext", None):
        spec["securityContext"] = context
    container = {"image": IMAGE, **({"command": list(command)} if command else {}), **more}
    return there.run(pod(containers=[container], **spec))


async def says(there: Bed, *command: str, **more: Any) -> str:
    worker = run(there, *command, restartPolicy="Never", **more)
    await until(lambda: there.status()["phase"] in ("Succeeded", "Failed"))
    path = worker.main[0].log_path(previous=False)
    return b"".join([piece async for piece in read(path)]).decode()


async def test_a_container_sees_the_image_and_nothing_of_the_machine(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        text = await says(there, "sh", "-c", "ls /; cat /only-in-the-image; echo; env; ls /usr")
        words = text.split()
        assert {"bin", "data", "only-in-the-image", "proc", "dev"} <= set(words)
        assert not {"home", "boot", "work", "srv"} & set(words)
        assert "here" in words
        assert "KIND=small" in words
        assert there.container()["imageID"].startswith("sha256:")
        pulled = [message for _, reason, message in there.events.seen if reason == "Pulled"]
        assert pulled == [f'Container image "{IMAGE}" already present on machine']


async def test_entrypoint_and_command_follow_kubernetes_rules(tmp_path: Path) -> None:
    config = {"Entrypoint": ["echo", "entry"], "Cmd": ["cmd"]}
    for fields, wanted in (
        ({}, "entry cmd"),
        ({"args": ["args"]}, "entry args"),
        ({"command": ["echo", "own"]}, "own"),
        ({"command": ["echo", "own"], "args": ["$(KIND)"]}, "own small"),
    ):
        async with bed(tmp_path / wanted.replace(" ", "-"), **config) as there:
            assert await says(there, **fields) == f"{wanted}\n"


async def test_what_is_written_is_gone_with_the_container_and_the_image_stays(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        script = "test ! -e /made && echo fresh; rm /only-in-the-image && touch /made; exit 1"
        worker = run(there, "sh", "-c", script)
        await until(lambda: there.container()["restartCount"] >= 2)
        path = worker.main[0].log_path(previous=True)
        assert b"".join([piece async for piece in read(path)]) == b"fresh\n"
    image = ImageStore(tmp_path / "images").images()[0]
    layers = tmp_path / "images/layers" / image.chain[-1].removeprefix("sha256:")
    assert (layers / "only-in-the-image").exists()
    assert not (layers / "made").exists()


async def test_without_overlayfs_the_image_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError

    monkeypatch.setattr(rootfs, "_overlay", refuse)
    async with bed(tmp_path) as there:
        script = "cat /only-in-the-image /data/seed && echo >/only-in-the-image && echo fine"
        assert await says(there, "sh", "-c", script) == "hereseededfine\n"


async def test_nothing_is_left_of_a_roots_mounts_and_files(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        worker = run(there, *FOREVER)
        await there.phase("Running")
        roots = tmp_path / "node/pods" / worker.uid / "containers/main/root"
        assert roots.is_dir()
        worker.shut_down(0)
        await worker.ended.wait()
        assert not roots.exists()
        mounts = await asyncio.to_thread(Path("/proc/self/mounts").read_text)
        assert str(tmp_path) not in mounts
        store = there.node.catalog.store
        assert store is not None
        assert f"untagged {IMAGE}" in store.remove(IMAGE)


async def test_an_image_that_a_container_runs_from_stays(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        run(there, *FOREVER)
        await there.phase("Running")
        with pytest.raises(StoreError, match="in use"):
            ImageStore(tmp_path / "images").remove(IMAGE)


@pytest.mark.skipif(not can_become(1234), reason="only one user exists here")
@pytest.mark.parametrize(
    ("user", "context", "wanted"),
    [
        ("", {}, "0 0 0 /root"),
        ("app", {}, "1234 1235 1235 77 /home/app"),
        ("1234", {}, "1234 1235 1235 77 /home/app"),
        ("app:77", {}, "1234 77 77 /home/app"),
        ("4321", {}, "4321 0 0 /"),
        ("app", {"runAsUser": 0}, "0 0 0 /root"),
        ("", {"runAsUser": 1234}, "1234 1235 1235 77 /home/app"),
        ("app", {"runAsGroup": 5, "fsGroup": 6, "supplementalGroups": [7]}, "1234 5 5 6 7 77 /home/app"),
        ("1234", {"runAsNonRoot": True}, "1234 1235 1235 77 /home/app"),
    ],
)
async def test_the_user_is_the_images_unless_the_pod_says_otherwise(
    tmp_path: Path, user: str, context: dict[str, Any], wanted: str
) -> None:
    async with bed(tmp_path, User=user) as there:
        script = "echo $(id -u) $(id -g) $(id -G) $HOME"
        text = (await says(there, "sh", "-c", script, podContext=context)).split()
        uid, gid, *groups, home = text
        wants = wanted.split()
        assert (uid, gid, home) == (wants[0], wants[1], wants[-1])
        assert set(groups) == set(wants[2:-1])


@pytest.mark.parametrize(
    ("user", "context", "why"),
    [
        ("app", {"runAsNonRoot": True}, "non-numeric user"),
        ("", {"runAsNonRoot": True}, "image will run as root"),
        ("", {"runAsNonRoot": True, "runAsUser": 0}, "breaks non-root policy"),
        ("nobody-knows", {}, "no matching entries in passwd file"),
        ("app:nobody-knows", {}, "no matching entries in group file"),
    ],
)
async def test_users_that_cannot_be_are_told(
    tmp_path: Path, user: str, context: dict[str, Any], why: str
) -> None:
    async with bed(tmp_path, User=user) as there:
        run(there, *FOREVER, podContext=context)
        waiting = await until(lambda: there.container()["state"]["waiting"]["message"])
        await until(lambda: why in there.container()["state"]["waiting"]["message"])
        assert there.container()["state"]["waiting"]["reason"] == "CreateContainerConfigError", waiting


async def test_a_read_only_root_keeps_the_images_volumes_writable(tmp_path: Path) -> None:
    async with bed(tmp_path, Volumes={"/data": {}}) as there:
        worker = run(there, *FOREVER, securityContext={"readOnlyRootFilesystem": True})
        await there.phase("Running")
        assert (await there.sh(worker, "touch /x 2>/dev/null"))[0] != 0
        assert await there.sh(worker, "touch /data/x && cat /data/seed") == (0, "seeded")


async def test_mounts_follow_the_images_links(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        mounts = [{"name": "v", "mountPath": "/var/run/deep"}]
        text = await says(
            there, "sh", "-c", "touch /run/deep/x && ls /var/run/deep; cat /etc/hostname",
            volumeMounts=mounts, volumes=[{"name": "v", "emptyDir": {}}],
        )  # fmt: skip
        assert text.split() == ["x", "web"]


async def test_working_directory_exec_and_probes_work_inside(tmp_path: Path) -> None:
    async with bed(tmp_path, WorkingDir="/data", User="app") as there:
        probe = {"exec": {"command": ["test", "-e", "seed"]}, "periodSeconds": 1}
        worker = run(there, *FOREVER, readinessProbe=probe)
        await until(lambda: there.condition("Ready")["status"] == "True")
        user = "1234" if can_become(1234) else "0"
        assert await there.sh(worker, "pwd; id -u; cat seed") == (0, f"/data\n{user}\nseeded")


async def test_a_program_the_image_lacks_is_named(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        run(there, "redis-server")
        await until(lambda: "waiting" in there.container()["state"] and "exec" in str(there.container()))
        said = there.container()["state"]["waiting"]["message"]
        assert 'exec: "redis-server": executable file not found in $PATH' in said


async def test_the_images_stop_signal_is_sent(tmp_path: Path) -> None:
    async with bed(tmp_path, StopSignal="SIGUSR1") as there:
        script = "trap 'exit 42' USR1; touch /ready; while :; do sleep 0.05; done"
        worker = run(there, "sh", "-c", script)
        await there.phase("Running")
        while (await there.sh(worker, "test -e /ready"))[0] != 0:
            await asyncio.sleep(0.01)
        there.delete(worker)
        await until(lambda: there.client.deleted)
        ends = [p for p in there.client.patches if "terminated" in str(p)]
        assert "'exitCode': 42" in str(ends)


async def test_pull_policies_are_the_kubelets(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        for name, image, policy in (("never", "nosuch:1", "Never"), ("always", IMAGE, "Always")):
            container = {"image": image, "imagePullPolicy": policy, "command": FOREVER}
            there.run(pod(name, containers=[container]))
        await there.phase("Running", "always")
        await until(lambda: there.container("never")["state"]["waiting"]["reason"] == "ErrImageNeverPull")
        told = {(reason, message) for _, reason, message in there.events.seen}
        why = 'Container image "nosuch:1" is not present with pull policy of Never'
        assert ("ErrImageNeverPull", why) in told
        assert ("Failed", "Error: ErrImageNeverPull") in told
        assert ("Pulling", f'Pulling image "{IMAGE}"') in told
        assert any(message.startswith(f'Successfully pulled image "{IMAGE}" in') for _, message in told)


async def test_a_pod_that_waits_for_its_image_takes_it_when_it_is_loaded(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        there.run(pod(containers=[{"image": "localhost/late:1", "command": FOREVER}]))
        await until(lambda: "ErrImagePull" in str(there.container()["state"]))
        image = Blueprint([base()], names=["localhost/late:1"], config={"Env": ["PATH=/bin"]})
        late = docker_archive(tmp_path / "late.tar", image)
        await asyncio.to_thread(load, ImageStore(tmp_path / "images"), late)
        await there.phase("Running")
        assert there.events.reasons().count("Pulling") >= 1


async def test_another_loaded_image_restarts_the_container(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        worker = run(there, *FOREVER)
        await there.phase("Running")
        plain = to_dict(worker.view.pod)
        plain["spec"]["containers"][0]["image"] = "busybox:1"
        there.edit(worker, plain)
        await until(lambda: there.container()["restartCount"] == 1 and worker.main[0].program_pid)
        assert there.container()["imageID"].startswith("host://")
        assert os.listdir(tmp_path / "node/pods" / worker.uid / "containers/main").count("root") == 0


async def test_a_redis_from_an_image_answers_on_its_pods_address(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images")
    server = programs("/usr/bin/redis-server")
    config = {"Entrypoint": ["redis-server"], "Cmd": ["--protected-mode", "no"], "Env": ["PATH=/bin"]}
    image = Blueprint([server], names=["redis:from-an-image"], config=config)
    archive = await asyncio.to_thread(docker_archive, tmp_path / "redis.tar", image)
    await asyncio.to_thread(load, store, archive)
    async with Bed(tmp_path / "node", images=store) as there:
        worker = there.run(
            pod(
                containers=[{"image": "redis:from-an-image", "readinessProbe": {"tcpSocket": {"port": 6379}}}]
            )
        )
        await until(lambda: there.condition("Ready")["status"] == "True")
        reader, writer = await asyncio.open_connection(worker.address, 6379)
        writer.write(b"PING\r\n")
        assert await reader.readline() == b"+PONG\r\n"
        writer.close()
        await writer.wait_closed()
        assert there.container()["imageID"] == image.id
