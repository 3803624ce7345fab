"""The rules of the core group, but for Services and volumes."""

from __future__ import annotations

import base64
import json
from typing import Final

from mooring.local.api import names
from mooring.local.api.constraints import same
from mooring.local.api.fields import (
    forbidden,
    invalid,
    required,
    too_long,
)
from mooring.local.api.validation.metadata import immutable
from mooring.local.api.validation.pods import pod_create, pod_update, template
from mooring.local.api.validation.rules import (
    Errors,
    JsonObject,
    Rules,
    Table,
    Update,
    also,
    nothing,
)

__all__ = ["RULES"]

_DATA_LIMIT: Final = 1024 * 1024


def _keys(data: JsonObject, path: str) -> Errors:
    for key in data:
        for text in names.config_map_key(key):
            yield invalid(f"{path}[{key}]", key, text)


def _config_map(obj: JsonObject) -> Errors:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    yield from _keys(data, "data")
    for key in data:
        if key in binary:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    yield from _keys(binary, "binaryData")
    size = sum(len(value.encode()) for value in data.values())
    if size + sum(_decoded_size(value) for value in binary.values()) > _DATA_LIMIT:
        yield too_long("[]", _DATA_LIMIT)


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def _secret(obj: JsonObject) -> Errors:
    data = obj.get("data") or {}
    yield from _keys(data, "data")
    if sum(_decoded_size(value) for value in data.values()) > _DATA_LIMIT:
        yield too_long("data", _DATA_LIMIT)
    kind = obj.get("type", "")
    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not ((obj.get("metadata") or {}).get("annotations") or {}).get(name):
            yield required(f"metadata.annotations[{name}]")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        yield required("data[username]")
        yield required("data[password]")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key.startswith(".docker"):
            yield from _docker_config(data[key], f"data[{key}]")


_SECRET_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _docker_config(text: str, path: str) -> Errors:
    try:
        json.loads(base64.b64decode(text))
    except ValueError as error:
        yield invalid(path, "<secret contents redacted>", str(error))


def _frozen(*keys: str) -> Update:
    """Rules for updates of what says `immutable: true`."""

    def check(obj: JsonObject, old: JsonObject) -> Errors:
        if not old.get("immutable"):
            return
        text = "field is immutable when `immutable` is set"
        if not obj.get("immutable"):
            yield forbidden("immutable", text)
        for key in keys:
            if not same(obj.get(key) or {}, old.get(key) or {}):
                yield forbidden(key, text)

    return check


def _secret_update(obj: JsonObject, old: JsonObject) -> Errors:
    yield from immutable(obj.get("type"), old.get("type"), "type")
    yield from _frozen("data")(obj, old)


def _pod_template(obj: JsonObject) -> Errors:
    yield from template(obj.get("template") or {}, "template")


def _namespace_status(obj: JsonObject, old: JsonObject) -> Errors:
    phase, path = (obj.get("status") or {}).get("phase") or "", "status.Phase"
    going = bool((obj.get("metadata") or {}).get("deletionTimestamp"))
    if going and phase != "Terminating":
        yield invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
    elif not going and phase != "Active":
        yield invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")


def _free(obj: JsonObject) -> Errors:
    yield from ()


RULES: Final[Table] = {
    ("", "Pod"): Rules(pod_create, pod_update),
    ("", "PodTemplate"): also(_pod_template),
    ("", "ConfigMap"): also(_config_map, _frozen("data", "binaryData")),
    ("", "Namespace"): Rules(_free, nothing, _namespace_status),
    ("", "Secret"): also(_secret, _secret_update),
}
