"""mariadb-operator on the real cluster of a benchmark: installed by its own chart, and a cluster of its replication.

Chart and program come from the operator's Go module (hack/mariadb_operator). `MariaDBStage` is to its resource what
`MySQLStage` is to ours: the same clients and faults, and `exact` asks every server itself.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any, ClassVar

from bench.cluster import install
from hack.images.peers import MARIADB, OPERATOR
from hack.kubernetes.binaries import sources

from mooring.kube import MergePatch, NotFound, Object, Part, Resource
from mooring.kube.objects.core import Secret, Service
from mooring.kube.objects.meta import Condition
from mooring.operators.mysql.dial import DialError, Login
from mooring.testing.bed import ClusterBed, NotInTime
from mooring.testing.ledger_mysql import DATABASE
from mooring.testing.mysql_stage import MySQLStage
from mooring.testing.stage import unready

__all__ = ["MariaDB", "MariaDBStage", "install_operator", "version"]

MODULE = "github.com/mariadb-operator/mariadb-operator"
_DIRECTORY = Path(__file__).resolve().parents[1] / "hack" / "mariadb_operator"
_PASSWORD = "of-the-root"
QUICK = {"readinessProbe": {"initialDelaySeconds": 1, "periodSeconds": 1, "timeoutSeconds": 1}}
"""Its readiness probe once a second, from the first second on; by default every 10 s after 20 s, with 5 s to answer."""


def version() -> str:
    """The version of the operator that is built."""
    line = next(one for one in (_DIRECTORY / "go.mod").read_text().splitlines() if f"{MODULE} v" in one)
    return line.partition(f"{MODULE} v")[2].split()[0]


async def install_operator(bed: ClusterBed, directory: Path) -> None:
    """Install it as its chart does, webhook and certificates too; OSError when helm does not succeed."""
    charts = sources(_DIRECTORY, MODULE) / "deploy" / "charts"
    copy = directory / "mariadb-operator"
    # The module has the chart without the other chart that it depends on.
    for source, place in (("mariadb-operator", copy), ("mariadb-operator-crds", copy / "charts" / "crds")):
        shutil.copytree(charts / source, place, copy_function=shutil.copyfile)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    words = ["--set", "crds.enabled=true"]
    for part in ("", "webhook.", "certController."):
        words += ["--set", f"{part}image.repository={OPERATOR}", "--set", f"{part}image.tag=bench"]
    await install(bed, "peer", copy, "mariadb-operator", *words, home=directory)


class MariaDBStatus(Part, frozen=True, kw_only=True):
    """What is read of its status."""

    current_primary_pod_index: int | None = None
    conditions: list[Condition] | None = None


class MariaDB(Object, frozen=True, kw_only=True):
    """A cluster of mariadb-operator."""

    resource: ClassVar[Resource] = Resource("k8s.mariadb.com", "v1alpha1", "MariaDB", "mariadbs", True)

    spec: dict[str, Any] | None = None
    status: MariaDBStatus | None = None


class MariaDBStage(MySQLStage):
    """One cluster of mariadb-operator, seen from outside."""

    kind: ClassVar[type[Any]] = MariaDB

    def __init__(self, bed: ClusterBed, name: str, *, size: int) -> None:
        super().__init__(bed, name)
        self.selector = f"app.kubernetes.io/instance={name},app.kubernetes.io/name=mariadb"
        self._size = size

    async def create(self, **spec: Any) -> None:
        """Apply it: semi-synchronous replication, all else by its defaults but for these words of the spec."""
        root = {"name": f"{self.name}-root", "namespace": self.namespace}
        await self.bed.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": root, "stringData": {"password": _PASSWORD}}
        )
        await self.bed.apply(
            {
                "apiVersion": self.kind.resource.api_version,
                "kind": self.kind.resource.kind,
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {
                    "image": MARIADB,
                    "rootPasswordSecretKeyRef": {"name": root["name"], "key": "password"},
                    "storage": {"size": "1Gi"},
                    "replicas": self._size,
                    "replication": {"enabled": True},
                    **spec,
                },
            }
        )

    async def primary(self) -> str:
        """The pod that leads, by status; raises when none does."""
        return self._primary(await self.bed.get(MariaDB, self.name, self.namespace))

    def _primary(self, cluster: MariaDB) -> str:
        if cluster.status is None or cluster.status.current_primary_pod_index is None:
            raise NotInTime(f"{self.name} has no primary")
        return f"{self.name}-{cluster.status.current_primary_pod_index}"

    async def entry(self, service: str = "") -> str:
        """The address of the primary's Service, or of another one."""
        found = await self.bed.get(Service, service or f"{self.name}-primary", self.namespace)
        return (found.spec.cluster_ip if found.spec else None) or ""

    async def login(self, account: str = "root") -> Login:
        """How to log in as root, whatever account is asked for."""
        return Login(user="root", passwords=(("given", _PASSWORD),))

    async def query(self, pod: str, statement: str, *, account: str = "root") -> list[dict[str, Any]]:
        """One statement on one pod's server."""
        return await super().query(pod, statement, account=account)

    async def switch(self, pod: str) -> None:
        """Ask for another primary, as a person does."""
        index = int(pod.rpartition("-")[2])
        body = MergePatch({"spec": {"replication": {"primary": {"podIndex": index}}}})
        await self.bed.client.patch(MariaDB, self.name, body, namespace=self.namespace)

    async def led_by_another(self, old: str, within: float = 20.0) -> str:
        """Wait until status names another pod than this one."""

        async def another() -> bool:
            return await self.primary() != old

        await self.bed.until(another, f"another primary than {old}", within=within)
        return await self.primary()

    def kill(self, pod: str, number: int = signal.SIGKILL) -> int:
        """Signal a pod's server; returns its pid."""
        return self.bed.kill(self.namespace, pod, "mariadb", number)

    async def delete(self, *, claims: bool = False, within: float = 120.0) -> None:
        """Delete it and wait until its pods are gone; its claims and passwords too if asked."""
        await super().delete(claims=claims, within=within)
        for name in (f"{self.name}-root", f"repl-password-{self.name}") if claims else ():
            try:
                await self.bed.client.delete(Secret, name, namespace=self.namespace)
            except NotFound:
                continue  # its owner took it along

    async def flaw(self) -> str:
        """What is not as declared; empty when the primary takes writes, and all others follow it and have its rows."""
        try:
            cluster = await self.bed.get(MariaDB, self.name, self.namespace)
            primary = self._primary(cluster)
            if said := _unready(cluster, primary):
                return said
            pods = await self.pods()
            if wrong := unready(pods, self._size):
                return wrong
            if await self._read_only(primary):
                return f"{primary} is read-only"
            rows = await self._rows(primary)
            for pod in (one.metadata.name or "" for one in pods):
                if pod != primary and (wrong := await self._follower(pod, primary, rows)):
                    return wrong
        except (DialError, NotFound, NotInTime) as error:
            return str(error)
        return ""

    async def _follower(self, pod: str, primary: str, rows: tuple[int, int]) -> str:
        links = await self.query(pod, "SHOW ALL SLAVES STATUS")
        if len(links) != 1 or not str(links[0]["Master_Host"]).startswith(f"{primary}."):
            return f"{pod} does not follow {primary}"
        link = links[0]
        if link["Slave_IO_Running"] != "Yes" or link["Slave_SQL_Running"] != "Yes":
            return f"{pod} stands still: {link['Last_IO_Error'] or link['Last_SQL_Error']}"
        if not await self._read_only(pod):
            return f"{pod} is writable beside {primary}"
        there = await self._rows(pod)
        return "" if there == rows else f"{pod} has {there[0]} rows, {primary} has {rows[0]}, or they differ"

    async def _read_only(self, pod: str) -> bool:
        return (await self.query(pod, "SELECT @@GLOBAL.read_only AS v"))[0]["v"] in (1, "1")

    async def _rows(self, pod: str) -> tuple[int, int]:
        """How many rows of the writers it has, and what tells them from others."""
        exists = f"SELECT COUNT(*) AS n FROM information_schema.tables WHERE table_schema = '{DATABASE}'"
        if not int((await self.query(pod, exists))[0]["n"]):
            return 0, 0
        count = f"SELECT COUNT(*) AS n, COALESCE(BIT_XOR(id), 0) AS x FROM {DATABASE}.written"
        (row,) = await self.query(pod, count)
        return int(row["n"]), int(row["x"])


def _unready(cluster: MariaDB, primary: str) -> str:
    conditions = (cluster.status.conditions if cluster.status else None) or ()
    wanted = (((cluster.spec or {}).get("replication") or {}).get("primary") or {}).get("podIndex")
    if wanted is not None and not primary.endswith(f"-{wanted}"):
        return f"switches from {primary} to the pod {wanted}"
    for one in conditions:
        if one.type in ("Ready", "PrimarySwitched") and one.status != "True":
            return f"{one.type}: {one.reason}: {one.message}"
    if not any(one.type == "Ready" for one in conditions):
        return "no condition Ready"
    return ""
