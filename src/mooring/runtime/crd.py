"""CustomResourceDefinitions from types: one source for what we decode, document, validate and install.

A kind is a msgspec Struct. What the *decoder* must accept stays in the Python type (wide, everything
optional); what a *user* may write is said by markers that the decoder ignores, so an object stored by a
newer or older version of the CRD never wedges an informer.

    @rules(Rule("self.min <= self.max", "min must not exceed max"))
    class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
        min: Annotated[int | None, F("Lower bound.", minimum=0, default=0)] = None
        max: Annotated[int | None, F("Upper bound.", required=True)] = None

    @crd(short_names=("wd",), columns=(PrinterColumn("Size", ".spec.size", type="integer"),))
    class Widget(Object):
        resource: ClassVar[Resource] = Resource(...)
        spec: WidgetSpec | None = None
        status: WidgetStatus | None = None

    render_crd(Widget)   # -> dict, ready for to_yaml() or a server-side apply

Guarantees: the schema is structural (a type everywhere, no ``$ref``); a CEL rule names only fields that
exist, and every list, map and string it names is bounded, so that the server's cost estimate stays finite;
a mistake raises `SchemaError` with the path of the field at render time, not at install time.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mooring.runtime.crd_checks import check_names, check_paths
from mooring.runtime.crd_markers import (
    AGE,
    Crd,
    F,
    PrinterColumn,
    Rule,
    Scale,
    SchemaError,
    at_least_one_of,
    at_most_one_of,
    crd,
    crd_of,
    exactly_one_of,
    immutable,
    never_removed,
    rules,
)
from mooring.runtime.crd_schema import QUANTITY_PATTERN, render_schema
from mooring.runtime.crd_values import UnknownField, defaulted, unknown_fields

if TYPE_CHECKING:
    from mooring.kube.object import Object, Resource

__all__ = [
    "AGE",
    "QUANTITY_PATTERN",
    "Crd",
    "F",
    "PrinterColumn",
    "Rule",
    "Scale",
    "SchemaError",
    "UnknownField",
    "at_least_one_of",
    "at_most_one_of",
    "check_crds",
    "crd",
    "crd_of",
    "defaulted",
    "exactly_one_of",
    "immutable",
    "never_removed",
    "render_crd",
    "render_crds",
    "render_schema",
    "rules",
    "to_yaml",
    "unknown_fields",
    "write_crds",
]


def render_crd(kind: type[Object], *others: type[Object]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind; ``others`` are its further versions, in order of preference."""
    versions = [kind, *others]
    stored = [version for version in versions if crd_of(version).storage]
    if len(stored) != 1:
        raise SchemaError(f"{kind.__name__}: exactly one version has storage=True, found {len(stored)}")
    main = stored[0].resource
    for version in versions:
        other = version.resource
        if (other.group, other.kind, other.plural) != (main.group, main.kind, main.plural):
            raise SchemaError(f"{version.__name__}: is not another version of {main.kind}.{main.group}")
    if len({version.resource.version for version in versions}) != len(versions):
        raise SchemaError(f"{kind.__name__}: a version is given twice")
    definition = crd_of(stored[0])
    metadata: dict[str, Any] = {"name": f"{main.plural}.{main.group}"}
    if definition.labels:
        metadata["labels"] = dict(definition.labels)
    if definition.annotations:
        metadata["annotations"] = dict(definition.annotations)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": main.group,
            "names": _names(main, definition),
            "scope": "Namespaced" if main.namespaced else "Cluster",
            "versions": [_version(version) for version in versions],
        },
    }


def render_crds(kinds: Iterable[type[Object]]) -> list[dict[str, Any]]:
    """The definitions of kinds, in their order; several versions of one kind make one definition."""
    versions: dict[tuple[str, str], list[type[Object]]] = {}
    for kind in kinds:
        same = versions.setdefault((kind.resource.group, kind.resource.plural), [])
        if kind not in same:
            same.append(kind)
    return [render_crd(*same) for same in versions.values()]


def _names(resource: Resource, definition: Crd) -> dict[str, Any]:
    out: dict[str, Any] = {
        "kind": resource.kind,
        "listKind": resource.kind + "List",
        "plural": resource.plural,
        "singular": definition.singular,
    }
    if definition.short_names:
        out["shortNames"] = list(definition.short_names)
    if definition.categories:
        out["categories"] = list(definition.categories)
    return out


def _version(kind: type[Object]) -> dict[str, Any]:
    definition = crd_of(kind)
    out: dict[str, Any] = {
        "name": kind.resource.version,
        "served": definition.served,
        "storage": definition.storage,
    }
    if definition.deprecated:
        out["deprecated"] = True
        if isinstance(definition.deprecated, str):
            out["deprecationWarning"] = definition.deprecated
    if definition.columns:
        out["additionalPrinterColumns"] = [column.render() for column in definition.columns]
    if definition.selectable_fields:
        out["selectableFields"] = [{"jsonPath": path} for path in definition.selectable_fields]
    subresources: dict[str, Any] = {}
    if definition.status:
        subresources["status"] = {}
    if definition.scale:
        subresources["scale"] = definition.scale.render()
    if subresources:
        out["subresources"] = subresources
    schema = copy.deepcopy(_schema(kind))
    check_names(kind.resource.group, kind.resource.version, kind.resource.plural, definition)
    check_paths(schema, definition)
    out["schema"] = {"openAPIV3Schema": schema}
    return out


@lru_cache(maxsize=64)
def _schema(kind: type[Object]) -> dict[str, Any]:
    """A kind's schema, rendered once: a process applies its definitions again and again, tests to each control plane."""
    return render_schema(kind)


def to_yaml(definition: Mapping[str, Any]) -> str:
    """YAML text of a rendered definition: stable order, no aliases, one document."""
    text: str = yaml.dump(dict(definition), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):
    """Lists indented under their key, as kubectl and controller-gen users expect; never anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow=flow, indentless=False)


def _rendered(kinds: Iterable[type[Object]]) -> dict[str, str]:
    return {f"{made['metadata']['name']}.yaml": to_yaml(made) for made in render_crds(kinds)}


def write_crds(kinds: Iterable[type[Object]], directory: Path) -> list[Path]:
    """Write one ``PLURAL.GROUP.yaml`` per kind into the directory; returns the files that changed."""
    directory.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in _rendered(kinds).items():
        path = directory / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed


def check_crds(kinds: Iterable[type[Object]], directory: Path) -> str:
    """A unified diff between the committed CRD files and the types; empty when they agree.

    A file of no kind is drift too: it would go on being installed.
    """
    rendered = _rendered(kinds)
    strays = (path for path in sorted(directory.glob("*.yaml")) if path.name not in rendered)
    parts = [f"{path}: belongs to no kind; remove it\n" for path in strays]
    for name, text in rendered.items():
        path = directory / name
        committed = path.read_text() if path.exists() else ""
        parts += difflib.unified_diff(
            committed.splitlines(keepends=True), text.splitlines(keepends=True), str(path), "generated"
        )
    return "".join(parts)
