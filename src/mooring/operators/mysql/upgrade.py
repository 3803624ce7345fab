"""What this version of the operator would roll with the user's next change; see `workload.upgrade`."""

from __future__ import annotations

from mooring.actor import Terminal, Wait
from mooring.kube.client import Client
from mooring.kube.object import Object
from mooring.operators.mysql.names import COMPONENT
from mooring.operators.mysql.saved import inputs_of
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.workload.upgrade import Planned, compare

__all__ = ["plan_upgrade"]


async def plan_upgrade(client: Client, cluster: Object) -> list[Planned]:
    """Compare the rendered pods of a cluster with those in force; reads only. Backups have none."""
    if not isinstance(cluster, MySQLCluster):
        return []
    inputs = await inputs_of(client, cluster)
    if isinstance(inputs, Wait | Terminal):
        return [Planned(component="cluster", trouble=f"{inputs.reason}: {inputs.message}")]
    specs = inputs.specs
    waiting = specs.made_from != specs.inputs
    return [compare(COMPONENT, wanted=specs.declared_set(), live=inputs.found.set, waiting=waiting)]
