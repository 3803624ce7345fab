"""The effects on servers: one idempotent move each, safe to run again after a crash at any point.

Statements go through `Dial`, whose fence is checked at every send. A step goes on only where the process that was seen still
answers (its server_id: every start has its own), reads back what it has changed, and raises `StepFailed` with the reason; the
next pass decides again. What takes long (a drain) is left to the next pass after about a second.

The history of a server is never reset: no RESET MASTER, no RESET BINARY LOGS. Received transactions that were not applied
yet are never discarded on a server that may be promoted: only its receiver is stopped, both threads when it has applied
all (facts F10, F13 of the measurements behind this operator).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import structlog

from mooring.actor import StepFailed
from mooring.operators.mysql.config import keys_of
from mooring.operators.mysql.credentials import ACCOUNTS, Credentials
from mooring.operators.mysql.dial import Dial, DialError, Link, SqlError, quoted
from mooring.operators.mysql.dialect import DAY, Dialect, Source, number, text_of
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.holds import Hold, Holds
from mooring.operators.mysql.moves import (
    Amend,
    Configure,
    DatabaseMove,
    Demote,
    Done,
    Fence,
    Follow,
    Promote,
    ReloadCertificates,
    SetDurability,
    SetPasswords,
    Switch,
    Target,
    Tune,
)
from mooring.operators.mysql.names import ADMIN_PORT, PORT, REPLICATION
from mooring.operators.mysql.relay import first_unapplied
from mooring.operators.mysql.survey import login_of, read_server
from mooring.operators.mysql.topology import Replication, SemiSync, Server
from mooring.operators.workload.configuration import ConfigResult, result_of

__all__ = ["STILL", "Steps"]

log = structlog.get_logger("mooring.mysql")

POLL: Final = 0.02
"""Seconds between two looks while a step waits for its effect."""
GATHER: Final = 0.1
"""Seconds for which writes are held before the server is read-only: clients that write come to wait, and do not fail."""
PATIENCE: Final = 1.0
"""Seconds that a step waits for what may take long; the next pass goes on."""
STILL: Final = 3.0
"""Seconds without progress after which a candidate that drains disconnects its clients."""
GIVES_UP: Final = 3.0
"""Seconds that a receiver that was killed while it waited for space may take to end; it looks every second."""
LOCK: Final = 1
"""Seconds (whole ones) that SET GLOBAL read_only may wait for statements under way, at each try."""
LOGIN: Final = 1.0
"""Seconds that a login may take which is waited for before clients are let go."""
TRIES: Final = 2
"""How often a second writable server is asked to become read-only before it is given up."""
CLOSE: Final = 1000
"""Transactions that a candidate may be behind before writes are held for it."""
BUSY: Final = 1205
UNKNOWN: Final = 1193
AT_START: Final = 1238


class AnotherProcess(DialError):
    """The process that was seen no longer answers at its address; another one there is not touched."""

    def __init__(self, target: Target) -> None:
        super().__init__(
            f"{target.name}: the process that was seen no longer answers at {target.host}", "Lost"
        )


@dataclass(frozen=True, kw_only=True)
class _Source:
    """See `dialect.Source`."""

    host: str
    port: int
    user: str
    password: str
    tls: bool = False
    authority: str = ""


class Steps:
    """Carries out the moves that concern servers; made for one pass."""

    def __init__(
        self,
        dial: Dial,
        dialect: Dialect,
        credentials: Credentials,
        *,
        holds: Holds | None = None,
        tls: bool = False,
        authority: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        """``holds`` outlives a pass: one per operator; ``tls``: replicas connect encrypted.

        ``authority``: file with which they check the certificate of their source.
        """
        self._dial = dial
        self._dialect = dialect
        self._credentials = credentials
        self._login = login_of(credentials)
        self._holds = holds or Holds()
        self._tls = tls
        self._authority = authority
        self._sleep = sleep
        self._monotonic = monotonic

    async def run(self, move: DatabaseMove) -> Done:
        """Carry out one move; `StepFailed` when it did not get through."""
        try:
            return await _HANDLERS[type(move)](self, move)
        except DialError as error:
            raise StepFailed(str(error)) from error

    # --- following ---------------------------------------------------------------------------------------

    async def follow(self, move: Follow) -> Done:
        """Point servers at the source, each read-only before; those that do already are left alone."""
        async with self._server(move.source) as link:
            port = await self._port(link)
        await self._each(
            move.targets,
            lambda target: self._follow(
                target,
                self._source(move.source_host, port, move.source, target),
                move.acking,
                again=move.again,
                refetch=target.name in move.refetch,
            ),
        )
        return Done()

    async def _follow(
        self,
        target: Target,
        source: Source,
        acking: Collection[str],
        *,
        again: bool = False,
        refetch: bool = False,
    ) -> None:
        acks, host = target.name in acking, source.host
        async with self._server(target) as link:
            server = await self._read(link)
            if not server.read_only:
                await self._close(link, target)
            now = server.replication
            # Naming the source again deletes the relay log.
            refetch = refetch and now is not None and not (now.sql_running or now.io_running)
            # A password that the source refuses is put right as well.
            right = (
                now is not None
                and now.host == host
                and now.by_gtid
                and now.verifies is bool(source.authority)
                and not again
                and not refetch
                and now.io_errno != ACCESS_DENIED
            )
            if (
                right
                and now is not None
                and now.io_running
                and now.sql_running
                and server.semi_sync.replica == acks
            ):
                return
            await self._as_replica(link, server, acks=acks)
            if not right:
                await link.query(self._dialect.stop())
                here = await link.one(self._dialect.position())
                for statement in self._dialect.follow(source, here):
                    await link.query(statement, about="the change of the source")
            await link.query(self._dialect.start())
            await self._follows(link, target, host, acks=acks)

    async def _as_replica(self, link: Link, server: Server, *, acks: bool) -> None:
        """Semi-synchronous replication before every START: the receiver reads it then, and a restart forgets it."""
        # A replica that waits for acknowledgements itself would block its applier.
        if server.semi_sync.source:
            await self._all(link, self._dialect.source_semi_sync(on=False, acks=1))
        if server.semi_sync.replica != acks:
            # A receiver goes on as it was started: stopped first, so that it never runs as the setting does not say.
            await link.query(self._dialect.stop_receiver())
            await link.query(self._dialect.replica_semi_sync(on=acks))

    async def _follows(self, link: Link, target: Target, host: str, *, acks: bool) -> None:
        """Read back: it replicates from there, and its threads are at work or try to be."""

        def at_work(now: Replication) -> bool:
            return now.io_running and now.sql_running

        server = await self._until(link, lambda it: it.replication is not None and at_work(it.replication))
        now = server.replication
        if now is None or now.host != host or not now.by_gtid:
            raise StepFailed(f"{target.name} does not replicate from {host} after it was told to")
        if server.semi_sync.replica != acks:
            raise StepFailed(f"{target.name}: acknowledging could not be switched {'on' if acks else 'off'}")
        if not now.sql_running or not (now.io_running or now.connecting):
            said = now.sql_error or now.io_error
            raise StepFailed(f"{target.name} stopped replicating from {host}: {said or 'it names no error'}")

    # --- fencing and promoting -----------------------------------------------------------------------------

    async def fence(self, move: Fence) -> Done:
        """Stop receivers, and only these: what was received is still to be applied."""

        async def one(target: Target) -> None:
            async with self._server(target) as link:
                await self._stop_receiver(link, target)

        await self._each(move.targets, one)
        return Done()

    async def _stop_receiver(self, link: Link, target: Target) -> None:
        now = await self._replication(link)
        if now is None or not (now.io_running or now.connecting):
            return
        if await self._ended_amid_waiting(link):
            return
        await link.query(self._dialect.stop_receiver())
        now = await self._replication(link)
        if now is not None and (now.io_running or now.connecting):
            raise StepFailed(f"{target.name}: its receiver still runs after it was stopped")

    async def _ended_amid_waiting(self, link: Link) -> bool:
        """End a receiver that waits for space: it looks once a minute whether it is to stop, but each second whether it was killed.

        It gives up the transaction that it was writing, which nobody has acknowledged; what it had received whole is kept.
        A stop that comes before it has ended would take the kill back.
        """
        receiver = self._dialect.receiver_without_room(await link.query(self._dialect.sessions()))
        if not receiver:
            return False
        await self._kill(link, receiver)
        began = self._monotonic()
        while self._monotonic() - began < GIVES_UP:
            now = await self._replication(link)
            if now is None or not (now.io_running or now.connecting):
                return True
            await self._sleep(POLL)
        return False

    async def promote(self, move: Promote) -> Done:
        """Receiver off, drained, source forgotten, acknowledgements on, writable last; the others follow meanwhile."""
        target = move.target
        async with self._server(target) as link:
            server = await self._read(link)
            if server.replication is not None:
                await self._stop_receiver(link, target)
                if not await self._drained(link, target, move.expected):
                    await self._unblock(link, target)
                    return Done(partial=True)
                self._holds.drained(target.host)
                await link.query(self._dialect.stop())
                await link.query(self._dialect.forget_source())
                await self._all(link, self._dialect.applied())
            server = await self._read(link)
            if server.replication is not None:
                raise StepFailed(
                    f"{target.name} still replicates from {server.replication.host} after it was stopped"
                )
            if not server.executed.contains(move.expected):
                raise StepFailed(
                    f"{target.name} lacks {(move.expected - server.executed).text()}; it is not promoted"
                )
            if server.semi_sync.replica:
                await link.query(self._dialect.replica_semi_sync(on=False))
            await self._set_source(link, on=move.semi_sync, acks=move.acks, now=server)
            followers = (
                asyncio.create_task(self._adopt(move, await self._port(link))) if move.others else None
            )
            try:
                await self._open_up(link, target)
            finally:
                if followers is not None:
                    await asyncio.wait([followers], timeout=PATIENCE)
                    # It goes on by itself, within the time limits of its statements; the next pass repairs what fails.
                    self._holds.keep(followers)
            for other in move.others:
                self._holds.release_soon(other.host)
        return Done()

    async def _drained(self, link: Link, target: Target, expected: Position) -> bool:
        """Wait until everything received was applied; false when that takes longer."""
        began = self._monotonic()
        while True:
            server = await self._read(link)
            now = server.replication
            # Without GTIDs (`relay`) a server does not say what it received: it applies until it has read all.
            rescued = now is not None and not now.by_gtid and now.sql_running and not now.idle
            if (
                not rescued
                and server.executed.contains(server.received)
                and server.executed.contains(expected)
            ):
                return True
            if now is not None and not now.sql_running:
                if now.sql_errno:
                    raise StepFailed(
                        f"{target.name} cannot apply what it received, error {now.sql_errno}: {now.sql_error}"
                    )
                await self._resume_applier(link)
            if self._monotonic() - began > PATIENCE:
                return False
            await self._sleep(POLL)

    async def _unblock(self, link: Link, target: Target) -> None:
        """Disconnect the clients of a candidate that applies nothing: a lock of one of them may be in the way."""
        executed = (await self._read(link)).executed
        if self._holds.stands_still(target.host, executed.text(), self._monotonic()) < STILL:
            return
        sessions = await self._clients(link)
        log.info(
            "clients of a candidate that applies nothing are disconnected",
            server=target.name,
            sessions=len(sessions),
        )
        for session in sessions:
            await self._kill(link, session)

    async def _resume_applier(self, link: Link) -> None:
        if self._dialect.keeps_relay_log:
            await link.query(self._dialect.start_applier())
            return
        point = await first_unapplied(link, self._dialect)
        if point is not None:
            await self._all(link, self._dialect.apply_from(point.file, point.position))
            await link.query(self._dialect.start_applier())

    async def _adopt(self, move: Promote, port: int) -> None:
        """Point the others at the new primary; what does not get through is for the next pass.

        A server whose writes are held is left for later: nothing can be changed there before the hold ends.
        """

        async def one(target: Target) -> None:
            try:
                await self._follow(
                    target, self._source(move.source_host, port, move.target, target), move.acking
                )
            except (DialError, StepFailed) as error:
                log.info(
                    "a replica does not follow the new primary yet", server=target.name, error=str(error)
                )

        await asyncio.gather(*(one(it) for it in move.others if not self._holds.has(it.host)))

    async def _open_up(self, link: Link, target: Target) -> None:
        await link.query(self._dialect.read_only(False))
        server = await self._read(link)
        if server.read_only:
            raise StepFailed(f"{target.name} is still read-only after it was made writable")

    # --- read-only -----------------------------------------------------------------------------------------

    async def demote(self, move: Demote) -> Done:
        """Read-only, then its clients are disconnected so that they find the primary."""
        async with self._server(move.target) as link:
            await self._close(link, move.target)
            for session in await self._clients(link):
                await self._kill(link, session)
        return Done()

    async def _close(self, link: Link, target: Target) -> None:
        """Read-only, without waiting for ever for statements under way.

        Commits that wait for acknowledgements hold it up as well. They cannot be killed (MariaDB would commit them): then
        the process has to go, not the session.
        """
        if (await self._read(link)).read_only:
            return
        await link.query(f"SET SESSION lock_wait_timeout = {LOCK}")
        for _ in range(TRIES):
            try:
                await link.query(self._dialect.read_only(True), timeout=LOCK + 5)
            except SqlError as error:
                if error.code != BUSY:
                    raise
            else:
                break
        server = await self._read(link)
        if not server.read_only:
            waiting = server.semi_sync.waiting
            why = f"{waiting} commits wait for acknowledgements" if waiting else "statements hold locks"
            raise StepFailed(f"{target.name} cannot be made read-only: {why}")

    async def switch(self, move: Switch) -> Done:
        """Hold writes once the candidate is close, until it has everything; writable again past the deadline.

        A global read lock makes clients wait instead of failing. Statements that begin while the server is read-only fail at
        once, lock or not, so that comes last, when writers wait already (`GATHER`). The lock is let go when the new primary leads
        (`Holds`); should it be lost before (this process may die), writes fail, they never go on.
        """
        deadline = self._monotonic() + move.deadline
        async with self._server(move.candidate) as candidate:
            await self._close_by(move, candidate, deadline)
            hold = await self._hold(move, deadline)
            try:
                await self._sleep(GATHER)
                await self._caught_up(move, hold.link, candidate, deadline)
                await hold.link.query(self._dialect.read_only(True))
                if not (await self._read(hold.link)).read_only:
                    raise StepFailed(f"{move.primary.name} is not read-only after it was made so")
            except BaseException:
                # Also where this task is cancelled: a primary that nobody can write to must not stay behind.
                await asyncio.shield(self._undo(hold.link))
                hold.close()
                raise
            self._holds.put(move.primary.host, hold)
        return Done()

    async def _close_by(self, move: Switch, candidate: Link, deadline: float) -> None:
        """Before anything is held: the candidate follows and is not far behind."""
        async with self._server(move.primary) as primary:
            while True:
                target = self._dialect.position_of(await primary.one(self._dialect.position()))
                server = await self._read(candidate)
                now = server.replication
                if now is None or not now.io_running or not now.sql_running:
                    raise StepFailed(f"{move.candidate.name} does not replicate at present; no switch")
                if target.ahead_of(server.executed) <= CLOSE:
                    return
                if self._monotonic() > deadline - move.deadline / 2:
                    behind = target.ahead_of(server.executed)
                    raise StepFailed(f"{move.candidate.name} is {behind} transactions behind; no switch")
                await self._sleep(POLL)

    async def _hold(self, move: Switch, deadline: float) -> Hold:
        """The global read lock, in a session of its own; statements that last are killed after the grace."""
        link = await self._dial.session(move.primary.host, self._login, name=move.primary.name)
        try:
            await self._same(link, move.primary)
            await link.query(f"SET SESSION lock_wait_timeout = {LOCK}")
            grace = deadline - move.deadline / 2
            while True:
                try:
                    await link.query("FLUSH TABLES WITH READ LOCK", timeout=LOCK + 5)
                    break
                except SqlError as error:
                    if error.code != BUSY:
                        raise
                if self._monotonic() > deadline - LOCK:
                    raise StepFailed(
                        f"{move.primary.name} could not be held within {move.deadline:g} s: statements of clients last longer"
                    )
                if self._monotonic() > grace:
                    await self._kill_writers(move.primary)
        except BaseException:
            await asyncio.shield(self._undo(link))
            link.close()
            raise
        return Hold(link, self._let_go)

    async def _kill_writers(self, target: Target) -> None:
        """The sessions that hold it up, but never one that waits for an acknowledgement (F4)."""
        async with self._server(target) as link:
            for row in await link.query(self._dialect.writers()):
                if number(row, "seconds") >= 1 and not self._dialect.waits_for_ack(text_of(row, "state")):
                    await self._kill(link, number(row, "id"))

    async def _caught_up(self, move: Switch, primary: Link, candidate: Link, deadline: float) -> None:
        target = self._dialect.position_of(await primary.one(self._dialect.position()))
        while True:
            if (await self._read(candidate)).executed.contains(target):
                return
            if self._monotonic() > deadline:
                raise StepFailed(
                    f"{move.candidate.name} did not catch up within {move.deadline:g} s; {move.primary.name} is writable again"
                )
            await self._sleep(POLL)

    async def _undo(self, link: Link) -> None:
        """Writable again, however far it came."""
        with contextlib.suppress(DialError):
            await link.query(self._dialect.read_only(False))
        with contextlib.suppress(DialError):
            await link.query("UNLOCK TABLES")

    async def _let_go(self, link: Link) -> None:
        """Disconnect the clients that wait for the lock of this session; those that log in, once they have."""
        until = self._monotonic() + LOGIN
        with contextlib.suppress(DialError):
            while True:
                more = number(await link.one(self._dialect.logging_in()), "n")
                for session in await self._clients(link):
                    await self._kill(link, session)
                if not more or self._monotonic() > until:
                    return
                await self._sleep(POLL)

    async def _clients(self, link: Link) -> list[int]:
        """Sessions of clients that may be killed."""
        return [
            number(row, "id")
            for row in await link.query(self._dialect.clients())
            if not self._dialect.waits_for_ack(text_of(row, "state"))
        ]

    async def _kill(self, link: Link, session: int) -> None:
        with contextlib.suppress(SqlError):  # it ended by itself
            await link.query(self._dialect.kill(session))

    # --- durability ----------------------------------------------------------------------------------------

    async def set_durability(self, move: SetDurability) -> Done:
        """Replicas acknowledge before the primary waits for them, and stop after it waits for fewer."""
        await self._each(move.acking, lambda target: self._acknowledge(target, acks=True))
        async with self._server(move.primary) as link:
            server = await self._read(link)
            await self._set_source(link, on=move.semi_sync, acks=move.acks, now=server)
        await self._each(move.silent, lambda target: self._acknowledge(target, acks=False))
        return Done()

    async def _acknowledge(self, target: Target, *, acks: bool) -> None:
        async with self._server(target) as link:
            server = await self._read(link)
            if server.semi_sync.replica == acks:
                return
            running = server.replication is not None and (
                server.replication.io_running or server.replication.connecting
            )
            if running:
                await link.query(self._dialect.stop_receiver())
            await link.query(self._dialect.replica_semi_sync(on=acks))
            if running:
                await link.query(self._dialect.start_receiver())
            if (await self._read(link)).semi_sync.replica != acks:
                raise StepFailed(
                    f"{target.name}: acknowledging could not be switched {'on' if acks else 'off'}"
                )

    async def _set_source(self, link: Link, *, on: bool, acks: int, now: Server) -> None:
        if not self._source_right(now.semi_sync, on=on, acks=acks):
            await self._all(link, self._dialect.source_semi_sync(on=on, acks=acks))
            if not self._source_right((await self._read(link)).semi_sync, on=on, acks=acks):
                raise StepFailed(
                    f"{link.name}: semi-synchronous replication could not be switched {'on' if on else 'off'}"
                )

    def _source_right(self, now: SemiSync, *, on: bool, acks: int) -> bool:
        if not on:
            return not now.source
        return now.source and now.after_sync and now.timeout >= DAY and now.acks == self._dialect.acks(acks)

    # --- configuration and accounts ------------------------------------------------------------------------

    async def configure(self, move: Configure) -> Done:
        """One variable on several servers; the value a server made of it counts from then on."""
        results = await asyncio.gather(*(self._configure(target, move) for target in move.targets))
        off = next((it for it in results if it.state != "Applied"), None)
        return Done(config=(move.key, off) if off is not None else None)

    async def _configure(self, target: Target, move: Configure) -> ConfigResult:
        keys = keys_of()
        key = keys.canonical(move.key)
        if _NAME.fullmatch(key) is None:
            return ConfigResult(
                wanted=move.value, state="Unknown", message=f"{move.key!r} is no name of a variable"
            )
        async with self._server(target) as link:
            try:
                await link.query(
                    f"SET GLOBAL {key} = {_value(keys.sent(key, move.value))}", about=f"SET GLOBAL {key}"
                )
            except SqlError as error:
                if error.code == AT_START:
                    return ConfigResult(
                        wanted=move.value, state="NeedsRestart", restart=True, effective=move.previous
                    )
                unknown = error.code == UNKNOWN
                return ConfigResult(
                    wanted=move.value,
                    state="Unknown" if unknown else "Rejected",
                    message=(
                        f"the server knows no variable {key}; remove it from spec.config"
                        if unknown
                        else f"the server refused {move.value!r} (error {error.code}); correct or remove it in spec.config"
                    ),
                    previous=move.previous,
                )
            row = await link.one(f"SHOW GLOBAL VARIABLES WHERE Variable_name = {quoted(key)}")
        shown = text_of(row, "Value") if row else move.value
        return result_of(keys, move.key, wanted=move.value, shown=shown, previous=move.previous)

    async def tune(self, move: Tune) -> Done:
        """One size on several servers; a server that keeps the value before did not take it."""

        async def one(target: Target) -> None:
            async with self._server(target) as link:
                for key in move.variables:
                    await link.query(
                        f"SET GLOBAL {key} = {move.value}", about=f"SET GLOBAL {key}", timeout=30.0
                    )
                row = await link.one(
                    f"SHOW GLOBAL VARIABLES WHERE Variable_name = {quoted(move.variables[0])}"
                )
                if number(row, "Value") == move.previous:
                    raise StepFailed(f"{target.name} keeps {move.variables[0]} = {move.previous}")

        await self._each(move.targets, one)
        return Done()

    async def amend(self, move: Amend) -> Done:
        """Statements on the primary, each alone; a password is put in here."""
        async with self._server(move.primary) as link:
            if (await self._read(link)).read_only:
                raise StepFailed(f"{move.primary.name} is read-only; accounts are corrected on the primary")
            for statement in move.statements:
                head = " ".join(statement.split()[:2])
                await link.query(self._filled(statement), about=f"{head} ...", timeout=10.0)
        return Done()

    async def reload(self, move: ReloadCertificates) -> Done:
        """Certificates are read from the files of the pod, which follow the Secret within about a minute."""

        async def one(target: Target) -> None:
            async with self._server(target) as link:
                await link.query(self._dialect.reload_tls())
            # A connection shows the certificate that it began with.
            self._dial.forget(target.host)
            async with self._server(target) as link:
                if (await self._read(link)).certificate != move.certificate:
                    raise StepFailed(f"{target.name} has not received the new certificate yet")

        await self._each(move.targets, one)
        return Done()

    async def set_passwords(self, move: SetPasswords) -> Done:
        """Each account alone; the others go on where one fails, which is reported."""
        async with self._server(move.primary) as link:
            if (await self._read(link)).read_only:
                raise StepFailed(f"{move.primary.name} is read-only; accounts are corrected on the primary")
            rows = {
                (text_of(row, "user"), text_of(row, "host")): row
                for row in await link.query(self._dialect.accounts())
            }
            for name, host, label in move.accounts:
                text = self._credentials.text(label)
                if not text or (name, host) not in rows:
                    continue
                made = (
                    self._dialect.add_password(rows[name, host], name, host, text)
                    if move.beside
                    else self._dialect.only_password(name, host, text)
                )
                for statement in made:
                    await link.query(statement, about=f"ALTER USER {name}@{host}", timeout=10.0)
        return Done()

    def _filled(self, statement: str) -> str:
        def text(found: re.Match[str]) -> str:
            value = self._credentials.text(found[1])
            if not value:
                raise StepFailed(f"there is no password {found[1]!r}")
            return quoted(value)

        return _SECRET.sub(text, statement)

    # --- ways to talk --------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _server(self, target: Target) -> AsyncIterator[Link]:
        async with self._dial.open(target.host, self._login, name=target.name) as link:
            await self._same(link, target)
            yield link

    async def _same(self, link: Link, target: Target) -> None:
        """Another process at the address is a restarted server, or a stranger that was given it: it is left alone."""
        if target.server_id and number(await link.one("SELECT @@server_id AS id"), "id") != target.server_id:
            raise AnotherProcess(target)

    async def _read(self, link: Link) -> Server:
        return await read_server(link, self._dialect)

    async def _replication(self, link: Link) -> Replication | None:
        return self._dialect.replication_of(await link.query(self._dialect.replication()))

    async def _until(self, link: Link, reached: Callable[[Server], bool]) -> Server:
        """What a server is once it is so, or after `PATIENCE`."""
        began = self._monotonic()
        while True:
            server = await self._read(link)
            if reached(server) or self._monotonic() - began > PATIENCE:
                return server
            await self._sleep(POLL)

    async def _port(self, link: Link) -> int:
        """Where replicas connect to a source: clients that wait for them may have used up its connections.

        A server whose accounts or settings were made before that was so takes them where it takes clients.
        """
        try:
            results = await link.results(self._dialect.reserved())
        except SqlError:
            return PORT
        rows = [row for result in results for row in result]
        return ADMIN_PORT if self._dialect.reserved_in(rows) else PORT

    def _source(self, host: str, port: int, source: Target, replica: Target) -> _Source:
        """Where a replica is to connect to, as both are started: a roll-out may just be giving them certificates.

        A source without a certificate is connected to as it is; a replica without the authorities' cannot check.
        """
        password = self._credentials.in_force[ACCOUNTS[REPLICATION]]
        plain = self._credentials.plain
        tls = self._tls and source.host not in plain
        authority = self._authority if tls and replica.host not in plain else ""
        return _Source(
            host=host, port=port, user=REPLICATION, password=password, tls=tls, authority=authority
        )

    async def _all(self, link: Link, statements: Sequence[str]) -> None:
        for statement in statements:
            await link.query(statement)

    async def _each(self, targets: Sequence[Target], effect: Callable[[Target], Awaitable[None]]) -> None:
        """All at once; every one is tried before the first failure is raised."""
        results = await asyncio.gather(*(effect(target) for target in targets), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, DialError | StepFailed):
                raise failure
        if failures:
            raise StepFailed("; ".join(str(failure) for failure in failures))


ACCESS_DENIED: Final = 1045
_NAME: Final = re.compile(r"[a-z][a-z0-9_.]{0,127}")
_SECRET: Final = re.compile(r"%\(([a-z0-9.-]+)\)s")
_PLAIN: Final = re.compile(r"[+-]?\d+(\.\d+)?|ON|OFF|TRUE|FALSE|DEFAULT", re.IGNORECASE)

_HANDLERS: dict[type[DatabaseMove], Callable[[Steps, Any], Awaitable[Done]]] = {
    Follow: Steps.follow,
    Fence: Steps.fence,
    Promote: Steps.promote,
    Demote: Steps.demote,
    Switch: Steps.switch,
    SetDurability: Steps.set_durability,
    Configure: Steps.configure,
    Tune: Steps.tune,
    Amend: Steps.amend,
    SetPasswords: Steps.set_passwords,
    ReloadCertificates: Steps.reload,
}


def _value(text: str) -> str:
    """A value of SET GLOBAL: numbers and switches as they are, everything else as text."""
    return text if _PLAIN.fullmatch(text) else quoted(text)
