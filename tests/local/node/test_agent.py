"""The node agent against the embedded API server: what a user would see."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.client import Client
from mooring.kube.object import Key, decode, to_dict
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import ConfigMap, Node, Pod, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.kube.objects.events import Event
from mooring.kube.patches import MergePatch, StrategicMergePatch
from mooring.local.api import ApiServer
from mooring.local.node.agent import NodeAgent
from mooring.local.node.cleanup import leftover_processes, plane_id
from mooring.local.node.images import Catalog
from mooring.local.node.imagestore import ImageStore
from mooring.local.node.loading import load
from mooring.local.node.node import Settings
from mooring.local.node.volumes import memory_directory
from mooring.runtime.process import Manager

from .bed import network_config, privileged, until
from .imaging import Blueprint, docker_archive, file, layer

pytestmark = [pytest.mark.embedded, privileged]

FOREVER = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
MEMORY = {"volumeMounts": [{"name": "m", "mountPath": "/m"}]}


class Bed:
    """An API server with a node agent on it."""

    def __init__(self, client: Client, manager: Manager, agent: NodeAgent) -> None:
        self.client, self.manager, self.agent = client, manager, agent
        self.pods = manager.informers.of(Pod)

    async def pod(self, name: str, *containers: dict[str, Any], node: str = "n1", **spec: Any) -> None:
        for container in containers:
            container.setdefault("name", "main")
            container.setdefault("image", "busybox:1")
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": list(containers), **spec}
        meta = {"name": name, "namespace": "default", "labels": {"app": name}}
        await self.client.create(decode({"metadata": meta, "spec": spec}, Pod))

    def status(self, name: str) -> dict[str, Any]:
        found = self.pods.get(Key("default", name))
        return to_dict(found.status) if found is not None and found.status is not None else {}

    async def ready(self, name: str) -> None:
        def holds() -> bool:
            conditions = {c["type"]: c["status"] for c in self.status(name).get("conditions", [])}
            return conditions.get("Ready") == "True"

        await until(holds)

    async def exec(self, name: str, *command: str, **options: Any) -> tuple[int, str]:
        seen: list[bytes] = []

        async def write(data: bytes) -> None:
            seen.append(data)

        both = {"stdin": None, "stdout": write, "stderr": write, "tty": False, "resize": None} | options
        status = await self.agent.gateway.exec("default", name, "", command, **both)
        return status, b"".join(seen).decode()

    async def log(self, name: str, **options: Any) -> str:
        given: dict[str, Any] = {
            "follow": False,
            "previous": False,
            "tail_lines": None,
            "since": None,
            "limit_bytes": None,
            "timestamps": False,
        }
        pieces = self.agent.gateway.logs("default", name, "", **(given | options))
        return b"".join([piece async for piece in pieces]).decode()


@asynccontextmanager
async def agent_on(
    client: Client,
    directory: Path,
    *names: str,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
) -> AsyncIterator[Bed]:
    manager = Manager(client, name="node")
    config = network_config(plane_id(directory))
    agent = NodeAgent(
        manager,
        data_dir=directory,
        names=names or ("n1",),
        catalog=catalog,
        pod_cidr=config.pod_cidr,
        service_cidr=config.service_cidr,
        dns_address=config.dns_address,
        settings=settings or Settings(crash_backoff_initial=0.1, crash_backoff_cap=0.5, force_grace=0.1),
    )
    await agent.start()
    running = asyncio.create_task(manager.run())
    try:
        await manager.leading.wait()
        yield Bed(client, manager, agent)
    finally:
        await agent.stop()
        manager.stop()
        await running


@asynccontextmanager
async def bed(directory: Path, *names: str) -> AsyncIterator[Bed]:
    services = str(network_config(plane_id(directory)).service_cidr)
    async with (
        ApiServer.in_memory(service_range=services) as api,
        agent_on(Client(api.transport()), directory, *names) as made,
    ):
        yield made


async def test_the_nodes_register_with_capacity_conditions_and_leases(tmp_path: Path) -> None:
    async with bed(tmp_path, "n1", "n2") as there:
        for name in ("n1", "n2"):
            node = to_dict(await there.client.get(Node, name))
            assert node["metadata"]["labels"]["kubernetes.io/hostname"] == name
            assert int(node["status"]["capacity"]["cpu"]) == os.cpu_count()
            ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
            assert ready["status"] == "True"
            assert "limits" in node["metadata"]["annotations"]["mooring.dev/limits"]
            lease = await there.client.get(Lease, name, namespace="kube-node-lease")
            assert lease.spec is not None
            assert lease.spec.holder_identity == name


async def test_a_pod_runs_is_ready_and_its_events_tell_the_story(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("cache", {"image": "redis:7", "readinessProbe": {"tcpSocket": {"port": 6379}}})
        await there.ready("cache")
        assert await there.exec("cache", "redis-cli", "ping") == (0, "PONG\n")

        async def reasons() -> set[str]:
            events = await there.client.list(Event, namespace="default")
            return {event.reason or "" for event in events.items}

        while not {"Pulled", "Created", "Started"} <= await reasons():
            await asyncio.sleep(0.01)


async def test_what_pods_are_given_is_open_to_them_and_to_nobody_else_here(tmp_path: Path) -> None:
    async with bed(tmp_path / "node") as there:
        await there.pod(
            "careful",
            {
                "image": "redis:7",
                "securityContext": {"runAsUser": 65534},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            },
            volumes=[{"name": "scratch", "emptyDir": {}}],
        )
        await there.ready("careful")
        assert await there.exec("careful", "sh", "-c", "echo ours >/scratch/a && cat /scratch/a") == (
            0,
            "ours\n",
        )
        assert there.agent.data_dir.stat().st_mode & 0o077 == 0


async def test_a_killed_program_is_reported_at_once(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        loop = asyncio.get_running_loop()
        failed: dict[str, float] = {}

        def watch(change: Any) -> None:
            if change.new is not None and change.new.status and change.new.status.phase == "Failed":
                failed.setdefault(change.key.name, loop.time())

        there.pods.add_handler(watch)
        took, beside = [], []
        for name in ("one", "two", "three", "four", "five"):
            await there.pod(name, {"command": FOREVER}, restartPolicy="Never")
            await there.ready(name)
            began = loop.time()
            await there.exec(name, "true")
            beside.append(loop.time() - began)
            began = loop.time()
            os.kill(there.agent.program_pid("default", name), signal.SIGKILL)
            await until(lambda: name in failed)  # noqa: B023
            took.append(failed[name] - began)
        # Beside what starting a program in the pod takes just then, since the rest of the machine may be busy.
        assert min(took) < max(0.05, 3 * min(beside))


async def test_a_deleted_pod_ends_and_leaves_the_api(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER})
        await there.ready("web")
        await there.client.delete(Pod, "web", namespace="default")
        await until(lambda: there.pods.get(Key("default", "web")) is None)
        await until(lambda: there.agent.worker(Key("default", "web")) is None)
        await until(lambda: os.listdir(tmp_path / "pods") == [])


async def test_a_forced_deletion_and_a_successor_of_the_same_name(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER})
        await there.ready("web")
        old = there.agent.program_pid("default", "web")
        await there.client.delete(Pod, "web", namespace="default", grace_period=0)
        await there.pod("web", {"command": FOREVER})
        await until(lambda: there.agent.program_pid("default", "web") != old)
        await until(lambda: not os.path.exists(f"/proc/{old}"))
        await there.ready("web")


async def test_services_and_names_lead_to_ready_pods(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("cache", {"image": "redis:7", "args": ["--protected-mode", "no"]}, subdomain="db")
        await there.pod("client", {"command": FOREVER})
        await there.ready("cache")
        await there.ready("client")
        virtual = str(there.agent.network.config.service_cidr[99])
        spec = {"clusterIP": virtual, "ports": [{"name": "redis", "port": 6379}]}
        service = {"metadata": {"name": "db", "namespace": "default"}, "spec": spec}
        address = str(there.agent.pod_address("default", "cache"))
        meta = {"name": "db-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "db"}}
        slice_ = {
            "metadata": meta,
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "hostname": "cache"}],
            "ports": [{"name": "redis", "port": 6379, "protocol": "TCP"}],
        }
        await there.client.create(decode(slice_, EndpointSlice))
        await there.client.create(decode(service, Service))

        async def answered(host: str) -> bool:
            status, text = await there.exec("client", "timeout", "2", "redis-cli", "-h", host, "ping")
            return (status, text) == (0, "PONG\n")

        for host in (virtual, "db", "db.default.svc.cluster.local"):
            while not await answered(host):
                await asyncio.sleep(0.02)


async def test_host_ports_and_node_ports_lead_from_the_nodes_address_to_the_pod(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        ports = [{"containerPort": 6379, "hostPort": 16379}]
        await there.pod("cache", {"image": "redis:7", "args": ["--protected-mode", "no"], "ports": ports})
        await there.pod("client", {"command": FOREVER})
        await there.ready("cache")
        await there.ready("client")
        meta = {"name": "db-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "db"}}
        slice_ = {
            "metadata": meta,
            "addressType": "IPv4",
            "endpoints": [{"addresses": [str(there.agent.pod_address("default", "cache"))]}],
            "ports": [{"port": 6379, "protocol": "TCP"}],
        }
        await there.client.create(decode(slice_, EndpointSlice))
        spec = {"type": "NodePort", "ports": [{"port": 6379, "nodePort": 31679}]}
        service = {"metadata": {"name": "db", "namespace": "default"}, "spec": spec}
        await there.client.create(decode(service, Service))
        node = there.status("cache")["hostIP"]

        async def from_the_machine(port: int) -> bool:
            try:
                reader, writer = await asyncio.open_connection(node, port)
                writer.write(b"PING\r\n")
                answer = await reader.readline()
                writer.close()
                await writer.wait_closed()
            except OSError:
                return False
            return answer == b"+PONG\r\n"

        async def from_a_pod(port: int) -> bool:
            command = ("timeout", "2", "redis-cli", "-h", node, "-p", str(port), "ping")
            return await there.exec("client", *command) == (0, "PONG\n")

        for port in (16379, 31679):
            for ask in (from_the_machine, from_a_pod):
                while not await ask(port):
                    await asyncio.sleep(0.02)
        await there.client.delete(Pod, "cache", namespace="default", grace_period=0)
        while await from_the_machine(16379):
            await asyncio.sleep(0.02)


async def test_a_host_port_takes_no_port_from_a_program_of_the_machine(tmp_path: Path) -> None:
    def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"the machine's")
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    taken = server.sockets[0].getsockname()[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with server, bed(tmp_path) as there:
        ports = [
            {"containerPort": 6379, "hostPort": number, "hostIP": "127.0.0.1", "name": f"p{number}"}
            for number in (taken, port)
        ]
        await there.pod("cache", {"image": "redis:7", "args": ["--protected-mode", "no"], "ports": ports})
        await there.ready("cache")

        node = there.status("cache")["hostIP"]

        async def answer(number: int) -> bytes:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", number, local_addr=(node, 0))
                writer.write(b"PING\r\n")
                found = await reader.read(20)
            except OSError:  # also of a connection that ends with the pod
                return b""
            writer.close()
            return found

        while await answer(port) != b"+PONG\r\n":
            await asyncio.sleep(0.02)
        assert await answer(taken) == b"the machine's"
        with socket.socket() as late, pytest.raises(OSError, match="in use"):
            late.bind(("127.0.0.1", port))
        events = (await there.client.list(Event, namespace="default")).items
        told = [event.note for event in events if event.reason == "HostPortConflict"]
        assert told == [
            f"host port 127.0.0.1:{taken} is in use by a program of this machine: it leads nowhere"
        ]
        await there.client.delete(Pod, "cache", namespace="default", grace_period=0)
        while await answer(port):
            await asyncio.sleep(0.02)


async def test_a_pod_whose_host_port_is_taken_on_its_node_fails_and_its_successor_runs(
    tmp_path: Path,
) -> None:
    async with bed(tmp_path) as there:
        ports = [{"containerPort": 80, "hostPort": 16380}]
        await there.pod("first", {"command": FOREVER, "ports": ports})
        await there.ready("first")
        await there.pod("second", {"command": FOREVER, "ports": ports})
        await until(lambda: there.status("second").get("phase") == "Failed")
        assert there.status("second")["reason"] == "NodePorts"
        await there.client.delete(Pod, "second", namespace="default")
        await there.client.delete(Pod, "first", namespace="default")
        await until(lambda: not there.status("first") and not there.status("second"))
        await there.pod("second", {"command": FOREVER, "ports": ports})
        await there.ready("second")


async def test_exec_carries_input_exit_codes_and_terminals(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER, "workingDir": "/srv"})
        await there.ready("web")

        async def typed() -> AsyncIterator[bytes]:
            yield b"hello\n"
            yield b"world\n"

        assert await there.exec("web", "cat", stdin=typed()) == (0, "hello\nworld\n")
        assert await there.exec("web", "sh", "-c", "pwd; exit 7") == (7, "/srv\n")
        status, text = await there.exec("web", "nosuchprogram")
        assert status == 127
        assert "not found" in text

        async def sizes() -> AsyncIterator[tuple[int, int]]:
            yield (101, 33)

        script = "test -t 0 && test -t 1 && while ! stty size | grep '33 101'; do sleep 0.02; done"
        status, text = await there.exec("web", "sh", "-c", script, tty=True, resize=sizes())
        assert (status, text.strip()) == (0, "33 101")
        with pytest.raises(LookupError):
            await there.exec("nobody", "true")


async def test_a_cancelled_exec_leaves_no_process(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER})
        await there.ready("web")
        running = asyncio.create_task(there.exec("web", "sleep", "4321"))
        count = "ls /proc/*/cmdline | xargs -n1 grep -c '[4]321' 2>/dev/null | grep -c 1"

        async def sleeping() -> bool:
            return (await there.exec("web", "sh", "-c", count))[1].strip() != "0"

        while not await sleeping():
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        while await sleeping():
            await asyncio.sleep(0.01)


async def test_logs_follow_and_reach_back_to_the_previous_run(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        script = 'echo "first line"; echo "second line"; test -e /state/again || { touch /state/again; exit 1; }; sleep 100'
        state = {"volumeMounts": [{"name": "s", "mountPath": "/state"}]}
        await there.pod(
            "web", {"command": ["sh", "-c", script], **state}, volumes=[{"name": "s", "emptyDir": {}}]
        )
        await until(lambda: there.status("web")["containerStatuses"][0]["restartCount"] == 1)
        await there.ready("web")
        while await there.log("web") != "first line\nsecond line\n":
            await asyncio.sleep(0.01)
        assert await there.log("web", tail_lines=1) == "second line\n"
        assert await there.log("web", previous=True) == "first line\nsecond line\n"
        following = asyncio.create_task(there.log("web", follow=True))
        await there.client.delete(Pod, "web", namespace="default", grace_period=0)
        assert await asyncio.wait_for(following, 5) == "first line\nsecond line\n"


async def test_a_port_only_open_on_loopback_is_forwarded(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("cache", {"image": "redis:7", "args": ["--bind", "127.0.0.1"]})
        await there.ready("cache")

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            while True:
                try:
                    return await there.agent.gateway.port_forward("default", "cache", 6379)
                except LookupError:
                    await asyncio.sleep(0.01)

        reader, writer = await asyncio.wait_for(connect(), 5)
        writer.write(b"PING\r\n")
        assert await reader.readline() == b"+PONG\r\n"
        writer.close()
        await writer.wait_closed()


async def test_pods_come_back_when_the_agent_does(tmp_path: Path) -> None:
    async with ApiServer.in_memory() as api:
        client = Client(api.transport())
        async with agent_on(client, tmp_path) as there:
            volumes = [{"name": "m", "emptyDir": {"medium": "Memory"}}]
            await there.pod("web", {"command": FOREVER, **MEMORY}, volumes=volumes)
            await there.ready("web")
            before = there.status("web")["podIP"]
            assert memory_directory(plane_id(tmp_path)).is_dir()
        assert not memory_directory(plane_id(tmp_path)).exists()
        stopped = to_dict(await client.get(Pod, "web", namespace="default"))
        assert "terminated" in stopped["status"]["containerStatuses"][0]["state"]
        async with agent_on(client, tmp_path) as there:
            await until(lambda: there.status("web")["containerStatuses"][0]["restartCount"] == 1)
            await there.ready("web")
            assert there.status("web")["podIPs"] == [{"ip": there.status("web")["podIP"]}]
            assert there.status("web")["podIP"] != before


async def test_nodes_of_an_earlier_start_go_with_their_pods(tmp_path: Path) -> None:
    async with ApiServer.in_memory() as api:
        client = Client(api.transport())
        async with agent_on(client, tmp_path, "old-1", "old-2") as there:
            await there.pod("web", {"command": FOREVER}, node="old-2")
            await there.ready("web")
        async with agent_on(client, tmp_path, "new"):
            names = [node.metadata.name for node in (await client.list(Node)).items]
            assert names == ["new"]
            assert (await client.list(Pod)).items == []


async def test_a_config_map_reaches_a_running_pod(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        meta = {"name": "c", "namespace": "default"}
        await there.client.create(decode({"metadata": meta, "data": {"k": "1"}}, ConfigMap))
        mount = {"volumeMounts": [{"name": "c", "mountPath": "/c"}]}
        await there.pod(
            "web", {"command": FOREVER, **mount}, volumes=[{"name": "c", "configMap": {"name": "c"}}]
        )
        await there.ready("web")
        assert await there.exec("web", "cat", "/c/k") == (0, "1")
        await there.client.patch(ConfigMap, "c", MergePatch({"data": {"k": "2"}}), namespace="default")
        while await there.exec("web", "cat", "/c/k") != (0, "2"):
            await asyncio.sleep(0.01)


async def test_a_silent_node_reports_nothing_until_it_speaks_again(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER}, restartPolicy="Never")
        await there.ready("web")
        there.agent.silence("n1")
        pid = there.agent.program_pid("default", "web")
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not os.path.exists(f"/proc/{pid}"))
        assert there.status("web")["phase"] == "Running"
        there.agent.silence("n1", silent=False)
        await until(lambda: there.status("web")["phase"] == "Failed")


async def test_a_node_that_was_marked_as_silent_posts_its_status_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.local.node.agent._RENEW_SECONDS", 0.05)
    async with bed(tmp_path) as there:
        silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        change = StrategicMergePatch({"status": {"conditions": [silent]}})
        await there.client.patch(Node, "n1", change, subresource="status")

        async def ready() -> bool:
            node = to_dict(await there.client.get(Node, "n1"))
            return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])

        async with asyncio.timeout(20):
            while not await ready():
                await asyncio.sleep(0)


async def test_what_a_pod_left_behind_is_ended_with_it(tmp_path: Path) -> None:
    async with bed(tmp_path) as there:
        await there.pod("web", {"command": FOREVER})
        await there.ready("web")
        worker = there.agent.worker(Key("default", "web"))
        assert worker is not None
        files = str(tmp_path / "pods" / worker.uid / "etc")
        bwrap = ["/usr/bin/bwrap", "--ro-bind", "/", "/", "--ro-bind", files, "/mnt", "sleep", "600"]
        left = await asyncio.create_subprocess_exec(*bwrap)
        await until(lambda: left.pid in leftover_processes(tmp_path))
        await there.client.delete(Pod, "web", namespace="default", grace_period=0)
        assert await asyncio.wait_for(left.wait(), 10) == -signal.SIGKILL


async def test_a_node_lists_the_images_that_were_loaded(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images")
    image = Blueprint([layer(file("a", "b"))], names=["app:1"])
    await asyncio.to_thread(load, store, docker_archive(tmp_path / "a.tar", image))
    async with ApiServer.in_memory() as api:
        client = Client(api.transport())
        async with agent_on(client, tmp_path / "node", "n1", catalog=Catalog(store=store)):
            while not (shown := (await client.get(Node, "n1")).status) or not shown.images:
                await asyncio.sleep(0.01)
            assert to_dict(shown)["images"] == [{"names": ["app:1"], "sizeBytes": 10240}]
