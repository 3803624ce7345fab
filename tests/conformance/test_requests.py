"""The same requests to the embedded API server and to a real one: the same answers."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.comparing import Server, Step, run
from tests.conformance.embedded import Embedded
from tests.conformance.scenarios import SCENARIOS

from mooring.kube import Config

pytestmark = pytest.mark.kubernetes

_numbers = itertools.count()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    thread = Embedded(tmp_path_factory.mktemp("pki"))
    thread.start()
    client = thread.client()
    try:
        yield client
    finally:
        client.close()
        thread.stop()


@pytest.fixture(scope="module")
def real(real_kubernetes: Path) -> Iterator[Server]:
    config = Config.load(real_kubernetes)
    context = config.ssl_context()
    bare = replace(config, client_cert=None, client_key=None).ssl_context()
    assert context is not None
    client = Server(config.server, context, bare=bare)
    yield client
    client.close()


@pytest.fixture
def namespace(embedded: Server, real: Server) -> Iterator[str]:
    """A namespace on both servers, with its default account: pods are refused without."""
    name = f"c{os.getpid()}x{next(_numbers)}x"
    for server in (embedded, real):
        server.send(Step("POST", ""), "/api/v1/namespaces", {"metadata": {"name": name}})
    deadline = time.monotonic() + 20
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    # No controllers run beside the embedded server here.
    embedded.send(Step("POST", ""), account.rpartition("/")[0], {"metadata": {"name": "default"}})
    while real.send(Step("GET", ""), account, None).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield name
    for server in (embedded, real):
        server.send(Step("DELETE", ""), f"/api/v1/namespaces/{name}", None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_are_those_of_a_real_server(
    name: str, embedded: Server, real: Server, namespace: str
) -> None:
    steps = SCENARIOS[name]
    ours, theirs = run(embedded, steps, namespace), run(real, steps, namespace)
    for step, our, their in zip(steps, ours, theirs, strict=True):
        about = f"{step.method} {step.path} {json.dumps(step.body)}"
        assert our == their, about
