"""The rules of volumes and of claims to them."""

from __future__ import annotations

from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import (
    forbidden,
    invalid,
    not_supported,
    required,
)
from mooring.local.api.validation.metadata import immutable, selector_errors
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Table,
    also,
    spec_of,
)
from mooring.local.api.wire import quantity_value

__all__ = ["RULES", "claim_spec"]

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def _access_modes(spec: JsonObject, path: str) -> Errors:
    modes = spec.get("accessModes") or []
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        text = "may not use ReadWriteOncePod with other access modes"
        yield forbidden(f"{path}.accessModes", text)


def claim_spec(spec: JsonObject, path: str) -> Errors:
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from selector_errors(spec.get("selector"), f"{path}.selector")
    yield from _access_modes(spec, path)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield required(f"{path}.resources[storage]")
    elif quantity_value(size) <= 0:
        yield invalid(f"{path}.resources[storage]", size, "must be greater than zero")
    if spec.get("storageClassName"):
        for text in names.dns1123_subdomain(spec["storageClassName"]):
            yield invalid(f"{path}.storageClassName", spec["storageClassName"], text)
    if spec.get("volumeMode") not in (None, "Block", "Filesystem"):
        yield not_supported(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))


def _claim(obj: JsonObject) -> Errors:
    yield from claim_spec(spec_of(obj), "spec")


def _claim_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = dict(spec_of(obj)), dict(spec_of(old))
    bound = (obj.get("status") or {}).get("phase") == "Bound"
    size, earlier = (
        ((s.get("resources") or {}).get("requests") or {}).get("storage", "0") for s in (spec, before)
    )
    if not before.get("volumeName"):
        spec.pop("volumeName", None)
        before.pop("volumeName", None)
    if before.get("storageClassName") is None:
        spec.pop("storageClassName", None)
    if bound:
        spec["resources"] = before.get("resources") or {}
        for one in (spec, before):
            one.pop("volumeAttributesClassName", None)
    if not same(spec, before):
        yield forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        )
    capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if quantity_value(size) < quantity_value(earlier) and quantity_value(size) <= quantity_value(capacity):
        text = "field can not be less than status.capacity"
        yield forbidden("spec.resources.requests.storage", text)
    yield from immutable(spec_of(obj).get("volumeMode"), spec_of(old).get("volumeMode"), "volumeMode")


_VOLUME_FIELDS: Final = frozenset(
    ("accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
     "storageClassName", "volumeAttributesClassName", "volumeMode")
)  # fmt: skip


def _volume(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    yield from _access_modes(spec, "spec")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield required("spec.capacity")
    elif "storage" not in capacity or len(capacity) > 1:
        yield not_supported("spec.capacity", capacity, ("storage",))
    for name, value in capacity.items():
        if quantity_value(value) <= 0:
            yield invalid(f"spec.capacity[{name}]", value, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy not in ("Delete", "Recycle", "Retain"):
        yield not_supported("spec.persistentVolumeReclaimPolicy", policy, ("Delete", "Recycle", "Retain"))
    sources = sorted(set(spec) - _VOLUME_FIELDS)
    if not sources:
        yield required("spec", "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden(f"spec.{extra}", "may not specify more than 1 volume type")
    if "local" in spec and not (spec.get("nodeAffinity") or {}).get("required"):
        yield required("spec.nodeAffinity", "Local volume requires node affinity")


def _volume_update(obj: JsonObject, old: JsonObject) -> Errors:
    sources = [{k: v for k, v in spec_of(one).items() if k not in _VOLUME_FIELDS} for one in (obj, old)]
    if not same(*sources):
        yield forbidden(
            "spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"
        )
    yield from immutable(spec_of(obj).get("volumeMode"), spec_of(old).get("volumeMode"), "volumeMode")


RULES: Final[Table] = {
    ("", "PersistentVolumeClaim"): also(_claim, _claim_update),
    ("", "PersistentVolume"): also(_volume, _volume_update),
}
