"""Declarations, and the objects that are found around them."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from mooring.actor import Terminal, Wait
from mooring.kube.object import Object, decode
from mooring.kube.objects import apps, core, meta
from mooring.operators.mysql.inputs import Inputs, read_inputs
from mooring.operators.mysql.specs import Specs
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.workload.surroundings import Surroundings

__all__ = ["BORN", "answer", "cluster", "inputs", "made", "secret"]

BORN = "2026-01-01T00:00:00Z"


def cluster(spec: dict[str, Any] | None = None, /, **metadata: Any) -> MySQLCluster:
    """A declared cluster ``demo`` in the namespace ``shop``."""
    raw = {
        "metadata": {"name": "demo", "namespace": "shop", "uid": "u1", "creationTimestamp": BORN, **metadata},
        "spec": spec or {},
    }
    return decode(raw, MySQLCluster)


def answer(one: MySQLCluster, *around: Object) -> Inputs | Wait | Terminal:
    """What the inputs of a pass come to."""
    return read_inputs(one, Surroundings(around))


def inputs(one: MySQLCluster, *around: Object) -> Inputs:
    """The inputs of a sound declaration."""
    found = answer(one, *around)
    assert isinstance(found, Inputs), found
    return found


def secret(name: str, **texts: str) -> core.Secret:
    """A Secret with these texts."""
    data = {key.replace("_", "-"): base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return core.Secret(metadata=meta.ObjectMeta(name=name, namespace="shop"), data=data)


def made(specs: Specs) -> list[Object]:
    """The objects as the API server has them."""
    objects = []
    for one in specs.objects():
        found = msgspec.json.decode(msgspec.json.encode(one), type=type(one))
        if isinstance(found, core.Secret):
            objects.append(one)
        elif isinstance(found, apps.StatefulSet):
            objects.append(
                msgspec.structs.replace(
                    found,
                    metadata=msgspec.structs.replace(
                        found.metadata, uid="s1", resource_version="7", generation=1
                    ),
                    status=apps.StatefulSetStatus(observed_generation=1, update_revision="r1"),
                )
            )
        else:
            objects.append(found)
    return objects
