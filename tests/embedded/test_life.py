"""The life of the embedded control plane as a program: start, stop, death, and what must never remain."""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cli.program import (
    Program,
    Running,
    descendants,
    free_port,
    needs_kubectl,
    open_pidfds,
    ourselves,
    plain_user,
    temporary,
    traces,
    until,
)
from tests.standstill import Standstill

from mooring.kube import Client, Config, HttpTransport, KubeError, NotFound
from mooring.kube.object import decode
from mooring.kube.objects.coordination import Lease
from mooring.kube.objects.core import ConfigMap, Node, Pod, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.directory import DataDirectory
from mooring.local.ranges import Ranges
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.redis import manifest

pytestmark = pytest.mark.embedded

PASSWORD = "only-in-the-secret-7f3a"
LEASE = "mooring-redis-sentinel-all"


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that is thrown away."""
    with temporary() as path:
        yield path


@pytest.fixture
def program(home: Path) -> Program:
    """``mooring`` as the user of the tests."""
    return ourselves(home)


# --- a cluster to look at


async def create(client: Client, name: str = "demo") -> None:
    """Declare a small Redis cluster with a password from a Secret, and wait until it is Healthy."""
    secret = Secret(
        metadata=ObjectMeta(name="password", namespace="default"),
        data={"password": base64.b64encode(PASSWORD.encode()).decode()},
    )
    await client.apply(secret)
    document = manifest(name, passwordSecret={"name": "password", "key": "password"})
    await client.apply(decode(document, RedisCluster))
    await healthy(client, name)


async def healthy(client: Client, name: str = "demo") -> None:
    """Wait until the cluster says Healthy and all its pods are ready."""

    async def check() -> bool:
        pods = (await client.list(Pod, namespace="default")).items
        cluster = await client.get(RedisCluster, name, namespace="default")
        newest = next(iter((cluster.status and cluster.status.conditions) or ()), None)
        return newest is not None and newest.type == "Healthy" and len(pods) == 6 and all(map(is_ready, pods))

    await until(check, "Healthy", within=60)


def is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in (pod.status and pod.status.conditions) or ())


async def redis(running: Running, *words: str) -> str:
    """Ask the master, by the name that its status gives."""
    client = running.client()
    cluster = await client.get(RedisCluster, "demo", namespace="default")
    master = await client.get(Pod, (cluster.status and cluster.status.master) or "", namespace="default")
    address = (master.status and master.status.pod_ip) or ""
    directory = str(running.directory)
    done = await running.program.run(
        "enter", "--data-dir", directory, "redis-cli", "-h", address, *words, REDISCLI_AUTH=PASSWORD
    )
    return done.fine().strip()


def name_of(pid: int) -> str:
    """The program of a process, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def all_ended(pidfds: list[int], *, within: float) -> None:
    """Wait until every one of the processes is dead."""
    poller = select.poll()
    for descriptor in pidfds:
        poller.register(descriptor, select.POLLIN)
    await until(lambda: len(poller.poll(0)) == len(pidfds), "all processes end", within=within)


# --- stop, death, return


@pytest.mark.nightly
async def test_a_stopped_plane_leaves_nothing_and_returns_with_its_data(program: Program, home: Path) -> None:
    async with program.up(home / "data") as running:
        await create(running.client())
        assert await redis(running, "set", "kept", "yes") == "OK"
        processes = descendants(running.pid)
        assert any(name_of(pid) == "redis-server" for pid in processes)

        with open_pidfds(processes) as ends:
            status = await running.exit(signal.SIGTERM)
            await all_ended(ends, within=5.0)

        assert status == 0
        assert traces(running.directory) == []
        assert "Traceback" not in running.said()
        words = [line for line in running.said().splitlines() if line.startswith("mooring: ")]
        assert words == [f"mooring: ready. export KUBECONFIG={running.kubeconfig}"]

        await running.start()
        client = running.client()
        await healthy(client)
        assert await redis(running, "get", "kept") == "yes"
        events = (await client.request("GET", "/apis/events.k8s.io/v1/events")).body
        assert b"FailOver" not in events, "a stop and a start are no reason to fail over"


async def test_a_killed_plane_takes_its_pods_along_and_returns_with_its_data(
    program: Program, home: Path
) -> None:
    async with program.up(home / "data", "--log-format", "json") as running:
        await create(running.client())
        assert await redis(running, "set", "kept", "yes") == "OK"
        processes = descendants(running.pid)

        with open_pidfds(processes) as ends:
            running.kill()
            await all_ended(ends, within=5.0)
        (await program.run("down", "--data-dir", running.directory)).fine()

        # Another plane's start may have been quicker than this: it removes what nobody claims any more.
        assert traces(running.directory) == []

        await running.start()
        await healthy(running.client())
        assert await redis(running, "get", "kept") == "yes"

        running.kill()
        await running.start()
        await until(lambda: begun(running.said()) == 3, "its own Lease is its own", within=10)
        await healthy(running.client())
        assert await redis(running, "get", "kept") == "yes"


async def test_no_secret_shows_in_arguments_environments_or_logs(program: Program, home: Path) -> None:
    async with program.up(home / "data", "--log-level", "debug") as running:
        await create(running.client())
        token = DataDirectory(running.directory).token()
        key = DataDirectory(running.directory).service_account_key().decode().splitlines()[1]
        needles = [word.encode() for word in (token, key, PASSWORD)]

        shown = secrets_shown(running, needles)

        assert shown == []
        assert running.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert running.directory.stat().st_mode & 0o777 == 0o700
        readable = [path.name for path in running.directory.iterdir() if path.stat().st_mode & 0o004]
        assert "api.db" not in readable
        assert "pki" not in readable


def secrets_shown(running: Running, needles: Sequence[bytes]) -> list[str]:
    """Where any of these words can be read by others, or outlives the process."""
    shown = []
    for pid in [running.pid, *descendants(running.pid)]:
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                data = Path(f"/proc/{pid}/{name}").read_bytes()
                shown += [f"{name} of {name_of(pid)}" for needle in needles if needle in data]
    logs = [running.log, *(running.directory / "node").rglob("*.log")]
    return shown + [str(path) for path in logs for needle in needles if needle in path.read_bytes()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_a_terminal_that_asks_for_the_end_gets_it(program: Program, home: Path, number: int) -> None:
    async with program.up(home / "data", "--operators", "none") as running:
        assert await running.exit(number, within=10) == 0
        assert traces(running.directory) == []


async def test_one_directory_has_one_plane(program: Program, home: Path) -> None:
    async with program.up(home / "data", "--operators", "none") as running:
        options = ("--data-dir", running.directory, "--listen", "127.0.0.1:0")

        second = await program.run("up", *options)
        detached = await program.run("up", "--detach", *options)

        assert second.status == detached.status == 1
        assert f"in use by process {running.pid}: end it with `mooring down" in second.err
        assert f"already running as process {running.pid}" in detached.err
        assert (await running.client().request("GET", "/readyz")).status == 200


@pytest.mark.nightly
async def test_two_planes_live_side_by_side(program: Program, home: Path) -> None:
    async with program.up(home / "one") as one, program.up(home / "two") as two:
        await asyncio.gather(create(one.client()), create(two.client()))
        await redis(one, "set", "where", "one")
        await redis(two, "set", "where", "two")

        assert await one.exit() == 0

        assert await redis(two, "get", "where") == "two"
        await healthy(two.client())
        await one.start()
        await healthy(one.client())
        assert await redis(one, "get", "where") == "one"


async def test_up_detaches_and_down_ends_it(program: Program, home: Path) -> None:
    directory, kubeconfig = home / "data", home / "admin.conf"
    try:
        up = await program.run(
            *("up", "--detach", "--data-dir", directory, "--listen", "127.0.0.1:0", "--nodes", "3"),
            *("--kubeconfig", kubeconfig, "--operators", "none", "--log-level", "debug"),
        )
        assert up.status == 0, up.text
        assert f"export KUBECONFIG={kubeconfig}" in up.err
        assert kubeconfig.stat().st_mode & 0o777 == 0o600
        client = Client(HttpTransport(Config.load(kubeconfig)))
        nodes = [node.metadata.name or "" for node in (await client.list(Node)).items]
        await client.close()
        assert nodes == [nodes[0], f"{nodes[0]}-2", f"{nodes[0]}-3"]
    finally:
        down = await program.run("down", "--data-dir", directory)

    assert down.fine() == f"mooring: stopped; data is kept in {directory}\n"
    assert traces(directory) == []


async def test_a_shell_finds_the_plane(program: Program, home: Path) -> None:
    async with program.up(home / "data", "--operators", "none") as running:
        inside = ("enter", "--data-dir", running.directory)

        shell = await program.run(*inside, "sh", "-c", "echo $KUBECONFIG; exit 7")
        missing = await program.run(*inside, "no-such-program")

        named = await program.run(*inside, "getent", "hosts", "kubernetes")
        ranges = Ranges.known(DataDirectory(running.directory))
        assert ranges
        assert named.fine().split() == [str(ranges.api), "kubernetes.default.svc.cluster.local"]
        assert (shell.status, shell.out) == (7, f"{running.kubeconfig}\n")
        assert (missing.status, missing.err) == (1, "mooring: no-such-program: no such command here\n")


# --- acknowledged writes


@dataclass
class Writer:
    """Writes ConfigMaps over HTTPS and remembers what was acknowledged; what had no answer may be or not."""

    number: int
    known: dict[str, str | None] = field(default_factory=dict)
    unsure: dict[str, set[str | None]] = field(default_factory=dict)
    count: int = 0

    async def write(self, client: Client) -> None:
        """Create, change and delete until the server is gone."""
        while True:
            self.count += 1
            name = f"w{self.number}-{random.randrange(20)}"
            value = None if random.random() < 0.2 else f"{self.number}-{self.count}"
            before = self.unsure.pop(name, set()) | {self.known.pop(name, None)}
            try:
                await self._one(client, name, value)
            except KubeError:
                self.unsure[name] = {*before, value}
                return
            self.known[name] = value

    async def _one(self, client: Client, name: str, value: str | None) -> None:
        if value is None:
            with suppress(NotFound):
                await client.delete(ConfigMap, name, namespace="default")
        else:
            body = ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"value": value})
            await client.apply(body)

    def lost(self, found: dict[str, str]) -> list[str]:
        """What the server holds otherwise than acknowledged."""
        wrong = [
            f"{name}: {value!r} acknowledged"
            for name, value in self.known.items()
            if found.get(name) != value
        ]
        wrong += [
            f"{name}: {found.get(name)!r} is none of {values}"
            for name, values in self.unsure.items()
            if found.get(name) not in values
        ]
        return wrong


async def kill_under_writers(running: Running, *, rounds: int, writers: int = 6) -> int:
    """Kill -9 at random moments under writers, then compare; returns how many writes were acknowledged."""
    crew = [Writer(number) for number in range(writers)]
    for number in range(rounds):
        clients = [running.client() for _ in crew]
        tasks = [
            asyncio.create_task(writer.write(client)) for writer, client in zip(crew, clients, strict=True)
        ]
        before = sum(writer.count for writer in crew)
        # A moment counted in writes, not in time: as random, and the same on a slow machine.
        enough = before + random.randrange(30, 400)
        await until(lambda: sum(w.count for w in crew) >= enough, "writes", within=30)  # noqa: B023
        running.kill()
        await asyncio.gather(*tasks)
        await running.client_closed()
        await running.start()
        page = await running.client().list(ConfigMap, namespace="default")
        found = {one.metadata.name or "": (one.data or {}).get("value", "") for one in page.items}
        lost = [line for writer in crew for line in writer.lost(found)]
        assert lost == [], f"round {number}"
        for writer in crew:
            writer.known |= {name: found.get(name) for name in writer.unsure}
            writer.unsure.clear()
    return sum(writer.count for writer in crew)


@pytest.mark.full
@pytest.mark.nightly
async def test_kill_9_loses_no_acknowledged_write(program: Program, home: Path) -> None:
    async with program.up(home / "data", "--operators", "none") as running:
        assert await kill_under_writers(running, rounds=4) > 100


@pytest.mark.full
@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_kill_9_loses_no_acknowledged_write_in_many_rounds(program: Program, home: Path) -> None:
    async with program.up(home / "data", "--operators", "none") as running:
        await kill_under_writers(running, rounds=40)


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_kill_9_while_starting_never_spoils_the_directory(program: Program, home: Path) -> None:
    """Certificates, keys, ranges and the database are written at the first start: killed in the midst."""
    for number in range(12):
        directory = home / f"data{number}"
        running = Running(program, directory, ("--operators", "none"))
        process = program.start(
            "up", "--operators", "none", "--data-dir", directory, "--listen", "127.0.0.1:0", log=running.log
        )
        await until(directory.exists, "the directory")
        began, pause = time.monotonic(), random.uniform(0.0, 0.6)
        await until(lambda: time.monotonic() - began > pause or process.poll() is not None, "a moment")  # noqa: B023
        process.kill()
        process.wait()
        async with program.up(directory, "--operators", "none") as again:
            assert (await again.client().request("GET", "/readyz")).status == 200
        assert traces(directory) == []


# --- operators as a process of their own


@asynccontextmanager
async def operators(program: Program, kubeconfig: Path, log: Path, *options: str) -> AsyncIterator[Operators]:
    """``mooring run`` against a cluster; killed at the end, if it still runs."""
    running = Operators(program, kubeconfig, log, options)
    try:
        yield running
    finally:
        running.kill()


class Operators:
    """One ``mooring run``."""

    def __init__(self, program: Program, kubeconfig: Path, log: Path, options: Sequence[str]) -> None:
        self.metrics, self.probes = free_port(), free_port()
        self.log = log
        self._process = program.start(
            *("run", "--kubeconfig", kubeconfig, "--bind", "127.0.0.1", "--metrics-port", str(self.metrics)),
            *("--probe-port", str(self.probes), "--log-format", "json", *options),
            log=log,
        )

    def get(self, port: int, path: str) -> tuple[int, str]:
        """One GET; status 0 when nobody listens yet."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    async def ready(self) -> None:
        """Wait until it says so."""
        await until(lambda: self.get(self.probes, "/readyz")[0] == 200, f"ready: {self.said()}", within=30)

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace")

    @property
    def leads(self) -> bool:
        """Whether it holds the Lease, by its own word."""
        return begun(self.said()) > 0

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its end."""
        self._process.send_signal(number)
        await until(lambda: self._process.poll() is not None, "the operators end", within=15)
        return self._process.returncode

    def kill(self) -> None:
        """Kill -9, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def begun(log: str) -> int:
    """How often a log says that its process leads."""
    return sum('"event":"leading"' in line and LEASE in line for line in log.splitlines())


async def lease(client: Client) -> Lease:
    return await client.get(Lease, LEASE, namespace="mooring-system")


def holder(found: Lease) -> str:
    return (found.spec.holder_identity if found.spec else None) or ""


async def hand_over(
    program: Program, kubeconfig: Path, home: Path, client: Client, stood: Standstill
) -> None:
    """Two processes: the first leads; when it is told to end, the second leads within a second."""
    async with (
        operators(program, kubeconfig, home / "first.log") as first,
        operators(program, kubeconfig, home / "second.log") as second,
    ):
        await until(lambda: first.leads or second.leads, "somebody leads", within=40)
        await asyncio.gather(first.ready(), second.ready())
        leader, standby = (first, second) if first.leads else (second, first)
        assert not standby.leads
        assert leader.get(leader.probes, "/healthz")[0] == 200
        status, metrics = leader.get(leader.metrics, "/metrics")
        assert status == 200
        assert "controller_runtime_reconcile_total" in metrics
        assert f'leader_election_master_status{{name="{LEASE}"}} 1.0' in metrics
        # The other operator's numbers are on the same page.
        assert 'leader_election_master_status{name="mooring-redis-cluster-all"}' in metrics
        assert 'controller_runtime_max_concurrent_reconciles{controller="redis-cluster"}' in metrics
        before = holder(await lease(client))

        ending = asyncio.create_task(leader.end())
        took = await until(lambda: standby.leads, "the standby leads", within=5)
        assert await ending == 0

        assert took - stood.within(took) < 1.0
        assert holder(await lease(client)) not in ("", before)
        assert await standby.end() == 0
        assert holder(await lease(client)) == ""
        for each in (first, second):
            assert "Traceback" not in each.said()


async def test_operators_apart_hand_over_within_a_second(
    program: Program, home: Path, stood: Standstill
) -> None:
    async with program.up(home / "data", "--operators", "none") as running:
        await hand_over(program, running.kubeconfig, home, running.client(), stood)
        async with operators(program, running.kubeconfig, home / "third.log") as third:
            await create(running.client())
            assert await third.end() == 0


@pytest.mark.kubernetes
async def test_operators_hand_over_on_a_real_api_server(
    program: Program, home: Path, real_kubernetes: Path, stood: Standstill
) -> None:
    client = Client(HttpTransport(Config.load(real_kubernetes)))
    try:
        await hand_over(program, real_kubernetes, home, client, stood)
        kinds = (await client.request("GET", "/apis/redis.kun/v1beta1")).body
        assert b'"rediscluster' in kinds
    finally:
        await client.close()


# --- a plain user


@pytest.mark.full
@needs_kubectl
@pytest.mark.timeout(400)  # his environment is made first
async def test_a_plain_user_does_all_of_it(home: Path) -> None:
    with plain_user() as user:
        directory = user.home / ".local/share/mooring"  # where it is for whoever names none
        try:
            up = await user.run("up", "--detach", "--listen", "127.0.0.1:0", seconds=250)
            assert up.status == 0, up.text
            kubeconfig = DataDirectory(directory).kubeconfig
            client = Client(HttpTransport(Config.load(kubeconfig)))
            try:
                await create(client)
            finally:
                await client.close()
            shown = (await user.kubectl(kubeconfig, "get", "rediscluster,pods")).fine()
            assert "rediscluster.redis.kun/demo   3      Healthy" in shown
            logs = await user.kubectl(kubeconfig, "logs", "redis-cluster-demo-0", "-c", "redis")
            assert "Ready to accept connections" in logs.fine()
            command = ("exec", "redis-cluster-demo-0", "-c", "redis", "--", "redis-cli", "ping")
            assert "NOAUTH" in (await user.kubectl(kubeconfig, *command)).text

            nodes = await user.run("enter", "kubectl", "get", "nodes")
            assert " Ready " in nodes.fine()
            service = await user.kubectl(
                kubeconfig, "get", "service", "redis-sentinel-demo", "-o", "jsonpath={.spec.clusterIP}"
            )
            master = await user.run(
                *("enter", "redis-cli", "-h", service.fine(), "-p", "26379"),
                *("sentinel", "get-master-addr-by-name", "mymaster"),
            )
            assert master.fine().splitlines()[1] == "6379"
        finally:
            down = await user.run("down")
        assert "stopped; data is kept" in down.fine()
        await until(lambda: user.processes() == [], "his processes are gone", within=5)


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.nightly
async def test_a_plain_user_sees_the_demo(home: Path) -> None:
    with plain_user() as user:
        done = await user.run("demo", seconds=200)

        assert done.status == 0, done.text
        assert not [*(user.home / "mooring").rglob("__pycache__")], (
            "byte code in a tree that is to stay clean"
        )
        assert any((user.home / ".cache/mooring/bytecode").rglob("plane.*.pyc")), "every start compiles anew"
        assert "console: http://127.0.0.1:" in done.text
        assert "kill -9: " in done.out
        assert "SIGSTOP: " in done.out
        assert ", 0 of " in done.out
        assert list(user.home.glob("mooring-demo-*")) == []


@pytest.mark.timeout(300)
@pytest.mark.nightly
def test_a_machine_without_user_namespaces_is_told_what_allows_them() -> None:
    with plain_user() as user:
        data = user.home / "data"
        command = [*user.before, *user.argv, "up", "--data-dir", str(data), "--listen", "127.0.0.1:0"]

        # In a user namespace of its own the limit can be set without touching the machine's.
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_NAMESPACES, *command], env=user.env, capture_output=True, text=True
        )

        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith(
            "mooring: user namespaces are not allowed for this user here, and pods need them."
        )
        assert "as root: sysctl user.max_user_namespaces=10000" in last
        assert "Traceback" not in done.stderr


WITHOUT_NAMESPACES = """
import ctypes, os, sys
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    assert ctypes.CDLL(None).unshare(0x10000000) == 0
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    with open("/proc/sys/user/max_user_namespaces", "w") as limit:
        limit.write("0")
    os.execvp(sys.argv[1], sys.argv[1:])
os.read(ready[0], 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{name}", "w") as mapping:
        mapping.write("0 0 4294967295")
os.write(go[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


# --- the demo


@contextmanager
def terminal(program: Program, *arguments: str) -> Iterator[Terminal]:
    """The program on a terminal of its own."""
    session = Terminal(program, arguments)
    try:
        yield session
    finally:
        session.close()


class Terminal:
    """A terminal with the program in its foreground."""

    def __init__(self, program: Program, arguments: Sequence[str]) -> None:
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self._said = b""
        self._process = subprocess.Popen(
            [
                *("env", "--default-signal=INT,HUP"),
                *("setsid", "--ctty", "--wait", *program.argv, *arguments),
            ],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=program.env,
        )
        os.close(slave)

    def said(self) -> str:
        """What is on the screen."""
        with suppress(OSError):
            while data := os.read(self._master, 65536):
                self._said += data
        return self._said.decode(errors="replace")

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    async def status(self, *, within: float) -> int:
        """Wait for the end; the exit status."""
        await until(lambda: self.said() is None or self._process.poll() is not None, "the end", within=within)
        return self._process.returncode

    def close(self) -> None:
        """Hang up."""
        os.close(self._master)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()


def demo_directory(said: str) -> Path:
    found = re.search(r"data in (\S+)", said)
    assert found, said
    return Path(found[1])


async def test_ctrl_c_in_the_midst_of_the_demo_ends_it_soon_and_leaves_nothing(program: Program) -> None:
    with terminal(program, "demo") as session:
        await until(lambda: "kubectl apply" in session.said(), "the demo begins", within=30)
        directory = demo_directory(session.said())
        await until(lambda: "pods ready" in session.said(), "pods come up", within=30)

        session.type(b"\x03")
        status = await session.status(within=15)

        assert status == 130
        assert session.said().splitlines()[-1] == "mooring: interrupted before the demo was over"
        assert not directory.exists()
        assert traces(directory) == []


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.nightly
async def test_the_demo_on_a_terminal_stays_up_until_ctrl_c(program: Program) -> None:
    with terminal(program, "demo") as session:
        await until(lambda: "up until Ctrl-C" in session.said(), "the story is told", within=150)
        directory = demo_directory(session.said())
        shown = await program.kubectl(directory / "kubeconfig", "get", "rediscluster", "demo")
        assert "Healthy" in shown.fine()

        session.type(b"\x03")
        status = await session.status(within=15)

        assert status == 0
        assert session.said().rstrip().endswith("stopping")
        assert not directory.exists()
        assert traces(directory) == []


async def test_a_demo_that_cannot_succeed_says_why_last(program: Program, home: Path) -> None:
    file = home / "bad.yaml"
    file.write_text(
        "{apiVersion: redis.kun/v1beta1, kind: RedisCluster, metadata: {name: demo}, spec: {size: 2}}\n"
    )

    done = await program.run("demo", "--file", file)

    assert done.status == 1
    assert "the demo failed: RedisCluster demo" in done.err.splitlines()[-1]
    assert "Traceback" not in done.text
