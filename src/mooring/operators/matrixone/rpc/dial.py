"""Talk to one process of MatrixOne: bounded, without retries, every request behind the fence.

RpcError
  Unreachable     no answer in time, or one that cannot be read: says nothing about the process
  Refused         the process answered with an error
    Unsupported   it knows no such method: the server's version has no such thing
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from mooring.operators.matrixone.rpc.frames import Frame, FrameError, pack, size_of, unpack
from mooring.operators.matrixone.rpc.messages import (
    LockReply,
    LockRequest,
    LogReply,
    LogRequest,
    MoError,
    QueryReply,
    QueryRequest,
)
from mooring.operators.matrixone.rpc.wire import WireError, decode, encode

__all__ = [
    "Address",
    "Dial",
    "Fence",
    "Link",
    "Refused",
    "RpcError",
    "Unreachable",
    "Unsupported",
    "no_fence",
]

Fence = Callable[[], None]
"""Raises when this process may no longer act; called at every send."""

NOT_SUPPORTED = 20105
_IGNORED_FRAMES = 16
"""Pings and late answers that are read over before the connection is given up."""


class RpcError(Exception):
    """A process did not do what it was asked; the message names its address and the method."""


class Unreachable(RpcError):
    """No answer in time, no connection, or no readable answer. Unknown is not empty."""


class Refused(RpcError):
    """The process answered with an error. ``reply`` is its text, which is often empty."""

    def __init__(self, message: str, *, code: int, reply: str) -> None:
        super().__init__(message)
        self.code, self.reply = code, reply


class Unsupported(Refused):
    """The process knows no such method."""


def no_fence() -> None:
    """The fence of a process that needs none: a test, or a tool run by hand."""


@dataclass(frozen=True, slots=True)
class Address:
    """Host or IP, and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """The address that ``host:port`` names, ``None`` where it names none."""
        host, _, port = text.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            return None
        return cls(host.strip("[]"), int(port))


Reply = TypeVar("Reply", LogReply, QueryReply, LockReply)


class Link:
    """One open connection; one request at a time."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        address: Address,
        fence: Fence,
        timeout: float,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._address, self._fence, self._timeout = address, fence, timeout
        self._ids = count(1)

    async def call(self, request: LogRequest | QueryRequest | LockRequest, reply: type[Reply]) -> Reply:
        """Send a request and return its answer; the link gives it its id.

        Raises `Unreachable`, and `Refused` for an answer that is an error.
        """
        self._fence()
        numbered, name = replace(request, request_id=next(self._ids)), request.method.name
        payload = isinstance(request, LogRequest)  # the log service's messages may carry one
        try:
            async with asyncio.timeout(self._timeout):
                self._writer.write(pack(encode(numbered), timeout=self._timeout, payload=payload))
                await self._writer.drain()
                answer = await self._answer(numbered.request_id, reply)
        except TimeoutError as error:
            raise Unreachable(f"{self._address}: no answer to {name} in {self._timeout:g} s") from error
        except (OSError, asyncio.IncompleteReadError, FrameError, WireError) as error:
            raise Unreachable(f"{self._address}: no answer to {name}: {error}") from error
        self._raise(answer, name)
        return answer

    async def _answer(self, number: int, reply: type[Reply]) -> Reply:
        for _ in range(_IGNORED_FRAMES):
            frame = await self._frame()
            if frame.internal:
                continue
            answer = decode(reply, frame.body)
            if answer.request_id == number:
                return answer
        raise FrameError("other frames instead of the answer")

    async def _frame(self) -> Frame:
        return unpack(await self._reader.readexactly(size_of(await self._reader.readexactly(4))))

    def _raise(self, answer: LogReply | QueryReply | LockReply, name: str) -> None:
        if isinstance(answer, LogReply):
            code, text = answer.error_code, answer.error_message
        elif answer.error:
            try:
                error = decode(MoError, answer.error)
            except WireError:
                error = MoError(code=-1, message="unreadable")
            code, text = error.code, error.message
        else:
            return
        if code or text:
            kind = Unsupported if code == NOT_SUPPORTED else Refused
            said = f": {text}" if text else ""
            raise kind(f"{self._address}: {name} refused with {code}{said}", code=code, reply=text)


class Dial:
    """Opens links; one per operator, sharing the fence and the time limits (seconds).

    A log store that has lost its quorum takes 1.8 to 4.8 s to say so.
    """

    def __init__(
        self, *, fence: Fence = no_fence, connect_timeout: float = 1.0, reply_timeout: float = 5.0
    ) -> None:
        self._fence = fence
        self._connect_timeout, self._reply_timeout = connect_timeout, reply_timeout

    @asynccontextmanager
    async def link(self, address: Address, *, reply_timeout: float | None = None) -> AsyncIterator[Link]:
        """A connection for the length of the block; raises `Unreachable`."""
        self._fence()
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{address}: cannot connect: {error or 'no answer'}") from error
        try:
            timeout = reply_timeout or self._reply_timeout
            yield Link(reader, writer, address=address, fence=self._fence, timeout=timeout)
        finally:
            # Abort: closing would wait for what the process still sends.
            writer.transport.abort()
