"""``mooring switchover`` of both kinds of Redis: the master's pod is evicted, which hands over before it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.kube import Client
from mooring.kube.errors import TooManyRequests

__all__ = ["evict", "masters", "sentinel_master"]


async def evict(client: Client, raw: Mapping[str, Any], leader: str, to: str) -> None:
    """Evict a master's pod. Its replica takes over while it still lives, then it comes back as a replica.

    Raises `ValueError` for a wish that cannot be met, and where the disruption budget lets no pod go now.
    """
    if to:
        raise ValueError("--to: of Redis the operator chooses the replica with the newest data; leave it out")
    if not _followers(raw, leader):
        raise ValueError("no replica is in sync, so none can take over; see mooring why")
    namespace = raw["metadata"]["namespace"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": leader, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{leader}/eviction"
    try:
        await client.request("POST", path, body=msgspec.json.encode(body))
    except TooManyRequests as error:
        raise ValueError(
            f"the disruption budget lets no pod go now, since another is away: {error}; see mooring why"
        ) from error


def _followers(raw: Mapping[str, Any], leader: str) -> list[str]:
    """The pods that follow a master in sync, by the status of either kind."""
    status = raw.get("status") or {}
    nodes = [one for one in status.get("conditions") or () if one.get("nodeId")]
    ids = {one["nodeId"] for one in nodes if one.get("name") == leader}
    of_shard = [
        str(one["name"])
        for one in nodes
        if one.get("type") == "slave" and one.get("masterNodeId") in ids and one.get("status") == "True"
    ]
    return of_shard if ids else [str(one) for one in status.get("replicas") or ()]


def sentinel_master(raw: Mapping[str, Any]) -> list[str]:
    """The master of a cluster with sentinels, by its status."""
    master = (raw.get("status") or {}).get("master")
    return [str(master)] if master else []


def masters(raw: Mapping[str, Any]) -> list[str]:
    """The masters of a Redis Cluster that have slots, by its status."""
    nodes = (raw.get("status") or {}).get("conditions") or ()
    return sorted(str(one["name"]) for one in nodes if one.get("type") == "master" and one.get("slots"))
