"""Statements that the operator itself sends to a compute node, such as for the user that reads the metrics.

No message of a failure has a statement or what the server says of it: a server quotes what it does not understand, and a
statement may hold a password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from asyncmy.connection import Connection
from asyncmy.errors import MySQLError

__all__ = ["CONNECT", "REPLY", "Login", "Sql", "SqlFailed"]

CONNECT: Final = 5.0
"""Seconds within which a server lets the user in; others than these are waited for in vain."""
REPLY: Final = 10.0
"""Seconds within which it answers a statement."""
_DENIED: Final = frozenset({1045, 20101, 20301})
"""Errors at the login: MySQL's, and MatrixOne's internal and invalid input."""


class SqlFailed(Exception):
    """The statements were not carried out, or not all of them; the text may be shown to users."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Login:
    """An account."""

    user: str
    password: str = field(repr=False)


class Sql:
    """Runs statements on a server, one connection for each call."""

    def __init__(self, fence: Callable[[], None]) -> None:
        """``fence`` is called before whatever is sent."""
        self._fence = fence

    async def run(
        self, host: str, port: int, login: Login, statements: Sequence[tuple[str, str]], *, where: str
    ) -> None:
        """Carry out statements, each with what stands for it in messages; raises `SqlFailed`."""
        connection = await self._connected(host, port, login, where)
        try:
            for about, statement in statements:
                await self._one(connection, about, statement, where)
        finally:
            with suppress(Exception):
                connection.close()

    async def _connected(self, host: str, port: int, login: Login, where: str) -> Any:
        self._fence()
        connection: Any = Connection(  # type: ignore[no-untyped-call]
            host=host,
            port=port,
            user=login.user,
            password=login.password,
            autocommit=True,
            connect_timeout=CONNECT,
        )
        # In a task of its own: it may swallow the cancellation of a time limit.
        connecting = asyncio.create_task(connection.connect())
        try:
            done, _ = await asyncio.wait({connecting}, timeout=CONNECT)
            if not done:
                raise SqlFailed("ServerUnreachable", f"{where} does not let anybody in within {CONNECT:g} s")
            connecting.result()
        except MySQLError as error:
            if _code(error) in _DENIED:
                text = f"{where} does not let the user {login.user} in (error {_code(error)})"
                raise SqlFailed("LoginRejected", text) from None
            raise SqlFailed("ServerUnreachable", f"cannot connect to {where}") from None
        except (OSError, EOFError, RuntimeError) as error:
            text = f"cannot connect to {where}: {type(error).__name__}"
            raise SqlFailed("ServerUnreachable", text) from None
        finally:
            if not connecting.done():
                connecting.cancel()
        return connection

    async def _one(self, connection: Any, about: str, statement: str, where: str) -> None:
        self._fence()
        try:
            async with asyncio.timeout(REPLY):
                await connection.query(statement)
        except TimeoutError:
            raise SqlFailed("NoAnswer", f"{where}: no answer to {about} within {REPLY:g} s") from None
        except MySQLError as error:
            raise SqlFailed(
                "StatementRefused", f"{where} refused {about} with error {_code(error)}"
            ) from None
        except (OSError, EOFError, RuntimeError):
            raise SqlFailed("ServerUnreachable", f"{where}: the connection ended at {about}") from None


def _code(error: MySQLError) -> int:
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0
