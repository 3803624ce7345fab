"""The rules: from one look at a cluster to the next safe step. Pure.

The order is the order of importance. Servers at their gate first, for they may be all there is; then the
cluster is founded, or healed; only a whole one is scaled, and only one at rest gets new pods. Each rule looks at
what there is and nothing else, so that a step interrupted anywhere is simply taken again.
"""

from __future__ import annotations

from mooring.operators.redis.cluster.balance import rebalance
from mooring.operators.redis.cluster.certificates import change_certificates
from mooring.operators.redis.cluster.failover import hand_over, outrank, relieve, replace_hung, rescue
from mooring.operators.redis.cluster.founding import answering, foreign_data, found
from mooring.operators.redis.cluster.gate import release
from mooring.operators.redis.cluster.halfway import settle
from mooring.operators.redis.cluster.load import follow, ownership
from mooring.operators.redis.cluster.loss import found_again
from mooring.operators.redis.cluster.members import attach_spare, forget, mesh, re_attach
from mooring.operators.redis.cluster.moves import InSync, Move, Paused, Verdict, Wait
from mooring.operators.redis.cluster.pair import pair
from mooring.operators.redis.cluster.passwords import change_password
from mooring.operators.redis.cluster.restoring import next_restore
from mooring.operators.redis.cluster.retries import spaced
from mooring.operators.redis.cluster.roll import roll, turn_back
from mooring.operators.redis.cluster.scale import scale
from mooring.operators.redis.cluster.slots import ALL, count, show
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.strangers import expel
from mooring.operators.redis.cluster.stuck import pods_starting, replace_stuck, troubles
from mooring.operators.redis.cluster.users import change_users
from mooring.operators.redis.passwords.plan import locked_out

__all__ = ["next_step"]


def next_step(snapshot: Snapshot) -> Verdict:
    """What to do now; a corrected declaration comes after all that heals, and before any waiting.

    Users and a password change while there is nothing else to do, and a step that failed may have to wait for its next try.
    Only where all of that is at rest, load and size of the data count.
    """
    verdict = _first_of_all(snapshot)
    if isinstance(verdict, Wait):
        verdict = replace_stuck(snapshot) or verdict
    if snapshot.wanted.paused:
        todo = f"; {verdict.name} is not done: {verdict.why}" if isinstance(verdict, Move) else ""
        message = f"spec.pause: nothing is changed{todo}"
        return Paused(reason="Paused", message=message, decided=verdict)
    changed = change_users(snapshot, change_password(snapshot, verdict))
    decided = spaced(snapshot, change_certificates(snapshot, changed))
    if isinstance(decided, InSync) and snapshot.recorded.formed and snapshot.blocked is None:
        return follow(snapshot) or rebalance(snapshot) or decided
    return decided


def _first_of_all(snapshot: Snapshot) -> Verdict:
    if snapshot.wanted.nodes == 2:
        return pair(snapshot)
    if snapshot.recorded.formed and (locked := find_locked(snapshot)):
        return locked
    founding = (release, found)
    running = (release, found_again, heal, turn_back, next_restore, ownership, scale, waiting, roll)
    rules = running if snapshot.recorded.formed else founding
    for rule in rules:
        verdict = rule(snapshot)
        if verdict is not None:
            return verdict
    return InSync()


def find_locked(snapshot: Snapshot) -> Wait | None:
    """Servers that take no password of ours, where nobody answers who would."""
    if any(one.server or one.gate for one in snapshot.seen.nodes):
        return None
    return locked_out(snapshot.password, [one.name for one in snapshot.seen.nodes if one.locked])


def heal(snapshot: Snapshot) -> Verdict | None:
    """Everybody reachable, every slot served, every replica where it belongs."""
    handed = hand_over(snapshot)
    if handed is not None and not isinstance(handed, Wait):
        return handed
    for rule in (
        mesh,
        rescue,
        replace_hung,
        relieve,
        outrank,
        re_attach,
        expel,
        forget,
        attach_spare,
        settle,
    ):
        if verdict := rule(snapshot):
            return verdict
    return handed


def waiting(snapshot: Snapshot) -> Verdict | None:
    """What keeps a cluster from being whole although nothing can be done about it now."""
    if snapshot.seen.foreign:
        return foreign_data(snapshot)
    if lost := snapshot.seen.absent_owners:
        slots = sum(count(part) for part in lost.values())
        return Wait(
            reason="SlotsWithoutOwner",
            message=f"{slots} slots have no live owner{troubles(snapshot)}",
            after=0.5,
            stalled=not snapshot.missing or bool(snapshot.unmade),
        )
    if not snapshot.complete:
        return pods_starting(snapshot, answering=answering(snapshot))
    if left := ALL & ~snapshot.seen.covered:
        return Wait(
            reason="SlotsWithoutOwner",
            message=f"no node owns the slots {show(left)}; assign them by CLUSTER ADDSLOTSRANGE",
            after=2.0,
            stalled=True,
        )
    if verdict := snapshot.agreeing():
        return verdict
    for one in snapshot.seen.live:
        if one.server.loading or (one.master and (one.server.syncing or not one.server.link_up)):
            return Wait(reason="Synchronising", message=f"{one.name} is not in sync yet", after=0.5)
    return None
