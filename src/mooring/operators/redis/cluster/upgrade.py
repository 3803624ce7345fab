"""What this version of the operator would roll with the user's next change; see `workload.upgrade`."""

from __future__ import annotations

from mooring.kube.client import Client
from mooring.operators.redis.cluster.saved import inputs_of
from mooring.operators.redis.cluster.specs import Orders, Specs
from mooring.operators.redis.cluster.types import RedisCluster
from mooring.operators.workload.upgrade import Planned, compare

__all__ = ["plan_upgrade"]


async def plan_upgrade(client: Client, cluster: RedisCluster) -> list[Planned]:
    """Compare the pods' template of a cluster; reads only."""
    inputs = await inputs_of(client, cluster)
    if inputs.blocked is not None:
        return [Planned(component="redis", trouble=inputs.blocked.message)]
    wanted = Specs(cluster, inputs.found, Orders(rewrite=True)).stateful_set()
    return [compare("redis", wanted=wanted, live=inputs.live, waiting=not inputs.specs.current())]
