"""Every field of the declaration is honoured or answered: when a cluster is made, and when it changes later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec import inspect
from tests.operators.redis.cluster.builders import snapshot, whole

from mooring.kube.object import Object, decode
from mooring.kube.objects import apps, core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.cluster.inputs import _wanted, read_inputs, read_snapshot
from mooring.operators.redis.cluster.topology import Seen
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterPod,
    RedisClusterSpec,
    RedisClusterStatus,
    UpdateStrategy,
)
from mooring.operators.redis.cluster.validate import unmet, warnings
from mooring.operators.redis.dial import Dial
from mooring.operators.workload.surroundings import Surroundings

T = TypeVar("T", bound=Object)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEMPLATE = core.ConfigMap(metadata=ObjectMeta(name="conf"), data={"redis.conf": "maxclients 100\n"})
CLAIM = {
    "metadata": {"name": "redis-data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
LARGER = {**CLAIM, "spec": {**CLAIM["spec"], "resources": {"requests": {"storage": "2Gi"}}}}  # type: ignore[dict-item]
ROLLS, CHILDREN, DECIDES, ANSWERED = "rolls", "children", "decides", "answered"


@dataclass(frozen=True)
class Row:
    """A field, a value for it, and what comes of it: at creation, and when it is changed to that later."""

    path: str
    value: Any
    later: str
    first: str = CHILDREN
    base: dict[str, Any] = field(default_factory=dict)
    """What else is declared, before and after."""


def pod(name: str, value: Any, later: str = ROLLS, first: str = CHILDREN, **base: Any) -> Row:
    return Row(f"pod[0].{name}", value, later, first, base)


NEW = {"type": "AssignReceive"}
LOAD = {"minReplicas": 6, "maxReplicas": 8, "metrics": [{"type": "MemoryPercent", "target": 60}]}
ROWS = [
    Row("replicas", 8, DECIDES),
    Row("replicas", 4, ANSWERED, ANSWERED),
    Row("pause", True, DECIDES, DECIDES),
    Row("finalizers", "foreground", DECIDES, DECIDES),
    Row("finalizers", "background", ANSWERED, ANSWERED),
    Row("repository", "mirror/redis", ROLLS, base={"repository": "redis", "version": "7.0"}),
    Row("repository", "mirror/", ROLLS),
    Row("repository", "mirror/redis", ANSWERED, ANSWERED),
    Row("version", "7.2", ROLLS, base={"repository": "redis", "version": "7.0"}),
    Row("version", "6.2", ANSWERED, base={"repository": "redis", "version": "7.0"}),
    Row("updateStrategy.type", "AssignReceive", DECIDES, DECIDES),
    Row("updateStrategy.type", "Fair", ANSWERED, ANSWERED),
    Row("updateStrategy.pipeline", "100", DECIDES, DECIDES),
    Row("updateStrategy.pipeline", "many", ANSWERED, ANSWERED),
    Row("updateStrategy.assignStrategies", [{"slots": 1, "fromReplicas": "a"}], ANSWERED, ANSWERED),
    Row(
        *("updateStrategy.assignStrategies", [{"slots": 9, "fromReplicas": "a"}], DECIDES, DECIDES),
        {"updateStrategy": {**NEW, "assignStrategies": [{"slots": 1, "fromReplicas": "a"}]}},
    ),
    Row("autoscale", LOAD, DECIDES, DECIDES),
    Row("autoscale", {**LOAD, "maxReplicas": 9}, ANSWERED, ANSWERED),
    Row("balance", "Size", DECIDES, DECIDES),
    Row("balance", "Heat", ANSWERED, ANSWERED),
    Row("keyReport", {"big": 5}, "", ""),  # acted on by `measures`
    Row("keyReport", {"big": 5}, ANSWERED, ANSWERED, {"replicas": 2}),
    Row("tls", {"enabled": True}, ANSWERED),
    Row("tls", {"enabled": True, "secretName": "missing"}, ANSWERED, ANSWERED),
    Row("networkPolicy", {"enabled": True}, CHILDREN),
    Row("users", [{"name": "app", "passwordSecrets": [{"name": "missing"}]}], CHILDREN),
    Row("users", [{"name": "default"}], ANSWERED, ANSWERED),
    Row("defaultUser", {"mode": "Off"}, CHILDREN),
    Row("defaultUser", {"mode": "Off", "rules": ["+get"]}, ANSWERED, ANSWERED),
    Row("restoreFrom", {"backup": "nightly"}, "", ""),  # acted on by `restore`, and fixed by the schema
    Row("volumeClaimTemplates", [LARGER], DECIDES, base={"volumeClaimTemplates": [CLAIM]}),
    Row("volumeClaimTemplates", [CLAIM], ANSWERED),
    Row(
        "storage", {"autogrow": {"maxSize": "5Gi"}}, "", "", {"volumeClaimTemplates": [CLAIM]}
    ),  # acted on by `growing`
    Row("storage", {"autogrow": {"maxSize": "1Ki"}}, ANSWERED, ANSWERED, {"volumeClaimTemplates": [CLAIM]}),
    Row("volumes", {"type": "hostPath"}, ROLLS),
    Row("volumes", {"type": "nfs"}, ANSWERED, ANSWERED),
    Row("type", "cluster", "", ""),
    Row("type", "replication", ANSWERED, ANSWERED),
    Row("type", "sentinel", ANSWERED, ANSWERED),
    Row("redisInstancePort", 6380, ANSWERED, ANSWERED),
    Row("servicePort", 7000, CHILDREN),
    Row("servicePort", 70000, ANSWERED, ANSWERED),
    Row("podManagementPolicy", "OrderedReady", ANSWERED, ANSWERED),
    Row("updateId", "abc", ANSWERED, ANSWERED),
    Row("sentinel", {"enable": True}, ANSWERED, ANSWERED),
    Row("sentinel", {"replicas": 3}, ANSWERED, ANSWERED),
    pod("labels", {"team": "web"}),
    pod("annotations", {"team": "web"}),
    pod("env", [{"name": "MAXMEMORY", "value": "1gb"}]),
    pod("env", [{"name": "MODE", "value": "other"}], ANSWERED, ANSWERED),
    pod("affinity", {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
    pod("resources", {"limits": {"memory": "1Gi"}}),
    pod("updateStrategy", {"type": "OnDelete"}, DECIDES, DECIDES),
    pod("updateStrategy", {"type": "Recreate"}, ANSWERED, ANSWERED),
    pod("updateStrategy", {"rollingUpdate": {"partition": 2}}, ANSWERED, ANSWERED),
    pod("volumes", {"type": "hostPath"}),
    pod("volumes", {"type": "nfs", "persistentVolumeClaimName": "shared"}),
    pod("volumes", {"type": "disk"}, ANSWERED, ANSWERED),
    pod("volumes", {"type": "hostPath"}, ANSWERED, ANSWERED, volumeClaimTemplates=[CLAIM]),
    pod("volumes", {"type": "hostPath"}, ANSWERED, ANSWERED, finalizers="foreground"),
    pod("configmap", "conf"),
    pod("configmap", "missing", ANSWERED, ANSWERED),
    pod("monitorImage", "exporter:1"),
    pod("initImage", "init:1", ANSWERED, ANSWERED),
    pod("middlewareImage", "redis:7.2"),
    pod("middlewareImage", "redis 7", ANSWERED, ANSWERED),
    pod("requirepass", "secret", DECIDES),
    pod("requirepass", "a\nb", ANSWERED, ANSWERED),
    pod("imagePullPolicy", "Always"),
    pod("imagePullPolicy", "Sometimes", ANSWERED, ANSWERED),
    pod("hostNetwork", True),
    Row("podTemplate", {"spec": {"priorityClassName": "high"}}, ROLLS),
    Row("podTemplate", {"spec": {"subdomain": "other"}}, ANSWERED, ANSWERED),
]


def around(live: apps.StatefulSet | None = None, secret: core.Secret | None = None) -> Surroundings:
    """The objects around a cluster."""
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    claim = {**CLAIM, "metadata": {"name": "redis-data-shop-0"}, "status": bound}
    return Surroundings([TEMPLATE, live, secret, decode(claim, core.PersistentVolumeClaim) if live else None])


def declared(spec: dict[str, Any]) -> RedisCluster:
    body = {"metadata": {"name": "shop", "namespace": "default", "uid": "u"}, "spec": spec}
    return decode(msgspec.json.decode(msgspec.json.encode(body)), RedisCluster)


def with_value(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    head, _, rest = path.partition(".")
    if head == "pod[0]":
        first = {**spec["pod"][0], rest: value}
        return {**spec, "pod": [first]}
    return {**spec, head: {**spec.get(head, {}), rest: value} if rest else value}


def before(row: Row) -> dict[str, Any]:
    named = "repository" in row.base
    spec = {"replicas": 6, "pod": [{} if named else {"middlewareImage": "redis:7.0"}]}
    return {**spec, **row.base}


async def outcome(spec: dict[str, Any], *, made_from: dict[str, Any] | None) -> tuple[Any, ...]:
    """Everything that this declaration leads to: children, decisions, words; of a new cluster or a running one."""
    live = secret = None
    if made_from is not None:
        objects = read_inputs(declared(made_from), around(), RedisClusterStatus(), now=NOW).specs.objects()
        live = next(one for one in objects if isinstance(one, apps.StatefulSet))
        secret = next(one for one in objects if isinstance(one, core.Secret))
    cluster = declared(spec)
    inputs = read_inputs(cluster, around(live, secret), RedisClusterStatus(), now=NOW)
    seen = await read_snapshot(inputs, Dial(), NOW, grace=120.0)
    wanted, blocked = seen.wanted, seen.blocked
    if live is not None:
        wanted, blocked = _wanted(inputs, serving("7.0.15"), [])  # what the servers say of themselves counts
    said = [blocked.message] if blocked else []
    said += [*warnings(cluster), *unmet(cluster, inputs.specs, live)]
    children = [msgspec.to_builtins(one) for one in inputs.specs.objects()]
    decisions = (
        replace(wanted, stale_template=False),
        inputs.claims_go,
        seen.password.differs,
        [one.claim for one in inputs.growth.volumes if one.small],
    )
    return children, decisions, wanted.stale_template, " ".join(said)


def serving(version: str) -> Seen:
    nodes = snapshot(whole()).seen.nodes
    return Seen(
        nodes=tuple(replace(one, server=replace(one.server, version=version)) for one in nodes if one.server)
    )


def what_differs(old: tuple[Any, ...], new: tuple[Any, ...], path: str) -> set[str]:
    found = set()
    if old[0] != new[0]:
        found.add(CHILDREN)
    if old[1] != new[1]:
        found.add(DECIDES)
    if new[2]:
        found.add(ROLLS)
    if new[3] != old[3]:
        assert f"spec.{path}" in new[3], new[3]
        found.add(ANSWERED)
    return found


def names(row: Row) -> str:
    return f"{row.path}={row.value}"


@pytest.mark.parametrize("row", ROWS, ids=names)
async def test_a_new_cluster_follows_or_answers_it(row: Row) -> None:
    old = await outcome(before(row), made_from=None)
    new = await outcome(with_value(before(row), row.path, row.value), made_from=None)
    assert row.first in (what_differs(old, new, row.path) or {""})


@pytest.mark.parametrize("row", ROWS, ids=names)
async def test_a_running_cluster_follows_or_answers_a_change_of_it(row: Row) -> None:
    old = await outcome(before(row), made_from=before(row))
    new = await outcome(with_value(before(row), row.path, row.value), made_from=before(row))
    assert row.later in (what_differs(old, new, row.path) or {""})


def test_no_field_is_left_out() -> None:
    assert {row.path for row in ROWS} >= set(paths(RedisClusterSpec)) - {"pod", "updateStrategy"}


def paths(kind: Any, prefix: str = "") -> Iterator[str]:
    opened = {RedisClusterPod: "pod[0].", UpdateStrategy: "updateStrategy."}
    info: Any = inspect.type_info(kind)
    for one in info.fields:
        path = f"{prefix}{one.encode_name}"
        yield path
        for inner, head in opened.items():
            if not prefix and head.startswith(path) and path == head.partition("[")[0].rstrip("."):
                yield from paths(inner, head)
