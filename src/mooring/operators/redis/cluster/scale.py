"""More nodes and fewer: grow, join, move; or drain, verify, forget, shrink. Pure rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.operators.redis.cluster.moves import (
    Attach,
    MoveSlots,
    Record,
    Resize,
    Retire,
    Unfollow,
    Verdict,
    Wait,
)
from mooring.operators.redis.cluster.placement import choose_masters
from mooring.operators.redis.cluster.slots import (
    ALL,
    Slots,
    Transfer,
    after,
    count,
    drain,
    level,
    level_sizes,
    parse,
    show,
    take,
)
from mooring.operators.redis.cluster.snapshot import target_of
from mooring.operators.redis.cluster.types import SlotPlan, SlotRange

if TYPE_CHECKING:
    from mooring.operators.redis.cluster.snapshot import Snapshot
    from mooring.operators.redis.cluster.topology import Live

__all__ = ["head_of", "moved_of", "newcomers", "record_plan", "scale"]


def head_of(snapshot: Snapshot, id: str) -> str:
    """The master of a node's shard: itself, or the one it follows since it was dead for a while; "" if unknown."""
    one = snapshot.seen.by_id.get(id)
    return "" if one is None else one.master or one.id


def newcomers(snapshot: Snapshot) -> list[Live]:
    """Nodes without slots that are about to become masters, by ordinal."""
    if not snapshot.recorded.formed or snapshot.wanted.pods > snapshot.wanted.nodes:
        return []
    missing = snapshot.masters - len(snapshot.owners) - len(snapshot.seen.absent_owners)
    if missing <= 0:
        return []
    planned = {one.target for one in (snapshot.recorded.plan.moves if snapshot.recorded.plan else None) or ()}
    fixed = [one.name for one in snapshot.owners] + [one.name for one in snapshot.spare if one.id in planned]
    candidates = [snapshot.place(one) for one in (*snapshot.owners, *snapshot.spare)]
    names = choose_masters(candidates, number=len(snapshot.owners) + missing, fixed=fixed)
    return [one for one in snapshot.spare if one.name in names]


def scale(snapshot: Snapshot) -> Verdict | None:
    """The next step from the nodes there are to those that are wanted."""
    if snapshot.recorded.plan is not None:
        return _go_on(snapshot, snapshot.recorded.plan)
    if snapshot.wanted.pods < snapshot.wanted.nodes:
        return Resize(
            component="redis",
            replicas=snapshot.wanted.nodes,
            why=f"{snapshot.wanted.nodes} nodes are declared, {snapshot.wanted.pods} there",
        )
    if snapshot.wanted.pods > snapshot.wanted.nodes:
        return _shrink(snapshot)
    if not snapshot.complete or snapshot.seen.covered != ALL:
        return None
    return _even_out(snapshot) if len(snapshot.owners) >= snapshot.masters else _grow(snapshot)


# --- out ---------------------------------------------------------------------------------------------------


def _grow(snapshot: Snapshot) -> Verdict | None:
    new = newcomers(snapshot)
    if len(snapshot.owners) + len(new) < snapshot.masters:
        return _free_a_replica(snapshot)
    if verdict := snapshot.agreeing():
        return verdict
    owned: dict[str, Slots] = dict(snapshot.seen.owners)
    transfers: list[Transfer] = []
    if snapshot.wanted.named:
        if len(snapshot.wanted.strategies) < len(new):
            message = (
                f"spec.updateStrategy.assignStrategies: {len(snapshot.wanted.strategies)} entries for {len(new)} masters "
                "without slots; give one for each"
            )
            return Wait(reason="InvalidArgs", message=message, after=10.0, stalled=True)
        # An earlier attempt may have served the first entries: the last ones are for those without slots.
        for one, entry in zip(new, snapshot.wanted.strategies[-len(new) :], strict=True):
            # Whom they named may have been replaced by its replica since.
            sources = [head_of(snapshot, name) or name for name in entry.sources]
            try:
                part = take(owned, target=one.id, number=entry.slots or 0, sources=sources)
            except ValueError as error:
                message = f"spec.updateStrategy.assignStrategies: {error}; correct the entry"
                return Wait(reason="InvalidArgs", message=message, after=10.0, stalled=True)
            owned = after(owned, part)
            transfers += part
        return record_plan(snapshot, "Reshard", transfers)
    shared = {**owned, **{one.id: 0 for one in new}}
    return record_plan(snapshot, "Rebalance", _by_size(snapshot, shared) or level(shared))


def _by_size(snapshot: Snapshot, shared: dict[str, Slots]) -> list[Transfer]:
    """The slots of new masters by the size of their data; none where sizes are not known, or one would get nothing."""
    if not snapshot.wanted.by_size or not snapshot.sizes:
        return []
    transfers = level_sizes(shared, snapshot.sizes)
    return transfers if all(after(shared, transfers).values()) else []


def _free_a_replica(snapshot: Snapshot) -> Verdict | None:
    """A scale-in that was taken back leaves replicas where masters were: one too many becomes a master again."""
    have = snapshot.replicas()
    over = [
        one for one in snapshot.seen.live if one.master and have[one.master] > 1 and snapshot.stays(one.node)
    ]
    if not over:
        return None
    last = max(over, key=lambda one: (have[one.master], one.node.pod.ordinal))
    return Unfollow(target=target_of(last), why=f"{last.name} becomes a master again")


# --- in ----------------------------------------------------------------------------------------------------


def _shrink(snapshot: Snapshot) -> Verdict | None:
    if snapshot.missing or snapshot.seen.covered != ALL:
        return None  # healed first: a node that is down for a moment is no reason to drain another
    surplus = len(snapshot.owners) - snapshot.masters
    if surplus > 0:
        if verdict := snapshot.agreeing():
            return verdict
        last = sorted(snapshot.owners, key=lambda one: -one.node.pod.ordinal)[:surplus]
        return record_plan(snapshot, "Drain", drain(snapshot.seen.owners, [one.id for one in last]))
    for one in snapshot.owners:
        if not snapshot.stays(one.node):
            return _move_out(snapshot, one)
    leaving = [one for one in snapshot.seen.live if not snapshot.stays(one.node)]
    ids = {one.id for one in leaving}
    rest = [one for one in snapshot.seen.live if snapshot.stays(one.node)]
    if any(ids & set(one.server.peers) for one in rest):
        if verdict := snapshot.agreeing():
            return verdict  # a node that forgets one at which it still sees slots refuses its clients
        if kept := _without_copy(snapshot, ids):
            message = f"the shard of {kept} has no other replica in sync yet"
            return Wait(reason="Synchronising", message=message, after=0.3)
        return Retire(
            leavers=tuple(target_of(one) for one in leaving),
            rest=tuple(target_of(one) for one in rest),
            why=f"{', '.join(one.name for one in leaving)} has no slots left",
        )
    return Resize(
        component="redis",
        replicas=snapshot.wanted.nodes,
        why="the leaving nodes have no slots and are forgotten everywhere",
    )


def _move_out(snapshot: Snapshot, master: Live) -> Verdict:
    """A master on a pod that goes hands over to a replica on one that stays."""
    staying = [one for one in snapshot.seen.replicas_of(master.id) if snapshot.stays(one.node)]
    ready = [one for one in staying if one.server.link_up and not one.server.syncing]
    if ready:
        best = max(ready, key=lambda one: one.server.offset)
        return snapshot.promote(best, "", why=f"{master.name} leaves, and {best.name} stays")
    if staying:
        return Wait(
            reason="Synchronising", message=f"{staying[0].name} is to follow {master.name}", after=0.3
        )
    have = snapshot.replicas(staying=True)
    for one in sorted(snapshot.seen.live, key=lambda one: -have[one.master]):
        master_stays = (head := snapshot.seen.by_id.get(one.master)) is not None and snapshot.stays(head.node)
        if one.master and snapshot.stays(one.node) and (master_stays or have[one.master] > 1):
            why = f"{master.name} leaves, and none of its replicas stays"
            return Attach(pairs=((target_of(one), master.id),), why=why)
    return Wait(reason="ScaleInBlocked", message=f"no replica can take over from {master.name}", stalled=True)


def _without_copy(snapshot: Snapshot, leaving: set[str]) -> str:
    """A master that would be without a replica in sync when these are gone; "" when there is none."""
    for one in snapshot.owners:
        followers = snapshot.seen.replicas_of(one.id)
        if not any(other.id in leaving for other in followers):
            continue
        if not any(other.id not in leaving and other.server.link_up for other in followers):
            return one.name
    return ""


def _even_out(snapshot: Snapshot) -> Verdict | None:
    """No shard without a replica while another has two."""
    if snapshot.spare:
        return None
    have = snapshot.replicas()
    bare = [one for one in snapshot.owners if not have[one.id]]
    rich = [one for one in snapshot.seen.live if one.master and have[one.master] > 1]
    if not bare or not rich:
        return None
    last = max(rich, key=lambda one: (have[one.master], one.node.pod.ordinal))
    return Attach(pairs=((target_of(last), bare[0].id),), why=f"{bare[0].name} has no replica")


# --- a plan under way --------------------------------------------------------------------------------------


def record_plan(snapshot: Snapshot, kind: str, transfers: list[Transfer], *, because: str = "") -> Record:
    """Write down which slots move, before any does."""
    total = sum(count(one.slots) for one in transfers)
    plan = SlotPlan(
        kind=kind,
        replicas=snapshot.wanted.nodes,
        moves=[SlotRange(slots=show(one.slots), source=one.source, target=one.target) for one in transfers],
        total=total,
        since=snapshot.now,
    )
    return Record(plan=plan, why=f"{kind}: {total} slots{because}")


def moved_of(snapshot: Snapshot, plan: SlotPlan) -> int:
    """Slots of a plan that are where they shall be: at the target, dead or alive, or at who took over from it."""
    total = 0
    for move in plan.moves or ():
        heir = _taker(snapshot, plan, move.target)
        at = heir.id if heir is not None else move.target
        there = snapshot.seen.owners.get(at, 0) | snapshot.seen.absent_owners.get(move.target, 0)
        total += count(parse(move.slots) & there)
    return total


def _go_on(snapshot: Snapshot, plan: SlotPlan) -> Verdict | None:
    if plan.replicas != snapshot.wanted.nodes:
        return Record(
            drop_plan=True, why=f"{snapshot.wanted.nodes} nodes are declared now, not {plan.replicas}"
        )
    if snapshot.seen.absent_owners:
        return None
    for move in plan.moves or ():
        wanted = parse(move.slots)
        target = _taker(snapshot, plan, move.target)
        if target is None:
            return _lost_target(snapshot, move)
        done = wanted & snapshot.seen.owners.get(target.id, 0)
        for owner in snapshot.owners:
            part = wanted & snapshot.seen.owners[owner.id] & ~done
            if not part or owner is target:
                continue
            if not done and (verdict := snapshot.agreeing()):
                return verdict
            return MoveSlots(
                transfer=Transfer(source=owner.id, target=target.id, slots=part),
                source=target_of(owner),
                target=target_of(target),
                masters=tuple(target_of(one) for one in snapshot.owners),
                pipeline=snapshot.wanted.pipeline,
                rate=snapshot.wanted.rate,
                why=f"{plan.kind}: {count(part)} slots from {owner.name} to {target.name}",
            )
    return Record(drop_plan=True, why=f"{plan.kind}: all {plan.total} slots are where they belong")


def _taker(snapshot: Snapshot, plan: SlotPlan, target: str) -> Live | None:
    """Who gets what is meant for a target: itself, or who took over from it."""
    one = snapshot.seen.by_id.get(target)
    return one if one is not None and one.is_master else _heir(snapshot, plan, target)


def _heir(snapshot: Snapshot, plan: SlotPlan, target: str) -> Live | None:
    """The successor of a target: the master it follows now, or the node with slots that were meant for it."""
    former = snapshot.seen.by_id.get(target)
    if former is not None and former.master in snapshot.seen.owners:
        return snapshot.seen.by_id[former.master]
    meant, sources = 0, set()
    for move in plan.moves or ():
        if move.target == target:
            meant |= parse(move.slots)
            sources.add(move.source)
    return next(
        (one for one in snapshot.owners if one.id not in sources and snapshot.seen.owners[one.id] & meant),
        None,
    )


def _lost_target(snapshot: Snapshot, move: SlotRange) -> Verdict | None:
    """The node that was to get slots is gone before it got any."""
    node = snapshot.node_of(move.target)
    if node is not None and node.server is None:
        return None  # it may come back with its id
    return Record(drop_plan=True, why=f"{move.target} is gone; the slots are planned again")
