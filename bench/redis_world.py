"""What Redis 7.0 servers and sentinels answer to an operator, as plain data: no process, no socket, no time.

    world = World()
    world.servers[ip] = Server(cluster, ip)
    session = world.session(ip, 6379)
    session.answer(["SLAVEOF", "NO", "ONE"])        # "OK", or an `Error`

Every command that the Redis sentinel operator sends is known, and what it changes others see at once: a follower
is in sync as soon as its master lets it in, sentinels know all that can be known, a fail-over is done when it is
asked for (the old master goes on as one until somebody tells it). Elections by the sentinels themselves do not
happen. tests/bench/test_redis_world.py compares it with real servers,
command by command.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from mooring.operators.redis.parameters import canonical
from mooring.operators.redis.sentinel.topology import GATE, MASTER_NAME, REDIS_PORT, SENTINEL_PORT

__all__ = ["VERSION", "Error", "Sentinel", "Server", "Session", "World"]

VERSION: Final = "7.0.15"
_NONE: Final = "0" * 40
_Make = Callable[[str], str]


@dataclass(frozen=True)
class Error:
    """An error answer, its code first."""

    text: str


def _id() -> str:
    """Of the module's dice, so that a campaign's runs are alike."""
    return f"{random.getrandbits(160):040x}"


# --- configuration ---


def _number(low: int, high: int) -> _Make:
    def make(text: str) -> str:
        if not re.fullmatch(r"-?\d+", text) or not -(2**63) <= int(text) < 2**63:
            raise ValueError("argument couldn't be parsed into an integer")
        if low <= int(text) <= high:
            return text
        raise ValueError(f"argument must be between {low} and {high} inclusive")

    return make


def _memory(text: str) -> str:
    units = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3}
    digits = text.lower().rstrip("bkmg")
    unit = text.lower()[len(digits) :]
    if not digits.isdigit() or unit not in units:
        raise ValueError("argument must be a memory value")
    return str(int(digits) * units[unit])


def _some_memory(text: str) -> str:
    if _memory(text) == "0":
        raise ValueError(f"argument must be between 1 and {2**63 - 1} inclusive")
    return _memory(text)


def _switch(text: str) -> str:
    if text.lower() not in ("yes", "no"):
        raise ValueError("argument must be 'yes' or 'no'")
    return text.lower()


def _one_of(*words: str) -> _Make:
    def make(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"argument(s) must be one of the following: {', '.join(words)}")
        return text.lower()

    return make


def _save(text: str) -> str:
    words = text.split()
    if len(words) % 2 or not all(word.isdigit() for word in words):
        raise ValueError("Invalid save parameters")
    return " ".join(words)


def _immutable(text: str) -> str:
    raise ValueError("can't set immutable config")


def _hertz(text: str) -> str:
    return str(min(max(int(_number(0, _INT)(text)), 1), 500))


_INT: Final = 2**31 - 1
_POLICIES: Final = (
    *("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"),
    *("allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"),
)
#: Keys by their modern spelling: the value of a server that was told nothing, and what it makes of another.
CONFIG: Final[dict[str, tuple[str, _Make]]] = {
    "activerehashing": ("yes", _switch),
    "aof-load-truncated": ("yes", _switch),
    "appendfsync": ("everysec", _one_of("everysec", "always", "no")),
    "appendonly": ("no", _switch),
    "auto-aof-rewrite-min-size": ("67108864", _memory),
    "auto-aof-rewrite-percentage": ("100", _number(0, _INT)),
    "databases": ("16", _immutable),
    "hash-max-listpack-entries": ("512", _number(0, 2**63 - 1)),
    "hz": ("10", _hertz),
    "io-threads": ("1", _immutable),
    "lazyfree-lazy-eviction": ("no", _switch),
    "masterauth": ("", str),
    "masteruser": ("", str),
    "maxclients": ("10000", _number(1, 2**32 - 1)),
    "maxmemory": ("0", _memory),
    "maxmemory-policy": ("noeviction", _one_of(*_POLICIES)),
    "maxmemory-samples": ("5", _number(1, _INT)),
    "min-replicas-max-lag": ("10", _number(0, _INT)),
    "min-replicas-to-write": ("0", _number(0, _INT)),
    "notify-keyspace-events": ("", str),
    "repl-backlog-size": ("1048576", _some_memory),
    "repl-diskless-sync": ("yes", _switch),
    "repl-diskless-sync-delay": ("5", _number(0, _INT)),
    "repl-timeout": ("60", _number(1, _INT)),
    "replica-priority": ("100", _number(0, _INT)),
    "requirepass": ("", str),
    "save": ("3600 1 300 100 60 10000", _save),
    "slowlog-log-slower-than": ("10000", _number(-1, 2**63 - 1)),
    "slowlog-max-len": ("128", _number(0, 2**63 - 1)),
    "stop-writes-on-bgsave-error": ("yes", _switch),
    "tcp-backlog": ("511", _immutable),
    "tcp-keepalive": ("300", _number(0, _INT)),
    "timeout": ("0", _number(0, _INT)),
}


# --- data servers ---


@dataclass
class User:
    """A user but the default one: it is let in by its hashes, and may do everything then."""

    on: bool = False
    nopass: bool = False
    hashes: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)

    def set(self, words: Sequence[str]) -> None:
        """The words of ACL SETUSER after the name."""
        for word in words:
            match word:
                case "reset":
                    self.on, self.nopass, self.hashes, self.rules = False, False, [], []
                case "on" | "off":
                    self.on = word == "on"
                case "nopass":
                    self.nopass, self.hashes = True, []
                case "resetpass":
                    self.nopass, self.hashes = False, []
                case _ if word[0] in ">#":
                    added = _hash(word[1:]) if word[0] == ">" else word[1:]
                    self.nopass, self.hashes = False, list(dict.fromkeys([*self.hashes, added]))
                case _:
                    self.rules.append(word)

    def line(self, name: str) -> str:
        """As ACL LIST shows it."""
        words = ["user", name, "on" if self.on else "off", *(["nopass"] if self.nopass else [])]
        return " ".join([*words, *(f"#{one}" for one in self.hashes), *(self.rules or ["-@all"])])


@dataclass
class Server:
    """One data server; ``changed`` is told when its role may have changed."""

    cluster: str
    ip: str
    config: dict[str, str] = field(default_factory=dict)
    changed: Callable[[], object] = lambda: None
    run_id: str = field(default_factory=_id)
    replid: str = field(default_factory=_id)
    replid2: str = _NONE
    #: -1 while it has had one replication id only.
    second_offset: int = -1
    offset: int = 0
    #: The first offset of its backlog; 0 while it has none: it never had a replica, nor was one.
    backlog: int = 0
    master: tuple[str, int] | None = (GATE.ip, GATE.port)
    #: The identity of the master it got its data from, while the link is up.
    linked: str = ""
    #: CLIENT PAUSE, until UNPAUSE: clients' writes wait.
    paused: bool = False
    data: dict[str, str] = field(default_factory=dict)
    #: Hashes of the passwords that the default user has; None: everybody is let in.
    passwords: list[str] | None = None
    #: The default user may not come in; else what it may do, if that is not everything.
    closed: bool = False
    rules: list[str] = field(default_factory=list)
    #: All the others, by name.
    users: dict[str, User] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {canonical(key): value for key, value in self.config.items()}
        self.config = {key: made for key, (made, _) in CONFIG.items()} | {
            key: CONFIG[key][1](value) if key in CONFIG and CONFIG[key][1] is not _immutable else value
            for key, value in given.items()
        }
        if self.config["requirepass"]:
            self.passwords = [_hash(self.config["requirepass"])]

    @property
    def identity(self) -> str:
        """What a replica finds again of it while the connection lasts: it cuts them off when its history changes."""
        return f"{self.run_id} {self.replid}"

    def lets_in(self, password: str, user: str = "") -> bool:
        """Whether a replica or sentinel that presents this gets in."""
        if user not in ("", "default"):
            known = self.users.get(user)
            return known is not None and known.on and (known.nopass or _hash(password) in known.hashes)
        return not self.closed and (self.passwords is None or _hash(password) in self.passwords)

    @property
    def known(self) -> set[str]:
        """Names of its users."""
        return {"default", *self.users}

    @property
    def default(self) -> User:
        """The default user."""
        on, nopass = not self.closed, self.passwords is None
        return User(on, nopass, list(self.passwords or []), list(self.rules or ["~*", "&*", "+@all"]))

    def set_user(self, name: str, words: Sequence[str]) -> None:
        """ACL SETUSER, and a line of a configuration file."""
        if name != "default":
            self.users.setdefault(name, User()).set(words)
            return
        known = self.default
        known.set(words)
        self.closed, self.rules = not known.on, known.rules
        self.passwords = None if known.nopass else known.hashes

    def load(self, text: str) -> None:
        """Lines of users and of what is presented to a master, read at a start."""
        for line in text.splitlines():
            match line.split():
                case ["user", name, *words]:
                    self.set_user(name, ["reset", *words])
                case ["masteruser" | "masterauth" as key, value]:
                    self.config[key] = value.strip('"')

    def set(self, key: str, value: str) -> str | Error:
        """CONFIG SET of one key."""
        name = canonical(key)
        if name not in CONFIG:
            return Error(f"ERR Unknown option or number of arguments for CONFIG SET - '{key}'")
        before = self.config[name]
        try:
            self.config[name] = CONFIG[name][1](value)
        except ValueError as why:
            return Error(f"ERR CONFIG SET failed (possibly related to argument '{key.lower()}') - {why}")
        if name == "requirepass" and value != before:
            self.passwords = [_hash(value)] if value else None
        return "OK"


def _hash(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


@dataclass
class Sentinel:
    """One sentinel."""

    cluster: str
    ip: str
    my_id: str = field(default_factory=_id)
    run_id: str = field(default_factory=_id)
    master: tuple[str, int] | None = None
    epoch: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    periods: dict[str, str] = field(default_factory=lambda: _PERIODS.copy())
    #: What it has heard of since it was told this master: replicas by address, other sentinels by theirs.
    replicas: set[str] = field(default_factory=set)
    peers: dict[str, str] = field(default_factory=dict)


_PERIODS: Final[dict[str, str]] = {
    "INFO-PERIOD": "10000",
    "PING-PERIOD": "1000",
    "ASK-PERIOD": "1000",
    "PUBLISH-PERIOD": "2000",
    "DEFAULT-DOWN-AFTER": "30000",
    "DEFAULT-FAILOVER-TIMEOUT": "180000",
    "TILT-TRIGGER": "2000",
    "TILT-PERIOD": "30000",
    "SLAVE-RECONF-TIMEOUT": "10000",
    "MIN-LINK-RECONNECT-PERIOD": "15000",
    "ELECTION-TIMEOUT": "10000",
    "SCRIPT-MAX-RUNTIME": "60000",
    "SCRIPT-RETRY-DELAY": "30000",
}
_SETTINGS: Final = {
    "down-after-milliseconds": "30000",
    "failover-timeout": "180000",
    "parallel-syncs": "1",
}
#: Settings that SENTINEL MASTERS does not show.
_UNSHOWN: Final = frozenset({"auth-pass", "auth-user"})


@dataclass
class Session:
    """One connection: what was said on it before counts."""

    world: World
    ip: str
    port: int
    let_in: bool = False

    def answer(self, words: Sequence[str]) -> Any:
        """The answer to one command: str, int, list, None or `Error`. KeyError when nobody lives there any more."""
        if self.port == SENTINEL_PORT:
            return self.world.of_sentinel(self.world.sentinels[self.ip], words)
        server = self.world.servers[self.ip]
        if words[0].upper() == "AUTH":
            return self._auth(server, words[-1], words[1] if len(words) > 2 else "")
        self.let_in = self.let_in or (server.passwords is None and not server.closed)
        if not self.let_in:
            return Error("NOAUTH Authentication required.")
        return self.world.of_server(server, words)

    def _auth(self, server: Server, password: str, user: str) -> str | Error:
        if not user and server.passwords is None:
            return Error(
                "ERR AUTH <password> called without any password configured for the default user. "
                "Are you sure your configuration is correct?"
            )
        if not server.lets_in(password, user):
            return Error("WRONGPASS invalid username-password pair or user is disabled.")
        self.let_in = True
        return "OK"


class World:
    """All servers and sentinels, by address; ``used``: somebody writes a key to a server without any once it leads."""

    def __init__(self, *, used: bool = False) -> None:
        self.used = used
        #: Called when a server got another role, or its clients may write again.
        self.moved: Callable[[], object] = lambda: None
        self._asked: set[str] = set()
        self.servers: dict[str, Server] = {}
        self.sentinels: dict[str, Sentinel] = {}

    def session(self, ip: str, port: int) -> Session:
        """A new connection; KeyError when nobody lives there."""
        there = self.sentinels if port == SENTINEL_PORT else self.servers
        _ = there[ip]
        return Session(self, ip, port)

    # --- data servers

    def of_server(self, it: Server, words: Sequence[str]) -> Any:
        """What a data server answers to somebody it has let in."""
        match [words[0].upper(), *words[1:]]:
            case ["PING"]:
                return "PONG"
            case ["INFO", *sections]:
                return self._info(it, sections or ["server", "persistence", "replication", "keyspace"])
            case ["CONFIG", verb, key] if verb.upper() == "GET":
                value = it.config.get(canonical(key))
                return [] if value is None else [key.lower(), value]
            case ["CONFIG", verb, key, value] if verb.upper() == "SET":
                answer = it.set(key, value)
                it.changed()
                return answer
            case ["SLAVEOF" | "REPLICAOF", host, port]:
                return self._follow(it, host, port)
            case ["FAILOVER", "TO", host, port, "TIMEOUT", _]:
                return self._change_places(it, host, port)
            case ["ROLE"]:
                return self._role(it)
            case ["ACL", verb, "default"] if verb.upper() == "GETUSER":
                return _user(it)
            case ["ACL", verb, name, *rules] if verb.upper() == "SETUSER":
                it.set_user(name, rules)
                return "OK"
            case ["ACL", verb, *names] if verb.upper() == "DELUSER":
                return sum(it.users.pop(name, None) is not None for name in names)
            case ["ACL", verb] if verb.upper() == "LIST":
                users = {"default": it.default, **it.users}
                return [one.line(name) for name, one in sorted(users.items())]
            case ["CLIENT", verb, *_] if verb.upper() in ("PAUSE", "UNPAUSE"):
                it.paused = verb.upper() == "PAUSE"
                self.moved()
                return "OK"
            case ["CLIENT", verb, *_] if verb.upper() == "LIST":
                return ""  # replicas come by no connection here
            case ["CLIENT", verb, "USER", name, *_] if verb.upper() == "KILL" and name not in it.known:
                return Error(f"ERR No such user '{name}'")
            case ["CLIENT", verb, "TYPE" | "USER", _, *_] if verb.upper() == "KILL":
                return 0  # nobody but operators connects here
            case ["BGSAVE"]:
                return "Background saving started"
            case ["SET", key, value]:
                return self._write(it, key, value)
            case ["GET", key]:
                self._link(it)
                return it.data.get(key)
            case ["DBSIZE"]:
                self._link(it)
                return len(it.data)
        return _unknown(words)

    def _follow(self, it: Server, host: str, port: str) -> str | Error:
        if (host.upper(), port.upper()) == ("NO", "ONE"):
            if it.master is not None:
                self._link(it)
                it.replid2, it.second_offset = it.replid, it.offset + 1
                it.replid, it.master, it.linked = _id(), None, ""
                if self.used and not it.data:
                    it.data, it.offset = {"used": it.run_id}, it.offset + 1
                it.changed()
                self.moved()
            return "OK"
        if not port.isdigit():
            return Error("ERR Invalid master port")
        if it.master == (host, int(port)):
            return "OK Already connected to specified master"
        self._link(it)
        it.master, it.linked = (host, int(port)), ""
        self._link(it)
        it.changed()
        self.moved()
        return "OK"

    def _change_places(self, it: Server, host: str, port: str) -> str | Error:
        """FAILOVER: the heir has everything and goes on with the history, and the old master follows it."""
        if it.master is not None:
            return Error("ERR FAILOVER is not valid when server is a replica.")
        followers = self.followers(it.ip)
        if not followers:
            return Error("ERR FAILOVER requires connected replicas.")
        heir = next((one for one in followers if (one.ip, str(REDIS_PORT)) == (host, port)), None)
        if heir is None:
            return Error("ERR FAILOVER target HOST and PORT is not a replica.")
        it.paused = True  # clients' writes wait until it follows
        self._follow(heir, "NO", "ONE")
        answer = self._follow(it, host, port)
        it.paused = False
        return answer

    def _leader(self, it: Server) -> Server | None:
        """The server that it was told to follow, if that is there."""
        return self.servers.get(it.master[0]) if it.master and it.master[1] == REDIS_PORT else None

    def _link(self, it: Server) -> bool:
        """Whether a replica's link is up; it gets what its master has as soon as that lets it in.

        It stays up while that master looks for another one itself; a new one needs a master, or one that is linked.
        """
        leader = self._leader(it)
        if leader is None or leader is it:
            it.linked = ""
            return False
        if leader.ip not in self._asked:
            self._asked.add(it.ip)
            up = leader.master is None or self._link(leader)
            self._asked.discard(it.ip)
        else:
            up = bool(leader.linked)
        if it.linked != leader.identity:
            it.linked = ""
            if not up or not leader.lets_in(it.config["masterauth"], it.config["masteruser"]):
                return False
            _synchronise(it, leader)
            it.linked = leader.identity
        it.replid, it.offset, it.data = leader.replid, leader.offset, dict(leader.data)
        return True

    def _write(self, it: Server, key: str, value: str) -> str | Error:
        if it.master is not None:
            return Error("READONLY You can't write against a read only replica.")
        if len(self.followers(it.ip)) < int(it.config["min-replicas-to-write"]):
            return Error("NOREPLICAS Not enough good replicas to write.")
        it.data[key] = value
        it.offset += 1
        return "OK"

    def accepting(self) -> dict[str, list[Server]]:
        """The servers that take a client's write now, by cluster."""
        found: dict[str, list[Server]] = {}
        for one in list(self.servers.values()):
            least = int(one.config["min-replicas-to-write"])
            if one.master is None and not one.paused and (not least or len(self.followers(one.ip)) >= least):
                found.setdefault(one.cluster, []).append(one)
        return found

    def _role(self, it: Server) -> list[Any]:
        if it.master is None:
            found = [[one.ip, str(REDIS_PORT), str(one.offset)] for one in self.followers(it.ip)]
            return ["master", it.offset, found]
        up = self._link(it)
        return [
            "slave",
            it.master[0],
            it.master[1],
            "connected" if up else "connecting",
            it.offset if up else -1,
        ]

    def _info(self, it: Server, sections: Sequence[str]) -> str:
        up = self._link(it)
        chosen = [one.lower() for one in sections]
        lines: list[str] = []
        if "server" in chosen:
            lines += ["# Server", f"redis_version:{VERSION}", f"run_id:{it.run_id}"]
        if "persistence" in chosen:
            lines += ["# Persistence", "loading:0", "async_loading:0"]
            lines += ["rdb_bgsave_in_progress:0", "aof_rewrite_in_progress:0"]
        if "replication" in chosen:
            lines += ["# Replication", *self._replication(it, up=up)]
        if "keyspace" in chosen:
            lines += ["# Keyspace", *([f"db0:keys={len(it.data)},expires=0,avg_ttl=0"] if it.data else [])]
        return "\r\n".join(lines)

    def _replication(self, it: Server, *, up: bool) -> list[str]:
        followers = self.followers(it.ip)
        lines = [f"role:{'slave' if it.master else 'master'}", f"connected_slaves:{len(followers)}"]
        lines += [
            f"slave{number}:ip={one.ip},port={REDIS_PORT},state=online,offset={one.offset},lag=0"
            for number, one in enumerate(followers)
        ]
        if it.master is not None:
            lines += [f"master_host:{it.master[0]}", f"master_port:{it.master[1]}"]
            lines += [f"master_link_status:{'up' if up else 'down'}", "master_sync_in_progress:0"]
            lines += [] if up else ["master_link_down_since_seconds:1"]
            lines += [
                f"slave_repl_offset:{it.offset}",
                f"slave_priority:{it.config['replica-priority']}",
            ]
        lines += [f"master_replid:{it.replid}", f"master_replid2:{it.replid2}"]
        return [*lines, f"master_repl_offset:{it.offset}", f"second_repl_offset:{it.second_offset}"]

    def followers(self, ip: str) -> list[Server]:
        """The replicas that a server has, in the order of their addresses' making."""
        cluster = self.servers[ip].cluster if ip in self.servers else ""
        return [one for one in self.servers.values() if one.cluster == cluster and self._follows(one, ip)]

    def _follows(self, one: Server, ip: str) -> bool:
        return one.master is not None and one.master[0] == ip and self._link(one)

    # --- sentinels

    def of_sentinel(self, it: Sentinel, words: Sequence[str]) -> Any:
        """What a sentinel answers."""
        match [words[0].upper(), *words[1:]]:
            case ["SENTINEL", verb, *rest]:
                return self._sentinel(it, verb, rest)
            case ["PING"]:
                return "PONG"
            case ["INFO", *_]:
                return f"# Server\r\nredis_version:{VERSION}\r\nrun_id:{it.run_id}"
            case ["PUBLISH", "__sentinel__:hello", text]:
                self._hear(it, text)
                return 1
            case ["PSUBSCRIBE", pattern]:
                return ["psubscribe", pattern, 1]
        return _unknown(words)

    def _sentinel(self, it: Sentinel, verb: str, rest: Sequence[str]) -> Any:
        match [verb.upper(), *rest]:
            case ["MYID"]:
                return it.my_id
            case ["DEBUG", *pairs]:
                return self._debug(it, pairs)
            case ["CONFIG", "SET", "announce-port", _]:
                return "OK"
            case ["MASTERS"]:
                self._look(it)
                return [self._master(it)] if it.master else []
            case ["MONITOR", _, host, port, quorum]:
                return self._monitor(it, host, port, quorum)
        if it.master is None or not rest or rest[0] != MASTER_NAME:
            if verb.upper() in ("SLAVES", "SENTINELS", "CKQUORUM", "REMOVE", "SET", "FAILOVER"):
                return Error("ERR No such master with that name")
            return Error(f"ERR unknown subcommand '{verb}'. Try SENTINEL HELP.")
        self._look(it)
        match [verb.upper(), *rest[1:]]:
            case ["SLAVES"]:
                return [self._replica(it, ip) for ip in sorted(it.replicas)]
            case ["SENTINELS"]:
                return [self._peer(it, ip, id) for id, ip in sorted(it.peers.items())]
            case ["CKQUORUM"]:
                return self._quorum(it)
            case ["REMOVE"]:
                it.master = None
                return "OK"
            case ["SET", name, value]:
                return _tuned(it, name, value)
            case ["FAILOVER"]:
                return self._fail_over(it)
        return Error(f"ERR unknown subcommand '{verb}'. Try SENTINEL HELP.")

    def _debug(self, it: Sentinel, pairs: Sequence[str]) -> Any:
        if not pairs:
            return [word for pair in it.periods.items() for word in pair]
        for name, value in zip_longest(pairs[::2], pairs[1::2]):
            if name.upper() in it.periods and value is not None:
                it.periods[name.upper()] = value
                continue
            return Error(f"ERR Unknown option or number of arguments for SENTINEL DEBUG '{name}'")
        return "OK"

    def _monitor(self, it: Sentinel, host: str, port: str, quorum: str) -> str | Error:
        if int(quorum) < 1:
            return Error("ERR Quorum must be 1 or greater.")
        if it.master is not None:
            return Error("ERR Duplicate master name.")
        it.master, it.epoch = (host, int(port)), 0
        it.settings = {**_SETTINGS, "quorum": quorum}
        it.replicas, it.peers = set(), {}
        return "OK"

    def _sees(self, it: Sentinel, ip: str) -> bool:
        """Whether a server answers this sentinel; of one without a password it takes any."""
        server = self.servers.get(ip)
        settings = it.settings
        return server is not None and server.lets_in(
            settings.get("auth-pass", ""), settings.get("auth-user", "")
        )

    def _look(self, it: Sentinel) -> None:
        """Hear of replicas from the master, and of other sentinels that watch the same, through it."""
        if it.master is None or not self._sees(it, it.master[0]):
            return
        it.replicas |= {one.ip for one in self.followers(it.master[0])} - {it.master[0]}
        for one in self.sentinels.values():
            same = one is not it and one.cluster == it.cluster and one.master == it.master
            if same and self._sees(one, it.master[0]):
                self._hear_of(it, one.ip, one.my_id)

    def _hear(self, it: Sentinel, text: str) -> None:
        """A greeting: address, port, id, epoch, and the master that it watches."""
        match text.split(","):
            case [ip, _, id, _, name, *_] if it.master is not None and name == MASTER_NAME and id != it.my_id:
                self._hear_of(it, ip, id)

    def _hear_of(self, it: Sentinel, ip: str, id: str) -> None:
        it.peers = {known: at for known, at in it.peers.items() if known == id or at != ip}
        it.peers[id] = ip

    def _quorum(self, it: Sentinel) -> str | Error:
        usable = 1 + sum(ip in self.sentinels for ip in it.peers.values())
        if usable < int(it.settings["quorum"]):
            why = "the specified quorum for this master"
        elif usable < (1 + len(it.peers)) // 2 + 1:
            why = "the majority and authorize a failover"
        else:
            return f"OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
        return Error(f"NOQUORUM {usable} usable Sentinels. Not enough available Sentinels to reach {why}")

    def _fail_over(self, it: Sentinel) -> str | Error:
        """The heir leads at once, all sentinels that know each other say so, the other replicas follow it."""
        heirs = [one for one in self.servers.values() if one.ip in it.replicas and self._sees(it, one.ip)]
        heirs = [one for one in heirs if one.master and int(one.config["replica-priority"])]
        if not heirs:
            return Error("NOGOODSLAVE No suitable replica to promote")
        # The first of equals; a real one takes that with the least run id, which is as good as any.
        chosen = min(heirs, key=lambda one: (int(one.config["replica-priority"]), -one.offset))
        epoch = 1 + max(one.epoch for one in self.sentinels.values() if one.cluster == it.cluster)
        before = it.master
        self._follow(chosen, "NO", "ONE")
        for one in self.sentinels.values():
            if (
                one.cluster != it.cluster
                or one.master != before
                or (one is not it and it.my_id not in one.peers)
            ):
                continue
            one.replicas = (one.replicas | {before[0] if before else ""}) - {chosen.ip}
            one.master, one.epoch = (chosen.ip, REDIS_PORT), epoch
        for replica in list(self.servers.values()):
            if replica.master == before and replica.ip in it.replicas:
                self._follow(replica, chosen.ip, str(REDIS_PORT))
        return "OK"

    def _master(self, it: Sentinel) -> list[str]:
        assert it.master is not None
        leader = self.servers.get(it.master[0])
        flags = ["master"] if self._sees(it, it.master[0]) else ["s_down", "master"]
        if leader is None:
            flags += ["disconnected"]
        pairs = {"name": MASTER_NAME, "ip": it.master[0], "port": str(it.master[1])}
        pairs |= {"runid": leader.run_id if leader else "", "flags": ",".join(flags), **_LINK}
        pairs |= {"role-reported": "slave" if leader and leader.master else "master"}
        pairs |= {"config-epoch": str(it.epoch), "num-slaves": str(len(it.replicas))}
        pairs |= {"num-other-sentinels": str(len(it.peers))}
        pairs |= {name: value for name, value in it.settings.items() if name not in _UNSHOWN}
        return [word for pair in pairs.items() for word in pair]

    def _replica(self, it: Sentinel, ip: str) -> list[str]:
        one = self.servers.get(ip)
        flags = ["slave"] if self._sees(it, ip) else ["s_down", "slave"]
        pairs = {"name": f"{ip}:{REDIS_PORT}", "ip": ip, "port": str(REDIS_PORT), **_down_after(it)}
        if one is None:
            pairs |= {"runid": "", "flags": ",".join([*flags, "disconnected"]), **_LINK}
            return [word for pair in pairs.items() for word in pair]
        host, port = one.master or ("?", 0)
        up = one.master is not None and self._link(one)
        pairs |= {"runid": one.run_id, "flags": ",".join(flags), **_LINK}
        pairs |= {"role-reported": "slave" if one.master else "master"}
        pairs |= {"master-link-status": "ok" if up else "err", "master-host": host, "master-port": str(port)}
        pairs |= {"slave-priority": one.config["replica-priority"], "slave-repl-offset": str(one.offset)}
        return [word for pair in pairs.items() for word in pair]

    def _peer(self, it: Sentinel, ip: str, id: str) -> list[str]:
        flags = "sentinel" if ip in self.sentinels else "s_down,sentinel,disconnected"
        pairs = {"name": id, "ip": ip, "port": str(SENTINEL_PORT), "runid": id, "flags": flags, **_LINK}
        pairs |= _down_after(it)
        return [word for pair in pairs.items() for word in pair]


def _synchronise(it: Server, leader: Server) -> None:
    """A replica's first contact with a master: it goes on from where it is, or takes everything."""
    if not leader.backlog:  # nobody can go on from what was before
        leader.backlog = leader.offset + 1
        leader.replid, leader.replid2, leader.second_offset = _id(), _NONE, -1
    known = it.replid == leader.replid or (it.replid == leader.replid2 and it.offset < leader.second_offset)
    if not known or it.offset + 1 < leader.backlog:
        it.replid2, it.second_offset, it.backlog = _NONE, -1, leader.offset + 1
    elif it.replid != leader.replid:
        it.replid2, it.second_offset = it.replid, it.offset + 1


def _down_after(it: Sentinel) -> dict[str, str]:
    return {"down-after-milliseconds": it.settings["down-after-milliseconds"]}


def _tuned(it: Sentinel, name: str, value: str) -> str | Error:
    """SENTINEL SET of one setting."""
    if name not in _SETTINGS and name not in ("quorum", *_UNSHOWN):
        return Error(f"ERR Unknown option or number of arguments for SENTINEL SET '{name}'")
    if name not in _UNSHOWN and not (value.isdigit() and int(value) > 0):
        return Error(f"ERR Invalid argument '{value}' for SENTINEL SET '{name}'")
    it.settings[name] = value
    return "OK"


def _user(it: Server) -> list[Any]:
    """ACL GETUSER default, as much as is asked for."""
    flags = ["off" if it.closed else "on", *(["nopass"] if it.passwords is None else [])]
    said: list[Any] = ["flags", flags, "passwords", it.passwords or []]
    return [*said, "commands", "+@all", "keys", "~*", "channels", "&*", "selectors", []]


#: What a sentinel of 7.0 tells of every link besides: nobody decides by it, but it has to be read.
_LINK: Final = {
    **dict.fromkeys(
        ("link-pending-commands", "last-ping-sent", "last-ok-ping-reply", "last-ping-reply"), "0"
    ),
    "link-refcount": "1",
}


def _unknown(words: Sequence[str]) -> Error:
    said = "".join(f"'{word}' " for word in words[1:])
    return Error(f"ERR unknown command '{words[0]}', with args beginning with: {said}")
