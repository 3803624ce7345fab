"""The pure engine answers as a real kube-apiserver does: defaults, managedFields, patches, refusals, rules."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.local.api.crd_scenarios import DEFINITIONS, RULES
from tests.local.api.engine_harness import (
    CRDS,
    Engine,
    Real,
    comparable,
    first_line,
    judged,
    rules_definition,
    rules_object,
    serve_widgets,
    written,
)
from tests.local.api.engine_random import GENERATORS, sequence
from tests.local.api.engine_scenarios import SCENARIOS, WIDGETS_CRD

from mooring.kube.config import Config
from mooring.kube.transport import HttpTransport
from mooring.local.api import crd

pytestmark = pytest.mark.kubernetes

JsonObject = dict[str, Any]


@pytest.fixture
async def real(real_kubernetes: Path) -> AsyncIterator[tuple[Real, str]]:
    transport = HttpTransport(Config.load(real_kubernetes))
    server = Real(transport)
    namespace = f"engine-{uuid.uuid4().hex[:8]}"
    try:
        await serve_widgets(server)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        made = await server.send("POST", "/api/v1/namespaces", {}, body, "application/json")
        assert made["status"] == 200, made
        yield server, namespace
        await server.send("DELETE", f"/api/v1/namespaces/{namespace}", {}, None, "application/json")
    finally:
        await transport.close()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
async def test_engine_answers_as_the_real_server(name: str, real: tuple[Real, str]) -> None:
    server, namespace = real
    engine = Engine(crd.compile_version(crd.default_crd(WIDGETS_CRD), "v1"))
    for number, template in enumerate(SCENARIOS[name]):
        request = template.within(namespace)
        expected = comparable(await server.answer(request), request, namespace)
        found = comparable(engine.answer(request), request, namespace)
        assert found == expected, f"request {number}: {request.verb} {request.path}"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", sorted(GENERATORS))
async def test_random_writes_leave_the_same_object(kind: str, seed: int, real: tuple[Real, str]) -> None:
    server, namespace = real
    engine = Engine(crd.compile_version(crd.default_crd(WIDGETS_CRD), "v1"))
    for number, template in enumerate(sequence(kind, seed)):
        request = template.within(namespace)
        answer = await server.answer(request)
        if answer["status"] == 409 and "has been modified" in answer["message"]:
            break  # a controller wrote in between
        expected = comparable(answer, request, namespace)
        found = comparable(engine.answer(request), request, namespace)
        assert found == expected, f"request {number}: {request.verb} {request.body}"
        if not engine.objects:
            break


@pytest.fixture
async def server(real_kubernetes: Path) -> AsyncIterator[Real]:
    transport = HttpTransport(Config.load(real_kubernetes))
    try:
        yield Real(transport)
    finally:
        await transport.close()


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
async def test_definitions_are_refused_as_by_the_real_server(name: str, server: Real) -> None:
    definition = DEFINITIONS[name]
    answer = await server.send("POST", CRDS, {"dryRun": "All"}, definition, "application/json")
    expected = {(c["field"], first_line(c["message"])) for c in answer.get("causes", ())}
    assert answer["status"] == 200 or expected, answer
    assert judged(definition) == expected


@pytest.mark.parametrize("name", sorted(RULES))
async def test_rules_judge_as_on_the_real_server(name: str, server: Real) -> None:
    definition = rules_definition(name, f"r{uuid.uuid4().hex[:8]}")
    made = await server.send("POST", CRDS, {}, definition, "application/json")
    assert made["status"] == 200, made
    try:
        compiled = crd.compile_version(crd.default_crd(definition), "v1")
        old: JsonObject | None = None
        for value in RULES[name][2]:
            obj = rules_object(definition, value)
            expected = await written(server, definition, obj, old)
            errors = compiled.validate(obj, old)
            assert sorted([e.reason, e.field, e.message] for e in errors) == expected, value
            old = obj if not errors else old
    finally:
        await server.send("DELETE", f"{CRDS}/{definition['metadata']['name']}", {}, None, "application/json")
