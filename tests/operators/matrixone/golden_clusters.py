"""The clusters whose sets are compared with upstream's, by name: changes of the least cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CLUSTERS"]

CLUSTERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "least": {},
    "deprecated": {
        "spec__tn": None,
        "spec__dn": {"replicas": 1},
        "spec__cnGroups": None,
        "spec__tp": {"replicas": 2},
        "spec__ap": {"replicas": 1, "role": "AP"},
    },
    "whole": {
        "spec__imageRepository": "registry:5000/mo",
        "spec__imagePullPolicy": "Always",
        "spec__nodeSelector": {"disk": "ssd"},
        "spec__topologySpread": ["zone"],
        "spec__semanticVersion": "1.2.9",
        "spec__memoryFsSize": "1Gi",
        "spec__tn": {
            "replicas": 1,
            "nodeSelector": {},
            "topologySpread": ["host"],
            "config": "[tn.Txn]\nmode = 1\n",
            "overlay": {"imagePullPolicy": "Never", "podLabels": {"team": "data"}},
        },
        "spec__cnGroups": [
            {"name": "a", "replicas": 1, "image": "own:1.2.5", "config": "[cn.frontend]\nport = 6001\n"},
            {"name": "b", "replicas": 3, "memoryFsSize": "2Gi", "semanticVersion": "1.3.0"},
        ],
        "spec__proxy": {"replicas": 2, "config": '[log]\nlevel = "debug"\n'},
        "spec__webui": {"replicas": 1, "updateStrategy": {"maxSurge": 1}},
    },
    "retained": {
        "spec__logService__pvcRetentionPolicy": "Retain",
        "spec__logService__sharedStorage__s3__s3RetentionPolicy": "Delete",
        "spec__operatorVersion": "1.3.0",
    },
    "behind-a-proxy": {
        "spec__proxy": {"replicas": 1},
        "spec__cnGroups__0__overlay": {
            "env": [{"name": "A", "value": "1"}, {"name": "DEFAULT_PASSWORD", "value": "x"}]
        },
    },
}
