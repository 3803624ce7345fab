"""``mooring import redis``: makes a Redis that runs elsewhere, or its RDB file, a backup that a new cluster begins with.

The snapshot is streamed as a backup's is (`reader`), into the same layout, with the same checks (`mooring.operators.backup.agent`):
a restore cannot tell the difference. The server is read as a replica reads it, and nothing is written to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from mooring.objectstore import Store
from mooring.operators.backup import agent
from mooring.operators.backup.manifest import facts_text
from mooring.operators.backup.shell import REFUSED
from mooring.operators.redis.address import TLS_PORT, Address
from mooring.operators.redis.backup.rdb import HEAD, head_of
from mooring.operators.redis.backup.reader import Candidate, NotRead, Source, read_all, shards_of
from mooring.operators.redis.dial import Dial, DialError, Login, Refused

__all__ = ["import_redis"]

_PORT: Final = 6379
_ALIVE: Final = b"."
_PIECE: Final = 1 << 20

Read = Callable[[Path], Awaitable[Mapping[str, str]]]
"""Writes every part to its FIFO in a directory; returns the facts. Raises `NotRead`."""


async def import_redis(
    store: Store,
    *,
    prefix: str,
    source: str,
    password: str = "",
    user: str = "",
    tls: ssl.SSLContext | None = None,
    bandwidth: float = 0.0,
    show: Callable[[str], object] = lambda _: None,
) -> agent.Result:
    """Store the data of ``source`` at a prefix: HOST[:PORT] of a server, or of a node of a Redis Cluster, or an RDB file.

    ``bandwidth`` is in bytes per second, 0: no limit. Raises what `agent.put` raises, and `NotRead` where the source
    cannot be read at all. What a failed import stored is deleted.
    """
    file = Path(source)
    if await asyncio.to_thread(file.is_file):
        parts, flavor = ["data"], "sentinel"

        async def read(run: Path) -> Mapping[str, str]:
            return await asyncio.to_thread(_copy, file, run / "data")

    else:
        host, port = _host(source, _PORT if tls is None else TLS_PORT)
        login = [(user, password)] if user else password
        asked = await _plan(Dial(connect_timeout=5.0, reply_timeout=10.0, tls=tls), host, port, login)
        parts, flavor = asked.parts, "cluster" if asked.sharded else "sentinel"

        async def read(run: Path) -> Mapping[str, str]:
            return await read_all(asked, password=login, run=run, tls=tls)

    draft = agent.Draft(id=str(uuid.uuid4()), operator="import", flavor=flavor, method="snapshot")
    with tempfile.TemporaryDirectory(prefix="mooring-import-") as place:
        run = Path(place)
        beside = asyncio.create_task(asyncio.to_thread(asyncio.run, _beside(run, read)))
        try:
            return await agent.put(
                store, prefix=prefix, parts=parts, draft=draft, run=run, bandwidth=bandwidth, show=show
            )
        finally:
            agent.give_up(run)
            await _released(beside, [run / part for part in parts])


async def _released(beside: asyncio.Task[None], fifos: Sequence[Path]) -> None:
    """Wait for the reading to end; where nothing takes what it writes any more, it learns so by its next write."""
    while not beside.done():
        for one in fifos:
            with contextlib.suppress(OSError):
                os.close(os.open(one, os.O_RDONLY | os.O_NONBLOCK))
        await asyncio.wait([beside], timeout=agent.POLL)
    beside.result()


def _host(text: str, default: int) -> tuple[str, int]:
    """Host and port of ``HOST[:PORT]``, an IPv6 address in brackets; raises `NotRead`."""
    if "/" in text or text.endswith(".rdb"):
        raise NotRead(f"there is no file {text}; give an RDB file, or HOST[:PORT] of a server")
    host, _, port = text.rpartition(":") if not text.endswith("]") and ":" in text else (text, "", "")
    if port and not port.isdecimal():
        raise NotRead(f"{text!r} is neither a file nor HOST[:PORT]")
    return host.strip("[]"), int(port or default)


async def _plan(dial: Dial, host: str, port: int, password: str | Sequence[Login]) -> Source:
    """What is to be read: one server, or each shard of the Redis Cluster that it is a node of."""
    try:
        async with dial.link(Address(host, port), password=password) as link:
            clustered = "cluster_enabled:1" in str(await link.call("INFO", "cluster"))
            said = str(await link.call("CLUSTER", "NODES")) if clustered else ""
    except DialError as error:
        raise NotRead(f"the source cannot be read: {str(error).rstrip('.')}; {_remedy(error)}") from error
    if not clustered:
        return Source(
            pods=[Candidate(pod=f"{host}:{port}", ip=host, port=port)], parts=["data"], masters=True
        )
    places = [line.split()[1].partition("@")[0].rpartition(":") for line in said.splitlines() if line.split()]
    pods = [
        Candidate(pod=f"{ip or host}:{number}", ip=ip.strip("[]") or host, port=int(number))
        for ip, _, number in places
        if number.isdecimal() and int(number)
    ]
    count = len(shards_of(said, pods))
    return Source(pods=pods, parts=[f"shard-{number}" for number in range(count)], sharded=True)


def _remedy(error: DialError) -> str:
    if isinstance(error, Refused):
        return (
            "give its password by --password-file, and the account by --user where it is not the default one"
        )
    return "check the address and port, and --tls-ca where the server takes TLS alone"


async def _beside(run: Path, read: Read) -> None:
    """The part of the container ``data`` of a Job: reads while `agent.put` stores, and says how it ended."""
    while not (run / "ready").exists():
        if (run / "store.status").exists():  # it failed before it began
            return
        await asyncio.sleep(agent.POLL)
    with (run / "alive").open("wb", buffering=0) as alive:
        alive.write(_ALIVE)
        status = 0
        try:
            facts = await read(run)
        except NotRead as error:
            (run / "failure").write_text(f"{error}\n")
            status = REFUSED
        except OSError as error:
            (run / "failure").write_text(f"{error.strerror}: {error.filename}\n")
            status = REFUSED
        else:
            (run / "facts").write_text(facts_text(facts))
        (run / "data.status").write_text(f"{status}\n")


def _copy(file: Path, out: Path) -> Mapping[str, str]:
    """Copy an RDB file; the facts that its head tells. Raises `NotRead`."""
    with file.open("rb") as source:
        begin = source.read(HEAD)
        head = head_of(begin)
        if head is None:
            raise NotRead(f"{file} is no RDB file; give the dump.rdb of BGSAVE or redis-cli --rdb")
        with out.open("wb") as target:
            target.write(begin)
            while piece := source.read(_PIECE):
                target.write(piece)
    facts = {"source": str(file), "version": head.aux.get("redis-ver", ""), "rdb": str(head.format)}
    if head.functions:
        facts["functions"] = "yes"
    if head.first is not None:
        facts["keys"] = f"{head.first[0]}:{head.first[1]}"
    return facts
