"""Decisions without the operator: saved ones (see `workload.saved`) and those of an upgrade (see `workload.upgrade`).

Slots are written as ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from mooring.kube.client import Client
from mooring.kube.errors import Forbidden
from mooring.kube.object import Key, key_of
from mooring.kube.objects import core
from mooring.operators.operator import Replayed, SavedDecision
from mooring.operators.redis.cluster.explain import seen
from mooring.operators.redis.cluster.inputs import Inputs, read_inputs, read_snapshot, references, zones_of
from mooring.operators.redis.cluster.names import selector_of
from mooring.operators.redis.cluster.passwords import GRACE
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.slots import parse, show
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.specs import Orders, Specs
from mooring.operators.redis.cluster.types import RedisCluster, RedisClusterStatus
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.passwords.seen import logins
from mooring.operators.workload.saved import Form, NotDecided
from mooring.operators.workload.surroundings import read_surroundings
from mooring.operators.workload.upgrade import Planned, compare

__all__ = ["dump", "gather", "inputs_of", "load", "plan_upgrade", "replay", "save"]


def _each_slots(raw: dict[str, Any], change: Callable[[Any], Any]) -> None:
    """Change every set of slots: as numbers of 16384 bits JSON does not take them."""
    views = [node["server"]["view"] for node in raw["seen"]["nodes"] if node["server"] is not None]
    for one in (peer for view in views for peer in view):
        one["slots"] = change(one["slots"])
    raw["recorded"]["slots"] = {id: change(slots) for id, slots in raw["recorded"]["slots"].items()}


_FORM: Final = Form(
    "mooring/redis-cluster/1",
    Snapshot,
    packed=partial(_each_slots, change=show),
    unpacked=partial(_each_slots, change=parse),
)
dump, load = _FORM.dump, _FORM.load


async def save(client: Client, cluster: RedisCluster) -> SavedDecision:
    """Ask the API server and the cluster's own servers, as the operator does."""
    snapshot = await gather(client, cluster, now=datetime.now(UTC))
    silent = [one.name for one in snapshot.seen.nodes if one.server is None and one.gate is None]
    return SavedDecision(content=dump(snapshot), silent=silent)


def replay(content: bytes) -> Replayed:
    """What was seen, and what the planner decides from it."""
    snapshot = load(content)
    head = f"At {snapshot.now.isoformat()}"
    return Replayed(seen=(head, *seen(snapshot.seen)), verdict=next_step(snapshot))


async def plan_upgrade(client: Client, cluster: RedisCluster) -> list[Planned]:
    """What this version would roll with the user's next change: the pods' template compared; reads only."""
    inputs = await inputs_of(client, cluster, now=datetime.now(UTC))
    if inputs.blocked is not None:
        return [Planned(component="redis", trouble=inputs.blocked.message)]
    wanted = Specs(cluster, inputs.found, Orders(rewrite=True)).stateful_set()
    return [compare("redis", wanted=wanted, live=inputs.live, waiting=not inputs.specs.current())]


async def gather(client: Client, cluster: RedisCluster, *, now: datetime) -> Snapshot:
    """Ask the API server and the cluster's own servers, as the operator does; reads only."""
    inputs = await inputs_of(client, cluster, now=now)
    if inputs.live is None:
        why = inputs.blocked.message if inputs.blocked is not None else "it has no StatefulSet yet"
        raise NotDecided(f"nothing is decided before there are pods: {why}")
    return await read_snapshot(inputs, Dial(keys=logins(inputs.found.kept), tls=inputs.tls), now, grace=GRACE)


async def inputs_of(client: Client, cluster: RedisCluster, *, now: datetime) -> Inputs:
    """The inputs as the API server gives them."""
    name, namespace = cluster.metadata.name or "", cluster.metadata.namespace or ""
    selector = ",".join(f"{key}={value}" for key, value in selector_of(name).items())
    around = await read_surroundings(client, namespace, references(cluster), label_selector=selector)
    nodes: dict[Key, core.Node] = {}
    with suppress(Forbidden):  # without nodes no zones are known
        nodes = {key_of(one): one for one in (await client.list(core.Node)).items}
    zones = zones_of(around.pods, nodes)
    return read_inputs(cluster, around, cluster.status or RedisClusterStatus(), zones=zones, now=now)
