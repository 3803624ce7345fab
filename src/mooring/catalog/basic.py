"""A plain entry for any kind, derived from its CustomResourceDefinition: what nobody has curated can still be asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, cast

from mooring.catalog import pointer
from mooring.catalog.entry import (
    CatalogError,
    Display,
    Entry,
    Metadata,
    Parameter,
    Parameters,
    Section,
    Spec,
    Target,
    Text,
    Ui,
)
from mooring.catalog.expressions import re2
from mooring.catalog.mask import is_secret_name
from mooring.catalog.values import check_value

__all__ = ["BASIC_PREFIX", "basic_entry"]

BASIC_PREFIX: Final = "crd-"
#: Fields of a form and their depth below ``spec``: real schemas have up to thousands of leaves, 15 levels deep.
MOST_FIELDS, DEEPEST = 60, 3

_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def basic_entry(definition: dict[str, Any]) -> Entry:
    """The entry of a CustomResourceDefinition: its scalar fields near the top, required ones first.

    Raises `CatalogError` when it serves no version with a schema.
    """
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    name = str((definition.get("metadata") or {}).get("name") or "")
    versions = [version for version in spec.get("versions") or () if version.get("served")]
    if not versions or not names.get("kind"):
        raise CatalogError([f"{name or 'the definition'} serves no version"])
    # The stored one if it is served: it is what the kind's authors move to.
    version = next((one for one in versions if one.get("storage")), versions[0])
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    top = (schema.get("properties") or {}).get("spec") or {}
    found = sorted(_fields(top, (), required=True), key=lambda each: not each[2])[:MOST_FIELDS]
    properties = {".".join(steps): _parameter(steps, below) for steps, below, _ in found}
    required = tuple(".".join(steps) for steps, _, needed in found if needed)
    groups = list(dict.fromkeys(parameter.ui.group for parameter in properties.values()))
    kind = str(names["kind"])
    summary = Text(
        en=f"{kind} of {spec.get('group')}: a form derived from its definition.",
        zh=f"{spec.get('group')} 的 {kind}:表单由其定义自动生成。",
    )
    return Entry(
        metadata=Metadata(name=BASIC_PREFIX + name),
        curated=False,
        spec=Spec(
            display=Display(title=Text(en=kind, zh=kind), summary=summary),
            target=Target(
                group=str(spec.get("group") or ""),
                version=str(version.get("name") or ""),
                kind=kind,
                plural=str(names.get("plural") or ""),
                namespaced=spec.get("scope") != "Cluster",
            ),
            sections=tuple(
                Section(name=group, title=Text(en=_words(group), zh=_words(group)), advanced=group != "spec")
                for group in groups
            ),
            parameters=Parameters(properties=properties, required=required),
        ),
    )


def _fields(
    schema: dict[str, Any], steps: tuple[str, ...], *, required: bool
) -> Iterator[tuple[tuple[str, ...], dict[str, Any], bool]]:
    for name, below in (schema.get("properties") or {}).items():
        if not isinstance(below, dict) or "." in name:
            continue
        path = (*steps, name)
        needed = required and name in (schema.get("required") or ())
        if _usable(below):
            # The API server fills in a default, so a form need not ask for it.
            yield path, below, needed and "default" not in below
        elif below.get("type") == "object" and len(path) < DEEPEST:
            yield from _fields(below, path, required=needed)


def _usable(schema: dict[str, Any]) -> bool:
    if schema.get("type") in _SCALARS:
        return True
    values = schema.get("additionalProperties")
    return schema.get("type") == "object" and isinstance(values, dict) and values.get("type") == "string"


def _parameter(steps: tuple[str, ...], schema: dict[str, Any]) -> Parameter:
    kind = cast("Literal['string', 'integer', 'number', 'boolean', 'object']", schema["type"])
    words, said = " ".join(map(_words, steps[-2:])), str(schema.get("description") or "")[:400]
    secret = kind == "string" and is_secret_name(steps[-1])
    bare = Parameter(
        type=kind,
        title=Text(en=words, zh=words),
        description=Text(en=said, zh=said) if said else None,
        minimum=schema.get("minimum"),
        maximum=schema.get("maximum"),
        min_length=schema.get("minLength"),
        max_length=schema.get("maxLength"),
        pattern=_pattern(schema.get("pattern")),
        enum=tuple(choice for choice in schema.get("enum") or () if choice not in (None, "")),
        bind="/spec/" + "/".join(map(pointer.escape, steps)),
        ui=Ui(group=steps[0] if len(steps) > 1 else "spec", widget=_widget(kind, schema, secret=secret)),
        sensitive=secret,
        immutable=any(
            rule.get("rule") == "self == oldSelf" for rule in schema.get("x-kubernetes-validations") or ()
        ),
    )
    default = schema.get("default")
    if secret or default is None or check_value(bare, default) is not None:
        return bare
    return Parameter(**{name: getattr(bare, name) for name in bare.__struct_fields__} | {"default": default})


def _widget(kind: str, schema: dict[str, Any], *, secret: bool) -> str:
    if secret:
        return "secret"
    if schema.get("enum"):
        return "select"
    return {"boolean": "switch", "integer": "number", "number": "number", "object": "keyValue"}.get(
        kind, "text"
    )


def _pattern(pattern: Any) -> str:
    """A pattern this form can check; the API server checks all of them."""
    if not isinstance(pattern, str):
        return ""
    try:
        re2.compile(pattern)
    except re2.error:
        return ""
    return pattern


def _words(name: str) -> str:
    """``maxMemory`` as ``Max memory``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return spaced[:1].upper() + spaced[1:].lower() if spaced != name or name.islower() else name
