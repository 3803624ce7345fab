"""What this version of the operator would roll with the user's next change; see `workload.upgrade`."""

from __future__ import annotations

from mooring.actor import Terminal, Wait
from mooring.kube.client import Client
from mooring.operators.redis.sentinel.saved import inputs_of
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.upgrade import Planned, compare

__all__ = ["plan_upgrade"]


async def plan_upgrade(client: Client, cluster: RedisCluster) -> list[Planned]:
    """Compare both components of a cluster; reads only."""
    inputs = await inputs_of(client, cluster)
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
