"""Decisions without the operator: saved ones (see `workload.saved`) and those of an upgrade (see `workload.upgrade`)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from mooring.actor import Terminal, Wait
from mooring.kube.client import Client
from mooring.operators.operator import Replayed, SavedDecision
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.sentinel.explain import seen
from mooring.operators.redis.sentinel.inputs import Inputs, read_inputs, read_snapshot, references
from mooring.operators.redis.sentinel.names import selector
from mooring.operators.redis.sentinel.plan import decide
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.saved import Form, NotDecided
from mooring.operators.workload.surroundings import read_surroundings
from mooring.operators.workload.upgrade import Planned, compare

__all__ = ["dump", "gather", "inputs_of", "load", "plan_upgrade", "replay", "save"]

_FORM: Final = Form("mooring/redis-sentinel/1", Snapshot)
dump, load = _FORM.dump, _FORM.load


async def gather(client: Client, cluster: RedisCluster, *, now: datetime) -> Snapshot:
    """Ask the API server and the cluster's own servers, as the operator does; reads only."""
    inputs = await inputs_of(client, cluster, now=now)
    if isinstance(inputs, Wait | Terminal):
        raise NotDecided(f"{inputs.reason}: {inputs.message}")
    return await read_snapshot(inputs, Dial(tls=inputs.tls), now=lambda: now)


async def inputs_of(client: Client, cluster: RedisCluster, *, now: datetime) -> Inputs | Wait | Terminal:
    """The inputs as the API server gives them."""
    namespace, name = cluster.metadata.namespace or "", cluster.metadata.name or ""
    around = await read_surroundings(client, namespace, references(cluster), label_selector=selector(name))
    return read_inputs(cluster, around, now=now)


async def save(client: Client, cluster: RedisCluster) -> SavedDecision:
    """Ask the API server and the cluster's own servers, as the operator does."""
    snapshot = await gather(client, cluster, now=datetime.now(UTC))
    topology = snapshot.topology
    silent = [one.name for one in topology.members if one.server is None]
    silent += [one.name for one in topology.watchers if one.sentinel is None]
    return SavedDecision(content=dump(snapshot), silent=silent)


def replay(content: bytes) -> Replayed:
    """What was seen, and what the planner decides from it."""
    snapshot = load(content)
    head = f"At {snapshot.now.isoformat()}"
    return Replayed(seen=(head, *seen(snapshot.topology)), verdict=decide(snapshot))


async def plan_upgrade(client: Client, cluster: RedisCluster) -> list[Planned]:
    """What this version would roll with the user's next change: both components compared; reads only."""
    inputs = await inputs_of(client, cluster, now=datetime.now(UTC))
    if isinstance(inputs, Wait | Terminal):
        return [Planned(component="cluster", trouble=f"{inputs.reason}: {inputs.message}")]
    found = inputs.found
    specs = inputs.ordered(Orders(templates=frozenset({"redis", "sentinel"})))
    return [
        compare("redis", wanted=specs.redis_set(), live=found.redis, waiting=not specs.current("redis")),
        compare(
            "sentinel",
            wanted=specs.sentinel_set(),
            live=found.sentinel,
            waiting=not specs.current("sentinel"),
        ),
    ]
