"""Decisions of this operator as files; see `workload.saved`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from mooring.actor import Terminal, Verdict, Wait
from mooring.kube.client import Client
from mooring.operators.mysql.dial import Dial
from mooring.operators.mysql.inputs import Inputs, read_inputs, references
from mooring.operators.mysql.names import selector
from mooring.operators.mysql.plan import decide
from mooring.operators.mysql.sight import read_snapshot
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.trial import read_trial
from mooring.operators.mysql.types import MySQLCluster
from mooring.operators.workload.saved import Form, NotDecided
from mooring.operators.workload.surroundings import read_surroundings

__all__ = ["dump", "gather", "inputs_of", "load", "replay"]

_FORM: Final = Form("mooring/mysql/1", Snapshot)
dump, load = _FORM.dump, _FORM.load


async def gather(client: Client, cluster: MySQLCluster, *, now: datetime) -> Snapshot:
    """Ask the API server and the cluster's own servers, as the operator does; reads only."""
    inputs = await inputs_of(client, cluster)
    if isinstance(inputs, Wait | Terminal):
        raise NotDecided(f"{inputs.reason}: {inputs.message}")
    dial = Dial()
    try:
        return await read_snapshot(inputs, dial, now=lambda: now)
    finally:
        dial.close()


async def inputs_of(client: Client, cluster: MySQLCluster) -> Inputs | Wait | Terminal:
    """The inputs as the API server gives them."""
    namespace, name = cluster.metadata.namespace or "", cluster.metadata.name or ""
    around = await read_surroundings(client, namespace, references(cluster), label_selector=selector(name))
    inputs = read_inputs(cluster, around)
    return await read_trial(client, inputs) if isinstance(inputs, Inputs) else inputs


def replay(snapshot: Snapshot) -> Verdict:
    """What the planner decides from a snapshot."""
    return decide(snapshot)
