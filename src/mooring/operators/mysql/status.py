"""What status shows: every pod, what was decided, what one failure would cost, and whether the service works; pure.

Nothing here changes while the cluster does not: positions, lags and clocks stay out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replaced
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from mooring.actor import ConditionState, Report, Terminal
from mooring.operators.mysql import applier, durability, load
from mooring.operators.mysql.events import notes_of
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.moves import (
    Amend,
    DatabaseMove,
    InSync,
    Move,
    Open,
    Record,
    SetPasswords,
    Tune,
    Verdict,
    Wait,
)
from mooring.operators.mysql.names import PRIMARY, REPLICA, selector
from mooring.operators.mysql.snapshot import READ_ONLY, Snapshot
from mooring.operators.mysql.topology import Member, Stall
from mooring.operators.mysql.tuning import MEASURED, refused
from mooring.operators.mysql.types import AccountResult, Instance, MySQLClusterStatus
from mooring.operators.workload.autoscale import CONTESTED
from mooring.operators.workload.configuration import ConfigResult
from mooring.operators.workload.retries import failed

__all__ = [
    "LOOK_AGAIN",
    "after_failure",
    "after_step",
    "at_risk",
    "first_of",
    "phase_of",
    "readiness",
    "report",
    "roots_of",
]

STALLED: Final[dict[Stall, str]] = {"full": "VolumeFull", "wait": "WritesStalled"}
LOOK_AGAIN: Final = 30.0
"""Seconds between two passes over a cluster that is in sync.

Pods announce what goes wrong, and the primary is asked every second besides; only what somebody changed on a server by
hand is announced by nothing.
"""


def first_of(verdict: Verdict) -> MySQLClusterStatus | None:
    """The status that is written before a move is carried out."""
    if isinstance(verdict, Record):
        return verdict.status
    return verdict.first if isinstance(verdict, DatabaseMove | Open) else None


def roots_of(status: MySQLClusterStatus) -> tuple[object, ...]:
    """What every decision about servers rests on."""
    return status.primary, status.term, status.operation, status.ack_set, status.acks, status.durability


def report(inputs: Inputs, snapshot: Snapshot, verdict: Verdict, *, unknown: Sequence[str] = ()) -> Report:
    """What a pass shows; ``unknown`` names fields of the declaration that do not exist."""
    first = first_of(verdict)
    status = first if first is not None else snapshot.status
    if status.retry is not None and isinstance(verdict, InSync):
        status = replace(status, retry=None)
    spec = inputs.cluster.spec
    if spec is None or spec.autoscale is None:
        status = replace(status, autoscale=None)
    elif isinstance(verdict, InSync):
        status = replace(status, autoscale=load.shown(snapshot))
    status = _seen(status, snapshot, verdict, inputs)
    ready = readiness(snapshot)
    return Report(
        status=status,
        ready=ready,
        notes=notes_of(snapshot, verdict),
        instead=_instead(inputs, snapshot, unknown) if isinstance(verdict, InSync) else None,
        record=first is not None,
    )


def _seen(
    status: MySQLClusterStatus, snapshot: Snapshot, verdict: Verdict, inputs: Inputs
) -> MySQLClusterStatus:
    """The status with what was observed; the time of an entry moves only when its state does."""
    before = {one.name: one for one in status.instances or ()}
    instances = [
        _dated(_instance(snapshot, one), before.get(one.name), snapshot.now)
        for one in snapshot.topology.members
    ]
    serving = sum(1 for one in instances if one.state == "Online")
    leader = snapshot.leader
    version = leader[1].version if leader is not None else status.version
    # What is given up is shown together with what that costs, before it is.
    weaker = snapshot.strict and status.durability != "Strict"
    cost = at_risk(replaced(snapshot, status=status) if weaker else snapshot)
    return replace(
        status,
        phase=phase_of(snapshot, verdict),
        available_replicas=serving,
        size=len(snapshot.topology.members),
        selector=selector(inputs.cluster.metadata.name or ""),
        flavor=snapshot.wanted.flavor,
        version=version or None,
        at_risk=cost,
        instances=instances,
        volumes=inputs.growth.shown(),
        autogrow=inputs.filling.status,
    )


def _instance(snapshot: Snapshot, member: Member) -> Instance:
    server, known = member.server, snapshot.recorded(member.name)
    if server is None:
        if snapshot.at_gate(member):
            return Instance(name=member.name, state="AtGate", version=known.version)
        started = snapshot.ordered(member) and member.pod.running and not known.joined
        state = "Starting" if started or (not member.pod.running and not known.joined) else "Unreachable"
        reason = member.pod.trouble or member.error
        return Instance(name=member.name, state=state, reason=reason, version=known.version)
    leads = member.name == snapshot.primary
    base = Instance(name=member.name, role=PRIMARY if leads else REPLICA, version=server.version)
    if snapshot.fenced(member.name):
        return replace(base, state="Fenced", reason="spec.maintenance.fenced")
    if leads:
        return replace(base, state="Online" if not server.read_only or snapshot.held else "Starting")
    if server.seeding:
        return replace(base, state="Seeding")
    if known.reseed:
        return replace(base, state="Diverged", reason=known.reseed)
    if snapshot.standing_still(member.name) >= applier.STILL:
        return replace(base, state="Broken", reason="its applier waits for its own idle threads")
    if snapshot.healthy(member, server):
        return replace(base, state="Online" if known.synced and member.pod.role != "" else "CatchingUp")
    link = server.replication
    broken = link is not None and (link.io_errno or link.sql_errno)
    reason = (link.io_error or link.sql_error)[:200] if link is not None else ""
    return replace(base, state="Broken" if broken else "CatchingUp", reason=reason if broken else "")


def _dated(one: Instance, before: Instance | None, now: datetime) -> Instance:
    if before is not None and (before.state, before.role) == (one.state, one.role) and before.since:
        return replace(one, since=before.since)
    return replace(one, since=now.replace(microsecond=0))


# --- does it work ----------------------------------------------------------------------------------------


def phase_of(snapshot: Snapshot, verdict: Verdict) -> str:
    """The one word for the state of the cluster."""
    first = first_of(verdict)
    operation = (first if first is not None else snapshot.status).operation
    if snapshot.wanted.paused:
        return "Paused"
    if not snapshot.primary or (operation is not None and operation.kind == "Found"):
        return "Creating"
    if operation is not None:
        return "SwitchingOver" if operation.kind == "Switch" else "FailingOver"
    leader = snapshot.leader
    if leader is None:
        return (
            "Lost" if isinstance(verdict, Wait) and verdict.reason in ("Lost", "Diverged") else "FailingOver"
        )
    if leader[1].read_only:
        return READ_ONLY if snapshot.held else "Degraded"
    if durability.blocked(snapshot):
        members = (status := snapshot.status).members or {}
        had = any(one.joined for name, one in members.items() if name != status.primary)
        return "Blocked" if had else "Creating"
    good = sum(1 for one, it in snapshot.replicas if snapshot.healthy(one, it) and snapshot.counts(one))
    return "Running" if good >= snapshot.wanted.size - 1 else "Degraded"


def readiness(snapshot: Snapshot) -> ConditionState:
    """A primary that takes writes, and replicas that acknowledge them."""
    leader = snapshot.leader
    if leader is None:
        text = f"{snapshot.primary} does not lead at present" if snapshot.primary else "no server leads yet"
        return ConditionState(False, "NoPrimary", text)
    member, server = leader
    if server.read_only and snapshot.full:
        share = snapshot.observed.shares[member.name]
        text = f"the volume of {member.name} is {100 * share:.0f} % full, and it takes no writes; raise spec.storage.autogrow.maxSize"
        return ConditionState(False, "VolumeFull", text)
    if server.read_only:
        why = "ReadOnly" if snapshot.wanted.read_only else "NoPrimary"
        return ConditionState(False, why, f"{member.name} takes no writes")
    if durability.blocked(snapshot):
        text = f"{member.name} holds writes until {snapshot.status.acks} replicas acknowledge them"
        return ConditionState(False, "WritesBlocked", text)
    if server.stalled:
        return ConditionState(False, STALLED[server.stalled], _stall(member.name, server.stalled))
    if member.pod.role not in (PRIMARY, None):
        return ConditionState(False, "NoPrimary", f"{member.name} is not in the Service of the primary yet")
    return ConditionState(True, "Serving", f"{member.name} leads")


def _stall(pod: str, stall: Stall) -> str:
    if stall == "full":
        return f"the volume of {pod} is full: writes wait for space; raise spec.storage.size, or delete data"
    return f"commits on {pod} wait, and not for a replica: its volume is full, or does not answer"


def at_risk(snapshot: Snapshot) -> str:
    """What one failure would cost now; "" when it costs nothing but the time of a failover."""
    if not snapshot.primary:
        return "the cluster has no data yet"
    if snapshot.wanted.size == 1:
        return f"the volume of {snapshot.primary} is the only copy; without its server there is no service"
    if not snapshot.strict:
        return f"writes that no replica has received yet, if {snapshot.primary} fails"
    votes = [one.name for one, _ in snapshot.votes]
    if durability.blocked(snapshot):
        return f"writes wait for {snapshot.status.acks} replicas; none that was acknowledged is at risk"
    if not durability.safe(snapshot, votes):
        return f"no acknowledged write, but if {snapshot.primary} fails it must return itself"
    acks = snapshot.status.acks or 0
    if len(votes) <= acks:
        return "no acknowledged write; without one more replica writes wait"
    return ""


def _instead(inputs: Inputs, snapshot: Snapshot, unknown: Sequence[str]) -> Wait | Terminal | InSync:
    """The outcome of a pass over a cluster that works well."""
    if inputs.blocked is not None:
        return inputs.blocked
    if snapshot.leader is not None and (stall := snapshot.leader[1].stalled):
        return Wait(STALLED[stall], _stall(snapshot.primary, stall), after=5.0, stalled=True)
    unmet = [
        f"spec.config.{key}: {result.message}"
        for key, result in sorted((snapshot.status.config or {}).items())
        if result.message and result.state != "Clamped"
    ]
    results = (("users", snapshot.status.accounts), ("databases", snapshot.status.databases))
    unmet += [
        f"spec.{field}: {name}: {result.message}"
        for field, found in results
        for name, result in sorted((found or {}).items())
        if result.message
    ]
    if snapshot.topology.accounts is not None and snapshot.topology.accounts.error:
        unmet.append(f"accounts cannot be read: {snapshot.topology.accounts.error}")
    unmet += [*inputs.growth.unmet(), *inputs.filling.unmet(), *unknown]
    if unmet:
        return Wait("NotAsDeclared", "; ".join(unmet), after=LOOK_AGAIN, stalled=True)
    autoscale = snapshot.status.autoscale
    if autoscale is not None and autoscale.reason == CONTESTED:
        return Wait(CONTESTED, autoscale.message or "", after=LOOK_AGAIN, stalled=True)
    if growing := inputs.growth.wait(after=LOOK_AGAIN):
        return growing
    # The end of a window is announced by nothing.
    window = snapshot.wanted.tuning_window if snapshot.wanted.tuning in MEASURED else 4 * LOOK_AGAIN
    return InSync(again=min(LOOK_AGAIN, window / 4, load.look_again(snapshot) or LOOK_AGAIN))


# --- after a step ----------------------------------------------------------------------------------------


def after_step(status: MySQLClusterStatus, config: tuple[str, ConfigResult] | None) -> MySQLClusterStatus:
    """The status with what became of a key; a step that got through clears the failure of the one before."""
    if config is not None:
        key, result = config
        status = replace(status, config={**(status.config or {}), key: result})
    return replace(status, retry=None) if status.retry is not None else status


def after_failure(
    snapshot: Snapshot, move: Move, message: str, status: MySQLClusterStatus
) -> MySQLClusterStatus:
    """The status after a step that failed; one about an account or a database is noted there, and holds nothing up."""
    if isinstance(move, Amend | SetPasswords) and move.subject:
        result = {move.subject: AccountResult(state="Failed", message=message, since=snapshot.now)}
        if any(one.name == move.subject for one in snapshot.wanted.databases):
            return replace(status, databases={**(status.databases or {}), **result})
        return replace(status, accounts={**(status.accounts or {}), **result})
    if isinstance(move, Tune) and move.effect == "Try":
        return refused(status, message)
    return replace(status, retry=failed(snapshot.status.retry, move, message, snapshot.now))
