"""What this version of the operator would roll: the pods' templates as it renders them beside those in force.

An upgrade of the operator writes no template. The next change of a user's does, and then everything that this version
renders differently comes with it: this says what that is, before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as changed

import msgspec

from mooring.actor import Terminal, Wait, differs
from mooring.kube.client import Client
from mooring.kube.objects import apps, core, meta
from mooring.kube.part import Part
from mooring.operators.redis.sentinel.inputs import Gathering
from mooring.operators.redis.sentinel.names import Component
from mooring.operators.redis.sentinel.saved import read_around
from mooring.operators.redis.sentinel.specs import Specs
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterStatus

__all__ = ["Planned", "differences", "plan_upgrade"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What would become of the pods of one component with the next change of a user's.

    ``fields`` are those that this version renders differently; ``waiting`` says that such a change was made already,
    so that they roll now; ``trouble`` is why nothing can be said.
    """

    component: str
    fields: tuple[str, ...] = ()
    waiting: bool = False
    trouble: str = ""


async def plan_upgrade(client: Client, cluster: RedisCluster) -> list[Planned]:
    """Compare both components of a cluster; reads only."""
    status = cluster.status or RedisClusterStatus()
    inputs = Gathering(cluster, await read_around(client, cluster), status).inputs()
    if isinstance(inputs, Wait | Terminal):
        return [Planned(component="cluster", trouble=f"{inputs.reason}: {inputs.message}")]
    specs = Specs(cluster, changed(inputs.found, roll=frozenset({"redis", "sentinel"})))
    return [
        _planned(specs, "redis", specs.redis_set(), inputs.found.redis),
        _planned(specs, "sentinel", specs.sentinel_set(), inputs.found.sentinel),
    ]


def _planned(
    specs: Specs, component: Component, wanted: apps.StatefulSet, live: apps.StatefulSet | None
) -> Planned:
    if live is None or live.spec is None or live.spec.template is None:
        return Planned(component=component, trouble="has no pods yet")
    assert wanted.spec is not None
    assert wanted.spec.template is not None
    fields = tuple(differences(wanted.spec.template, live.spec.template))
    return Planned(component=component, fields=fields, waiting=not specs.current(component))


def differences(wanted: core.PodTemplateSpec, live: core.PodTemplateSpec) -> Iterator[str]:
    """The paths of what differs in meaning, each container and each field of the pod by itself."""
    if wanted.metadata is not None:
        yield from (
            f"metadata.{field}" for field in _each(wanted.metadata, live.metadata or meta.ObjectMeta())
        )
    pod, there = wanted.spec, live.spec
    if pod is None or there is None:
        return
    for kind in ("init_containers", "containers"):
        named = {one.name: one for one in getattr(there, kind) or ()}
        for container in getattr(pod, kind) or ():
            place = f"{'initContainers' if kind == 'init_containers' else 'containers'}[{container.name}]"
            if container.name not in named:
                yield f"spec.{place}"
                continue
            yield from (f"spec.{place}.{field}" for field in _each(container, named[container.name]))
    rest = msgspec.structs.replace(pod, containers=None, init_containers=None)
    yield from (f"spec.{field}" for field in _each(rest, there))


def _each(wanted: Part, live: Part) -> Iterator[str]:
    """The fields that are set and differ, by their names in JSON."""
    nothing = dict.fromkeys(wanted.__struct_fields__)
    for name, shown in zip(wanted.__struct_fields__, wanted.__struct_encode_fields__, strict=True):
        value = getattr(wanted, name)
        if value is not None and differs(type(wanted)(**{**nothing, name: value}), live):
            yield shown
