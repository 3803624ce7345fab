"""The probes of the pods on real servers: MariaDB in the embedded tier, MySQL in the full one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.operators.mysql.test_steps import FLAVORS, Bench

from mooring.operators.mysql import scripts
from mooring.operators.mysql.credentials import ACCOUNTS
from mooring.testing.mysql import CREDENTIALS, Servers, TestServer, inside

pytestmark = pytest.mark.parametrize("image", FLAVORS)

GRANTS = {
    "mariadb": "PROCESS, BINLOG MONITOR, SLAVE MONITOR",
    "mysql": "PROCESS, REPLICATION CLIENT",
}


class Probe:
    """The files of a pod beside a server, and the script as the kubelet runs it."""

    def __init__(self, server: TestServer) -> None:
        self._server = server
        self._home = server.directory / "mooring"
        for name in ("auth", "run"):
            (self._home / name).mkdir(parents=True)
        password = CREDENTIALS.text(ACCOUNTS["root"])
        (self._home / "auth" / "monitor.cnf").write_text(f'[client]\nuser=monitored\npassword="{password}"\n')
        (self._home / "run" / "state").write_text("up\n")
        (self._home / "run" / "mysqld.sock").symlink_to("/var/lib/mysql/mysqld.sock")
        (self._home / "ready.sh").write_text(scripts.READY)
        (self._home / "live.sh").write_text(scripts.LIVE)

    def login(self, text: str | None) -> None:
        """What the pod mounts to log in with; nothing where the Secret was emptied."""
        file = self._home / "auth" / "monitor.cnf"
        if text is None:
            file.unlink()
        else:
            file.write_text(text)

    async def ready(self) -> bool:
        """What one readiness probe says."""
        return await self._says("ready.sh")

    async def alive(self) -> bool:
        """What one liveness probe says."""
        return await self._says("live.sh")

    async def _says(self, script: str) -> bool:
        home = Path("/var/lib/mysql/mooring")
        command = ("env", f"MOORING_HOME={home}", "sh", str(home / script))
        process = await asyncio.create_subprocess_exec(
            *inside(self._server.image, self._server.directory), *command
        )
        return await process.wait() == 0


async def test_a_replica_that_does_not_apply_is_not_ready(image: str) -> None:
    async with Servers(image) as servers:
        bench = Bench(servers)
        primary, replica = await bench.start(2)
        await bench.found(primary, [replica], semi_sync=False)
        password = CREDENTIALS.text(ACCOUNTS["root"])
        await as_operator(
            bench,
            primary,
            f"CREATE USER monitored@localhost IDENTIFIED BY '{password}'",
            f"GRANT {GRANTS[servers.flavor]} ON *.* TO monitored@localhost",
            "INSERT INTO shop.t VALUES (1, 1)",
        )
        await bench.level(primary, replica)
        leads, follows = Probe(primary), Probe(replica)
        assert await leads.ready()
        assert await follows.ready()

        # The applier alone is stopped: it receives and does not apply.
        await as_operator(bench, replica, bench.dialect.stop(), bench.dialect.start_receiver())
        assert not await follows.ready()
        # Both are stopped and nothing is wrong, as after a start until the operator starts them.
        await as_operator(bench, replica, bench.dialect.stop())
        assert await follows.ready()
        await as_operator(bench, replica, bench.dialect.start())
        assert await follows.ready()

        # It cannot apply what it received.
        if servers.flavor == "mysql":
            await as_operator(bench, replica, "SET GLOBAL super_read_only = OFF")
        await as_operator(
            bench,
            replica,
            "SET SESSION sql_log_bin = 0",
            "INSERT INTO shop.t VALUES (2, 2)",
        )
        await as_operator(bench, primary, "INSERT INTO shop.t VALUES (2, 1)")
        await bench.until(replica, lambda it: it.replication is not None and it.replication.sql_errno != 0)
        assert not await follows.ready()
        await as_operator(bench, replica, bench.dialect.stop())
        assert not await follows.ready()
        await as_operator(
            bench,
            replica,
            "SET SESSION sql_log_bin = 0",
            "DELETE FROM shop.t WHERE id = 2",
            bench.dialect.start(),
        )
        await bench.level(primary, replica)
        assert await follows.ready()

        # Its source is away: it has nothing to apply, which is no reason to send nobody to it.
        primary.kill()
        await bench.until(replica, lambda it: it.replication is not None and not it.replication.io_running)
        assert await follows.ready()
        bench.holds.close()
        bench.dial.close()


async def test_a_server_that_lets_the_probe_in_no_more_is_alive(image: str) -> None:
    async with Servers(image) as servers:
        (server,) = await servers.start(1)
        probe = Probe(server)
        probe.login('[client]\nuser=monitored\npassword="another"\n')
        assert (await probe.alive(), await probe.ready()) == (True, False)
        probe.login(None)
        assert await probe.alive()
        server.kill()
        assert not await probe.alive()


async def as_operator(bench: Bench, server: TestServer, *statements: str) -> None:
    """Statements in one session of the operator's account."""
    async with bench.dial.open(server.address, bench.login) as link:
        for statement in statements:
            await link.query(statement)
