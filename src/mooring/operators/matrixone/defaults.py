"""What stands for what a declaration does not say, where it depends on other fields.

Defaults that depend on nothing are the schema's. A webhook writes the ones here into the object when it is stored; without
a webhook the operator reads the object as if they had been. They work on JSON, so that fields nobody knows stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from mooring.kube.object import Object, to_dict
from mooring.operators.matrixone.identity import read_bootstrap
from mooring.operators.matrixone.names import BOOTSTRAP
from mooring.operators.matrixone.quantities import amount, share
from mooring.operators.matrixone.types import DELETE, CNSet, DNSet, LogSet, MatrixOneCluster
from mooring.operators.matrixone.versions import LATEST_OPERATOR

__all__ = ["DRAIN_TIMEOUT", "HA_REPLICAS", "default_patch", "with_defaults"]

T = TypeVar("T", bound=Object)
Json = dict[str, Any]

HA_REPLICAS: Final = 3
"""Replicas of a log shard where there are stores enough; else 1."""
DRAIN_TIMEOUT: Final = "5m0s"
_FAILURE_TIMEOUT: Final = "10m0s"


def with_defaults(obj: T) -> T:
    """An object as it would be stored where a webhook runs, but for what only new objects get."""
    fill = _FILL.get(type(obj))
    if fill is None:
        return obj
    raw = to_dict(obj)
    fill(raw, new=False)
    return msgspec.convert(raw, type(obj))


def default_patch(kind: type[Object], raw: Mapping[str, Any], *, new: bool) -> Json:
    """A JSON merge patch that writes the defaults into an object; empty where nothing is missing.

    ``new``: it is being created. What is of a type that no field has is left for the schema to refuse.
    """
    fill = _FILL.get(kind)
    if fill is None:
        return {}
    copy = msgspec.json.decode(msgspec.json.encode(raw))
    fill(copy, new=new)
    return _difference(raw, copy)


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    out: Json = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if inner := _difference(old, value):
                out[key] = inner
        elif old != value:
            out[key] = value
    return out


def _part(raw: Json, name: str) -> Json:
    """An object below a name; an unattached one where there is something else."""
    found = raw.get(name)
    return found if isinstance(found, dict) else {}


def _made(raw: Json, name: str) -> Json:
    """An object below a name, made where there is none."""
    if raw.get(name) is None:
        raw[name] = {}
    return _part(raw, name)


def _set(raw: Json, name: str, value: Any) -> None:
    if raw.get(name) is None:
        raw[name] = value


def _pods(spec: Json) -> None:
    if spec.get("exportToPrometheus") is True:
        _set(spec, "promDiscoveryScheme", "Service")


def _log(spec: Json, *, bootstrapped: int = 0) -> None:
    stores = spec.get("replicas")
    enough = isinstance(stores, int) and stores >= HA_REPLICAS
    initial = _made(spec, "initialConfig")
    _set(initial, "logShardReplicas", bootstrapped or (HA_REPLICAS if enough else 1))
    _set(initial, "logShards", 1)
    _set(initial, "dnShards", 1)
    _set(spec, "storeFailureTimeout", _FAILURE_TIMEOUT)
    storage = _part(spec, "sharedStorage")
    if isinstance(storage.get("s3"), dict):
        s3 = storage["s3"]
        given = spec.get("pvcRetentionPolicy") or s3.get("s3RetentionPolicy") or DELETE
        _set(s3, "s3RetentionPolicy", given)
        _set(spec, "pvcRetentionPolicy", s3["s3RetentionPolicy"])
    else:
        _set(spec, "pvcRetentionPolicy", DELETE)
    _pods(spec)


def _caches(spec: Json, *, always: bool) -> None:
    """Half of the memory request, and nine tenths of the volume; ``always``: also without a request."""
    request = _part(_part(spec, "resources"), "requests").get("memory")
    volume = spec.get("cacheVolume")
    size = volume.get("size") if isinstance(volume, dict) else None
    wanted: Json = {}
    if request is not None or always:
        half = _share(0 if request is None else request, 1, 2)
        if half is not None and (always or half != "0"):
            wanted["memoryCacheSize"] = half
    if size is not None and (most := _share(size, 9, 10)) is not None:
        wanted["diskCacheSize"] = most
    if wanted:
        cache = _made(spec, "sharedStorageCache")
        for name, value in wanted.items():
            _set(cache, name, value)


def _share(value: object, numerator: int, denominator: int) -> str | None:
    """A part of a quantity; None where it is none, which is said elsewhere."""
    if not isinstance(value, (str, int, float)):
        return None
    try:
        return share(value, numerator, denominator) if amount(value) > 0 else "0"
    except ValueError:
        return None


def _dn(spec: Json) -> None:
    _caches(spec, always=True)
    _pods(spec)


def _cn(spec: Json) -> None:
    _set(spec, "serviceType", "ClusterIP")
    _caches(spec, always=False)
    scaling = _part(spec, "scalingConfig")
    if scaling.get("storeDrainEnabled") is True:
        _set(scaling, "storeDrainTimeout", DRAIN_TIMEOUT)
    update = _made(spec, "updateStrategy")
    _set(update, "maxSurge", 1)
    _set(update, "maxUnavailable", 0)
    _pods(spec)


def _log_set(raw: Json, *, new: bool) -> None:
    recorded = _part(_part(raw, "metadata"), "annotations").get(BOOTSTRAP)
    try:
        bootstrapped = len(read_bootstrap(recorded)) if isinstance(recorded, str) else 0
    except ValueError:
        bootstrapped = 0
    if isinstance(raw.get("spec"), dict):
        _log(raw["spec"], bootstrapped=bootstrapped)


def _dn_set(raw: Json, *, new: bool) -> None:
    if isinstance(raw.get("spec"), dict):
        _dn(raw["spec"])


def _cn_set(raw: Json, *, new: bool) -> None:
    if isinstance(raw.get("spec"), dict):
        _cn(raw["spec"])
        _set(raw["spec"], "role", "TP")


def _cluster(raw: Json, *, new: bool) -> None:
    spec = _part(raw, "spec")
    if isinstance(spec.get("logService"), dict):
        _log(spec["logService"])
    for name in ("dn", "tn"):
        if isinstance(spec.get(name), dict):
            _dn(spec[name])
    groups = spec.get("cnGroups")
    for group in (spec.get("tp"), spec.get("ap"), *(groups if isinstance(groups, list) else ())):
        if isinstance(group, dict):
            _cn(group)
    if new and spec:
        _set(spec, "operatorVersion", str(LATEST_OPERATOR))


_FILL: Final[Mapping[type[Object], Callable[..., None]]] = {
    LogSet: _log_set,
    DNSet: _dn_set,
    CNSet: _cn_set,
    MatrixOneCluster: _cluster,
}
