"""What this version of the operator would roll with the user's next change, and the steps of an upgrade of the servers.

See `workload.upgrade`.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.actor import Terminal, Wait
from mooring.kube.client import Client
from mooring.kube.object import Object
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.flavors import version_of
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.names import COMPONENT
from mooring.operators.mysql.saved import inputs_of
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.mysql.versions import is_older, series, stops
from mooring.operators.workload.upgrade import Planned, compare

__all__ = ["plan_upgrade", "upgrade_steps"]


async def plan_upgrade(client: Client, cluster: Object) -> list[Planned]:
    """Compare the rendered pods of a cluster with those in force; reads only. Backups have none."""
    if not isinstance(cluster, MySQLCluster):
        return []
    inputs = await inputs_of(client, cluster)
    if isinstance(inputs, Wait | Terminal):
        return [Planned(component="cluster", trouble=f"{inputs.reason}: {inputs.message}")]
    specs = inputs.specs
    waiting = specs.made_from != specs.inputs
    planned = compare(COMPONENT, wanted=specs.declared_set(), live=inputs.found.set, waiting=waiting)
    return [replace(planned, steps=tuple(upgrade_steps(inputs)))]


def upgrade_steps(inputs: Inputs) -> list[str]:
    """What brings the servers to the declared version; nothing where their series is that already, or is not known."""
    status, image, flavor = inputs.status, inputs.wanted.image, inputs.wanted.flavor
    highest = max((one.version for one in (status.members or {}).values()), key=series, default="")
    now, to = status.version or highest, version_of(image)
    if len(to) < 2 or not now or to[:2] == series(now)[:2]:
        return []
    if is_older(to, highest):
        return [f"{image} is refused: {highest} wrote the data"]
    if through := stops(flavor, now, to):
        return [f"spec.image: {one}, and wait until it is rolled out" for one in (*through, image)]
    primary = status.primary or ""
    others = [name for name in sorted(status.members or {}, reverse=True) if name != primary]
    tables = ", system tables included" if dialect_of(flavor).upgrades_tables else ""
    return [
        f"{image} is started once on empty data with this configuration",
        *(f"{name} is recreated with {image}{tables}, and catches up" for name in others),
        *([f"a planned switch away from {primary}"] if primary and others else []),
        *([f"{primary} is recreated with {image}{tables}"] if primary else []),
    ]
