"""kubectl against ``mooring up``: what people type, and what they see; and requests nobody should send."""

from __future__ import annotations

import asyncio
import io
import json
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from tests.cli.program import ROOT, Running, needs_kubectl, ourselves, temporary, until
from tests.local.node.imaging import Blueprint, docker_archive, programs

from mooring.local.directory import DataDirectory

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module")]

EXAMPLE = str(ROOT / "examples" / "redis-sentinel.yaml")
MANIFEST = Path(EXAMPLE).read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[Running]:
    """A plane, for all tests here."""
    with temporary() as home:
        async with ourselves(home).up(home / "data") as running:
            yield running
            assert "Traceback" not in running.said()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(plane: Running) -> Running:
    """The same with the example's cluster, declared and awaited with kubectl."""
    (await plane.kubectl("apply", "-f", EXAMPLE)).fine()
    condition = "--for=jsonpath={.status.conditions[0].type}=Healthy"
    (await plane.kubectl("wait", "rediscluster/demo", condition, "--timeout=60s", seconds=70)).fine()
    return plane


@needs_kubectl
async def test_a_cluster_shows_size_status_age_and_reason(demo: Running) -> None:
    shown = (await demo.kubectl("get", "rediscluster")).fine().splitlines()

    assert shown[0].split() == ["NAME", "SIZE", "STATUS", "AGE", "READY", "REASON"]
    row = shown[1].split()
    assert [*row[:3], row[4]] == ["demo", "3", "Healthy", "True"]


@needs_kubectl
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("get all", "statefulset.apps/redis-cluster-demo"),
        ("get pods -o wide", "redis-cluster-demo-0"),
        ("describe rediscluster demo", "API Version:  redis.kun/v1beta1"),
        ("describe pod redis-cluster-demo-0", "Successfully assigned default/redis-cluster-demo-0"),
        ("describe node", "MemoryPressure"),
        ("logs redis-cluster-demo-0 -c redis", "Ready to accept connections"),
        ("explain rediscluster.spec.sentinel", "FIELD: sentinel <Object>"),
        ("explain pod.spec.containers", "FIELD: containers"),
        ("api-resources", "redisclusters"),
        ("api-versions", "redis.kun/v1beta1"),
        ("events", "RedisCluster/demo"),
        ("auth can-i create pods", "yes"),
        ("version", "Server Version: v1.36"),
        ("label rediscluster demo tier=cache", "rediscluster.redis.kun/demo labeled"),
        ("annotate rediscluster demo note=here", "rediscluster.redis.kun/demo annotated"),
    ],
)
async def test_a_command_shows_what_people_expect(demo: Running, command: str, words: str) -> None:
    assert words in (await demo.kubectl(*command.split())).fine()


@needs_kubectl
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("debug redis-cluster-demo-0 --image=busybox", "ephemeral containers are not supported"),
        ("get nonsense", 'the server doesn\'t have a resource type "nonsense"'),
        ("get rediscluster absent", 'redisclusters.redis.kun "absent" not found'),
        ("exec absent -- true", 'pods "absent" not found'),
        ("logs redis-cluster-demo-0 -c absent", "container absent is not valid"),
    ],
)
async def test_a_refusal_is_clear(demo: Running, command: str, words: str) -> None:
    done = await demo.kubectl(*command.split())

    assert done.status == 1
    assert words in done.err


@needs_kubectl
async def test_what_is_applied_can_be_compared_changed_and_edited(demo: Running, tmp_path: Path) -> None:
    changed, editor = tmp_path / "changed.yaml", tmp_path / "editor"
    changed.write_text(MANIFEST.replace("128mb", "96mb"))
    editor.write_text('#!/bin/sh\nsed -i s/noeviction/allkeys-lru/ "$1"\n')
    editor.chmod(0o755)

    assert (await demo.kubectl("diff", "-f", EXAMPLE)).status == 0
    diff = await demo.kubectl("diff", "-f", str(changed))
    assert diff.status == 1
    assert "+    maxmemory: 96mb" in diff.out
    done = await demo.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(changed))
    assert "serverside-applied" in done.fine()
    edit = await demo.program.other(
        "kubectl", "edit", "rediscluster", "demo", KUBECONFIG=str(demo.kubeconfig), EDITOR=str(editor)
    )
    assert "edited" in edit.fine()

    live = await demo.kubectl("get", "rediscluster", "demo", "-o", "jsonpath={.spec.config}")
    assert json.loads(live.fine()) == {"maxmemory": "96mb", "maxmemory-policy": "allkeys-lru"}


BACKUP = """
apiVersion: redis.mooring.dev/v1alpha1
kind: RedisBackup
metadata: {name: NAME}
spec: {cluster: {name: demo}, target: TARGET}
"""
STUCK = {
    "directory": ("{directory: {path: /nowhere}}", "needs /nowhere on the node"),
    "volume": ("{claim: {name: redis-data-redis-cluster-demo-0}}", "is still in use by another pod"),
}


@needs_kubectl
@pytest.mark.parametrize("name", STUCK)
async def test_why_names_what_keeps_the_pod_of_a_backup_from_starting(demo: Running, name: str) -> None:
    target, cause = STUCK[name]
    manifest = BACKUP.replace("NAME", name).replace("TARGET", target)
    said = ""

    async def named() -> bool:
        nonlocal said
        said = (await demo.program.run("why", f"rbk/{name}", "--kubeconfig", demo.kubeconfig)).text
        return cause in said

    (await demo.kubectl("apply", "-f", "-", text=manifest)).fine()
    try:
        await until(named, "the cause is named", within=30, every=0.5)
    finally:
        (await demo.kubectl("delete", "rbk", name)).fine()
    lines = said.splitlines()
    assert lines[1].startswith("  Cause: ")
    assert lines[2].startswith("  Next: ")
    assert "SERVE" not in said


@needs_kubectl
async def test_files_go_into_a_pod_and_back(demo: Running, tmp_path: Path) -> None:
    (await demo.kubectl("cp", EXAMPLE, "redis-cluster-demo-0:/tmp/there.yaml")).fine()
    (await demo.kubectl("cp", "redis-cluster-demo-0:/tmp/there.yaml", str(tmp_path / "back.yaml"))).fine()

    assert (tmp_path / "back.yaml").read_text() == MANIFEST


@needs_kubectl
async def test_what_pods_and_nodes_use_is_shown(demo: Running) -> None:
    async def lines(*command: str) -> list[str]:
        done = await demo.kubectl("top", *command, "--no-headers")
        return done.out.splitlines() if done.status == 0 else []

    async with asyncio.timeout(45):
        while not await lines("pod", "redis-cluster-demo-0", "--containers"):
            await asyncio.sleep(0.2)
    assert any(line.startswith("redis-cluster-demo-0") for line in await lines("pods"))
    assert len(await lines("nodes")) == 1


@needs_kubectl
async def test_a_pod_is_run_attached_to_and_gone_with_its_programs_status(demo: Running) -> None:
    run = ("run", "-i", "--rm", "--restart=Never", "--image=busybox", "--quiet", "asked", "--", "sh", "-c")
    done = await demo.kubectl(*run, 'read -r line; echo "got $line"; exit 3', text="words\n")

    assert (done.status, done.out) == (3, "got words\n")
    assert (await demo.kubectl("get", "pod", "asked")).status == 1

    (
        await demo.kubectl(
            "run", "talker", "--image=busybox", "--", "sh", "-c", "while sleep 0.1; do echo tick; done"
        )
    ).fine()
    (await demo.kubectl("wait", "--for=condition=Ready", "pod/talker", "--timeout=30s")).fine()
    listen = "timeout 30 kubectl attach talker | grep -m 1 tick"
    attached = await demo.program.other("sh", "-c", listen, KUBECONFIG=str(demo.kubeconfig))
    assert attached.out == "tick\n"
    (await demo.kubectl("delete", "pod", "talker", "--now")).fine()


@needs_kubectl
async def test_an_image_is_loaded_into_a_running_plane_and_used(demo: Running, tmp_path: Path) -> None:
    config = {"Entrypoint": ["redis-cli"], "Env": ["PATH=/bin"]}
    image = Blueprint([programs("/usr/bin/redis-cli")], names=["localhost/asker:1"], config=config)
    archive = docker_archive(tmp_path / "asker.tar", image)
    where = ("--data-dir", demo.directory)
    assert "localhost/asker:1" in (await demo.program.run("image", "load", archive, *where)).fine()

    run = ("run", "asker", "--image=localhost/asker:1", "--restart=Never", "--", "--version")
    (await demo.kubectl(*run)).fine()
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    (await demo.kubectl("wait", ended, "pod/asker", "--timeout=30s")).fine()
    assert "redis-cli" in (await demo.kubectl("logs", "asker")).fine()
    shown = await demo.kubectl("get", "pod", "asker", "-o", "jsonpath={.status.containerStatuses[0].imageID}")
    assert shown.fine() == image.id
    (await demo.kubectl("delete", "pod", "asker", "--now")).fine()
    assert "removed layer" in (await demo.program.run("image", "remove", "localhost/asker:1", *where)).fine()


@needs_kubectl
async def test_a_command_in_a_pod_has_input_status_and_terminal(demo: Running) -> None:
    pod = ("exec", "-i", "redis-cluster-demo-0", "--")
    assert (await demo.kubectl(*pod, "cat", text="through")).fine() == "through"
    assert (await demo.kubectl(*pod, "sh", "-c", "exit 7")).status == 7

    master, slave = os.openpty()
    try:
        script = "test -t 0 && test -t 1 && stty size >/dev/null && echo a terminal"
        command = ["kubectl", "exec", "-it", "redis-cluster-demo-0", "--", "sh", "-c", script]
        env = {**demo.program.env, "KUBECONFIG": str(demo.kubeconfig)}
        process = await asyncio.create_subprocess_exec(
            *command, stdin=slave, stdout=slave, stderr=slave, env=env
        )
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert b"a terminal" in os.read(master, 4096)
    finally:
        os.close(slave)
        os.close(master)


@needs_kubectl
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("logs -f --tail=1 redis-cluster-demo-0", b"*"),
        ("get pods --watch", b"redis-cluster-demo-0"),
        ("port-forward pod/redis-cluster-demo-0 :6379", b"Forwarding from 127.0.0.1"),
    ],
)
async def test_what_goes_on_begins_at_once_and_goes_on(demo: Running, command: str, words: bytes) -> None:
    env = {**demo.program.env, "KUBECONFIG": str(demo.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        "kubectl", *command.split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    try:
        assert process.stdout is not None
        assert words in await asyncio.wait_for(process.stdout.readline(), 20) + (
            await asyncio.wait_for(process.stdout.readline(), 20) if command.startswith("get") else b""
        )
        assert process.returncode is None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@needs_kubectl
async def test_a_deployment_rolls_scales_and_goes(demo: Running) -> None:
    rollout = ("rollout", "status", "deployment/web", "--timeout=30s")
    (await demo.kubectl("create", "deployment", "web", "--image=redis:7.0", "--replicas=2")).fine()
    assert "successfully rolled out" in (await demo.kubectl(*rollout)).fine()
    (await demo.kubectl("scale", "deployment/web", "--replicas=1")).fine()
    (await demo.kubectl("rollout", "restart", "deployment/web")).fine()
    assert "successfully rolled out" in (await demo.kubectl(*rollout)).fine()
    (await demo.kubectl("delete", "deployment", "web", "--wait")).fine()

    async def gone() -> bool:
        return (await demo.kubectl("get", "pods", "-l", "app=web", "-o", "name")).fine() == ""

    await until(gone, "the pods go too", within=30, every=0.2)


# --- requests nobody should send

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def ask(
    plane: Running, method: str, path: str, *, body: bytes = b"", **headers: str
) -> tuple[int, str]:
    """One raw request over HTTPS; the status and the body."""
    config = (await asyncio.to_thread(plane.kubeconfig.read_text)).split("server: ")[1].split()[0]
    authority = DataDirectory(plane.directory).certificates / "ca.crt"
    context = ssl.create_default_context(cafile=str(authority))
    sent = {"Authorization": f"Bearer {DataDirectory(plane.directory).token()}", **headers}
    sent = {name.replace("_", "-"): value for name, value in sent.items() if value}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method,
            f"{config}{path}",
            data=io.BytesIO(body) if body else None,
            headers=sent,
            ssl=context,
            allow_redirects=False,
        ) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", CONFIG_MAPS, b"{not json", {"Content_Type": "application/json"}, 400),
        ("POST", CONFIG_MAPS, b"[1]", {"Content_Type": "application/json"}, 400),
        ("POST", CONFIG_MAPS, b"\xff\xfe", {"Content_Type": "application/json"}, 400),
        ("POST", CONFIG_MAPS, b"[" * 100_000, {"Content_Type": "application/json"}, 400),
        ("POST", CONFIG_MAPS, b"{}", {"Content_Type": "text/html"}, 415),
        ("PATCH", f"{CONFIG_MAPS}/a", b"{}", {"Content_Type": "application/json"}, 415),
        ("POST", CONFIG_MAPS, b" " * 4_000_000, {"Content_Type": "application/json"}, 413),
        ("GET", "/api/v1/nonsense", b"", {}, 404),
        ("GET", "/apis/nobody.example/v1/things", b"", {}, 404),
        ("GET", "/api/v1/namespaces/default/configmaps/../../secrets", b"", {}, 404),
        ("GET", "/api/v1/namespaces/%2e%2e%2f%2e%2e/pods/%00", b"", {}, 404),
        ("DELETE", "/api/v1", b"", {}, 405),
        ("PUT", CONFIG_MAPS, b"{}", {"Content_Type": "application/json"}, 405),
        ("GET", CONFIG_MAPS, b"", {"Authorization": ""}, 403),
        ("GET", CONFIG_MAPS, b"", {"Authorization": "Bearer wrong"}, 401),
        ("GET", f"{CONFIG_MAPS}?limit=x", b"", {}, 400),
        ("GET", f"{CONFIG_MAPS}?labelSelector=%2C%2C(", b"", {}, 400),
    ],
)
async def test_a_broken_request_gets_a_status(
    plane: Running, method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    found, text = await ask(plane, method, path, body=body, **headers)

    assert "Traceback" not in text
    assert found in ((status, 403) if ".." in path or "%2e" in path else (status,)), text[:300]
    if text.startswith("{"):
        assert json.loads(text)["kind"] == "Status"
    assert (await ask(plane, "GET", "/readyz"))[0] == 200
