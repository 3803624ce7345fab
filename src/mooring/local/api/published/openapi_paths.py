"""The paths of an OpenAPI v3 document, as far as clients read them.

kubectl finds a kind by the operations that carry its x-kubernetes-group-version-kind, and asks the
parameters of PATCH whether the server validates fields; `explain` follows the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mooring.local.api.registry import Served

__all__ = ["paths_of"]

JsonObject = dict[str, Any]

_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "get": (),
    "list": (
        "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
        "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
    ),
    "create": _WRITE,
    "update": _WRITE,
    "patch": (*_WRITE, "force"),
    "delete": ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"),
    "deletecollection": (
        "continue", "dryRun", "fieldSelector", "gracePeriodSeconds", "labelSelector", "limit",
        "orphanDependents", "propagationPolicy", "resourceVersion", "resourceVersionMatch",
    ),
}  # fmt: skip
_METHODS = {
    "get": "get", "list": "get", "create": "post", "update": "put", "patch": "patch",
    "delete": "delete", "deletecollection": "delete",
}  # fmt: skip
_INTEGERS = {"gracePeriodSeconds", "limit", "timeoutSeconds"}
_FLAGS = {"allowWatchBookmarks", "force", "orphanDependents", "sendInitialEvents", "watch"}


def paths_of(served: Iterable[Served], schemas: Mapping[str, JsonObject]) -> JsonObject:
    """Return the paths of the resources of one group version."""
    names = {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in schemas.items()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
    }
    paths: JsonObject = {}
    for one in served:
        root = f"/apis/{one.group}/{one.version}" if one.group else f"/api/{one.version}"
        base = f"{root}/namespaces/{{namespace}}/{one.plural}" if one.namespaced else f"{root}/{one.plural}"
        gvk = (one.group, one.version, one.kind)
        fixed = ("namespace",) if one.namespaced else ()
        if one.namespaced and "list" in one.verbs:
            paths[f"{root}/{one.plural}"] = _item(("list",), gvk, names, ())
        collection = [verb for verb in ("list", "create", "deletecollection") if verb in one.verbs]
        if collection:
            paths[base] = _item(collection, gvk, names, fixed)
        single = [verb for verb in ("get", "update", "patch", "delete") if verb in one.verbs]
        if single:
            paths[f"{base}/{{name}}"] = _item(single, gvk, names, ("name", *fixed))
        for sub in one.subresources.values():
            verbs = [verb for verb in ("get", "create", "update", "patch", "delete") if verb in sub.verbs]
            sub_gvk = (sub.group, sub.version, sub.kind)
            paths[f"{base}/{{name}}/{sub.name}"] = _item(verbs, sub_gvk, names, ("name", *fixed))
    return paths


def _item(
    verbs: Iterable[str],
    gvk: tuple[str, str, str],
    names: Mapping[tuple[str, str, str], str],
    fixed: tuple[str, ...],
) -> JsonObject:
    item: JsonObject = {_METHODS[verb]: _operation(verb, gvk, names) for verb in verbs}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
        for name in fixed
    ]
    pretty = {"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    item["parameters"] = [*parameters, pretty]
    return item


def _operation(verb: str, gvk: tuple[str, str, str], names: Mapping[tuple[str, str, str], str]) -> JsonObject:
    group, version, kind = gvk
    shown = (group, version, kind + "List") if verb == "list" else gvk
    content: JsonObject = {}
    if name := names.get(shown):
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {
        "parameters": [_parameter(name) for name in _PARAMETERS[verb]],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": "post" if verb == "create" else "put" if verb == "update" else verb,
        "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
    }


def _parameter(name: str) -> JsonObject:
    kind = "integer" if name in _INTEGERS else "boolean" if name in _FLAGS else "string"
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
