"""CustomResourceDefinitions: which are accepted, and what a server needs to serve one."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mooring.local.api import constraints, names
from mooring.local.api.cel.rules import Rules, compile_rules
from mooring.local.api.defaults import default_builtin
from mooring.local.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from mooring.local.api.published.descriptions import text_of
from mooring.local.api.schema import Schema, builtin, compile_structural
from mooring.local.api.structural import check_schema

__all__ = [
    "CompiledVersion",
    "compile_version",
    "default_crd",
    "established",
    "openapi_v2",
    "openapi_v3",
    "validate_crd",
    "validate_crd_update",
]

K = TypeVar("K")
V = TypeVar("V")
JsonObject = dict[str, Any]
Errors = Iterator[FieldError]
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LIST_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_BLOCKING: Final = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
     "FieldValueTypeInvalid")
)  # fmt: skip
_NOT_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation"
)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledVersion:
    """Everything needed to serve one version of a custom resource."""

    name: str
    served: bool
    storage: bool
    deprecated: bool
    deprecation_warning: str
    schema: Schema
    rules: Rules
    status: bool
    scale: Mapping[str, str] | None
    columns: tuple[Mapping[str, Any], ...]
    selectable_fields: tuple[str, ...]

    def validate(self, obj: JsonObject, old: JsonObject | None = None) -> list[FieldError]:
        """Return what breaks the schema, its list types or its CEL rules.

        Rules do not run on objects whose types are wrong, as on a real server.
        """
        if obj is old:
            return []
        errors = constraints.validate(obj, self.schema, old)
        lists = constraints.validate_lists(obj, self.schema)
        if lists and old is not None:
            known = {str(error) for error in constraints.validate_lists(old, self.schema)}
            lists = [error for error in lists if str(error) not in known]
        errors += lists
        if not self.rules:
            return errors
        if any(error.reason in _BLOCKING for error in errors):
            return [*errors, invalid(constraints.NO_PATH, None, _NOT_CHECKED)]
        return errors + self.rules.evaluate(obj, old)


def default_crd(crd: JsonObject) -> JsonObject:
    """Return the CRD with singular, listKind, conversion strategy and storedVersions filled in."""
    return default_builtin(crd, group="apiextensions.k8s.io", kind="CustomResourceDefinition")


def compile_version(crd: JsonObject, version: str) -> CompiledVersion:
    """Compile one version of an accepted CRD."""
    spec = crd["spec"]
    found = next(entry for entry in spec["versions"] if entry["name"] == version)
    schema, rules = _compiled(
        _schema_of(found), spec["names"]["kind"], preserve=bool(spec.get("preserveUnknownFields"))
    )
    subresources = found.get("subresources") or {}
    warning = found.get("deprecationWarning")
    if warning is None:
        warning = f"{spec['group']}/{version} {spec['names']['kind']} is deprecated"
    return CompiledVersion(
        name=version,
        served=bool(found.get("served")),
        storage=bool(found.get("storage")),
        deprecated=bool(found.get("deprecated")),
        deprecation_warning=warning if found.get("deprecated") else "",
        schema=schema,
        rules=rules,
        status="status" in subresources,
        scale=subresources.get("scale"),
        columns=tuple(found.get("additionalPrinterColumns") or ()),
        selectable_fields=tuple(field["jsonPath"] for field in found.get("selectableFields") or ()),
    )


#: Schemas and rules that were compiled, the latest last: as with `_SOUND`, a process compiles the same one once. Nothing
#: changes them, so control plane after control plane may use them.
_COMPILED: Final[dict[tuple[str, str, bool], tuple[Schema, Rules]]] = {}
_MOST: Final = 64


def _compiled(source: JsonObject | None, kind: str, *, preserve: bool) -> tuple[Schema, Rules]:
    key = (json.dumps(source), kind, preserve)
    if (known := _COMPILED.get(key)) is None:
        schema = compile_structural(source, kind=kind, preserve_unknown=preserve)
        known = schema, compile_rules(schema)[0]
        _remember(_COMPILED, key, known)
    return known


def _remember(known: dict[K, V], key: K, value: V) -> None:
    known[key] = value
    if len(known) > _MOST:
        known.pop(next(iter(known)), None)


def _schema_of(version: JsonObject) -> JsonObject | None:
    return (version.get("schema") or {}).get("openAPIV3Schema")


# --- validation ---------------------------------------------------------------------------------------


def validate_crd(crd: JsonObject) -> list[FieldError]:
    """Return why a new (defaulted) CRD is refused: names, versions, structural schemas, CEL rules."""
    errors = []
    spec = crd.get("spec") or {}
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    name = (crd.get("metadata") or {}).get("name", "")
    if name and name != wanted:
        errors.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    return [*errors, *_spec(spec), *_stored_versions(crd), *_approval(crd), *_preserve(crd)]


def validate_crd_update(crd: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return why a changed CRD is refused, with what must not change (group, scope, plural ...)."""
    spec, before = crd.get("spec") or {}, old.get("spec") or {}
    errors = []
    if spec is not before and not constraints.same(spec, before):
        errors += list(_spec(spec, before))
    fixed = ["group", "names.plural"]
    if _condition(old, "Established") == "True":
        fixed = ["scope", "names.kind", *fixed]
    for path in fixed:
        value, earlier = _at(spec, path), _at(before, path)
        if value != earlier:
            errors.append(invalid(f"spec.{path}", value, "field is immutable"))
    errors += _stored_versions(crd)
    if _approval(old) != _approval(crd):
        errors += _approval(crd)
    return errors + ([] if before.get("preserveUnknownFields") else _preserve(crd))


def _at(obj: JsonObject, path: str) -> Any:
    value: Any = obj
    for key in path.split("."):
        value = (value or {}).get(key)
    return value


def _condition(crd: JsonObject, kind: str) -> str:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == kind), "")


def _preserve(crd: JsonObject) -> list[FieldError]:
    if not (crd.get("spec") or {}).get("preserveUnknownFields"):
        return []
    text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    return [invalid("spec.preserveUnknownFields", True, text)]


_APPROVED: Final = "api-approved.kubernetes.io"


def _approval(crd: JsonObject) -> list[FieldError]:
    group = (crd.get("spec") or {}).get("group", "")
    if not group.endswith((".k8s.io", ".kubernetes.io")) and group not in ("k8s.io", "kubernetes.io"):
        return []
    value = ((crd.get("metadata") or {}).get("annotations") or {}).get(_APPROVED, "")
    if value.startswith("unapproved") or re.match(r"https?://[^/]+", value):
        return []
    place = f"metadata.annotations[{_APPROVED}]"
    link = "https://github.com/kubernetes/enhancements/pull/1111"
    if not value:
        return [required(place, f'protected groups must have approval annotation "{_APPROVED}", see {link}')]
    text = (
        f'protected groups must have approval annotation "{_APPROVED}" with either a URL or a reason starting '
        f'with "unapproved", see {link}'
    )
    return [invalid(place, value, text)]


def _stored_versions(crd: JsonObject) -> Errors:
    stored = (crd.get("status") or {}).get("storedVersions") or []
    versions = (crd.get("spec") or {}).get("versions") or ()
    place = "status.storedVersions"
    if not stored:
        yield invalid(place, None, "must have at least one stored version")
        return
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield invalid(place, stored, f"must have the storage version {version.get('name')}")
    known = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in known:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                "spec.versions until a storage migration ensures no data remains persisted in "
                f"{name} and removes {name} from status.storedVersions"
            )
            yield invalid(f"{place}[{index}]", name, text)


def _spec(spec: JsonObject, old: JsonObject | None = None) -> Errors:
    group = spec.get("group") or ""
    if not group:
        yield required("spec.group")
    elif complaints := names.dns1123_subdomain(group):
        yield invalid("spec.group", group, ",".join(complaints))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope") or ""
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))
    versions = spec.get("versions") or []
    earlier = (old or {}).get("versions") or []
    common = {key for key in _PARTS if versions and all(_same_part(versions[0], v, key) for v in versions)}
    for index, version in enumerate(versions):
        before: JsonObject = next((v for v in earlier if v.get("name") == version.get("name")), {})
        yield from _version(version, f"spec.versions[{index}]")
        for key in _PARTS:
            if key not in common:
                yield from _part(version, before, key, f"spec.versions[{index}].{key}")
    for key in (key for key in _PARTS if key in common):
        yield from _part(
            versions[0], earlier[0] if earlier else {}, key, f"spec.{_COMMON_NAMES.get(key, key)}"
        )
    if versions and (complaints := names.dns1035_label(versions[0].get("name") or "")):
        yield invalid("spec.version", versions[0].get("name"), ",".join(complaints))
    found = [version.get("name") for version in versions]
    if len(set(found)) != len(found):
        yield invalid("spec.versions", versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    yield from _names(spec.get("names") or {})
    yield from _conversion(spec.get("conversion") or {})


def _names(found: JsonObject) -> Errors:
    place = "spec.names"
    for key in ("plural", "singular", "kind", "listKind"):
        if not found.get(key):
            yield required(f"{place}.{key}")
    for key in ("plural", "singular"):
        if found.get(key) and (complaints := names.dns1035_label(found[key])):
            yield invalid(f"{place}.{key}", found[key], ",".join(complaints))
    for key in ("kind", "listKind"):
        if found.get(key) and (complaints := names.dns1035_label(found[key].lower())):
            text = "may have mixed case, but should otherwise match: " + ",".join(complaints)
            yield invalid(f"{place}.{key}", found[key], text)
    for key in ("shortNames", "categories"):
        for index, name in enumerate(found.get(key) or ()):
            if complaints := names.dns1035_label(name):
                yield invalid(f"{place}.{key}[{index}]", name, ",".join(complaints))
    if found.get("kind") and found.get("kind") == found.get("listKind"):
        yield invalid(f"{place}.listKind", found["listKind"], "kind and listKind may not be the same")


def _version(version: JsonObject, place: str) -> Errors:
    name = version.get("name") or ""
    if complaints := names.dns1035_label(name):
        yield invalid(f"{place}.name", name, ",".join(complaints))
    warning = version.get("deprecationWarning")
    if warning is not None:
        if not version.get("deprecated"):
            yield invalid(f"{place}.deprecationWarning", warning, "can only be set for deprecated versions")
        elif not warning:
            yield invalid(f"{place}.deprecationWarning", warning, "must not be an empty string")
        elif len(warning) > 256:
            yield invalid(f"{place}.deprecationWarning", warning, "must be <= 256 characters long")
    if _schema_of(version) is None:
        yield required(f"{place}.schema.openAPIV3Schema")


_PARTS: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_COMMON_NAMES: Final = {"schema": "validation"}


def _same_part(first: JsonObject, other: JsonObject, key: str) -> bool:
    """Tell whether two versions have the same; the real server then speaks of `spec.validation` and so on."""
    return bool(first.get(key)) and constraints.same(first.get(key), other.get(key))


def _part(version: JsonObject, old: JsonObject, key: str, place: str) -> Errors:
    schema = _schema_of(version)
    if key == "schema" and schema is not None and not constraints.same(schema, _schema_of(old)):
        status = "status" in (version.get("subresources") or {})
        yield from _schema(schema, f"{place}.openAPIV3Schema", status=status)
    elif key == "subresources":
        yield from _scale((version.get(key) or {}).get("scale"), place)
    elif key == "additionalPrinterColumns":
        for index, column in enumerate(version.get(key) or ()):
            yield from _column(column, f"{place}[{index}]")
    elif key == "selectableFields" and schema is not None:
        yield from _selectable(version.get(key) or (), schema, place)


#: Schemas that were found sound, the latest last: a process that serves one control plane after the other, as tests do,
#: judges each once, which is half of what a new CRD costs.
_SOUND: Final[dict[tuple[str, bool], None]] = {}


def _schema(schema: JsonObject, place: str, *, status: bool) -> list[FieldError]:
    key = (json.dumps(schema), status)
    if key in _SOUND:
        return []
    errors = check_schema(schema, place, status=status)
    if errors:
        return errors
    _, errors = compile_rules(compile_structural(schema), path=place)
    if not errors:
        _remember(_SOUND, key, None)
    return errors


_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")


def _column(column: JsonObject, place: str) -> Errors:
    if not column.get("name"):
        yield required(f"{place}.name")
    kind = column.get("type") or ""
    text = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield required(f"{place}.type", text)
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{place}.type", kind, text)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{place}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    path = column.get("jsonPath") or ""
    if not path:
        yield required(f"{place}.JSONPath")
    elif not path.startswith("."):
        yield invalid(f"{place}.JSONPath", path, "must be a simple json path starting with .")


_SCALE: Final = (
    ("specReplicasPath", (".spec.",), "should be a json path under .spec"),
    ("statusReplicasPath", (".status.",), "should be a json path under .status"),
    ("labelSelectorPath", (".spec.", ".status."), "should be a json path under either .spec or .status"),
)


def _scale(scale: JsonObject | None, place: str) -> Errors:
    for key, prefixes, text in _SCALE if scale is not None else ():
        assert scale is not None
        path = scale.get(key) or ""
        where = f"{place}.scale.{key}"
        if not path:
            if key != "labelSelectorPath":
                yield required(where)
        elif not path.startswith("."):
            yield invalid(where, path, "must be a simple json path starting with .")
        elif not path.startswith(prefixes):
            yield invalid(where, path, text)


def _selectable(selected: Sequence[JsonObject], schema: JsonObject, place: str) -> Errors:
    seen: set[str] = set()
    for index, field in enumerate(selected):
        where = f"{place}[{index}].jsonPath"
        path = field.get("jsonPath") or ""
        if not path:
            yield required(where)
            continue
        node: JsonObject | None = schema
        for key in path.removeprefix(".").split("."):
            node = (node.get("properties") or {}).get(key) if node is not None else None
        if node is None or not path.startswith("."):
            yield invalid(where, path, "is an invalid path: does not refer to a valid field")
            continue
        if path.startswith(".metadata"):
            yield invalid(where, path, "must not point to fields in metadata")
        if node.get("type") not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings "
                "with formats are allowed."
            )
            yield invalid(where, path, text)
        if path in seen:
            yield duplicate(where, path)
        seen.add(path)


def _conversion(conversion: JsonObject) -> Errors:
    place = "spec.conversion"
    strategy = conversion.get("strategy") or ""
    if not strategy:
        yield required(f"{place}.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported(f"{place}.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook")
    versions = (webhook or {}).get("conversionReviewVersions") or []
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if (webhook or {}).get("clientConfig") is not None:
            yield forbidden(f"{place}.webhookClientConfig", text)
        if versions:
            yield forbidden(f"{place}.conversionReviewVersions", text)
        return
    client = (webhook or {}).get("clientConfig")
    if client is None:
        yield required(f"{place}.webhookClientConfig", "required when strategy is set to Webhook")
    elif ("url" in client) == ("service" in client):
        yield required(f"{place}.webhookClientConfig", "exactly one of url or service is required")
    if not versions:
        yield required(f"{place}.conversionReviewVersions")
    elif not {"v1", "v1beta1"}.intersection(versions):
        text = "must include at least one of v1, v1beta1"
        yield invalid(f"{place}.conversionReviewVersions", versions, text)


# --- status -------------------------------------------------------------------------------------------


def established(crd: JsonObject, others: Iterable[JsonObject], *, now: str) -> JsonObject:
    """Return the CRD with acceptedNames, NamesAccepted, Established and storedVersions in its status.

    `others` are the CRDs already there: a name one of them holds in the group is refused. The very
    same CRD comes back when its status says all that already.
    """
    spec, status = crd["spec"], crd.get("status") or {}
    asked = spec["names"]
    mine = status.get("acceptedNames") or {}
    resources, kinds = _taken(spec["group"], crd["metadata"]["name"], others)
    accepted, reason, message = _accepted(asked, mine, resources, kinds)
    good = reason == "NoConflicts"
    conditions = _with(status.get("conditions") or [], "NamesAccepted", good, reason, message, now=now)
    before = _condition(crd, "Established")
    if before != "True":
        told = (
            ("InitialNamesAccepted", "the initial names have been accepted")
            if good
            else ("NotAccepted", "not all names are accepted")
        )
        conditions = _with(conditions, "Established", good, *told, now=now)
    stored = list(status.get("storedVersions") or [])
    stored += [v["name"] for v in spec["versions"] if v.get("storage") and v["name"] not in stored]
    result = {**status, "acceptedNames": accepted, "conditions": conditions, "storedVersions": stored}
    return crd if constraints.same(result, status) else {**crd, "status": result}


def _taken(group: str, name: str, others: Iterable[JsonObject]) -> tuple[set[str], set[str]]:
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if other["spec"]["group"] != group or other["metadata"]["name"] == name:
            continue
        held = (other.get("status") or {}).get("acceptedNames") or {}
        resources.update([held.get("plural", ""), held.get("singular", ""), *(held.get("shortNames") or ())])
        kinds.update([held.get("kind", ""), held.get("listKind", "")])
    return resources - {""}, kinds - {""}


def _accepted(
    asked: JsonObject, mine: JsonObject, resources: set[str], kinds: set[str]
) -> tuple[JsonObject, str, str]:
    """Return the names that are free, and the reason and message of the condition."""
    accepted = dict(mine)
    reason, message = "NoConflicts", "no conflicts found"
    wanted = (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    )
    for key, conflict, taken in wanted:
        value = asked.get(key)
        listed = value if isinstance(value, list) else [value] if value else []
        held = mine.get(key) if isinstance(mine.get(key), list) else [mine.get(key)]
        used = [name for name in listed if name in taken and name not in (held or ())]
        if used:
            texts = [f'"{name}" is already in use' for name in used]
            reason, message = conflict, texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
        elif value:
            accepted[key] = value
        else:
            accepted.pop(key, None)
    accepted.pop("categories", None)
    if asked.get("categories"):
        accepted["categories"] = asked["categories"]
    return {"kind": "", "plural": "", **accepted}, reason, message


def _with(
    conditions: Sequence[JsonObject], kind: str, good: bool, reason: str, message: str, *, now: str
) -> list[JsonObject]:
    status = "True" if good else "False"
    old = next((c for c in conditions if c["type"] == kind), None)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
    new = {
        "lastTransitionTime": since, "message": message, "reason": reason, "status": status, "type": kind,
    }  # fmt: skip
    if old is None:
        return [*conditions, new]
    return [new if c is old else c for c in conditions]


# --- OpenAPI ------------------------------------------------------------------------------------------


def _definition_name(crd: JsonObject, version: str, kind: str) -> str:
    return ".".join([*reversed(crd["spec"]["group"].split(".")), version, kind])


def openapi_v3(crd: JsonObject, version: str) -> dict[str, JsonObject]:
    """Return the component schemas of one version for /openapi/v3/apis/<group>/<version>, with the List.

    The definitions of metadata that they refer to are included.
    """
    found = {
        name: _to_v3(schema) for name, schema in _definitions(crd, version, "#/components/schemas/").items()
    }
    core = builtin().document("", "v1")
    assert core is not None
    schemas = core["components"]["schemas"]
    pending = [_OBJECT_META, _LIST_META]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = schemas[name]
            pending += re.findall(r"#/components/schemas/([\w.-]+)", repr(schemas[name]))
    return found


def openapi_v2(crd: JsonObject, version: str) -> dict[str, JsonObject]:
    """Return the definitions of one version for /openapi/v2.

    Of a kind that keeps unknown fields no property is told: kubectl would refuse all others.
    """
    return {
        name: _bare(schema) if schema.get("x-kubernetes-preserve-unknown-fields") else _to_v2(schema)
        for name, schema in _definitions(crd, version, "#/definitions/").items()
    }


def _bare(schema: JsonObject) -> JsonObject:
    return {key: schema[key] for key in ("type", "x-kubernetes-group-version-kind")}


def _definitions(crd: JsonObject, version: str, prefix: str) -> dict[str, JsonObject]:
    spec = crd["spec"]
    group, kind, list_kind = spec["group"], spec["names"]["kind"], spec["names"]["listKind"]
    entry = next(v for v in spec["versions"] if v["name"] == version)
    schema = copy.deepcopy(_schema_of(entry) or {"type": "object"})
    if spec.get("preserveUnknownFields"):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = schema.setdefault("properties", {})
    told = _told()
    properties |= {**told, "metadata": {**_reference(prefix + _OBJECT_META), "description": _METADATA_TOLD}}
    schema["x-kubernetes-group-version-kind"] = [{"group": group, "kind": kind, "version": version}]
    name = _definition_name(crd, version, kind)
    listed = {
        "description": f"{list_kind} is a list of {kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **told,
            "items": {
                "description": f"List of {spec['names']['plural']}. More info: {_CONVENTIONS}",
                "type": "array",
                "items": {"$ref": prefix + name},
            },
            "metadata": {**_reference(prefix + _LIST_META), "description": _LIST_METADATA_TOLD},
        },
        "x-kubernetes-group-version-kind": [{"group": group, "kind": list_kind, "version": version}],
    }
    return {name: schema, _definition_name(crd, version, list_kind): listed}


_CONVENTIONS: Final = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_METADATA_TOLD: Final = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_LIST_METADATA_TOLD: Final = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"


def _reference(name: str) -> JsonObject:
    return {"allOf": [{"$ref": name}]}


def _told() -> JsonObject:
    """Return what every kind has, as the built-in kinds tell it."""
    any_kind = "io.k8s.api.core.v1.ConfigMap"
    return {
        name: {"description": text_of(any_kind, name), "type": "string"} for name in ("apiVersion", "kind")
    }


def _to_v3(schema: Any) -> Any:
    """Spell int-or-string out for clients that do not know the extension."""
    if isinstance(schema, list):
        return [_to_v3(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _to_v3(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        result.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    return result


_V3_ONLY: Final = frozenset(("nullable", "allOf", "anyOf", "oneOf", "not", "default"))


def _to_v2(schema: Any) -> Any:
    """Drop what OpenAPI v2 cannot say; a nullable or preserving node says nothing of its type."""
    if isinstance(schema, list):
        return [_to_v2(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if len(schema.get("allOf") or ()) == 1 and "$ref" in schema["allOf"][0]:
        return schema["allOf"][0]
    vague = schema.get("nullable") or schema.get("x-kubernetes-int-or-string")
    open_ended = vague or schema.get("x-kubernetes-preserve-unknown-fields")
    result = {}
    for key, value in schema.items():
        if key in _V3_ONLY or (
            vague and key in ("type", "items", "properties", "additionalProperties", "format")
        ):
            continue
        if key == "type" and open_ended:
            continue
        if key in ("properties",):
            result[key] = {name: _to_v2(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties"):
            result[key] = _to_v2(value)
        else:
            result[key] = value
    return result
