"""The database's own view of a cluster: every server and sentinel asked at once, answers as frozen data.

Reads only. What did not answer is None with the reason beside it: unknown, never empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from mooring.operators.redis.address import SENTINEL_TLS_PORT, TLS_PORT, Address
from mooring.operators.redis.dial import Dial, DialError, Link, Refused
from mooring.operators.redis.info import keys_of, pairs, parse_info, rewriting
from mooring.operators.redis.passwords.seen import ASKED, SENTINEL_USER, Auth, logins, told_auth
from mooring.operators.redis.tls import Ports, shown_issuer, shown_leaf
from mooring.operators.redis.users import seen
from mooring.operators.redis.users.accounts import REPLICA
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.users.seen import SeenUsers
from mooring.operators.redis.versions import server_version
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.pods import Pod

__all__ = [
    "GATE",
    "MASTER_NAME",
    "REDIS_PORT",
    "SENTINEL_PORT",
    "Member",
    "Peer",
    "Replica",
    "Sentinel",
    "Server",
    "Topology",
    "Watcher",
    "read_topology",
    "sentinel_user",
]

GATE = Address("192.0.2.1", 6379)
"""Placeholder master address (TEST-NET-1, RFC 5737). Servers start as its replicas until the operator releases them."""

MASTER_NAME = "mymaster"
REDIS_PORT = 6379
SENTINEL_PORT = 26379
SILENT_TIMEOUT = 0.25
"""Seconds for the answer of a pod that did not answer the last time."""


@dataclass(frozen=True, kw_only=True)
class Replica:
    """A follower, as its master lists it."""

    ip: str
    port: int
    state: str
    offset: int
    lag: int


@dataclass(frozen=True, kw_only=True)
class Server:
    """A data server's answer."""

    role: str
    """``master`` or ``slave``, Redis' own words."""
    run_id: str = ""
    version: str = "7.0.15"
    loading: bool = False
    replid: str = ""
    replid2: str = ""
    offset: int = 0
    second_offset: int = -1
    master: Address | None = None
    link_up: bool = False
    syncing: bool = False
    link_down_seconds: int = 0
    priority: int = 0
    replicas: tuple[Replica, ...] = ()
    keys: int = 0
    rewriting: bool = False
    """It rewrites its append-only file. While it writes its first one, it refuses SIGTERM; see `info.rewriting`."""
    config: Mapping[str, str] = field(default_factory=dict)
    auth: Auth | None = None
    """Which passwords it takes and presents; None where it was not asked."""
    users: SeenUsers | None = None
    """Its users; None where they were not asked for, or of a server before 6.0."""
    leaf: str = ""
    """Digest of the certificate that it shows; "" without TLS."""

    @property
    def is_master(self) -> bool:
        return self.role == "master"

    @property
    def at_gate(self) -> bool:
        """Not released since its start: it follows the placeholder address."""
        return not self.is_master and self.master == GATE

    def follows(self, ip: str) -> bool:
        """Told to replicate from that address (whether or not the link is up)."""
        return not self.is_master and self.master is not None and self.master.ip == ip

    def in_sync_with(self, ip: str) -> bool:
        """Follows the address, the link is up and no first synchronisation is under way."""
        return self.follows(ip) and self.link_up and not self.syncing and not self.loading


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A replica or another sentinel, as one sentinel knows it."""

    ip: str
    port: int
    flags: frozenset[str] = frozenset()
    run_id: str = ""
    priority: int = 100
    leads: bool = False
    """What is listed as a replica called itself a master when it was last asked."""

    @property
    def alive(self) -> bool:
        return not self.flags & {"s_down", "o_down", "disconnected"}


@dataclass(frozen=True, kw_only=True)
class Sentinel:
    """A sentinel's answer; ``master`` is None while it monitors nothing."""

    my_id: str = ""
    run_id: str = ""
    """Of its process."""
    version: str = "7.0.15"
    master: Address | None = None
    flags: frozenset[str] = frozenset()
    epoch: int = 0
    """The configuration epoch of the fail-over that named this master; 0 after MONITOR."""
    replicas: tuple[Peer, ...] = ()
    sentinels: tuple[Peer, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    quorum_ok: bool = False
    periods: Mapping[str, int] = field(default_factory=dict)
    """Milliseconds between its questions, greetings ... by their names; empty where they cannot be read (before 7.0)."""
    locked: bool = False
    """It does not take the cluster's key: it may be asked, not changed."""
    leaf: str = ""
    """Digest of the certificate that it shows; "" without TLS."""
    issuer: str = ""
    """Who issued that, as digest."""
    ends: datetime | None = None
    """When that ends."""
    authority: str = ""
    """Name of the file with the authorities that it read at its start; "" without TLS."""
    encrypts: bool = False
    """It reaches servers and the other sentinels by TLS."""
    other_masters: tuple[str, ...] = ()
    """Names of further masters it monitors; not ours, left alone."""

    @property
    def failing_over(self) -> bool:
        return "failover_in_progress" in self.flags

    @property
    def master_down(self) -> bool:
        return bool(self.flags & {"s_down", "o_down"})


@dataclass(frozen=True, kw_only=True)
class Member:
    """A data pod and its server's answer."""

    pod: Pod
    server: Server | None = None
    error: str = ""
    locked: bool = False
    """It takes no password that we know."""
    port: int = REDIS_PORT
    """The one that the operator and the other servers use."""
    ports: Ports = "plain"
    """Those that are open."""
    closed: str = ""
    """Why its other port does not answer, where that was tried."""

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def ip(self) -> str:
        return self.pod.ip

    @property
    def address(self) -> Address:
        return Address(self.pod.ip, self.port)


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """A sentinel pod and its sentinel's answer."""

    pod: Pod
    sentinel: Sentinel | None = None
    error: str = ""
    port: int = SENTINEL_PORT
    ports: Ports = "plain"
    """Those that are open."""
    closed: str = ""
    """Why its other port does not answer, where that was tried."""

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def address(self) -> Address:
        return Address(self.pod.ip, self.port)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """All that was seen in one look."""

    members: tuple[Member, ...] = ()
    watchers: tuple[Watcher, ...] = ()

    def member(self, name: str) -> Member | None:
        """The data pod of that name, answering or not."""
        return next((member for member in self.members if member.name == name), None)

    def at(self, ip: str) -> Member | None:
        """The data pod at an address."""
        return next((member for member in self.members if ip and member.ip == ip), None)


async def read_topology(
    dial: Dial,
    *,
    redis: Sequence[Pod],
    sentinels: Sequence[Pod],
    kept: Kept | None = None,
    access: Access | None = None,
    keys: Sequence[str] = (),
    silent: Collection[str] = (),
    master_name: str = MASTER_NAME,
    tls: bool = False,
    ports: Mapping[str, Ports] | None = None,
    tries_other: bool = False,
) -> Topology:
    """Ask every pod that has an address, all at once; ``keys`` are the configuration keys to read.

    ``silent`` names pods that did not answer the last time: they get `SILENT_TIMEOUT`, so that a server that hangs
    delays what the others have to say as little as possible. ``tls`` is what is used where a pod leaves the choice;
    ``ports`` are those that pods have open, where they do not all take what ``tls`` says; with ``tries_other`` pods that
    have both are also asked whether the one that is not used yet answers.
    """
    known = kept or Kept()
    waits = dict.fromkeys(silent, SILENT_TIMEOUT)

    def of(pod: Pod) -> Ports:
        return (ports or {}).get(pod.name, "tls" if tls else "plain")

    def takes_tls(pod: Pod) -> bool:
        return of(pod) == "tls" or (tls and of(pod) == "both")

    def data(pod: Pod) -> Member:
        return Member(pod=pod, port=TLS_PORT if takes_tls(pod) else REDIS_PORT, ports=of(pod))

    def watching(pod: Pod) -> Watcher:
        return Watcher(pod=pod, port=SENTINEL_TLS_PORT if takes_tls(pod) else SENTINEL_PORT, ports=of(pod))

    members, watchers = await asyncio.gather(
        asyncio.gather(
            *(
                _member(
                    dial,
                    data(pod),
                    kept=known,
                    access=access or Access(),
                    keys=keys,
                    timeout=waits.get(pod.name),
                    other=tries_other,
                )
                for pod in redis
            )
        ),
        asyncio.gather(
            *(
                _watcher(
                    dial,
                    watching(pod),
                    kept=known,
                    master_name=master_name,
                    timeout=waits.get(pod.name),
                    other=tries_other,
                )
                for pod in sentinels
            )
        ),
    )
    return Topology(
        members=tuple(sorted(members, key=lambda member: member.pod.ordinal)),
        watchers=tuple(sorted(watchers, key=lambda watcher: watcher.pod.ordinal)),
    )


async def _member(
    dial: Dial,
    member: Member,
    *,
    kept: Kept,
    access: Access,
    keys: Sequence[str],
    timeout: float | None,
    other: bool,
) -> Member:
    if not member.ip or not member.pod.running:
        return replace(member, error=member.pod.trouble or "the container is not running")
    try:
        async with dial.link(member.address, password=logins(kept), reply_timeout=timeout) as link:
            server = await read_server(link, keys=keys, kept=kept, access=access)
            member = replace(member, server=replace(server, leaf=shown_leaf(link.certificate)))
    except DialError as error:
        return replace(member, error=str(error), locked=isinstance(error, Refused) and error.for_login)
    if not other or member.ports != "both":
        return member
    port = REDIS_PORT if member.port == TLS_PORT else TLS_PORT
    return replace(member, closed=await _closed(dial.link(Address(member.ip, port), password=logins(kept))))


async def _closed(link: AbstractAsyncContextManager[Link]) -> str:
    """Why nothing answers there."""
    try:
        async with link as opened:
            await opened.call("PING")
            return ""
    except DialError as error:
        return str(error)


async def _watcher(
    dial: Dial, watcher: Watcher, *, kept: Kept, master_name: str, timeout: float | None, other: bool
) -> Watcher:
    if not watcher.pod.ip or not watcher.pod.running:
        return replace(watcher, error=watcher.pod.trouble or "the container is not running")
    try:
        async with dial.link(watcher.address, user=sentinel_user(kept), reply_timeout=timeout) as link:
            sentinel = await read_sentinel(link, master_name=master_name)
            issuer, ends = shown_issuer(link.certificate)
            shown = replace(sentinel, leaf=shown_leaf(link.certificate), issuer=issuer, ends=ends)
            watcher = replace(watcher, sentinel=shown)
    except DialError as error:
        return replace(watcher, error=str(error))
    if not other or watcher.ports != "both":
        return watcher
    port = SENTINEL_PORT if watcher.port == SENTINEL_TLS_PORT else SENTINEL_TLS_PORT
    there = dial.link(Address(watcher.pod.ip or "", port), user=sentinel_user(kept))
    return replace(watcher, closed=await _closed(there))


def sentinel_user(kept: Kept) -> tuple[str, str] | None:
    """What the operator shows a sentinel; None where the cluster has no key yet."""
    return (SENTINEL_USER, kept.sentinel) if kept.sentinel else None


async def read_server(
    link: Link, *, keys: Sequence[str] = (), kept: Kept | None = None, access: Access | None = None
) -> Server:
    """One round trip to a data server; with ``access`` also its users, where any are declared."""
    wanted = list(dict.fromkeys(["slave-priority", *keys]))
    sections = ("server", "replication", "persistence", "keyspace")
    questions = [*(("INFO", section) for section in sections), *(("CONFIG", "GET", key) for key in wanted)]
    auths = ASKED if kept is not None else ()
    users = seen.ASKED if access is not None and access.managed else ()
    answers = await link.pipeline([*questions, *auths, *users])
    secret, listed = answers[len(questions) :][: len(auths)], answers[len(questions) + len(auths) :]
    del answers[len(questions) :]
    info: dict[str, str] = {}
    config: dict[str, str] = {}
    for at, answer in enumerate(answers):
        if at < len(sections):
            if isinstance(answer, Refused):
                raise answer
            info.update(parse_info(answer))
        elif not isinstance(answer, Refused):
            config.update(pairs(answer))
    auth = told_auth(kept, *secret) if kept is not None else None
    server = replace(server_of(info, config), auth=auth)
    if access is None or kept is None or not listed:
        return server
    return replace(
        server,
        users=seen.read_users(access, server.version, kept.accounts.get(REPLICA, ""), listed),
    )


def server_of(info: Mapping[str, str], config: Mapping[str, str]) -> Server:
    """A data server's answer from INFO and CONFIG GET."""
    role = info.get("role", "")
    host = info.get("master_host")
    offset = "slave_repl_offset" if role == "slave" else "master_repl_offset"
    priority = info.get("slave_priority") or config.get("slave-priority") or config.get("replica-priority")
    return Server(
        role=role,
        run_id=info.get("run_id", ""),
        version=server_version(info),
        loading=info.get("loading") == "1" or info.get("async_loading") == "1",
        replid=info.get("master_replid", ""),
        replid2=_replid(info.get("master_replid2", "")),
        offset=_int(info.get(offset)),
        second_offset=_int(info.get("second_repl_offset"), -1),
        master=Address(host, _int(info.get("master_port"))) if host else None,
        link_up=info.get("master_link_status") == "up",
        syncing=info.get("master_sync_in_progress") == "1",
        link_down_seconds=max(0, _int(info.get("master_link_down_since_seconds"))),
        priority=_int(priority, 100),
        replicas=tuple(_replicas(info)),
        keys=keys_of(info),
        rewriting=rewriting(info),
        config=config,
    )


def _replid(text: str) -> str:
    """Redis shows forty zeros for "none"."""
    return "" if not text.strip("0") else text


def _replicas(info: Mapping[str, str]) -> list[Replica]:
    found = []
    for name, value in info.items():
        if name.startswith("slave") and name[5:].isdigit():
            fields = _fields(value)
            found.append(
                Replica(
                    ip=fields.get("ip", ""),
                    port=_int(fields.get("port")),
                    state=fields.get("state", ""),
                    offset=_int(fields.get("offset")),
                    lag=_int(fields.get("lag"), -1),
                )
            )
    return found


async def read_sentinel(link: Link, *, master_name: str = MASTER_NAME) -> Sentinel:
    """One round trip to a sentinel."""
    masters, replicas, sentinels, quorum, my_id, info, timers = await link.pipeline(
        [
            ("SENTINEL", "MASTERS"),
            ("SENTINEL", "SLAVES", master_name),
            ("SENTINEL", "SENTINELS", master_name),
            ("SENTINEL", "CKQUORUM", master_name),
            ("SENTINEL", "MYID"),
            ("INFO", "server"),
            ("SENTINEL", "DEBUG"),
        ]
    )
    if isinstance(masters, Refused):
        raise masters
    known = [pairs(master) for master in masters]
    ours = next((master for master in known if master.get("name") == master_name), None)
    process = {} if isinstance(info, Refused) else parse_info(info)
    base = Sentinel(
        my_id="" if isinstance(my_id, Refused) else str(my_id),
        run_id=process.get("run_id", ""),
        version=server_version(process),
        periods={}
        if isinstance(timers, Refused)
        else {name.lower(): _int(value) for name, value in pairs(timers).items()},
        other_masters=tuple(str(master.get("name")) for master in known if master is not ours),
        authority=_authority(process.get("config_file", "")),
        encrypts=_encrypts(process.get("config_file", "")),
        locked=isinstance(timers, Refused) and timers.reply.startswith("NOPERM"),
    )
    if ours is None:
        return base
    return replace(
        base,
        master=Address(ours.get("ip", ""), _int(ours.get("port"))),
        flags=_flags(ours),
        epoch=_int(ours.get("config-epoch")),
        replicas=_peers(replicas),
        sentinels=_peers(sentinels),
        settings=ours,
        quorum_ok=not isinstance(quorum, Refused),
    )


def _authority(config_file: str) -> str:
    """A sentinel cannot be asked what it trusts; its start names the configuration file by that."""
    name = (
        config_file.rpartition("/")[2].removeprefix("sentinel.").removeprefix("plain.").removesuffix(".conf")
    )
    return f"{name}.crt" if name.startswith("ca-") else ""


def _encrypts(config_file: str) -> bool:
    """Nor which port it uses, where both are open; that is in the name too."""
    return config_file.rpartition("/")[2].startswith("sentinel.ca-")


def _peers(answer: Any) -> tuple[Peer, ...]:
    if isinstance(answer, Refused):
        return ()
    found = [pairs(item) for item in answer]
    return tuple(
        Peer(
            ip=item.get("ip", ""),
            port=_int(item.get("port")),
            flags=_flags(item),
            run_id=item.get("runid", ""),
            priority=_int(item.get("slave-priority"), 100),
            leads=item.get("role-reported") == "master",
        )
        for item in found
    )


def _flags(item: Mapping[str, str]) -> frozenset[str]:
    return frozenset(flag for flag in item.get("flags", "").split(",") if flag)


def _fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _int(text: str | None, default: int = 0) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default
