"""Declarations of MatrixOne's kinds, as short as they can be, and changed by paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from mooring.kube.object import Object, decode
from mooring.operators.matrixone.types import KINDS

__all__ = ["BY_KIND", "IMAGE", "STORAGE", "changed", "declared", "samples", "typed"]

IMAGE: Final = "matrixorigin/matrixone:1.2.4"
STORAGE: Final[Mapping[str, Any]] = {
    "s3": {"type": "minio", "path": "bucket/mo", "endpoint": "http://minio:9000", "region": "us-east-1"}
}
BY_KIND: Final[Mapping[str, type[Object]]] = {kind.resource.kind: kind for kind in KINDS}
_DEPS: Final = {"logSet": {"metadata": {"name": "mo"}}}
_LOG: Final = {"replicas": 3, "volume": {"size": "10Gi"}, "sharedStorage": STORAGE}
_LEAST: Final[Mapping[str, Mapping[str, Any]]] = {
    "MatrixOneCluster": {
        "spec": {
            "version": "1.2.4",
            "logService": _LOG,
            "tn": {"replicas": 1},
            "cnGroups": [{"name": "tp", "replicas": 2}],
        }
    },
    "LogSet": {"spec": {"image": IMAGE, **_LOG}},
    "DNSet": {"spec": {"image": IMAGE, "replicas": 1}, "deps": _DEPS},
    "CNSet": {"spec": {"image": IMAGE, "replicas": 2}, "deps": _DEPS},
    "ProxySet": {"spec": {"image": IMAGE, "replicas": 1}, "deps": _DEPS},
    "WebUI": {"spec": {"replicas": 1}, "deps": {"cnset": {"metadata": {"name": "mo-tp"}}}},
    "BucketClaim": {"spec": {"s3": STORAGE["s3"], "logSetSpec": {}}},
    "BackupJob": {"spec": {"source": {"clusterRef": "mo"}, "target": STORAGE}},
    "RestoreJob": {"spec": {"backupName": "one", "target": STORAGE}},
    "CNPool": {
        "spec": {
            "template": {"image": IMAGE},
            "deps": _DEPS,
            "strategy": {"updateStrategy": {}, "scaleStrategy": {"maxIdle": 1}},
        }
    },
    "CNClaim": {"spec": {"selector": {"matchLabels": {"pool": "default"}}}},
    "CNClaimSet": {
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"selector": {"matchLabels": {"pool": "default"}}},
            },
        }
    },
}


def changed(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with values set at dotted paths; `None` takes a field away."""
    out: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(raw))
    for path, value in changes.items():
        *way, last = path.split(".")
        place: Any = out
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        if value is None:
            place.pop(last, None)
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return out


def declared(kind: str, name: str = "mo", /, **changes: Any) -> dict[str, Any]:
    """The least declaration of a kind; ``changes`` are paths with two underscores for dots."""
    head = {
        "apiVersion": "core.matrixorigin.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": "u-1"},
    }
    return changed({**head, **_LEAST[kind]}, {path.replace("__", "."): one for path, one in changes.items()})


def typed(kind: str, name: str = "mo", /, **changes: Any) -> Any:
    """The same as its type."""
    return decode(declared(kind, name, **changes), BY_KIND[kind])


def samples() -> list[dict[str, Any]]:
    """The shapes of upstream's samples."""
    return list(yaml.safe_load_all((Path(__file__).parent / "samples.yaml").read_text()))
