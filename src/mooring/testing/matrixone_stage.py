"""A MatrixOneCluster on a :class:`~mooring.testing.bed.Bed`: what faults and measurements need of it.

stage = MatrixOneStage(bed, "mo")
for document in manifests("mo"):
    await bed.apply(document)
await stage.whole()
async with stage.writing() as ledger:
    stage.kill(await stage.one("CNSet"))
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mooring.kube import NotFound
from mooring.kube.objects.core import Pod, Secret, Service
from mooring.operators.matrixone.names import CLUSTER, COMPONENT
from mooring.operators.matrixone.types import LogSet, MatrixOneCluster, MatrixOneClusterStatus
from mooring.operators.mysql.dial import Login
from mooring.operators.workload.credentials import secret_value
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.stage import Stage, unready, writing_to

__all__ = ["KINDS", "SQL_PORT", "MatrixOneStage", "manifests"]

SQL_PORT = 6001
KINDS = ("LogSet", "DNSet", "CNSet", "ProxySet")
"""The components that have pods."""


def manifests(
    name: str = "mo",
    *,
    namespace: str = "default",
    logs: int = 3,
    compute: int = 2,
    proxies: int = 1,
    log_config: str = "",
    group: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """A small cluster on a shared directory, and the claim of that; ``group``: more fields of its compute nodes."""
    shared = {
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": f"{name}-shared"}}],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    small = {"sharedStorageCache": {"memoryCacheSize": "256Mi"}, "overlay": shared}
    storage = {"resources": {"requests": {"storage": "10Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"{name}-shared", "namespace": namespace},
            "spec": {"accessModes": ["ReadWriteMany"], **storage},
        },
        {
            "apiVersion": "core.matrixorigin.io/v1alpha1",
            "kind": "MatrixOneCluster",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "version": "1.2.4",
                "logService": {
                    "replicas": logs,
                    "volume": {"size": "5Gi"},
                    "sharedStorage": {"fileSystem": {"path": "/shared"}},
                    "overlay": shared,
                    **({"config": log_config} if log_config else {}),
                },
                "tn": {"replicas": 1, "cacheVolume": {"size": "5Gi"}, **small},
                "cnGroups": [
                    {
                        "name": "tp",
                        "replicas": compute,
                        "scalingConfig": {"storeDrainEnabled": True},
                        **small,
                        **(group or {}),
                    }
                ],
                "proxy": {"replicas": proxies, "overlay": shared},
            },
        },
    ]


class MatrixOneStage(Stage[MatrixOneCluster]):
    """One cluster, seen from outside."""

    kind = MatrixOneCluster

    def __init__(
        self, bed: Bed | ClusterBed | KubernetesBed, name: str = "mo", *, namespace: str = "default"
    ) -> None:
        super().__init__(bed, name, namespace=namespace, selector=f"{CLUSTER}={name}")

    # --- what it says

    async def status(self) -> MatrixOneClusterStatus:
        """Its status; an empty one before the first look."""
        return (await self.get()).status or MatrixOneClusterStatus()

    async def pods(self, kind: str = "") -> list[Pod]:
        """Its pods by name, those of one component where that is named."""
        return await self._pods(f"{self.selector},{COMPONENT}={kind}" if kind else self.selector)

    async def names(self, kind: str = "") -> list[str]:
        """The names of pods that are not being deleted."""
        return [
            one.metadata.name or "" for one in await self.pods(kind) if not one.metadata.deletion_timestamp
        ]

    async def log_leader(self) -> str:
        """The log store that leads most shards, by status; raises LookupError where none leads."""
        found: LogSet = await self.bed.get(LogSet, self.name, self.namespace)
        stores = (found.status.stores if found.status is not None else None) or ()
        leads = [one for one in stores if one.leads]
        if not leads:
            raise LookupError(f"no log store of {self.name} leads a shard")
        return max(leads, key=lambda one: len(one.leads or ())).pod_name

    async def entry(self) -> str:
        """The address of the proxies' Service."""
        found = await self.bed.get(Service, f"{self.name}-proxy", self.namespace)
        return (found.spec.cluster_ip if found.spec else None) or ""

    async def login(self) -> Login:
        """How the cluster's first SQL user logs in."""
        secret = await self.bed.get(Secret, f"{self.name}-credential", self.namespace)
        password = secret_value(secret, "password") or ""
        return Login(user=secret_value(secret, "username") or "", passwords=(("", password),))

    # --- waiting

    async def whole(self, within: float = 240.0) -> float:
        """Wait until the operator is done with the present generation and every pod is ready; returns the seconds."""
        return await self._until(self.flaw, within=within)

    async def flaw(self) -> str:
        """What is not as declared; empty when all is."""
        try:
            cluster = await self.get()
        except NotFound:
            return "there is none"
        current = {
            one.type: one
            for one in (cluster.status.conditions if cluster.status else None) or ()
            if one.observed_generation == cluster.metadata.generation
        }
        for kind in ("Ready", "Synced"):
            one = current.get(kind)
            if one is None or one.status != "True":
                return (
                    f"{kind}: {one.reason}: {one.message}" if one else "the generation was not observed yet"
                )
        spec = cluster.spec
        assert spec is not None
        assert spec.log_service is not None
        counts = {
            "LogSet": spec.log_service.replicas or 0,
            "DNSet": (spec.tn.replicas if spec.tn is not None else 1) or 0,
            "ProxySet": (spec.proxy.replicas if spec.proxy is not None else 0) or 0,
        }
        for what, count in counts.items():
            if wrong := unready(await self.pods(what), count, what=what):
                return wrong
        compute = await self.pods("CNSet")
        if wrong := unready(compute, len(compute), what="CNSet"):
            return wrong
        found: LogSet = await self.bed.get(LogSet, self.name, self.namespace)
        stores = (found.status.stores if found.status is not None else None) or ()
        bad = [f"{one.pod_name} is {one.state}" for one in stores if one.state != "Serving"]
        return "; ".join(bad)

    # --- writing

    @asynccontextmanager
    async def writing(self, **how: Any) -> AsyncIterator[MySQLLedger]:
        """Clients write through the proxies' Service all through the block; 20 rows are in at first."""
        ledger = MySQLLedger(self.entry, await self.login(), port=SQL_PORT, **how)
        async with writing_to(ledger, lambda one: self.writes(one, 20, within=60)):
            yield ledger

    # --- faults

    def kill(self, pod: str, number: int = signal.SIGKILL) -> int:
        """Signal a pod's server; returns its pid."""
        return self.bed.kill(self.namespace, pod, "main", number)
