"""The rules of storage: classes, drivers, and what they tell of nodes and of volumes."""

from __future__ import annotations

from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import duplicate, forbidden, invalid, not_supported, required, too_long
from mooring.local.api.validation.metadata import immutable, selector_errors
from mooring.local.api.validation.rules import (
    NOT_NEGATIVE,
    Errors,
    JsonObject,
    Table,
    also,
    fixed,
    items,
    nonnegative,
    spec_of,
)
from mooring.local.api.validation.volumes import inline_volume
from mooring.local.api.wire import quantity_value

__all__ = ["RULES", "driver_name"]

_KIB: Final = 1024
_MOST_PARAMETERS: Final = 512
_LARGEST_PARAMETERS: Final = 256 * _KIB


def _sized(value: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(text.encode()) for key, text in value.items())


def driver_name(name: str, path: str, *, once: bool = False) -> Errors:
    """Yield what is wrong with the name of a driver; `once`: of a name that is not there, only that."""
    if not name:
        yield required(path)
        if once:
            return
    if len(name) > 63:
        yield too_long(path, 63)
    for text in names.dns1123_subdomain(name.lower()):
        yield invalid(path, name, text)


# --- classes ------------------------------------------------------------------------------------------


def _provisioner(name: str, path: str) -> Errors:
    if not name:
        yield required(path)
        return
    for text in names.qualified_name(name.lower()):
        yield invalid(path, name.lower(), text)


def _parameters(parameters: dict[str, str], *, needed: bool) -> Errors:
    if len(parameters) > _MOST_PARAMETERS:
        yield too_long("parameters", _MOST_PARAMETERS)
    if "" in parameters:
        yield invalid("parameters", "", "field can not be empty.")
    if _sized(parameters) > _LARGEST_PARAMETERS:
        yield too_long("parameters", _LARGEST_PARAMETERS)
    if needed and not parameters:
        yield required("parameters", "must contain at least one key/value pair")


def _storage_class(obj: JsonObject) -> Errors:
    yield from _provisioner(obj.get("provisioner") or "", "provisioner")
    yield from _parameters(obj.get("parameters") or {}, needed=False)
    policy, mode = obj.get("reclaimPolicy"), obj.get("volumeBindingMode")
    if policy and policy not in ("Delete", "Retain"):
        yield not_supported("reclaimPolicy", policy, ("Delete", "Retain"))
    if mode is None:
        yield required("volumeBindingMode")
    elif mode not in ("Immediate", "WaitForFirstConsumer"):
        yield not_supported("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))
    known: list[dict[str, set[str]]] = []
    for path, term in items(obj, "allowedTopologies", ""):
        keys: dict[str, set[str]] = {}
        for place, expression in items(term, "matchLabelExpressions", path):
            yield from _topology(expression, place, keys)
        if keys in known:
            yield duplicate(f"{path}.matchLabelExpressions", "")
        known.append(keys)


def _topology(expression: JsonObject, path: str, keys: dict[str, set[str]]) -> Errors:
    key, values = expression.get("key") or "", expression.get("values") or []
    if not values:
        yield required(f"{path}.values")
    for index, value in enumerate(values):
        if value in values[:index]:
            yield duplicate(f"{path}.values[{index}]", value)
    for text in names.qualified_name(key):
        yield invalid(f"{path}.key", key, text)
    if key in keys:
        yield duplicate(f"{path}.key", key)
    keys[key] = set(values)


_STORAGE_CLASS_FIXED: Final = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


def _attributes_class(obj: JsonObject) -> Errors:
    yield from _provisioner(obj.get("driverName") or "", "driverName")
    yield from _parameters(obj.get("parameters") or {}, needed=True)


def _attributes_class_update(obj: JsonObject, old: JsonObject) -> Errors:
    for key in ("driverName", "parameters"):
        if not same(obj.get(key), old.get(key)):
            yield forbidden(key, f"updates to {key} are forbidden.")


# --- drivers ------------------------------------------------------------------------------------------

_MODES: Final = ("Persistent", "Ephemeral")
_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")


def _driver(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    for key, path in (
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ):
        if spec.get(key) is None:
            yield required(f"spec.{path}")
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _POLICIES:
        yield not_supported("spec.fsGroupPolicy", policy, _POLICIES)
    yield from _token_requests(spec)
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in _MODES:
            yield not_supported("spec.volumeLifecycleModes", mode, _MODES)
    if spec.get("seLinuxMount") is None:
        yield required("spec.seLinuxMount")
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        text = "must be greater than or equal to 10 seconds"
        yield invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text)
    secret = spec.get("serviceAccountTokenInSecrets")
    if secret is not None and not spec.get("tokenRequests"):
        text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield invalid("spec.serviceAccountTokenInSecrets", secret, text)


def _token_requests(spec: JsonObject) -> Errors:
    known: set[str] = set()
    for path, request in items(spec, "tokenRequests", "spec"):
        audience, seconds = request.get("audience") or "", request.get("expirationSeconds")
        if audience in known:
            yield duplicate(f"{path}.audience", audience)
            continue
        known.add(audience)
        if seconds is not None and seconds < 600:
            text = "may not specify a duration less than 10 minutes"
            yield invalid(f"{path}.expirationSeconds", seconds, text)
        if seconds is not None and seconds > 2**32:
            text = "may not specify a duration larger than 2^32 seconds"
            yield invalid(f"{path}.expirationSeconds", seconds, text)


def _driver_update(obj: JsonObject, old: JsonObject) -> Errors:
    spec, before = spec_of(obj), spec_of(old)
    for key, path in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes",) * 2):
        yield from immutable(spec.get(key), before.get(key), f"spec.{path}")


def _node(obj: JsonObject) -> Errors:
    known: set[str] = set()
    for path, driver in items(spec_of(obj), "drivers", "spec"):
        name, node = driver.get("name") or "", driver.get("nodeID") or ""
        yield from driver_name(name, f"{path}.name")
        if not node:
            yield required(f"{path}.nodeID")
        if len(node) > 256:
            yield invalid(f"{path}.nodeID", node, "must be 256 characters or less")
        yield from nonnegative((driver.get("allocatable") or {}).get("count"), f"{path}.allocatable.count")
        if name in known:
            yield duplicate(f"{path}.name", name)
        known.add(name)
        keys = driver.get("topologyKeys") or []
        for index, key in enumerate(keys):
            if not key:
                yield required(path)
            if key in keys[:index]:
                yield duplicate(path, key)
            for text in names.qualified_name(key):
                yield invalid(path, key, text)


def _node_update(obj: JsonObject, old: JsonObject) -> Errors:
    before = {driver.get("name"): driver for driver in spec_of(old).get("drivers") or ()}
    for driver in spec_of(obj).get("drivers") or ():
        if (was := before.get(driver.get("name"))) is not None:
            new, before_that = ({k: one[k] for k in one if k != "allocatable"} for one in (driver, was))
            yield from immutable(new, before_that, "spec.drivers")


def _capacity(obj: JsonObject) -> Errors:
    yield from selector_errors(obj.get("nodeTopology"), "nodeTopology")
    name = obj.get("storageClassName") or ""
    for text in names.dns1123_subdomain(name):
        yield invalid("storageClassName", name, text)
    amount = obj.get("capacity")
    if amount is not None and quantity_value(amount) < 0:
        yield invalid("capacity", amount, NOT_NEGATIVE)


# --- attachments --------------------------------------------------------------------------------------

_LARGEST_METADATA: Final = 256 * _KIB
_LARGEST_MESSAGE: Final = _KIB


def _attachment(obj: JsonObject) -> Errors:
    spec = spec_of(obj)
    yield from driver_name(spec.get("attacher") or "", "spec.attacher", once=True)
    source = spec.get("source") or {}
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    one_of = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if volume is None and inline is None:
        yield required("spec.source", one_of)
    elif volume is not None and inline is not None:
        yield forbidden("spec.source", one_of)
    elif volume == "":
        yield required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
    elif inline is not None:
        yield from inline_volume(inline, "spec.source.inlineVolumeSpec")
    node = spec.get("nodeName") or ""
    for text in names.dns1123_subdomain(node):
        yield invalid("spec.nodeName", node, text)
    yield from _attached(obj)
    if volume is not None:
        for text in names.dns1123_subdomain(volume):
            yield invalid("spec.source.persistentVolumeName", volume, text)


def _attached(obj: JsonObject) -> Errors:
    status = obj.get("status") or {}
    if _sized(status.get("attachmentMetadata") or {}) > _LARGEST_METADATA:
        yield too_long("status.attachmentMetadata", _LARGEST_METADATA)
    for key in ("attachError", "detachError"):
        error = status.get(key) or {}
        if len((error.get("message") or "").encode()) > _LARGEST_MESSAGE:
            yield too_long(f"status.{key}.message", _LARGEST_METADATA)
        code = error.get("errorCode")
        if code is not None and code < 0:
            yield invalid(f"status.{key}.errorCode", code, "must be between 0 and 2147483647, inclusive")


_GROUP: Final = "storage.k8s.io"

RULES: Final[Table] = {
    (_GROUP, "CSIDriver"): also(_driver, _driver_update),
    (_GROUP, "CSINode"): also(_node, _node_update),
    (_GROUP, "CSIStorageCapacity"): also(_capacity, fixed("nodeTopology", "storageClassName")),
    (_GROUP, "StorageClass"): also(_storage_class, fixed(*_STORAGE_CLASS_FIXED)),
    (_GROUP, "VolumeAttachment"): also(_attachment, fixed("spec")),
    (_GROUP, "VolumeAttributesClass"): also(_attributes_class, _attributes_class_update),
}
