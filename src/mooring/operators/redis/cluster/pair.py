"""Two nodes: a plain master and its replica, without slots and without votes. Pure rules.

Every server starts as a replica of an address where nobody lives, so none serves by itself. Who leads is written down
before it is told to; after a restart of both, the one that was written down leads again if it has its data.
"""

from __future__ import annotations

from mooring.operators.redis.cluster.moves import (
    Follow,
    HandOver,
    InSync,
    Record,
    Verdict,
    Wait,
)
from mooring.operators.redis.cluster.roll import next_pod, turn_back
from mooring.operators.redis.cluster.snapshot import Snapshot, target_of
from mooring.operators.redis.cluster.stuck import pods_starting, troubles
from mooring.operators.redis.cluster.topology import Node
from mooring.operators.workload import rollout

__all__ = ["leader_of", "pair"]


def leader_of(snapshot: Snapshot) -> Node | None:
    """The one server that leads; None while there is none, or two claim to."""
    leaders = _leaders(snapshot)
    return leaders[0] if len(leaders) == 1 else None


def pair(snapshot: Snapshot) -> Verdict:
    """What to do now for a master and its replica."""
    leaders = _leaders(snapshot)
    if not leaders:
        return _choose(snapshot)
    named = [one for one in leaders if one.name == snapshot.recorded.leader]
    if len(leaders) > 1 and not named:
        return Wait(
            reason="TwoMasters",
            message=f"{leaders[0].name} and {leaders[1].name} both lead, and neither is recorded as the leader; make one follow the other",
            after=5.0,
            stalled=True,
        )
    leader = (named or leaders)[0]
    if snapshot.recorded.leader != leader.name:
        return Record(leader=leader.name, why=f"{leader.name} leads")
    for one in _answering(snapshot):
        if one is not leader and one.server is not None and one.server.master != leader.address:
            return Follow(
                target=target_of(one), leader=leader.address, why=f"{one.name} follows {leader.name}"
            )
    if snapshot.recorded.formed and (verdict := turn_back(snapshot)):
        return verdict
    others = [one for one in _answering(snapshot) if one is not leader]
    if not others:
        return Wait(
            reason="ReplicaMissing",
            message=f"only {leader.name} answers{troubles(snapshot)}",
            after=1.0,
            stalled=bool(snapshot.unmade),
        )
    if any(one.server is None or not one.server.link_up or one.server.syncing for one in others):
        return Wait(reason="Synchronising", message=f"{others[0].name} is not in sync yet", after=0.5)
    if not snapshot.recorded.formed:
        return Record(formed=True, why="a master and its replica are in sync")
    return _roll(snapshot, leader, others[0]) or InSync()


def _roll(snapshot: Snapshot, leader: Node, replica: Node) -> Verdict | None:
    """New pods: the replica's first, then the leader's after it handed over; nothing while one of them is leaving."""
    leaving = next((one for one in (leader, replica) if one.pod.terminating), None)
    if leaving is replica:
        return Wait(reason="PodsStarting", message=f"the pod of {replica.name} is being deleted", after=0.5)
    if leaving is leader:
        return _hand_over(leader, replica, why=f"the pod of {leader.name} is being deleted")
    verdict = next_pod(snapshot, [leader, replica], leading=[leader.name])
    if isinstance(verdict, rollout.HandOver):
        return _hand_over(leader, replica, why=f"{leader.name} must be recreated")
    return verdict


def _hand_over(leader: Node, replica: Node, *, why: str) -> HandOver:
    version = leader.server.version if leader.server is not None else ""
    return HandOver(leader=target_of(leader), heir=target_of(replica), version=version, why=why)


def _answering(snapshot: Snapshot) -> list[Node]:
    return [one for one in snapshot.seen.nodes if one.server is not None and not one.server.clustered]


def _leaders(snapshot: Snapshot) -> list[Node]:
    return [one for one in _answering(snapshot) if one.server is not None and one.server.role == "master"]


def _keys(node: Node) -> int:
    return node.server.keys if node.server is not None else 0


def _choose(snapshot: Snapshot) -> Verdict:
    """Nobody leads: a new pair, or both have restarted, or the leader is gone."""
    answering = [one for one in _answering(snapshot) if one.server is not None and not one.server.loading]
    recorded = next((one for one in answering if one.name == snapshot.recorded.leader), None)
    others = [one for one in answering if one is not recorded]
    if not snapshot.recorded.leader:
        return _begin(snapshot, answering)
    if recorded is not None:
        if _keys(recorded) or (all(not _keys(one) for one in others) and len(answering) == 2):
            return _lead(snapshot, recorded)
        if others and _keys(others[0]):
            return _lead(snapshot, others[0])
        return Wait(
            reason="DataUnreachable",
            message=f"{recorded.name} came back empty and the other one does not answer; bring it back",
            stalled=True,
        )
    absent = next((one for one in snapshot.seen.nodes if one.name == snapshot.recorded.leader), None)
    if others and _followed(others[0], absent) and snapshot.gone_for_sure(absent):
        return _lead(snapshot, others[0])
    return Wait(
        reason="AwaitingMaster", message=f"{snapshot.recorded.leader} led and does not answer", after=0.5
    )


def _begin(snapshot: Snapshot, answering: list[Node]) -> Verdict:
    if len(answering) < 2:
        return pods_starting(snapshot, answering=len(answering))
    holders = [one for one in answering if _keys(one)]
    if len(holders) == 2:
        return Wait(
            reason="UnrelatedData",
            message="both nodes have data and nothing tells which counts; empty one by FLUSHALL",
            after=10.0,
            stalled=True,
        )
    return _lead(snapshot, (holders or answering)[0])


def _followed(replica: Node, leader: Node | None) -> bool:
    """It was that one's replica until now, and has not restarted since."""
    if replica.server is None or replica.server.master is None:
        return False
    where = replica.server.master.ip
    return where == leader.pod.ip if leader is not None and leader.pod.ip else where != "192.0.2.1"


def _lead(snapshot: Snapshot, node: Node) -> Verdict:
    if snapshot.recorded.leader != node.name:
        return Record(leader=node.name, why=f"{node.name} is to lead")
    return Follow(target=target_of(node), leader=None, why=f"{node.name} leads")
