"""What every cluster has from its first start: namespaces and the Service of the API itself."""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.kube.errors import api_error
from mooring.kube.transport import Transport

__all__ = ["bootstrap"]

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


async def bootstrap(transport: Transport) -> None:
    """Create what is missing."""
    for name in _NAMESPACES:
        await _ensure(transport, "/api/v1/namespaces", {"metadata": {"name": name}})
    for name, value in _PRIORITIES.items():
        await _ensure(
            transport,
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": name}, "value": value},
        )


async def _ensure(transport: Transport, path: str, obj: dict[str, Any]) -> None:
    found = await transport.request("GET", f"{path}/{obj['metadata']['name']}")
    if found.status == 200:
        return
    answer = await transport.request("POST", path, body=msgspec.json.encode(obj))
    if answer.status not in (201, 409):
        raise api_error(answer.status, answer.body, answer.headers)
