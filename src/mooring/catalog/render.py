"""From the values of a form to a manifest, by putting each value where its field is bound."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from mooring.catalog import pointer
from mooring.catalog.entry import Entry, Parameter, Target

__all__ = ["field_of", "render", "render_form"]


def render(entry: Entry, *, name: str, namespace: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The custom resource for these values, which `check_values` has found sound.

    Fields without a value are left to the manifest of the entry and to the defaults of the API server.
    """
    return render_form(
        entry.spec.target,
        entry.parameters,
        entry.spec.render,
        name=name,
        namespace=namespace,
        values=values,
    )


def render_form(
    target: Target,
    parameters: Mapping[str, Parameter],
    base: Mapping[str, Any],
    *,
    name: str,
    namespace: str,
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """The object of a kind that a form makes, beginning with ``base``."""
    manifest: Any = deepcopy(dict(base))
    for field, parameter in parameters.items():
        value = values.get(field)
        if value is None or value == "" or value == {}:
            continue
        if isinstance(value, dict) and isinstance(old := pointer.get(manifest, parameter.bind), dict):
            value = {**old, **value}
        manifest = pointer.put(manifest, parameter.bind, deepcopy(value))
    # Last, so that no field can say what is made, and where.
    metadata = {**manifest.get("metadata", {}), "name": name}
    if target.namespaced:
        metadata["namespace"] = namespace
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"apiVersion": target.resource.api_version, "kind": target.kind, "metadata": metadata, **body}


def field_of(entry: Entry, path: str) -> str:
    """The field of the form bound to a path as the API server reports it (``spec.pod[0].image``), "" if none is.

    The nearest field counts: an error within a map belongs to the map's field.
    """
    best, length = "", 0
    for name, parameter in entry.parameters.items():
        bound = pointer.shown(parameter.bind)
        within = path == bound or path.startswith((f"{bound}.", f"{bound}["))
        if within and len(bound) > length:
            best, length = name, len(bound)
    return "name" if not best and path.startswith("metadata.name") else best
