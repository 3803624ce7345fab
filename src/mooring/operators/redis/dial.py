"""Talk to one Redis server or sentinel: bounded, without retries, every command behind the fence.

    DialError
      Unreachable     no answer in time: says nothing about what the server holds
      Refused         the server answered with an error

redis-py's connection does the protocol. Its clients are not used: they retry and reconnect by themselves,
which would send a command after the fence fell (a lost answer must end here, so that the caller looks again).
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from mooring.operators.redis.address import CLEAR_PORTS, Address

__all__ = ["Address", "Dial", "DialError", "Fence", "Link", "Login", "Refused", "Unreachable", "no_fence"]

Fence = Callable[[], None]
"""Raises when this process may no longer act; called at every send."""

Word = str | int | bytes

Login = str | tuple[str, str]
"""A password of the default user, or a user and its password."""


class DialError(Exception):
    """A server did not do what it was asked; the message names the address and the command's name."""


class Unreachable(DialError):
    """No answer in time, or no connection. Unknown is not empty."""


class Refused(DialError):
    """The server answered with an error; ``reply`` is its text."""

    def __init__(self, message: str, reply: str) -> None:
        super().__init__(message)
        self.reply = reply

    @property
    def for_login(self) -> bool:
        """It takes none of the logins that were tried."""
        return self.reply.startswith(("NOAUTH", "WRONGPASS"))


def no_fence() -> None:
    """The fence of a process that needs none: a test, or a tool run by hand."""


class Link:
    """One open connection."""

    def __init__(self, connection: Connection, address: Address, fence: Fence, login: Login = "") -> None:
        self._connection = connection
        self._address = address
        self._fence = fence
        self.login = login
        """What the server took; "" where nothing was needed."""

    @property
    def certificate(self) -> bytes:
        """The certificate that the server showed on this connection, in DER; empty without TLS."""
        return self._connection.shown if isinstance(self._connection, _Encrypted) else b""

    async def call(self, *words: Word) -> Any:
        """Send one command and return its answer; `Refused` for an error answer."""
        (answer,) = await self.pipeline([words])
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def pipeline(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Send commands in one go; an error answer stands in the list as a `Refused`."""
        self._fence()
        try:
            await _send(self._connection, commands)
            return [await self._answer(words) for words in commands]
        except (RedisError, OSError) as error:
            names = ", ".join(dict.fromkeys(_name(words) for words in commands))
            raise Unreachable(f"{self._address}: no answer to {names}: {error}") from error

    async def subscribe(self, patterns: Sequence[str]) -> None:
        """Turn this connection into a subscriber."""
        self._fence()
        try:
            await _send(self._connection, [("PSUBSCRIBE", *patterns)])
        except (RedisError, OSError) as error:
            raise Unreachable(f"{self._address}: cannot subscribe: {error}") from error

    async def message(self) -> str:
        """The next message, however long it takes; "" that the subscription began."""
        try:
            kind, *_, said = await self._connection.read_response(timeout=math.inf)
            return said if kind == "pmessage" else ""
        except (RedisError, OSError) as error:
            raise Unreachable(f"{self._address}: subscription ended: {error}") from error

    async def _answer(self, words: Sequence[Word]) -> Any:
        try:
            return await self._connection.read_response(disconnect_on_error=False)
        except (ResponseError, BusyLoadingError, AuthenticationError) as error:
            code = _STRIPPED.get(type(error), "")
            reply = f"{code} {error}".lstrip()
            return Refused(f"{self._address}: {_name(words)} refused: {reply}", reply)


async def _send(connection: Connection, commands: Sequence[Sequence[Word]]) -> None:
    """Send; a cancellation that comes meanwhile is never lost.

    redis-py sends with ``asyncio.wait_for``, which up to Python 3.11 forgets one that comes as the sending ends: what
    was cancelled would go on.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        await connection.send_packed_command(connection.pack_commands(commands))
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


def _name(words: Sequence[Word]) -> str:
    """The command without its arguments, which may hold a password."""
    head = str(words[0]).upper()
    return f"{head} {str(words[1]).upper()}" if head in _WITH_SUBCOMMAND and len(words) > 1 else head


#: redis-py takes the code off these answers.
_STRIPPED: dict[type[Exception], str] = {
    ReadOnlyError: "READONLY",
    BusyLoadingError: "LOADING",
    MasterDownError: "MASTERDOWN",
    NoPermissionError: "NOPERM",
    AuthenticationError: "NOAUTH",
    AskError: "ASK",
    MovedError: "MOVED",
    TryAgainError: "TRYAGAIN",
    ClusterDownError: "CLUSTERDOWN",
    ClusterCrossSlotError: "CROSSSLOT",
}


def _is_password(login: Login) -> bool:
    return isinstance(login, str)


_WITH_SUBCOMMAND = frozenset({"SENTINEL", "CONFIG", "CLIENT", "INFO", "ACL"})


class _Encrypted(Connection):
    """A connection by TLS, with a context that is made once for all connections to a cluster."""

    def __init__(self, context: ssl.SSLContext, **how: Any) -> None:
        super().__init__(**how)
        self._context = context

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "ssl": self._context}

    @property
    def shown(self) -> bytes:
        """The server's certificate in DER."""
        found = self._writer.get_extra_info("ssl_object") if self._writer is not None else None
        return (found.getpeercert(binary_form=True) or b"") if found is not None else b""


class Dial:
    """Opens links; one per operator, sharing the fence and the time limits (seconds).

    With ``keys``, further logins to try: while a password is being changed, servers differ. With ``tls`` connections are
    encrypted, but for those to ``clear`` ports.
    """

    def __init__(
        self,
        *,
        fence: Fence = no_fence,
        connect_timeout: float = 0.5,
        reply_timeout: float = 1.0,
        keys: Sequence[Login] = (),
        tls: ssl.SSLContext | None = None,
        clear: Collection[int] = CLEAR_PORTS,
    ) -> None:
        self._fence = fence
        self._tls = tls
        self._clear = frozenset(clear)
        self._keys = tuple(keys)
        self._connect_timeout = connect_timeout
        self._reply_timeout = reply_timeout

    @asynccontextmanager
    async def link(
        self,
        address: Address,
        *,
        password: str | Sequence[Login] = "",
        user: tuple[str, str] | None = None,
        reply_timeout: float | None = None,
        exact: bool = False,
    ) -> AsyncIterator[Link]:
        """A connection for the length of the block, authenticated when there is a password.

        Of several the first that the server takes counts, users before passwords of the default user. A server that
        has no password yet is used without one: the password reaches it later. ``user``, a name and its password, is tried instead; a server that does
        not take it goes on with the default user. With ``exact`` answers that are no UTF-8 are sent back as they came, such
        as names of keys; they are not fit for showing.
        """
        self._fence()
        connection = self._connection(address, reply_timeout or self._reply_timeout, exact=exact)
        try:
            if user is not None:
                await self._open_as(connection, address, user)
                yield Link(connection, address, self._fence)
                return
            known = [password] if isinstance(password, str) else password
            tried = [one for one in dict.fromkeys([*known, *self._keys]) if one]
            login = await self._open(connection, address, sorted(tried, key=_is_password))
            yield Link(connection, address, self._fence, login)
        finally:
            await connection.disconnect(nowait=True)

    async def listen(self, address: Address, *, patterns: Sequence[str] = ("*",)) -> AsyncIterator[str]:
        """Yields "" when subscribed, then every message; ends only with `Unreachable`."""
        async with self.link(address) as link:
            await link.subscribe(patterns)
            while True:
                yield await link.message()

    def _connection(self, address: Address, reply_timeout: float, *, exact: bool = False) -> Connection:
        how: dict[str, Any] = {
            "host": address.ip,
            "port": address.port,
            "protocol": 2,
            "socket_timeout": reply_timeout,
            "socket_connect_timeout": self._connect_timeout,
            "retry": Retry(NoBackoff(), 0),
            "encoding_errors": "surrogateescape" if exact else "replace",
            "decode_responses": True,
            "driver_info": None,
        }
        if self._tls is None or address.port in self._clear:
            return Connection(**how)
        return _Encrypted(self._tls, **how)

    async def _open(self, connection: Connection, address: Address, logins: Sequence[Login]) -> Login:
        """Authenticate. That a server does not know a user is no failure by itself: it may need nothing."""
        refusal = ""
        try:
            await connection.connect_check_health()
            for one in logins:
                said = await self._authenticate(connection, *((one,) if isinstance(one, str) else one))
                if not said:
                    return one
                refusal = said if isinstance(one, str) else refusal
        except asyncio.CancelledError:
            raise
        except (RedisError, OSError) as error:
            raise Unreachable(f"{address}: cannot connect: {error}") from error
        if refusal:
            raise Refused(f"{address}: AUTH refused: {refusal}", f"WRONGPASS {refusal}")
        return ""

    async def _open_as(self, connection: Connection, address: Address, user: tuple[str, str]) -> None:
        try:
            await connection.connect_check_health()
            await self._authenticate(connection, *user)
        except asyncio.CancelledError:
            raise
        except (RedisError, OSError) as error:
            raise Unreachable(f"{address}: cannot connect: {error}") from error

    async def _authenticate(self, connection: Connection, *words: str) -> str:
        """Why the server does not take this password, or user and password; "" when it does, or has none."""
        self._fence()
        await _send(connection, [("AUTH", *words)])
        try:
            await connection.read_response(disconnect_on_error=False)
        except (AuthenticationError, ResponseError) as error:
            text = str(error)
            return "" if "no password is set" in text or "without any password" in text else text
        return ""
