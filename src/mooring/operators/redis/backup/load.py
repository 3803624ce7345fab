"""What the container ``data`` of a restore into a Redis Cluster runs: it sends every key to the owner of its slot.

The parts of a backup are read one after the other from their FIFOs, and each value goes on as it is in the file (see
`entries`), by RESTORE with REPLACE: a try that is made again leaves the same keys. Nothing is stored on the way, and no more
is held than two pieces of the file, the largest value twice, and a batch for each master.

All connections stay open from the first key to the last question. A master that restarted, was replaced or gave slots away
meanwhile ends the try, since keys may be missing there: what counts as restored is whole.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from redis.crc import key_slot

from mooring.cache import Clock, SystemClock
from mooring.operators.backup.layout import MANIFEST
from mooring.operators.backup.manifest import Manifest, decode_manifest
from mooring.operators.redis.address import Address
from mooring.operators.redis.backup.crc import crc64
from mooring.operators.redis.backup.entries import Entries, Entry, Function, NotUnderstood
from mooring.operators.redis.backup.reader import Candidate, nodes_of
from mooring.operators.redis.backup.wire import Denied, Wire, WireFailed, encoded, open_wire
from mooring.operators.redis.info import parse_info
from mooring.operators.redis.versions import parse_version, reads, reads_format, server_version

__all__ = ["Into", "NotLoaded", "dumped", "load"]

SLOTS: Final = 16384
BATCH: Final = 256 << 10
"""Bytes that are sent to a master at once; a longer value goes alone."""
COMMANDS: Final = 1000
AHEAD: Final = 32 << 20
"""Bytes by which a master may be ahead of its replicas: a replica that lags far behind is cut off, and copies everything again."""
LARGEST: Final = 512 << 20
"""Bytes of a value that a server takes (``proto-max-bulk-len``)."""
SILENCE: Final = 120.0
"""Seconds in which a server must take and answer a batch."""
REPLICAS: Final = 600_000
"""Milliseconds in which replicas must have everything."""
_PIECE: Final = 1 << 18
_OK: Final = b"+OK\r\n"


class Into(msgspec.Struct, frozen=True, kw_only=True):
    """The request's file ``into.json``. Holds no secrets."""

    pods: list[Candidate]
    """Servers of the cluster."""


class NotLoaded(Exception):
    """Nothing, or not everything, was loaded; the message says why and what to do. ``again``: another try may succeed."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


class Master(Wire):
    """A master, and what is on its way to it."""

    id = ""
    slots = ""
    version = ""
    sent = 0
    replicas = 0
    volatile = 0
    """Keys with an end: some of them may be gone before all is loaded."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence: float
    ) -> None:
        super().__init__(address, reader, writer, silence)
        self._batch: list[bytes] = []
        self._size = 0
        self._unanswered = 0
        self._ahead = 0

    async def add(self, command: bytes) -> None:
        """Send it with others; at most one batch is on its way while the next is put together."""
        self._batch.append(command)
        self._size += len(command)
        if self._size >= BATCH or len(self._batch) >= COMMANDS:
            await self.flush()

    async def flush(self) -> None:
        """Send what was put together, once what was sent before is answered."""
        await self.settle()
        batch, size, self._batch, self._size = self._batch, self._size, [], 0
        self._ahead += size
        if self._ahead > AHEAD:
            await self._await_replicas()
        if batch:
            self._unanswered = len(batch)
            await self.send(b"".join(batch))

    async def _await_replicas(self) -> None:
        self._ahead = 0
        if self.replicas and int(await self.text("WAIT", str(self.replicas), "60000")) < self.replicas:
            # One is gone or hangs: it is not waited for again, unless it is connected at the end (see `_verify`).
            self.replicas -= 1

    async def settle(self) -> None:
        """Wait for the answers. Raises `Denied` where one is an error."""
        count, self._unanswered = self._unanswered, 0
        if not count:
            return
        answers = await self.take(len(_OK) * count)  # every error is longer
        if answers == _OK * count:
            return
        said = next(line for line in answers.split(b"\r\n") if line != b"+OK").decode(errors="replace")
        rest = "" if f"{said}\r\n".encode() in answers else await self.line()
        raise Denied(f"{self._address}: {_meaning(said.lstrip('-') + rest)}")


def _meaning(said: str) -> str:
    """An error of RESTORE, with what to do about it."""
    if said.startswith("OOM"):
        return "it has no more memory for keys (maxmemory); give the cluster more memory or more masters"
    if "version or checksum" in said or "Bad data format" in said:
        return f"it cannot read a value ({said[:100]}); use an image of the version that was backed up, or a later one"
    return f"it refuses a key: {said[:200]}"


@dataclass(kw_only=True)
class _Load:
    masters: list[Master]
    owners: list[Master] = field(default_factory=list)
    """By slot."""
    functions: set[bytes] = field(default_factory=set)
    absolute: bool = True
    """The servers take the end of a key as a time (5.0)."""
    clock: Clock = field(default_factory=SystemClock)

    def now(self) -> int:
        """Milliseconds since 1970."""
        return int(self.clock.now().timestamp() * 1000)

    async def part(self, path: Path, entries: Entries) -> None:
        """Send everything that comes out of a FIFO."""
        fd = await asyncio.to_thread(os.open, path, os.O_RDONLY)
        try:
            while piece := await asyncio.to_thread(os.read, fd, _PIECE):
                for one in entries.feed(piece):
                    await self._take(one, entries.format)
            for one in entries.finish():
                await self._take(one, entries.format)
        finally:
            os.close(fd)

    async def _take(self, one: Entry | Function, version: int) -> None:
        if isinstance(one, Function):
            await self._function(one.code)
            return
        if one.database:
            raise NotLoaded(
                f"the backup has keys in database {one.database}, and a Redis Cluster has database 0 alone; restore it into "
                "a cluster with sentinels (redis.kun)",
                again=False,
            )
        if len(one.value) > LARGEST:
            raise NotLoaded(
                f"a key has a value of {len(one.value) >> 20} MB, and servers take 512 MB at once; restore the backup into a "
                "cluster with sentinels (redis.kun)",
                again=False,
            )
        master = self.owners[key_slot(one.key)]
        expires, how = one.expires, [b"REPLACE"]
        if expires:
            master.volatile += 1
            if self.absolute:
                how.append(b"ABSTTL")
            else:
                expires = max(1, expires - self.now())
        master.sent += 1
        value = dumped(one.value, version)
        await master.add(encoded([b"RESTORE", one.key, str(expires), value, *how]))

    async def _function(self, code: bytes) -> None:
        """Libraries are the same on every shard."""
        if code in self.functions:
            return
        self.functions.add(code)
        for one in self.masters:
            await one.flush()
            await one.settle()
            await one.text(b"FUNCTION", b"LOAD", b"REPLACE", code)


async def load(into: Into, *, password: str, run: Path, tls: ssl.SSLContext | None = None) -> dict[str, str]:
    """Load every part; returns the facts of the result. Raises `NotLoaded`."""
    manifest = decode_manifest((run / MANIFEST).read_bytes())
    _of_one_database(manifest)
    try:
        async with AsyncExitStack() as stack:
            work = _Load(masters=await _masters(stack, into.pods, password, tls))
            work.owners = _owners(work.masters)
            work.absolute = all(parse_version(one.version) >= (5, 0, 0) for one in work.masters)
            _readable(manifest, work.masters)
            for part in manifest.parts:
                await work.part(run / part.name, Entries())
            for one in work.masters:
                await one.flush()
                await one.settle()
            for one in work.masters:
                await _verify(one)
    except NotUnderstood as error:
        raise NotLoaded(f"the backup cannot be read: {error}", again=False) from error
    except WireFailed as error:
        raise NotLoaded(str(error)) from error
    return {"keys": str(sum(one.sent for one in work.masters)), "position": manifest.position}


def dumped(value: bytes, version: int) -> bytes:
    """What DUMP answers for a value that stands so in a file of this version."""
    body = value + version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def _of_one_database(manifest: Manifest) -> None:
    """Raise where it is known before anything is read that keys are in other databases."""
    names = ["databases", *(f"databases.{part.name}" for part in manifest.parts)]
    others = {one for name in names for one in manifest.facts.get(name, "").split(",")} - {"", "0"}
    if others:
        raise NotLoaded(
            f"the backup has keys in the databases {', '.join(sorted(others))}, and a Redis Cluster has database 0 alone; "
            "restore it into a cluster with sentinels (redis.kun)",
            again=False,
        )


def _readable(manifest: Manifest, masters: Sequence[Master]) -> None:
    """Raise where a server's version cannot read the file."""
    names = ["rdb", *(f"rdb.{part.name}" for part in manifest.parts)]
    formats = {int(text) for name in names if (text := manifest.facts.get(name, "")).isdigit()}
    version = manifest.facts.get("version", "")
    for one in masters:
        if not all(reads_format(one.version, kept) for kept in formats) and not (
            version and reads(one.version, version)
        ):
            raise NotLoaded(
                f"the servers are of version {one.version} and cannot read a backup of version "
                f"{version or 'later'}: use that version in spec.pod[0].middlewareImage, or a later one of the same kind",
                again=False,
            )


async def _masters(
    stack: AsyncExitStack, pods: Sequence[Candidate], password: str, tls: ssl.SSLContext | None
) -> list[Master]:
    """A connection to every owner of slots, by the word of the first node that answers."""
    refusals = []
    for pod in pods:
        try:
            async with open_wire(Wire, pod.address, password=password, tls=tls, silence=SILENCE) as link:
                said = await link.text("CLUSTER", "NODES")
            break
        except WireFailed as error:
            refusals.append(str(error))
    else:
        raise NotLoaded(f"no node answers: {'; '.join(refusals)[:500]}")
    masters = []
    for one in nodes_of(said, pods):
        if "master" not in one.flags or not one.slots:
            continue
        if one.pod is None or "fail" in one.flags:
            raise NotLoaded(f"the master {one.id} does not answer; the restore needs every shard")
        wire = open_wire(Master, one.pod.address, password=password, tls=tls, silence=SILENCE)
        master = await stack.enter_async_context(wire)
        master.id, master.slots = one.id, ",".join(one.slots)
        info = parse_info(await master.text("INFO"))
        master.version = server_version(info)
        master.replicas = int(info.get("connected_slaves", "0"))
        masters.append(master)
    return masters


def _owners(masters: Sequence[Master]) -> list[Master]:
    found: dict[int, Master] = {}
    for one in masters:
        for words in one.slots.split(","):
            if words.startswith("["):
                raise NotLoaded("slots are moving; the restore begins again once that is over")
            first, _, last = words.partition("-")
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), one)
    if len(found) != SLOTS:
        raise NotLoaded("not every slot has an owner; the restore needs every shard")
    return [found[slot] for slot in range(SLOTS)]


async def _verify(one: Master) -> None:
    """It is the same master still, has every key, and its replicas have them too."""
    me = next(node for node in nodes_of(await one.text("CLUSTER", "NODES"), []) if "myself" in node.flags)
    if me.id != one.id or "master" not in me.flags or ",".join(me.slots) != one.slots:
        raise NotLoaded(f"{one.id} lost slots while it was loaded; the restore is made again")
    info = parse_info(await one.text("INFO"))
    if int(info.get("evicted_keys", "0")):
        raise NotLoaded(
            "keys were evicted while they were loaded; give the cluster more memory (maxmemory), or more masters"
        )
    there = int(await one.text("DBSIZE"))
    if not one.sent - one.volatile <= there <= one.sent:
        raise NotLoaded(
            f"a master has {there} keys after {one.sent} were sent to it; the restore is made again"
        )
    if replicas := int(info.get("connected_slaves", "0")):
        one.patience(REPLICAS / 1000 + 60)
        if int(await one.text("WAIT", str(replicas), str(REPLICAS))) < replicas:
            raise NotLoaded("the replicas do not catch up; see the status of the cluster")
