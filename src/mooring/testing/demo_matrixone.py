"""``mooring demo --what matrixone``: a MatrixOne cluster is scaled out, survives a compute node, and has a warm one claimed.

What each of that cost is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from mooring.kube import Client, JsonPatch
from mooring.kube.object import decode
from mooring.kube.objects.core import Pod, Secret, Service
from mooring.kube.objects.meta import LabelSelector, ObjectMeta
from mooring.local.directory import DataDirectory
from mooring.local.node.images import Catalog, ImageError
from mooring.local.plane import Plane
from mooring.operators.matrixone.conditions import is_true
from mooring.operators.matrixone.types import CNClaim, CNClaimSpec, CNLabel, CNPool, MatrixOneCluster
from mooring.operators.mysql.dial import Dial, DialError, Login
from mooring.operators.workload.credentials import secret_value
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.show import DemoFailed, Manifest, OnPlane, Show, namespace_of, ready_pods

__all__ = ["MatrixOneShow"]

READY_SECONDS = 300.0
SCALED_SECONDS = 180.0
SQL_SECONDS = 60.0
PATIENCE = 20.0
"""Seconds a client waits for an answer: while a compute node dies, a statement may wait for its locks."""
ROWS = 50
"""Rows that have to be acknowledged before and after each fault."""
_IMAGE: Final = "matrixorigin/matrixone"
_PORT: Final = 6001


class MatrixOneShow(Show):
    """The story of a MatrixOneCluster."""

    def __init__(self, directory: DataDirectory, manifest: Manifest, *, stay: bool, program: str) -> None:
        super().__init__(directory, manifest, stay=stay, program=program)
        self._bed: OnPlane
        self._name = manifest.cluster["metadata"]["name"]
        self._namespace = namespace_of(manifest.cluster)
        self._host, self._login = "", Login()

    @classmethod
    def missing(cls, manifest: Manifest) -> str:
        """See `Show`: the server is built, not downloaded."""
        spec = manifest.cluster.get("spec") or {}
        try:
            Catalog().resolve(f"{spec.get('imageRepository') or _IMAGE}:{spec.get('version') or 'latest'}")
        except ImageError as error:
            return str(error)
        return ""

    async def tell(self, plane: Plane, client: Client) -> None:
        """See `Show`."""
        self._bed = OnPlane(plane, client)
        began = time.monotonic()
        await self._at_rest(READY_SECONDS)
        self.say(f"Ready {time.monotonic() - began:.1f} s after the apply")
        await self._connect()
        await self._scale_out()
        await self._kill()
        await self._claim()

    async def _connect(self) -> None:
        """The first statement through the proxy."""
        service = await self._bed.get(Service, f"{self._name}-proxy", self._namespace)
        secret = await self._bed.get(Secret, f"{self._name}-credential", self._namespace)
        self._host = (service.spec.cluster_ip if service.spec is not None else None) or ""
        user, password = secret_value(secret, "username"), secret_value(secret, "password")
        self._login = Login(user=user, passwords=[("secret", password)])
        seen: list[str] = []

        async def answered() -> bool:
            try:
                async with Dial(port=_PORT).open(self._host, self._login, timeout=5.0) as link:
                    rows = await link.query("SELECT version() AS version")
            except DialError:
                return False
            seen.append(str(rows[0]["version"]))
            return True

        await self._bed.until(answered, "an answer of the proxy", within=SQL_SECONDS, every=0.5)
        self.say(f"SQL through the proxy at {self._host}:{_PORT} as {user}: version {seen[-1]}")

    async def _scale_out(self) -> None:
        group = self._manifest.cluster["spec"]["cnGroups"][0]
        more = group["replicas"] + 1
        patch = JsonPatch([{"op": "replace", "path": "/spec/cnGroups/0/replicas", "value": more}])
        async with self._writing() as ledger:
            self.say(f"kubectl patch mo {self._name}: {more} compute nodes, two clients writing")
            began = time.monotonic()
            await self._bed.client.patch(MatrixOneCluster, self._name, patch, namespace=self._namespace)
            await self._at_rest(SCALED_SECONDS)
            names = ", ".join(one.metadata.name or "" for one in await self._compute_nodes())
            self.say(f"{names} serve after {time.monotonic() - began:.1f} s")
        await self._cost("scale-out", ledger)

    async def _kill(self) -> None:
        victim = (await self._compute_nodes())[0].metadata.name or ""
        async with self._writing() as ledger:
            pid = self._bed.kill(self._namespace, victim, "main")
            self.say(f"kill -9 of a compute node: {victim}, process {pid}, two clients writing")
            before = ledger.acknowledged

            async def goes_on() -> bool:
                return ledger.acknowledged >= before + ROWS

            seconds = await self._bed.until(goes_on, "rows are written again", within=SQL_SECONDS)
            self.say(f"{ROWS} rows later, {seconds:.1f} s after the kill")
            await self._at_rest(SCALED_SECONDS)
            self.say(f"{victim} is back")
        await self._cost("kill -9", ledger)

    async def _claim(self) -> None:
        """A pool keeps one compute node warm; a claim has it serve one account."""
        bed, name, place = self._bed, f"{self._name}-warm", self._namespace
        await bed.client.create(self._pool(name))

        async def idle() -> bool:
            pool = await bed.get(CNPool, name, place)
            return pool.status is not None and pool.status.idle == 1

        seconds = await bed.until(idle, "the pool has a warm compute node", within=SCALED_SECONDS, every=0.3)
        self.say(f"CNPool {name}: a compute node is warm after {seconds:.1f} s")
        claim = CNClaim(
            metadata=ObjectMeta(name="acme", namespace=place),
            spec=CNClaimSpec(
                selector=LabelSelector(match_labels={"pool": name}),
                cn_labels=[CNLabel(key="account", values=["acme"])],
            ),
        )
        began = time.monotonic()
        await bed.client.create(claim)

        async def serves() -> bool:
            found = await bed.get(CNClaim, "acme", place)
            return found.status is not None and is_true(found.status.conditions, "Ready")

        await bed.until(serves, "the claim is ready", within=SQL_SECONDS)
        took, found = time.monotonic() - began, await bed.get(CNClaim, "acme", place)
        pod = found.spec.pod_name if found.spec is not None else ""
        self.say(f"CNClaim acme: {pod} serves the account acme {took:.2f} s after the apply")

    def _pool(self, name: str) -> CNPool:
        """One warm compute node like those of the cluster's first group."""
        spec = self._manifest.cluster["spec"]
        like = {
            field: value
            for field, value in spec["cnGroups"][0].items()
            if field in ("cacheVolume", "config", "overlay", "resources", "sharedStorageCache")
        }
        image = f"{spec.get('imageRepository') or _IMAGE}:{spec.get('version') or 'latest'}"
        deps = {kind: {"metadata": {"name": self._name}} for kind in ("logSet", "dnSet")}
        document = {
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {
                "podLabels": {"pool": name},
                "deps": deps,
                "strategy": {"updateStrategy": {}, "scaleStrategy": {"maxIdle": 1, "maxPods": 2}},
                "template": {**like, "image": image},
            },
        }
        return decode(document, CNPool)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[MySQLLedger]:
        """Two clients write through the proxy, one row at a time."""

        async def where() -> str:
            return self._host

        ledger = MySQLLedger(where, self._login, clients=2, rate=20.0, patience=PATIENCE, port=_PORT)
        task = asyncio.create_task(ledger.write())

        async def begun() -> bool:
            return task.done() or ledger.acknowledged >= ROWS

        try:
            await self._bed.until(begun, "the clients write", within=SQL_SECONDS)
            yield ledger
        finally:
            ledger.stop()
            await task

    async def _cost(self, what: str, ledger: MySQLLedger) -> None:
        report = await ledger.check()
        failed = sum(report.errors.values())
        self.say(
            f"{what}: {failed} tries failed, no row for {report.longest_gap:.2f} s; lost "
            f"{report.lost_acknowledged} of {report.acknowledged} acknowledged"
        )
        if report.lost_acknowledged:
            raise DemoFailed("acknowledged rows were lost")

    async def _compute_nodes(self) -> list[Pod]:
        found = await self._bed.pods(self._namespace, "matrixorigin.io/component=CNSet")
        return sorted(found, key=lambda one: one.metadata.name or "")

    async def _at_rest(self, seconds: float) -> None:
        """Wait until it is ready and as declared, showing what changes."""
        seen = ""

        async def rests() -> bool:
            nonlocal seen
            found = await self._bed.get(MatrixOneCluster, self._name, self._namespace)
            listed: Sequence[Any] = (found.status.conditions if found.status else None) or ()
            current = [one for one in listed if one.observed_generation == found.metadata.generation]
            pods = await self._bed.pods(self._namespace)
            waits = next((one for one in current if one.type == "Synced"), None)
            state = _short(waits.message or "") if waits is not None else "declared"
            line = f"{state} ({ready_pods(pods)}/{len(pods)} pods ready)"
            if line != seen:
                self.say(line)
                seen = line
            return is_true(current, "Ready") and is_true(current, "Synced")

        await self._bed.until(rests, "the cluster is ready and as declared", within=seconds, every=0.3)

    def farewell(self) -> list[str]:
        """See `Show`."""
        place = f"-n {self._namespace}"
        secret = (
            f"kubectl {place} get secret {self._name}-credential -o jsonpath='{{.data.password}}' | base64 -d"
        )
        enter = f"{self._program} enter --data-dir {self._directory.path}"
        return [
            f"  kubectl {place} get mo,logset,dnset,cnset,proxyset,cnpool,cnclaim,pods",
            f"  {secret}",
            f"  {enter} mysql -h {self._host} -P {_PORT} -u {self._login.user} -p",
            f"  {self._program} why mo/{self._name}",
        ]


def _short(message: str) -> str:
    """What is waited for, without what the servers said: it is in `kubectl describe`."""
    head = message.partition(": ")[0]
    return head + ")" * (head.count("(") - head.count(")"))
