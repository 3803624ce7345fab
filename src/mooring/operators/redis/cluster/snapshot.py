"""One look at a cluster: what is wanted, what is seen, what was written down; and questions the rules ask of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Literal

from mooring.operators.backup import restore_rules
from mooring.operators.redis.cluster.moves import Promote, Target, Tell, Verdict, Wait
from mooring.operators.redis.cluster.placement import Place
from mooring.operators.redis.cluster.slots import Slots
from mooring.operators.redis.cluster.topology import Live, Node, Seen
from mooring.operators.redis.cluster.types import AssignStrategy, KeyReportStatus, Retry, SlotPlan, masters_of
from mooring.operators.redis.tls import TlsState
from mooring.operators.redis.users.plan import UsersState
from mooring.operators.workload.autoscale import AutoscaleStatus, Policy
from mooring.operators.workload.credentials import PasswordState

__all__ = ["DEAD_GRACE", "Blocked", "Recorded", "Scaling", "Snapshot", "Wanted", "target_of"]

DEAD_GRACE: Final = timedelta(seconds=3)
"""How long a container that ended may take to be back before its replica takes over: back with all its data is
better than a fail-over, which costs what the replica did not have yet."""

MADE_WITHIN: Final = timedelta(seconds=30)
"""How long a pod may take to be recreated, also while Kubernetes' controllers change their leader; longer, and somebody
refuses it, a quota perhaps."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What the load decides the number of nodes by."""

    policy: Policy
    """In nodes, as it is declared."""
    targets: Mapping[str, float]
    """The average per master that each metric should have."""
    cooldown_s: float = 0.0
    """Seconds after a change until the next one."""
    limit: int = 0
    """Bytes of memory that a node's container may use; 0 where nothing is declared."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is declared, as far as decisions need it."""

    nodes: int = 6
    """Nodes to have; as many as there are while the declaration cannot be met."""
    pods: int = 6
    """Pods the StatefulSet has now."""
    named: bool = False
    """Slots of new masters come from named nodes."""
    strategies: tuple[AssignStrategy, ...] = ()
    pipeline: int = 10
    rate: float = 0.0
    """Bytes of keys a second that moving may cost at most; 0: no limit."""
    stale_template: bool = False
    """The template was made from other inputs than the present ones."""
    revision: str = ""
    """The revision pods are to have; "" while the StatefulSet has none."""
    pending: bool = False
    """The StatefulSet's controller has not taken up what was last written to it, the template perhaps."""
    rolls: bool = True
    """Pods of another revision are replaced by us and not by the user."""
    paused: bool = False
    """Nothing is to be changed."""
    ephemeral: bool = False
    """The data goes with the pods: it is on emptyDirs."""
    scaling: Scaling | None = None
    """``None``: the load decides nothing, or the declaration is refused."""
    by_size: bool = False
    """Slots are balanced by the size of their data, also at rest."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What the status remembers."""

    formed: bool = False
    plan: SlotPlan | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    """Node ids by pod, as last seen."""
    slots: Mapping[str, Slots] = field(default_factory=dict)
    """Slots by node id, as last seen."""
    leader: str = ""
    """The pod that leads a pair."""
    missing: Mapping[str, datetime] = field(default_factory=dict)
    """Pods that were not there when last looked at, and since when."""
    refused_users: Mapping[str, str] = field(default_factory=dict)
    """What servers refused of users, by name."""
    retry: Retry | None = None
    """A step that fails and is retried."""
    autoscale: AutoscaleStatus | None = None
    """What the load called for."""


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Why the declaration is not carried out, while what runs is looked after."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything a decision rests on."""

    wanted: Wanted
    seen: Seen
    recorded: Recorded
    places: Mapping[str, Place]
    now: datetime
    password: PasswordState = field(default_factory=PasswordState)
    users: UsersState = field(default_factory=UsersState)
    tls: TlsState = field(default_factory=TlsState)
    blocked: Blocked | None = None
    restore: restore_rules.Seen | None = None
    """The restore that the cluster begins with, until it succeeded."""
    restore_held: Wait | None = None
    """Why no try of it can begin now."""
    missed: Mapping[str, int] = field(default_factory=dict)
    """How many PINGs in a row, one a second, each master's pod left unanswered."""
    rates: Mapping[str, float] | None = None
    """Commands a second of each pod's server; None in a pass in which no measurement is due."""
    size_owner: str = ""
    """Who sets spec.replicas by the scale subresource, where the load is to decide; "" for nobody."""
    keys: KeyReportStatus | None = None
    """Large and busy keys, where they are reported."""
    sizes: tuple[int, ...] = ()
    """Bytes that each slot's data takes, as far as samples tell; empty until every slot was measured."""
    still: frozenset[str] = frozenset()
    """Pods that missed several, and whose process did nothing between two looks at it."""

    @cached_property
    def masters(self) -> int:
        """How many masters there shall be."""
        return masters_of(self.wanted.nodes)

    @cached_property
    def owners(self) -> list[Live]:
        """Live masters with slots, by ordinal."""
        return [one for one in self.seen.live if one.id in self.seen.owners]

    @cached_property
    def spare(self) -> list[Live]:
        """Live nodes without slots or master that are to stay, by ordinal."""
        return [
            one
            for one in self.seen.live
            if one.is_master and not one.slots and not one.server.keys and self.stays(one.node)
        ]

    @cached_property
    def missing(self) -> list[Node]:
        """Pods that are to stay and do not answer as nodes of the cluster."""
        names = {one.name for one in self.seen.live}
        return [one for one in self.seen.nodes if one.name not in names and self.stays(one)]

    @cached_property
    def unmade(self) -> str:
        """The first pod that is missing and is not recreated as fast as usual; "" if none.

        A StatefulSet may make one only when those before it are ready, as a node that answers is before long.
        """
        live = {one.name for one in self.seen.live}
        ready = {
            one.pod.ordinal
            for one in self.seen.nodes
            if (one.pod.ready or one.name in live) and not one.pod.terminating
        }
        first = next((at for at in range(min(self.wanted.nodes, self.wanted.pods)) if at not in ready), None)
        for name, since in self.recorded.missing.items():
            there = any(one.name == name for one in self.seen.nodes)
            if name.rpartition("-")[2] == str(first) and not there and self.now - since > MADE_WITHIN:
                return name
        return ""

    @property
    def owned(self) -> list[str]:
        """Ids that have slots, live or not."""
        return [*self.seen.owners, *self.seen.absent_owners]

    @property
    def complete(self) -> bool:
        """Every pod there is to be answers as a node of the cluster."""
        there = {one.node.pod.ordinal for one in self.seen.live if self.stays(one.node)}
        return len(there) >= self.wanted.nodes

    def stays(self, node: Node) -> bool:
        """Its ordinal is within what is wanted."""
        return node.pod.ordinal < self.wanted.nodes

    @cached_property
    def members(self) -> list[Live]:
        """Live nodes that belong together: those that are to stay, and others as long as they own slots."""
        return [
            one
            for one in self.seen.live
            if (self.stays(one.node) or one.id in self.seen.owners) and one not in self.seen.foreign
        ]

    @cached_property
    def ids(self) -> set[str]:
        """Ids of our pods' nodes, from themselves, their volumes or the status."""
        return {*self.seen.by_id, *(node.id for node in self.seen.nodes), *self.recorded.ids.values()}

    def lost_by(self, id: str) -> Slots:
        """Slots this node had when last seen, and neither it nor another node of ours has now."""
        slots = self.recorded.slots.get(id, 0) & ~self.seen.covered
        for owner, theirs in self.seen.absent_owners.items():
            if owner != id and owner in self.ids:
                slots &= ~theirs
        return slots

    def node_of(self, id: str) -> Node | None:
        """The pod that has, or last had, this id."""
        for node in self.seen.nodes:
            if node.id == id:
                return node
        name = next((pod for pod, known in self.recorded.ids.items() if known == id), None)
        return next((node for node in self.seen.nodes if node.name == name), None)

    def replicas(self, *, staying: bool = False) -> Counter[str]:
        """How many live replicas each master has, by the master's id."""
        return Counter(
            one.master for one in self.seen.live if one.master and (not staying or self.stays(one.node))
        )

    def place(self, one: Live) -> Place:
        """Where it runs."""
        return self.places.get(one.name) or Place(name=one.name, ordinal=one.node.pod.ordinal)

    def unsettled(self) -> str:
        """Why no slots may be moved now, or "": the nodes differ, or one of them does not serve yet."""
        if why := self.seen.disagreement(self.members):
            return why
        waiting = next((one.name for one in self.members if not one.server.covered), "")
        return f"{waiting} does not serve its slots yet" if waiting else ""

    def agreeing(self, *, serving: bool = True) -> Verdict | None:
        """What brings all nodes to one view, or None when they have it, and with ``serving`` serve.

        A node tells the others of itself in its own time, seconds by default; a MEET carries it at once.
        """
        why = self.unsettled() if serving else self.seen.disagreement(self.members)
        if not why:
            return None
        return _tell(self.seen.unheard(self.members), why)

    def promote(
        self,
        heir: Live,
        how: Literal["", "FORCE"],
        *,
        why: str,
        failed: bool = False,
        hung: bool = False,
    ) -> Verdict:
        """Make a replica its shard's master by the masters' votes, once enough of them would give theirs.

        A master gives none for whom it knows as a master, as it does for seconds after a node began to follow; and
        what it gives to whom it has no connection to at that moment is lost. Those that gave theirs give none for
        this shard again for two node timeouts, and the replica asks for none for four.
        """
        deaf = [one for one in self.owners if not _follows(heir, one)]
        voters = [one for one in self.voters(heir) if one not in deaf]
        if self.most(len(voters)):
            lost = {**self.seen.owners, **self.seen.absent_owners}.get(heir.master, 0)
            return Promote(
                target=target_of(heir),
                how=how,
                owner=heir.master,
                slots=lost,
                failed=failed,
                hung=hung,
                why=why,
            )
        why = f"too few masters know that {heir.name} is a replica, or have a connection to it"
        return _tell([(heir, one) for one in deaf], why)

    def gone_for_sure(self, node: Node | None) -> bool:
        """It cannot be serving: silence alone proves nothing, Kubernetes' word that it ended does."""
        if node is None:
            return True
        pod = node.pod
        ended = pod.died_at is not None and self.now - pod.died_at > DEAD_GRACE
        return not pod.running and ended

    def voters(self, heir: Live) -> list[Live]:
        """Masters that have a connection to it."""
        return [one for one in self.owners if _linked(one, heir)]

    def majority(self) -> bool:
        """Enough masters answer to vote."""
        return self.most(len(self.seen.owners))

    def most(self, number: int) -> bool:
        """So many are more than half of the masters that have slots, live or not."""
        return number * 2 > len(self.seen.owners) + len(self.seen.absent_owners)


def _follows(replica: Live, viewer: Live) -> bool:
    """The viewer knows whose replica this is."""
    peer = viewer.server.peers.get(replica.id)
    return peer is not None and peer.master == replica.master


def _linked(one: Live, other: Live) -> bool:
    """Both have a connection to the other, and no introduction is under way that would cut it for a moment."""
    return all(
        (peer := here.server.peers.get(there.id)) is not None
        and peer.connected
        and not any(new.address.ip == there.node.address.ip for new in here.server.view if not new.settled)
        for here, there in ((one, other), (other, one))
    )


def _tell(news: Iterable[tuple[Live, Live]], why: str) -> Verdict:
    """Whoever changed tells the other at once, unless it is getting to know somebody already."""
    pairs = [
        (target_of(one), other.node.address)
        for one, other in news
        if all(peer.settled for peer in one.server.view)
    ]
    return Tell(pairs=tuple(pairs), why=why) if pairs else Wait(reason="Agreeing", message=why, after=0.1)


def target_of(one: Live | Node) -> Target:
    """The server of a node."""
    node = one.node if isinstance(one, Live) else one
    return Target(name=node.name, address=node.address, id=node.id)
