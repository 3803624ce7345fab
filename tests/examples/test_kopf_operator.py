"""The kopf example beside ours does what the guide says, on both API servers: only then is it worth comparing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conformance.embedded import Embedded
from tests.examples.programs import EXAMPLES, load

from mooring.kube import ApplyPatch, Client, Config, HttpTransport, MergePatch, NotFound
from mooring.kube.errors import TooManyRequests
from mooring.kube.objects.apps import Deployment
from mooring.kube.objects.core import Namespace
from mooring.kube.objects.meta import ObjectMeta

pytestmark = [pytest.mark.kubernetes, pytest.mark.full]

ROOT = EXAMPLES.parent
example = load("deployment-operator/mooring_operator.py")


@pytest.fixture(params=["embedded", "real"])
def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An API server: ours, and a real one."""
    if request.param == "real":
        yield request.getfixturevalue("real_kubernetes")
        return
    server = Embedded(tmp_path)
    server.start()
    try:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"
    finally:
        server.stop()


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    client = Client(HttpTransport(Config.load(kubeconfig)))
    definition = yaml.safe_load((EXAMPLES / "deployment-operator" / "crd.yaml").read_text())
    await client.request(
        "PATCH",
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}",
        query={"fieldManager": "test", "force": "true"},
        body=ApplyPatch(definition).encode(),
        content_type=ApplyPatch.content_type,
    )
    await until(lambda: client.list(example.MySQLCluster), "the kind served")
    yield client
    await client.close()


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    name = f"kopf-{uuid.uuid4().hex[:8]}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    await client.delete(Namespace, name)


async def until(check: Callable[[], Awaitable[Any]], what: str, *, within: float = 40.0) -> Any:
    deadline, last = time.monotonic() + within, None
    while time.monotonic() < deadline:
        try:
            if last := await check():
                return last
        except (NotFound, TooManyRequests) as error:
            last = error
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {within} s: {what}; last: {last!r}")


@pytest.mark.timeout(240)  # the first time, its environment is made
async def test_it_creates_follows_edits_and_repairs(
    client: Client, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    program = EXAMPLES / "deployment-operator" / "kopf_operator.py"
    command = [str(ROOT / "mooring"), "exec", "kopf", "run", str(program), "-n", namespace, "--standalone"]
    environment = {**os.environ, "MOORING_LOCK": "examples", "KUBECONFIG": str(kubeconfig)}
    log = tmp_path / "log"
    meta = ObjectMeta(name="db", namespace=namespace)
    await client.create(example.MySQLCluster(metadata=meta, spec=example.Spec(size=3, image="mysql:8.0")))

    async def replicas(count: int) -> bool:
        found = await client.get(Deployment, "db", namespace=namespace)
        return found.spec is not None and found.spec.replicas == count

    with log.open("wb") as output:
        operator = subprocess.Popen(command, env=environment, stdout=output, stderr=output)  # noqa: ASYNC220
    try:
        await until(lambda: replicas(3), "the Deployment", within=120)
        patch = MergePatch({"spec": {"size": 5}})
        await client.patch(example.MySQLCluster, "db", patch, namespace=namespace)
        await until(lambda: replicas(5), "the edit in the Deployment")
        await client.delete(Deployment, "db", namespace=namespace)
        await until(lambda: replicas(5), "the Deployment back")
    except AssertionError as failed:
        raise AssertionError(f"{failed}\n{log.read_text()[-3000:]}") from failed
    finally:
        operator.terminate()
        operator.wait(timeout=30)
