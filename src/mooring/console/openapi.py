"""The OpenAPI 3.1 document of the API, made of its routes, the first lines of its handlers, and the contract's types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from aiohttp import web

from mooring.console.contract import BY_PATH, Operation, ProblemDetails
from mooring.console.guard import CSRF_HEADER

__all__ = ["document"]

_REFS: Final = "#/components/schemas/{name}"
_NO_SESSION: Final = frozenset({("GET", "/api/v1/signin"), ("POST", "/api/v1/session")})
_PARAMETER = re.compile(r"\{(\w+)\}")
Json = dict[str, Any]


def document(routes: Iterable[web.RouteDef]) -> Json:
    """The document of these routes; raises `KeyError` for one that the contract does not have."""
    found = [(route.method, route.path, route.handler) for route in routes]
    operations = [(method, path, BY_PATH[method, path], handler) for method, path, handler in found]
    types = [kind for _, _, one, _ in operations for kind in (one.answer, one.body) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ProblemDetails], ref_template=_REFS)
    named = dict(zip(map(id, [*types, ProblemDetails]), schemas, strict=True))
    paths: Json = {}
    for method, path, one, handler in operations:
        shown = _operation(method, path, one, inspect.getdoc(handler) or "", named)
        paths.setdefault(path, {})[method.lower()] = shown
    problem = {
        "description": "A problem.",
        "content": {"application/problem+json": {"schema": named[id(ProblemDetails)]}},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mooring console",
            "version": "v1",
            "description": "Services of the catalog, with the rights of the user who is signed in.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {"Problem": problem},
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "__Host-mooring-console"},
                "csrf": {"type": "apiKey", "in": "header", "name": CSRF_HEADER},
            },
        },
    }


def _operation(method: str, path: str, one: Operation, text: str, named: dict[int, Json]) -> Json:
    summary, _, more = " ".join(text.split("\n\n")[0].split()).partition("; ")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]
    for name, meaning in one.query.items():
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": meaning.endswith("required."),
                "description": meaning,
                "schema": {"type": "string"},
            }
        )
    content: Json = {"schema": named[id(one.answer)]} if one.answer is not None else {}
    good = {"description": "Done.", "content": {one.media: content}}
    # A dry run makes nothing.
    answers: Json = {"200": good} if one.status == 200 or "dryRun" in one.query else {}
    answers[str(one.status)] = good
    made: Json = {
        "operationId": _id(method, path),
        "summary": summary.rstrip("."),
        **({"description": more[0].upper() + more[1:]} if more else {}),
        **({"parameters": parameters} if parameters else {}),
        "responses": {**answers, "default": {"$ref": "#/components/responses/Problem"}},
    }
    if one.body is not None:
        made["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": named[id(one.body)]}},
        }
    needs = [] if (method, path) in _NO_SESSION else ["session"]
    if method != "GET":
        needs.append("csrf")
    made["security"] = [{name: [] for name in needs}] if needs else []
    return made


def _id(method: str, path: str) -> str:
    words = [word for word in _PARAMETER.sub("", path).removeprefix("/api/v1").split("/") if word]
    return "_".join([method.lower(), *(word.replace(".", "_") for word in words)]) + (
        "_one" if path.endswith("}") else ""
    )
