"""A cluster as UCloud's operator leaves it: its objects, its templates, its servers, and nobody who looks after them.

Names, labels, commands and volumes are those of its version 0.1.9. Delays of probes alone are shorter: 30 s for one pod
after the other would tell nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from mooring.kube import MergePatch
from mooring.operators.redis.dial import DialError
from mooring.operators.redis.sentinel.takeover import LOCK
from mooring.testing.bed import Bed, ClusterBed
from mooring.testing.redis import RedisStage, manifest

__all__ = ["Ucloud"]

#: Labels of the custom resource, which it put on all it made, and into selectors.
_OWN_LABELS = {"team": "web"}
_EXPORTER = {"image": "oliver006/redis_exporter:latest", "imagePullPolicy": "IfNotPresent"}
#: What pods take of its making and no pod of ours has.
_SENTINEL_CONF = """port 26379
sentinel monitor mymaster 127.0.0.1 6379 2
sentinel down-after-milliseconds mymaster 1000
sentinel failover-timeout mymaster 3000
sentinel parallel-syncs mymaster 2
"""
_READINESS = """set -eu
redis-cli -h 127.0.0.1 -p 26379 ping
slaves=$(redis-cli -h 127.0.0.1 -p 26379 info sentinel | grep master0 | grep -Eo 'slaves=[0-9]+' | cut -d= -f2)
status=$(redis-cli -h 127.0.0.1 -p 26379 info sentinel | grep master0 | grep -Eo 'status=\\w+' | cut -d= -f2)
if [ "$status" != "ok" ]; then exit 1; fi
if [ "$slaves" -lt 2 ]; then exit 1; fi
"""
_SHUTDOWN = """master=$(redis-cli -h ${{{host}}} -p ${{{port}}} --csv SENTINEL get-master-addr-by-name mymaster | tr ',' ' ')
redis-cli SAVE
if [ "$(hostname -i)" = "$master" ]; then redis-cli -h ${{{host}}} -p ${{{port}}} SENTINEL failover mymaster; fi
"""


class Ucloud:
    """One such cluster, of three and three."""

    def __init__(self, bed: Bed | ClusterBed, name: str, *, namespace: str, password: str) -> None:
        self._bed, self._name, self._namespace, self._password = bed, name, namespace, password
        self._uid = ""
        self.stage = RedisStage(bed, name, namespace=namespace, password=password)

    async def made(self) -> str:
        """Make it and bring it to where UCloud's loop calls it Healthy; the pod that leads."""
        declared = manifest(self._name, password=self._password, exporter={"enabled": True, **_EXPORTER})
        declared["metadata"] |= {"namespace": self._namespace, "labels": _OWN_LABELS}
        await self._bed.apply(declared)
        self._uid = (await self.stage.get()).metadata.uid or ""
        for one in self._objects():
            await self._bed.apply(one)
        master = self.stage.names.pod("redis", 0)
        await self._bed.until(lambda: self._led(master), "UCloud's servers follow one of them", within=90)
        await self._bed.until(lambda: self._watched(master), "UCloud's sentinels are ready", within=90)
        await self._say_healthy()
        await self._bed.apply(self._lock())
        return master

    # --- what its loop does

    async def _led(self, master: str) -> bool:
        if await self.stage.unready("redis", 3):
            return False
        leader = await self.stage.address(master)
        await self.stage.call(master, "SLAVEOF", "NO", "ONE")
        for ordinal in range(3):
            pod = self.stage.names.pod("redis", ordinal)
            await self.stage.call(pod, "CONFIG", "SET", "slave-priority", "1")
            await self.stage.call(pod, "CONFIG", "SET", "appendonly", "yes")
            if pod != master:
                await self.stage.call(pod, "SLAVEOF", leader.ip, leader.port)
        return True

    async def _watched(self, master: str) -> bool:
        leader = await self.stage.address(master)
        for pod in await self.stage.pods("sentinel"):
            name = pod.metadata.name or ""
            if not (pod.status and pod.status.pod_ip):
                continue
            try:
                known = await self.stage.call(name, "SENTINEL", "get-master-addr-by-name", "mymaster")
                if known == [leader.ip, str(leader.port)]:
                    continue
                await self.stage.call(name, "SENTINEL", "REMOVE", "mymaster")
                await self.stage.call(name, "SENTINEL", "MONITOR", "mymaster", leader.ip, leader.port, 2)
                for key, value in (
                    ("auth-pass", self._password),
                    ("down-after-milliseconds", 5000),
                    ("failover-timeout", 3000),
                    ("parallel-syncs", 2),
                ):
                    await self.stage.call(name, "SENTINEL", "SET", "mymaster", key, value)
            except DialError:  # its container starts
                continue
        return not await self.stage.unready("sentinel", 3)

    async def _say_healthy(self) -> None:
        at = "2020-06-01T08:00:00Z"
        condition = {
            "type": "Healthy",
            "status": "True",
            "lastUpdateTime": at,
            "lastTransitionTime": at,
            "reason": "Cluster available",
            "message": "Cluster ok",
        }
        path = f"/apis/redis.kun/v1beta1/namespaces/{self._namespace}/redisclusters/{self._name}/status"
        patch = MergePatch({"status": {"conditions": [condition]}})
        await self._bed.client.request(
            "PATCH", path, body=patch.encode(), content_type=MergePatch.content_type
        )

    # --- what it makes

    def _lock(self) -> dict[str, Any]:
        """What its leader owned, a pod that is gone."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "redis-operator-0", "uid": str(uuid4())}
        metadata = {"name": LOCK, "namespace": self._namespace, "ownerReferences": [owner]}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    def _objects(self) -> Iterator[dict[str, Any]]:
        names = self.stage.names
        yield self._service(names.redis, "redis", 6379, headless=True)
        yield self._service(names.sentinel, "sentinel", 26379, headless=False)
        yield self._service(names.sentinel_headless, "sentinel", 26379, headless=True)
        conf = f"{_SENTINEL_CONF}sentinel auth-pass mymaster {self._password}\n"
        yield self._config_map(names.sentinel, "sentinel", {"sentinel.conf": conf})
        yield self._config_map(names.readiness, "sentinel", {"readiness.sh": _READINESS})
        prefix = f"REDIS_SENTINEL_{self._name.upper()}_SERVICE"
        script = _SHUTDOWN.format(host=f"{prefix}_HOST", port=f"{prefix}_PORT_SENTINEL")
        yield self._config_map(names.shutdown, "redis", {"shutdown.sh": script})
        yield self._set(names.redis, "redis", names.redis, self._redis_pod(), claims=[_claim()])
        yield self._budget(names.redis, "redis")
        yield self._set(names.sentinel, "sentinel", names.sentinel_headless, self._sentinel_pod())
        yield self._budget(names.sentinel, "sentinel")

    def _object(self, api: str, kind: str, name: str, component: str, **parts: Any) -> dict[str, Any]:
        owner = {
            "apiVersion": "redis.kun/v1beta1",
            "kind": "RedisCluster",
            "name": self._name,
            "uid": self._uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = {
            "name": name,
            "namespace": self._namespace,
            "labels": self._labels(component),
            "ownerReferences": [owner],
        }
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}

    def _labels(self, component: str) -> dict[str, str]:
        return {
            "app.kubernetes.io/managed-by": "redis-operator",
            "redis.kun/v1beta1": f"{self._namespace}_{self._name}",
            "app.kubernetes.io/part-of": "redis-cluster",
            "app.kubernetes.io/component": component,
            "app.kubernetes.io/name": self._name,
            **_OWN_LABELS,
        }

    def _service(self, name: str, component: str, port: int, *, headless: bool) -> dict[str, Any]:
        ports = [{"name": component, "port": port, "targetPort": port, "protocol": "TCP"}]
        spec = {"type": "ClusterIP", "ports": ports, "selector": self._labels(component)}
        return self._object(
            "v1", "Service", name, component, spec={**spec, **({"clusterIP": "None"} if headless else {})}
        )

    def _config_map(self, name: str, component: str, files: dict[str, str]) -> dict[str, Any]:
        return self._object("v1", "ConfigMap", name, component, data=files)

    def _budget(self, name: str, component: str) -> dict[str, Any]:
        spec = {"minAvailable": 2, "selector": {"matchLabels": self._labels(component)}}
        return self._object("policy/v1", "PodDisruptionBudget", name, component, spec=spec)

    def _set(
        self,
        name: str,
        component: str,
        service: str,
        pod: dict[str, Any],
        *,
        claims: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        labels = self._labels(component)
        spec: dict[str, Any] = {
            "serviceName": service,
            "replicas": 3,
            "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**pod, "affinity": _apart(labels)}},
        }
        if claims:
            spec["volumeClaimTemplates"] = claims
        return self._object("apps/v1", "StatefulSet", name, component, spec=spec)

    def _redis_pod(self) -> dict[str, Any]:
        command = ["redis-server", "--slaveof", "127.0.0.1", "6379", "--tcp-keepalive", "60"]
        command += ["--save", "900", "1", "--save", "300", "10"]
        command += ["--requirepass", self._password, "--masterauth", self._password]
        alive = {
            "exec": {"command": ["sh", "-c", 'redis-cli -a "${REDIS_PASSWORD}" ping']},
            "initialDelaySeconds": 1,
            "timeoutSeconds": 5,
            "periodSeconds": 2,
        }
        container = {
            "name": "redis",
            "image": "redis:7.0",
            "imagePullPolicy": "IfNotPresent",
            "command": command,
            "env": [{"name": "REDIS_PASSWORD", "value": self._password}],
            "ports": [{"name": "redis", "containerPort": 6379, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            "readinessProbe": alive,
            "livenessProbe": alive,
            "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "/redis-shutdown/shutdown.sh"]}}},
            "volumeMounts": [
                {"name": "redis-shutdown-volume", "mountPath": "/redis-shutdown"},
                {"name": "redis-data", "mountPath": "/data"},
            ],
        }
        exporter = {
            "name": "redis-exporter",
            **_EXPORTER,
            "env": [
                {"name": "REDIS_ALIAS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "REDIS_PASSWORD", "value": self._password},
            ],
            "ports": [{"name": "http-metrics", "containerPort": 9121, "protocol": "TCP"}],
            "resources": {
                "requests": {"cpu": "50m", "memory": "50Mi"},
                "limits": {"cpu": "100m", "memory": "200Mi"},
            },
        }
        shutdown = {"name": self.stage.names.shutdown, "defaultMode": 0o744}
        return {
            "containers": [container, exporter],
            "volumes": [{"name": "redis-shutdown-volume", "configMap": shutdown}],
        }

    def _sentinel_pod(self) -> dict[str, Any]:
        image = {"image": "redis:7.0", "imagePullPolicy": "IfNotPresent"}
        copy = {
            "name": "sentinel-config-copy",
            **image,
            "command": ["cp", "/redis/sentinel.conf", "/redis-writable/sentinel.conf"],
            "resources": {
                "requests": {"cpu": "10m", "memory": "32Mi"},
                "limits": {"cpu": "10m", "memory": "32Mi"},
            },
            "volumeMounts": [
                {"name": "sentinel-config", "mountPath": "/redis"},
                {"name": "sentinel-config-writable", "mountPath": "/redis-writable"},
            ],
        }
        ready = {"command": ["sh", "-c", "/redis-probe/readiness.sh"]}
        ping = {"command": ["sh", "-c", "redis-cli -h 127.0.0.1 -p 26379 ping"]}
        container = {
            "name": "sentinel",
            **image,
            "command": ["redis-server", "/redis/sentinel.conf", "--sentinel"],
            "ports": [{"name": "sentinel", "containerPort": 26379, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            "readinessProbe": {
                "exec": ready,
                "initialDelaySeconds": 1,
                "periodSeconds": 2,
                "failureThreshold": 5,
                "timeoutSeconds": 5,
            },
            "livenessProbe": {"exec": ping, "initialDelaySeconds": 5, "timeoutSeconds": 5},
            "volumeMounts": [
                {"name": "readiness-probe", "mountPath": "/redis-probe"},
                {"name": "sentinel-config-writable", "mountPath": "/redis"},
            ],
        }
        names = self.stage.names
        return {
            "initContainers": [copy],
            "containers": [container],
            "volumes": [
                {"name": "sentinel-config", "configMap": {"name": names.sentinel}},
                {"name": "readiness-probe", "configMap": {"name": names.readiness, "defaultMode": 0o744}},
                {"name": "sentinel-config-writable", "emptyDir": {}},
            ],
        }


def _claim() -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "redis-data"}, "spec": spec}


def _apart(labels: dict[str, str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    weighted = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}
