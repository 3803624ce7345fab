"""What the servers say: each node's own view of the cluster, and the disk of those that wait at their gate.

Every node tells of itself what no other can know as surely: its id, its slots, the marks of a slot that is being
moved. What others say of it shows whether they agree. redis-py's reading of CLUSTER NODES is keyed by address and
drops one of two ids that share one, and that is the case to be healed; hence our own, of one line per node.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.cluster.names import REDIS_PORT
from mooring.operators.redis.cluster.slots import ALL, Slots, span
from mooring.operators.redis.dial import Address, Dial, DialError, Link, Refused
from mooring.operators.redis.info import keys_of, pairs, parse_info, rewriting
from mooring.operators.redis.passwords.seen import ASKED, Auth, told_auth
from mooring.operators.redis.tls import shown_leaf
from mooring.operators.redis.users import seen as seen_users
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.users.seen import SeenUsers
from mooring.operators.redis.versions import server_version
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.pods import Pod

__all__ = [
    "SILENCE",
    "UNHEARD",
    "Disk",
    "Gate",
    "Live",
    "Load",
    "Mark",
    "Node",
    "Peer",
    "Seen",
    "Server",
    "outranked",
    "parse_nodes",
    "read_node",
    "read_nodes",
]

Disk = Literal["none", "part", "full"]
"""What the volume of a node at its gate has: nothing, an older snapshot, or everything it acknowledged."""
NO_MASTER: Final = "-"
SILENCE: Final = 10.0
"""Seconds without an answer for which a node that is called failed is thought to be so still: nodes ask one another at
least every half node timeout (7.5 s), and a master says something to its replicas every 10 s."""
UNHEARD: Final = 3
"""Seconds for which the replica of a master that hangs must have heard nothing from it: one that woke passes on at once what
it acknowledges."""
_GATE: Final = re.compile(r"/held/(?P<pod>[^/]+)\.(?P<id>[0-9a-f]{40}|none)\.(?P<disk>none|part|full)\.conf$")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A slot that is being moved: ``outgoing`` at its owner, incoming at the one that shall get it."""

    slot: int
    peer: str
    outgoing: bool


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One line of CLUSTER NODES."""

    id: str
    address: Address
    flags: frozenset[str] = frozenset()
    master: str = ""
    """Its master's id, "" of a master."""
    epoch: int = 0
    connected: bool = True
    heard: float = 0.0
    """When it answered last, in seconds by the viewer's clock; 0 for never."""
    slots: Slots = 0
    marks: tuple[Mark, ...] = ()

    @property
    def is_master(self) -> bool:
        return "master" in self.flags

    @property
    def failed(self) -> bool:
        """Agreed to be down; ``fail?`` is one node's suspicion."""
        return "fail" in self.flags

    @property
    def doubted(self) -> bool:
        """The viewer has waited for its answer for the node timeout, whether or not others agree."""
        return self.failed or "fail?" in self.flags

    @property
    def settled(self) -> bool:
        """Its id is known: no handshake is under way."""
        return "handshake" not in self.flags


def parse_nodes(text: str) -> tuple[Peer, ...]:
    """CLUSTER NODES of any version, 3.2 (no bus port) to 7.x (host names)."""
    return tuple(_peer(line.split()) for line in text.splitlines() if line.strip())


def _peer(words: Sequence[str]) -> Peer:
    node, address, flags, master, _, heard, epoch, link, *slots = words
    host, _, port = address.partition("@")[0].partition(",")[0].rpartition(":")
    owned, marks = 0, []
    for word in slots:
        if word.startswith("["):
            number, sign, peer = re.split(r"-([<>])-", word.strip("[]"))
            marks.append(Mark(slot=int(number), peer=peer, outgoing=sign == ">"))
            continue
        first, _, last = word.partition("-")
        owned |= span(int(first), int(last or first))
    return Peer(
        id=node,
        address=Address(host.strip("[]"), int(port or 0)),
        flags=frozenset(flags.split(",")),
        master="" if master == NO_MASTER else master,
        epoch=int(epoch),
        connected=link == "connected",
        heard=int(heard) / 1000,
        slots=owned,
        marks=tuple(marks),
    )


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A server that waits at its gate to be released; ``id`` is the one its volume has, "" for none."""

    id: str
    disk: Disk


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a server works and holds."""

    memory: int
    """Bytes in use."""
    limit: int
    """Its maxmemory in bytes; 0 for none."""
    commands: int
    """Commands since its process began."""
    process: str
    """The process that counts them."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A node's answer."""

    view: tuple[Peer, ...] = ()
    version: str = "7.0.15"
    clustered: bool = True
    role: str = "master"
    keys: int = 0
    offset: int = 0
    master: Address | None = None
    link_up: bool = True
    last_io: int = 0
    """Seconds since a replica last heard its master."""
    cut: int = 0
    """Seconds for which a replica has no connection to its master; negative if it never had one."""
    syncing: bool = False
    loading: bool = False
    rewriting: bool = False
    """It rewrites its append-only file. While it writes its first one, it refuses SIGTERM; see `info.rewriting`."""
    covered: bool = True
    """CLUSTER INFO says ok."""
    load: Load | None = None
    """None where it was not asked for."""

    @cached_property
    def me(self) -> Peer:
        """Its own line; of a server that is no cluster node an empty one."""
        found = next((peer for peer in self.view if "myself" in peer.flags), None)
        return found or Peer(id="", address=Address("", 0))

    @cached_property
    def peers(self) -> dict[str, Peer]:
        """Whom it knows, by id."""
        return {peer.id: peer for peer in self.view if peer.settled}

    def silence(self, id: str) -> float:
        """Seconds for which a node that is called failed has not answered while others did.

        0 for one that is not, or that never answered this node. A replica hears its master in the stream of writes too.
        """
        peer = self.peers.get(id)
        if peer is None or not peer.failed or not peer.heard:
            return 0.0
        silence = max(one.heard for one in self.view) - peer.heard
        return min(silence, self.last_io) if self.me.master == id else silence


def outranked(server: Server, owner: str) -> bool:
    """This master's former one is a master by a number as high: others take that one's word on their slots."""
    former = server.peers.get(owner)
    if former is None or owner == server.me.id or former.slots:
        return False
    return former.is_master and former.epoch >= server.me.epoch


@dataclass(frozen=True, kw_only=True)
class Node:
    """A pod and what its server answers; neither answer nor hold means silence, and silence means nothing."""

    pod: Pod
    server: Server | None = None
    gate: Gate | None = None
    auth: Auth | None = None
    """Which of our passwords it accepts and presents; None where it was not asked or did not answer."""
    users: SeenUsers | None = None
    """Its users; None where they were not asked for, or of a server before 6.0."""
    error: str = ""
    locked: bool = False
    """It takes no password that we know."""
    port: int = REDIS_PORT
    leaf: str = ""
    """Digest of the certificate that it shows; "" without TLS."""
    authority: str = ""
    """Name of the file with the authorities that it has read; "" without TLS."""

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def address(self) -> Address:
        return Address(self.pod.ip, self.port)

    @property
    def id(self) -> str:
        """Its id, from itself or from its volume; "" where neither is known."""
        if self.server is not None:
            return self.server.me.id
        return self.gate.id if self.gate is not None else ""


@dataclass(frozen=True, kw_only=True)
class Live:
    """A node that answers as part of a cluster."""

    node: Node
    server: Server = field(repr=False)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def id(self) -> str:
        return self.server.me.id

    @property
    def slots(self) -> Slots:
        return self.server.me.slots if self.is_master else 0

    @property
    def is_master(self) -> bool:
        return self.server.me.is_master

    @property
    def master(self) -> str:
        """The id it follows, "" of a master."""
        return self.server.me.master


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All nodes at one moment."""

    nodes: tuple[Node, ...] = ()

    @cached_property
    def live(self) -> tuple[Live, ...]:
        """Those that answer as cluster nodes, loading ones too."""
        return tuple(
            Live(node=one, server=one.server)
            for one in self.nodes
            if one.server is not None and one.server.clustered and one.server.me.id
        )

    @cached_property
    def by_id(self) -> dict[str, Live]:
        return {one.id: one for one in self.live}

    @cached_property
    def foreign(self) -> tuple[Live, ...]:
        """Nodes with keys that know no other node: a server takes every slot that it finds keys of."""
        return tuple(
            one for one in self.live if one.is_master and one.server.keys and len(one.server.view) == 1
        )

    @cached_property
    def owners(self) -> dict[str, Slots]:
        """Slots of every live master that has some, by its own word; of two claims the newer epoch counts."""
        found: dict[str, Slots] = {}
        taken = 0
        ours = [one for one in self.live if one not in self.foreign]
        for one in sorted(ours, key=lambda one: -one.server.me.epoch):
            if mine := one.slots & ~taken:
                found[one.id] = mine
                taken |= mine
        return {one.id: found[one.id] for one in self.live if one.id in found}

    @cached_property
    def absent_owners(self) -> dict[str, Slots]:
        """Slots that live nodes give to ids that do not answer, by the newest words on each id.

        Of words equally new all count: a node that knows somebody by hearsay alone gives it no slots and the epoch 0,
        which may be that of an owner. The epoch beside a replica is its master's, so it tells nothing.
        """
        words = [
            peer
            for one in self.live
            for peer in one.server.peers.values()
            if peer.id not in self.by_id and peer.is_master
        ]
        newest: dict[str, int] = {}
        for peer in words:
            newest[peer.id] = max(newest.get(peer.id, 0), peer.epoch)
        given = {
            id: _union(peer.slots for peer in words if (peer.id, peer.epoch) == (id, newest[id]))
            for id in newest
        }
        covered = _union(self.owners.values())
        return {id: left for id, slots in given.items() if (left := slots & ~covered)}

    @property
    def covered(self) -> Slots:
        """Slots with a live owner."""
        return _union(self.owners.values())

    @property
    def assigned(self) -> Slots:
        """Slots with an owner, live or not."""
        return self.covered | _union(self.absent_owners.values())

    def replicas_of(self, master: str) -> list[Live]:
        """Live nodes that follow it."""
        return [one for one in self.live if one.master == master]

    def unheard(self, members: Sequence[Live]) -> list[tuple[Live, Live]]:
        """Pairs of a node and one that does not know yet its slots or its master: the node, and who sees it otherwise."""
        return [
            (other, one)
            for one in members
            for other in members
            if (peer := one.server.peers.get(other.id)) is not None
            and one is not other
            and peer.connected
            and (peer.slots != self.owners.get(other.id, 0) or peer.master != other.master)
        ]

    def disagreement(self, members: Sequence[Live]) -> str:
        """How these nodes' views differ, or "": who is there, who owns what."""
        wanted = self.owners
        for one in members:
            if any(not peer.settled for peer in one.server.view):
                return f"{one.name} is still meeting another node"
            for other in members:
                peer = one.server.peers.get(other.id)
                if peer is None:
                    return f"{one.name} does not know {other.name}"
                if not peer.connected:
                    return f"{one.name} has no connection to {other.name}"
                if peer.is_master and peer.slots != wanted.get(other.id, 0):
                    return f"{one.name} sees other slots at {other.name} than {other.name} itself"
                if peer.master != other.master:
                    return f"{one.name} does not know yet which node {other.name} follows"
        epochs = Counter(one.server.me.epoch for one in members if one.slots)
        if clash := next((epoch for epoch, number in epochs.items() if number > 1), None):
            return f"two masters have the configuration epoch {clash}"
        return "" if self.covered == ALL or not self.covered else "slots are without a live owner"

    def marks(self) -> list[tuple[Live, Mark]]:
        """The open marks, each at the node that bears it."""
        return [(one, mark) for one in self.live for mark in one.server.me.marks]


def _union(many: Iterable[Slots]) -> Slots:
    found = 0
    for one in many:
        found |= one
    return found


async def read_nodes(
    dial: Dial,
    pods: Sequence[Pod],
    *,
    password: str,
    kept: Kept | None = None,
    access: Access | None = None,
    account: str = "",
    tls: bool = False,
    load: bool = False,
) -> Seen:
    """Ask all of them at once; with ``kept`` also which of these passwords each accepts, with ``access`` its users.

    ``account`` is the password of the replicas' account. With ``load`` also what each works and holds.
    """
    port = TLS_PORT if tls else REDIS_PORT
    users = (access, account) if access is not None and access.managed else None
    found = await asyncio.gather(
        *(_read(dial, Node(pod=pod, port=port), password, kept, users, load=load) for pod in pods)
    )
    return Seen(nodes=tuple(found))


async def _read(
    dial: Dial,
    silent: Node,
    password: str,
    kept: Kept | None,
    users: tuple[Access, str] | None,
    *,
    load: bool,
) -> Node:
    pod = silent.pod
    if not pod.ip or not pod.running:
        return replace(silent, error=pod.trouble or "it does not run")
    try:
        async with dial.link(silent.address, password=password) as link:
            node = replace(await read_node(link, pod, load=load), port=silent.port)
            if link.certificate and node.server is not None:
                read = pairs(await link.call("CONFIG", "GET", "tls-ca-cert-file"))
                authority = read.get("tls-ca-cert-file", "").rpartition("/")[2]
                node = replace(node, leaf=shown_leaf(link.certificate), authority=authority)
            if users is not None and node.server is not None:
                access, account = users
                listed = await link.pipeline(seen_users.ASKED)
                found = seen_users.read_users(access, node.server.version, account, listed)
                node = replace(node, users=found)
            if kept is None or node.server is None:
                return node
            with suppress(DialError):
                return replace(node, auth=told_auth(kept, *await link.pipeline(ASKED)))
            return node
    except DialError as error:
        return replace(silent, error=str(error), locked=isinstance(error, Refused) and error.for_login)


async def read_node(link: Link, pod: Pod, *, load: bool = False) -> Node:
    """One round trip to one server."""
    sections = ("server", "replication", "keyspace", "persistence", "cluster")
    answers = await link.pipeline(
        [
            *(("INFO", section) for section in (*sections, *(("memory", "stats") if load else ()))),
            ("CLUSTER", "NODES"),
            ("CLUSTER", "INFO"),
        ]
    )
    *texts, nodes, state = answers
    if refused := next((one for one in texts if isinstance(one, Refused)), None):
        raise refused
    info: dict[str, str] = {}
    for text in texts:
        info |= parse_info(text)
    if at_gate := _GATE.search(info.get("config_file", "")):
        known = at_gate["id"]
        disk: Disk = {"full": "full", "part": "part"}.get(at_gate["disk"], "none")  # type: ignore[assignment]
        return Node(pod=pod, gate=Gate(id="" if known == "none" else known, disk=disk))
    clustered = info.get("cluster_enabled") == "1"
    if clustered and isinstance(nodes, Refused):
        raise nodes
    cluster = parse_info(state) if isinstance(state, str) else {}
    return Node(pod=pod, server=_server(info, nodes if clustered else "", cluster))


def _server(info: Mapping[str, str], nodes: str, cluster: Mapping[str, str]) -> Server:
    role = info.get("role", "")
    host = info.get("master_host")
    offset = "slave_repl_offset" if role == "slave" else "master_repl_offset"
    return Server(
        view=parse_nodes(nodes),
        version=server_version(info),
        clustered=info.get("cluster_enabled") == "1",
        role=role,
        keys=keys_of(info),
        offset=int(info.get(offset) or 0),
        master=Address(host, int(info.get("master_port") or 0)) if host else None,
        link_up=role == "master" or info.get("master_link_status") == "up",
        last_io=int(info.get("master_last_io_seconds_ago") or 0),
        cut=int(info.get("master_link_down_since_seconds") or 0),
        syncing=info.get("master_sync_in_progress") == "1",
        loading=info.get("loading") == "1" or info.get("async_loading") == "1",
        rewriting=rewriting(info),
        covered=cluster.get("cluster_state") == "ok",
        load=_load(info) if "used_memory" in info else None,
    )


def _load(info: Mapping[str, str]) -> Load:
    return Load(
        memory=int(info.get("used_memory") or 0),
        limit=int(info.get("maxmemory") or 0),
        commands=int(info.get("total_commands_processed") or 0),
        process=info.get("run_id", ""),
    )
