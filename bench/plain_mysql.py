"""MariaDB without an operator: a StatefulSet with semi-synchronous replication, and a script that fails over by hand.

What `bench/mysql_gaps.py --plain` puts beside the operator: the same image, control plane, clients and faults. `watch` is the
script that people write for it: it looks at the primary once a second, makes it writable again when it came back, and lets
the replica with the newest GTID lead, by way of the primary's Service, when it did not answer three times. A replica follows
again when it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mooring.kube import MergePatch, NotFound
from mooring.kube.objects import apps, core
from mooring.operators.mysql.dial import Dial, DialError, Login
from mooring.testing.bed import Bed
from mooring.testing.ledger_mysql import MySQLLedger
from mooring.testing.stage import writing_to

__all__ = ["PlainMySQL"]

_BOSS = Login(user="boss", passwords=(("given", "of-the-boss"),))
_APP = Login(user="app", passwords=(("given", "of-the-app"),))
_LABEL = "statefulset.kubernetes.io/pod-name"
_USERS = """SET sql_log_bin = 0;
CREATE USER IF NOT EXISTS 'boss'@'%' IDENTIFIED BY 'of-the-boss';
GRANT ALL ON *.* TO 'boss'@'%';
CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY 'of-the-app';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON *.* TO 'app'@'%';
"""
_CONF = """[mariadb]
datadir=/var/lib/mysql/data
socket=/tmp/my.sock
pid-file=/tmp/my.pid
log-bin=bin
log-slave-updates
gtid-strict-mode
read-only
skip-name-resolve
slave-net-timeout=2
rpl_semi_sync_master_enabled
rpl_semi_sync_master_timeout=3600000
rpl_semi_sync_master_wait_point=AFTER_SYNC
innodb-buffer-pool-size=64M
"""
_START = """#!/bin/sh
set -eu
chown mysql /var/lib/mysql
[ -d /var/lib/mysql/data/mysql ] || mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql/data \\
  --auth-root-authentication-method=normal --skip-test-db >/dev/null
exec mariadbd --defaults-file=/plain/my.cnf --user=mysql --server-id=$((${HOSTNAME##*-} + 1)) --init-file=/plain/users.sql
"""


class PlainMySQL:
    """One cluster without an operator. `create` raises `DialError` when a server does not answer."""

    def __init__(self, bed: Bed, name: str, *, image: str, size: int) -> None:
        self._bed, self.name, self._image, self._size = bed, name, image, size
        self._dial = Dial(connect_timeout=1.0, reply_timeout=5.0)
        self._primary = f"{name}-0"

    async def primary(self) -> str:
        """The pod that the Service leads to."""
        return self._primary

    async def create(self) -> None:
        """Start the servers; the first one leads, and the others follow it."""
        for document in _manifests(self.name, self._image, self._size):
            await self._bed.apply(document)
        for pod in self._pods():

            async def up(pod: str = pod) -> bool:
                with contextlib.suppress(DialError, NotFound):
                    return bool(await self._ask(pod, "SELECT 1 AS one"))
                return False

            await self._bed.until(up, f"{pod} answers", within=120, every=0.1)
        for pod in self._pods()[1:]:
            await self._follow(pod)
        await self._ask(self._primary, "SET GLOBAL read_only = OFF")

    async def exact(self, within: float = 120) -> None:
        """Wait until every replica follows the primary."""

        async def follow() -> bool:
            with contextlib.suppress(DialError, NotFound):
                return all([await self._follows(pod) for pod in self._pods() if pod != self._primary])
            return False

        await self._bed.until(follow, "every replica follows", within=within)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """The script runs all through the block."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @asynccontextmanager
    async def writing(self, **how: Any) -> AsyncIterator[MySQLLedger]:
        """Clients write through the primary's Service all through the block; 100 rows are in at first."""
        ledger = MySQLLedger(self._entry, _APP, **how)
        async with writing_to(ledger, lambda one: self.writes(one, 100)):
            yield ledger

    async def writes(self, ledger: MySQLLedger, count: int, *, within: float = 120.0) -> None:
        """Wait for so many more rows."""
        until = ledger.acknowledged + count

        async def written() -> bool:
            return ledger.acknowledged >= until

        await self._bed.until(written, f"{count} rows are written", within=within)

    def kill(self, pod: str, number: int = signal.SIGKILL) -> int:
        """Signal a pod's server; returns its pid."""
        return self._bed.kill("default", pod, "mysql", number)

    async def hang(self, ledger: MySQLLedger) -> None:
        """Stop the primary until rows are written again; then it goes on."""
        pid = self.kill(self._primary, signal.SIGSTOP)
        try:
            await self.writes(ledger, 100)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    async def roll(self, ledger: MySQLLedger) -> None:
        """Every pod is recreated from a new template, by the StatefulSet."""
        text = f"r{ledger.acknowledged}"
        change = MergePatch({"spec": {"template": {"metadata": {"annotations": {"roll": text}}}}})
        await self._bed.client.patch(apps.StatefulSet, self.name, change, namespace="default")

        async def rolled() -> bool:
            found = [await self._bed.get(core.Pod, pod, "default") for pod in self._pods()]
            return all((one.metadata.annotations or {}).get("roll") == text for one in found)

        await self._bed.until(lambda: _there(rolled), "every pod was recreated", within=180)
        await self.writes(ledger, 50)

    async def delete(self) -> None:
        """Delete all of it, claims too."""
        objects: list[tuple[type[Any], str]] = [
            (apps.StatefulSet, self.name),
            (core.Service, self.name),
            (core.Service, f"{self.name}-primary"),
            (core.ConfigMap, self.name),
            *((core.PersistentVolumeClaim, f"data-{pod}") for pod in self._pods()),
        ]
        for kind, name in objects:
            with contextlib.suppress(NotFound):
                await self._bed.client.delete(kind, name, namespace="default")

    # --- the script

    async def _watch(self) -> None:
        silent = 0
        while True:
            await asyncio.sleep(1)
            try:
                rows = await self._ask(self._primary, "SELECT @@GLOBAL.read_only AS it")
                silent = 0
                if rows[0]["it"]:
                    await self._ask(self._primary, "SET GLOBAL read_only = OFF")
            except (DialError, NotFound):
                silent += 1
                if silent >= 3:
                    await self._another()
                    silent = 0
            for pod in self._pods():
                with contextlib.suppress(DialError, NotFound):
                    if pod != self._primary and not await self._follows(pod):
                        await self._ask(pod, "SET GLOBAL read_only = ON")
                        await self._follow(pod)

    async def _another(self) -> None:
        """The newest of the replicas that answer leads."""
        able: list[tuple[int, str]] = []
        for pod in self._pods():
            with contextlib.suppress(DialError, NotFound):
                if pod != self._primary:
                    await self._ask(pod, "STOP SLAVE IO_THREAD")
                    (row,) = await self._ask(pod, "SELECT @@GLOBAL.gtid_current_pos AS it")
                    able.append((int(str(row["it"]).rpartition("-")[2] or 0), pod))
        if not able:
            return
        _, new = max(able)
        with contextlib.suppress(DialError, NotFound):
            for statement in ("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF"):
                await self._ask(new, statement)
            self._primary = new
            change = MergePatch({"spec": {"selector": {_LABEL: new}}})
            await self._bed.client.patch(core.Service, f"{self.name}-primary", change, namespace="default")

    async def _follow(self, pod: str) -> None:
        source = await self._address(self._primary)
        change = (
            f"CHANGE MASTER TO MASTER_HOST='{source}', MASTER_USER='boss', MASTER_PASSWORD='of-the-boss', "
            "MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=0.5, MASTER_USE_GTID=slave_pos"
        )
        for statement in ("STOP SLAVE", "SET GLOBAL rpl_semi_sync_slave_enabled = ON", change, "START SLAVE"):
            await self._ask(pod, statement)

    async def _follows(self, pod: str) -> bool:
        rows = await self._ask(pod, "SHOW SLAVE STATUS")
        source = await self._address(self._primary)
        return bool(rows) and (
            rows[0]["Master_Host"] == source
            and rows[0]["Slave_IO_Running"] == "Yes"
            and rows[0]["Slave_SQL_Running"] == "Yes"
        )

    # ---

    def _pods(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self._size)]

    async def _address(self, pod: str) -> str:
        found = await self._bed.get(core.Pod, pod, "default")
        return (found.status.pod_ip if found.status else None) or ""

    async def _entry(self) -> str:
        found = await self._bed.get(core.Service, f"{self.name}-primary", "default")
        return (found.spec.cluster_ip if found.spec else None) or ""

    async def _ask(self, pod: str, statement: str) -> list[dict[str, Any]]:
        async with self._dial.open(await self._address(pod), _BOSS, name=pod, timeout=8.0) as link:
            return await link.query(statement)


async def _there(what: Any) -> bool:
    try:
        return bool(await what())
    except NotFound:
        return False


def _manifests(name: str, image: str, size: int) -> list[dict[str, Any]]:
    labels = {"app": name}
    meta = {"namespace": "default", "labels": labels}
    probe = {"exec": {"command": ["sh", "-c", "mariadb-admin -S /tmp/my.sock ping"]}, "timeoutSeconds": 5}
    container = {
        "name": "mysql",
        "image": image,
        "command": ["sh", "/plain/start.sh"],
        "ports": [{"containerPort": 3306}],
        "readinessProbe": {**probe, "periodSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 3, "initialDelaySeconds": 20},
        "volumeMounts": [
            {"name": "plain", "mountPath": "/plain"},
            {"name": "data", "mountPath": "/var/lib/mysql"},
        ],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    def service(title: str, spec: dict[str, Any]) -> dict[str, Any]:
        ports = [{"port": 3306}]
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {**meta, "name": title}}
        return {**body, "spec": {"ports": ports, **spec}}

    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**meta, "name": name},
            "data": {"my.cnf": _CONF, "start.sh": _START, "users.sql": _USERS},
        },
        service(name, {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True}),
        service(f"{name}-primary", {"selector": {_LABEL: f"{name}-0"}}),
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**meta, "name": name},
            "spec": {
                "replicas": size,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "containers": [container],
                        "volumes": [{"name": "plain", "configMap": {"name": name}}],
                    },
                },
                "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": labels}, "spec": claim}],
            },
        },
    ]
