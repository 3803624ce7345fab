"""Everything one decision is made from: what is wanted, what was seen, what was recorded, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from mooring.operators.mysql import gate, gtid
from mooring.operators.mysql.accounts import WantedDatabase, WantedUser
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.topology import Flavor, Member, Server, Topology
from mooring.operators.mysql.types import MySQLClusterStatus, Operation, Recorded
from mooring.operators.workload.autoscale import Policy
from mooring.operators.workload.cpu import CPU
from mooring.operators.workload.rollout import SetState

__all__ = ["ALIVE", "DENIED", "READ_ONLY", "Observed", "Scaling", "Snapshot", "Trial", "Wanted"]

DENIED: Final = "AccessDenied"
"""The server takes none of the operator's passwords."""
ALIVE: Final = frozenset({DENIED, "TooManyConnections"})
"""Errors of a server that is there: none of them is a reason to replace it."""
READ_ONLY: Final = "ReadOnly"
"""The phase of a cluster whose writes are held."""
FULL: Final = 0.97
"""Share of the primary's volume at which writes are held: a server that finds no room at all ends."""
ROOM: Final = 0.95
"""Share below which writes go on again."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What the load decides the number of servers by."""

    policy: Policy
    targets: Mapping[str, float] = field(default_factory=dict)
    """Average per replica that is aimed at, by type of metric."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The declared cluster, validated and with every default filled in."""

    size: int = 3
    """Declared, or called for by the load."""
    scaling: Scaling | None = None
    """``None``: the load decides nothing, or the declaration is refused."""
    flavor: Flavor = "mariadb"
    image: str = ""
    domain: str = ""
    """What follows a pod's name in its host name: ``.demo.default.svc``."""
    mode: str = "Strict"
    max_lag: float = 30.0
    detect: float = 4.0
    """Seconds without an answer until a primary is replaced."""
    reclone: bool = True
    """A diverged server gets a new copy of the data; otherwise it is held."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Keys to hold: defaults, tuning and the user's."""
    user_keys: frozenset[str] = frozenset()
    tuning: str = "Static"
    tuning_window: float = 300.0
    """Seconds that a measurement takes."""
    memory: int = 0
    """Bytes that a container may use; 0 without a limit."""
    rolls_config: bool = True
    users: tuple[WantedUser, ...] = ()
    databases: tuple[WantedDatabase, ...] = ()
    sound: bool = True
    """Else the declaration is refused: accounts and databases stay as they are."""
    certificate: str = ""
    """When the certificate ends that servers are to show; "" without TLS."""
    paused: bool = False
    read_only: bool = False
    fenced: frozenset[str] = frozenset()
    switch_to: str = ""
    """The pod that a person wants as primary; "" for none."""
    on_delete: bool = False
    """Pods are left until somebody deletes them."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The trial start of a declared image that no server runs yet."""

    state: Literal["Due", "Running", "Passed", "Failed"] = "Due"
    message: str = ""
    """Why it failed, or what it waits for."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What Kubernetes says."""

    set: SetState = field(default_factory=SetState)
    old_claims: frozenset[str] = frozenset()
    """Pods whose claim is older than this cluster: it may hold data of an earlier one."""
    published: Mapping[str, str] = field(default_factory=dict)
    """Configuration that the next start reads."""
    storage: str = ""
    """The declared size of a claim."""
    changed_passwords: frozenset[str] = frozenset()
    """Labels of passwords that are declared and not in force yet: the previous ones count until `PublishPasswords`."""
    cordoned: frozenset[str] = frozenset()
    """Pods on nodes that are about to be emptied."""
    trial: Trial | None = None
    """``None`` where no image waits to be rolled out."""
    primary_unreachable: float = 0.0
    """Seconds the recorded primary has not answered, as this process saw it."""
    reads: Mapping[str, float] | None = None
    """SELECTs a second of each server since the last measurement; ``None`` where no measurement is due."""
    cpu: CPU | None = None
    """CPU of the servers, where the load is to decide by it and a measurement is due."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """How full volumes are, 0 to 1, by pod; those that are watched and have a file system of their own."""
    size_owner: str = ""
    """Who sets spec.size by the scale subresource, where the load is to decide; "" for nobody."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One moment."""

    wanted: Wanted
    topology: Topology
    observed: Observed
    status: MySQLClusterStatus
    """As recorded."""
    now: datetime

    # --- recorded ----------------------------------------------------------------------------------------

    @property
    def primary(self) -> str:
        """The pod that leads, as recorded; "" before the cluster was founded."""
        return self.status.primary or ""

    @property
    def term(self) -> int:
        """Number of the present primary, counted from 1; 0 before the first."""
        return self.status.term or 0

    @property
    def operation(self) -> Operation | None:
        """The change of primary under way."""
        return self.status.operation

    @property
    def ack_set(self) -> frozenset[str]:
        """Pods that may acknowledge writes."""
        return frozenset(self.status.ack_set or ())

    @property
    def strict(self) -> bool:
        """An acknowledged write is on as many replicas as recorded."""
        return self.status.durability == "Strict"

    @property
    def required(self) -> Position:
        """What the recorded primary had when it began to lead, or soon after: without that it has lost its data."""
        newest = next(iter(self.status.promotions or ()), None)
        leads = newest is not None and newest.pod == self.primary
        return self.parse(newest.position) if newest is not None and leads else Position()

    def emptied(self, server: Server) -> bool:
        """The server of the recorded primary lacks what it had, or is empty beside replicas that are not.

        A person who names it as the one to lead takes its data as it is.
        """
        if self.wanted.switch_to == self.primary:
            return False
        if not server.received.contains(self.required):
            return True
        others = [it for one, it in self.replicas if self.recorded(one.name).joined and self.holds(one)]
        return server.received.is_empty and any(not it.executed.is_empty for it in others)

    def recorded(self, name: str) -> Recorded:
        """What is known of a pod's data."""
        return (self.status.members or {}).get(name) or Recorded()

    # --- members -----------------------------------------------------------------------------------------

    @property
    def leader(self) -> tuple[Member, Server] | None:
        """The recorded primary, if it answers."""
        member = self.topology.member(self.primary)
        return (member, member.server) if member is not None and member.server is not None else None

    @property
    def replicas(self) -> list[tuple[Member, Server]]:
        """Every other server that answers."""
        return [(one, it) for one, it in self.topology.answering if one.name != self.primary]

    def holds(self, member: Member) -> bool:
        """Its volume is the one that is recorded: the data there is what was known of this pod."""
        return self.recorded(member.name).volume == member.pod.volume

    def ordered(self, member: Member) -> bool:
        """The present start of its container has its order."""
        order = gate.parse(member.order)
        return order is not None and order.start == member.start

    def at_gate(self, member: Member) -> bool:
        """Its container runs and waits for an order before it starts a server."""
        return member.server is None and member.pod.running and not self.ordered(member)

    def ended(self, member: Member) -> bool:
        """Its server has ended: nothing listens there."""
        return not member.pod.running or self.at_gate(member) or member.error == "Refused"

    def unidentified(self, member: Member) -> bool:
        """Its claim is not in the cache yet: what it stores on is not known."""
        return member.pod.lasting and member.pod.volume == member.pod.uid

    def counts(self, member: Member) -> bool:
        """What this process acknowledged is here: it is the one that caught up with the primary."""
        known = self.recorded(member.name)
        return (
            member.server is not None
            and known.synced
            and self.holds(member)
            and known.server_id == member.server.server_id
        )

    def caught_up(self, member: Member) -> bool:
        """It has received everything that the primary had executed when this pass began."""
        before = self.topology.before
        if before is None and self.leader is not None:
            before = self.leader[1].executed
        return member.server is not None and before is not None and member.server.received.contains(before)

    @property
    def strangers(self) -> int:
        """Receivers that acknowledge writes to the primary and belong to no pod's present process.

        Such as the process of a pod that was deleted by force on a node out of reach: what it alone acknowledged nobody
        else has. A server counts a receiver for some two seconds after it ended.
        """
        if self.leader is None:
            return 0
        ours = 0
        for one in self.topology.members:
            if one.name != self.primary:
                it = one.server
                ours += it.semi_sync.replica if it is not None else one.pod.running and self.ordered(one)
        return max(0, self.leader[1].semi_sync.clients - ours)

    @property
    def votes(self) -> list[tuple[Member, Server]]:
        """Members of the ack set that can speak for the writes they acknowledged."""
        return [(one, it) for one, it in self.replicas if one.name in self.ack_set and self.counts(one)]

    def follows(self, server: Server) -> bool:
        """It replicates from the recorded primary, by GTID."""
        link = server.replication
        return link is not None and link.host == self.host(self.primary) and link.by_gtid

    def healthy(self, member: Member, server: Server) -> bool:
        """A replica that follows the recorded primary: both threads run, and it is read-only."""
        link = server.replication
        return (
            server.read_only
            and self.follows(server)
            and link is not None
            and link.io_running
            and link.sql_running
        )

    def standing_still(self, name: str) -> float:
        """Seconds for which the applier of a replica has waited for its own idle threads; 0 where it does not."""
        one, known = self.topology.member(name), self.recorded(name).stands_still
        link = one.server.replication if one is not None and one.server is not None else None
        if known is None or link is None or not link.deadlocked:
            return 0.0
        return self.seconds_since(known.since)

    def leaves(self, member: Member) -> bool:
        """It is on its way out: deleted, to be scaled in, fenced, or on a node that is about to be emptied."""
        return (
            member.pod.terminating
            or member.pod.ordinal >= self.wanted.size
            or self.fenced(member.name)
            or member.name in self.observed.cordoned
        )

    def fenced(self, name: str) -> bool:
        """A person keeps it from serving."""
        return name in self.wanted.fenced or "*" in self.wanted.fenced

    @property
    def held(self) -> bool:
        """No server is to take writes: ``maintenance.readOnly``, every pod is fenced, or the primary's volume is full."""
        return self.wanted.read_only or "*" in self.wanted.fenced or self.full

    @property
    def full(self) -> bool:
        """The volume of the recorded primary has next to no room left, or had and has little more."""
        limit = ROOM if self.status.phase == READ_ONLY else FULL
        return self.observed.shares.get(self.primary, 0.0) >= limit

    def host(self, pod: str) -> str:
        """The name by which other pods find it."""
        return f"{pod}{self.wanted.domain}"

    def parse(self, text: str) -> Position:
        """A position that was recorded."""
        return gtid.parse(self.wanted.flavor, text)

    def seconds_since(self, moment: datetime | None) -> float:
        """Seconds until now; an unknown moment is long ago."""
        return max(0.0, (self.now - moment).total_seconds()) if moment is not None else float("inf")

    def later(self, seconds: float) -> datetime:
        """A moment after now."""
        return self.now + timedelta(seconds=seconds)
