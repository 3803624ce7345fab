"""The next safe step: every rule of failover, repair, change and growth, without any I/O.

`decide` looks at one snapshot and returns a `Move`, a `Wait` or `InSync`. It is called again after every move, so each
rule only has to be right about the first thing to do. The rules stand in the order of what matters: who leads
(`founding`, `failover`), then that its writes are safe (`durability`, `replication`), then what the user changed.
"""

from __future__ import annotations

from collections.abc import Callable

from mooring.operators.mysql import (
    access,
    applier,
    changes,
    drift,
    durability,
    failover,
    founding,
    load,
    release,
    replication,
    roles,
    roll,
    switchover,
    tuning,
)
from mooring.operators.mysql.moves import Fence, InSync, Promote, Switch, Verdict, Wait
from mooring.operators.mysql.names import PAUSE
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.workload.retries import spaced
from mooring.operators.workload.rollout import HandOver
from mooring.operators.workload.waits import while_paused

__all__ = ["decide", "next_step"]


def decide(snapshot: Snapshot) -> Verdict:
    """The next safe step, or while the cluster is paused what would be; a step that failed has to wait its time."""
    verdict = next_step(snapshot)
    if snapshot.wanted.paused:
        return while_paused(verdict, PAUSE)
    if isinstance(
        verdict, Fence | Promote | Switch
    ):  # writes wait for these; the actor pauses between two tries
        return verdict
    return spaced(verdict, snapshot.status.retry, snapshot.now)


def next_step(snapshot: Snapshot) -> Verdict:
    """The one thing to do now, paused or not."""
    if not snapshot.topology.members:
        return Wait("PodsMissing", "no pod exists yet", after=0.5)
    if not snapshot.topology.answering and (verdict := roll.unblock(snapshot)):
        return verdict
    if not snapshot.primary:
        return founding.found(snapshot)
    found = failover.find_primary(snapshot)
    if not isinstance(found, tuple):
        return found
    member, server = found
    for rule in _RULES:
        verdict = rule(snapshot, member, server)
        if verdict is not None:
            return verdict
    return InSync()


Rule = Callable[[Snapshot, Member, Server], Verdict | None]


def _start_replicas(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    verdict = release.replicas(snapshot)
    # A version that is refused holds up nobody else.
    return None if isinstance(verdict, Wait) else verdict


def _change(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """What the user changed; it asks back for a switch where the primary is in the way."""
    verdict = changes.next_change(snapshot, member, server)
    if isinstance(verdict, HandOver):
        return switchover.hand_over(snapshot, member, server, why=verdict.why)
    return verdict


_RULES: tuple[Rule, ...] = (
    replication.demote_others,
    switchover.resume,
    applier.watch,
    applier.elected,
    failover.promotion,
    replication.note,
    roles.lead,
    roles.hold_writes,
    replication.unstartable,
    applier.free,
    _start_replicas,
    replication.renew,
    replication.repair,
    roles.label,
    switchover.leave,
    durability.keep,
    drift.variables,
    tuning.retreat,
    access.backups,
    access.accounts,
    switchover.ask,
    load.ownership,
    _change,
    access.certificates,
    load.follow,
    tuning.tune,
)
"""In this order."""
