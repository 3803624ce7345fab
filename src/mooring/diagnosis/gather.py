"""Read the facts with the rights of the one who asks; what may not be read is noted, and is no failure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mooring.diagnosis.facts import Facts, Object, OperatorHint, at, family
from mooring.kube import Client, Forbidden, NotFound, Resource

__all__ = ["gather", "pods_of"]

#: Objects of one kind that are read.
LIMIT: Final = "1000"

_CORE, _APPS, _BATCH = "/api/v1/namespaces/{}", "/apis/apps/v1/namespaces/{}", "/apis/batch/v1/namespaces/{}"
_IN_NAMESPACE: Final = {
    "pods": _CORE + "/pods",
    "persistentvolumeclaims": _CORE + "/persistentvolumeclaims",
    "events": _CORE + "/events",
    "statefulsets": _APPS + "/statefulsets",
    "deployments": _APPS + "/deployments",
    "replicasets": _APPS + "/replicasets",
    "jobs": _BATCH + "/jobs",
}
_OF_CLUSTER: Final = {
    "nodes": "/api/v1/nodes",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "leases": "/apis/coordination.k8s.io/v1/leases",
}
_KINDS: Final = {
    "pods": "Pod",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "statefulsets": "StatefulSet",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "jobs": "Job",
}


async def gather(
    client: Client,
    resource: Resource,
    *,
    namespace: str,
    name: str,
    conditions: Sequence[str] = ("/status/standardConditions", "/status/conditions"),
    hint: OperatorHint | None = None,
    ready: str = "",
    select: Mapping[str, str] | None = None,
) -> Facts:
    """The facts of one instance; raises `KubeError` when the instance itself cannot be read.

    ``conditions`` are JSON pointers to its conditions, of which the first that is there counts; ``ready`` is the type
    of the one that stands for Ready; ``select`` are labels of pods that it does not own through built-in workloads.
    """
    now = datetime.now(UTC)
    try:
        path = resource.path(namespace=namespace, name=name)
        obj = msgspec.json.decode((await client.request("GET", path)).body)
    except NotFound as error:
        # A kind that is not defined is answered without naming an object.
        served = bool(error.details.get("name"))
        return Facts(kind=resource.kind, group=resource.group, now=now, served=served)
    paths = {key: path.format(namespace) for key, path in _IN_NAMESPACE.items()} | _OF_CLUSTER
    listed = dict(
        zip(paths, await asyncio.gather(*(_list(client, path) for path in paths.values())), strict=True)
    )
    found = {
        key: [{**one, "kind": _KINDS.get(key, "")} for one in items or ()] for key, items in listed.items()
    }
    owned = family(str(at(obj, "metadata", "uid")), (one for key in _KINDS for one in found[key]))
    pods = _pods(owned, found["pods"], select)
    mounted = {
        at(volume, "persistentVolumeClaim", "claimName")
        for pod in pods
        for volume in at(pod, "spec", "volumes") or ()
    }
    claims = [
        one
        for one in found["persistentvolumeclaims"]
        if one in owned or at(one, "metadata", "name") in mounted
    ]
    uids = {at(one, "metadata", "uid") for one in (*owned, *pods, *claims, obj)}
    return Facts(
        kind=resource.kind,
        group=resource.group,
        now=now,
        obj=obj,
        conditions=_conditions(obj, conditions),
        pods=pods,
        claims=claims,
        workloads=[one for one in owned if one["kind"] not in ("Pod", "PersistentVolumeClaim")],
        events=[one for one in found["events"] if at(one, "involvedObject", "uid") in uids],
        nodes=found["nodes"],
        classes=found["storageclasses"],
        leases=found["leases"],
        hint=hint,
        ready=(ready,) if ready else ("Ready", "Available", "Healthy"),
        unseen=frozenset(key for key, items in listed.items() if items is None),
    )


async def pods_of(
    client: Client, obj: Object, *, namespace: str, select: Mapping[str, str] | None = None
) -> list[Object] | None:
    """The pods of an instance, None when the user may not list pods; ``select`` as for `gather`."""
    keys = [key for key in _KINDS if key != "persistentvolumeclaims"]
    listed = await asyncio.gather(*(_list(client, _IN_NAMESPACE[key].format(namespace)) for key in keys))
    found = dict(zip(keys, listed, strict=True))
    if found["pods"] is None:
        return None
    every = [{**one, "kind": _KINDS[key]} for key in keys for one in found[key] or ()]
    pods = [one for one in every if one["kind"] == "Pod"]
    return _pods(family(str(at(obj, "metadata", "uid")), every), pods, select)


def _pods(owned: Sequence[Object], pods: Sequence[Object], select: Mapping[str, str] | None) -> list[Object]:
    """The pods that are owned, and those that have the labels."""
    mine = {at(one, "metadata", "uid") for one in owned if one["kind"] == "Pod"}
    wanted = (select or {}).items()
    return [
        one
        for one in pods
        if at(one, "metadata", "uid") in mine
        or (wanted and wanted <= (at(one, "metadata", "labels") or {}).items())
    ]


def _conditions(obj: Object, pointers: Sequence[str]) -> list[Object]:
    for one in pointers:
        found = at(obj, *one.strip("/").split("/"))
        # HarmonyCloud's list is one of redis nodes, which have no type.
        typed = (
            [each for each in found if isinstance(each, Mapping) and each.get("type")]
            if isinstance(found, list)
            else []
        )
        if typed:
            return typed
    return []


async def _list(client: Client, path: str) -> list[dict[str, Any]] | None:
    """The objects of a collection, None when they may not be read, or are not there."""
    try:
        answer = await client.request("GET", path, query={"limit": LIMIT})
    except (Forbidden, NotFound):
        return None
    return list(msgspec.json.decode(answer.body).get("items") or ())
