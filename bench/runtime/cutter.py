"""Stands between a peer and the API server and cuts every connection every so many seconds.

    python bench/runtime/cutter.py PORT_OF_THE_SERVER SECONDS

Prints the port it listens on (127.0.0.1); begins to cut with the first line of its standard input, and ends
with it. TLS passes through untouched.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(port: int, seconds: float) -> None:
    """Forward, and cut."""
    open_now: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        pair = {writer, up_writer}
        open_now.update(pair)
        await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        open_now.difference_update(pair)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    parent = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not parent.done():
        await asyncio.wait({parent}, timeout=seconds)
        for writer in list(open_now):
            writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
