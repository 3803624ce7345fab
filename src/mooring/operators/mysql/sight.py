"""A snapshot of one cluster: inputs, and what every server says, at one moment. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from mooring.operators.mysql.accounts import Accounts
from mooring.operators.mysql.config import canonical, forced
from mooring.operators.mysql.credentials import OWN
from mooring.operators.mysql.dial import Dial, DialError
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.survey import login_of, read_accounts, read_topology, with_backup_account
from mooring.operators.mysql.topology import Member
from mooring.operators.mysql.tuning import MEASURED
from mooring.operators.mysql.types import MySQLClusterStatus

__all__ = ["read_snapshot"]


async def read_snapshot(
    inputs: Inputs, dial: Dial, *, now: Callable[[], datetime], silent: Collection[str] = ()
) -> Snapshot:
    """Ask every server of a cluster; those in ``silent`` did not answer lately."""
    wanted, status = inputs.wanted, inputs.status
    topology = await read_topology(
        dial,
        dialect_of(wanted.flavor),
        [Member(pod=pod, order=inputs.orders.get(pod.name, "")) for pod in inputs.pods],
        login=login_of(inputs.credentials),
        primary=status.primary or "",
        silent=silent,
        load=wanted.tuning in MEASURED or status.tuning is not None,
        history=_new(status, [pod.name for pod in inputs.pods]),
        held=sorted(
            {canonical(key) for key in (*wanted.config, *(status.config or {}), *forced(wanted.flavor))}
        ),
    )
    topology = await with_backup_account(
        topology,
        dial,
        dialect_of(wanted.flavor),
        login=login_of(inputs.credentials),
        primary=status.primary or "",
    )
    leader = topology.member(status.primary or "")
    if leader is not None and leader.server is not None and _has_accounts(inputs):
        try:
            async with dial.kept(leader.pod.ip, login_of(inputs.credentials), name=leader.name) as link:
                accounts = await read_accounts(
                    link,
                    dialect_of(wanted.flavor),
                    inputs.credentials,
                    wanted.users,
                    own=bool(inputs.credentials.changed) or _is_changing(status),
                )
        except DialError as error:
            accounts = Accounts(error=str(error))
        topology = replace(topology, accounts=accounts)
    return Snapshot(wanted=wanted, topology=topology, observed=inputs.observed, status=status, now=now())


def _has_accounts(inputs: Inputs) -> bool:
    """Accounts and databases are looked at where some are declared, or a password changes, or was declared before."""
    wanted, status = inputs.wanted, inputs.status
    declared = wanted.users or wanted.databases or status.accounts or status.databases
    return bool(declared or inputs.credentials.changed)


def _is_changing(status: MySQLClusterStatus) -> bool:
    """Two passwords count for one of the operator's own accounts."""
    return any(f"{name}@{host}" in (status.accounts or {}) for name, host in OWN)


def _new(status: MySQLClusterStatus, pods: Sequence[str]) -> bool:
    """A replica is yet to get its data: whether binary logs suffice for that has to be known."""
    members = status.members or {}
    return any(name not in members or members[name].reseed or not members[name].joined for name in pods)
