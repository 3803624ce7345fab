"""What pods of real charts ask of their node, one behaviour after the other."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.object import decode, to_dict
from mooring.kube.objects.core import ConfigMap, Pod, Secret
from mooring.local.node.logs import read
from mooring.local.node.pod import PodWorker
from mooring.local.node.sandbox import can_become
from mooring.operators.workload.containers import FROM_LOG
from mooring.operators.workload.pods import pod_of

from .bed import Bed, pod, privileged, until

pytestmark = [pytest.mark.embedded, privileged]

FOREVER = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
SCRATCH = [{"name": "v", "emptyDir": {}}]


def sh(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", script], **more}


async def says(there: Bed, *, spec: dict[str, Any] | None = None, **container: Any) -> str:
    """Run a pod to its end; what it wrote."""
    worker = there.run(pod(containers=[container], restartPolicy="Never", **(spec or {})))
    await until(lambda: there.status()["phase"] in ("Succeeded", "Failed"))
    return await log_of(worker)


async def log_of(worker: PodWorker) -> str:
    path = worker.main[0].log_path(previous=False)
    return b"".join([piece async for piece in read(path)]).decode()


def end_of(there: Bed) -> dict[str, Any]:
    found: dict[str, Any] = there.container()["state"]["terminated"]
    return found


# --- ends and their messages


async def test_a_termination_message_is_what_the_program_wrote_there(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        await says(there, **sh("echo last words > /tell; exit 2", terminationMessagePath="/tell"))
        assert (end_of(there)["message"], end_of(there)["exitCode"]) == ("last words\n", 2)


async def test_of_a_termination_message_without_end_its_beginning_is_read(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        # More than any machine's memory, and nothing on the disk.
        endless = "printf begin > /dev/termination-log; truncate -s 8T /dev/termination-log"
        await says(there, **sh(endless))
        found = end_of(there)
    assert found["exitCode"] == 0
    assert found["message"].startswith("begin")
    assert len(found["message"]) == 4096


async def test_a_failed_program_without_a_message_is_quoted_from_its_log(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        await says(there, **sh("echo broken >&2; exit 1", **policy))
        assert end_of(there)["message"] == "broken\n"


async def test_of_a_program_that_keeps_ending_an_operator_quotes_the_line_that_tells(tmp_path: Path) -> None:
    """A panic as Go writes it, after more log than is kept; what fails is a key that an object store does not take."""
    panic = "panic: internal error: bad s3 config: api error SignatureDoesNotMatch: check your key, access_key_id=mine-alone"
    noise = "i=0; while [ $i -lt 200 ]; do echo 2026/11/29 14:00:00.1 +0000 INFO line $i; i=$((i + 1)); done"
    stack = r"\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:121 +0x32a\n"
    container = sh(f"{noise}; printf '%b' '{panic}{stack}' >&2; exit 2", terminationMessagePolicy=FROM_LOG)
    async with Bed(tmp_path) as there:
        there.run(pod(containers=[container], restartPolicy="Always"))

        def waits() -> bool:
            state = there.container().get("state", {})
            return bool(state.get("waiting", {}).get("reason") == "CrashLoopBackOff")

        await until(waits)
        found = decode(
            {"metadata": {"name": "p"}, "spec": {"containers": [container]}, "status": there.status()}, Pod
        )
    name = there.container()["name"]
    made = pod_of(
        found, component=name, claims={}, born=None, remedies={"StorageRefused": "check the Secret"}
    )
    line = panic.replace("mine-alone", "[redacted]")
    assert made.trouble_message == f'the server keeps ending: "{line}"; check the Secret'


async def test_the_log_of_a_success_is_no_message(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        await says(there, **sh("echo fine", terminationMessagePolicy="FallbackToLogsOnError"))
        assert "message" not in end_of(there)


async def test_on_failure_a_container_runs_until_it_succeeds(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        script = "test -e /v/done || { touch /v/done; exit 1; }"
        mounts = [{"name": "v", "mountPath": "/v"}]
        container = sh(script, volumeMounts=mounts)
        there.run(pod(containers=[container], restartPolicy="OnFailure", volumes=SCRATCH))
        await there.phase("Succeeded")
        assert there.container()["restartCount"] == 1
        assert there.container()["lastState"]["terminated"]["exitCode"] == 1


async def test_a_deadline_counts_from_the_pods_start_not_from_the_agents(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        plain = to_dict(pod(containers=[{"command": FOREVER}], activeDeadlineSeconds=3600))
        plain["status"] = {"startTime": "2020-01-01T00:00:00Z", "phase": "Running"}
        there.run(decode(plain, Pod))
        await there.phase("Failed")
        assert there.status()["reason"] == "DeadlineExceeded"


# --- probes and hooks


async def test_a_startup_probe_holds_the_others_back(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        container = sh(
            "sleep 100",
            startupProbe={"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1},
            livenessProbe={"exec": {"command": ["test", "-e", "/tmp/up"]}, "failureThreshold": 1},
        )
        worker = there.run(pod(containers=[container]))
        await there.phase("Running")
        assert there.container()["started"] is False
        await there.sh(worker, "touch /tmp/up")
        await until(lambda: there.container()["started"] is True)
        assert there.container()["restartCount"] == 0


async def test_a_startup_probe_that_never_succeeds_restarts_the_container(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
        there.run(pod(containers=[{"command": FOREVER, "startupProbe": probe}]))
        await until(lambda: there.container()["restartCount"] == 1)
        assert any("failed startup probe, will be restarted" in m for _, _, m in there.events.seen)


async def test_a_probes_own_grace_period_replaces_the_pods(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        probe = {
            "exec": {"command": ["test", "!", "-e", "/tmp/deaf"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
            "terminationGracePeriodSeconds": 1,
        }
        deaf = sh("trap '' TERM; touch /tmp/deaf; while :; do sleep 0.05; done", livenessProbe=probe)
        there.run(pod(containers=[deaf], terminationGracePeriodSeconds=300))
        await until(lambda: there.container()["restartCount"] == 1)
        assert there.container()["lastState"]["terminated"]["exitCode"] == 137


async def test_a_post_start_hook_comes_before_readiness(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        hook = {"postStart": {"exec": {"command": ["sh", "-c", "sleep 0.2; touch /tmp/hooked"]}}}
        worker = there.run(pod(containers=[{"command": FOREVER, "lifecycle": hook}]))
        await until(lambda: there.condition("Ready")["status"] == "True")
        assert (await there.sh(worker, "test -e /tmp/hooked"))[0] == 0


async def test_a_post_start_hook_that_fails_restarts_the_container(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        hook = {"postStart": {"exec": {"command": ["false"]}}}
        there.run(pod(containers=[{"command": FOREVER, "lifecycle": hook}]))
        await until(lambda: there.container()["restartCount"] >= 1)
        assert "FailedPostStartHook" in there.events.reasons()


async def test_a_pre_stop_sleep_delays_the_signal_and_counts_as_grace(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        script = "trap 'date +%s.%N > /v/term; exit 0' TERM; while :; do sleep 0.02; done"
        data = tmp_path / "v"
        data.mkdir()
        volumes = [{"name": "v", "hostPath": {"path": str(data)}}]
        container = sh(
            script,
            lifecycle={"preStop": {"sleep": {"seconds": 1}}},
            volumeMounts=[{"name": "v", "mountPath": "/v"}],
        )
        worker = there.run(pod(containers=[container], volumes=volumes))
        await there.phase("Running")
        loop = asyncio.get_running_loop()
        began = loop.time()
        there.delete(worker)
        await until(lambda: there.client.deleted)
        assert loop.time() - began >= 1
        assert (data / "term").exists()


# --- what a container is given


async def test_every_source_of_variables_works(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        there.sources.add_config_map("c", KEY="config", OTHER="both")
        secret = {"metadata": {"name": "s"}, "data": {"WORD": "c2VjcmV0"}}
        there.sources.secrets["s"] = decode(secret, Secret)
        env = [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "KEY"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "WORD"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "E", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "K", "optional": True}}},
        ]
        sources = [
            {"prefix": "P_", "configMapRef": {"name": "c"}},
            {"secretRef": {"name": "s"}},
            {"configMapRef": {"name": "none", "optional": True}},
        ]
        script = 'echo "$A $B $C $D [${E-unset}] $P_KEY $P_OTHER $WORD"'
        limits = {"limits": {"cpu": "250m"}}
        text = await says(there, **sh(script, env=env, envFrom=sources, resources=limits))
        assert text == "config secret n1 250 [unset] config both secret\n"


async def test_names_and_resolver_are_what_the_pod_asks_for(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        spec = {
            "hostname": "db-0",
            "subdomain": "db",
            "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["a.example", "b.example"]}],
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["192.0.2.53"],
                "searches": ["example"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
            },
        }
        text = await says(there, spec=spec, **sh("hostname; cat /etc/hosts /etc/resolv.conf"))
        assert text.startswith("db-0\n")
        assert "db-0.db.default.svc.cluster.local\tdb-0\n" in text
        assert "192.0.2.7\ta.example\tb.example\n" in text
        assert text.endswith("nameserver 192.0.2.53\nsearch example\noptions ndots:2 edns0\n")


async def test_a_host_name_can_be_the_whole_name(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        spec = {"hostname": "db-0", "subdomain": "db", "setHostnameAsFQDN": True}
        full = "db-0.db.default.svc.cluster.local"
        text = await says(there, spec=spec, **sh("hostname; echo $HOSTNAME; cat /etc/hostname"))
        assert text.split() == [full] * 3


async def test_a_whole_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        there.run(
            pod(containers=[{"command": FOREVER}], hostname="h" * 50, subdomain="db", setHostnameAsFQDN=True)
        )
        await until(lambda: "is too long (64 characters is the max" in str(there.events.seen))
        assert "FailedCreatePodSandBox" in there.events.reasons()


async def test_a_pod_on_the_hosts_network_has_its_address_and_resolver(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        worker = there.run(pod(containers=[{"command": FOREVER}], hostNetwork=True))
        await there.phase("Running")
        assert there.status()["podIP"] == there.status()["hostIP"] == str(there.node.address)
        _, inside = await there.sh(worker, "readlink /proc/self/ns/net")
        assert inside.strip() == os.readlink("/proc/self/ns/net")


async def test_shared_processes_are_said_not_to_be(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        there.run(pod(containers=[{"command": FOREVER}], shareProcessNamespace=True))
        await there.phase("Running")
        told = [message for _, reason, message in there.events.seen if reason == "NotSupported"]
        assert len(told) == 1
        assert told[0].startswith("shareProcessNamespace: without effect")


# --- volumes


async def test_sub_paths_are_directories_of_a_volume_also_by_expression(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        mounts = [
            {"name": "v", "mountPath": "/all"},
            {"name": "v", "mountPath": "/one", "subPath": "deep/one"},
            {"name": "v", "mountPath": "/mine", "subPathExpr": "of-$(NAME)"},
        ]
        env = [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        script = "touch /one/a /mine/b && cd /all && find . -type f | sort"
        text = await says(there, spec={"volumes": SCRATCH}, **sh(script, volumeMounts=mounts, env=env))
        assert text.split() == ["./deep/one/a", "./of-web/b"]


async def test_a_sub_path_of_a_config_map_stays_while_its_volume_follows(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        there.sources.add_config_map("c", k="1")
        mounts = [
            {"name": "c", "mountPath": "/c"},
            {"name": "c", "mountPath": "/file", "subPath": "k"},
        ]
        volumes = [{"name": "c", "configMap": {"name": "c"}}]
        worker = there.run(pod(containers=[{"command": FOREVER, "volumeMounts": mounts}], volumes=volumes))
        await there.phase("Running")
        there.sources.add_config_map("c", k="2")
        worker.objects_changed()
        while await there.sh(worker, "cat /c/k") != (0, "2"):
            await asyncio.sleep(0.01)
        assert await there.sh(worker, "cat /file") == (0, "1")


async def test_downward_and_projected_volumes_follow_the_pods_labels(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
        volumes = [
            {"name": "d", "downwardAPI": {"items": items}},
            {"name": "p", "projected": {"sources": [{"downwardAPI": {"items": items}}]}},
        ]
        mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("d", "p")]
        worker = there.run(pod(containers=[{"command": FOREVER, "volumeMounts": mounts}], volumes=volumes))
        await there.phase("Running")
        plain = to_dict(worker.view.pod)
        plain["metadata"]["labels"] = {"color": "blue"}
        there.edit(worker, plain)
        while await there.sh(worker, "cat /d/labels /p/labels") != (0, 'color="blue"color="blue"'):
            await asyncio.sleep(0.01)


async def test_what_changed_while_the_status_was_reported_reaches_the_pod(tmp_path: Path) -> None:
    """The answer to a report has it already, so that the watch tells no difference."""
    async with Bed(tmp_path) as there:
        items = [{"path": "order", "fieldRef": {"fieldPath": "metadata.annotations['order']"}}]
        container = {
            "command": FOREVER,
            "volumeMounts": [{"name": "d", "mountPath": "/d"}],
            "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
        }
        worker = there.run(
            pod(containers=[container], volumes=[{"name": "d", "downwardAPI": {"items": items}}])
        )
        await there.phase("Running")
        plain = to_dict(there.client.objects["web"])
        plain["metadata"]["annotations"] = {"order": "start"}
        there.client.objects["web"] = decode(plain, Pod)
        assert await there.sh(worker, "touch /tmp/ready") == (0, "")
        await until(lambda: there.condition("Ready")["status"] == "True")
        worker.update(there.client.objects["web"])

        read, until_then = (0, ""), asyncio.get_running_loop().time() + 10
        while read != (0, "start") and asyncio.get_running_loop().time() < until_then:
            read = await there.sh(worker, "cat /d/order")
        assert read == (0, "start")


async def test_what_changes_while_volumes_are_made_reaches_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bed(tmp_path) as there:
        there.sources.add_config_map("c", k="1")
        loop, read, changed = asyncio.get_running_loop(), there.sources.config_map, threading.Event()

        def change() -> None:
            worker.objects_changed()
            changed.set()

        def then_changed(namespace: str, name: str) -> ConfigMap | None:
            found = read(namespace, name)
            if not changed.is_set():
                there.sources.add_config_map("c", k="2")
                loop.call_soon_threadsafe(change)
                changed.wait(10)
            return found

        monkeypatch.setattr(there.sources, "config_map", then_changed)
        container = {"command": FOREVER, "volumeMounts": [{"name": "c", "mountPath": "/c"}]}
        worker = there.run(pod(containers=[container], volumes=[{"name": "c", "configMap": {"name": "c"}}]))
        await there.phase("Running")

        assert await there.sh(worker, "cat /c/k") == (0, "2")


# --- rights


@pytest.mark.skipif(not can_become(1001), reason="only one user exists here")
async def test_users_groups_and_what_the_group_of_volumes_may(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        spec = {
            "volumes": SCRATCH,
            "securityContext": {
                "runAsUser": 1001,
                "runAsGroup": 1002,
                "fsGroup": 1003,
                "supplementalGroups": [1004],
            },
        }
        script = "id -u; id -g; id -G; touch /v/x && stat -c %g /v/x; stat -c %a /v"
        text = await says(there, spec=spec, **sh(script, volumeMounts=[{"name": "v", "mountPath": "/v"}]))
        uid, gid, groups, owner, mode = text.splitlines()
        assert (uid, gid, set(groups.split())) == ("1001", "1002", {"1002", "1003", "1004"})
        assert (owner, mode) == ("1003", "2777")


async def test_root_is_refused_where_the_pod_forbids_it(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        context = {"runAsNonRoot": True}
        there.run(pod(containers=[{"command": FOREVER, "securityContext": context}]))
        await until(lambda: there.container()["state"]["waiting"]["reason"] == "CreateContainerConfigError")
        assert "image will run as root" in there.container()["state"]["waiting"]["message"]


async def test_capabilities_are_dropped_and_added(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        change = {"drop": ["ALL"], "add": ["CHOWN", "CAP_NET_ADMIN"]}
        script = "grep CapEff /proc/self/status | cut -f2"
        text = await says(there, **sh(script, securityContext={"capabilities": change}))
        assert int(text, 16) == 1 << 0 | 1 << 12


# --- sidecars


async def test_a_sidecar_that_ends_is_started_again_and_the_pod_completes(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        sidecar = sh(
            "test -e /v/once && { touch /v/again; exec sleep 100; }; touch /v/once; exit 1", name="side"
        )
        main = sh("until test -e /v/again; do sleep 0.02; done")
        for each in (sidecar, main):
            each["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        sidecar["restartPolicy"] = "Always"
        there.run(pod(containers=[main], initContainers=[sidecar], restartPolicy="Never", volumes=SCRATCH))
        await there.phase("Succeeded")
        (status,) = there.status()["initContainerStatuses"]
        assert status["restartCount"] >= 1


async def test_a_deadline_that_is_set_while_the_pod_runs_ends_it(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        worker = there.run(pod(containers=[{"command": FOREVER}], activeDeadlineSeconds=3600))
        await until(lambda: there.condition("Ready")["status"] == "True" and not worker._dirty.is_set())
        plain = to_dict(worker.view.pod)
        plain["spec"]["activeDeadlineSeconds"] = 1
        there.edit(worker, plain)
        await there.phase("Failed")
        assert there.status()["reason"] == "DeadlineExceeded"


async def test_variables_have_names_that_no_shell_knows(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        env = [{"name": "data-1", "value": "one"}, {"name": "BASH_ENV", "value": "/no/such/file"}]
        text = await says(there, command=["/usr/bin/env"], env=env)
        assert "data-1=one\n" in text
        assert "BASH_ENV=/no/such/file\n" in text


async def test_the_hosts_file_begins_as_a_kubelets_does(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        text = await says(there, **sh("cat /etc/hosts"))
        assert text.startswith("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")


async def test_containers_wait_for_the_initialisation_of_the_pod(tmp_path: Path) -> None:
    async with Bed(tmp_path) as there:
        there.run(pod(containers=[sh("true")], initContainers=[{"name": "i", **sh("sleep 3600")}]))
        await until(lambda: "running" in there.status()["initContainerStatuses"][0]["state"])
        assert there.container()["state"]["waiting"]["reason"] == "PodInitializing"
