"""A healthy cluster as data, and ways to break it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace as changed

from mooring.operators.mysql import gtid
from mooring.operators.mysql.accounts import Accounts
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.moves import DatabaseMove, Open, Record, Verdict
from mooring.operators.mysql.plan import decide, next_step
from mooring.operators.mysql.snapshot import Observed, Snapshot, Wanted
from mooring.operators.mysql.topology import Flavor, Member, Replication, SemiSync, Server, Topology
from mooring.operators.mysql.types import MySQLClusterStatus, Operation, Recorded
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import SetState

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
DOMAIN = ".demo.default.svc"
DAY = 86400.0
UUID = "00000000-0000-0000-0000-00000000000{}"

__all__ = ["NOW", "Scene", "ago", "at", "healthy", "new"]


def ago(seconds: float) -> datetime:
    """A moment before NOW."""
    return NOW - timedelta(seconds=seconds)


def at(text: str, flavor: Flavor = "mariadb") -> Position:
    """A position."""
    return gtid.parse(flavor, text)


@dataclass(frozen=True)
class Scene:
    """Everything `next_step` reads; the methods return changed scenes."""

    wanted: Wanted
    members: Mapping[str, Member]
    status: MySQLClusterStatus
    observed: Observed = field(default_factory=Observed)
    before: Position | None = None
    accounts: Accounts | None = None

    def decide(self) -> Verdict:
        return next_step(self.snapshot)

    def planned(self) -> Verdict:
        """As the actor decides: a pause and the failures of steps count."""
        return decide(self.snapshot)

    @property
    def snapshot(self) -> Snapshot:
        members = tuple(self.members.values())
        topology = Topology(members=members, before=self.before, accounts=self.accounts)
        return Snapshot(
            wanted=self.wanted, topology=topology, observed=self.observed, status=self.status, now=NOW
        )

    def settled(self) -> Scene:
        """The same after everything that only had to be recorded was."""
        scene = self
        for _ in range(20):
            verdict = scene.decide()
            if not isinstance(verdict, Record):
                return scene
            scene = replace(scene, status=verdict.status)
        raise AssertionError(f"records without end: {verdict}")

    def wrote(self, verdict: Verdict) -> Scene:
        """The same with what a verdict records."""
        if isinstance(verdict, Record):
            return replace(self, status=verdict.status)
        if isinstance(verdict, DatabaseMove | Open) and verdict.first is not None:
            return replace(self, status=verdict.first)
        return self

    def want(self, **changes: Any) -> Scene:
        return replace(self, wanted=replace(self.wanted, **changes))

    def record(self, **changes: Any) -> Scene:
        return replace(self, status=changed(self.status, **changes))

    def known(self, name: str, **changes: Any) -> Scene:
        members = dict(self.status.members or {})
        members[name] = changed(members.get(name) or Recorded(), **changes)
        return self.record(members=members)

    def operation(self, kind: str, *, seconds: float = 0.5, **more: Any) -> Scene:
        return self.record(operation=Operation(kind=kind, since=ago(seconds), why="test", **more))

    def see(self, **changes: Any) -> Scene:
        return replace(self, observed=replace(self.observed, **changes))

    def pod(self, name: str, **changes: Any) -> Scene:
        member = self.members[name]
        if "role" in changes:
            changes = {"reads": changes["role"] == "replica", **changes}
        return self.member(name, replace(member, pod=replace(member.pod, **changes)))

    def server(self, name: str, **changes: Any) -> Scene:
        member = self.members[name]
        assert member.server is not None
        return self.member(name, replace(member, server=replace(member.server, **changes)))

    def link(self, name: str, **changes: Any) -> Scene:
        server = self.members[name].server
        assert server is not None
        assert server.replication is not None
        return self.server(name, replication=replace(server.replication, **changes))

    def semi(self, name: str, **changes: Any) -> Scene:
        server = self.members[name].server
        assert server is not None
        return self.server(name, semi_sync=replace(server.semi_sync, **changes))

    def member(self, name: str, member: Member) -> Scene:
        return replace(self, members={**self.members, name: member})

    def has(self, name: str, executed: str, received: str = "") -> Scene:
        """What a server executed and received."""
        flavor = self.wanted.flavor
        return self.server(name, executed=at(executed, flavor), received=at(received or executed, flavor))

    def silent(self, *names: str, error: str = "Timeout", seconds: float = 1.0) -> Scene:
        """These do not answer, the primary for so long."""
        scene = self
        for name in names:
            scene = scene.member(name, replace(scene.members[name], server=None, error=error))
            if name == self.status.primary:
                scene = scene.see(primary_unreachable=seconds)
        return scene

    def dead(self, name: str, *, seconds: float = 0.2) -> Scene:
        """Its container ended."""
        return self.pod(name, running=False, ready=False, died_at=ago(seconds)).silent(
            name, error="Refused", seconds=seconds
        )

    def restarted(self, name: str, **pod: Any) -> Scene:
        """Its container was started again and waits at its gate."""
        made = self.members[name].pod
        uid, _, count = made.incarnation.rpartition("/")
        return self.dead(name).pod(name, running=True, incarnation=f"{uid}/{int(count) + 1}", **pod)

    def recreated(self, name: str, **pod: Any) -> Scene:
        """Its pod was deleted and made again, on the same claim."""
        made = self.members[name].pod
        uid = pod.pop("uid", f"{made.uid}-new")
        member = Member(
            pod=replace(made, uid=uid, incarnation=f"{uid}/0", running=True, **pod), error="Refused"
        )
        return self.member(name, member)

    def lost(self, *names: str) -> Scene:
        """The receivers of these lost the primary."""
        scene = self
        for name in names:
            scene = scene.link(name, io_running=False, connecting=True)
        return scene

    def fenced(self, *names: str) -> Scene:
        """The receivers of these are stopped."""
        scene = self
        for name in names:
            scene = scene.link(name, io_running=False, connecting=False)
        return scene

    def gone(self, *names: str) -> Scene:
        """The pods do not exist."""
        return replace(self, members={n: one for n, one in self.members.items() if n not in names})


def _pod(ordinal: int) -> Pod:
    name = f"demo-{ordinal}"
    return Pod(
        name=name,
        ordinal=ordinal,
        uid=f"uid-{name}",
        ip=f"10.0.0.{ordinal + 1}",
        volume=f"claim-{name}",
        lasting=True,
        fresh=True,
        incarnation=f"uid-{name}/0",
        created=ago(3600),
        ready=True,
        revision="one",
        role="replica" if ordinal else "primary",
        reads=bool(ordinal),
    )


def new(*, size: int = 3, **wanted: Any) -> Scene:
    """Pods that wait at their gates for the first time."""
    pods = [replace(_pod(number), role="", reads=False, ready=False) for number in range(size)]
    return Scene(
        Wanted(size=size, image="mariadb:10.11", domain=DOMAIN, **wanted),
        {pod.name: Member(pod=pod, error="Refused") for pod in pods},
        MySQLClusterStatus(),
        Observed(set=SetState(replicas=size, update_revision="one")),
    )


def healthy(*, size: int = 3, flavor: Flavor = "mariadb", **wanted: Any) -> Scene:
    """demo-0 leads, the others follow and acknowledge."""
    text = "0-10-100" if flavor == "mariadb" else f"{UUID.format(0)}:1-100"
    version = "10.11.19" if flavor == "mariadb" else "9.7.4"
    acking = [f"demo-{n}" for n in range(1, size)][: 2 if flavor == "mariadb" else 8]
    acks = 1 if flavor == "mariadb" and size > 1 else size // 2
    members = {}
    for number in range(size):
        pod = _pod(number)
        follows = Replication(
            host=f"demo-0{DOMAIN}", io_running=True, sql_running=True, lag=0.0, source_file="binlog.000002",
            source_position=1000,
        )  # fmt: skip
        members[pod.name] = Member(
            pod=pod,
            order=f"1 {'replica' if number else 'primary'} {10 + number}",
            server=Server(
                flavor=flavor,
                version=version,
                server_id=10 + number,
                server_uuid=UUID.format(number) if flavor == "mysql" else "",
                read_only=bool(number),
                executed=at(text, flavor),
                received=at(text, flavor),
                replication=follows if number else None,
                semi_sync=SemiSync(
                    source=not number and size > 1,
                    replica=pod.name in acking,
                    acks=acks,
                    timeout=DAY,
                    clients=0 if number else len(acking),
                    active=not number,
                ),
            ),
        )
    status = MySQLClusterStatus(
        primary="demo-0",
        term=1,
        ack_set=acking,
        acks=acks,
        durability="Strict" if size > 1 else "Async",
        last_server_id=10 + size - 1,
        members={
            name: Recorded(
                volume=one.pod.volume,
                server_id=one.server.server_id if one.server else 0,
                start=one.pod.incarnation,
                version=version,
                joined=True,
                synced=name != "demo-0",
            )
            for name, one in members.items()
        },
    )
    return Scene(
        Wanted(
            size=size,
            flavor=flavor,
            image=f"{flavor}:{'.'.join(version.split('.')[:2])}",
            domain=DOMAIN,
            **wanted,
        ),
        members,
        status,
        Observed(set=SetState(replicas=size, update_revision="one")),
    )
