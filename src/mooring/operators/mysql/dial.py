"""Talk to one MariaDB or MySQL server: bounded, without retries, every statement behind the fence.

    DialError           message names the server; `word` is one of the words below, for status and decisions
      Unreachable       Refused (nothing listens), Timeout, Lost (the connection ended), TooManyConnections, Resolve
      Denied            AccessDenied: none of the passwords counts
      SqlError          the server answered with an error: `code` and `text`

asyncmy does the protocol. It bounds no wait by itself (a server that accepts and never greets hangs it for ever), so every
connect and every statement has its own time limit here, and a connection is dropped after one: what the server makes of a
statement that was given up is not known.

Reading keeps one connection to each server open (`Dial.kept`): a login costs ten times a statement. Steps open their own
(`Dial.open`), so that no session setting outlives them.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Literal

from asyncmy.connection import Connection
from asyncmy.cursors import DictCursor
from asyncmy.errors import Error, MySQLError

from mooring.operators.mysql.names import ADMIN_PORT, OPERATOR_USER, PORT
from mooring.operators.mysql.quoting import quoted

__all__ = [
    "Denied",
    "Dial",
    "DialError",
    "Fence",
    "Link",
    "Login",
    "Row",
    "SqlError",
    "Unreachable",
    "no_fence",
    "quoted",
]

Fence = Callable[[], None]
"""Raises when this process may no longer act; called at every send."""

Row = dict[str, Any]

Word = Literal["Refused", "Timeout", "Lost", "TooManyConnections", "Resolve", "AccessDenied", "SqlError"]

_TOO_MANY: Final = frozenset({1040, 1203})
_DENIED: Final = frozenset({1044, 1045, 1698, 3118, 4151})
_LOST: Final = frozenset({1053, 1927, 2006, 2013, 2055, 3169})
_POLL: Final = 0.05
"""Seconds between two tries at a server that has no connection left."""
#: asyncmy begins with 256 KiB for what it receives; a poll needs a few.
_BUFFER: Final = 16 << 10


class DialError(Exception):
    """A server did not do what it was asked."""

    def __init__(self, message: str, word: Word) -> None:
        super().__init__(message)
        self.word: Word = word


class Unreachable(DialError):
    """No answer in time, or no connection. Unknown is not empty."""


class Denied(DialError):
    """The server lets none of the passwords in."""


class SqlError(DialError):
    """The server refused a statement."""

    def __init__(self, message: str, code: int, text: str) -> None:
        super().__init__(message, "SqlError")
        self.code = code
        self.text = text


def no_fence() -> None:
    """The fence of a process that needs none: a test, or a tool run by hand."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """An account and the passwords to try, by label."""

    user: str = OPERATOR_USER
    passwords: Sequence[tuple[str, str]] = field(default=(), repr=False)
    """Label and text; the first that the server takes counts."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    plain: frozenset[str] = frozenset()
    """Addresses that are connected to without encryption nevertheless."""


class _Cursor(DictCursor):
    """Rows by column; what the server warns of is neither fetched nor logged."""

    async def _show_warnings(self, conn: Connection) -> None:
        return


class Link:
    """One open connection; one statement at a time."""

    def __init__(
        self, connection: Connection, name: str, *, fence: Fence, timeout: float, label: str = ""
    ) -> None:
        self._connection: Any = connection  # its stub leaves the protocol out
        self.name = name
        """The server, for messages."""
        self._fence = fence
        self.timeout = timeout
        """Seconds that a statement may take unless it says otherwise."""
        self.label = label
        """Label of the password that was taken."""

    @property
    def thread_id(self) -> int:
        """The server's number of this connection."""
        return int(self._connection.thread_id())

    @property
    def alive(self) -> bool:
        """Whether the other side has not closed it."""
        protocol = self._connection._proto
        return bool(self._connection.connected and protocol is not None and not protocol.eof)

    async def closed(self) -> None:
        """Wait until the connection ends: a server that dies ends it at once, one that hangs does not."""
        protocol = self._connection._proto
        if protocol is not None and self._connection.connected:
            await asyncio.shield(protocol._closed_waiter)

    async def query(self, statement: str, *, timeout: float | None = None, about: str = "") -> list[Row]:
        """One statement and its rows; ``about`` stands in messages for one that holds a secret."""
        return (await self.results(statement, timeout=timeout, about=about))[0]

    async def one(self, statement: str, *, timeout: float | None = None) -> Row:
        """One statement and its first row."""
        rows = await self.query(statement, timeout=timeout)
        return rows[0] if rows else {}

    async def results(
        self, statements: str, *, timeout: float | None = None, about: str = ""
    ) -> list[list[Row]]:
        """Statements separated by semicolons, sent at once; the rows of each."""
        self._fence()
        what = about or _first_words(statements)
        limit = self.timeout if timeout is None else timeout
        try:
            # Not closed: a cursor that is left amid several results reads on, and no time limit counts any more.
            cursor = self._connection.cursor(_Cursor)
            async with asyncio.timeout(limit):
                await cursor.execute(statements)
                found: list[list[Row]] = [list(await cursor.fetchall() or ())]
                while await cursor.nextset():
                    found.append(list(await cursor.fetchall() or ()))
                return found
        except TimeoutError as error:
            self.close()
            raise Unreachable(f"{self.name}: no answer to {what} within {limit:g} s", "Timeout") from error
        except asyncio.CancelledError:
            self.close()
            raise
        except (MySQLError, OSError, RuntimeError) as error:
            raise self._failure(error, what, secret=bool(about)) from None

    def close(self) -> None:
        """Drop the connection; the server is not told."""
        with suppress(Exception):
            self._connection.close()

    def _failure(self, error: Exception, what: str, *, secret: bool) -> DialError:
        code, text = _code(error), _text(error)
        if not self.alive or code in _LOST or not isinstance(error, Error) or not code:
            self.close()
            return Unreachable(f"{self.name}: the connection ended at {what}", "Lost")
        # A syntax error quotes the statement.
        shown = "" if secret else f": {text}"
        return SqlError(f"{self.name}: {what} refused with error {code}{shown}", code, "" if secret else text)


@dataclass
class _Kept:
    """A connection that is used again, by one reader at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    link: Link | None = None
    login: Login | None = None
    used: float = 0.0


class Dial:
    """Opens links; one per operator, sharing the fence and the time limits (seconds)."""

    def __init__(
        self,
        *,
        fence: Fence = no_fence,
        connect_timeout: float = 1.0,
        reply_timeout: float = 1.0,
        idle: float = 120.0,
        port: int = PORT,
    ) -> None:
        """``idle``: a connection that was not used for so long is closed."""
        self._port = port
        self._fence = fence
        self._connect_timeout = connect_timeout
        self._reply_timeout = reply_timeout
        self._idle = idle
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._swept = monotonic()

    @asynccontextmanager
    async def open(
        self, host: str, login: Login, *, name: str = "", timeout: float = 5.0
    ) -> AsyncIterator[Link]:
        """A connection of its own for the length of the block; ``timeout`` for each statement."""
        link = await self._connect(host, login, name or host, timeout)
        try:
            yield link
        finally:
            link.close()

    async def session(self, host: str, login: Login, *, name: str = "", timeout: float = 5.0) -> Link:
        """As `open`, closed by the caller."""
        return await self._connect(host, login, name or host, timeout)

    @asynccontextmanager
    async def kept(self, host: str, login: Login, *, name: str = "") -> AsyncIterator[Link]:
        """The connection that is kept to a server, opened where there is none; for reading alone."""
        self._sweep()
        kept = self._kept.setdefault((host, login.user), _Kept())
        async with kept.lock:
            kept.used = monotonic()
            link = kept.link
            # While a password changes, the one to come is tried again and again.
            old = link is not None and bool(login.passwords) and link.label != login.passwords[0][0]
            if link is None or not link.alive or kept.login != login or old:
                if link is not None:
                    link.close()
                kept.link = None
                link = kept.link = await self._connect(host, login, name or host, self._reply_timeout)
                kept.login = login
            yield link

    def forget(self, host: str) -> None:
        """Close what is kept to a server that is gone."""
        for key in [key for key in self._kept if key[0] == host]:
            if (link := self._kept.pop(key).link) is not None:
                link.close()

    def close(self) -> None:
        """Close every connection that is kept."""
        for host, _user in list(self._kept):
            self.forget(host)

    def _sweep(self) -> None:
        now = monotonic()
        if now - self._swept < self._idle / 2:
            return
        self._swept = now
        for key, kept in list(self._kept.items()):
            if now - kept.used > self._idle and not kept.lock.locked():
                if kept.link is not None:
                    kept.link.close()
                del self._kept[key]

    async def _connect(self, host: str, login: Login, name: str, timeout: float) -> Link:
        """Log in; by the reserved port where all connections are used.

        A server counts a connection for a moment after it was closed, and the one just closed here may have been the last
        one free: so it is tried again for as long as a connection may take.
        """
        deadline = monotonic() + self._connect_timeout
        while True:
            try:
                return await self._log_in(host, self._port, login, name, timeout)
            except Unreachable as error:
                if error.word != "TooManyConnections":
                    raise
            try:
                return await self._log_in(host, ADMIN_PORT, login, name, timeout)
            except Unreachable as error:
                if error.word != "TooManyConnections" or monotonic() > deadline:
                    raise Unreachable(
                        f"{name}: all connections are used ({error})", "TooManyConnections"
                    ) from error
            await asyncio.sleep(_POLL)

    async def _log_in(self, host: str, port: int, login: Login, name: str, timeout: float) -> Link:
        denied: Denied | None = None
        for label, text in login.passwords or (("", ""),):
            self._fence()
            try:
                connection = await self._one(host, port, login, name, text)
            except Denied as error:
                denied = error
                continue
            return Link(connection, name, fence=self._fence, timeout=timeout, label=label)
        assert denied is not None
        raise denied

    async def _one(self, host: str, port: int, login: Login, name: str, password: str) -> Any:
        connection: Any = Connection(  # type: ignore[no-untyped-call]
            host=host,
            port=port,
            user=login.user,
            password=password.encode(),
            # A server's defaults must not change what our statements mean.
            sql_mode="''",
            autocommit=True,
            charset="utf8mb4",
            connect_timeout=max(1.0, self._connect_timeout),
            ssl=None if host in login.plain else login.tls,
        )
        # In a task of its own: where the connection is made in the same moment in which the time is over, `asyncio.wait_for`
        # of Python 3.11 swallows the cancellation, and a server that never greets would be waited for without end.
        connecting = asyncio.create_task(connection.connect())
        given_up = True  # also where the caller is cancelled in the moment in which it ends: then it is done, and still nobody's
        try:
            await asyncio.wait({connecting}, timeout=self._connect_timeout)
            given_up = not connecting.done()
        finally:
            if given_up:
                connecting.cancel()
                connecting.add_done_callback(_ended)
                asyncio.get_running_loop().call_later(
                    1.0, connecting.cancel
                )  # where the first one was swallowed
                connection.close()
        if not connecting.done() or connecting.cancelled():
            raise Unreachable(f"{name}: no connection within {self._connect_timeout:g} s", "Timeout")
        try:
            connecting.result()
        except (MySQLError, OSError, RuntimeError, ssl.SSLError) as error:
            connection.close()
            raise _no_connection(error, name, login.user) from None
        protocol = connection._proto
        if protocol is not None and protocol.length == protocol.pos:
            protocol.buffer, protocol.length, protocol.pos = bytearray(_BUFFER), 0, 0
        return connection


def _ended(task: asyncio.Task[Any]) -> None:
    """What becomes of a connection that was given up is of no interest."""
    if not task.cancelled():
        task.exception()


def _no_connection(error: Exception, name: str, user: str) -> DialError:
    code = _code(error)
    if code in _DENIED:
        return Denied(f"{name}: the server lets {user} in with none of the passwords known", "AccessDenied")
    if code in _TOO_MANY:
        return Unreachable(f"{name}: all connections are used", "TooManyConnections")
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, socket.gaierror):
        return Unreachable(f"{name}: its name cannot be resolved", "Resolve")
    if isinstance(cause, OSError):
        if cause.errno == errno.ECONNREFUSED:
            return Unreachable(f"{name}: nothing listens there", "Refused")
        if cause.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
            return Unreachable(f"{name}: {cause.strerror or cause}", "Timeout")
        return Unreachable(
            f"{name}: the connection ended before the login: {cause.strerror or cause}", "Lost"
        )
    return Unreachable(f"{name}: the login failed: {code or type(error).__name__}", "Lost")


def _code(error: Exception) -> int:
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) and isinstance(error, MySQLError) else 0


def _text(error: Exception) -> str:
    return str(error.args[1]) if len(error.args) > 1 else str(error)


def _first_words(statement: str) -> str:
    return " ".join(statement.split()[:3]).rstrip(";,")
