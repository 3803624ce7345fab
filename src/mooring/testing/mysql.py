"""Real MariaDB and MySQL servers without a control plane: what tests of statements and steps stand on.

    async with Servers("mariadb:10.11") as servers:
        primary, *replicas = await servers.start(3)
        primary.kill()

Each is a process of an image made of Debian's packages, on port 3306 of a loopback address of its own, set up as the pods
of the operator are: same accounts, same my.cnf, read-only, replication not started. The first server of an image
initialises a data directory that is kept and copied for all others.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from mooring.local.node.packages import PackageImages
from mooring.local.removal import remove_tree
from mooring.operators.mysql import config, gate, names
from mooring.operators.mysql.accounts import BACKUP_RIGHTS
from mooring.operators.mysql.credentials import ACCOUNTS, Credentials
from mooring.operators.mysql.moves import Target
from mooring.operators.mysql.topology import Flavor

__all__ = ["CREDENTIALS", "Servers", "TestServer", "inside"]

CREDENTIALS: Final = Credentials(texts={label: f"test-{label}" for label in ACCOUNTS.values()})
"""What all these servers are set up with."""

_SMALL: Final = {
    "innodb_buffer_pool_size": "16M",
    "innodb_log_buffer_size": "2M",
    "key_buffer_size": "1M",
    "max_connections": "60",
    "performance_schema": "OFF",
    "innodb_use_native_aio": "OFF",
}
_SMALL_OF: Final[dict[Flavor, dict[str, str]]] = {
    "mariadb": {"innodb_log_file_size": "16M", "aria_pagecache_buffer_size": "1M"},
    "mysql": {"innodb_redo_log_capacity": "16M"},
}
_RESERVED: Final = (f"GRANT SERVICE_CONNECTION_ADMIN ON *.* TO '{names.REPLICATION}'@'%';",)
_UP_WITHIN: Final = 60.0
#: Counted up when `_initialise` makes something else.
_FORM: Final = 4
#: Every start has its own.
_IDS: Final = itertools.count(int(time.time()) - gate.EPOCH)


@dataclass(kw_only=True)
class TestServer:
    """One server: a data directory, an address, and the process while there is one."""

    __test__ = False

    flavor: Flavor
    image: Path
    directory: Path
    address: str
    name: str
    settings: dict[str, str] = field(default_factory=dict)
    server_id: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> Target:
        """As a move names it."""
        return Target(name=self.name, host=self.address, server_id=self.server_id)

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self.directory / "data"

    @property
    def log(self) -> str:
        """What it said."""
        with suppress(OSError):
            return (self.directory / "log").read_text(errors="replace")
        return ""

    @property
    def pid(self) -> int:
        """Of the server itself, below the sandbox; raises LookupError when there is none."""
        if self.process is None or self.process.poll() is not None:
            raise LookupError(f"{self.name} does not run: {self.log[-1000:]}")
        found = self.process.pid
        with suppress(OSError, ValueError):
            while children := Path(f"/proc/{found}/task/{found}/children").read_text().split():
                found = int(children[0])
        return found

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal: SIGKILL, SIGSTOP, SIGCONT ..."""
        os.kill(self.pid, number)
        if number == signal.SIGKILL and self.process is not None:
            self.process.wait()

    async def boot(self, *words: str) -> None:
        """Start it, with a server_id that no start had before; returns when it accepts connections."""
        self.server_id = next(_IDS)
        values = {**_SMALL, **_SMALL_OF[self.flavor], **self.settings}
        (self.directory / "my.cnf").write_text(
            config.base_cnf(self.flavor, {})
            + "".join(f"loose_{key}={value}\n" for key, value in values.items())
            + config.forced_cnf(self.flavor)
            + f"datadir=/var/lib/mysql/data\nsocket=/var/lib/mysql/mysqld.sock\npid_file=/var/lib/mysql/mysqld.pid\nserver_id={self.server_id}\n"
            + f"bind_address={self.address}\nreport_host={self.address}\n"
            + (
                f"extra_port={names.ADMIN_PORT}\n"
                if self.flavor == "mariadb"
                else f"admin_address={self.address}\nadmin_port={names.ADMIN_PORT}\nsecure_file_priv=NULL\n"
            )
        )
        program = "mariadbd" if self.flavor == "mariadb" else "mysqld"
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
                [*inside(self.image, self.directory), program, "--defaults-file=/var/lib/mysql/my.cnf", "--user=root", *words],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        deadline = time.monotonic() + _UP_WITHIN
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.log[-2000:]}")
            with suppress(OSError):
                _, writer = await asyncio.wait_for(asyncio.open_connection(self.address, names.PORT), 1)
                writer.close()
                return
            await asyncio.sleep(0.02)
        raise RuntimeError(f"{self.name} does not listen after {_UP_WITHIN:.0f} s: {self.log[-2000:]}")

    def stop(self) -> None:
        """End it, however it is."""
        if self.process is not None and self.process.poll() is None:
            with suppress(LookupError, ProcessLookupError):
                self.kill()
            self.process.kill()
            self.process.wait()


class Servers:
    """Servers of one image; all end with the block."""

    def __init__(self, reference: str = "mariadb:10.11") -> None:
        self.reference = reference
        self.flavor: Flavor = "mysql" if reference.startswith("mysql") else "mariadb"
        self.all: list[TestServer] = []
        self._images = PackageImages()
        self._directory = Path(tempfile.mkdtemp(prefix="mooring-mysql-"))
        # Tests run beside one another: a block of loopback addresses of one's own.
        self._block = f"127.{random.randint(64, 250)}.{random.randint(1, 250)}"

    async def __aenter__(self) -> Servers:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.all:
            server.stop()
        await asyncio.to_thread(remove_tree, self._directory)

    async def start(self, count: int = 1, *words: str, **settings: str) -> list[TestServer]:
        """More servers, empty; further words and settings as the server takes them."""
        made = [await self.make(**settings) for _ in range(count)]
        await asyncio.gather(*(server.boot(*words) for server in made))
        return made

    async def make(self, **settings: str) -> TestServer:
        """A further server that was not started yet."""
        image, template = await asyncio.to_thread(self._ready)
        number = len(self.all) + 1
        directory = self._directory / f"s-{number}"
        directory.mkdir()
        await asyncio.to_thread(shutil.copytree, template, directory / "data", symlinks=True)
        server = TestServer(
            flavor=self.flavor, image=image, directory=directory, address=f"{self._block}.{number}", name=f"s-{number}",
            settings=settings,
        )  # fmt: skip
        self.all.append(server)
        return server

    def _ready(self) -> tuple[Path, Path]:
        recipe = self._images.recipe(self.flavor, self.reference)
        made = self._images.make(recipe)
        image = self._images.store.layer(made.chain[-1])
        template = self._images.directory / "data" / f"{image.name}-{_FORM}"
        with self._images.store.locked():
            if not template.is_dir():
                _initialise(self.flavor, image, template)
        return image, template


def inside(image: Path, directory: Path) -> Sequence[str]:
    """The beginning of a command line that runs a program of an image, with a directory at /var/lib/mysql."""
    return (
        *("bwrap", "--die-with-parent", "--ro-bind", str(image), "/", "--dev", "/dev", "--proc", "/proc"),
        *(
            "--perms",
            "1777",
            "--tmpfs",
            "/tmp",  # noqa: S108 - inside
            "--tmpfs",
            "/run",
            "--bind",
            str(directory),
            "/var/lib/mysql",
        ),
    )


def _initialise(flavor: Flavor, image: Path, template: Path) -> None:
    """A data directory with the accounts of a pod."""
    work = Path(f"{template}.new")
    remove_tree(work)
    (work / "tmp").mkdir(parents=True)
    text = CREDENTIALS.text
    small = [f"--loose-{key}={value}" for key, value in {**_SMALL, **_SMALL_OF[flavor]}.items()]
    accounts = [
        f"CREATE USER 'root'@'%' IDENTIFIED BY '{text(ACCOUNTS['root'])}';",
        "GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;",
        f"CREATE USER '{names.OPERATOR_USER}'@'%' IDENTIFIED BY '{text(ACCOUNTS[names.OPERATOR_USER])}';",
        f"GRANT ALL PRIVILEGES ON *.* TO '{names.OPERATOR_USER}'@'%' WITH GRANT OPTION;",
        f"CREATE USER '{names.REPLICATION}'@'%' IDENTIFIED BY '{text(ACCOUNTS[names.REPLICATION])}';",
        f"GRANT REPLICATION SLAVE ON *.* TO '{names.REPLICATION}'@'%';",
        *(_RESERVED if flavor == "mysql" else ()),
        f"CREATE USER '{names.BACKUP}'@'%' IDENTIFIED BY '{text(ACCOUNTS[names.BACKUP])}';",
        f"GRANT {BACKUP_RIGHTS[flavor]} ON *.* TO '{names.BACKUP}'@'%';",
    ]
    base = [*inside(image, work)]
    if flavor == "mariadb":
        _run([*base, "mariadb-install-db", "--no-defaults", "--user=root", "--datadir=/var/lib/mysql/data",
              "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"])  # fmt: skip
        clean = ["DELETE FROM mysql.global_priv WHERE User IN ('root', '');", "FLUSH PRIVILEGES;"]
        statements = "\n".join(["FLUSH PRIVILEGES;", *clean, *accounts]) + "\n"
        _run([*base, "mariadbd", "--no-defaults", "--user=root", "--datadir=/var/lib/mysql/data", "--bootstrap",
              *small], statements)  # fmt: skip
    else:
        (work / "first.sql").write_text("\n".join(accounts) + "\n")
        _run([*base, "mysqld", "--no-defaults", "--user=root", "--datadir=/var/lib/mysql/data",
              "--initialize-insecure", "--init-file=/var/lib/mysql/first.sql", "--secure-file-priv=NULL", *small])  # fmt: skip
        (work / "data" / "auto.cnf").unlink(missing_ok=True)  # every copy gets a server_uuid of its own
    template.parent.mkdir(parents=True, exist_ok=True)
    (work / "data").rename(template)
    remove_tree(work)


def _run(command: Sequence[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{command[-2]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        )
