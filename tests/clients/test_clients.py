"""The client libraries people write operators and tools with, on an embedded plane and on a real server.

Each is a program of its own that prints what worked; what a real server gives it is what ours must give.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from hack.kubernetes.binaries import build_module, cache_root, locked
from tests.cli.program import ROOT, ourselves, temporary, until

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1200),  # the first time, their environments are made
]

PROGRAMS = Path(__file__).resolve().parent / "programs"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "redis:7", command: [sh, -c, "echo hello; sleep 1000"]}]
"""


@dataclass(frozen=True)
class Place:
    """A server, a namespace on it that nobody else uses, and a running pod with a shell, if it has nodes."""

    kubeconfig: Path
    pod: str = ""

    async def kubectl(self, *words: str, text: str = "") -> None:
        """Run kubectl, which must succeed."""
        await run(["kubectl", "--kubeconfig", str(self.kubeconfig), *words], text=text)


async def run(command: list[str], *, text: str = "") -> str:
    environment = {**os.environ, "MOORING_LOCK": "clients", "PYTHONWARNINGS": "ignore"}
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded() -> AsyncIterator[Place]:
    with temporary() as home:
        async with ourselves(home).up(home / "data", "--operators", "none") as plane:
            place = Place(plane.kubeconfig, "shell")
            await place.kubectl("apply", "-f", "-", text=POD)
            await place.kubectl("wait", "--for=condition=Ready", "pod/shell", "--timeout=60s")
            yield place


@pytest.fixture(scope="module")
def real(real_kubernetes: Path) -> Place:
    return Place(real_kubernetes)


@pytest.fixture(params=["embedded", "real"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


async def python(library: str, words: list[str]) -> str:
    program = PROGRAMS / f"with_{library}.py"
    return await run([str(ROOT / "mooring"), "exec", "python", str(program), *words])


async def client_go(words: list[str]) -> str:
    program = await asyncio.to_thread(build_module, ROOT / "hack" / "clientgo", "clientgo")
    kubeconfig, namespace, pod = words
    return await run([str(program), "check", "-kubeconfig", kubeconfig, "-namespace", namespace, "-pod", pod])


async def javascript(words: list[str]) -> str:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    program = await asyncio.to_thread(javascript_program)
    return await run(["node", str(program), *words])


def javascript_program() -> Path:
    """The program with its library beside it, fetched on first use."""
    source = PROGRAMS / "javascript"
    files = sorted(path for path in source.iterdir() if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
    target = cache_root() / "clients-javascript" / digest
    with locked(target):
        if not target.exists():
            staging = target.with_suffix(f".{os.getpid()}")
            shutil.rmtree(staging, ignore_errors=True)
            shutil.copytree(source, staging)
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run(command, cwd=staging, capture_output=True, timeout=500, check=True)
            staging.rename(target)
    return target / "with_javascript.js"


CLIENTS: dict[str, Callable[[list[str]], Awaitable[str]]] = {
    "client-go": client_go,
    "javascript": javascript,
    "kr8s": lambda words: python("kr8s", words),
    "lightkube": lambda words: python("lightkube", words),
    "kubernetes": lambda words: python("kubernetes", words),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_everything_a_client_does_works(client: str, place: Place) -> None:
    namespace = "default" if place.pod else f"clients-{os.getpid()}-{client}"
    if not place.pod:
        await place.kubectl("create", "namespace", namespace)
        account = ["get", "serviceaccount", "default", "-n", namespace]
        await until(lambda: _works(place, account), "the namespace has its account")

    printed = await CLIENTS[client]([str(place.kubeconfig), namespace, place.pod])

    report = json.loads(printed)
    assert len(report) >= 3
    assert set(report.values()) == {"ok"}, report


async def _works(place: Place, words: list[str]) -> bool:
    try:
        await place.kubectl(*words)
    except AssertionError:
        return False
    return True
