"""Records answers of a real server for the tests of the codec: python -m tests.operators.matrixone.rpc.record

One log store, one TN, two CNs and a proxy with two sessions; cn0 has labels, cn1 is draining. Every answer is stored as it
came, compressed with xz, in ``recorded/<name>.xz``, and requests as they were sent in ``recorded/<name>.request``.
"""

from __future__ import annotations

import asyncio
import lzma
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from hack.mo_service import build

from mooring.operators.matrixone.rpc.compute import load
from mooring.operators.matrixone.rpc.dial import Address, Dial, Refused, RpcError
from mooring.operators.matrixone.rpc.hakeeper import hakeeper
from mooring.operators.matrixone.rpc.locks import locks
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.testing.matrixone import LOG_PORT, bare_cluster

RECORDED = Path(__file__).with_name("recorded")


class Tap:
    """A relay to one address that keeps what passes."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self.sent, self.received = bytearray(), bytearray()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(self._target.host, self._target.port)
        await asyncio.gather(self._pump(reader, outer, self.sent), self._pump(inner, writer, self.received))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                kept += data
                writer.write(data)
        writer.close()

    def keep(self, name: str, number: int = -1) -> None:
        """Store a frame of each side, the last one by default."""
        (RECORDED / f"{name}.request").write_bytes(_frames(self.sent)[number])
        (RECORDED / f"{name}.xz").write_bytes(lzma.compress(_frames(self.received)[number]))


def _frames(data: bytearray) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        found.append(bytes(data[at:end]))
        at = end
    return found


async def record() -> None:
    """Start a cluster, ask it, and store its answers."""
    RECORDED.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = await stack.enter_async_context(bare_cluster(await asyncio.to_thread(build), directory))
        await cluster.until_sql("proxy0")
        for _ in range(2):
            await stack.enter_async_context(cluster.sql())
        dial = Dial()

        async def tapped(address: Address) -> tuple[Tap, Address]:
            tap = Tap(address)
            server = await asyncio.start_server(tap.accept, "127.0.0.1", 0)
            stack.callback(server.close)
            return tap, Address("127.0.0.1", server.sockets[0].getsockname()[1])

        tap, address = await tapped(Address(cluster.services["log0"].host, LOG_PORT))
        uuids = [cluster.services[name].uuid for name in ("cn0", "cn1")]
        async with hakeeper(dial, [address]) as keeper:
            tap.keep("check")
            await keeper.set_labels(uuids[0], {"account": ["a", "b"], "role": ["ap"]})
            tap.keep("labels")
            await keeper.patch(uuids[1], WorkState.DRAINING)
            tap.keep("patch")
            await keeper.shard(0)
            tap.keep("shard")
            with suppress(Refused):
                await keeper.shard(99)
            tap.keep("shard-unknown")
            with suppress(RpcError):
                await keeper.patch("nobody", WorkState.DRAINING)
            tap.keep("patch-unknown")
            await keeper.delete_cn("nobody")
            tap.keep("delete")
            state = await keeper.state()
            tap.keep("state")
            await keeper.details()
            tap.keep("details")
        for uuid, name in zip(uuids, ("cn0", "cn1"), strict=True):
            query = Address.parse(state.cn.stores[uuid].query_address)
            assert query is not None
            tap, address = await tapped(query)
            await load(dial, address, sharding=True)
            for number, what in enumerate(("sessions", "pipelines", "replicas")):
                tap.keep(f"{what}-{name}", number)
        lock = Address.parse(next(iter(state.tn.stores.values())).lock_address)
        assert lock is not None
        tap, address = await tapped(lock)
        async with locks(dial, address) as allocator:
            await allocator.can_restart(uuids[1])
            tap.keep("can-restart")
            await allocator.set_restart(uuids[1])
            tap.keep("set-restart")


if __name__ == "__main__":
    asyncio.run(record())
