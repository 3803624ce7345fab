"""Records what a real kube-apiserver answers, for the tests that run without one.

python -m tests.local.api.record_golden KUBECONFIG
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.local.api.crd_scenarios import DEFINITIONS, RULES
from tests.local.api.engine_harness import (
    CRDS,
    Real,
    comparable,
    first_line,
    rules_definition,
    rules_object,
    serve_widgets,
    written,
)
from tests.local.api.engine_scenarios import SCENARIOS

from mooring.kube.config import Config
from mooring.kube.transport import HttpTransport

GOLDEN = Path(__file__).with_name("engine_golden.json")
Json = Any


async def record(server: Real) -> Json:
    """Return the answers to every request of the scenarios, definitions and rules."""
    await serve_widgets(server)
    return {
        "scenarios": {name: await _scenario(server, name) for name in SCENARIOS},
        "definitions": {name: await _definition(server, name) for name in DEFINITIONS},
        "rules": {name: await _rules(server, name) for name in RULES},
    }


async def _scenario(server: Real, name: str) -> Json:
    namespace = f"engine-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await server.send("POST", "/api/v1/namespaces", {}, body, "application/json")
    answers = []
    for template in SCENARIOS[name]:
        request = template.within(namespace)
        answers.append(comparable(await server.answer(request), request, namespace))
    await server.send("DELETE", f"/api/v1/namespaces/{namespace}", {}, None, "application/json")
    return answers


async def _definition(server: Real, name: str) -> Json:
    answer = await server.send("POST", CRDS, {"dryRun": "All"}, DEFINITIONS[name], "application/json")
    return sorted({(cause["field"], first_line(cause["message"])) for cause in answer.get("causes", ())})


async def _rules(server: Real, name: str) -> Json:
    definition = rules_definition(name, f"r{uuid.uuid4().hex[:8]}")
    await server.send("POST", CRDS, {}, definition, "application/json")
    answers: list[Json] = []
    old = None
    for value in RULES[name][2]:
        obj = rules_object(definition, value)
        answers.append(await written(server, definition, obj, old))
        old = obj if not answers[-1] else old
    await server.send("DELETE", f"{CRDS}/{definition['metadata']['name']}", {}, None, "application/json")
    return answers


async def main(kubeconfig: Path) -> None:
    transport = HttpTransport(Config.load(kubeconfig))
    try:
        answers = await record(Real(transport))
    finally:
        await transport.close()
    GOLDEN.write_text(_one_line_each(answers))


def _one_line_each(answers: Json) -> str:
    """Write one scenario a line, so that a change shows which one."""
    parts = []
    for part, found in answers.items():
        lines = [f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found)]
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
