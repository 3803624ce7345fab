"""Carries out a plan for EndpointSlices."""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.kube.errors import AlreadyExists
from mooring.kube.objects.discovery import EndpointSlice
from mooring.kube.patches import MergePatch
from mooring.local.controllers.endpoints.plan import SlicePlan
from mooring.local.controllers.patching import metadata_patch
from mooring.runtime.client import CachedClient

__all__ = ["labels_patch", "write_slices"]


async def write_slices(client: CachedClient, plan: SlicePlan) -> None:
    """Create, change and delete slices."""
    for each in plan.create:
        try:
            await client.create(each)
        except AlreadyExists:
            await client.refresh(
                EndpointSlice, each.metadata.name or "", namespace=each.metadata.namespace or ""
            )
    for old, new in plan.update:
        meta = old.metadata
        body = labels_patch(meta.labels, new.metadata.labels, metadata_patch(old).body)
        if new.metadata.annotations is not None:  # else they are not ours to change
            gone: dict[str, str | None] = dict.fromkeys(meta.annotations or {})
            body["metadata"]["annotations"] = {**gone, **new.metadata.annotations}
        body["endpoints"] = [msgspec.to_builtins(endpoint) for endpoint in new.endpoints or ()]
        if (new.ports or []) != (old.ports or []):
            body["ports"] = [msgspec.to_builtins(port) for port in new.ports or ()]
        await client.patch(EndpointSlice, meta.name or "", MergePatch(body), namespace=meta.namespace or "")
    for each in plan.delete:
        await client.delete(EndpointSlice, each.metadata.name or "", namespace=each.metadata.namespace or "")


def labels_patch(
    old: dict[str, str] | None, new: dict[str, str] | None, body: dict[str, Any]
) -> dict[str, Any]:
    """Add to a patch's body what makes labels these."""
    before, after = old or {}, new or {}
    changed: dict[str, str | None] = {k: v for k, v in after.items() if before.get(k) != v}
    changed |= dict.fromkeys(before.keys() - after.keys())
    if changed:
        body["metadata"]["labels"] = changed
    return body
