"""Node drains as `kubectl drain` does them, on simulated nodes."""

from __future__ import annotations

import msgspec

from mooring.kube import Client, MergePatch
from mooring.kube.objects.core import Node, Pod

__all__ = ["cordon", "evict", "node_of"]


def node_of(pod: Pod) -> str:
    """The node that a pod runs on."""
    return (pod.spec.node_name if pod.spec else None) or ""


async def cordon(client: Client, node: str, *, away: bool = True) -> None:
    """Have a node take no more pods, or take them again."""
    await client.patch(Node, node, MergePatch({"spec": {"unschedulable": away or None}}))


async def evict(client: Client, pod: str) -> None:
    """Ask for an eviction; raises `TooManyRequests` where a budget does not allow it."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    await client.request("POST", path, body=msgspec.json.encode(body))
