"""The mooring program run as people run it, and what it may leave behind."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mooring.cli.detached import START_SECONDS
from mooring.kube import Client, Config, HttpTransport
from mooring.local.directory import DataDirectory
from mooring.local.node.cgroups import detect
from mooring.local.node.cleanup import leftover_processes, plane_id
from mooring.local.node.rootless import inside
from mooring.local.node.volumes import memory_directory

__all__ = [
    "ROOT",
    "Done",
    "Program",
    "Running",
    "descendants",
    "free_port",
    "needs_kubectl",
    "open_pidfds",
    "ourselves",
    "plain_user",
    "temporary",
    "traces",
    "until",
]

ROOT = Path(__file__).resolve().parents[2]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

#: A user that exists nowhere, so nobody else's processes or files are his.
_PLAIN_UID = 61234


@dataclass(frozen=True, slots=True)
class Done:
    """What a finished program left."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Everything it wrote."""
        return self.out + self.err

    def fine(self) -> str:
        """The output of a program that must have succeeded."""
        assert self.status == 0, f"status {self.status}: {self.text}"
        return self.out


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """``mooring`` as one user runs it; ``before`` is what becomes that user."""

    argv: Sequence[str]
    env: dict[str, str]
    home: Path
    before: Sequence[str] = ()

    async def run(self, *arguments: str | Path, seconds: float = 60.0, **env: str) -> Done:
        """Run to the end, without a terminal."""
        return await self.other(*self.argv, *arguments, seconds=seconds, **env)

    async def other(self, *command: str | Path, seconds: float = 60.0, text: str = "", **env: str) -> Done:
        """Run another program as the same user; ``text`` is its input."""
        process = await asyncio.create_subprocess_exec(
            *self.before,
            *map(str, command),
            stdin=asyncio.subprocess.PIPE if text else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self.env, **env},
            cwd=self.home,
        )
        try:
            async with asyncio.timeout(seconds):
                out, err = await process.communicate(text.encode() if text else None)
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            raise
        return Done(process.returncode or 0, out.decode(), err.decode())

    async def kubectl(self, kubeconfig: Path, *arguments: str, seconds: float = 60.0, text: str = "") -> Done:
        """Run kubectl against a plane."""
        return await self.other("kubectl", *arguments, seconds=seconds, text=text, KUBECONFIG=str(kubeconfig))

    def start(self, *arguments: str | Path, log: Path) -> subprocess.Popen[bytes]:
        """Start it, with everything it says going to a file."""
        # Whoever started the tests may have had these ignored, as nohup does; a terminal's shell has not.
        defaults = ["env", "--default-signal=INT,HUP"]
        with log.open("ab") as out:
            return subprocess.Popen(
                [*defaults, *self.before, *self.argv, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.env,
                cwd=self.home,
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        """Everything that runs as the plain user; the dead that nobody has waited for do not count."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if not entry.name.isdigit() or entry.stat().st_uid != _PLAIN_UID:
                    continue
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(entry.name))
        return found

    @asynccontextmanager
    async def up(self, directory: Path, *options: str) -> AsyncIterator[Running]:
        """A plane in the foreground; at the end it is killed, if it still runs, and cleaned up after."""
        running = Running(self, directory, options)
        try:
            await running.start()
            yield running
        finally:
            running.kill()
            await running.client_closed()
            done = await self.run("down", "--data-dir", directory)
            assert done.status == 0, done.text


@dataclass(slots=True)
class Running:
    """One ``mooring up``."""

    program: Program
    directory: Path
    options: Sequence[str] = ()
    _process: subprocess.Popen[bytes] | None = None
    _clients: list[Client] = field(default_factory=list)

    async def start(self) -> None:
        """Start (again) and wait until it is ready."""
        before = self.said()
        self._process = self.program.start(
            "up", "--data-dir", self.directory, "--listen", "127.0.0.1:0", *self.options, log=self.log
        )
        said = self.said
        await until(
            lambda: "mooring: ready." in said()[len(before) :] or self.ended, "ready", within=START_SECONDS
        )
        assert not self.ended, self.said()[len(before) :]

    @property
    def log(self) -> Path:
        """Everything the process said; beside the data directory, not in it."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return DataDirectory(self.directory).kubeconfig

    @property
    def pid(self) -> int:
        """The control plane's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self._process is None or self._process.poll() is not None

    def said(self) -> str:
        """All it has said."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def client(self) -> Client:
        """A client over HTTPS."""
        client = Client(HttpTransport(Config.load(self.kubeconfig)))
        self._clients.append(client)
        return client

    async def client_closed(self) -> None:
        """Close the clients handed out."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.close()

    def send(self, number: int) -> None:
        """Signal the control plane."""
        os.kill(self.pid, number)

    async def exit(self, number: int = signal.SIGTERM, *, within: float = 30.0) -> int:
        """Signal it and return its exit status."""
        self.send(number)
        return await self.status(within=within)

    async def status(self, *, within: float = 30.0) -> int:
        """Wait for its end."""
        process = self._process
        assert process is not None
        await until(lambda: process.poll() is not None, "the process ends", within=within)
        return process.returncode

    def kill(self) -> None:
        """Kill -9, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    async def kubectl(self, *arguments: str, seconds: float = 60.0, text: str = "") -> Done:
        """Run kubectl against it."""
        return await self.program.kubectl(self.kubeconfig, *arguments, seconds=seconds, text=text)


def ourselves(home: Path) -> Program:
    """The program as the user of this process."""
    env = {
        **os.environ,
        "HOME": str(home),
        "PYTHONPATH": str(ROOT / "src"),
        "MOORING_ROOT": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    env.pop("KUBECONFIG", None)
    return Program(argv=[sys.executable, "-m", "mooring"], env=env, home=home)


@contextmanager
def plain_user() -> Iterator[Program]:
    """The program as a plain user, with a home, a cache and a copy of the tree of his own.

    It runs through the launcher, which makes his environment first. Skips where there is no other user.
    """
    if inside():
        pytest.skip("in a user's own namespaces there is no other user")
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with temporary() as home:
        home.chmod(0o755)
        tree = home / "mooring"
        tree.mkdir()
        for name in ("mooring", "src", "requirements", "examples", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tree / name)
        for path in (home, *home.rglob("*")):
            os.chown(path, _PLAIN_UID, _PLAIN_UID, follow_symlinks=False)
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        # A bare PATH, as a plain user's is on Debian: no sbin, no environment of a developer.
        env = {**kept, "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        before = ["setpriv", f"--reuid={_PLAIN_UID}", f"--regid={_PLAIN_UID}", "--clear-groups", "--"]
        yield Program(argv=[str(tree / "mooring")], env=env, home=home, before=before)


@contextmanager
def temporary() -> Iterator[Path]:
    """A directory with a short path (socket files live below it)."""
    path = Path(tempfile.mkdtemp(prefix="mooring-cli-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def until(
    check: Callable[[], object] | Callable[[], Awaitable[object]],
    what: str,
    *,
    within: float = 20.0,
    every: float = 0.02,
) -> float:
    """Wait until ``check`` gives something true; the seconds it took."""
    began = time.monotonic()
    while True:
        last = check()
        if isinstance(last, Awaitable):
            last = await last
        if last:
            return time.monotonic() - began
        assert time.monotonic() - began < within, f"waited {within:g} s in vain: {what} (last: {last!r})"
        await asyncio.sleep(every)


def traces(directory: Path) -> list[str]:
    """What a plane on that data directory has made outside of it and is there now."""
    node = directory / "node"
    plane = plane_id(node)
    found = [f"interface {name}" for _, name in socket.if_nameindex() if name.startswith(f"mr{plane}")]
    tables = subprocess.run(["/usr/sbin/nft", "list", "tables"], capture_output=True, text=True, check=True)
    found += [f"table {line}" for line in tables.stdout.splitlines() if plane in line]
    found += [f"process {pid}" for pid in leftover_processes(node)]
    cgroups = detect(plane)
    found += [f"control group process {pid}" for pid in cgroups.pids()]
    # Not by a glob, which fails where the group of another plane goes meanwhile.
    groups = (Path(path) for path, _, _ in os.walk("/sys/fs/cgroup"))
    found += [f"control group {path}" for path in groups if path.name == f"mooring-{plane}"]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if str(directory) in line]
    memory = memory_directory(plane)
    return [*found, *([str(memory)] if memory.exists() else [])]


def descendants(pid: int) -> list[int]:
    """All processes below a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(words[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


@contextmanager
def open_pidfds(pids: Sequence[int]) -> Iterator[list[int]]:
    """Descriptors of processes, by which their ends are known for sure."""
    descriptors = []
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(pid))
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def free_port() -> int:
    """A port of loopback that nobody listens on now, below the range from which outgoing connections take theirs."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port := random.randrange(20000, 32000)))
            return port
