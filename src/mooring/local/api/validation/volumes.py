"""The rules of volumes and of claims to them."""

from __future__ import annotations

from collections.abc import Mapping
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

__all__ = ["RULES", "claim_spec", "inline_volume"]

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


#: The kinds of volumes in the order in which a server looks for them; the first counts.
_SOURCES: Final = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte",
    "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk",
    "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
_POLICIES: Final = ("Delete", "Recycle", "Retain")
#: What a kind of volume cannot be without.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "hostPath": ("path",), "nfs": ("server", "path"), "local": ("path",), "csi": ("driver", "volumeHandle"),
}  # fmt: skip


def _volume(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    yield from _access_modes(spec, "spec")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield required("spec.capacity")
    if "storage" not in capacity or len(capacity) > 1:
        yield not_supported("spec.capacity", capacity or None, ("storage",))
    for name, value in capacity.items():
        if quantity_value(value) <= 0:
            yield invalid(f"spec.capacity[{name}]", value, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy and policy not in _POLICIES:
        yield not_supported("spec.persistentVolumeReclaimPolicy", policy, _POLICIES)
    yield from _source(spec, "spec")
    if policy == "Recycle" and "hostPath" in spec and not (spec["hostPath"].get("path") or "").strip("/."):
        text = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden("spec.persistentVolumeReclaimPolicy", text)
    yield from _class_name(spec, "storageClassName")
    if spec.get("volumeMode") not in (None, "Block", "Filesystem"):
        yield not_supported("spec.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))
    if spec.get("volumeAttributesClassName") is not None:
        if not spec["volumeAttributesClassName"]:
            yield required("spec.volumeAttributesClassName", "an empty string is disallowed")
        yield from _class_name(spec, "volumeAttributesClassName")
        if "csi" not in spec:
            yield required("spec.csi", "has to be specified when using volumeAttributesClassName")


def _class_name(spec: JsonObject, key: str) -> Errors:
    name = spec.get(key) or ""
    for text in names.dns1123_subdomain(name) if name else ():
        yield invalid(f"spec.{key}", name, text)


def _source(spec: JsonObject, path: str) -> Errors:
    found = [source for source in _SOURCES if source in spec]
    if not found:
        yield required(path, "must specify a volume type")
        return
    first = spec[found[0]] or {}
    for key in _NEEDED.get(found[0], ()):
        if not first.get(key):
            yield required(f"{path}.{found[0]}.{key}")
    if found[0] == "local" and not (spec.get("nodeAffinity") or {}).get("required"):
        yield required(f"{path}.nodeAffinity", "Local volume requires node affinity")
    for extra in found[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")


def inline_volume(spec: JsonObject, path: str) -> Errors:
    """Yield what is wrong with a volume that stands inside of an attachment."""
    inline = "in the context of inline volumes"
    for key in ("claimRef", "capacity"):
        if spec.get(key):
            yield forbidden(f"{path}.{key}", f"may not be specified {inline}")
    if spec.get("csi") is None:
        yield required(f"{path}.csi", f"has to be specified {inline}")
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes")
    yield from _access_modes(spec, path)
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        yield forbidden(f"{path}.persistentVolumeReclaimPolicy", f"may only be Retain {inline}")
    if spec.get("nodeAffinity") is not None:
        yield forbidden(f"{path}.nodeAffinity", f"may not be specified {inline}")
    yield from _source(spec, path)
    if spec.get("storageClassName"):
        yield forbidden(f"{path}.storageClassName", f"may not be specified {inline}")
    if spec.get("volumeMode") not in (None, "Filesystem"):
        yield forbidden(f"{path}.volumeMode", f"may not specify volumeMode other than Filesystem {inline}")


def _volume_update(obj: JsonObject, old: JsonObject) -> Errors:
    # A real server judges a changed volume twice, and names what is wrong with it twice.
    yield from _volume(obj)
    spec, before = spec_of(obj), spec_of(old)
    sources = [{key: one[key] for key in _SOURCES if key in one} for one in (spec, before)]
    if "csi" in sources[0] and "controllerExpandSecretRef" not in (before.get("csi") or spec["csi"]):
        given = sources[0]["csi"]
        sources[0]["csi"] = {key: given[key] for key in given if key != "controllerExpandSecretRef"}
    if not same(*sources):
        text = "spec.persistentvolumesource is immutable after creation"
        yield forbidden("spec.persistentvolumesource", text)
    yield from immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    name = "volumeAttributesClassName"
    if before.get(name) is not None and spec.get(name) is None:
        yield forbidden(f"spec.{name}", "update from non-nil value to nil is forbidden")


RULES: Final[Table] = {
    ("", "PersistentVolumeClaim"): also(_claim, _claim_update),
    ("", "PersistentVolume"): also(_volume, _volume_update),
}
