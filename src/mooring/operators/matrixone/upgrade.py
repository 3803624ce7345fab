"""What this version of the operator would roll with the user's next change; see `workload.upgrade`.

Pods of compute nodes are compared one by one: each was rendered when it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from mooring.kube.client import Client
from mooring.kube.errors import NotFound
from mooring.kube.object import Object
from mooring.kube.objects import apps, core
from mooring.operators.matrixone.cnset.specs import prepared
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.depends import log_set_of
from mooring.operators.matrixone.dnset.specs import lasting
from mooring.operators.matrixone.identity import read_bootstrap
from mooring.operators.matrixone.logset.specs import gated
from mooring.operators.matrixone.names import BOOTSTRAP, INPUTS, STORE_ID, labels_of
from mooring.operators.matrixone.specs import CNSpecs, DNSpecs, LogService, LogSpecs, ProxySpecs
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, ProxySet
from mooring.operators.workload.upgrade import Planned, differences

__all__ = ["plan_upgrade"]

Workload = apps.StatefulSet | apps.Deployment


async def plan_upgrade(client: Client, one: Object) -> list[Planned]:
    """Compare the pods of a set with what this version renders; nothing for kinds without pods of their own. Reads only."""
    owner = with_defaults(one)
    match owner:
        case LogSet():
            members = read_bootstrap((owner.metadata.annotations or {}).get(BOOTSTRAP, "[]"))
            return [await _compared(client, "log", gated(LogSpecs(owner, members=members).stateful_set()))]
        case DNSet() | CNSet() | ProxySet():
            log_set = await _log_set(client, owner)
            if log_set is None:
                return [Planned(component=owner.resource.kind, trouble="its LogSet does not exist")]
            service = LogService.of(log_set)
    match owner:
        case DNSet():
            return [await _compared(client, "dn", lasting(DNSpecs(owner, service).stateful_set()))]
        case ProxySet():
            return [await _compared(client, "proxy", ProxySpecs(owner, service).deployment())]
        case CNSet():
            return [await _nodes(client, owner, CNSpecs(owner, service))]
    return []


async def _log_set(client: Client, owner: DNSet | CNSet | ProxySet) -> LogSet | None:
    key = log_set_of(owner)
    if key is None:
        return None
    try:
        return with_defaults(await client.get(LogSet, key.name, namespace=key.namespace))
    except NotFound:
        return None


async def _compared(client: Client, component: str, made: Workload) -> Planned:
    try:
        live: Workload = await client.get(
            type(made), made.metadata.name or "", namespace=made.metadata.namespace or ""
        )
    except NotFound:
        return Planned(component=component, trouble="has no pods yet")
    wanted = made.spec.template if made.spec is not None else None
    there = live.spec.template if live.spec is not None else None
    if wanted is None or there is None:
        return Planned(component=component, trouble="has no pods yet")
    waiting = _digest(made.metadata.annotations) != _digest(live.metadata.annotations)
    return Planned(component=component, fields=tuple(differences(wanted, there)), waiting=waiting)


async def _nodes(client: Client, owner: CNSet, specs: CNSpecs) -> Planned:
    """The first pod stands for all of its declaration."""
    selector = ",".join(f"{key}={value}" for key, value in labels_of(owner).items())
    pods = (
        await client.list(core.Pod, namespace=owner.metadata.namespace or "", label_selector=selector)
    ).items
    if not pods:
        return Planned(component="cn", trouble="has no pods yet")
    live = min(pods, key=lambda pod: pod.metadata.name or "")
    made = prepared(specs.pod((live.metadata.labels or {}).get(STORE_ID, "0")))
    waiting = _digest(made.metadata.annotations) != _digest(live.metadata.annotations)
    fields = tuple(differences(_template(made), _template(live)))
    return Planned(component="cn", fields=fields, waiting=waiting)


def _template(pod: core.Pod) -> core.PodTemplateSpec:
    """A pod as a template: without what its life adds to its metadata."""
    metadata = replace(pod.metadata, annotations=None, owner_references=None, uid=None, resource_version=None)
    return core.PodTemplateSpec(metadata=metadata, spec=pod.spec)


def _digest(annotations: Mapping[str, Any] | None) -> str:
    return str((annotations or {}).get(INPUTS, ""))
