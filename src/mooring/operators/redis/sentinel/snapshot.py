"""Everything one decision is made from: what is wanted, what was seen, what was recorded, and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from mooring.operators.redis.sentinel.lineage import Lineage, Standing, descends
from mooring.operators.redis.sentinel.moves import Target, sentinel_target
from mooring.operators.redis.sentinel.topology import REDIS_PORT, Member, Server, Topology, Watcher
from mooring.operators.redis.sentinel.types import (
    LastFailover,
    NodeStatus,
    Operation,
    PasswordChange,
    RedisClusterStatus,
    SentinelStatus,
)
from mooring.operators.redis.tls import Ports, TlsProgress, TlsState, Transport
from mooring.operators.redis.users.plan import UsersState
from mooring.operators.redis.users.status import refused_by
from mooring.operators.workload.configuration import ConfigResult
from mooring.operators.workload.credentials import PasswordState
from mooring.operators.workload.rollout import Roll, SetState

__all__ = ["LEARNING", "STALE_AFTER", "UNREACHABLE", "Observed", "Recorded", "Snapshot", "Wanted"]

STALE_AFTER = 5.0
"""Seconds out of sync, under a healthy master, after which a replica may no longer be elected."""
UNREACHABLE = "Unreachable"
"""State of a pod that does not answer."""
LEARNING = "Learning"
"""State of a sentinel that watches the right master without knowing every replica and sentinel."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The declared cluster, validated and with every default filled in."""

    size: int = 3
    sentinels: int = 3
    quorum: int | None = None
    """The user's own quorum; otherwise a majority of the sentinels there are."""
    down_after: float = 5.0
    """Seconds."""
    failover_timeout: float = 10.0
    """Seconds."""
    sentinel_settings: Mapping[str, str] = field(default_factory=dict)
    """What SENTINEL SET shall hold, apart from the quorum."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Keys to hold: defaults and the user's."""
    rolls_config: bool = False
    """Keys that are read at start only are rolled out."""
    paused: bool = False
    """Nothing is to be changed."""
    user_keys: frozenset[str] = frozenset()
    """Those of them the user wrote; each has a result in status."""
    persistence: bool = True
    min_replicas: int = 1
    """``min-replicas-to-write`` in force; with 0 a fail-over may wait a second for the dead master."""
    elect: str = ""
    """A pod the user named to decide between unrelated histories."""
    discard: frozenset[str] = frozenset()
    """Pods whose foreign data the user has given up."""
    roll: bool = True
    """Whether a new template may be rolled out."""
    image: str = ""
    """The declared image of the servers."""
    ports: Ports = "plain"
    """Which ports are to be open."""

    @property
    def transport(self) -> Transport:
        """What servers and sentinels are to use among themselves."""
        return "plain" if self.ports == "plain" else "tls"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What status holds from earlier passes."""

    lineage: Lineage | None = None
    operation: Operation | None = None
    last_failover: LastFailover | None = None
    unreachable_since: Mapping[str, datetime] = field(default_factory=dict)
    """Since when pods (of both components) have not answered."""
    learning_since: Mapping[str, datetime] = field(default_factory=dict)
    """Since when sentinels watch the right master without knowing all the others."""
    config: Mapping[str, ConfigResult] = field(default_factory=dict)
    rolls: Mapping[str, Roll] = field(default_factory=dict)
    """Roll-outs under way or stopped, by component."""
    password: PasswordChange | None = None
    """Where a change of the password stands."""
    refused_users: Mapping[str, str] = field(default_factory=dict)
    """What servers refused of users, by name."""
    tls: TlsProgress | None = None
    """Where turning TLS on or off stands."""
    quarantined: frozenset[str] = frozenset()
    """Volumes whose foreign data is kept."""

    @staticmethod
    def of(status: RedisClusterStatus, *, lineage: Lineage | None = None) -> Recorded:
        """Read a status; ``lineage`` counts where it has none."""
        nodes, sentinels = status.nodes or (), status.sentinels or ()
        return Recorded(
            lineage=status.lineage or lineage,
            operation=status.operation,
            last_failover=status.last_failover,
            unreachable_since={**_since(nodes, UNREACHABLE), **_since(sentinels, UNREACHABLE)},
            learning_since=_since(sentinels, LEARNING),
            config=status.config or {},
            rolls=status.rolls or {},
            password=status.password,
            refused_users=refused_by(status.users),
            tls=status.tls,
            quarantined=frozenset(status.quarantined or ()),
        )


def _since(entries: Iterable[NodeStatus | SentinelStatus], state: str) -> dict[str, datetime]:
    """Since when the entries in this state are in it."""
    return {
        one.name: datetime.fromisoformat(one.since) for one in entries if one.state == state and one.since
    }


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What Kubernetes and the servers say."""

    topology: Topology
    redis_set: SetState = field(default_factory=SetState)
    sentinel_set: SetState = field(default_factory=SetState)
    published: Mapping[str, str] = field(default_factory=dict)
    """Live keys as a restarting server would read them."""
    password: PasswordState = field(default_factory=PasswordState)
    """What is in the cluster's Secret, and whether it is what is declared."""
    users: UsersState = field(default_factory=UsersState)
    """The users that servers are to have, and had when that was last written down."""
    tls: TlsState = field(default_factory=TlsState)
    """The certificates that servers are to show and to trust."""
    transport: Transport = "plain"
    """What servers and sentinels use among themselves, as recorded."""
    ports: Ports = "plain"
    """Which ports the servers' template in place opens."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Claim UID by pod name, also of pods that do not exist."""
    old_claims: frozenset[str] = frozenset()
    """Pods whose claim is older than the cluster: it may hold data, whether the pod exists or not."""


@dataclass(frozen=True)
class Snapshot:
    """One decision's inputs with what every rule asks of them."""

    wanted: Wanted
    observed: Observed
    recorded: Recorded
    now: datetime

    @property
    def topology(self) -> Topology:
        return self.observed.topology

    @property
    def encrypts(self) -> bool:
        """Servers and sentinels are to reach one another by TLS."""
        return self.observed.transport == "tls"

    @property
    def lineage(self) -> Lineage | None:
        return self.recorded.lineage

    @cached_property
    def answering(self) -> tuple[tuple[Member, Server], ...]:
        """Data servers that answered."""
        return tuple((one, one.server) for one in self.topology.members if one.server is not None)

    @cached_property
    def masters(self) -> tuple[tuple[Member, Server], ...]:
        """Data servers that call themselves master."""
        return tuple((one, server) for one, server in self.answering if server.is_master)

    @cached_property
    def watchers(self) -> tuple[Watcher, ...]:
        """Sentinels that answered."""
        return tuple(one for one in self.topology.watchers if one.sentinel is not None)

    @property
    def sentinel_count(self) -> int:
        """How many sentinels there are to be, now: while a scale-in lasts, those still there count."""
        return max(self.observed.sentinel_set.replicas, len(self.topology.watchers)) or self.wanted.sentinels

    @property
    def quorum(self) -> int:
        """The user's, or a majority of the sentinels there are."""
        return self.wanted.quorum or self.sentinel_count // 2 + 1

    @cached_property
    def failing_over(self) -> bool:
        """A sentinel is changing the master now."""
        return any(one.sentinel is not None and one.sentinel.failing_over for one in self.watchers)

    @cached_property
    def named(self) -> tuple[str, int] | None:
        """The address a majority of all sentinels names as master, and the highest epoch behind it."""
        votes = Counter(
            one.sentinel.master.ip for one in self.watchers if one.sentinel and one.sentinel.master
        )
        if not votes:
            return None
        ip, count = votes.most_common(1)[0]
        if count < self.sentinel_count // 2 + 1:
            return None
        # One that is failing over still names the old master, but shows the epoch of the next.
        epochs = [
            one.sentinel.epoch
            for one in self.watchers
            if one.sentinel
            and one.sentinel.master
            and one.sentinel.master.ip == ip
            and not one.sentinel.failing_over
        ]
        return ip, max(epochs, default=0)

    @cached_property
    def sentinel_epoch(self) -> int:
        """The highest configuration epoch any answering sentinel holds."""
        return max((one.sentinel.epoch for one in self.watchers if one.sentinel), default=0)

    @cached_property
    def incumbent(self) -> Standing | None:
        """The last rightful master: as recorded, or as the sentinels decided after that (higher epoch)."""
        lineage = self.lineage
        if lineage is None:
            return None
        if self.named is not None:
            ip, epoch = self.named
            chosen = lineage.at(ip)
            if epoch > lineage.sentinel_epoch and chosen is not None:
                return chosen
        return lineage.master

    def unreachable_for(self, name: str) -> float:
        """Seconds a pod has not answered; 0 while it does or when that is new."""
        since = self.recorded.unreachable_since.get(name)
        return max(0.0, (self.now - since).total_seconds()) if since else 0.0

    def learning_for(self, name: str) -> float:
        """Seconds a sentinel has watched the right master without knowing all the others."""
        since = self.recorded.learning_since.get(name)
        return self.seconds_since(since) if since else 0.0

    def seconds_since(self, moment: datetime | None) -> float:
        """Seconds from a moment to now; an unknown moment is long ago."""
        return max(0.0, (self.now - moment).total_seconds()) if moment else float("inf")

    def later(self, seconds: float) -> datetime:
        """The moment ``seconds`` from now."""
        return self.now + timedelta(seconds=seconds)

    def set_of(self, component: str) -> SetState:
        """The StatefulSet of a component."""
        return self.observed.redis_set if component == "redis" else self.observed.sentinel_set

    def set_aside(self, member: Member) -> bool:
        """Kept with foreign data until the user gives that up."""
        return member.pod.volume in self.recorded.quarantined and member.name not in self.wanted.discard

    def maybe_holding(self) -> list[str]:
        """Pods of the wanted ones that may hold data of an earlier cluster and have not answered."""
        answered = {member.name for member, _ in self.answering}
        silent = {one.name for one in self.topology.members if one.server is None and not one.pod.fresh}
        return sorted((silent | self.observed.old_claims) - answered)

    def oldest_pod_age(self) -> float:
        """Seconds since the first of the data pods was made."""
        made = [one.pod.created for one in self.topology.members if one.pod.created is not None]
        return self.seconds_since(min(made)) if made else float("inf")

    def process_gone(self, standing: Standing) -> bool:
        """The recorded process is known to be dead; a pod that merely does not answer is not."""
        member = self.topology.member(standing.pod)
        if member is None or not standing.same_process(member.pod):
            return True
        return member.server is not None and member.server.at_gate and not self._promoting(standing.pod)

    def _promoting(self, pod: str) -> bool:
        operation = self.recorded.operation
        return operation is not None and operation.kind == "Promote" and operation.subject == pod

    def heirs(self) -> list[tuple[Member, Server]]:
        """Live servers of the recorded history that did not restart since, best first.

        An empty one is no heir while another has data, and one cut off long before the master died is stale.
        """
        lineage = self.lineage
        if lineage is None:
            return []
        found = [
            (member, server)
            for member, server in self.answering
            if not server.is_master
            and not server.at_gate
            and not server.loading
            and descends(server, lineage)
            and (standing := lineage.standing(member.name)) is not None
            and standing.same_process(member.pod)
        ]
        if any(server.keys for _, server in found):
            found = [(member, server) for member, server in found if server.keys]
        return sorted(found, key=self._rank)

    @staticmethod
    def _rank(entry: tuple[Member, Server]) -> tuple[bool, int, int]:
        member, server = entry
        return member.pod.terminating, -server.offset, member.pod.ordinal

    def _watches(self, watcher: Watcher, ip: str) -> bool:
        """One that has both ports open may still use the other one."""
        sentinel, member = watcher.sentinel, self.topology.at(ip)
        if sentinel is None or sentinel.master is None:
            return False
        port = member.port if member is not None else REDIS_PORT
        return sentinel.master.ip == ip and (watcher.ports == "both" or sentinel.master.port == port)

    def useful_sentinels(self, master_ip: str, heirs: list[tuple[Member, Server]]) -> tuple[Target, ...]:
        """Sentinels that watch that master and know a live, eligible heir: they can do a fail-over."""
        known = {member.ip for member, server in heirs if server.priority > 0}
        return tuple(
            sentinel_target(one)
            for one in self.watchers
            if one.sentinel
            and self._watches(one, master_ip)
            and any(peer.alive and peer.priority > 0 and peer.ip in known for peer in one.sentinel.replicas)
        )
