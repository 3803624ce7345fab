"""A MySQLCluster on a :class:`~mooring.testing.bed.Bed`: what faults and measurements need of it.

    stage = MySQLStage(bed, "demo")
    await bed.apply(manifest("demo"))
    await stage.exact()
    async with stage.writing() as ledger:
        stage.kill(await stage.primary())

`exact` does not believe the operator: it asks every server itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from mooring.kube import MergePatch, NotFound
from mooring.kube.objects.core import Pod, Secret, Service
from mooring.operators.mysql.credentials import credentials_in
from mooring.operators.mysql.dial import Dial, DialError, Login
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.names import COMPONENT, PORT, SWITCH_TO, Names, selector
from mooring.operators.mysql.survey import login_of, read_server
from mooring.operators.mysql.topology import Flavor, Server
from mooring.operators.mysql.types import MySQLCluster, MySQLClusterStatus, size_of
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed, NotInTime
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.stage import Stage, unready, writing_to

__all__ = ["MySQLStage", "manifest"]


def manifest(
    name: str = "demo", *, size: int = 3, image: str = "mariadb:10.11", **spec: Any
) -> dict[str, Any]:
    """A small cluster; further words go into the spec as they are."""
    return {
        "apiVersion": "mysql.mooring.dev/v1alpha1",
        "kind": "MySQLCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"size": size, "image": image, **spec},
    }


class MySQLStage(Stage[MySQLCluster]):
    """One cluster, seen from outside."""

    kind: ClassVar[type[Any]] = MySQLCluster

    def __init__(
        self,
        bed: Bed | ClusterBed | KubernetesBed,
        name: str = "demo",
        *,
        namespace: str = "default",
        flavor: Flavor = "mariadb",
    ) -> None:
        super().__init__(bed, name, namespace=namespace, selector=selector(name))
        self.names, self.flavor = Names(name), flavor
        self._dial = Dial(connect_timeout=2.0, reply_timeout=5.0)

    # --- what it says

    async def status(self) -> MySQLClusterStatus:
        """Its status; an empty one before the first look."""
        return (await self.get()).status or MySQLClusterStatus()

    async def primary(self) -> str:
        """The pod that leads, by status; raises when none does."""
        primary = (await self.status()).primary
        if not primary:
            raise NotInTime(f"{self.name} has no primary")
        return primary

    async def pods(self) -> list[Pod]:
        """Its pods, by name."""
        return await self._pods(self.selector)

    async def address(self, pod: str) -> str:
        """Where a pod's server listens."""
        found = await self.bed.get(Pod, pod, self.namespace)
        return (found.status.pod_ip if found.status else None) or ""

    async def entry(self, service: str = "") -> str:
        """The address of the primary's Service, or of another one."""
        found = await self.bed.get(Service, service or self.names.primary, self.namespace)
        return (found.spec.cluster_ip if found.spec else None) or ""

    async def served(self) -> str:
        """The address of the primary's Service, once it leads there: it follows the readiness of pods a moment later."""
        address = await self.entry()

        async def leads() -> bool:
            try:
                _, writer = await asyncio.open_connection(address, PORT)
            except OSError:
                return False
            writer.close()
            return True

        await self.bed.until(leads, f"{address} leads to a server")
        return address

    async def login(self, account: str = "mooring") -> Login:
        """How to log in as one of the cluster's own accounts."""
        secret = await self.bed.get(Secret, self.names.credentials, self.namespace)
        return login_of(credentials_in(secret), account)

    # --- talking to the servers

    async def query(self, pod: str, statement: str, *, account: str = "mooring") -> list[dict[str, Any]]:
        """One statement on one pod's server."""
        async with self._dial.open(await self.address(pod), await self.login(account), name=pod) as link:
            return await link.query(statement)

    async def server(self, pod: str) -> Server:
        """All that one pod's server says of itself."""
        async with self._dial.open(await self.address(pod), await self.login(), name=pod) as link:
            return await read_server(link, dialect_of(self.flavor))

    async def value(self, pod: str, variable: str) -> str:
        """One global variable of one server."""
        rows = await self.query(pod, f"SELECT @@GLOBAL.{variable} AS v")
        return str(rows[0]["v"])

    def set_aside(self, pod: str, database: str) -> list[Path]:
        """The directories of a database in the data that a pod's volume keeps aside."""
        volume = Path(f"/proc/{self.kill(pod, 0)}/root/var/lib/mysql")  # 0 sends nothing
        return [one for one in volume.glob(f"data.old*/{database}") if one.is_dir()]

    # --- changing it

    async def switch(self, pod: str) -> None:
        """Ask for another primary, as a person does."""
        body = MergePatch({"metadata": {"annotations": {SWITCH_TO: pod}}})
        await self.bed.client.patch(MySQLCluster, self.name, body, namespace=self.namespace)

    async def stray(self, pod: str) -> None:
        """Make a database ``stray`` on one server alone, as somebody with all rights could."""
        if self.flavor == "mysql":
            await self.query(pod, "SET GLOBAL super_read_only = OFF")
        await self.query(pod, "CREATE DATABASE stray")
        await self.query(pod, dialect_of(self.flavor).read_only(True))

    # --- waiting

    async def exact(self, within: float = 40.0) -> float:
        """Wait until the operator is done and every server agrees; returns the seconds."""
        return await self._until(self.flaw, within=within)

    async def settled(self, within: float = 40.0) -> float:
        """Wait until the operator is done with the present generation; returns the seconds."""
        return await self._until(self._unsettled, within=within)

    async def whole(self, within: float = 40.0) -> float:
        """Wait until the operator is done and every replica follows, also while clients write; returns the seconds."""

        async def flaw() -> str:
            found = await self.flaw()
            return "" if "has not applied" in found or "which" in found else found

        return await self._until(flaw, within=within)

    async def led_by_another(self, old: str, within: float = 20.0) -> str:
        """Wait until another pod leads and takes writes."""

        async def another() -> str:
            status = await self.status()
            done = status.primary != old and status.operation is None
            return (status.primary or "") if done else ""

        await self.bed.until(another, f"another primary than {old}", within=within)
        return await self.primary()

    async def _unsettled(self) -> str:
        cluster = await self.get()
        status = cluster.status or MySQLClusterStatus()
        if status.observed_generation != cluster.metadata.generation:
            return "the present generation was not observed yet"
        for kind, wanted in (("Ready", "True"), ("Progressing", "False")):
            one = next((one for one in status.conditions or () if one.type == kind), None)
            if one is None or one.status != wanted:
                return f"{kind}: {one.reason}: {one.message}" if one else f"no condition {kind}"
        return "" if status.phase == "Running" else f"phase {status.phase}"

    async def flaw(self) -> str:
        """What is not as declared, as the servers themselves tell it; empty when all is."""
        if said := await self._unsettled():
            return said
        cluster = await self.get()
        assert cluster.status is not None
        assert cluster.spec is not None
        size, primary = size_of(cluster), cluster.status.primary or ""
        pods = await self.pods()
        if wrong := unready(pods, size):
            return wrong
        try:
            servers = {pod.metadata.name or "": await self.server(pod.metadata.name or "") for pod in pods}
        except (DialError, NotFound) as error:
            return str(error)
        return self._wrong(servers, primary)

    def _wrong(self, servers: dict[str, Server], primary: str) -> str:
        leader = servers.get(primary)
        if leader is None or leader.read_only or leader.replication is not None:
            return f"{primary} does not lead"
        for name, it in servers.items():
            link = it.replication
            if name == primary:
                continue
            if not it.read_only:
                return f"{name} is writable beside {primary}"
            if link is None or link.host != self.names.host(primary, self.namespace):
                return f"{name} does not follow {primary}"
            if not (link.io_running and link.sql_running):
                return f"{name} stands still: {link.io_error or link.sql_error}"
            if not (it.executed - leader.executed).is_empty:
                return f"{name} has {(it.executed - leader.executed).text()}, which {primary} lacks"
            if not it.executed.contains(leader.executed):
                return f"{name} has not applied {(leader.executed - it.executed).text()} yet"
        return ""

    # --- writing

    @asynccontextmanager
    async def writing(self, *, login: Login | None = None, **how: Any) -> AsyncIterator[MySQLLedger]:
        """Clients write through the primary's Service all through the block; 100 rows are in at first.

        ``login`` is who writes, root by default; the other words are those of `MySQLLedger`.
        """
        ledger = MySQLLedger(self.entry, login or await self.login("root"), **how)
        async with writing_to(ledger, lambda one: self.writes(one, 100)):
            yield ledger

    @asynccontextmanager
    async def connected(self, clients: int) -> AsyncIterator[None]:
        """So many idle clients all through the block, spread over the replicas there are."""
        login = await self.login("root")
        replicas = [one.metadata.name or "" for one in await self.pods()]
        replicas.remove(await self.primary())
        async with contextlib.AsyncExitStack() as stack:
            for number in range(clients):
                pod = replicas[number % len(replicas)]
                await stack.enter_async_context(self._dial.open(await self.address(pod), login, name=pod))
            yield

    # --- faults

    def kill(self, pod: str, number: int = signal.SIGKILL) -> int:
        """Signal a pod's server; returns its pid."""
        return self.bed.kill(self.namespace, pod, COMPONENT, number)

    async def delete(self, *, claims: bool = False, within: float = 60.0) -> None:
        """See `Stage.delete`; with the claims go the passwords, which are kept for these."""
        await super().delete(claims=claims, within=within)
        for name in (self.names.credentials, self.names.credentials_copy) if claims else ():
            with contextlib.suppress(NotFound):
                await self.bed.client.delete(Secret, name, namespace=self.namespace)

    async def delete_pod(self, pod: str, *, grace: int | None = None) -> None:
        """Delete a pod."""
        await self.bed.client.delete(Pod, pod, namespace=self.namespace, grace_period=grace)
