"""``mooring demo``: a Redis cluster, or a MariaDB one, that survives its master, before your eyes.

A control plane in a directory of its own, the example applied, two faults under a writer that remembers
every acknowledged write; then it stays up for you to look around, or ends by itself without a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from mooring.cli.failure import INTERRUPTED, explain
from mooring.cli.packages import NODE, ensure
from mooring.cli.program import program
from mooring.cli.run import until_signalled
from mooring.cli.up import Up, console_socket, enter_namespaces, serve
from mooring.kube import ApplyPatch, Client, KubeError, NotFound
from mooring.kube.object import Resource
from mooring.kube.objects.core import Pod, Service
from mooring.local.directory import DataDirectory
from mooring.local.plane import Plane, PlaneOptions
from mooring.operators.host import Operate
from mooring.operators.mysql import MySQLCluster
from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.registry import choose
from mooring.runtime import configure_logging
from mooring.testing.ledger import Ledger

__all__ = ["add_parser", "example", "read_manifest"]

#: Where the demo keeps its data, told to the process it becomes as a plain user.
_DIRECTORY = "MOORING_DEMO_DIR"
HEALTHY_SECONDS = 90.0
TAKEOVER_SECONDS = 40.0
PATIENCE = 0.5
"""Seconds the writer waits for a reply before it asks the sentinels anew."""
RATE = 200.0


_EXAMPLES: Final[Mapping[str, tuple[str, Resource]]] = {
    "redis": ("redis-sentinel.yaml", RedisCluster.resource),
    "mysql": ("mysql.yaml", MySQLCluster.resource),
}
"""What can be shown: its manifest, and its kind."""


class DemoFailed(OSError):
    """What did not happen in time."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo", help="start here: a Redis or MariaDB cluster that survives the death of its master"
    )
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="ADDR:PORT", help="default: any free port")
    parser.add_argument(
        "--what",
        choices=sorted(_EXAMPLES),
        default="redis",
        help="which database: Redis with sentinels (default), or MariaDB as a MySQLCluster",
    )
    parser.add_argument("--file", type=Path, help="the manifest (default: the example)")
    parser.add_argument("--verbose", action="store_true", help="show the log of the control plane")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 only if everything it promises has happened.

    Ctrl-C after that is how it is meant to end: 0. Before, it cuts the story short: 130.
    """
    manifest = read_manifest(options.file or example(options.what), options.what)
    ensure(NODE)
    configure_logging(level="info" if options.verbose else "error")
    path = Path(os.environ.get(_DIRECTORY) or tempfile.mkdtemp(prefix="mooring-demo-"))
    os.environ[_DIRECTORY] = str(path)
    directory = DataDirectory(path)
    console = console_socket()
    try:
        socks = enter_namespaces(directory, options.listen, console=console)
        show = _show(options.what)(directory, manifest, stay=sys.stdin.isatty() and sys.stdout.isatty())
        up = Up(
            plane=PlaneOptions(directory=directory, nodes=("demo",)),
            socks=socks,
            operate=Operate(operators=choose("*")),
            kubeconfig=directory.kubeconfig,
            console=console,
        )
        interrupted = asyncio.run(until_signalled(serve_until_done(up, show)))
    finally:
        shutil.rmtree(path, ignore_errors=True)
    if show.failure:
        print(f"mooring: {show.failure}", file=sys.stderr)
        return 1
    if interrupted and not show.told:
        print("mooring: interrupted before the demo was over", file=sys.stderr)
        return INTERRUPTED
    return 0


def _show(what: str) -> type[Show]:
    if what == "redis":
        return Show
    from mooring.cli.demo_mysql import MySQLShow  # it needs this module

    return MySQLShow


def example(what: str = "redis") -> Path:
    """The example to show: in a clone below examples/, in an installed package beside this module."""
    root = Path(os.environ.get("MOORING_ROOT", Path(__file__).resolve().parents[3]))
    name, _ = _EXAMPLES[what]
    packaged, path = Path(__file__).with_name(name), root / "examples" / name
    if not packaged.exists() and not path.exists():
        raise ValueError(f"{path} is missing; give a manifest with --file")
    return packaged if packaged.exists() else path


@dataclass(frozen=True, slots=True)
class Manifest:
    """The file to apply: its documents, and the cluster among them that the story is about."""

    path: Path
    documents: tuple[dict[str, Any], ...]
    cluster: dict[str, Any]


def read_manifest(path: Path, what: str = "redis") -> Manifest:
    """Read and check a manifest before anything is started; raises :class:`ValueError` naming the remedy."""
    try:
        documents = tuple(document for document in yaml.safe_load_all(path.read_text()) if document)
    except OSError as error:
        raise ValueError(f"cannot read the manifest {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"the manifest {path} is not YAML: {' '.join(str(error).split())}") from error
    for number, document in enumerate(documents, 1):
        if not _is_object(document):
            raise ValueError(
                f"the manifest {path}: document {number} lacks apiVersion, kind or metadata.name"
            )
    _, resource = _EXAMPLES[what]
    kind, version = resource.kind, resource.api_version
    clusters = [d for d in documents if d["kind"] == kind and d["apiVersion"] == version]
    if len(clusters) != 1:
        raise ValueError(
            f"the manifest {path} holds {len(clusters)} objects of kind {kind} ({version}); the demo shows one"
        )
    return Manifest(path, documents, clusters[0])


def _is_object(document: Any) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    words = (document.get("apiVersion"), document.get("kind"), document["metadata"].get("name"))
    return all(isinstance(word, str) and word for word in words)


async def serve_until_done(up: Up, show: Show) -> None:
    """Serve, play the show, and end when it is over."""
    over = asyncio.Event()

    async def play(plane: Plane) -> None:
        try:
            await show.play(plane)
        finally:
            over.set()

    serving = asyncio.create_task(serve(up, play))
    ended = asyncio.create_task(over.wait())
    try:
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
        if not serving.done():
            show.say("stopping")
            serving.cancel()
        results = await asyncio.gather(serving, return_exceptions=True)
    for result in results:
        if isinstance(result, (Exception, BaseExceptionGroup)) and not show.failure:
            show.failure = f"the demo failed: {explain(result)}"


@dataclass(frozen=True, slots=True)
class _Fault:
    """What one fault did, as the writer saw it."""

    served: str
    gap: float
    acknowledged: int
    lost_acknowledged: int
    confirmed: int
    lost_confirmed: int


class Show:
    """The story, told line by line."""

    def __init__(self, directory: DataDirectory, manifest: Manifest, *, stay: bool) -> None:
        self._directory = directory
        self._manifest = manifest
        self._stay = stay
        self._started = time.monotonic()
        self._actors: _Stage
        self._sentinels = ""
        self.failure = ""
        #: Everything promised has happened; from here on the demo only stays up.
        self.told = False

    def say(self, text: str) -> None:
        """One line, with the seconds since the start."""
        print(f"[{time.monotonic() - self._started:6.1f} s] {text}", flush=True)

    async def play(self, plane: Plane) -> None:
        """The whole story; a failure is kept in ``failure``."""
        try:
            await self._play(plane)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.failure = f"the demo failed: {explain(error)}"

    async def _play(self, plane: Plane) -> None:
        self.say(f"control plane ready; data in {self._directory.path}")
        client = plane.client("kubectl")
        self.say(f"kubectl apply -f {self._manifest.path}")
        for document in self._manifest.documents:
            await _apply(client, document)
        await self.tell(plane, client)
        self.say("look around, from another terminal:")
        self.say(f"  export KUBECONFIG={self._directory.kubeconfig}")
        for line in self.farewell():
            self.say(line)
        self.told = True
        if self._stay:
            self.say("up until Ctrl-C")
            await asyncio.Event().wait()

    async def tell(self, plane: Plane, client: Client) -> None:
        """The faults, and what they cost; raises `DemoFailed`."""
        cluster = self._manifest.cluster
        self._actors = stage = _Stage(plane, client, _namespace(cluster), cluster["metadata"]["name"], self)
        began = time.monotonic()
        await stage.healthy(HEALTHY_SECONDS)
        self.say(f"Healthy {time.monotonic() - began:.1f} s after the apply")
        password = _password(self._manifest)
        self._sentinels = sentinels = await stage.sentinels()
        self.say(f"writing {RATE:.0f} keys per second through the sentinels at {sentinels}")

        killed = await stage.fault(
            "kill -9 of the master's server", sentinels, password, number=signal.SIGKILL, thaw=False
        )
        frozen = await stage.fault(
            "SIGSTOP of the master's server (it hangs)", sentinels, password, number=signal.SIGSTOP, thaw=True
        )
        for name, fault in (("kill -9", killed), ("SIGSTOP", frozen)):
            self.say(
                f"{name}: {fault.served} served next; no write for {fault.gap:.2f} s; lost "
                f"{fault.lost_acknowledged} of {fault.acknowledged} acknowledged, "
                f"{fault.lost_confirmed} of {fault.confirmed} confirmed by a replica"
            )
        if killed.lost_confirmed or frozen.lost_confirmed:
            raise DemoFailed("confirmed writes were lost")

    def farewell(self) -> Sequence[str]:
        """Commands to look around with."""
        stage = self._actors
        host, port = self._sentinels.rsplit(":", 1)
        prefix = f"{program()} enter --data-dir {self._directory.path} "
        return [
            f"  kubectl -n {stage.namespace} get rediscluster,pods -o wide",
            f"  kubectl -n {stage.namespace} describe rediscluster {stage.name}",
            f"  {prefix}redis-cli -h {host} -p {port} sentinel get-master-addr-by-name mymaster",
            f"  kubectl -n {stage.namespace} exec -it {stage.master} -c redis -- redis-cli"
            + ("   # AUTH as in the manifest" if _password(self._manifest) else ""),
        ]


class _Stage:
    """The cluster on stage."""

    def __init__(self, plane: Plane, client: Client, namespace: str, name: str, show: Show) -> None:
        self._plane, self._client, self._show = plane, client, show
        self.namespace, self.name = namespace, name
        self.master = ""

    async def _get(self) -> RedisCluster:
        return await self._client.get(RedisCluster, self.name, namespace=self.namespace)

    async def healthy(self, seconds: float) -> None:
        """Wait until the cluster says Healthy, showing what changes."""
        seen = ""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            cluster = await self._get()
            line = await self._progress(cluster)
            if line != seen:
                self._show.say(line)
                seen = line
            if _healthy(cluster):
                self.master = (cluster.status and cluster.status.master) or ""
                return
            await asyncio.sleep(0.1)
        raise DemoFailed(f"not Healthy within {seconds:.0f} s; last: {seen}")

    async def _progress(self, cluster: RedisCluster) -> str:
        page = await self._client.list(
            Pod, namespace=self.namespace, label_selector=f"app.kubernetes.io/name={self.name}"
        )
        ready = sum(
            any(
                c.type == "Ready" and c.status == "True" for c in (pod.status and pod.status.conditions) or ()
            )
            for pod in page.items
        )
        status = cluster.status
        newest = status.conditions[0] if status and status.conditions else None
        state = f"{newest.type}: {newest.message}" if newest else "declared"
        master = f", master {status.master}" if status and status.master else ""
        return f"{state} ({ready}/{len(page.items)} pods ready{master})"

    async def sentinels(self) -> str:
        """Address of the sentinels' Service."""
        found = await self._client.get(Service, f"redis-sentinel-{self.name}", namespace=self.namespace)
        return f"{found.spec.cluster_ip if found.spec else ''}:26379"

    async def fault(
        self, what: str, sentinels: str, password: str, *, number: signal.Signals, thaw: bool
    ) -> _Fault:
        """Do it to the master under a writer; wait until another serves and all is well again."""
        host, port = sentinels.rsplit(":", 1)
        ledger = Ledger(sentinels=[Address(host, int(port))], password=password, rate=RATE, patience=PATIENCE)
        writing = asyncio.create_task(ledger.write())
        try:
            await self._until(lambda: _true(ledger.acknowledged > RATE), 15.0, "the writer got through")
            old = self.master
            pid = self._plane.agent.program_pid(self.namespace, old, "redis")
            self._show.say(f"{what}: {old}, process {pid}")
            os.kill(pid, number)
            began = time.monotonic()
            try:
                await self._until(lambda: self._other_master(old), TAKEOVER_SECONDS, "another master")
                self._show.say(f"{self.master} is master after {time.monotonic() - began:.1f} s")
            finally:
                if thaw:
                    os.kill(pid, signal.SIGCONT)
            if thaw:
                self._show.say(f"thawed {old}")
            await self.healthy(HEALTHY_SECONDS)
            self._show.say(f"{old} follows {self.master}")
            before = ledger.acknowledged
            await self._until(lambda: _true(ledger.acknowledged > before + RATE / 2), 15.0, "writes go on")
        finally:
            ledger.stop()
            await asyncio.wait({writing})
        report = await ledger.check()
        return _Fault(
            served=self.master,
            gap=report.longest_gap,
            acknowledged=report.acknowledged,
            lost_acknowledged=report.lost_acknowledged,
            confirmed=report.confirmed,
            lost_confirmed=report.lost_confirmed,
        )

    async def _other_master(self, old: str) -> bool:
        status = (await self._get()).status
        if status and status.master and status.master != old:
            self.master = status.master
            return True
        return False

    async def _until(self, check: Any, seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if await check():
                return
            await asyncio.sleep(0.02)
        raise DemoFailed(f"waited {seconds:.0f} s in vain: {what}")


async def _true(value: bool) -> bool:
    return value


def _healthy(cluster: RedisCluster) -> bool:
    status = cluster.status
    current = status is not None and status.observed_generation == cluster.metadata.generation
    return bool(current and status and status.conditions and status.conditions[0].type == "Healthy")


def _namespace(document: dict[str, Any]) -> str:
    return document["metadata"].get("namespace") or "default"


async def _apply(client: Client, document: dict[str, Any]) -> None:
    group, _, version = document["apiVersion"].rpartition("/")
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    name = f"{document['kind']} {document['metadata']['name']}"
    try:
        listing = msgspec.json.decode((await client.request("GET", base)).body)
        found = next((r for r in listing["resources"] if r["kind"] == document["kind"]), None)
        if found is None:
            raise DemoFailed(f"{name}: {document['apiVersion']} has no such kind")
        place = f"/namespaces/{_namespace(document)}" if found["namespaced"] else ""
        await client.request(
            "PATCH",
            f"{base}{place}/{found['name']}/{document['metadata']['name']}",
            query={"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"},
            body=ApplyPatch(document).encode(),
            content_type=ApplyPatch.content_type,
        )
    except NotFound as error:
        raise DemoFailed(f"{name}: {error} (no {document['apiVersion']}, or no such namespace)") from error
    except KubeError as error:
        raise DemoFailed(f"{name}: {error}") from error


def _password(manifest: Manifest) -> str:
    spec = manifest.cluster["spec"]
    if reference := spec.get("passwordSecret"):
        for document in manifest.documents:
            if document["kind"] == "Secret" and document["metadata"]["name"] == reference["name"]:
                return _secret_value(document, reference.get("key", "password"))
        raise DemoFailed(f"the manifest does not hold the Secret {reference['name']} of passwordSecret")
    return str(spec.get("password", ""))


def _secret_value(secret: dict[str, Any], key: str) -> str:
    plain, encoded = secret.get("stringData") or {}, secret.get("data") or {}
    return str(plain[key]) if key in plain else base64.b64decode(encoded.get(key, "")).decode()
