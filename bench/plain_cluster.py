"""Redis Cluster without an operator: a StatefulSet and a start script as charts have them, made once by redis-cli.

What `bench/cluster_crash.py` puts beside the operator: the same servers, image and redis.conf, on the same control
plane. Every node announces the address of its pod and keeps its nodes.conf on its volume; after the making nobody
looks after it. Objects bear the operator's names and labels, so that one stage serves for both.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tests.operators.redis.cluster.stage import Stage

from mooring.kube import NotFound
from mooring.kube.objects import apps, core
from mooring.operators.redis.cluster.names import REDIS_PORT, Names, selector_of
from mooring.operators.redis.cluster.specs import DEFAULTS, FORCED
from mooring.operators.redis.dial import DialError

__all__ = ["PlainClusterStage", "redis_cli"]

_CONF = f"""{DEFAULTS}{FORCED}dir /data
cluster-enabled yes
cluster-config-file nodes.conf
cluster-allow-replica-migration no
"""
_START = """#!/bin/sh
cp /plain/redis.conf /tmp/redis.conf
echo "cluster-announce-ip $POD_IP" >>/tmp/redis.conf
exec redis-server /tmp/redis.conf
"""


class PlainClusterStage(Stage):
    """Such a cluster, seen from outside; nobody says of it whether it is well."""

    async def create(self, nodes: int) -> None:
        """Start the servers, and have redis-cli make masters with a replica each of them."""
        for document in _manifests(self.name, nodes):
            await self.bed.apply(document)

        async def up() -> bool:
            with contextlib.suppress(DialError):
                return len([await self.call(pod, "PING") for pod in await self.addresses()]) == nodes
            return False

        await self.bed.until(up, f"{nodes} servers answer", within=60, every=0.1)
        addresses = [f"{one.ip}:{one.port}" for one in (await self.addresses()).values()]
        await redis_cli("create", *addresses, "--cluster-replicas", "1", "--cluster-yes")

    async def unsettled(self) -> str:
        """No operator, no word."""
        return ""

    async def delete(self, *, within: float = 60.0) -> None:
        """Delete all of it, claims too."""
        objects: list[tuple[type[Any], str]] = [
            (apps.StatefulSet, self.name),
            (core.Service, Names(self.name).service),
            (core.ConfigMap, f"plain-{self.name}"),
        ]
        for kind, name in objects:
            with contextlib.suppress(NotFound):
                await self.bed.client.delete(kind, name, namespace="default")
        await super().delete(within=within)


async def redis_cli(command: str, *words: str) -> bytes:
    """What ``redis-cli --cluster`` says; raises RuntimeError when it fails."""
    process = await asyncio.create_subprocess_exec(
        *("redis-cli", "--cluster", command, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"redis-cli --cluster {command} failed: {said[-500:].decode()}")
    return said


def _manifests(name: str, nodes: int) -> list[dict[str, Any]]:
    labels, service = selector_of(name), Names(name).service
    meta = {"namespace": "default", "labels": labels}
    probe = {"exec": {"command": ["redis-cli", "ping"]}, "timeoutSeconds": 5}
    container = {
        "name": "redis",
        "image": "redis:7.0",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "/plain/start.sh"],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"containerPort": REDIS_PORT}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "readinessProbe": {**probe, "periodSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "plain", "mountPath": "/plain"},
            {"name": "redis-data", "mountPath": "/data"},
        ],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**meta, "name": f"plain-{name}"},
            "data": {"redis.conf": _CONF, "start.sh": _START},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "name": service},
            "spec": {
                "selector": labels,
                "ports": [{"port": REDIS_PORT}],
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**meta, "name": name},
            "spec": {
                "replicas": nodes,
                "serviceName": service,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "containers": [container],
                        "volumes": [{"name": "plain", "configMap": {"name": f"plain-{name}"}}],
                        "terminationGracePeriodSeconds": 30,
                    },
                },
                "volumeClaimTemplates": [
                    {"metadata": {"name": "redis-data", "labels": labels}, "spec": claim}
                ],
            },
        },
    ]
