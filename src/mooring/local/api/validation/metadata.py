"""The rules every object keeps: metadata, labels, label selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import FieldError, forbidden, invalid, not_supported, required, too_long

__all__ = [
    "annotation_errors",
    "changed_parts",
    "immutable",
    "label_errors",
    "selector_errors",
    "selects",
    "standard_finalizers",
    "validate_metadata",
    "validate_metadata_update",
]

Json = Any
JsonObject = dict[str, Any]
Errors = Iterator[FieldError]

_ANNOTATIONS_LIMIT: Final = 256 * 1024


# --- metadata -----------------------------------------------------------------------------------------


def validate_metadata(
    meta: JsonObject,
    *,
    namespaced: bool,
    path: str = "metadata",
    check: Callable[[str], tuple[str, ...]] = names.dns1123_subdomain,
) -> list[FieldError]:
    """Return what is wrong with the metadata of any new object, custom resources included."""
    return [*_name_errors(meta, path, check), *_place_errors(meta, path, namespaced), *_common(meta, path)]


def _name_errors(meta: JsonObject, path: str, check: Callable[[str], tuple[str, ...]]) -> Errors:
    if generate := meta.get("generateName"):
        for text in names.with_prefix(check, generate):
            yield invalid(f"{path}.generateName", generate, text)
    if not meta.get("name"):
        yield required(f"{path}.name", "name or generateName is required")
    else:
        for text in check(meta["name"]):
            yield invalid(f"{path}.name", meta["name"], text)


def _place_errors(meta: JsonObject, path: str, namespaced: bool) -> Errors:
    namespace = meta.get("namespace")
    if not namespaced:
        if namespace:
            yield forbidden(f"{path}.namespace", "not allowed on this type")
    elif not namespace:
        yield required(f"{path}.namespace")
    else:
        for text in names.dns1123_label(namespace):
            yield invalid(f"{path}.namespace", namespace, text)


def _common(meta: JsonObject, path: str) -> Errors:
    if meta.get("generation", 0) < 0:
        yield invalid(f"{path}.generation", meta["generation"], "must be greater than or equal to 0")
    yield from label_errors(meta.get("labels"), f"{path}.labels")
    yield from annotation_errors(meta.get("annotations"), f"{path}.annotations")
    yield from _owner_errors(meta.get("ownerReferences") or [], f"{path}.ownerReferences")
    yield from _finalizer_errors(meta.get("finalizers") or [], f"{path}.finalizers")


def label_errors(labels: JsonObject | None, path: str) -> Errors:
    """Yield what is wrong with labels (or a node selector)."""
    for key, value in (labels or {}).items():
        for text in names.qualified_name(key):
            yield invalid(path, key, text)
        for text in names.label_value(value):
            yield invalid(path, value, text)


def annotation_errors(annotations: JsonObject | None, path: str) -> Errors:
    """Yield what is wrong with annotations."""
    size = 0
    for key, value in (annotations or {}).items():
        size += len(key.encode()) + len(value.encode())
        for text in names.qualified_name(key.lower()):
            yield invalid(path, key, text)
    if size > _ANNOTATIONS_LIMIT:
        yield too_long(path, _ANNOTATIONS_LIMIT)


def _owner_errors(owners: list[JsonObject], path: str) -> Errors:
    first = ""
    for owner in owners:
        version = str(owner.get("apiVersion") or "").rpartition("/")[2]
        if not version:
            yield invalid(f"{path}.apiVersion", owner.get("apiVersion", ""), "version must not be empty")
        for key in ("kind", "name", "uid"):
            if not owner.get(key):
                yield invalid(f"{path}.{key}", "", "must not be empty")
        if owner.get("kind") == "Event" and owner.get("apiVersion") in ("v1", "events.k8s.io/v1"):
            yield invalid(path, owner, f"{owner['apiVersion']}, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            name = f"{owner.get('kind')}/{owner.get('name')}"
            if first:
                yield invalid(
                    path,
                    owners,
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {first} and {name}',
                )
            first = first or name


def _finalizer_errors(finalizers: list[str], path: str) -> Errors:
    for finalizer in finalizers:
        for text in names.qualified_name(finalizer):
            yield invalid(path, finalizer, text)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        yield invalid(path, finalizers, text)


def standard_finalizers(finalizers: list[str] | None, old: list[str]) -> list[FieldError]:
    """Return the finalizers of a built-in object that are neither standard nor qualified."""
    if not finalizers or finalizers == old:
        return []
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"metadata.finalizers[{index}]", name, text)
        for index, name in enumerate(finalizers)
        if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion")
    ]


def validate_metadata_update(
    meta: JsonObject, old: JsonObject, *, path: str = "metadata"
) -> list[FieldError]:
    """Return what is wrong with changed metadata of any object, custom resources included."""
    if meta is old:
        return []
    return [*_metadata_update(meta, old, path)]


def _metadata_update(meta: JsonObject, old: JsonObject, path: str) -> Errors:
    added = [f for f in meta.get("finalizers") or () if f not in (old.get("finalizers") or ())]
    if old.get("deletionTimestamp") and added:
        listed = "[]string{" + ", ".join(f'"{name}"' for name in sorted(added)) + "}"
        text = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
        yield forbidden(f"{path}.finalizers", text)
    if meta.get("generation", 0) < old.get("generation", 0):
        yield invalid(f"{path}.generation", meta.get("generation", 0), "must not be decremented")
    fixed = (
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    )
    for key in fixed:
        yield from immutable(meta.get(key), old.get(key), f"{path}.{key}")
    for part, check in _PARTS:
        if meta.get(part) and not same(meta[part], old.get(part)):
            yield from check(meta[part], f"{path}.{part}")


def changed_parts(meta: JsonObject, old: JsonObject, *, path: str = "metadata") -> Errors:
    """Yield what is wrong with the changed parts of metadata as it would be in a new object."""
    if meta is old:
        return
    for part, check in (*_PARTS, ("finalizers", _finalizer_errors)):
        if meta.get(part) and not same(meta[part], old.get(part)):
            yield from check(meta[part], f"{path}.{part}")


def immutable(value: Json, old: Json, path: str) -> Errors:
    """Yield the error for a field that was changed and must not be."""
    if not same(value, old):
        yield invalid(path, value, "field is immutable")


_PARTS: Final[tuple[tuple[str, Callable[[Any, str], Errors]], ...]] = (
    ("labels", label_errors),
    ("annotations", annotation_errors),
    ("ownerReferences", _owner_errors),
)


# --- selectors ----------------------------------------------------------------------------------------


def selector_errors(selector: JsonObject | None, path: str) -> Errors:
    """Yield what is wrong with a label selector."""
    yield from label_errors((selector or {}).get("matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate((selector or {}).get("matchExpressions") or ()):
        place = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required(f"{place}.values", text)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{place}.values", text)
        else:
            yield not_supported(f"{place}.operator", operator, ("DoesNotExist", "Exists", "In", "NotIn"))
        for text in names.qualified_name(expression.get("key", "")):
            yield invalid(f"{place}.key", expression.get("key", ""), text)
        for number, value in enumerate(values):
            for text in names.label_value(value):
                yield invalid(f"{place}.values[{number}]", value, text)


def selects(selector: JsonObject, labels: JsonObject) -> bool:
    """Tell whether a label selector matches labels; an invalid one matches nothing."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        key, operator, values = (
            expression.get("key"),
            expression.get("operator"),
            expression.get("values") or (),
        )
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds.get(operator, False):
            return False
    return True
