"""How the number of log stores changes: out at once, in one by one with a membership change each. Pure."""

from __future__ import annotations

from mooring.actor.verdict import Move, Wait
from mooring.operators.matrixone.identity import log_uuid
from mooring.operators.matrixone.logset.moves import DeleteClaim
from mooring.operators.matrixone.logset.quorum import unsettled
from mooring.operators.matrixone.logset.snapshot import Snapshot
from mooring.operators.workload.moves import Resize

__all__ = ["COMPONENT", "give_up_claims", "scale"]

COMPONENT = "log"


def scale(snapshot: Snapshot) -> Move | Wait | None:
    """The next step from the pods that the StatefulSet is asked for to those that are declared."""
    placed, wanted = snapshot.placed, snapshot.replicas
    if placed is None or placed == wanted:
        return None
    if placed < wanted:
        return Resize(component=COMPONENT, replicas=wanted, why=f"{wanted} stores are declared")
    if wanted == 0:
        return Resize(component=COMPONENT, replicas=0, why="no store is declared: the log service is stopped")
    if wanted < snapshot.shard_replicas:
        text = (
            f"spec.replicas: {wanted} stores cannot hold {snapshot.shard_replicas} replicas of each shard; "
            f"give {snapshot.shard_replicas} or more"
        )
        return Wait("ScaleRefused", text, after=30.0, stalled=True)
    highest = log_uuid(placed - 1)
    if snapshot.view is None:
        return Wait("ScaleWaiting", f"HAKeeper does not answer: {snapshot.error}", after=1.0)
    name = f"store {placed - 1}"
    if not sorted(snapshot.view.shards_of(highest)):
        return Resize(component=COMPONENT, replicas=placed - 1, why=f"{name} is a member of no shard")
    if text := unsettled(snapshot):
        return Wait("ScaleWaiting", f"{name} may not leave yet: {text}", after=1.0)
    why = f"{name} leaves; HAKeeper gives its place in the shards to another store"
    return Resize(component=COMPONENT, replicas=placed - 1, why=why)


def give_up_claims(snapshot: Snapshot) -> Move | Wait | None:
    """Delete the claims of stores that left, once no shard needs them and every shard has all its members."""
    if snapshot.placed is None or snapshot.replicas == 0:
        return None
    left = sorted(at for at, one in snapshot.claims.items() if at >= snapshot.placed and not one.terminating)
    if not left:
        return None
    if any(one.pod.ordinal >= snapshot.placed for one in snapshot.members):
        return Wait("StoreLeaving", "a store ends", after=1.0)
    if snapshot.view is None:
        return Wait("StoreLeaving", f"HAKeeper does not answer: {snapshot.error}", after=1.0)
    for at in left:
        if shards := sorted(snapshot.view.shards_of(log_uuid(at))):
            text = (
                f"store {at} was stopped and is still a member of the shards {shards}: HAKeeper replaces it after its "
                "timeout (log-store-timeout, 5 minutes by default); its claim is kept until then"
            )
            return Wait("StoreLeaving", text, after=2.0)
    if snapshot.keeps_claims:
        return None
    if text := unsettled(snapshot):
        return Wait("StoreLeaving", f"the claim of store {left[-1]} is kept: {text}", after=1.0)
    claim = snapshot.claims[left[-1]]
    return DeleteClaim(claim=claim, why=f"{claim.name} belongs to a store that has left")
