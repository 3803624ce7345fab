"""Decisions of this operator as files; see `workload.saved`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from mooring.actor import Terminal, Verdict, Wait
from mooring.kube.client import Client
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.sentinel.inputs import Inputs, read_inputs, read_snapshot, references
from mooring.operators.redis.sentinel.names import selector
from mooring.operators.redis.sentinel.plan import decide
from mooring.operators.redis.sentinel.snapshot import Snapshot
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.operators.workload.saved import Form, NotDecided
from mooring.operators.workload.surroundings import read_surroundings

__all__ = ["dump", "gather", "inputs_of", "load", "replay"]

_FORM: Final = Form("mooring/redis-sentinel/1", Snapshot)
dump, load = _FORM.dump, _FORM.load


async def gather(client: Client, cluster: RedisCluster, *, now: datetime) -> Snapshot:
    """Ask the API server and the cluster's own servers, as the operator does; reads only."""
    inputs = await inputs_of(client, cluster)
    if isinstance(inputs, Wait | Terminal):
        raise NotDecided(f"{inputs.reason}: {inputs.message}")
    return await read_snapshot(inputs, Dial(), now=lambda: now)


async def inputs_of(client: Client, cluster: RedisCluster) -> Inputs | Wait | Terminal:
    """The inputs as the API server gives them."""
    namespace, name = cluster.metadata.namespace or "", cluster.metadata.name or ""
    around = await read_surroundings(client, namespace, references(cluster), label_selector=selector(name))
    return read_inputs(cluster, around)


def replay(snapshot: Snapshot) -> Verdict:
    """What the planner decides from a snapshot."""
    return decide(snapshot)
