"""A statement that is given up holds nobody up, wherever it was."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable
from time import monotonic
from typing import Any

import pytest
from asyncmy.connection import Connection

from mooring.operators.mysql.dial import Dial, Login, Unreachable
from mooring.operators.mysql.names import ADMIN_PORT, PORT
from mooring.operators.mysql.survey import login_of
from mooring.testing.mysql import CREDENTIALS, Servers

pytestmark = pytest.mark.embedded


async def test_a_statement_that_is_given_up_amid_several_results_ends_at_its_limit() -> None:
    async with Servers() as servers:
        (server,) = await servers.start(1)
        async with Dial().open(server.address, login_of(CREDENTIALS)) as link:
            began = monotonic()
            with pytest.raises(Unreachable) as refused:
                await link.results("SELECT 1; SELECT SLEEP(20); SELECT 2", timeout=0.3)

    assert refused.value.word == "Timeout"
    assert monotonic() - began < 5


async def test_a_server_that_never_greets_is_given_up_even_if_it_accepts_in_the_last_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`asyncio.wait_for` of Python 3.11 takes a connection that is made amid its cancellation, and goes on without a limit."""
    greeted = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeted.wait()
        writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]

    async def swallowing(awaitable: Awaitable[object], timeout: float | None) -> object:
        made = asyncio.ensure_future(awaitable)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        return await made

    monkeypatch.setattr(asyncio, "wait_for", swallowing)
    try:
        began = monotonic()
        with pytest.raises(Unreachable) as refused:
            await Dial(connect_timeout=0.3, port=port).session("127.0.0.1", Login())
    finally:
        monkeypatch.undo()
        greeted.set()
        listener.close()
    assert refused.value.word == "Timeout"
    assert monotonic() - began < 4


@pytest.mark.parametrize("port", [PORT, 1], ids=["open", "refused"])
async def test_a_login_that_ends_in_the_moment_in_which_its_caller_is_cancelled_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    """Neither an open connection, nor a failure that nothing asked for."""
    connect, made, told = Connection.connect, list[Any](), list[str]()

    async def ending(connection: Any) -> None:
        made.append(connection)
        try:
            await connect(connection)
        finally:
            caller.cancel()

    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about["message"]))
    async with Servers() as servers:
        (server,) = await servers.start(1)
        monkeypatch.setattr(Connection, "connect", ending)
        dial = Dial(port=port, connect_timeout=10.0)
        caller = asyncio.create_task(dial.session(server.address, login_of(CREDENTIALS)))
        with pytest.raises(asyncio.CancelledError):
            await caller
        monkeypatch.undo()
        await asyncio.sleep(0)
        gc.collect()
        assert told == []
        assert [one.connected for one in made] == [False]


async def test_the_last_free_connection_is_waited_for_that_the_server_still_counts() -> None:
    """It counts one for a moment after it was closed: a door that turns away two callers stands for that moment."""
    async with Servers() as servers:
        (server,) = await servers.start(1)
        turned_away = 0

        async def door(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal turned_away
            if turned_away < 4:  # at either port, twice
                turned_away += 1
                text = b"\xff" + (1040).to_bytes(2, "little") + b"Too many connections"
                writer.write(len(text).to_bytes(3, "little") + b"\0" + text)
                await writer.drain()
                writer.close()
                return
            there, to = await asyncio.open_connection(server.address, PORT)
            await asyncio.gather(_pass_on(reader, to), _pass_on(there, writer))

        host = server.address.rpartition(".")[0] + ".250"
        listener = await asyncio.start_server(door, host, ADMIN_PORT)
        try:
            link = await Dial(port=ADMIN_PORT, connect_timeout=10.0).session(host, login_of(CREDENTIALS))
            assert await link.one("SELECT 1 AS n") == {"n": 1}
            link.close()
        finally:
            listener.close()
    assert turned_away == 4


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
