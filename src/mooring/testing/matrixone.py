"""MatrixOne as bare processes on loopback, without Kubernetes: for tests of the operator's RPC, and to compare with.

    async with bare_cluster(program, directory, compute=2) as cluster:
        await cluster.until_sql()
        async with cluster.sql() as cursor:
            await cursor.execute("select 1")

Every process has a loopback address of its own and the ports that it has in a pod. The cluster chooses a network below
127.0.0.0/8 by chance, so several run side by side.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import asyncmy
from asyncmy.errors import MySQLError

from mooring.testing.errors import NotInTime

__all__ = ["BareCluster", "Role", "Service", "bare_cluster"]

Role = Literal["log", "tn", "cn", "proxy"]

RAFT_PORT, LOG_PORT, GOSSIP_PORT = 32000, 32001, 32002
TN_PORT, TN_SHARD_PORT, LOGTAIL_PORT, LOCK_PORT = 41010, 41014, 32003, 6003
SQL_PORT, PIPELINE_PORT, QUERY_PORT, CN_SHARD_PORT = 6001, 6002, 6004, 6006
FIRST_REPLICA = 131072
"""Id of the first bootstrap replica, as upstream's operator counts them."""
USER, PASSWORD = "dump", "111"
"""What every new cluster begins with."""
_HOSTS: Mapping[Role, int] = {"log": 10, "tn": 30, "cn": 40, "proxy": 60}
_UUID: Mapping[Role, str] = {
    "log": "00000000-0000-0000-0000-0{:011x}",
    "tn": "00000000-0000-0000-0000-1{:011x}",
    "cn": "64396564-3061-3238-3164-{:012x}",
    "proxy": "70726f78-7900-0000-0000-{:012x}",
}
_LOOK_EVERY = 0.1
_STOP_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the cluster."""

    role: Role
    ordinal: int
    network: str

    @property
    def name(self) -> str:
        return f"{self.role}{self.ordinal}"

    @property
    def host(self) -> str:
        """Its loopback address."""
        return f"{self.network}.{_HOSTS[self.role] + self.ordinal}"

    @property
    def uuid(self) -> str:
        """Its store's UUID."""
        return _UUID[self.role].format(self.ordinal)


class BareCluster:
    """A cluster's processes: log stores, one TN, CNs and one proxy; `services` by name, such as ``cn1``.

    ``draining`` CNs start as Draining and serve once they are patched Working. ``log_timeout`` is the seconds after
    which HAKeeper gives a silent log store up, 5 minutes by default.
    """

    def __init__(
        self,
        program: Path,
        directory: Path,
        *,
        logs: int = 1,
        compute: int = 2,
        draining: bool = False,
        log_timeout: float | None = None,
    ) -> None:
        self._program, self._directory, self._draining = program, directory, draining
        self._log_timeout = log_timeout
        self._network = _free_network()
        counts: Mapping[Role, int] = {"log": logs, "tn": 1, "cn": compute, "proxy": 1}
        self.services = {
            one.name: one
            for role, count in counts.items()
            for one in (Service(role, ordinal, self._network) for ordinal in range(count))
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    # --- processes

    def start(self, *names: str) -> None:
        """Start these processes, all by default; their logs are ``<name>.log`` in the cluster's directory."""
        for name in names or self.services:
            home = self._directory / name
            home.mkdir(parents=True, exist_ok=True)
            config = home / "config.toml"
            config.write_text(self._config(self.services[name], home))
            # They end with us, also when we are killed.
            command = ["setpriv", "--pdeathsig", "KILL", "--", str(self._program), "-cfg", str(config)]
            with (self._directory / f"{name}.log").open("ab") as log:
                self._running[name] = subprocess.Popen(
                    command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send one process a signal."""
        self._running[name].send_signal(number)

    async def stop(self, name: str) -> float:
        """End one process by SIGTERM; returns the seconds that it took."""
        began = time.monotonic()
        self.kill(name, signal.SIGTERM)
        await self.until_gone(name)
        return time.monotonic() - began

    async def until_gone(self, name: str) -> None:
        """Wait until a process has ended."""
        process = self._running[name]
        async with asyncio.timeout(_STOP_TIMEOUT):
            while process.poll() is None:
                await asyncio.sleep(_LOOK_EVERY)

    def close(self) -> None:
        """Kill what runs."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait(_STOP_TIMEOUT)

    def resident(self) -> dict[str, int]:
        """Resident memory by process, in bytes."""
        found = {}
        for name, process in self._running.items():
            if process.poll() is None:
                words = Path(f"/proc/{process.pid}/statm").read_text().split()
                found[name] = int(words[1]) * 4096
        return found

    # --- SQL

    @asynccontextmanager
    async def sql(self, name: str = "proxy0", *, timeout: float = 5.0) -> AsyncIterator[Any]:
        """A cursor of a connection to the proxy or to a CN; raises what asyncmy raises, or OSError."""
        async with asyncio.timeout(timeout):
            connection = await asyncmy.connect(
                host=self.services[name].host, port=SQL_PORT, user=USER, password=PASSWORD, autocommit=True
            )
        try:
            async with connection.cursor() as cursor:
                yield cursor
        finally:
            connection.close()

    async def until_sql(self, name: str = "proxy0", *, timeout: float = 90.0) -> float:
        """Wait until a process answers SQL; returns seconds, raises `NotInTime` with the end of its log."""
        began = time.monotonic()
        last: BaseException | None = None
        while time.monotonic() - began < timeout:
            try:
                async with asyncio.timeout(5), self.sql(name) as cursor:
                    await cursor.execute("select 1")
                    return time.monotonic() - began
            except (MySQLError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                last = error
                if (status := self._running[name].poll()) is not None:
                    raise NotInTime(f"{name} ended with {status}: {self._tail(name)}") from error
            await asyncio.sleep(_LOOK_EVERY)
        raise NotInTime(f"{name} answered no SQL in {timeout:.0f} s: {last}: {self._tail(name)}")

    def _tail(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-2000:]

    # --- configuration

    def _config(self, service: Service, home: Path) -> str:
        tables = {"log": self._log, "tn": self._tn, "cn": self._cn, "proxy": self._proxy}
        memory = "64MB" if service.role in ("tn", "cn") else "1B"
        # No discovery address: it would have to be a balancer, as a Service is, since no other address is then tried.
        logs = ", ".join(f'"{one.host}:{LOG_PORT}"' for one in self._logs())
        return f"""service-type = "{service.role.upper()}"
data-dir = "{home}/data"
[log]
level = "info"
[[fileservice]]
name = "LOCAL"
backend = "DISK"
data-dir = "{home}/data"
[[fileservice]]
name = "S3"
backend = "DISK"
data-dir = "{self._directory}/shared"
[fileservice.cache]
memory-capacity = "{memory}"
[[fileservice]]
name = "ETL"
backend = "DISK-ETL"
data-dir = "{self._directory}/shared"
[fileservice.cache]
memory-capacity = "1B"
[observability]
disableTrace = true
disableMetric = true
[hakeeper-client]
service-addresses = [{logs}]
{tables[service.role](service, home)}"""

    def _logs(self) -> Sequence[Service]:
        return [one for one in self.services.values() if one.role == "log"]

    def _log(self, service: Service, _home: Path) -> str:
        logs = self._logs()
        members = ", ".join(f'"{FIRST_REPLICA + one.ordinal}:{one.uuid}"' for one in logs)
        seeds = ", ".join(f'"{one.host}:{GOSSIP_PORT}"' for one in logs)
        keeper = (
            f'[logservice.HAKeeperConfig]\nlog-store-timeout = "{self._log_timeout:g}s"\n'
            if self._log_timeout is not None
            else ""
        )
        return f"""[logservice]
deployment-id = 4611686018427387
uuid = "{service.uuid}"
raft-address = "{service.host}:{RAFT_PORT}"
logservice-address = "{service.host}:{LOG_PORT}"
gossip-address = "{service.host}:{GOSSIP_PORT}"
gossip-seed-addresses = [{seeds}]
gossip-allow-self-as-seed = {"true" if len(logs) == 1 else "false"}
[logservice.BootstrapConfig]
bootstrap-cluster = true
num-of-log-shards = 1
num-of-tn-shards = 1
num-of-log-shard-replicas = {len(logs)}
init-hakeeper-members = [{members}]
{keeper}"""

    def _tn(self, service: Service, _home: Path) -> str:
        return f"""[tn]
uuid = "{service.uuid}"
listen-address = "{service.host}:{TN_PORT}"
service-address = "{service.host}:{TN_PORT}"
[tn.LogtailServer]
{_address(service, LOGTAIL_PORT)}
[tn.lockservice]
{_address(service, LOCK_PORT)}
[tn.shardservice]
{_address(service, TN_SHARD_PORT)}
"""

    def _cn(self, service: Service, home: Path) -> str:
        draining = 'init-work-state = "Draining"\n' if self._draining else ""
        return f"""[cn]
uuid = "{service.uuid}"
role = "TP"
listen-address = "{service.host}:{PIPELINE_PORT}"
service-address = "{service.host}:{PIPELINE_PORT}"
sql-address = "{service.host}:{SQL_PORT}"
{draining}[cn.lockservice]
{_address(service, LOCK_PORT)}
[cn.query-service.address]
listen-address = "{service.host}:{QUERY_PORT}"
service-addresss = "{service.host}:{QUERY_PORT}"
[cn.shardservice]
{_address(service, CN_SHARD_PORT)}
[cn.frontend]
host = "{service.host}"
port = {SQL_PORT}
unix-socket = "{home}/mysql.sock"
proxy-enabled = true
"""

    def _proxy(self, service: Service, _home: Path) -> str:
        return f"""[proxy]
uuid = "{service.uuid}"
listen-address = "{service.host}:{SQL_PORT}"
"""


def _address(service: Service, port: int) -> str:
    return f'listen-address = "{service.host}:{port}"\nservice-address = "{service.host}:{port}"'


def _free_network() -> str:
    """The first three numbers of a loopback network in which nobody serves a log store."""
    while True:
        network = f"127.{random.randrange(64, 192)}.{random.randrange(1, 255)}"
        try:
            socket.create_server((f"{network}.{_HOSTS['log']}", RAFT_PORT)).close()
        except OSError:
            continue
        return network


@asynccontextmanager
async def bare_cluster(
    program: Path,
    directory: Path,
    *,
    logs: int = 1,
    compute: int = 2,
    draining: bool = False,
    log_timeout: float | None = None,
) -> AsyncIterator[BareCluster]:
    """A `BareCluster` whose processes are all started at once, and killed in the end."""
    cluster = BareCluster(
        program, directory, logs=logs, compute=compute, draining=draining, log_timeout=log_timeout
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
