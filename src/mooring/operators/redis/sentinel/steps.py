"""The effects: one idempotent move each, safe to run again after a crash at any point.

Commands go through `Dial`, whose fence is checked at every send. A step asks before it acts where the answer
may have changed since the look, works for about a second at most, and raises `StepFailed` with the reason;
the next pass decides again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

from mooring.actor import StepFailed
from mooring.operators.redis.address import SENTINEL_PORTS
from mooring.operators.redis.dial import Dial, DialError, Link, Refused, Unreachable
from mooring.operators.redis.info import pairs, parse_info
from mooring.operators.redis.passwords.moves import PasswordMove, ServerAuth, SwitchPassword
from mooring.operators.redis.passwords.seen import logins
from mooring.operators.redis.passwords.steps import change_password
from mooring.operators.redis.sentinel.moves import (
    Configure,
    DatabaseMove,
    Demote,
    Done,
    FailOver,
    Follow,
    Hasten,
    Monitor,
    MoveSentinels,
    Promote,
    Quarantine,
    ReadCertificates,
    Repoint,
    RestartSentinel,
    SetPriority,
    SetTransport,
    Switch,
    Target,
    TellSentinels,
    TuneSentinel,
    UsersMove,
)
from mooring.operators.redis.sentinel.settings import KEYS
from mooring.operators.redis.sentinel.topology import GATE, MASTER_NAME, Server, read_server, sentinel_user
from mooring.operators.redis.tls import shown_leaf
from mooring.operators.redis.users.accounts import WATCHER
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.users.moves import UsersDone
from mooring.operators.redis.users.steps import change_users, together
from mooring.operators.workload.configuration import ConfigResult, result_of
from mooring.operators.workload.credentials import Kept

__all__ = ["Steps"]

T = TypeVar("T")


class AnotherProcess(DialError):
    """The process that was seen no longer answers at its address; another one there is not touched."""


POLL = 0.02
"""Seconds between two looks while a step waits for its effect."""


class Steps:
    """Carries out the moves that concern the databases."""

    def __init__(
        self,
        dial: Dial,
        *,
        kept: Kept | None = None,
        access: Access | None = None,
        master_name: str = MASTER_NAME,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self._dial = dial
        self._kept = kept or Kept()
        self._access = access or Access()
        self._master_name = master_name
        self._sleep = sleep
        self._monotonic = monotonic

    async def run(self, move: DatabaseMove | UsersMove | PasswordMove) -> Done:
        """Carry out one move; raises `StepFailed` when it failed."""
        try:
            if isinstance(move, UsersMove):
                return Done(users=await self.users(move))
            if isinstance(move, PasswordMove):
                await self.passwords(move)
                return Done()
            return await _HANDLERS[type(move)](self, move)
        except DialError as error:
            raise StepFailed(str(error)) from error

    # --- roles -------------------------------------------------------------------------------------------

    async def promote(self, move: Promote) -> Done:
        """REPLICAOF NO ONE, eligible from then on."""
        async with self._data(move.target) as link:
            await link.call("CONFIG", "SET", "slave-priority", 1)
            await link.call("SLAVEOF", "NO", "ONE")
        return Done()

    async def follow(self, move: Follow) -> Done:
        """REPLICAOF on several servers at once; one that does not answer does not delay the others."""
        unsynced = {target.name for target in move.unsynced}
        await self._confirm(move.master)

        async def one(target: Target) -> None:
            async with self._data(target) as link:
                if target.name in unsynced:
                    await link.call("CONFIG", "SET", "slave-priority", 0)
                await link.call("SLAVEOF", move.master.address.ip, move.master.address.port)

        await self._each(move.targets, one)
        return Done()

    async def demote(self, move: Demote) -> Done:
        """REPLICAOF on the second master; its clients are disconnected so that they ask the sentinels again."""
        await self._confirm(move.master)
        async with self._data(move.target) as link:
            info, *answers = await link.pipeline(
                [
                    ("INFO", "replication"),
                    ("CONFIG", "SET", "slave-priority", 0),
                    ("SLAVEOF", move.master.address.ip, move.master.address.port),
                    ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
                ]
            )
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        if not move.forked or isinstance(info, Refused):
            return Done()
        offset = int(parse_info(info).get("master_repl_offset", "0"))
        return Done(lost_bytes=max(0, offset - move.forked))

    async def quarantine(self, move: Quarantine) -> Done:
        """No more writes: the server follows the placeholder address; its data stays."""
        async with self._data(move.target) as link:
            await link.call("CONFIG", "SET", "slave-priority", 0)
            await link.call("SLAVEOF", GATE.ip, GATE.port)
            await link.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            if move.save:
                with contextlib.suppress(Refused):
                    await link.call("BGSAVE")
        return Done()

    async def set_priority(self, move: SetPriority) -> Done:
        """Make servers eligible as master, or exclude them."""
        await self._call_all(move.targets, "CONFIG", "SET", "slave-priority", move.priority)
        return Done()

    # --- fail-over ---------------------------------------------------------------------------------------

    async def fail_over(self, move: FailOver) -> Done:
        """Bring the replicas to one offset, ask a sentinel, and point the others at the new master the moment it is one."""
        if move.equalise:
            await self._level(move.best, move.heirs)
        await self._ask_sentinels(move.sentinels)
        chosen = await self._await_master(move.heirs, patience=1.5)
        await self._turn(move.heirs, chosen)
        return Done()

    async def _level(self, best: Target, heirs: tuple[Target, ...]) -> None:
        """Chain the others behind the one that received most; a partial sync takes milliseconds.

        Sentinel chooses by offsets it may have read ten seconds ago, so all must hold the same.
        """
        others = tuple(target for target in heirs if target != best)
        await self._confirm(best)
        await self._call_all(others, "SLAVEOF", best.address.ip, best.address.port)
        await self._until_level((await self._server(best)).offset, others, patience=0.5)

    async def _until_level(self, offset: int, targets: tuple[Target, ...], *, patience: float) -> None:
        deadline = self._monotonic() + patience
        while True:
            servers = await asyncio.gather(*(self._server(target) for target in targets))
            behind = [one for one, it in zip(targets, servers, strict=True) if it.offset < offset]
            if not behind:
                return
            if self._monotonic() > deadline:
                raise StepFailed(f"{behind[0].name} did not reach offset {offset} within {patience} s")
            await self._sleep(POLL)

    async def _ask_sentinels(self, sentinels: tuple[Target, ...]) -> None:
        refusals = []
        for target in sentinels:
            try:
                async with self._sentinel(target) as link:
                    await link.call("SENTINEL", "FAILOVER", self._master_name)
                    return
            except Refused as error:
                refusals.append(error.reply)
                if error.reply.startswith("INPROG"):
                    return
            except DialError as error:
                refusals.append(str(error))
        raise StepFailed(f"no sentinel took the fail-over: {'; '.join(refusals)}")

    async def _await_master(self, heirs: tuple[Target, ...], *, patience: float) -> Target:
        """Poll until one is master; a sentinel cuts the connections of the one it promotes, ours too."""
        deadline = self._monotonic() + patience
        while self._monotonic() < deadline:
            for target, leads in zip(heirs, await asyncio.gather(*map(self._leads, heirs)), strict=True):
                if leads:
                    return target
            await self._sleep(POLL)
        raise StepFailed(f"none of {', '.join(one.name for one in heirs)} became master within {patience} s")

    async def _leads(self, target: Target) -> bool:
        try:
            async with self._data(target) as link:
                answer: Any = await link.call("ROLE")
                return bool(answer[0] == "master")
        except DialError:
            return False

    async def _turn(self, heirs: tuple[Target, ...], chosen: Target) -> None:
        others = tuple(target for target in heirs if target != chosen)
        with contextlib.suppress(DialError, StepFailed):
            await self._call_all(others, "SLAVEOF", chosen.address.ip, chosen.address.port)

    async def switch(self, move: Switch) -> Done:
        """Hold writes, wait until every replica has the master's offset, ask the sentinels, demote, release writes."""
        async with self._data(move.master) as master:
            await self._hold(master, move)
            try:
                offset = (await read_server(master)).offset
                await self._until_level(offset, move.heirs, patience=1.0)
                await self._ask_sentinels(move.sentinels)
                chosen = await self._await_master(move.heirs, patience=2.0)
                await master.call("SLAVEOF", chosen.address.ip, chosen.address.port)
                await master.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            finally:
                await self._let_go(master, move)
        await self._turn(move.heirs, chosen)
        return Done()

    async def _hold(self, master: Link, move: Switch) -> None:
        if move.pause:
            await master.call("CLIENT", "PAUSE", 5000, "WRITE")
            return
        await master.call("CONFIG", "SET", "min-slaves-max-lag", 10)
        await master.call("CONFIG", "SET", "min-slaves-to-write", 99)

    async def _let_go(self, master: Link, move: Switch) -> None:
        with contextlib.suppress(DialError):
            if move.pause:
                await master.call("CLIENT", "UNPAUSE")
            else:
                await master.call("CONFIG", "SET", "min-slaves-to-write", move.fence)

    # --- sentinels ---------------------------------------------------------------------------------------

    async def monitor(self, move: Monitor) -> Done:
        """REMOVE on all, then MONITOR and SET on all, so that none spreads an old master."""

        async def forget(target: Target) -> None:
            async with self._sentinel(target) as link:
                with contextlib.suppress(Refused):
                    await link.call("SENTINEL", "REMOVE", self._master_name)

        async def point(target: Target) -> None:
            async with self._sentinel(target) as link:
                name, master = self._master_name, move.master.address
                with contextlib.suppress(Refused):  # a second try finds it monitored already
                    await link.call("SENTINEL", "MONITOR", name, master.ip, master.port, move.quorum)
                await self._tune(link, {**move.settings, **self._presented, "quorum": str(move.quorum)})

        await self._confirm(move.master)
        await self._each(move.sentinels, forget)
        await self._each(move.sentinels, point)
        await self._introduce(move)
        return Done()

    async def _introduce(self, move: Monitor) -> None:
        """Sentinels hear of each other by the greeting each would publish itself within two seconds.

        Epochs of 0 in it change nothing for who hears it. A failed one is ignored: it comes
        by itself.
        """
        name, master = self._master_name, move.master.address
        greetings = {
            peer: f"{peer.address.ip},{peer.address.port},{id},0,{name},{master.ip},{master.port},0"
            for id, peer in move.peers.items()
            if id
        }

        async def greet(target: Target) -> None:
            heard = [
                ("PUBLISH", "__sentinel__:hello", text)
                for peer, text in greetings.items()
                if peer != target and (peer in move.sentinels or target in move.sentinels)
            ]
            async with self._sentinel(target) as link:
                await link.pipeline(heard)

        with contextlib.suppress(DialError, StepFailed):
            await self._each(tuple(greetings), greet)

    async def tune(self, move: TuneSentinel) -> Done:
        """SENTINEL SET of what differs."""
        async with self._sentinel(move.sentinel) as link:
            await self._tune(link, dict(move.settings))
        return Done()

    async def hasten(self, move: Hasten) -> Done:
        """SENTINEL DEBUG (7.0)."""
        periods = [word for period in move.periods.items() for word in period]

        async def one(target: Target) -> None:
            async with self._sentinel(target) as link:
                await link.call("SENTINEL", "DEBUG", *periods)

        await self._each(move.sentinels, one)
        return Done()

    async def _tune(self, link: Link, settings: dict[str, str]) -> None:
        answers = await link.pipeline(
            [("SENTINEL", "SET", self._master_name, name, value) for name, value in settings.items()]
        )
        for name, answer in zip(settings, answers, strict=True):
            if isinstance(answer, Refused):
                raise StepFailed(
                    f"SENTINEL SET {name} was refused: {answer.reply if name != 'auth-pass' else ''}"
                )

    @property
    def _presented(self) -> dict[str, str]:
        """What a sentinel is to show servers."""
        if self._access.held.told:
            return {"auth-user": WATCHER, "auth-pass": self._kept.accounts[WATCHER]}
        return {"auth-pass": self._kept.password} if self._kept.password else {}

    # --- users -------------------------------------------------------------------------------------------

    async def users(self, move: UsersMove) -> UsersDone:
        """On every server or sentinel at once; what servers refuse of a user is in the result."""
        if isinstance(move, TellSentinels):
            account = {"auth-user": WATCHER, "auth-pass": self._kept.accounts[WATCHER]}

            async def tell(target: Target) -> None:
                async with self._sentinel(target) as link:
                    await self._tune(link, account)

            await self._each(move.targets, tell)
            return UsersDone()
        done: list[UsersDone] = []

        async def one(target: Target) -> None:
            async with self._data(target) as link:
                done.append(await change_users(link, move, access=self._access, kept=self._kept))

        await self._each(move.targets, one)
        return together(done)

    # --- passwords ---------------------------------------------------------------------------------------

    async def passwords(self, move: PasswordMove) -> None:
        """On every server at once; sentinels present the password before, or with a switch at the same time."""

        async def one(server: ServerAuth) -> None:
            async with self._data(server.target) as link:
                account = self._access.held.presents
                await change_password(link, move, server, kept=self._kept, account=account)

        told = self._tell(move.sentinels, self._kept.published().password)
        if isinstance(move, SwitchPassword):
            await asyncio.gather(self._each(move.targets, one), told)
        else:
            await told
            await self._each(move.targets, one)

    async def _tell(self, sentinels: tuple[Target, ...], text: str) -> None:
        async def one(target: Target) -> None:
            async with self._sentinel(target) as link:
                await self._tune(link, {"auth-pass": text})

        await self._each(sentinels, one)

    # --- certificates ------------------------------------------------------------------------------------

    async def read_certificates(self, move: ReadCertificates) -> Done:
        """CONFIG SET of the files; a pod's files follow the Secret within about a minute."""

        async def one(target: Target) -> None:
            try:
                async with self._data(target) as link:
                    await link.call("CONFIG", "SET", "tls-ca-cert-file", f"/mooring/tls/{move.authority}")
                    await link.call("CONFIG", "SET", "tls-cert-file", "/mooring/tls/tls.crt")
            except Refused as error:
                raise StepFailed(f"{target.name} has not received the new certificate yet") from error
            # A connection shows the certificate that it began with.
            async with self._data(target) as link:
                if shown_leaf(link.certificate) != move.leaf:
                    raise StepFailed(f"{target.name} has not received the new certificate yet")

        await self._each(move.targets, one)
        return Done()

    async def restart_sentinel(self, move: RestartSentinel) -> Done:
        """SHUTDOWN; its configuration outlives the container."""
        async with self._sentinel(move.sentinel) as link:
            await self._stop(link)
        return Done()

    async def _stop(self, link: Link) -> None:
        with contextlib.suppress(Unreachable):
            await link.call("SHUTDOWN")

    # --- from one port to the other ----------------------------------------------------------------------

    async def set_transport(self, move: SetTransport) -> Done:
        """CONFIG SET; connections that are open stay as they are."""
        await self._call_all(move.targets, "CONFIG", "SET", "tls-replication", _yes(move.tls))
        return Done()

    async def repoint(self, move: Repoint) -> Done:
        """REPLICAOF at the other port: a partial synchronisation, since its history is the master's."""
        await self._confirm(move.master)
        async with self._data(move.target) as link:
            ip, port = move.master.address
            answers = await link.pipeline(
                [("CONFIG", "SET", "tls-replication", _yes(move.tls)), ("SLAVEOF", ip, port)]
            )
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return Done()

    async def move_sentinels(self, move: MoveSentinels) -> Done:
        """The port that a sentinel announces stands in its file, and its next start uses what that says."""
        plain, encrypted = SENTINEL_PORTS

        async def one(target: Target) -> None:
            async with self._sentinel(target) as link:
                await link.call(
                    "SENTINEL", "CONFIG", "SET", "announce-port", encrypted if move.tls else plain
                )
                await self._stop(link)

        await self._each(move.sentinels, one)
        return Done()

    # --- configuration -----------------------------------------------------------------------------------

    async def configure(self, move: Configure) -> Done:
        """One key on several servers; the value the server made of it counts from then on."""
        results = await asyncio.gather(*(self._configure(target, move) for target in move.targets))
        off = next((it for it in results if it.state != "Applied"), None)
        return Done(config=(move.key, off) if off is not None else None)

    async def _configure(self, target: Target, move: Configure) -> ConfigResult:
        async with self._data(target) as link:
            try:
                await link.call("CONFIG", "SET", move.key, move.value)
            except Refused as error:
                if "immutable" in error.reply or "Unsupported CONFIG" in error.reply:
                    return ConfigResult(
                        wanted=move.value, state="NeedsRestart", restart=True, effective=move.previous
                    )
                return ConfigResult(
                    wanted=move.value,
                    state="Rejected",
                    message=f"the server refused {move.value!r}: {error.reply}; correct or remove it in spec.config",
                    previous=move.previous,
                )
            answer: Any = await link.call("CONFIG", "GET", move.key)
        shown = KEYS.find(move.key, pairs(answer))
        return result_of(
            KEYS,
            move.key,
            wanted=move.value,
            shown=move.value if shown is None else shown,
            previous=move.previous,
        )

    # --- ways to talk ------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _data(self, target: Target) -> AsyncIterator[Link]:
        async with self._dial.link(target.address, password=logins(self._kept)) as link:
            await _same_process(link, target)
            yield link

    @contextlib.asynccontextmanager
    async def _sentinel(self, target: Target) -> AsyncIterator[Link]:
        async with self._dial.link(target.address, user=sentinel_user(self._kept)) as link:
            await _same_process(link, target)
            yield link

    async def _confirm(self, master: Target) -> None:
        """Check that the master that was seen still answers: replicas of another process would take its data."""
        async with self._data(master):
            return

    async def _server(self, target: Target) -> Server:
        async with self._data(target) as link:
            return await read_server(link)

    async def _call_all(self, targets: tuple[Target, ...], *words: str | int) -> None:
        """The same command on several data servers."""

        async def one(target: Target) -> None:
            async with self._data(target) as link:
                await link.call(*words)

        await self._each(targets, one)

    async def _each(self, targets: tuple[T, ...], effect: Callable[[T], Awaitable[None]]) -> None:
        """All at once; every one is tried before the first failure is raised."""
        results = await asyncio.gather(*(effect(target) for target in targets), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, DialError):
                raise failure
        if failures:
            raise StepFailed("; ".join(str(failure) for failure in failures))


_HANDLERS: dict[type[DatabaseMove], Callable[[Steps, Any], Awaitable[Done]]] = {
    Promote: Steps.promote,
    Follow: Steps.follow,
    Demote: Steps.demote,
    Quarantine: Steps.quarantine,
    SetPriority: Steps.set_priority,
    FailOver: Steps.fail_over,
    Switch: Steps.switch,
    Monitor: Steps.monitor,
    TuneSentinel: Steps.tune,
    Hasten: Steps.hasten,
    Configure: Steps.configure,
    ReadCertificates: Steps.read_certificates,
    SetTransport: Steps.set_transport,
    Repoint: Steps.repoint,
    MoveSentinels: Steps.move_sentinels,
    RestartSentinel: Steps.restart_sentinel,
}


async def _same_process(link: Link, target: Target) -> None:
    """Another process at the address is a restarted server, or a stranger that was given it: it is left alone."""
    if target.run_id and parse_info(await link.call("INFO", "server")).get("run_id") != target.run_id:
        raise AnotherProcess(
            f"{target.name}: the process that was seen no longer answers at {target.address}"
        )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
