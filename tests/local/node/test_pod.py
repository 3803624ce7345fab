"""Pods as real processes: what they see, how they end, what is said of them."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.object import to_dict
from mooring.local.node.cleanup import leftover_processes
from mooring.local.node.images import exporter_image
from mooring.local.node.logs import read
from mooring.local.node.pod import PodWorker
from mooring.local.node.sandbox import can_become
from mooring.local.node.spawner import Child, Spawn, Spawner

from .bed import Bed, pod, privileged, until

pytestmark = [pytest.mark.embedded, privileged]

FOREVER = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]


def sh(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", script], **more}


async def log_of(worker: PodWorker, *, previous: bool = False) -> str:
    path = worker.main[0].log_path(previous=previous)
    return b"".join([piece async for piece in read(path)]).decode()


async def test_a_redis_pod_answers_on_its_own_address(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        command = {"image": "redis:7.0", "args": ["--protected-mode", "no"]}
        worker = bed.run(pod(containers=[command]))
        await until(lambda: bed.status()["phase"] == "Running")

        async def ping() -> bytes:
            while True:
                try:
                    reader, writer = await asyncio.open_connection(worker.address, 6379)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.005)
                    continue
                writer.write(b"PING\r\n")
                answer = await reader.readline()
                writer.close()
                return answer

        assert await asyncio.wait_for(ping(), 5) == b"+PONG\r\n"
        status = bed.status()
        assert status["podIP"] == worker.address
        assert status["podIPs"] == [{"ip": worker.address}]
        assert bed.container()["imageID"].startswith("host://usr/bin/redis-server@")
        assert "runs this machine's redis-server" in next(m for _, r, m in bed.events.seen if r == "Pulled")


async def test_death_is_reported_at_once_with_the_inner_exit_code(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        took = []
        for name in ("one", "two", "three"):
            worker = bed.run(pod(name, containers=[{"command": FOREVER}], restartPolicy="Never"))
            pid = await until(lambda: worker.main[0].program_pid)  # noqa: B023
            await bed.phase("Running", name)

            loop = asyncio.get_running_loop()
            began = loop.time()
            os.kill(pid, signal.SIGKILL)
            await bed.phase("Failed", name)

            took.append(loop.time() - began)
            end = bed.container(name)["state"]["terminated"]
            assert (end["exitCode"], end["reason"]) == (137, "Error")
        # The best of three: the rest of the machine may be busy.
        assert min(took) < 0.5


async def test_exit_codes_pass_through_the_sandbox(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        bed.run(pod(containers=[sh("exit 3")], restartPolicy="Never"))
        await bed.phase("Failed")
        assert bed.container()["state"]["terminated"]["exitCode"] == 3


async def test_a_completed_pod_succeeds_and_says_so_in_its_conditions(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        bed.run(pod(containers=[sh("echo done > /dev/termination-log")], restartPolicy="OnFailure"))
        await bed.phase("Succeeded")
        end = bed.container()["state"]["terminated"]
        assert (end["reason"], end["message"]) == ("Completed", "done\n")
        assert bed.condition("Ready")["reason"] == "PodCompleted"
        assert bed.condition("Initialized")["status"] == "True"


async def test_the_first_restart_is_immediate_then_the_container_waits_in_back_off(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        worker = bed.run(pod(containers=[sh("echo run; exit 1")]))
        await until(lambda: bed.container()["restartCount"] >= 3)
        assert "CrashLoopBackOff" in str(bed.client.patches)
        assert bed.events.reasons().count("BackOff") >= 1
        assert bed.container()["lastState"]["terminated"]["exitCode"] == 1
        assert bed.status()["phase"] == "Running"
        assert await log_of(worker, previous=True) == "run\n"


async def test_init_containers_run_in_order_before_the_main_ones(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
        worker = bed.run(
            pod(
                initContainers=[
                    {"name": "one", **sh("echo one >> /shared/order", **mount)},
                    {"name": "two", **sh("echo two >> /shared/order", **mount)},
                ],
                containers=[sh("cat /shared/order; sleep 100", **mount)],
                volumes=[{"name": "shared", "emptyDir": {}}],
            )
        )
        await until(lambda: bed.condition("Ready")["status"] == "True")
        await until(lambda: b"two" in worker.main[0].log_path(previous=False).read_bytes())
        assert await log_of(worker) == "one\ntwo\n"
        assert all(status["ready"] for status in bed.status()["initContainerStatuses"])


async def test_a_failing_init_container_of_a_never_pod_fails_the_pod(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        init = [{"name": "one", **sh("exit 4")}]
        bed.run(pod(initContainers=init, containers=[sh("true")], restartPolicy="Never"))
        await bed.phase("Failed")
        assert bed.condition("Initialized")["status"] == "False"


async def test_a_sidecar_starts_before_and_ends_after_the_main_container(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
        sidecar = {
            "name": "side",
            "restartPolicy": "Always",
            "startupProbe": {"exec": {"command": ["test", "-e", "/shared/up"]}, "periodSeconds": 1},
            **sh(
                "trap 'echo side >> /shared/end; exit 0' TERM; touch /shared/up; while :; do sleep 0.05; done"
            ),
            **mount,
        }
        main = sh("test -e /shared/up && sleep 0.1 && echo main >> /shared/end", **mount)
        worker = bed.run(
            pod(
                initContainers=[sidecar],
                containers=[main],
                restartPolicy="Never",
                volumes=[{"name": "shared", "emptyDir": {}}],
            )
        )
        await bed.phase("Succeeded")
        shared = bed.node.pod_directory(worker.uid) / "volumes" / "shared"
        assert (shared / "end").read_text() == "main\nside\n"


async def test_a_deleted_pod_gets_its_pre_stop_hook_sigterm_and_then_leaves_the_api(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        out = tmp_path / "out"
        out.mkdir()
        hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /out/log"]}}}
        script = (
            "trap 'echo term >> /out/log; exit 0' TERM; echo up >> /out/log; while :; do sleep 0.05; done"
        )
        worker = bed.run(
            pod(
                containers=[sh(script, lifecycle=hook, volumeMounts=[{"name": "out", "mountPath": "/out"}])],
                volumes=[{"name": "out", "hostPath": {"path": str(out)}}],
            )
        )
        await until(lambda: (out / "log").read_text() == "up\n")
        bed.delete(worker)
        await until(lambda: bed.client.deleted == ["web"])
        assert (out / "log").read_text() == "up\nhook\nterm\n"
        await until(lambda: not bed.node.pod_directory(worker.uid).exists())
        assert "Killing" in bed.events.reasons()


async def test_a_deaf_container_is_killed_when_its_grace_is_over_even_if_shortened_later(
    tmp_path: Path,
) -> None:
    async with Bed(tmp_path) as bed:
        worker = bed.run(pod(containers=[sh("trap '' TERM; while :; do sleep 0.05; done")]))
        await until(lambda: worker.main[0].program_pid)
        bed.delete(worker, grace=3600)
        await until(lambda: "Killing" in bed.events.reasons())
        bed.delete(worker, grace=0)
        await until(lambda: bed.client.deleted == ["web"])


async def test_readiness_follows_its_probe(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        probe = {"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 1}
        worker = bed.run(pod(containers=[{"command": FOREVER, "readinessProbe": probe}]))
        await bed.phase("Running")
        assert bed.container()["ready"] is False
        assert bed.condition("Ready")["reason"] == "ContainersNotReady"
        await bed.sh(worker, "touch /tmp/ok")
        await until(lambda: bed.condition("Ready")["status"] == "True")
        assert "reason" not in bed.condition("Ready")
        await bed.sh(worker, "rm /tmp/ok")
        await until(lambda: bed.condition("Ready")["status"] == "False")
        assert "Unhealthy" in bed.events.reasons()


async def test_a_failed_liveness_probe_restarts_the_container(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
        bed.run(pod(containers=[{"command": FOREVER, "livenessProbe": probe}]))
        await until(lambda: bed.container()["restartCount"] >= 1)
        assert "will be restarted" in str(bed.events.seen)


async def test_http_and_tcp_probes_ask_the_pods_address(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        script = (
            "printf 'HTTP/1.1 204 No Content\\r\\n\\r\\n' > /tmp/a; while :; do nc -l -p 80 < /tmp/a; done"
        )
        script = script.replace("nc ", "busybox nc ")
        tcp = {"tcpSocket": {"port": "web"}, "periodSeconds": 1}
        http = {"httpGet": {"port": "web", "path": "/healthz"}, "periodSeconds": 1}
        ports = [{"name": "web", "containerPort": 80}]
        bed.run(pod(containers=[sh(script, startupProbe=tcp, readinessProbe=http, ports=ports)]))
        await until(lambda: bed.condition("Ready")["status"] == "True")


async def test_environment_and_command_are_expanded(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        bed.sources.add_config_map("settings", colour="blue", size="3")
        env = [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "BOTH", "value": "$(NAME)-$(colour)-$$(NAME)"},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ]
        worker = bed.run(
            pod(
                containers=[
                    {
                        "command": ["sh", "-c", 'echo "$IP $BOTH $CPUS $1 $PWD"; sleep 100', "sh"],
                        "args": ["$(NAME)"],
                        "env": env,
                        "envFrom": [{"configMapRef": {"name": "settings"}}],
                        "workingDir": "/var/somewhere",
                    }
                ]
            )
        )
        await bed.phase("Running")
        want = f"{worker.address} web-blue-$(NAME) 2 web /var/somewhere\n"
        await until(lambda: b"/var/somewhere" in worker.main[0].log_path(previous=False).read_bytes())
        assert await log_of(worker) == want


async def test_a_missing_config_map_key_is_said_and_waited_for(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        reference = {"configMapKeyRef": {"name": "later", "key": "k"}}
        bed.run(pod(containers=[{"command": FOREVER, "env": [{"name": "K", "valueFrom": reference}]}]))
        waiting = await until(lambda: bed.container()["state"]["waiting"])
        await until(lambda: bed.container()["state"]["waiting"]["reason"] == "CreateContainerConfigError")
        assert 'configmap "later" not found' in bed.container()["state"]["waiting"]["message"], waiting
        bed.sources.add_config_map("later", k="v")
        await until(lambda: bed.status()["phase"] == "Running")


async def test_an_unknown_image_backs_off_and_names_what_the_node_has(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        bed.run(pod(containers=[{"image": "nginx:1"}]))
        await until(lambda: bed.container()["state"]["waiting"]["reason"] == "ErrImagePull")
        message = bed.container()["state"]["waiting"]["message"]
        assert '"nginx:1" is not in this node\'s catalog' in message
        await until(lambda: bed.container()["state"]["waiting"]["reason"] == "ImagePullBackOff")
        assert bed.status()["phase"] == "Pending"


@pytest.mark.parametrize("debian", ["/usr/bin/prometheus-redis-exporter", "/nonexistent"])
async def test_an_exporter_beside_a_redis_serves_its_figures(tmp_path: Path, debian: str) -> None:
    image = exporter_image(Path(debian))
    if image.main[1].package or not os.access(image.main[1].path, os.X_OK):
        pytest.skip("Debian's exporter is not installed")
    async with Bed(tmp_path) as bed:
        bed.node.catalog.images = [image, *bed.node.catalog.images]
        exporter = {
            "name": "exporter",
            "image": "oliver006/redis_exporter:v1.45.0",
            "env": [{"name": "REDIS_ADDR", "value": "redis://localhost:6379"}],
        }
        worker = bed.run(pod(containers=[{"image": "redis:7"}, exporter]))

        async def figures() -> str:
            while True:
                try:
                    reader, writer = await asyncio.open_connection(worker.address or "127.0.0.9", 9121)
                    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                    text = (await reader.read()).decode()
                    writer.close()
                except OSError:
                    text = ""
                if "redis_up 1" in text:
                    return text
                await asyncio.sleep(0.02)

        assert "redis_connected_clients" in await asyncio.wait_for(figures(), 20)


async def test_a_corrected_image_is_taken_without_waiting_for_the_back_off(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        worker = bed.run(pod(containers=[{"image": "nginx:1", "command": FOREVER}]))
        await until(lambda: bed.container()["state"]["waiting"]["reason"] == "ImagePullBackOff")
        plain = to_dict(worker.view.pod)
        for image in ("busybox:1", "alpine:3"):
            plain["spec"]["containers"][0]["image"] = image
            bed.edit(worker, plain)
            await until(lambda image=image: bed.container()["image"] == image and worker.main[0].program_pid)  # type: ignore[misc]
        await until(lambda: bed.container()["restartCount"] == 1)


async def test_a_container_that_gets_another_image_stays_ready_meanwhile(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        worker = bed.run(pod(containers=[{"image": "busybox:1", "command": FOREVER}]))
        await until(lambda: bed.container()["ready"])
        before = len(bed.client.patches)
        plain = to_dict(worker.view.pod)
        plain["spec"]["containers"][0]["image"] = "alpine:3"
        bed.edit(worker, plain)
        await until(lambda: bed.container()["image"] == "alpine:3")
        told = [patch["status"].get("containerStatuses", []) for patch in bed.client.patches[before:]]
        shown = [status for statuses in told for status in statuses]
        assert [(status["ready"], status["restartCount"]) for status in shown] == [(True, 1)]
        assert shown[0]["lastState"]["terminated"]["containerID"]


async def test_a_config_map_volume_follows_its_object_in_one_step(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        bed.sources.add_config_map("c", a="1")
        worker = bed.run(
            pod(
                containers=[
                    {"command": FOREVER, "volumeMounts": [{"name": "c", "mountPath": "/usr/local/etc/redis"}]}
                ],
                volumes=[{"name": "c", "configMap": {"name": "c"}}],
            )
        )
        await bed.phase("Running")
        assert await bed.sh(worker, "cat /usr/local/etc/redis/a") == (0, "1")
        bed.sources.add_config_map("c", a="2", b="3")
        worker.objects_changed()
        await until(lambda: (bed.node.pod_directory(worker.uid) / "volumes/c/b").exists())
        assert await bed.sh(worker, "cat /usr/local/etc/redis/a /usr/local/etc/redis/b") == (0, "23")


async def test_a_successor_on_the_same_volume_waits_for_the_last_process(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        data = tmp_path / "data"
        data.mkdir()
        bed.sources.add_claim("data", data)
        volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
        mounts = [{"name": "d", "mountPath": "/data"}]
        first = bed.run(pod("a", containers=[{"command": FOREVER, "volumeMounts": mounts}], volumes=volumes))
        await bed.phase("Running", "a")
        bed.run(pod("b", containers=[{"command": FOREVER, "volumeMounts": mounts}], volumes=volumes))
        await until(lambda: "still in use" in str(bed.events.seen))
        assert bed.status("b")["phase"] == "Pending"
        bed.client.objects.pop("a")
        first.vanished()
        await bed.phase("Running", "b")
        assert first.ended.is_set() or not first.main[0].running


async def test_a_reader_of_a_claim_runs_beside_its_pod_and_writes_nothing(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        data = tmp_path / "data"
        data.mkdir()
        (data / "rows").write_text("7")
        bed.sources.add_claim("data", data)
        mounts = [{"name": "d", "mountPath": "/data"}]
        for name, source in (("a", {"claimName": "data"}), ("b", {"claimName": "data", "readOnly": True})):
            volumes = [{"name": "d", "persistentVolumeClaim": source}]
            last = bed.run(
                pod(name, containers=[{"command": FOREVER, "volumeMounts": mounts}], volumes=volumes)
            )
            await bed.phase("Running", name)
        assert await bed.sh(last, "cat /data/rows") == (0, "7")
        assert (await bed.sh(last, "echo 8 >/data/rows 2>/dev/null"))[0] != 0
        assert (data / "rows").read_text() == "7"


async def test_a_container_cannot_write_the_machines_files_nor_see_them(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        worker = bed.run(pod(containers=[{"command": FOREVER}]))
        await bed.phase("Running")
        status, _ = await bed.sh(worker, "touch /usr/x 2>/dev/null")
        assert status != 0
        _, text = await bed.sh(worker, "ls /; hostname; ls /proc | grep -c '^[0-9]'")
        words = text.split()
        assert "web" in words
        assert not {"home", "work", "boot"} & set(words)
        assert int(words[-1]) < 10
        status, _ = await bed.sh(worker, "mount -o remount,rw /usr 2>/dev/null")
        assert status != 0


async def test_a_read_only_root_is_read_only_but_its_volumes_are_not(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        worker = bed.run(
            pod(
                containers=[
                    {
                        "command": FOREVER,
                        "securityContext": {"readOnlyRootFilesystem": True},
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ],
                volumes=[{"name": "v", "emptyDir": {}}],
            )
        )
        await bed.phase("Running")
        assert (await bed.sh(worker, "touch /x 2>/dev/null"))[0] != 0
        assert (await bed.sh(worker, "touch /v/x"))[0] == 0


async def test_a_restricted_container_is_its_user_without_any_capability(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        restricted = {"runAsUser": 65532, "runAsGroup": 65532, "capabilities": {"drop": ["ALL"]}}
        script = "id -u; id -g; grep -E '^Cap(Eff|Prm|Inh|Amb)' /proc/self/status | cut -f2 | sort -u"
        deep = [{"name": "v", "mountPath": path} for path in ("/one/two/three", "/var/run/secrets/four")]
        script += "; ls -d /one/two/three /var/run/secrets/four; ls /etc/resolv.conf /etc/hosts"
        container = sh(script, securityContext=restricted, volumeMounts=deep)
        volumes = [{"name": "v", "emptyDir": {}}]
        worker = bed.run(pod(containers=[container], volumes=volumes, restartPolicy="Never"))
        await until(lambda: bed.status()["phase"] == "Succeeded")

        # A plain user's plane has one user only, called 0 there.
        user = "65532" if can_become(65532) else "0"
        seen = [*(m["mountPath"] for m in deep), "/etc/hosts", "/etc/resolv.conf"]
        assert (await log_of(worker)).split() == [user, user, "0" * 16, *seen]


async def test_the_environment_is_not_among_the_arguments_others_can_read(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        env = [{"name": "PASSWORD", "value": "s3cr3t"}]
        worker = bed.run(pod(containers=[{"command": FOREVER, "env": env}]))
        await bed.phase("Running")
        sandbox = worker.main[0].entrance.sandbox
        for pid in (sandbox.init_pid, sandbox.program_pid, sandbox.child.pid):
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: ASYNC230
                assert b"s3cr3t" not in file.read()


async def test_a_restarted_agent_starts_the_containers_again_and_counts_it(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        deaf = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
        worker = bed.run(pod(containers=[{"command": ["sh", "-c", deaf]}]))
        await bed.phase("Running")
        while "deaf" not in await log_of(worker):
            await asyncio.sleep(0.02)
        known = bed.client.objects["web"]
        worker.shut_down(0)
        await worker.ended.wait()
        assert bed.condition("Ready")["status"] == "False"
        bed.run(known)
        await until(lambda: bed.container()["restartCount"] == 1 and bed.status()["phase"] == "Running")
        end = bed.container()["lastState"]["terminated"]
        assert end["exitCode"] == 137


def wait_for_child(pid: int) -> None:
    """Look without pause, so that not a moment is lost, until a process has a child (or ended)."""
    with suppress(OSError):
        while not Path(f"/proc/{pid}/task/{pid}/children").read_text():
            pass


async def test_a_pod_that_ends_while_it_starts_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bed(tmp_path) as bed:
        spawn = bed.spawner.spawn

        async def spawn_and_end(what: Spawn) -> Child:
            """End the pod in the moment in which the outer process has made the inner one."""
            outer = await spawn(what)
            bed.workers[-1].shut_down(0)
            (life,) = [task for task in asyncio.all_tasks() if "_live" in str(task.get_coro())]
            wait_for_child(outer.pid)
            # The inner process waits for the outer one, as on a slow machine.
            os.kill(outer.pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(0.05, os.kill, outer.pid, signal.SIGCONT)
            life.cancel()
            return outer

        monkeypatch.setattr(Spawner, "spawn", lambda _, what: spawn_and_end(what))
        for number in range(10):
            worker = bed.run(pod(f"web-{number}", containers=[{"command": FOREVER}]))
            await asyncio.wait_for(worker.ended.wait(), 20)
        await until(lambda: leftover_processes(tmp_path) == [])


async def test_a_pod_that_waits_sends_no_status_again_and_again(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        worker = bed.run(pod(containers=[{"command": FOREVER}]))
        await until(lambda: bed.condition("Ready")["status"] == "True")
        await until(lambda: not worker._dirty.is_set())
        before = len(bed.client.patches)
        for _ in range(20):
            worker.view.changed()
            await asyncio.sleep(0.002)
        assert len(bed.client.patches) == before


async def test_a_deadline_ends_the_pod(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        bed.run(pod(containers=[{"command": FOREVER}], activeDeadlineSeconds=1))
        await bed.phase("Failed")
        assert bed.status()["reason"] == "DeadlineExceeded"


async def test_containers_of_a_pod_share_the_network_but_not_processes(tmp_path: Path) -> None:
    async with Bed(tmp_path) as bed:
        server = {"name": "server", "image": "redis:7", "args": ["--bind", "127.0.0.1"]}
        client = {"name": "client", **sh("while :; do redis-cli ping; sleep 0.05; done")}
        worker = bed.run(pod(containers=[client, server]))

        async def answered() -> str:
            await bed.phase("Running")
            while "PONG" not in await log_of(worker):
                await asyncio.sleep(0.02)
            return (await bed.sh(worker, "grep -l '[r]edis-server' /proc/*/cmdline 2>/dev/null; true"))[1]

        assert await asyncio.wait_for(answered(), 5) == ""
