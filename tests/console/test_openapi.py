"""The OpenAPI document: of every route, the same as the published file, and true to its own references."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.console.bed import ADMIN, Bed, Browser

from mooring.console.contract import BY_PATH

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "console-openapi.json"
Json = Any


@pytest.fixture
async def document(bed: Bed, browsers: list[Browser]) -> Json:
    browser = await browsers[0].signed_in(ADMIN)
    return await browser.ok("GET", "openapi.json")


def published(document: Json) -> Json:
    """The file; written first where MOORING_WRITE_GOLDEN asks for it."""
    if os.environ.get("MOORING_WRITE_GOLDEN"):
        PUBLISHED.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return json.loads(PUBLISHED.read_text())


async def test_it_is_the_published_one(document: Json) -> None:
    assert document == published(document), "run this test with MOORING_WRITE_GOLDEN=1"


async def test_it_has_every_operation_once(document: Json) -> None:
    found = {
        (method.upper(), path): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert found.keys() == BY_PATH.keys()
    ids = [operation["operationId"] for operation in found.values()]
    assert len(ids) == len(set(ids))
    assert all(operation["summary"] for operation in found.values())
    for (method, path), operation in found.items():
        named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
        needs = {name for one in operation["security"] for name in one}
        assert ("csrf" in needs) is (method != "GET")


async def test_every_reference_leads_somewhere(document: Json) -> None:
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)))
    assert len(references) > 20
    for reference in references:
        place = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
