"""A healthy cluster as data, and ways to break it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from mooring.operators.redis.dial import Address
from mooring.operators.redis.sentinel.lineage import Lineage, standing_of
from mooring.operators.redis.sentinel.moves import Record, Verdict
from mooring.operators.redis.sentinel.plan import decide, next_step
from mooring.operators.redis.sentinel.snapshot import Observed, Recorded, Snapshot, Wanted
from mooring.operators.redis.sentinel.topology import (
    GATE,
    Member,
    Peer,
    Sentinel,
    Server,
    Topology,
    Watcher,
)
from mooring.operators.redis.sentinel.types import Operation
from mooring.operators.redis.tls import Ports, TlsProgress, Transport
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.rollout import SetState

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SETTINGS = {"down-after-milliseconds": "5000", "failover-timeout": "10000", "parallel-syncs": "2"}

__all__ = ["NOW", "SETTINGS", "Scene", "ago", "at_gate", "healthy"]


def ago(seconds: float) -> datetime:
    """A moment before NOW."""
    return NOW - timedelta(seconds=seconds)


def at_gate(server: Server | None = None, *, keys: int = 0, replid: str = "fresh") -> Server:
    """A server that just started."""
    return Server(role="slave", master=GATE, replid=replid, keys=keys, priority=0, offset=0)


@dataclass(frozen=True)
class Scene:
    """Everything `next_step` reads; the methods return changed scenes."""

    wanted: Wanted
    members: Mapping[str, Member]
    watchers: Mapping[str, Watcher]
    recorded: Recorded
    observed: Observed = field(default_factory=lambda: Observed(topology=Topology()))

    def decide(self) -> Verdict:
        return next_step(self.snapshot)

    def planned(self) -> Verdict:
        """As the actor decides: a pause counts, and a wait says what ends it."""
        return decide(self.snapshot)

    @property
    def snapshot(self) -> Snapshot:
        topology = Topology(members=tuple(self.members.values()), watchers=tuple(self.watchers.values()))
        return Snapshot(self.wanted, replace(self.observed, topology=topology), self.recorded, NOW)

    def settled(self) -> Scene:
        """The same after everything that only had to be recorded was."""
        scene = self
        while isinstance(verdict := scene.decide(), Record):
            done = scene.recorded
            scene = scene.record(
                lineage=verdict.lineage or done.lineage,
                operation=verdict.operation or (None if verdict.finish else done.operation),
                config=done.config if verdict.config is None else verdict.config,
                rolls=done.rolls if verdict.rolls is None else verdict.rolls,
                tls=verdict.tls or done.tls,
            )
        return scene

    def want(self, **changes: Any) -> Scene:
        return replace(self, wanted=replace(self.wanted, **changes))

    def record(self, **changes: Any) -> Scene:
        return replace(self, recorded=replace(self.recorded, **changes))

    def operation(self, kind: str, subject: str, *, seconds: float = 0.5) -> Scene:
        return self.record(operation=Operation(kind=kind, subject=subject, since=ago(seconds), why="test"))

    def see(self, **changes: Any) -> Scene:
        return replace(self, observed=replace(self.observed, **changes))

    def pod(self, name: str, **changes: Any) -> Scene:
        member = self.members[name]
        return self.member(name, replace(member, pod=replace(member.pod, **changes)))

    def server(self, name: str, **changes: Any) -> Scene:
        member = self.members[name]
        assert member.server is not None
        return self.member(name, replace(member, server=replace(member.server, **changes)))

    def member(self, name: str, member: Member) -> Scene:
        return replace(self, members={**self.members, name: member})

    def silent(self, *names: str, seconds: float = 1.0) -> Scene:
        """These do not answer, since so long."""
        scene = self
        for name in names:
            scene = scene.member(name, replace(scene.members[name], server=None, error="timed out"))
        since = {**self.recorded.unreachable_since, **{name: ago(seconds) for name in names}}
        return scene.record(unreachable_since=since)

    def dead(self, name: str, *, seconds: float = 0.2) -> Scene:
        """Its container ended."""
        return self.pod(name, running=False, died_at=ago(seconds)).silent(name, seconds=seconds)

    def restarted(self, name: str, *, keys: int = 0, **pod: Any) -> Scene:
        """Its container was started anew and waits behind the gate."""
        member = self.members[name]
        made = replace(member.pod, incarnation=member.pod.incarnation + "+", died_at=ago(0.5), **pod)
        return self.member(name, Member(pod=made, server=at_gate(keys=keys, replid=f"fresh-{name}")))

    def replaced(self, name: str, *, keys: int = 0, ip: str = "", volume: str = "") -> Scene:
        """Its pod is a new one."""
        pod = self.members[name].pod
        return self.restarted(
            name, keys=keys, uid=pod.uid + "+", ip=ip or pod.ip + "9", volume=volume or pod.volume
        )

    def gone(self, *names: str) -> Scene:
        """The pods do not exist."""
        return replace(self, members={n: one for n, one in self.members.items() if n not in names})

    def sentinel(self, name: str, **changes: Any) -> Scene:
        watcher = self.watchers[name]
        assert watcher.sentinel is not None
        changed = replace(watcher, sentinel=replace(watcher.sentinel, **changes))
        return replace(self, watchers={**self.watchers, name: changed})

    def sentinels(self, **changes: Any) -> Scene:
        scene = self
        for name in self.watchers:
            scene = scene.sentinel(name, **changes)
        return scene

    def opened(self, ports: Ports) -> Scene:
        """Declared, template and pods: these ports are open."""
        members = {name: replace(one, ports=ports) for name, one in self.members.items()}
        watchers = {name: replace(one, ports=ports) for name, one in self.watchers.items()}
        scene = replace(self, members=members, watchers=watchers)
        return scene.want(ports=ports).see(ports=ports)

    def over(self, transport: Transport, phase: str = "") -> Scene:
        """Everything is recorded to use TLS, or no TLS, and does."""
        data, watching = (6380, 26380) if transport == "tls" else (6379, 26379)
        word = "yes" if transport == "tls" else "no"

        def server(it: Server) -> Server:
            master = Address(it.master.ip, data) if it.master is not None else None
            return replace(it, master=master, config={**it.config, "tls-replication": word})

        members = {
            name: replace(one, port=data, server=server(one.server) if one.server is not None else None)
            for name, one in self.members.items()
        }
        watchers = {}
        for name, one in self.watchers.items():
            it = one.sentinel
            assert it is not None
            assert it.master is not None
            it = replace(
                it,
                encrypts=transport == "tls",
                master=Address(it.master.ip, data),
                replicas=tuple(replace(peer, port=data) for peer in it.replicas),
            )
            watchers[name] = replace(one, port=watching, sentinel=it)
        scene = replace(self, members=members, watchers=watchers)
        return scene.see(transport=transport).record(tls=TlsProgress(transport=transport, phase=phase))

    def blind(self, *names: str) -> Scene:
        """These sentinels do not answer."""
        lost = {name: replace(self.watchers[name], sentinel=None, error="timed out") for name in names}
        return replace(self, watchers={**self.watchers, **lost})


def healthy(*, size: int = 3, sentinels: int = 3, **wanted: Any) -> Scene:
    """redis-0 leads, everybody follows, the sentinels agree."""
    pods = [_pod("redis", number, f"10.0.0.{number + 1}") for number in range(size)]
    watching = [_pod("sentinel", number, f"10.0.1.{number + 1}") for number in range(sentinels)]
    leader = Address(pods[0].ip, 6379)
    members = {
        pod.name: Member(
            pod=pod,
            server=Server(
                role="slave" if pod.ordinal else "master",
                replid="line",
                offset=1000,
                keys=10,
                priority=1,
                master=leader if pod.ordinal else None,
                link_up=bool(pod.ordinal),
                config={"slave-priority": "1"},
            ),
        )
        for pod in pods
    }
    quorum = sentinels // 2 + 1
    watchers = {
        pod.name: Watcher(
            pod=pod,
            sentinel=Sentinel(
                master=leader,
                flags=frozenset({"master"}),
                replicas=tuple(Peer(ip=one.ip, port=6379, priority=1) for one in pods[1:]),
                sentinels=tuple(Peer(ip=one.ip, port=26379) for one in watching if one is not pod),
                settings={**SETTINGS, "quorum": str(quorum)},
                quorum_ok=True,
            ),
        )
        for pod in watching
    }
    lineage = Lineage(
        epoch=1,
        replid="line",
        master=standing_of(pods[0]),
        members=tuple(standing_of(pod) for pod in pods),
    )
    return Scene(
        Wanted(**{"size": size, "sentinels": sentinels, "sentinel_settings": SETTINGS, **wanted}),
        members,
        watchers,
        Recorded(lineage=lineage),
        Observed(
            topology=Topology(),
            redis_set=SetState(replicas=size),
            sentinel_set=SetState(replicas=sentinels),
            volumes={pod.name: pod.volume for pod in pods},
        ),
    )


def _pod(component: str, ordinal: int, ip: str) -> Pod:
    name = f"{component}-{ordinal}"
    return Pod(
        name=name,
        ordinal=ordinal,
        uid=f"uid-{name}",
        ip=ip,
        volume=f"claim-{name}",
        fresh=True,
        incarnation=f"uid-{name}/0",
        created=ago(3600),
        ready=True,
    )
