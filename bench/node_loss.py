"""A node that is lost: it reports nothing, and nobody reaches its pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address

from mooring.kube.objects.core import Node, Pod
from mooring.local.node.agent import NodeAgent
from mooring.testing.bed import Bed

__all__ = ["PODS_GONE_WITHIN", "cut_off", "delete", "node_of", "silent"]

PODS_GONE_WITHIN = 120.0
"""Seconds until the pods of a node that is no more are removed; 40 s of them are the controller's."""


def _agent_of(bed: Bed) -> NodeAgent:
    """What runs the pods of all nodes."""
    agent = bed.plane.agent
    assert isinstance(agent, NodeAgent)
    return agent


async def node_of(bed: Bed, namespace: str, pod: str) -> str:
    """The node that a pod is on."""
    found = await bed.get(Pod, pod, namespace)
    return (found.spec.node_name if found.spec else None) or ""


@asynccontextmanager
async def cut_off(
    bed: Bed, namespace: str, pods: Sequence[str], others: Sequence[str], *, from_machine: bool
) -> AsyncIterator[None]:
    """No packets between these pods and the others, in both directions, and none from this machine if asked."""
    agent = _agent_of(bed)
    addresses = []
    for pod in pods:
        found = await bed.get(Pod, pod, namespace)
        addresses.append(IPv4Address((found.status.pod_ip if found.status else None) or ""))
    await agent.cut_pods([(namespace, pod) for pod in pods], [(namespace, pod) for pod in others])
    try:
        if from_machine:
            await agent.cut_pods([(namespace, pod) for pod in pods])
        yield
    finally:
        for address in addresses:
            await agent.network.heal(address)


async def _struck(bed: Bed, namespace: str, node: str) -> tuple[dict[str, str], list[str]]:
    """The UIDs of the node's pods in a namespace by name, and the names of the other pods there."""
    pods = (await bed.client.list(Pod, namespace=namespace)).items
    there = {
        pod.metadata.name or "": pod.metadata.uid or ""
        for pod in pods
        if pod.spec is not None and pod.spec.node_name == node
    }
    return there, [name for pod in pods if (name := pod.metadata.name or "") not in there]


@asynccontextmanager
async def silent(bed: Bed, namespace: str, node: str) -> AsyncIterator[dict[str, str]]:
    """The node reports nothing through the block, and nobody reaches its pods in the namespace, which are given by name."""
    agent = _agent_of(bed)
    pods, others = await _struck(bed, namespace, node)
    agent.silence(node)
    try:
        async with cut_off(bed, namespace, list(pods), others, from_machine=True):
            yield pods
    finally:
        agent.silence(node, silent=False)


async def delete(bed: Bed, namespace: str, node: str, pods: dict[str, str]) -> None:
    """Delete the node's object, until its pods are removed: nobody can end them there."""
    await bed.client.delete(Node, node)

    async def gone() -> bool:
        left, _ = await _struck(bed, namespace, node)
        return not any(left.get(pod) == uid for pod, uid in pods.items())

    await bed.until(gone, f"the pods of {node} are removed", within=PODS_GONE_WITHIN, every=0.2)
