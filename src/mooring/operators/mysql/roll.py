"""Rolling out a new pod template: what `workload.rollout` needs to know about MySQL and MariaDB.

The template is written only over a cluster that is whole. Replicas are recreated one by one, each in sync and
acknowledging again before the next; then the primary hands over to one of them. A version older than the data is refused,
and one that leaves out a series that has to be run between; another image is started once on empty data before any pod is touched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from msgspec.structs import replace as changed

from mooring.operators.mysql import replication
from mooring.operators.mysql.flavors import told_by, version_of
from mooring.operators.mysql.moves import Record, TryImage, Verdict, Wait, WriteTemplate
from mooring.operators.mysql.names import COMPONENT
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.mysql.versions import is_older, next_stop, series
from mooring.operators.workload.rollout import HandOver, RecordRolls, Rollout, hopeless

__all__ = ["advance", "begin", "end", "halted", "refused", "unblock"]

V = TypeVar("V")


def begin(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Try another image, record what runs now, then write the template; not over pods that are starting."""
    rollout, trial = _rollout(snapshot), snapshot.observed.trial
    readable = not _cannot_read(snapshot)
    tried = trial is None or trial.state == "Passed"
    found = rollout.begin(allowed=readable and tried, wait=rollout.starting())
    if found is not None or trial is None or not readable:
        return _recorded(snapshot, found)
    image = snapshot.wanted.image
    if trial.state == "Due":
        return TryImage(image=image, why=f"{image} is started once on empty data before any pod is touched")
    if trial.state == "Running":
        return Wait("TrialRunning", trial.message or f"{image} is started on empty data", after=0.5)
    return None


def advance(snapshot: Snapshot, member: Member, server: Server) -> Verdict | HandOver | None:
    """Recreate the replicas, one planned switch, then the old primary's pod."""
    if snapshot.wanted.on_delete:
        return None
    rollout = _rollout(snapshot)
    rollout = replace(
        rollout,
        working=frozenset(
            one.name for one, it in snapshot.replicas if it.seeding or not snapshot.counts(one)
        ),
    )
    wait = _not_whole(snapshot, rollout.state.update_revision)
    found = rollout.advance(wait=wait, leading={member.name})
    if isinstance(found, HandOver) and snapshot.wanted.size == 1:
        return rollout.recreate(member.pod, f"{found.why}; there is no replica to take over")
    return _recorded(snapshot, found)


def end(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Forget a roll-out once every pod runs the new template."""
    return _recorded(snapshot, _rollout(snapshot).end())


def halted(snapshot: Snapshot) -> Wait | None:
    """What is declared was tried and does not work."""
    return _rollout(snapshot).halt()


def refused(snapshot: Snapshot) -> Wait | None:
    """An image that cannot read the data, or did not start with the configuration, is not rolled out at all."""
    if snapshot.observed.set.current:
        return None
    if why := _cannot_read(snapshot):
        return Wait("VersionRefused", f"spec.image: {why}; nothing was changed", after=10.0, stalled=True)
    trial = snapshot.observed.trial
    if trial is None or trial.state != "Failed":
        return None
    text = f"{snapshot.wanted.image} was tried beside the cluster: {trial.message}; no pod was touched"
    return Wait("TrialFailed", text, after=5.0, stalled=True)


def unblock(snapshot: Snapshot) -> Verdict | None:
    """No server runs and some cannot: give them a corrected template, or report what is wrong."""
    rollout = _rollout(snapshot)
    stuck = [pod for pod in rollout.pods if hopeless(pod, snapshot.now)]
    if not stuck:
        return None
    if not rollout.state.current and not _cannot_read(snapshot):
        return WriteTemplate(component=COMPONENT, why="no server runs with the template there is")
    for pod in rollout.old:
        if pod in stuck and not pod.terminating:
            return rollout.recreate(pod, f"its old template cannot run: {pod.trouble}")
    if any(snapshot.at_gate(one) for one in snapshot.topology.members):
        return None
    pod = stuck[0]
    return Wait(pod.trouble, f"{pod.name}: {pod.trouble_message}", after=2.0, stalled=True)


def _recorded(snapshot: Snapshot, found: V | RecordRolls) -> V | Record:
    """Roll-outs are recorded by this operator's own move."""
    if isinstance(found, RecordRolls):
        return Record(status=changed(snapshot.status, rolls=dict(found.rolls) or None), why=found.why)
    return found


def _rollout(snapshot: Snapshot) -> Rollout:
    return Rollout(
        component=COMPONENT,
        state=snapshot.observed.set,
        pods=[one.pod for one in snapshot.topology.members],
        rolls=snapshot.status.rolls or {},
        now=snapshot.now,
    )


def _not_whole(snapshot: Snapshot, revision: str) -> Wait | None:
    """The next pod is recreated when all others serve, and writes are acknowledged as they should be."""
    wanted = [one for one in snapshot.topology.members if one.pod.ordinal < snapshot.wanted.size]
    for one in wanted:
        if one.pod.terminating:
            return Wait("RollWaiting", f"{one.name} is on its way out", after=0.3)
        leads = one.name == snapshot.primary and one.server is not None
        if not leads and (why := replication.behind(snapshot, one)):
            return Wait("RollWaiting", why, after=0.3)
        if one.pod.revision == revision and one.pod.trouble:
            return Wait("RollWaiting", f"{one.name} is not in service yet", after=0.3)
    if len(wanted) < snapshot.wanted.size:
        return Wait("RollWaiting", "the last pod is not back yet", after=0.3)
    return None


def _newest(snapshot: Snapshot) -> str:
    versions = [it.version for _, it in snapshot.topology.answering]
    versions += [one.version for one in (snapshot.status.members or {}).values()]
    return max(versions, key=series, default="")


def _cannot_read(snapshot: Snapshot) -> str:
    """Why the declared image cannot read the data; "" where it can, as far as its name tells."""
    image, newest, told = snapshot.wanted.image, _newest(snapshot), told_by(snapshot.wanted.image)
    if told is not None and newest and told != snapshot.wanted.flavor:
        return f"{image} is no {snapshot.wanted.flavor}, whose data this is; move it by a dump into a new cluster"
    if is_older(version_of(image), newest):
        return (
            f"{image} is older than {newest}, which wrote the data; give {newest} or a later version, or restore a backup "
            "into a new cluster"
        )
    if stop := next_stop(snapshot.wanted.flavor, newest, version_of(image)):
        return f"{image} is more than one upgrade away from {newest}; give {stop} first"
    return ""
