"""A Redis Cluster as HarmonyCloud's operator makes it: its objects, from the facts of its releases of 2021.

StatefulSet, Service and claims are called as the cluster; pods are found by ``app`` and ``component``. An init
container fills the template in and puts it below the volume's root, in a directory of the pod's own, where the data
lies too; files bear the port in their names. The servers are joined by redis-cli.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.operators.redis.cluster.stage import Stage

from mooring.kube import MergePatch
from mooring.kube.object import Object, decode
from mooring.kube.objects.apps import StatefulSet
from mooring.kube.objects.core import ConfigMap, Pod, Service
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.testing.bed import Bed

__all__ = ["Legacy", "legacy"]

CONF = """\
daemonize no
port 6379
bind {PODIP}
protected-mode no
maxmemory {MAX_MEMORY}
cluster-enabled yes
cluster-config-file nodes-6379.conf
cluster-node-timeout 15000
cluster-require-full-coverage no
cluster-announce-ip {PODIP}
dir {HOME}/data
repl-diskless-sync-delay 0
dbfilename dump-6379.rdb
appendonly yes
appendfilename "appendonly-6379.aof"
save 900 1
"""
_PAIR = "".join(f"{line}\n" for line in CONF.splitlines() if not line.startswith("cluster-"))
INIT = (
    'home=$HOME_OF_ALL/$POD_NAME; mkdir -p "$home/config" "$home/data" "$home/log"; '
    'sed -e "s/{PODIP}/$PODIP/g" -e "s/{MAX_MEMORY}/400mb/g" -e "s,{HOME},$home,g" /config/redis.conf '
    '>"$home/config/redis.conf"; [ -z "$REDIS_PASS" ] || '
    'printf "requirepass %s\\nmasterauth %s\\n" "$REDIS_PASS" "$REDIS_PASS" >>"$home/config/redis.conf"'
)
READY = 'redis-cli -h "$PODIP" -a "$REDIS_PASS" --no-auth-warning ping | grep -q PONG'


def objects(name: str, uid: str, *, replicas: int, password: str) -> list[dict[str, Any]]:
    """The ConfigMap with the template, the Service for clients, and the StatefulSet."""
    labels = {"app": name, "middleware": "redis", "component": name}
    home = f"/data/redis/cluster.local/default/{name}"
    owner = {
        "apiVersion": "redis.middleware.hc.cn/v1alpha1",
        "kind": "RedisCluster",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    link = {"redis.middleware.hc.cn": f"RedisCluster-{name}"}
    meta = {
        "name": name,
        "namespace": "default",
        "labels": labels,
        "annotations": link,
        "ownerReferences": [owner],
    }
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "PODIP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NAMESPACE", "value": "default"},
        {"name": "TZ", "value": "Asia/Shanghai"},
        {"name": "REDIS_CLUSTER_NAME", "value": name},
        {"name": "REDIS_PASS", "value": password},
        {"name": "DOMAINNAME", "value": "cluster.local"},
        {"name": "PATHPREFIX", "value": "/data"},
        {"name": "HOME_OF_ALL", "value": home},
    ]
    data = {"name": "redis-data", "mountPath": home}
    init = {
        "name": "redis-init",
        "image": "redis:7.0",
        "command": ["/bin/sh", "-c", INIT],
        "env": env,
        "volumeMounts": [data, {"name": "redis-config", "mountPath": "/config"}],
    }
    server = {
        "name": "redis-cluster",
        "image": "redis:7.0",
        "command": ["/bin/redis-server", f"{home}/$(POD_NAME)/config/redis.conf"],
        "env": env,
        "ports": [{"containerPort": 16379}, {"containerPort": 6379}],
        "readinessProbe": {"exec": {"command": ["/bin/sh", "-c", READY]}, "periodSeconds": 1},
        "volumeMounts": [data],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    ports = [{"name": name, "port": 6379}, {"name": "redis-exporter", "port": 19105}]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-config", "namespace": "default"},
            "data": {"redis.conf": CONF if replicas > 2 else _PAIR},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": ports},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": meta,
            "spec": {
                "serviceName": name,
                "replicas": replicas,
                "revisionHistoryLimit": 10,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate"},
                "selector": {"matchLabels": {"app": name, "component": name}},
                "volumeClaimTemplates": [{"metadata": {"name": "redis-data"}, "spec": claim}],
                "template": {
                    "metadata": {"labels": labels, "annotations": link},
                    "spec": {
                        "initContainers": [init],
                        "containers": [server],
                        "volumes": [{"name": "redis-config", "configMap": {"name": f"{name}-config"}}],
                    },
                },
            },
        },
    ]


class Legacy(Stage):
    """One such cluster on a bed; its pods are found as its own operator found them, before and after."""

    async def pods(self) -> list[Pod]:
        found = await self.bed.pods("default", f"app={self.name},component={self.name}")
        return sorted(found, key=lambda pod: int((pod.metadata.name or "").rpartition("-")[2]))

    async def ready(self) -> int:
        """How many of them are."""
        return sum(
            any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())
            for pod in await self.pods()
            if pod.status
        )


async def legacy(bed: Bed, declared: dict[str, Any], *, replicas: int = 6, password: str = "") -> Legacy:
    """Make the resource and everything else, wait for the servers, and join them; no operator may run."""
    name = declared["metadata"]["name"]
    await bed.apply(declared)
    uid = (await bed.get(RedisCluster, name)).metadata.uid or ""
    kinds: dict[str, type[Object]] = {"ConfigMap": ConfigMap, "Service": Service, "StatefulSet": StatefulSet}
    for one in objects(name, uid, replicas=replicas, password=password):
        await bed.client.create(decode(one, kinds[one["kind"]]))
    made = Legacy(bed, name, password=password)

    async def all_ready() -> bool:
        return await made.ready() == replicas

    await bed.until(all_ready, f"the servers of {name} run", within=60, every=0.1)
    await (_joined(made) if replicas > 2 else _paired(made))

    async def whole() -> bool:
        infos = [await made.call(pod, "INFO", "replication") for pod in await made.addresses()]
        in_sync = sum("master_link_status:up" in info for info in infos) == 1
        return in_sync if replicas == 2 else not await made.flaw(replicas)

    await bed.until(whole, f"{name} serves", every=0.2)
    status = {"status": {"phase": "Running", "replicas": replicas}}
    await bed.client.patch(RedisCluster, name, MergePatch(status), namespace="default", subresource="status")
    return made


async def _joined(made: Legacy) -> None:
    """By redis-cli, as their operator does it."""
    words = [
        *("redis-cli", "--cluster", "create", *map(str, (await made.addresses()).values())),
        *("--cluster-replicas", "1", "--cluster-yes", *(["-a", made.password] if made.password else [])),
    ]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def _paired(made: Legacy) -> None:
    leader, replica = (await made.addresses()).items()
    await made.call(replica[0], "SLAVEOF", leader[1].ip, leader[1].port)
