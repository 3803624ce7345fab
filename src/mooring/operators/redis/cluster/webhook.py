"""Admission warnings for RedisCluster; rejected is a faulty ``spec.podTemplate`` alone.

The group was taken over: what its operator accepted is accepted, and a condition says what is not carried out. A field
that does not exist, such as one at the wrong depth, is kept by the server and seen only here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mooring.cache import Clock
from mooring.kube import Client, DecodeError, KubeError
from mooring.kube.object import decode
from mooring.kube.objects.core import ConfigMap
from mooring.operators.redis.backup.webhook import backup_webhooks
from mooring.operators.redis.cluster.specs import template_lines
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterSpec, pod_of
from mooring.operators.redis.cluster.validate import validate, warnings
from mooring.operators.redis.keys import doubtful
from mooring.operators.workload.admission import at_most, part, unknown_warnings
from mooring.operators.workload.problem import Problem
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict, Webhook

__all__ = ["RedisClusterReview", "webhooks"]


class RedisClusterReview:
    """Reviews RedisClusters; ``client`` reads the redis.conf that one refers to."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, asked: Review[RedisCluster]) -> Verdict:
        """Warnings about what is new in the spec."""
        new = asked.object
        if new is None or part(new, "spec") == part(asked.old, "spec"):
            return Allow()
        said = unknown_warnings(RedisClusterSpec, part(new, "spec"))
        try:
            cluster = decode(dict(new), RedisCluster)
        except DecodeError:
            return Allow(*said)  # the server's own words say more
        template = await self._template(cluster, namespace=asked.key.namespace)
        present = validate(cluster)
        said += [*map(str, present), *warnings(cluster), *_doubtful(cluster, template)]
        made = _new_faults(present, asked.old)
        if not made:
            return Allow(*said)
        causes = tuple((one.field, one.message) for one in made)
        return Refuse(
            "; ".join(map(str, made)), causes, tuple(one for one in said if one not in map(str, made))
        )

    async def _template(self, cluster: RedisCluster, *, namespace: str) -> str:
        """The redis.conf; "" where there is none or it cannot be read, which the status says."""
        name = pod_of(cluster.spec or RedisClusterSpec()).configmap
        if not name:
            return ""
        try:
            found = await self._client.get(ConfigMap, name, namespace=namespace)
        except KubeError:
            return ""
        return (found.data or {}).get("redis.conf", "")


def _new_faults(present: Sequence[Problem], old: Mapping[str, Any] | None) -> list[Problem]:
    """Faults of the overlay that the change makes: HarmonyCloud's operator knew no such field."""
    ours = [one for one in present if one.field.startswith("spec.podTemplate")]
    if not ours or old is None:
        return ours
    try:
        known = validate(decode(dict(old), RedisCluster))
    except DecodeError:
        known = []
    return [one for one in ours if one not in known]


def _doubtful(cluster: RedisCluster, template: str) -> list[str]:
    """Keys and values that a server will probably refuse, so that it does not start."""
    pod, said = pod_of(cluster.spec or RedisClusterSpec()), []
    for line in template_lines(template)[0]:
        key, _, value = line.partition(" ")
        if "(" in value or "{" in value:
            continue  # a placeholder, filled in when the server starts
        if why := doubtful(key, value.strip().strip('"')):
            said.append(f"ConfigMap {pod.configmap}: {key}: {why}")
    for at, one in enumerate(pod.env or ()):
        if one.name == "MAXMEMORY" and one.value and (why := doubtful("maxmemory", one.value)):
            said.append(f"spec.pod[0].env[{at}].value: MAXMEMORY becomes maxmemory: {why}")
    return at_most(said, "more doubtful keys")


def webhooks(
    client: Client, *, clock: Clock, scope: str = "all", namespaces: Sequence[str] = ()
) -> list[Webhook[Any]]:
    """The webhooks of the operator; none in namespaced mode."""
    if scope == "namespaced":
        return []
    review = RedisClusterReview(client).review
    clusters = Webhook(RedisCluster, review, operations=("CREATE", "UPDATE"), failure_policy="Ignore")
    return [clusters, *backup_webhooks(clock)]
