"""A snapshot of one cluster: inputs, and what every server says, at one moment. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from mooring.operators.mysql.config import canonical
from mooring.operators.mysql.dial import Dial
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.survey import login_of, read_topology
from mooring.operators.mysql.topology import Member

__all__ = ["read_snapshot"]


async def read_snapshot(
    inputs: Inputs, dial: Dial, *, now: Callable[[], datetime], silent: Collection[str] = ()
) -> Snapshot:
    """Ask every server of a cluster; those in ``silent`` did not answer in the pass before."""
    wanted, status = inputs.wanted, inputs.status
    topology = await read_topology(
        dial,
        dialect_of(wanted.flavor),
        [Member(pod=pod, order=inputs.orders.get(pod.name, "")) for pod in inputs.pods],
        login=login_of(inputs.credentials),
        primary=status.primary or "",
        silent=silent,
        history=any(one.reseed for one in (status.members or {}).values()),
        held=sorted({canonical(key) for key in (*wanted.config, *(status.config or {}))}),
    )
    return Snapshot(wanted=wanted, topology=topology, observed=inputs.observed, status=status, now=now())
