"""Redis and Sentinel without an operator: StatefulSets and start scripts as charts have them.

What `bench/table.py` puts beside the operator: the same servers, image, sentinel settings and redis.conf, on the
same control plane. A server asks the sentinels who leads and follows it, the first one leads if nobody knows; a
sentinel asks the others, then the servers; before a master stops, its preStop hook asks a sentinel to fail over
and waits for it. Objects bear the operator's names, so that one stage serves for both.
"""

from __future__ import annotations

import time
from typing import Any

from mooring.kube import Client, NotFound, Object
from mooring.kube.objects import apps, core
from mooring.kube.patches import MergePatch
from mooring.operators.redis.dial import DialError
from mooring.operators.redis.sentinel.names import Names, selector_of
from mooring.testing.bed import Bed, ClusterBed, KubernetesBed, NotInTime
from mooring.testing.redis import RedisStage

__all__ = ["PlainStage", "plain_manifests"]

_ASK = r"""
ask() { timeout 2 redis-cli -h "$1" -p "$2" $3 2>/dev/null; }
leader() { ask SENTINELS 26379 "SENTINEL get-master-addr-by-name mymaster" | head -n 1; }
role() { ask "$1" 6379 ROLE | head -n 1; }
address() { ask "$1" 6379 "CLIENT INFO" | sed -n 's/.* laddr=\([^ ]*\):6379 .*/\1/p'; }
"""

_REDIS_START = r"""
master=
for _ in 1 2 3; do
  master=$(leader)
  [ -z "$master" ] || break
  sleep 1
done
follow=
if [ -n "$master" ]; then
  [ "$master" = "$POD_IP" ] || follow=$master
elif [ "${POD_NAME##*-}" != 0 ]; then
  until follow=$(address "FIRST") && [ -n "$follow" ]; do sleep 0.5; done
fi
cp /plain/redis.conf /tmp/redis.conf
echo "replica-announce-ip $POD_IP" >>/tmp/redis.conf
[ -z "$follow" ] || echo "replicaof $follow 6379" >>/tmp/redis.conf
exec redis-server /tmp/redis.conf
"""

_REDIS_STOP = r"""
[ "$(role 127.0.0.1)" = master ] || exit 0
ask SENTINELS 26379 "SENTINEL FAILOVER mymaster" >/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ "$(leader)" = "$POD_IP" ] || exit 0
  sleep 1
done
"""

_SENTINEL_START = r"""
master=
until [ -n "$master" ]; do
  master=$(leader)
  [ -z "$master" ] || break
  for number in 0 1 2 3 4; do
    ip=$(address "ANY")
    [ -n "$ip" ] && [ "$(role "$ip")" = master ] && master=$ip
  done
  [ -n "$master" ] || sleep 0.5
done
{
  echo "port 26379"
  echo "protected-mode no"
  echo "dir /tmp"
  echo "sentinel announce-ip $POD_IP"
  echo "sentinel monitor mymaster $master 6379 2"
  echo "sentinel down-after-milliseconds mymaster 5000"
  echo "sentinel failover-timeout mymaster 10000"
  echo "sentinel parallel-syncs mymaster 2"
} >/tmp/sentinel.conf
exec redis-server /tmp/sentinel.conf --sentinel
"""


def plain_manifests(
    name: str, namespace: str, *, config: dict[str, str], persistence: bool = True, size: int = 3
) -> list[dict[str, Any]]:
    """The objects of one cluster; ``config`` is the redis.conf that the operator's servers have."""
    names = Names(name)
    words = {
        "SENTINELS": names.sentinel,
        "FIRST": f"{names.pod('redis', 0)}.{names.redis}",
        "ANY": f"{names.redis}-$number.{names.redis}",
    }

    def script(text: str) -> str:
        for word, value in words.items():
            text = text.replace(f'"{word}"', f'"{value}"').replace(f"ask {word} ", f"ask {value} ")
        return "#!/bin/sh\n" + text

    conf = ["port 6379", "protected-mode no", "dir /data", "tcp-keepalive 60"]
    conf += [f"{key} {value}" for key, value in sorted(config.items())]
    files = {
        "redis.conf": "\n".join(conf) + "\n",
        "redis.sh": script(_ASK + _REDIS_START),
        "stop.sh": script(_ASK + _REDIS_STOP),
        "sentinel.sh": script(_ASK + _SENTINEL_START),
    }
    meta = {"namespace": namespace}
    made: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**meta, "name": f"plain-{name}"},
            "data": files,
        }
    ]
    for service, component, headless in (
        (names.redis, "redis", True),
        (names.sentinel, "sentinel", False),
        (names.sentinel_headless, "sentinel", True),
    ):
        spec: dict[str, Any] = {
            "selector": selector_of(namespace, name, "redis" if component == "redis" else "sentinel"),
            "ports": [{"name": component, "port": 6379 if component == "redis" else 26379}],
            "publishNotReadyAddresses": headless,
        }
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {**meta, "name": service},
                "spec": {**spec, **({"clusterIP": "None"} if headless else {})},
            }
        )
    made.append(_set(names, namespace, "redis", size=size, persistence=persistence))
    made.append(_set(names, namespace, "sentinel", size=3, persistence=False))
    return made


def _set(names: Names, namespace: str, component: str, *, size: int, persistence: bool) -> dict[str, Any]:
    redis = component == "redis"
    port = 6379 if redis else 26379
    labels = selector_of(namespace, names.cluster, "redis" if redis else "sentinel")
    probe = {"exec": {"command": ["redis-cli", "-p", str(port), "ping"]}, "timeoutSeconds": 5}
    container: dict[str, Any] = {
        "name": component,
        "image": "redis:7.0",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", f"/plain/{component}.sh"],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"containerPort": port}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "readinessProbe": {**probe, "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        "volumeMounts": [{"name": "plain", "mountPath": "/plain"}],
    }
    volumes: list[dict[str, Any]] = [{"name": "plain", "configMap": {"name": f"plain-{names.cluster}"}}]
    if redis:
        container["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "/plain/stop.sh"]}}}
        container["volumeMounts"].append({"name": "redis-data", "mountPath": "/data"})
        if not persistence:
            volumes.append({"name": "redis-data", "emptyDir": {}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec: dict[str, Any] = {
        "replicas": size,
        "serviceName": names.redis if redis else names.sentinel_headless,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 40},
        },
    }
    if redis and persistence:
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "redis-data"}, "spec": claim}]
    name = names.redis if redis else names.sentinel
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


class PlainStage(RedisStage):
    """Such a cluster, seen from outside; nobody says of it whether it is well."""

    def __init__(self, bed: Bed | KubernetesBed | ClusterBed, name: str, *, namespace: str) -> None:
        super().__init__(bed, name, namespace=namespace)
        self.size = 3

    async def master(self) -> str:
        """The pod that calls itself master, if exactly one does; raises when not."""
        leaders = []
        for pod in await self.pods("redis"):
            name = pod.metadata.name or ""
            try:
                if (await self.call(name, "ROLE"))[0] == "master":
                    leaders.append(name)
            except (DialError, NotFound):
                continue
        if len(leaders) != 1:
            raise NotInTime(f"{self.name} has {len(leaders)} masters")
        return leaders[0]

    async def flaw(self) -> str:
        """What is not as declared, as the processes themselves tell it; empty when all is."""
        for component, count in (("redis", self.size), ("sentinel", 3)):
            if flaw := await self.unready(component, count):
                return flaw
        try:
            return await self.wrong_roles(await self.master(), self.size, 3)
        except (DialError, NotFound, NotInTime) as error:
            return str(error)

    async def scale(self, size: int) -> None:
        """As `kubectl scale` does."""
        self.size = size
        body = MergePatch({"spec": {"replicas": size}})
        await self.bed.client.patch(apps.StatefulSet, self.names.redis, body, namespace=self.namespace)

    async def annotate(self, value: str) -> None:
        """Change the pod template, so that its controller rolls it out."""
        body = MergePatch({"spec": {"template": {"metadata": {"annotations": {"round": value}}}}})
        await self.bed.client.patch(apps.StatefulSet, self.names.redis, body, namespace=self.namespace)

    async def delete(self, *, claims: bool = False, within: float = 30.0) -> None:
        """Delete all of it, claims too, and wait until its pods are gone."""
        client, names, namespace = self.bed.client, self.names, self.namespace
        objects: list[tuple[type[Any], str]] = [
            *((apps.StatefulSet, one) for one in (names.redis, names.sentinel)),
            *((core.Service, one) for one in (names.redis, names.sentinel, names.sentinel_headless)),
            (core.ConfigMap, f"plain-{self.name}"),
        ]
        for kind, name in objects:
            await _delete(client, kind, name, namespace)
        for pod in await self.pods():  # a second: those that are gone from the API at once may still write
            await _delete(client, core.Pod, pod.metadata.name or "", namespace, grace_period=1)
        deadline = time.monotonic() + within
        while await self.pods():
            if time.monotonic() > deadline:
                raise NotInTime(f"pods of {self.name} are still there")
        for claim in (await client.list(core.PersistentVolumeClaim, namespace=namespace)).items:
            await _delete(client, core.PersistentVolumeClaim, claim.metadata.name or "", namespace)


async def _delete(
    client: Client, kind: type[Object], name: str, namespace: str, *, grace_period: int | None = None
) -> None:
    try:
        await client.delete(kind, name, namespace=namespace, grace_period=grace_period)
    except NotFound:
        return
