"""The next safe move of a CNSet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooring.actor.verdict import InSync, Move, Verdict, Wait
from mooring.kube.quantity import parse_quantity
from mooring.operators.matrixone.cnset.drain import hand_over_in_time, leave
from mooring.operators.matrixone.cnset.gates import gate
from mooring.operators.matrixone.cnset.members import due, failed_pod, leaving, revision_for_new, staying
from mooring.operators.matrixone.cnset.moves import CreatePod, DeleteStore, Drain, SetWorking
from mooring.operators.matrixone.cnset.pooling import mark, returning, tend, warm
from mooring.operators.matrixone.cnset.snapshot import Member, Snapshot
from mooring.operators.matrixone.logset.moves import DeleteClaim, GrowClaim
from mooring.operators.matrixone.logset.snapshot import HEARD_WITHIN
from mooring.operators.matrixone.pool.labels import BOUND, TERMINATING
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.operators.workload.rollout import hopeless
from mooring.operators.workload.waits import while_paused

__all__ = ["LOOK_AGAIN", "PAUSE", "decide"]

PAUSE: Final = "mooring.dev/pause"
LOOK_AGAIN: Final = 15.0
"""Seconds between two reconciles at rest: no watch reports what HAKeeper sees."""


def decide(snapshot: Snapshot) -> Verdict:
    """What is to be done, or what would be where the set is paused."""
    verdict = _decide(snapshot)
    return while_paused(verdict, PAUSE) if snapshot.paused else verdict


def _decide(snapshot: Snapshot) -> Verdict:
    """Stores first: what serves and what does not is said at once. Then new pods, since nothing goes before its successor serves."""
    going = due(snapshot)
    step = (
        _forget(snapshot)
        or _spare_sessions(snapshot)
        or mark(snapshot, leaving(snapshot))
        or tend(snapshot, going)
        or _bring_back(snapshot, going)
        or _set_aside(snapshot)
        or _gates(snapshot)
        or _create(snapshot, going)
    )
    if step is not None:
        return step
    waits: list[Wait] = []
    for verdict in _departures(snapshot, going):
        if isinstance(verdict, Move):
            return verdict
        waits.append(verdict)
    return _rest(snapshot, waits)


def _forget(snapshot: Snapshot) -> Move | None:
    """Stores whose process is gone: HAKeeper would send sessions there for another 30 s, and refuses their next drain."""
    for gone in snapshot.gone:
        store = snapshot.view.cns.get(gone.uuid) if snapshot.view is not None else None
        if store is not None:
            return DeleteStore(uuid=gone.uuid, pod=gone.pod, why=f"{gone.pod} is gone")
    return None


def _spare_sessions(snapshot: Snapshot) -> Move | None:
    """A pod that somebody deleted: while it waits in its preStop hook, the proxies move its sessions and it gives its locks away."""
    for member in snapshot.members:
        store = member.store
        if not member.pod.terminating or store is None or store.heard > HEARD_WITHIN:
            continue
        if store.state is WorkState.WORKING:
            why = f"{member.pod.name} is being deleted"
            return Drain(pod=member.pod.name, uid=member.pod.uid, uuid=member.uuid, why=why)
        if step := hand_over_in_time(snapshot, member):
            return step
    return None


def _bring_back(snapshot: Snapshot, going: Mapping[str, str]) -> Move | None:
    """Stores that are to serve and do not, such as new ones and those whose drain is taken back; and their labels."""
    for member in () if snapshot.pooled else snapshot.alive:
        if member.pod.name in going or member.set_aside or not snapshot.heard(member):
            continue
        store = member.store
        assert store is not None
        if store.state is not WorkState.WORKING or member.draining_since is not None:
            why = f"{member.pod.name} is to serve" + (" again" if member.draining_since else "")
        elif dict(store.labels) != dict(snapshot.labels):
            why = f"{member.pod.name} has other labels than declared"
        else:
            continue
        pod = member.pod
        return SetWorking(pod=pod.name, uid=pod.uid, uuid=member.uuid, labels=snapshot.labels, why=why)
    return None


def _set_aside(snapshot: Snapshot) -> Move | None:
    """Pods that a person asked to serve nobody; they stay."""
    for member in snapshot.alive:
        if member.set_aside and snapshot.serves(member):
            why = f"{member.pod.name} was set aside by its annotation"
            return Drain(pod=member.pod.name, uid=member.pod.uid, uuid=member.uuid, why=why)
    return None


def _gates(snapshot: Snapshot) -> Move | None:
    """The next gate that is not as it has to be."""
    return next((step for one in snapshot.alive if (step := gate(snapshot, one)) is not None), None)


def _create(snapshot: Snapshot, going: Mapping[str, str]) -> Move | None:
    stay = staying(snapshot, going)
    room = snapshot.replicas + max(snapshot.surge, 0 if snapshot.unavailable else 1) - len(snapshot.alive)
    if len(stay) >= snapshot.replicas or room <= 0:
        return None
    if snapshot.waiting and not snapshot.alive and not snapshot.begun:
        return None
    used = {one.id for one in snapshot.members}
    free = sorted(at for at, claim in snapshot.claims.items() if at not in used and not claim.terminating)
    taken = used | set(snapshot.claims)
    unused = (str(at) for at in range(len(taken) + 1) if str(at) not in taken)
    id = free[0] if free else next(unused)
    return CreatePod(
        id=id,
        revision=revision_for_new(snapshot),
        why=f"{len(stay)} of {snapshot.replicas} compute nodes are there",
    )


def _departures(snapshot: Snapshot, going: Mapping[str, str]) -> list[Move | Wait]:
    """The next step of every pod that has to go: those that drain already first."""
    members = {one.pod.name: one for one in snapshot.alive}
    if snapshot.pooled and snapshot.ending is None:
        going = {
            name: why
            for name, why in going.items()
            if members[name].phase == TERMINATING or not members[name].pod.running
        }
    order = sorted(going, key=lambda name: (not members[name].draining, snapshot.heard(members[name])))
    serving = {one.pod.name for one in snapshot.alive if snapshot.known(one)}
    return [leave(snapshot, members[name], going[name], others=len(serving - {name})) for name in order]


def _rest(snapshot: Snapshot, waits: list[Wait]) -> Verdict:
    """Nothing is to be done now: what is waited for, or claims that are of no use any more."""
    if failed := failed_pod(snapshot):
        text = failed.pod.trouble_message or "it does not register; its log and events say why"
        reason = failed.pod.trouble or "NotInTime"
        message = (
            f"{failed.pod.name} does not come up ({reason}: {text}); no other pod is touched until the spec or what it "
            "names is corrected"
        )
        return Wait("RollHalted" if _mixed(snapshot) else reason, message, after=2.0, stalled=True)
    if waits:
        return waits[0]
    if snapshot.waiting and not snapshot.alive and snapshot.replicas:
        return Wait("DependenciesNotReady", snapshot.waiting, after=30.0)
    for member in snapshot.members:
        if wait := _not_there(snapshot, member):
            return wait
    if snapshot.view is None and snapshot.replicas:
        return Wait("HAKeeperUnknown", f"HAKeeper does not answer: {snapshot.error}", after=2.0)
    if snapshot.waiting and _mixed(snapshot):
        return Wait(
            "DependenciesNotReady", f"pods are rolled once it is ready: {snapshot.waiting}", after=5.0
        )
    if snapshot.pause_update and any(one.revision != snapshot.revision for one in snapshot.alive):
        return InSync("spec.pauseUpdate holds back the roll-out", again=LOOK_AGAIN)
    if moving := [one.pod.name for one in snapshot.alive if one.phase == BOUND and one.leaves]:
        text = f"claims move to other pods, and leave {', '.join(moving[:5])}"
        return Wait("ClaimsMoving", text, after=5.0)
    return _give_up_claims(snapshot) or _grow(snapshot) or InSync(again=_again(snapshot))


def _again(snapshot: Snapshot) -> float:
    """Seconds until the next look: what the load calls for is due earlier, as a rule."""
    after = snapshot.scaling.after if snapshot.scaling is not None else None
    return LOOK_AGAIN if after is None else min(LOOK_AGAIN, max(1.0, after))


def _mixed(snapshot: Snapshot) -> bool:
    return any(one.revision != snapshot.revision for one in snapshot.alive)


def _not_there(snapshot: Snapshot, member: Member) -> Wait | None:
    pod = member.pod
    if pod.terminating:
        return Wait("PodsEnding", f"{pod.name} ends", after=1.0)
    if member.set_aside or snapshot.serves(member) or (snapshot.pooled and warm(snapshot, member)):
        return None
    if wait := returning(member):
        return wait
    stuck = hopeless(pod, snapshot.now)
    if (
        member.store is None
        or member.store.state not in (WorkState.DRAINING, WorkState.DRAINED, WorkState.WORKING)
        or not pod.running
    ):
        text = pod.trouble_message or (
            snapshot.error if snapshot.view is None else "it has not registered yet"
        )
        return Wait(pod.trouble if stuck else "PodsStarting", f"{pod.name}: {text}", after=1.0, stalled=stuck)
    return Wait("PodsStarting", f"{pod.name} is not heard", after=1.0)


def _give_up_claims(snapshot: Snapshot) -> Move | None:
    """Claims that no pod uses hold caches alone; they go when the set is at rest, unless they are to be used again."""
    if snapshot.reuses_claims:
        return None
    used = {one.id for one in snapshot.members}
    for at, claim in sorted(snapshot.claims.items()):
        if at not in used and not claim.terminating:
            return DeleteClaim(claim=claim, why=f"{claim.name} holds the cache of a pod that is gone")
    return None


def _grow(snapshot: Snapshot) -> Move | None:
    for claim in snapshot.claims.values():
        if claim.terminating or not snapshot.size or not claim.size:
            continue
        if parse_quantity(claim.size) < parse_quantity(snapshot.size):
            return GrowClaim(claim=claim, size=snapshot.size, why=f"{claim.name} has {claim.size}")
    return None
