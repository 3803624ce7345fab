"""MariaDB and MySQL servers in memory, for campaigns of the MySQL operator in virtual time: what they hold, not how they say it.

The simulated nodes tell `World` of pods, and its servers wait at their start gates. `InMemory` shows it to the operator's
actor. A client writes whenever somebody looks: each write is acknowledged when enough replicas have received it. What the
image of a pod is named after decides about the flavour.

A MariaDB that starts as a replica rolls back what nobody had acknowledged, and the last transaction too: its commit is not yet on
the disk. Its relay log goes at each start of its threads, and it receives that again. A MySQL keeps both after a kill, but for what the
start gate cuts from its binary log, and goes on in its relay log unless its source is named again. tests/operators/mysql/test_model.py compares this with real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mooring.actor import StepFailed
from mooring.kube.object import Key
from mooring.kube.objects.core import Pod
from mooring.operators.mysql import gate, gtid
from mooring.operators.mysql.flavors import flavor_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.inputs import Inputs
from mooring.operators.mysql.moves import (
    Configure,
    DatabaseMove,
    Demote,
    Done,
    Fence,
    Follow,
    Promote,
    SetDurability,
    Switch,
    Target,
)
from mooring.operators.mysql.names import ORDER
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Flavor, Member, Replication, SemiSync, Server, Topology
from mooring.operators.mysql.types import TailCut
from mooring.testing.changes import Change
from mooring.testing.monitors import Monitor, kept, owned
from mooring.testing.plane import ControlPlane

__all__ = ["InMemory", "Process", "World", "fall_behind", "monitors", "newest", "stick"]

Transaction = tuple[str, int]
"""The origin that made it (MariaDB: server_id, MySQL: server_uuid), and its number."""
DAY = 86400.0
BYTES = 100
"""Of a transaction in a binary log of MySQL's."""
VERSIONS: dict[Flavor, str] = {"mariadb": "10.11.19", "mysql": "9.7.4"}


@dataclass
class Volume:
    """What outlives a process."""

    flavor: Flavor = "mariadb"
    uuid: str = ""
    """MySQL's server_uuid."""
    log: list[Transaction] = field(default_factory=list)
    pending: list[Transaction] = field(default_factory=list)
    """The end of the log that nobody had acknowledged when the process ended."""
    last: Transaction | None = None
    """Committed by the present process, and not yet on the disk but for the binary log; the next transaction brings it there."""
    source: str = ""
    """Host that it replicates from."""
    relay: list[Transaction] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    """Where each binary log begins, one for each start, as an index of `log`."""
    read: tuple[str, int] = ("", 0)
    """File and byte of the source's binary log up to which its transactions were received."""

    @property
    def end(self) -> tuple[str, int]:
        """File and byte at which the binary log ends."""
        return f"binlog.{len(self.files):06d}", BYTES * (1 + len(self.log) - self.files[-1])

    def commit(self, transactions: list[Transaction]) -> None:
        """Add to the log."""
        if transactions:
            self.log += transactions
            self.last = transactions[-1]

    def cut(self, where: TailCut, uuid: str) -> None:
        """What the start gate does: the end of the binary log goes, and what is written later is of a new uuid."""
        number = int(where.file.rpartition(".")[2])
        if number > len(self.files):
            return
        kept = self.log[: self.files[number - 1] + where.position // BYTES - 1]
        # What is committed in the tables stays executed.
        self.log = [one for one in self.log if one in kept or one not in self.pending]
        del self.files[number:]
        self.uuid = uuid

    def begin(self, *, replica: bool) -> None:
        """What a process finds that starts here."""
        if replica and self.flavor == "mariadb":
            lost = [*self.pending, self.last]
            if self.source and self.last is not None:
                self.relay.insert(0, self.last)
            self.log = [one for one in self.log if one not in lost]
        self.pending, self.last = [], None
        self.files.append(len(self.log))


@dataclass
class Process:
    """One running server."""

    pod: str
    server_id: int
    volume: Volume
    read_only: bool = True
    receives: bool = False
    applies: bool = False
    slow: bool = False
    """Its receiver runs, and nothing arrives from this source."""
    stuck: bool = False
    """Its applier waits for its own idle threads, until the process ends."""
    acknowledges: bool = False
    waits: bool = False
    """Commits wait for acknowledgements."""
    acks: int = 1
    """So many."""
    locked: bool = False
    """A switch holds its writes: nothing can be changed here before another server leads."""
    held: dict[str, str] = field(default_factory=dict)

    @property
    def flavor(self) -> Flavor:
        """As that of its data."""
        return self.volume.flavor

    @property
    def origin(self) -> str:
        """Of what it writes."""
        return self.volume.uuid or str(self.server_id)

    @property
    def source(self) -> str:
        """Host that it replicates from; kept on the volume."""
        return self.volume.source

    @property
    def position(self) -> Position:
        """What it executed; to MySQL a commit that waits for an acknowledgement is none yet."""
        return _position(self.flavor, self._committed())

    @property
    def received(self) -> Position:
        """That, and its relay log."""
        return _position(self.flavor, [*self._committed(), *self.volume.relay])

    def _committed(self) -> list[Transaction]:
        waiting = self.volume.pending if self.flavor == "mysql" and self.waits else []
        return [one for one in self.volume.log if one not in waiting]

    def apply(self) -> None:
        """Commit what it received."""
        self.volume.commit(self.volume.relay)
        self.volume.relay = []


class World:
    """The servers in a control plane's pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self.store = plane.server.cluster.store
        self.pods: dict[str, tuple[str, str]] = {}
        """Name and address, by UID."""
        self.processes: dict[str, Process] = {}
        """By UID of the pod."""
        self.volumes: dict[str, Volume] = {}
        self.acknowledged: list[Transaction] = []
        self.violations: list[str] = []
        self._uuids = 0
        self.writing = True
        """A client writes whenever somebody looks; else only by `write`."""
        _newest[:] = [self]

    # --- pods

    def started(self, pod: Pod, ip: str) -> None:
        """See `PodModel.started`: the container waits at its gate."""
        self.pods.setdefault(pod.metadata.uid or "", (pod.metadata.name or "", ip))

    def ready(self, pod: Pod, ip: str) -> bool:
        """See `PodModel.ready`."""
        return True

    def ended(self, uid: str) -> None:
        """See `PodModel.ended`: as if killed."""
        self.pods.pop(uid, None)
        self.processes.pop(uid, None)

    def at(self, host: str) -> Process | None:
        """The process at an address."""
        return next(
            (one for uid, one in self.processes.items() if self.pods.get(uid, ("", ""))[1] == host), None
        )

    def of(self, pod: str) -> Process | None:
        """The process of a pod."""
        return next((one for one in self.processes.values() if one.pod == pod), None)

    # --- time goes on

    def live(self) -> None:
        """Gates open, a client writes, replicas receive, acknowledge and apply."""
        self._start()
        for one in self.processes.values():
            if one.source and one.applies and not one.stuck:
                one.apply()
        writers = [one for one in self.processes.values() if not one.read_only]
        for one in writers if self.writing else ():
            if not one.volume.pending:
                self.write(one)
        for one in self.processes.values():
            self._receive(one)
        for one in writers:
            self._acknowledge(one)

    def write(self, one: Process) -> None:
        """One transaction; it is acknowledged when `live` has it received."""
        # MariaDB's numbers ascend over all servers, MySQL's over one.
        known = (seq for origin, seq in one.volume.log if one.flavor == "mariadb" or origin == one.origin)
        made = (one.origin, 1 + max(known, default=0))
        one.volume.commit([made])
        one.volume.pending.append(made)

    def _start(self) -> None:
        for entry in self.store.collection("pods"):
            meta = entry.obj["metadata"]
            uid = meta["uid"]
            order = gate.parse((meta.get("annotations") or {}).get(ORDER, ""))
            if uid in self.processes or uid not in self.pods or order is None or order.start != 1:
                continue
            name, claim = meta["name"], self._claim(meta["name"])
            if order.fresh or claim not in self.volumes:
                self.volumes[claim] = self.formatted(_flavor(entry.obj))
            volume = self.volumes[claim]
            if order.cut is not None:
                volume.cut(order.cut, self._uuid())
            self.processes[uid] = self.start(name, order.server_id, volume, replica=order.role == "replica")

    def formatted(self, flavor: Flavor) -> Volume:
        """An empty one."""
        return Volume(flavor=flavor, uuid=self._uuid() if flavor == "mysql" else "")

    def _uuid(self) -> str:
        """They ascend, so that runs are alike."""
        self._uuids += 1
        return f"{self._uuids:08x}-0000-0000-0000-000000000000"

    def start(self, pod: str, server_id: int, volume: Volume, *, replica: bool) -> Process:
        """A process on a volume."""
        volume.begin(replica=replica)
        return Process(pod, server_id, volume)

    def _claim(self, pod: str) -> str:
        entry = self.store.collection("persistentvolumeclaims").get(("default", f"data-{pod}"))
        return str(entry.obj["metadata"]["uid"]) if entry is not None else pod

    def _receive(self, one: Process) -> None:
        source = self.of(one.source.partition(".")[0]) if one.source and one.receives else None
        if source is None or one.slow:
            return
        known = {*one.volume.log, *one.volume.relay}
        one.volume.relay += [each for each in source.volume.log if each not in known]
        one.volume.read = source.volume.end

    def _acknowledge(self, one: Process) -> None:
        if not one.waits or sum(not other.slow for other in self._acking(one)) >= one.acks:
            self.acknowledged += one.volume.pending
            one.volume.pending.clear()

    def _acking(self, one: Process) -> list[Process]:
        """The receivers that acknowledge to a server."""
        return [
            other
            for other in self.processes.values()
            if other.acknowledges and other.receives and self.of(other.source.partition(".")[0]) is one
        ]

    # --- what a server says

    def server(self, one: Process) -> Server:
        """All that it tells."""
        link = None
        if one.source:
            source = self.of(one.source.partition(".")[0])
            link = Replication(
                host=one.source,
                io_running=one.receives and source is not None,
                connecting=one.receives and source is None,
                sql_running=one.applies,
                lag=0.0,
                source_file=one.volume.read[0] if one.flavor == "mysql" else "",
                source_position=one.volume.read[1] if one.flavor == "mysql" else 0,
                deadlocked=one.applies and one.stuck and bool(one.volume.relay),
            )
        return Server(
            flavor=one.flavor,
            version=VERSIONS[one.flavor],
            server_id=one.server_id,
            server_uuid=one.volume.uuid,
            read_only=one.read_only,
            executed=one.position,
            received=one.received,
            purged=Position(),
            replication=link,
            semi_sync=SemiSync(
                source=one.waits,
                replica=one.acknowledges,
                acks=one.acks,
                timeout=DAY,
                clients=len(self._acking(one)),
                waiting=len(one.volume.pending) if one.waits else 0,
            ),
            held=dict(one.held),
        )


_newest: list[World] = []


def newest() -> World:
    """That of the present run."""
    return _newest[-1]


def stick() -> None:
    """From now on the appliers of all replicas stand still."""
    for one in newest().processes.values():
        one.stuck = bool(one.source)


def fall_behind(pod: str) -> None:
    """A replica receives no more from its source, while others acknowledge what is written."""
    world = newest()
    one = world.of(pod)
    assert one is not None
    one.slow = True
    world.live()


def _position(flavor: Flavor, log: list[Transaction]) -> Position:
    if flavor == "mysql":
        return gtid.parse_mysql(",".join(f"{uuid}:{number}" for uuid, number in log))
    newest_of: dict[str, int] = {}
    for server, number in log:
        newest_of[server] = max(number, newest_of.get(server, 0))
    return gtid.parse_mariadb(",".join(f"0-{server}-{number}" for server, number in newest_of.items()))


def _flavor(pod: Any) -> Flavor:
    return next(found for one in pod["spec"]["containers"] if (found := flavor_of(one["image"], "auto")))


class InMemory:
    """Reaches the servers of the newest `World`; see `mooring.operators.mysql.servers.Databases`."""

    async def look(self, key: Key, inputs: Inputs, *, now: Callable[[], datetime]) -> Snapshot:
        """See `Databases.look`."""
        world = newest()
        world.live()
        members = []
        for pod in inputs.pods:
            process = world.processes.get(pod.uid)
            if process is not None:
                process.held = {**inputs.wanted.config, **process.held}
            members.append(
                Member(
                    pod=pod,
                    server=world.server(process) if process is not None else None,
                    error="" if process is not None else "Refused",
                    order=inputs.orders.get(pod.name, ""),
                )
            )
        return Snapshot(
            wanted=inputs.wanted,
            topology=Topology(members=members),
            observed=inputs.observed,
            status=inputs.status,
            now=now(),
        )

    async def carry_out(self, inputs: Inputs, move: DatabaseMove) -> Done:
        """See `Databases.carry_out`."""
        _MOVES[type(move)](newest(), move)
        newest().live()
        return Done()

    def forget(self, key: Key) -> None:
        """See `Databases.forget`."""

    async def serve(self) -> None:
        """See `Databases.serve`."""


def _found(world: World, target: Target) -> Process:
    process = world.at(target.host)
    if process is None or process.server_id != target.server_id:
        raise StepFailed(f"{target.name}: the process that was seen no longer answers")
    return process


def _follow(world: World, move: Follow) -> None:
    for target in move.targets:
        one = _found(world, target)
        again = move.again or (target.name in move.refetch and not (one.applies or one.receives))
        _point(one, move.source_host, acknowledges=target.name in move.acking, again=again)


def _point(one: Process, host: str, *, acknowledges: bool, again: bool = False) -> None:
    if one.source != host or again or (one.flavor == "mariadb" and not one.applies):
        one.volume.relay = []  # what was not applied is fetched again
    if one.source != host or not one.applies:
        one.slow = False
    one.read_only, one.waits = True, False
    one.volume.pending.clear()
    one.volume.source = host
    one.receives, one.applies, one.acknowledges = True, True, acknowledges


def _fence(world: World, move: Fence) -> None:
    for target in move.targets:
        _found(world, target).receives = False


def _promote(world: World, move: Promote) -> None:
    one = _found(world, move.target)
    one.receives = False
    one.apply()
    if not one.position.contains(move.expected):
        raise StepFailed(f"{one.pod} lacks what it was chosen for")
    one.volume.source, one.acknowledges, one.waits, one.acks = "", False, move.semi_sync, move.acks or 1
    one.read_only = False
    for target in move.others:
        other = world.at(target.host)
        if other is None or other.server_id != target.server_id:
            continue
        if other.locked:  # let go now; the next pass points it at the new primary
            other.locked = False
        else:
            _point(other, move.source_host, acknowledges=target.name in move.acking)


def _demote(world: World, move: Demote) -> None:
    _found(world, move.target).read_only = True


def _switch(world: World, move: Switch) -> None:
    primary, candidate = _found(world, move.primary), _found(world, move.candidate)
    world.live()
    if not candidate.received.contains(primary.position):
        raise StepFailed(f"{candidate.pod} did not catch up")
    candidate.apply()
    primary.read_only = primary.locked = True


def _durability(world: World, move: SetDurability) -> None:
    primary = _found(world, move.primary)
    primary.waits, primary.acks = move.semi_sync, move.acks or 1
    for target in move.silent:
        _found(world, target).acknowledges = False


def _configure(world: World, move: Configure) -> None:
    for target in move.targets:
        _found(world, target).held[move.key] = move.value


_MOVES: dict[type[DatabaseMove], Callable[[World, Any], None]] = {
    Follow: _follow,
    Fence: _fence,
    Promote: _promote,
    Demote: _demote,
    Switch: _switch,
    SetDurability: _durability,
    Configure: _configure,
}


# --- what nobody may do


def monitors() -> tuple[Monitor, ...]:
    """For a workload with this model: what no operator may ever bring a cluster to."""
    outlives = ("secrets demo-credentials", "secrets demo-credentials-copy")
    return (
        owned(but=outlives),
        kept("persistentvolumeclaims"),
        _nothing_lost,
        _one_acknowledges,
        _recorded_before,
        _some_acknowledge,
    )


def _nothing_lost(change: Change) -> str:
    """A cluster that is called in sync has every acknowledged transaction on its primary."""
    status = change.object.get("status") or {}
    if not change.resource.startswith("mysqlclusters") or change.type == "DELETED":
        return ""
    said = {one["type"]: one for one in status.get("conditions") or ()}
    if said.get("Progressing", {}).get("reason") != "InSync":
        return ""
    world = newest()
    primary = world.of(status.get("primary") or "")
    if primary is None:
        return "called in sync without a primary"
    lost = [one for one in world.acknowledged if one not in primary.volume.log]
    return f"{len(lost)} acknowledged transactions are lost" if lost else ""


def _one_acknowledges(change: Change) -> str:
    """At no time two servers can acknowledge writes."""
    world = newest()
    able = []
    for one in world.processes.values():
        ackers = [other for other in world.processes.values() if other.acknowledges and other.receives]
        followers = [other for other in ackers if world.of(other.source.partition(".")[0]) is one]
        if not one.read_only and (len(followers) >= one.acks or not one.waits):
            able.append(one.pod)
    return f"{' and '.join(sorted(able))} can both acknowledge writes" if len(able) > 1 else ""


def _some_acknowledge(change: Change) -> str:
    """No replica is started again for its applier while no other one acknowledges."""
    world, name = newest(), change.object["metadata"]["name"]
    told = change.previous is not None and change.previous["metadata"].get("deletionTimestamp")
    gone = change.resource == "pods" and change.object["metadata"].get("deletionTimestamp") and not told
    one = world.of(name) if gone else None
    if one is None or not one.stuck:
        return ""
    pods = world.store.collection("pods")
    others = [
        other
        for uid, other in world.processes.items()
        if other is not one and other.acknowledges and other.receives and not _leaving(pods, other.pod)
    ]
    return "" if others else f"{name} is started again, and no other replica acknowledges"


def _leaving(pods: Any, name: str) -> bool:
    entry = pods.get(("default", name))
    return entry is None or bool(entry.obj["metadata"].get("deletionTimestamp"))


def _recorded_before(change: Change) -> str:
    """Only the recorded primary takes writes, or one recorded before it that is cut off."""
    if not change.resource.startswith("mysqlclusters") or change.type == "DELETED":
        return ""
    status = change.object.get("status") or {}
    recorded = {status.get("primary"), *(one["pod"] for one in status.get("promotions") or ())}
    strangers = [
        one.pod for one in newest().processes.values() if not one.read_only and one.pod not in recorded
    ]
    return f"{', '.join(strangers)} takes writes and was never recorded" if strangers else ""
