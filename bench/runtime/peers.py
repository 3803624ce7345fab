"""The peers as processes: how each is started, asked for its health, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hack.kubernetes.binaries import build_module

__all__ = ["PEERS", "Peer", "Replica", "prepare", "versions"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a peer is told."""

    namespace: str
    probes: int
    metrics: int
    #: Several replicas: the first is 0. None: one alone, no election.
    replica: int | None


@dataclass(frozen=True, slots=True)
class Peer:
    """One of those compared; ``command`` gives the words that start it."""

    name: str
    command: Callable[[Launch], Sequence[str]]

    @asynccontextmanager
    async def run(
        self, kubeconfig: Path, *, namespace: str, replica: int | None = None, log: Path
    ) -> AsyncIterator[Replica]:
        """Start it and wait until it answers its probe; it is gone at the end of the block."""
        probes, metrics = _free_ports()
        launch = Launch(namespace=namespace, probes=probes, metrics=metrics, replica=replica)
        command = self.command(launch)
        began = time.monotonic()
        process = await asyncio.to_thread(_spawn, command, kubeconfig, log)
        running = Replica(process, probes, began)
        try:
            await running.healthy(log)
            yield running
        finally:
            await asyncio.to_thread(running.end)


class Replica:
    """One process of a peer."""

    def __init__(self, process: subprocess.Popen[bytes], probes: int, began: float) -> None:
        self._process = process
        self.probes = probes
        self.began = began
        self.pid = process.pid

    async def healthy(self, log: Path) -> None:
        """Wait until the probe is answered."""
        while time.monotonic() - self.began < START_SECONDS:
            if self._process.poll() is not None:
                raise RuntimeError(f"the peer ended at its start: {_tail(log)}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.probes)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            return
        raise TimeoutError(f"the peer answers no probe: {_tail(log)}")

    @property
    def ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """Ask it to end, then make it."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=8)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _spawn(command: Sequence[str], kubeconfig: Path, log: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


# --- the commands


@cache
def _go() -> Path:
    return build_module(HERE / "go", "bench-controller-runtime")


@cache
def _kopf() -> Path:
    """kopf's program, in an environment of its own made by the launcher from requirements/bench.txt."""
    done = subprocess.run(
        [str(ROOT / "mooring"), "exec", "sh", "-c", "command -v kopf"],
        env={**os.environ, "MOORING_LOCK": "bench"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(done.stdout.strip())


def _mooring_command(launch: Launch) -> Sequence[str]:
    words = [sys.executable, "-m", "bench.runtime.peer_mooring", "--namespace", launch.namespace]
    words += ["--probes", str(launch.probes), "--metrics", str(launch.metrics)]
    return words if launch.replica is None else [*words, "--elect"]


def _kopf_command(launch: Launch) -> Sequence[str]:
    words = [str(_kopf()), "run", str(HERE / "peer_kopf.py"), "-n", launch.namespace]
    words += ["--liveness", f"http://127.0.0.1:{launch.probes}/healthz"]
    if launch.replica is None:
        return [*words, "--standalone"]
    return [*words, "--peering", "bench", "--priority", str(100 - launch.replica)]


def _go_command(launch: Launch) -> Sequence[str]:
    words = [str(_go()), "-namespace", launch.namespace, "-probes", f"127.0.0.1:{launch.probes}"]
    words += ["-metrics", f"127.0.0.1:{launch.metrics}"]
    return words if launch.replica is None else [*words, "-elect"]


def _go_consistent_command(launch: Launch) -> Sequence[str]:
    return [*_go_command(launch), "-read-your-writes"]


PEERS = {
    peer.name: peer
    for peer in (
        Peer("mooring", _mooring_command),
        Peer("kopf", _kopf_command),
        Peer("controller-runtime", _go_command),
        Peer("controller-runtime, consistent", _go_consistent_command),
    )
}


def prepare(names: Sequence[str]) -> None:
    """Build and install what the peers need, so that no measurement includes it."""
    for name in names:
        PEERS[name].command(Launch(namespace="", probes=0, metrics=0, replica=None))


def versions() -> dict[str, str]:
    """What is compared, by its locks."""
    locked = (ROOT / "requirements" / "bench.txt").read_text()
    module = (HERE / "go" / "go.mod").read_text()
    kopf = next(line for line in locked.splitlines() if line.startswith("kopf=="))
    go = next(line for line in module.splitlines() if "controller-runtime v" in line)
    return {
        "kopf": kopf.partition("==")[2].split()[0],
        "controller-runtime": go.split()[-1],
        "python": sys.version.split()[0],
    }
