"""Talk to one memcached: its text protocol, bounded in time, every change behind the fence."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

PORT = 11211
TIMEOUT = 2.0
"""Seconds for one exchange, the connection included."""


class DialError(Exception):
    """A server did not answer in time, or refused; the message says which command."""


class Server(NamedTuple):
    """The settings of a server that can be changed while it runs."""

    memory_megabytes: int
    verbosity: int


class Dial:
    """``fence`` raises when this process may no longer act."""

    def __init__(self, fence: Callable[[], None]) -> None:
        self._fence = fence

    async def look(self, ip: str) -> Server:
        lines = await _ask(ip, "stats settings", until="END")
        shown = dict(line.split(" ")[1:3] for line in lines[:-1])
        return Server(int(shown["maxbytes"]) // 2**20, int(shown["verbosity"]))

    async def change(self, ip: str, command: str) -> None:
        self._fence()
        answer, *_ = await _ask(ip, command)
        if answer != "OK":
            raise DialError(f"{command}: {answer}")


async def _ask(ip: str, command: str, *, until: str = "") -> list[str]:
    lines: list[str] = []
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(ip, PORT)
            try:
                writer.write(f"{command}\r\n".encode())
                while not lines or (until and lines[-1] != until):
                    lines.append((await reader.readuntil(b"\r\n")).decode().rstrip())
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError) as error:
        raise DialError(f"{command}: {error or 'no answer in time'}") from error
    return lines
