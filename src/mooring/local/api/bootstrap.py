"""What every cluster has from its first start: namespaces, priorities, the roles that clients rely on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import msgspec

from mooring.kube.errors import api_error
from mooring.kube.transport import Transport
from mooring.local.api.objectmeta import on_create
from mooring.local.api.storage import Store, Write

__all__ = ["bootstrap"]

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


_SERVICE_RANGES = "/apis/networking.k8s.io/v1/servicecidrs"


async def bootstrap(transport: Transport, store: Store, *, services: str) -> None:
    """Create what is missing; `services` is the range of Service addresses."""
    for name in _NAMESPACES:
        await _ensure(transport, "/api/v1/namespaces", {"metadata": {"name": name}})
    for name, value in _PRIORITIES.items():
        await _ensure(
            transport,
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": name}, "value": value},
        )
    await _ensure_roles(store)
    await _ensure_range(transport, services)


async def _ensure_range(transport: Transport, services: str) -> None:
    """Tell the range of Service addresses, and that it is in use."""
    name = "kubernetes"
    meta = {"name": name, "finalizers": ["networking.k8s.io/service-cidr-finalizer"]}
    await _ensure(transport, _SERVICE_RANGES, {"metadata": meta, "spec": {"cidrs": [services]}})
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    path = f"{_SERVICE_RANGES}/{name}"
    found = msgspec.json.decode((await transport.request("GET", path)).body)
    if not (found.get("status") or {}).get("conditions"):
        answer = await transport.request(
            "PATCH",
            f"{path}/status",
            body=msgspec.json.encode({"status": {"conditions": [ready]}}),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        if answer.status != 200:
            raise api_error(answer.status, answer.body, answer.headers)


async def _ensure(transport: Transport, path: str, obj: dict[str, Any]) -> None:
    found = await transport.request("GET", f"{path}/{obj['metadata']['name']}")
    if found.status == 200:
        return
    answer = await transport.request("POST", path, body=msgspec.json.encode(obj))
    if answer.status not in (201, 409):
        raise api_error(answer.status, answer.body, answer.headers)


async def _ensure_roles(store: Store) -> None:
    """Create the missing roles and bindings straight in the store: they are complete, and over a hundred."""
    file = resources.files("mooring.local.api").joinpath("openapi", "roles.json")
    now = datetime.now(UTC)
    write: Write | None = None
    for resource, objects in json.loads(file.read_bytes()).items():
        collection = store.collection(resource)
        for obj in objects:
            namespace = obj["metadata"].get("namespace", "")
            place = (namespace, obj["metadata"]["name"])
            if collection.head(place) is None:
                write = store.put(collection, place, on_create(obj, now=now, namespace=namespace), base=None)
    if write is not None:
        await write.committed()  # the last of one batch
