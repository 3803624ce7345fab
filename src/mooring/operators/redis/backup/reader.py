"""What the container ``data`` of a backup runs: it reads a snapshot of each shard into the FIFO of its part.

Each shard is read from a replica in sync, of a Redis Cluster from its master where there is none. A snapshot is of one
moment of its shard; the shards' moments differ. A Redis Cluster whose slots move meanwhile gives no backup.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mooring.operators.redis.address import Address
from mooring.operators.redis.backup.rdb import HEAD, head_of
from mooring.operators.redis.backup.sync import open_snapshot
from mooring.operators.redis.backup.wire import Denied, WireFailed
from mooring.operators.redis.dial import Dial, DialError, Login
from mooring.operators.redis.info import parse_info
from mooring.operators.redis.users.accounts import BACKUP
from mooring.operators.redis.versions import server_version

__all__ = ["Candidate", "Member", "NotRead", "Shard", "Source", "nodes_of", "read_all", "shards_of"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with a server."""

    pod: str
    ip: str
    port: int = 6379

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address(self.ip, self.port)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read: the request's file ``source.json``. Holds no secrets."""

    pods: list[Candidate]
    """Those of a cluster with sentinels in the order of preference; of a Redis Cluster all."""
    parts: list[str]
    """One for each shard."""
    sharded: bool = False
    masters: bool = False
    """Without shards: a master may be read too."""


class NotRead(Exception):
    """There is no backup; the message says why and what to do."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Servers with the same slots; those that are read first come first."""

    candidates: list[Candidate]
    slots: str = ""


async def read_all(
    source: Source,
    *,
    password: str | Sequence[Login],
    run: Path,
    account: str = "",
    tls: ssl.SSLContext | None = None,
) -> dict[str, str]:
    """Write every part; returns the facts of the manifest. Raises `NotRead`.

    ``account`` is the password of the account `BACKUP`, where servers have one; ``password`` is the default user's, or
    what to try of accounts.
    """
    keys = [(BACKUP, account)] if account else []
    dial = Dial(connect_timeout=5.0, reply_timeout=10.0, tls=tls, keys=keys)
    shards = [Shard(candidates=source.pods)]
    if source.sharded:
        shards = await _shards(dial, source.pods, password)
        if len(shards) != len(source.parts):
            raise NotRead(
                f"the cluster has {len(shards)} masters with slots, {len(source.parts)} were declared; "
                "wait until its change is complete"
            )
    facts: dict[str, str] = {}
    for part, shard in zip(source.parts, shards, strict=True):
        replicas_only = not (source.sharded or source.masters)
        found = await _read(dial, shard, password, run / part, replicas_only=replicas_only, tls=tls)
        facts |= found if not source.sharded else {f"{name}.{part}": text for name, text in found.items()}
        if shard.slots:
            facts[f"slots.{part}"] = shard.slots
    if source.sharded:
        facts["version"] = facts.get(f"version.{source.parts[0]}", "")
        facts["position"] = ",".join(facts.get(f"position.{part}", "") for part in source.parts)
        facts["source"] = ",".join(facts.get(f"source.{part}", "") for part in source.parts)
        if [one.slots for one in await _shards(dial, source.pods, password)] != [one.slots for one in shards]:
            raise NotRead("slots moved while the cluster was read; back it up again once no slots move")
    return facts


async def _shards(dial: Dial, pods: Sequence[Candidate], password: str | Sequence[Login]) -> list[Shard]:
    """The masters with slots, each with the servers that may be read, as the first node that answers tells."""
    refusals = []
    for pod in pods:
        try:
            async with dial.link(pod.address, password=password) as link:
                return shards_of(str(await link.call("CLUSTER", "NODES")), pods)
        except DialError as error:
            refusals.append(str(error))
    raise NotRead(f"no node answers: {'; '.join(refusals)[:500]}")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A line of CLUSTER NODES; ``pod`` is the one at its address."""

    id: str
    pod: Candidate | None
    flags: str
    master: str
    slots: list[str]


def nodes_of(text: str, pods: Sequence[Candidate]) -> list[Member]:
    """What CLUSTER NODES tells, without nodes that have no address."""
    by_ip = {(one.ip, one.port): one for one in pods}
    nodes = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or "noaddr" in words[2]:
            continue
        ip, _, port = words[1].partition("@")[0].rpartition(":")
        pod = by_ip.get((ip.strip("[]"), int(port or 0)))
        nodes.append(Member(id=words[0], pod=pod, flags=words[2], master=words[3], slots=words[8:]))
    return nodes


def shards_of(text: str, pods: Sequence[Candidate]) -> list[Shard]:
    """The shards that CLUSTER NODES tells of, in the order of their slots; raises `NotRead` for what is not whole."""
    nodes = nodes_of(text, pods)
    shards: list[Shard] = []
    for node in nodes:
        if "master" not in node.flags or not node.slots:
            continue
        if any("->-" in one or "-<-" in one for one in node.slots):
            raise NotRead("slots are moving; back the cluster up once that is over")
        replicas = [one.pod for one in nodes if one.master == node.id and one.pod and "fail" not in one.flags]
        candidates = [
            *sorted(replicas, key=lambda one: one.pod),
            *([node.pod] if node.pod and "fail" not in node.flags else []),
        ]
        shards.append(Shard(candidates=candidates, slots=",".join(node.slots)))
    found = sorted(shards, key=lambda one: int(re.split("[-,]", one.slots)[0]))
    if sum(_count(one.slots) for one in found) != 16384:
        raise NotRead("not every slot has an owner; bring the cluster back to Ready first")
    return found


def _count(slots: str) -> int:
    total = 0
    for one in slots.split(","):
        first, _, last = one.partition("-")
        total += int(last or first) - int(first) + 1
    return total


async def _read(
    dial: Dial,
    shard: Shard,
    password: str | Sequence[Login],
    out: Path,
    *,
    replicas_only: bool,
    tls: ssl.SSLContext | None,
) -> dict[str, str]:
    """One shard from the first server that gives a snapshot; once a byte was written there is no other try."""
    refusals = []
    for one in shard.candidates:
        try:
            info, login = await _usable(dial, one, password, replicas_only=replicas_only)
            user, text = ("", login) if isinstance(login, str) else login
            async with open_snapshot(one.address, user=user, password=text, tls=tls) as snapshot:
                head = bytearray()
                size = 0
                fd = -1
                try:
                    async for piece in snapshot.data:
                        if fd < 0:
                            fd = os.open(out, os.O_WRONLY)
                        if len(head) < HEAD:
                            head += piece[:HEAD]
                        _write(fd, piece)
                        size += len(piece)
                except WireFailed as error:
                    if fd >= 0:
                        raise NotRead(f"{one.pod}: {error}") from error
                    raise
                finally:
                    if fd >= 0:
                        os.close(fd)
        except (DialError, WireFailed) as error:
            refusals.append(f"{one.pod}: {error}")
            continue
        said = head_of(bytes(head))
        if said is None:
            raise NotRead(f"{one.pod}: what it sent is no RDB file; its version is not supported")
        facts = {
            "source": one.pod,
            "version": server_version(info),
            "position": f"{snapshot.replid}:{snapshot.offset}",
            "rdb": str(said.format),
            "databases": ",".join(
                name.removeprefix("db") for name in info if name.startswith("db") and name[2:].isdigit()
            ),
            "uncompressed": info.get("used_memory", ""),
        }
        if said.functions:
            facts["functions"] = "yes"
        if said.first is not None:
            facts["keys"] = f"{said.first[0]}:{said.first[1]}"
        return facts
    raise NotRead("; ".join(refusals)[:1000] or "no server can be read; see the status of the cluster")


async def _usable(
    dial: Dial, one: Candidate, password: str | Sequence[Login], *, replicas_only: bool
) -> tuple[dict[str, str], Login]:
    """INFO of a server that can be read now, and what it took from us; raises `Denied` for another."""
    async with dial.link(one.address, password=password) as link:
        login = link.login
        info: dict[str, str] = {}
        for section in ("server", "replication", "persistence", "memory", "keyspace"):
            info |= parse_info(str(await link.call("INFO", section)))
    if info.get("loading") == "1":
        raise Denied("it is loading its data")
    if info.get("role") == "master":
        if replicas_only:
            raise Denied("it is the master; backups are read from a replica")
    elif info.get("master_link_status") != "up" or info.get("master_sync_in_progress") == "1":
        raise Denied("it is not in sync with its master")
    return info, login


def _write(fd: int, piece: bytes) -> None:
    view = memoryview(piece)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except BrokenPipeError:
        raise NotRead("the container that moves the data ended first; its own message says why") from None
