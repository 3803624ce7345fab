"""What Redis 7.0 servers of a Redis Cluster answer to an operator, as plain data: no process, no socket, no time.

Each node knows some of the others, its slots, its marks of slots on the move and its keys; so a slot can be half-way,
and a node forgotten by one and known to another. What gossip does takes no time here: who was introduced to one node
is known to all that it knows, of two owners of a slot the newer stays, and a replica takes over as soon as its master
is gone. A process begins as the stand-in of the operator's start script, which waits to be let in
(mooring.operators.redis.cluster.scripts); what a node keeps outlives it on a `Volume`.
tests/bench/test_cluster_world.py compares it with real servers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.redis_world import VERSION, Error, Server, World

from mooring.operators.redis.cluster.names import REDIS_PORT
from mooring.operators.redis.cluster.slots import ALL, Slots, each, ranges

__all__ = ["ClusterWorld", "Volume"]

SLOTS: Final = 16384
#: Every so many slots somebody has written a key, once they have an owner.
SPACING: Final = 512
_NOBODY: Final = "192.0.2.1"


@dataclass
class Volume:
    """What a node keeps: its nodes.conf and its data."""

    id: str = ""
    slots: Slots = 0
    epoch: int = 0
    master: str = ""
    known: set[str] = field(default_factory=set)
    #: Slots on their way: the other side, and whether they leave.
    marks: dict[int, tuple[str, bool]] = field(default_factory=dict)
    keys: dict[int, set[str]] = field(default_factory=dict)

    def reset(self, id: str) -> None:
        """Forget everything, and be called so."""
        self.id, self.slots, self.epoch, self.master = id, 0, 0, ""
        self.known, self.marks, self.keys = set(), {}, {}

    @property
    def size(self) -> int:
        """How many keys it has."""
        return sum(map(len, self.keys.values()))


@dataclass
class _Process:
    """A server: the stand-in, or with ``serves`` the node itself."""

    pod: str
    volume: Volume
    clustered: bool
    serves: bool = False


class ClusterWorld(World):
    """The servers of Redis Clusters, by address."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: dict[str, _Process] = {}
        #: Where each node was last, and what it keeps, by id.
        self._last: dict[str, str] = {}
        self._volumes: dict[str, Volume] = {}
        self._said: dict[str, bool] = {}
        self._named: Counter[str] = Counter()
        #: The keys that somebody wrote.
        self.written: set[str] = set()

    # --- processes

    def begin(self, server: Server, *, pod: str, volume: Volume) -> None:
        """A pod's container starts."""
        self.servers[server.ip] = server
        self._processes[server.ip] = _Process(pod, volume, clustered=True)

    def serves(self, ip: str) -> bool:
        """Whether the node itself runs there, and all slots have an owner whom it knows."""
        there = self._processes.get(ip)
        return there is not None and there.serves and self._covered(there.volume)

    def end(self, ip: str) -> None:
        """The process at an address is gone; a replica takes over what it led."""
        gone = self._processes.pop(ip, None)
        self.servers.pop(ip, None)
        self._said.pop(ip, None)
        if gone is not None and gone.serves and not gone.volume.master and gone.volume.slots:
            heirs = [one for one in self._live() if one.master == gone.volume.id]
            if heirs:
                self._lead(min(heirs, key=lambda one: one.id), gone.volume)

    def _let_in(self, ip: str) -> None:
        """The stand-in ends and the node begins, as it was ordered."""
        it = self._processes[ip]
        order = self.servers[ip].config["replica-priority"]
        if order not in ("1", "2"):
            return
        volume = it.volume
        if order == "2" or not volume.id:
            volume.reset(self._id(it.pod))
        self.servers[ip].config["replica-priority"] = "100"
        it.serves = True
        self._last[volume.id], self._volumes[volume.id] = ip, volume
        self._gossip()

    def _id(self, pod: str) -> str:
        """A new node's, the same in each run."""
        self._named[pod] += 1
        return hashlib.sha1(f"{pod} {self._named[pod]}".encode(), usedforsecurity=False).hexdigest()

    # --- what the nodes tell one another

    def _live(self) -> list[Volume]:
        return [one.volume for one in self._processes.values() if one.serves]

    def _node(self, id: str) -> Volume | None:
        return next((one for one in self._live() if one.id == id), None)

    def _gossip(self) -> None:
        """Masters get epochs of their own, of two owners of a slot the newer one stays, replicas follow the owner."""
        live = self._live()
        masters = [one for one in live if not one.master]
        for one in sorted(masters, key=lambda one: one.id):
            # Of two with one epoch the one with the lower id takes the next.
            if any(
                other.epoch == one.epoch and other.id > one.id and other.id in one.known for other in masters
            ):
                one.epoch = 1 + max(other.epoch for other in live)
        for one in masters:
            for other in masters:
                if one is other or other.id not in one.known:
                    continue
                if (lost := one.slots & other.slots) and (one.epoch, one.id) < (other.epoch, other.id):
                    self._lose(one, lost, to=other)
        for one in live:
            if (leader := self._node(one.master)) is not None:
                if leader.master:
                    one.master = leader.master
                else:
                    one.keys = {slot: set(keys) for slot, keys in leader.keys.items()}
        self._tell()

    def _tell(self) -> None:
        """Have the readiness of those asked for that serve now and did not, or the other way round."""
        for ip, server in self.servers.items():
            if self._said.get(ip, False) != (now := self.serves(ip)):
                self._said[ip] = now
                server.changed()

    def _lose(self, it: Volume, lost: Slots, *, to: Volume) -> None:
        it.slots &= ~lost
        for slot in each(lost):
            it.keys.pop(slot, None)
            it.marks.pop(slot, None)
        if not it.slots:  # who loses his last slot follows whoever has it
            it.master = to.id

    def _lead(self, heir: Volume, leader: Volume) -> None:
        heir.epoch = 1 + max(one.epoch for one in [*self._live(), leader])
        heir.master, heir.slots = "", leader.slots
        leader.slots, leader.marks, leader.master = 0, {}, heir.id
        self._gossip()

    def _meet(self, it: Volume, ip: str) -> None:
        met = self._processes.get(ip)
        if met is None or not met.serves or met.volume is it:
            return
        ids = {it.id, met.volume.id} | it.known | met.volume.known
        for one in self._live():
            if one.id in ids:
                one.known |= ids - {one.id}
        self._gossip()

    def _covered(self, it: Volume) -> bool:
        taken = it.slots
        for other in self._live():
            if other.slots and other.id in it.known:
                taken |= other.slots
        return taken == ALL

    # --- answers

    def of_server(self, it: Server, words: Sequence[str]) -> Any:
        """What a server answers to somebody it has let in."""
        there = self._processes[it.ip]
        if words[0] == "CLUSTER" and there.serves:  # nine in ten
            return self._cluster(there.volume, words[1].upper(), words[2:])
        match [words[0].upper(), *words[1:]]:
            case ["SHUTDOWN", *_] if not there.serves:
                self._let_in(it.ip)
                raise KeyError(it.ip)  # the connection ends with the stand-in
            case ["CONFIG", verb] if verb.upper() == "REWRITE":
                return "OK"
            case ["INFO", *sections]:
                return self._info_of(it, there, [one.lower() for one in sections])
            case ["CLUSTER", *_] if not there.serves:
                return Error("ERR This instance has cluster support disabled")
            case ["ROLE"]:
                leader = there.volume.master
                return (
                    ["slave", self._last.get(leader, ""), REDIS_PORT, "connected", 1]
                    if leader
                    else ["master", 1, []]
                )
            case ["MEMORY", _, _]:
                return 64
            case ["MIGRATE", ip, _, "", _, _, *rest]:
                return self._migrate(there.volume, ip, rest)
            case ["ASKING"]:
                return "OK"
            case ["DEL", key]:
                return self._delete(there.volume, key)
        return super().of_server(it, words)

    def _info_of(self, it: Server, there: _Process, sections: Sequence[str]) -> str:
        volume = there.volume
        lines = []
        if "server" in sections:
            disk = "full" if volume.size else "none"
            file = f"/mooring/run/held/{there.pod}.{volume.id or 'none'}.{disk}.conf"
            lines.append(f"redis_version:{VERSION}")
            lines.append(f"config_file:{'/mooring/run/redis.conf' if there.serves else file}")
        if "persistence" in sections:
            lines += ["loading:0", "async_loading:0"]
        if "cluster" in sections:
            lines.append(f"cluster_enabled:{int(there.serves)}")
        if "replication" in sections:
            lines += self._replication_of(there)
        if "keyspace" in sections and there.serves and volume.size:
            lines.append(f"db0:keys={volume.size},expires=0,avg_ttl=0")
        return "\r\n".join(lines)

    def _replication_of(self, there: _Process) -> list[str]:
        volume, lines = there.volume, []
        leader = self._last.get(volume.master, "") if there.serves else _NOBODY
        if volume.master or not there.serves:
            up = there.serves and self._node(volume.master) is not None
            lines += ["role:slave", f"master_host:{leader}", f"master_port:{REDIS_PORT}"]
            lines += [f"master_link_status:{'up' if up else 'down'}", "master_sync_in_progress:0"]
            lines += ["slave_repl_offset:1000"]
        else:
            lines += ["role:master"]
        return [*lines, "master_repl_offset:1000"]

    def _cluster(self, it: Volume, verb: str, rest: Sequence[str]) -> Any:
        match [verb, *rest]:
            case ["SETSLOT", slot, state, *node]:
                return self._set_slot(it, int(slot), state.upper(), *node)
            case ["MYID"]:
                return it.id
            case ["NODES"]:
                return "\n".join(self._line(it, id) for id in [it.id, *sorted(it.known)]) + "\n"
            case ["INFO"]:
                return f"cluster_state:{'ok' if self._covered(it) else 'fail'}"
            case ["MEET", ip, _]:
                self._meet(it, ip)
                return "OK"
            case ["SET-CONFIG-EPOCH", epoch]:
                if it.known:
                    return Error(
                        "ERR The user can assign a config epoch only when the node does not know any other node."
                    )
                it.epoch = int(epoch)
                return "OK"
            case ["BUMPEPOCH"]:
                return f"{'BUMPED' if self._bump(it) else 'STILL'} {it.epoch}"
            case ["ADDSLOTS", *slots]:
                return self._add(it, [int(slot) for slot in slots])
            case ["REPLICATE", id]:
                return self._replicate(it, id)
            case ["FAILOVER", *how]:
                return self._take_over(it, *how)
            case ["FORGET", id]:
                return self._forget(it, id)
            case ["RESET", *_]:
                if it.size and not it.master:
                    return Error("ERR CLUSTER RESET can't be called with master nodes containing keys")
                it.reset(it.id)
                return "OK"
            case ["COUNTKEYSINSLOT", slot]:
                return len(it.keys.get(int(slot), ()))
            case ["GETKEYSINSLOT", slot, most]:
                return sorted(it.keys.get(int(slot), ()))[: int(most)]
        return Error(f"ERR unknown subcommand '{verb}'. Try CLUSTER HELP.")

    def _line(self, it: Volume, id: str) -> str:
        """One line of CLUSTER NODES."""
        node = it if id == it.id else self._node(id)
        address = f"{self._last.get(id, '')}:{REDIS_PORT}@{REDIS_PORT + 10000}"
        if node is None:
            gone = self._volume(id)
            role = f"slave,fail {gone.master}" if gone.master else "master,fail -"
            return f"{id} {address} {role} 0 0 {gone.epoch} disconnected{_ranges(gone.slots)}"
        flags = f"{'myself,' if node is it else ''}{'slave' if node.master else 'master'}"
        marks = ""
        if node is it:
            for slot, (peer, leaves) in sorted(it.marks.items()):
                marks += f" [{slot}-{'>' if leaves else '<'}-{peer}]"
        return f"{id} {address} {flags} {node.master or '-'} 0 0 {node.epoch} connected{_ranges(node.slots)}{marks}"

    def _volume(self, id: str) -> Volume:
        """What a node that is away left behind: as the others remember it."""
        found = self._volumes.get(id)
        return found if found is not None and found.id == id else Volume(id=id)

    def _add(self, it: Volume, slots: Sequence[int]) -> str | Error:
        wanted = sum(1 << slot for slot in slots)
        taken = it.slots
        for id in it.known:
            taken |= node.slots if (node := self._node(id)) is not None else 0
        if busy := wanted & taken:
            return Error(f"ERR Slot {next(each(busy))} is already busy")
        it.slots |= wanted
        for slot in slots:
            if slot % SPACING == 0:
                it.keys.setdefault(slot, set()).add(f"key-{slot}")
                self.written.add(f"key-{slot}")
        self._gossip()
        return "OK"

    def _replicate(self, it: Volume, id: str) -> str | Error:
        if id not in it.known:
            return Error(f"ERR Unknown node {id}")
        leader = self._node(id)
        if leader is None or leader.master:
            return Error("ERR I can only replicate a master, not a replica.")
        if not it.master and (it.slots or it.size):
            return Error("ERR To set a master the node must be empty and without assigned slots.")
        it.master, it.marks = id, {}
        self._gossip()
        return "OK"

    def _take_over(self, it: Volume, how: str = "") -> str | Error:
        if not it.master:
            return Error("ERR You should send CLUSTER FAILOVER to a replica")
        leader = self._node(it.master)
        if leader is None and not how:
            return Error("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE")
        self._lead(it, leader or self._volume(it.master))
        return "OK"

    def _forget(self, it: Volume, id: str) -> str | Error:
        if id == it.id:
            return Error("ERR I tried hard but I can't forget myself...")
        if id not in it.known:
            return Error(f"ERR Unknown node {id}")
        if it.master == id:
            return Error("ERR Can't forget my master!")
        it.known.discard(id)
        return "OK"

    def _set_slot(self, it: Volume, slot: int, state: str, node: str = "") -> str | Error:
        mine = bool(it.slots >> slot & 1)
        if it.master:
            return Error("ERR Please use SETSLOT only with masters.")
        if state == "STABLE":
            it.marks.pop(slot, None)
            return "OK"
        if node != it.id and node not in it.known:
            return Error(f"ERR I don't know about node {node}")
        if state in ("IMPORTING", "MIGRATING"):
            if mine != (state == "MIGRATING"):
                why = "I'm not the owner of" if not mine else "I'm already the owner of"
                return Error(f"ERR {why} hash slot {slot}")
            it.marks[slot] = node, state == "MIGRATING"
            return "OK"
        if mine and node != it.id and it.keys.get(slot):
            return Error(
                f"ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
            )
        marked = it.marks.get(slot)
        if marked is not None and (marked[1] != (node == it.id)):
            it.marks.pop(slot)
        if node != it.id:
            it.slots &= ~(1 << slot)
            return "OK"
        if not mine:
            if marked is not None and not marked[1]:
                self._bump(it)
            it.slots |= 1 << slot
            for other in self._live():
                if other is not it and other.slots >> slot & 1 and not other.keys.get(slot):
                    other.slots &= ~(1 << slot)
                    other.marks.pop(slot, None)
        return "OK"

    def _bump(self, it: Volume) -> bool:
        """Give it an epoch above all others, if it has none."""
        before = it.epoch
        it.epoch = max([it.epoch, *(1 + one.epoch for one in self._live() if one is not it)])
        return it.epoch != before

    def _migrate(self, it: Volume, ip: str, rest: Sequence[str]) -> str | Error:
        target = self._processes.get(ip)
        if target is None or not target.serves:
            return Error("IOERR error or timeout connecting to the client")
        keys, replace = rest[rest.index("KEYS") + 1 :], "REPLACE" in rest[: rest.index("KEYS")]
        moved = False
        for key in keys:
            slot = int(key.removeprefix("key-"))
            if key not in it.keys.get(slot, ()):
                continue
            there = target.volume.keys.setdefault(slot, set())
            if key in there and not replace:
                return Error(
                    "ERR Target instance replied with error: BUSYKEY Target key name already exists."
                )
            there.add(key)
            it.keys[slot].discard(key)
            moved = True
        self._gossip()
        return "OK" if moved else "NOKEY"

    def _delete(self, it: Volume, key: str) -> int:
        keys = it.keys.get(int(key.removeprefix("key-")), set())
        found = key in keys
        keys.discard(key)
        return int(found)


def _ranges(slots: Slots) -> str:
    """Slots as CLUSTER NODES lists them."""
    return "".join(f" {low}-{high}" if low != high else f" {low}" for low, high in ranges(slots))
