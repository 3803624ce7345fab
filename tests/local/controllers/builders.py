"""Small objects for the tests of the embedded controllers."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from mooring.cache.clock import rfc3339
from mooring.kube.object import Object, owner_reference
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import Pod

T = TypeVar("T", bound=Object)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
_uids = itertools.count(1)


def ago(seconds: float) -> str:
    """So many seconds before `NOW`."""
    return rfc3339(NOW - timedelta(seconds=seconds))


def make(kind: type[T], name: str, body: dict[str, Any] | None = None, **metadata: Any) -> T:
    """An object of a kind from JSON; it has a uid and lives in ``default``."""
    meta = {"name": name, "uid": f"uid-{next(_uids)}", "resourceVersion": "1", **metadata}
    if kind.resource.namespaced:
        meta.setdefault("namespace", "default")
    return msgspec.convert({**(body or {}), "metadata": meta}, kind)


def merged(obj: T, patch: dict[str, Any]) -> T:
    """The object after a merge patch."""
    return msgspec.convert(_merge(msgspec.to_builtins(obj), patch), type(obj))


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def stateful_set(name: str = "web", *, replicas: int = 3, image: str = "a", **spec: Any) -> StatefulSet:
    """A StatefulSet with one container and the defaults the server sets."""
    body = {
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            "podManagementPolicy": "OrderedReady",
            "revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            **spec,
        }
    }
    return make(StatefulSet, name, body, generation=1)


def with_status(pod: Pod, *, phase: str = "Running", ready: bool = True, since: float = 60) -> Pod:
    """The pod as a node reports it."""
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": ago(since)}
    uid = pod.metadata.uid or f"uid-{next(_uids)}"
    return merged(pod, {"metadata": {"uid": uid}, "status": {"phase": phase, "conditions": [condition]}})


def terminating(obj: T) -> T:
    """The object after its deletion was asked for."""
    return merged(obj, {"metadata": {"deletionTimestamp": ago(1), "deletionGracePeriodSeconds": 30}})


def pod(
    name: str, body: dict[str, Any] | None = None, *, owner: Object | None = None, **metadata: Any
) -> Pod:
    """A pod, controlled by ``owner`` if there is one."""
    if owner is not None:
        metadata["ownerReferences"] = [msgspec.to_builtins(owner_reference(owner))]
    return make(Pod, name, body, **metadata)
