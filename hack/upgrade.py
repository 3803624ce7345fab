"""An upgrade from an earlier commit to this tree and back, on the embedded plane, with clusters that are written to.

    make upgrade FROM=<commit>

Two parts. The operators: those of FROM create a cluster of each kind; this tree's replace them, and those of FROM come
back. The pods have to stay: the same pods, no restart, no acknowledged write lost, and every cluster Ready for the
operators that run. The data directory: `mooring up` of FROM fills one, this tree opens it, and FROM opens it again.
Ends with status 1 and a line for each thing that was not so. Needs root, whose machine reaches pods.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from mooring.kube import ApiError, ApplyPatch, Client, Config, HttpTransport, TransportError

__all__ = ["CLUSTERS", "Cluster", "known", "main", "moved"]

ROOT: Final = Path(__file__).resolve().parents[1]
READY_SECONDS: Final = 240.0
STAYS_SECONDS: Final = 25.0
"""How long the clusters are looked at under each operator: longer than a resync (15 s) and the Lease of a predecessor."""
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster that is upgraded: its example, where it is in the API, and who writes to it how."""

    example: str
    path: str
    selector: str
    ledger: Callable[[Run], Awaitable[list[str]]]
    password: Callable[[Run], Awaitable[str]]
    edit: Json | None = None
    """A change that takes no restart, made under the new operator: that it leads is proven by what it does."""

    @property
    def name(self) -> str:
        """As messages call it: its operator's."""
        return self.example.removesuffix(".yaml")


@dataclass(kw_only=True)
class Run:
    """One plane, its client, and what was found wrong."""

    place: Path
    kubeconfig: Path
    wrong: list[str] = field(default_factory=list)
    _client: Client | None = None

    @property
    def client(self) -> Client:
        """A client, made with the first call."""
        if self._client is None:
            self._client = Client(HttpTransport(Config.load(self.kubeconfig)))
        return self._client

    async def get(self, path: str) -> Json:
        """An object or a list, as the server answers."""
        found: Json = msgspec.json.decode((await self.client.request("GET", path)).body)
        return found

    async def pods(self, selector: str) -> dict[str, tuple[str, int]]:
        """Pods by name: UID, and restarts of all containers."""
        found = await self.get(f"/api/v1/namespaces/default/pods?labelSelector={selector}")
        return {
            one["metadata"]["name"]: (
                one["metadata"]["uid"],
                sum(each.get("restartCount", 0) for each in one["status"].get("containerStatuses") or ()),
            )
            for one in found["items"]
            if one["metadata"].get("ownerReferences", [{}])[0].get("kind") != "Job"
        }

    async def until(self, check: Callable[[], Awaitable[str]], *, within: float = READY_SECONDS) -> str:
        """Wait until nothing is wrong; what still is at the end."""
        deadline = time.monotonic() + within
        while True:
            try:
                said = await check()
            except (ApiError, TransportError) as error:
                said = str(error)
            if not said or time.monotonic() > deadline:
                return said
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        """End the client."""
        if self._client is not None:
            await self._client.close()
            self._client = None


async def _service(run: Run, name: str) -> str:
    found = await run.get(f"/api/v1/namespaces/default/services/{name}")
    return str(found["spec"]["clusterIP"])


async def _sentinel_ledger(run: Run) -> list[str]:
    return ["--sentinel", f"{await _service(run, 'redis-sentinel-demo')}:26379", "--follow"]


async def _rec_ledger(run: Run) -> list[str]:
    found = await run.get(f"/api/v1/namespaces/default/pods?labelSelector={_REC}")
    return [word for one in found["items"] for word in ("--cluster", f"{one['status']['podIP']}:6379")]


async def _mysql_ledger(run: Run) -> list[str]:
    return ["--mysql", await _service(run, "demo-primary")]


async def _plain_password(_: Run) -> str:
    return "change-me-please"


async def _mysql_password(run: Run) -> str:
    secret = await run.get("/api/v1/namespaces/default/secrets/demo-credentials")
    return base64.b64decode(secret["data"]["root-password"]).decode()


_REC: Final = "app.kubernetes.io%2Fname=shop,app.kubernetes.io%2Fmanaged-by=operator-manager"
_SENTINELS: Final = "app.kubernetes.io%2Fname=demo,app.kubernetes.io%2Fmanaged-by=redis-operator"
_MYSQL: Final = "app.kubernetes.io%2Finstance=demo,app.kubernetes.io%2Fmanaged-by=mooring-mysql"

CLUSTERS: Final = (
    Cluster(
        example="redis-sentinel.yaml",
        path="/apis/redis.kun/v1beta1/namespaces/default/redisclusters/demo",
        selector=_SENTINELS,
        ledger=_sentinel_ledger,
        password=_plain_password,
        edit={"spec": {"config": {"maxclients": "501"}}},
    ),
    Cluster(
        example="redis-cluster.yaml",
        path="/apis/redis.middleware.hc.cn/v1alpha1/namespaces/default/redisclusters/shop",
        selector=_REC,
        ledger=_rec_ledger,
        password=_plain_password,
    ),
    Cluster(
        example="mysql.yaml",
        path="/apis/mysql.mooring.dev/v1alpha1/namespaces/default/mysqlclusters/demo",
        selector=_MYSQL,
        ledger=_mysql_ledger,
        password=_mysql_password,
        edit={"spec": {"config": {"max_connections": "203"}}},
    ),
)


def known(commit: str) -> bool:
    """Whether this clone has the commit: a shallow one lacks earlier ones."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def moved(before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]]) -> list[str]:
    """What became of pods: those that went, came, were made again or restarted; empty where all are as they were."""
    said = [f"{name} is gone" for name in before.keys() - after.keys()]
    said += [f"{name} is new" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        if before[name][0] != after[name][0]:
            said.append(f"{name} was made again")
        elif before[name][1] != after[name][1]:
            said.append(f"{name} restarted")
    return sorted(said)


@dataclass(kw_only=True)
class Tree:
    """A checked-out tree, and programs of it."""

    root: Path
    name: str

    def start(self, *words: str | Path, log: Path) -> subprocess.Popen[bytes]:
        """Start ``mooring`` of this tree."""
        kept = ("PYTHONPATH", "MOORING_ROOT", "MOORING_LOCK", "VIRTUAL_ENV", "KUBECONFIG", "POD_NAMESPACE")
        environment = {name: value for name, value in os.environ.items() if name not in kept}
        with log.open("ab") as out:
            return subprocess.Popen(
                [str(self.root / "mooring"), *map(str, words)],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


@asynccontextmanager
async def _checked_out(commit: str) -> AsyncIterator[Tree]:
    """The tree of a commit, without a trace in the repository."""
    with tempfile.TemporaryDirectory(prefix="mooring-upgrade-from-") as place:
        archive = Path(place) / "tree.tar"
        git = ["git", "-C", str(ROOT), "archive", "-o", str(archive), commit]
        await asyncio.to_thread(subprocess.run, git, check=True)
        root = Path(place) / "tree"
        root.mkdir()
        tar = ["tar", "-xf", str(archive), "-C", str(root)]
        await asyncio.to_thread(subprocess.run, tar, check=True)
        archive.unlink()
        yield Tree(root=root, name=commit[:8])


@asynccontextmanager
async def _process(tree: Tree, *words: str | Path, log: Path, within: float = 60.0) -> AsyncIterator[None]:
    """A program that runs meanwhile; ended by SIGTERM."""
    process = tree.start(*words, log=log)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            print(f"upgrade: {words[0]} of {tree.name} did not end within {within:.0f} s", file=sys.stderr)


@asynccontextmanager
async def _plane(tree: Tree, place: Path, *, operators: str) -> AsyncIterator[Run]:
    """``mooring up`` of a tree on a data directory."""
    log = place / "up.log"
    words: Sequence[str | Path] = (
        *("up", "--data-dir", place / "data", "--listen", "127.0.0.1:0", "--operators", operators),
    )
    before = log.stat().st_size if log.exists() else 0
    async with _process(tree, *words, log=log, within=120.0):
        deadline = time.monotonic() + 300.0
        while b"mooring: ready." not in (log.read_bytes()[before:] if log.exists() else b""):
            if time.monotonic() > deadline:
                raise TimeoutError(f"mooring up of {tree.name} is not ready:\n{log.read_text()[-2000:]}")
            await asyncio.sleep(0.2)
        run = Run(place=place, kubeconfig=place / "data" / "kubeconfig")
        try:
            yield run
        finally:
            await run.close()


def _say(text: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", flush=True)


_BEGAN = time.monotonic()


async def _apply(run: Run, tree: Tree, one: Cluster) -> None:
    for document in yaml.safe_load_all((tree.root / "examples" / one.example).read_text()):
        await run.client.request(
            "PATCH",
            one.path,
            query={"fieldManager": "upgrade", "force": "true"},
            body=ApplyPatch(document).encode(),
            content_type=ApplyPatch.content_type,
        )


async def _unready(run: Run, one: Cluster) -> str:
    """Why a cluster does not count as Ready of its present generation."""
    obj = await run.get(one.path)
    status = obj.get("status") or {}
    listed = status.get("standardConditions") or status.get("conditions") or ()
    ready: Json = next((each for each in listed if each.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        return f"{one.name}: {ready.get('reason', 'no condition Ready')}: {ready.get('message', '')}"
    if status.get("observedGeneration", ready.get("observedGeneration")) != obj["metadata"]["generation"]:
        return f"{one.name}: its present generation was not looked at"
    return ""


async def _holders(run: Run) -> dict[str, str]:
    found = await run.get("/apis/coordination.k8s.io/v1/namespaces/mooring-system/leases")
    return {
        one["metadata"]["name"]: one["spec"].get("holderIdentity") or ""
        for one in found["items"]
        if one["metadata"]["name"].startswith("mooring-")
    }


async def _led_by_another(run: Run, before: dict[str, str]) -> str:
    now = await _holders(run)
    old = [name for name in before if not now.get(name) or now[name] == before[name]]
    return f"nobody new leads {', '.join(old)}" if old or not now else ""


@asynccontextmanager
async def _operators(run: Run, tree: Tree, clusters: Sequence[Cluster]) -> AsyncIterator[None]:
    """``mooring run`` of a tree, from the moment at which it leads."""
    before = await _holders(run)
    words = ("run", "--kubeconfig", run.kubeconfig, "--metrics-port", "0", "--probe-port", "0")
    chosen = ("--operators", ",".join(one.name for one in clusters))
    log = run.place / f"run-{tree.name}.log"
    async with _process(tree, *words, *chosen, log=log):
        if said := await run.until(lambda: _led_by_another(run, before), within=180.0):
            raise TimeoutError(f"mooring run of {tree.name}: {said}\n{log.read_text()[-2000:]}")
        yield


async def _all_ready(run: Run, clusters: Sequence[Cluster], when: str) -> None:
    for one in clusters:
        if said := await run.until(lambda one=one: _unready(run, one)):  # type: ignore[misc]
            run.wrong.append(f"{when}: {said}")


@asynccontextmanager
async def _written(run: Run, here: Tree, clusters: Sequence[Cluster]) -> AsyncIterator[None]:
    """Every cluster is written to meanwhile; at the end what was lost is counted."""
    writers: list[tuple[Cluster, subprocess.Popen[bytes], Path]] = []
    try:
        for one in clusters:
            secret = run.place / f"{one.name}.password"
            secret.touch(mode=0o600)
            secret.write_text(await one.password(run))
            out = run.place / f"{one.name}.json"
            words = [*await one.ledger(run), "--password-file", str(secret), "--rate", "50", "--json"]
            writers.append((one, here.start("ledger", *words, log=out), out))
        yield
    finally:
        for _, process, _ in writers:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        for one, process, out in writers:
            try:
                status = await asyncio.to_thread(process.wait, 120)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            text = out.read_text()
            try:
                report = json.loads(text[text.index("{") :])
            except ValueError:
                run.wrong.append(f"{one.name}: the writer ended with status {status}: {text[-500:]}")
                continue
            lost = report.get("lost_acknowledged", report.get("lost"))
            shown = {name: value for name, value in report.items() if isinstance(value, (int, float))}
            _say(f"{one.name}: {shown}")
            if status or lost or not report.get("acknowledged"):
                run.wrong.append(f"{one.name}: writes were lost, or none was made: {shown}")


async def _stays(
    run: Run, clusters: Sequence[Cluster], before: dict[str, dict[str, tuple[str, int]]], when: str
) -> None:
    """Look at the clusters for a while: Ready, and their pods as they were."""
    await _all_ready(run, clusters, when)
    await asyncio.sleep(STAYS_SECONDS)
    await _all_ready(run, clusters, when)
    for one in clusters:
        said = moved(before[one.name], await run.pods(one.selector))
        _say(f"{when}: {one.name}: {', '.join(said) or f'{len(before[one.name])} pods as they were'}")
        run.wrong += [f"{when}: {one.name}: {each}" for each in said]


async def _swap_operators(old: Tree, here: Tree, clusters: Sequence[Cluster]) -> list[str]:
    """Part one: the operators of one tree after those of another, on one plane."""
    with tempfile.TemporaryDirectory(prefix="mooring-upgrade-", ignore_cleanup_errors=True) as name:
        async with _plane(here, Path(name), operators="none") as run, AsyncExitStack() as writing:
            before: dict[str, dict[str, tuple[str, int]]] = {}
            async with _operators(run, old, clusters):
                for one in clusters:
                    await _apply(run, old, one)
                await _all_ready(run, clusters, f"created by {old.name}")
                if run.wrong:
                    return run.wrong
                before = {one.name: await run.pods(one.selector) for one in clusters}
                for one in clusters:
                    if not before[one.name]:
                        run.wrong.append(f"{one.name}: no pod is selected by {one.selector}")
                _say(f"created by {old.name}: {', '.join(f'{k} {len(v)} pods' for k, v in before.items())}")
                await writing.enter_async_context(_written(run, here, clusters))
            async with _operators(run, here, clusters):
                await _stays(run, clusters, before, f"{old.name} -> {here.name}")
                for one in clusters:
                    if one.edit is not None:
                        await run.client.request(
                            "PATCH",
                            one.path,
                            body=msgspec.json.encode(one.edit),
                            content_type="application/merge-patch+json",
                        )
                await _stays(run, clusters, before, f"a live change by {here.name}")
            async with _operators(run, old, clusters):
                await _stays(run, clusters, before, f"{here.name} -> {old.name}")
            await writing.aclose()
            return run.wrong


async def _swap_planes(old: Tree, here: Tree) -> list[str]:
    """Part two: one data directory, opened by one tree after the other."""
    one = CLUSTERS[0]
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mooring-upgrade-", ignore_cleanup_errors=True) as name:
        claims: set[str] = set()
        for number, tree in enumerate((old, here, old)):
            async with _plane(tree, Path(name), operators="redis-sentinel") as run:
                if number == 0:
                    await _apply(run, tree, one)
                await _all_ready(run, (one,), f"the data directory of {old.name}, opened by {tree.name}")
                found = await run.get("/api/v1/namespaces/default/persistentvolumeclaims")
                now = {each["metadata"]["uid"] for each in found["items"]}
                claims = claims or now
                if now != claims or not now:
                    run.wrong.append(f"opened by {tree.name}: other claims than before")
                wrong += run.wrong
                _say(
                    f"the data directory opened by {tree.name}: {'; '.join(run.wrong) or 'Ready, same claims'}"
                )
            if wrong:
                break
    return wrong


async def _upgrade(commit: str, only: Sequence[str]) -> list[str]:
    head = await asyncio.to_thread(
        subprocess.check_output, ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True
    )
    here = Tree(root=ROOT, name=f"{head.strip()}+")
    clusters = [one for one in CLUSTERS if not only or one.name in only]
    async with _checked_out(commit) as old:
        wrong = await _swap_operators(old, here, clusters)
        return wrong + await _swap_planes(old, here)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="commit", required=True, metavar="COMMIT")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[one.name for one in CLUSTERS],
        help="these operators alone (default: all)",
    )
    options = parser.parse_args()
    if not known(options.commit):
        print(f"upgrade: this clone has no commit {options.commit}: git fetch --unshallow", file=sys.stderr)
        return 2
    wrong = asyncio.run(_upgrade(options.commit, options.only))
    for one in wrong:
        print(f"upgrade: {one}", file=sys.stderr)
    print(f"upgrade from {options.commit}: {'failed' if wrong else 'and back: all as it was'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
